//! What a node computes.

use autotune_workloads::{Coordinates, Function, PadMode, PoolKind, ReduceOp, Sampling};

use crate::constant::Constant;
use crate::error::OpError;
use crate::tensor::{Element, Tensor};

mod evaluate;
mod infer;

pub(crate) use infer::broadcast;

/// A window along one spatial axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sliding {
    /// Elements of the window.
    pub kernel: usize,
    /// Distance of neighbouring windows, in elements of the image.
    pub stride: usize,
    /// Distance of neighbouring elements of the window, in elements of the image.
    pub dilation: usize,
    /// Elements of padding before and behind the image.
    pub pad: [usize; 2],
}

impl Sliding {
    /// A dense window of these elements, one at every element of the image, without padding.
    pub fn new(kernel: usize) -> Self {
        Self { kernel, stride: 1, dilation: 1, pad: [0, 0] }
    }

    /// The same with another distance of windows.
    pub fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// The same with padding at both ends.
    pub fn pad(self, pad: usize) -> Self {
        Self { pad: [pad, pad], ..self }
    }
}

/// An operation on two tensors, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`, of integers rounded towards zero.
    Div,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// `a` to the power of `b`.
    Pow,
    /// Whether they are the same.
    Equal,
    /// Whether `a < b`.
    Less,
    /// Whether both are true.
    And,
}

/// The operation of a node, with everything about it that is no tensor. Shapes are outermost first; images are `[n, c, ..spatial]`; an axis is
/// counted from the outermost one, from 0 on.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// What the caller brings.
    Input,
    /// The same in all runs.
    Constant(Constant),
    /// Convolution of `[n, c, ..]` with weights `[o, c/groups, ..kernel]` and, as a third operand, biases `[o]`: one to three spatial axes.
    Conv {
        /// One for each spatial axis.
        window: Vec<Sliding>,
        /// Groups of channels.
        groups: usize,
    },
    /// Transposed convolution of `[n, c, ..]` with weights `[c, o/groups, ..kernel]` and, as a third operand, biases `[o]`.
    ConvTranspose {
        /// One for each spatial axis; padding is cut off the output.
        window: Vec<Sliding>,
        /// Rows that are added behind the output, for each spatial axis.
        output_pad: Vec<usize>,
        /// Groups of channels.
        groups: usize,
    },
    /// Product of the last two axes, `[.., m, k]` by `[.., k, n]`; those before are broadcast, a tensor of one axis is a row or a column
    /// (as `numpy.matmul`).
    MatMul,
    /// A function of every element.
    Map(Function),
    /// `x`, below zero `slope * x`; the slope is broadcast to `x`.
    Prelu,
    /// Of two tensors, broadcast to each other as in NumPy.
    Binary(Binary),
    /// True if not.
    Not,
    /// Where the first operand is true the second, else the third; all broadcast.
    Where,
    /// Of every window of `[n, c, ..]` one element.
    Pool {
        /// One for each spatial axis.
        window: Vec<Sliding>,
        /// True if windows that begin inside, but end beyond the padding, count.
        ceil: bool,
        /// What is made of a window.
        kind: PoolKind,
    },
    /// Of all elements along some axes one.
    Reduce {
        /// What is made of them.
        op: ReduceOp,
        /// The axes, in order.
        axes: Vec<usize>,
        /// True if the axes stay, with an extent of 1.
        keep_axes: bool,
    },
    /// `exp(x) / sum(exp(x))` along an axis, or its logarithm.
    Softmax {
        /// The axis.
        axis: usize,
        /// True for the logarithm.
        log: bool,
    },
    /// `(x - mean) / sqrt(variance + eps) * scale + bias` over the last axes, from `axis` on; scale and, if there is one, bias have the shape
    /// of these axes.
    LayerNorm {
        /// The first axis that is normalised over.
        axis: usize,
        /// What is added to the variance.
        eps: f32,
    },
    /// The same over the channels of a group and all spatial axes of `[n, c, ..]`; scale and bias are `[c]`.
    GroupNorm {
        /// Groups of channels: one is a layer normalisation, one for each channel an instance normalisation.
        groups: usize,
        /// What is added to the variance.
        eps: f32,
    },
    /// `x / (bias + alpha/size * (sum of squares of the nearest channels))^beta` of `[n, c, ..]`.
    LocalResponseNorm {
        /// Channels that are summed over.
        size: usize,
        /// What the mean of the squares counts.
        alpha: f32,
        /// The power.
        beta: f32,
        /// What is added.
        bias: f32,
    },
    /// Tensors one behind the other along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// Every `step`-th element from `start` on, `count` of them, for each axis.
    Slice(Vec<Range>),
    /// The same elements in another shape.
    Reshape(Vec<usize>),
    /// Axis `i` of the output is axis `perm[i]` of the input.
    Transpose(Vec<usize>),
    /// Broadcast to a shape.
    Expand(Vec<usize>),
    /// Elements around a tensor.
    Pad {
        /// Before and behind, for each axis.
        pad: Vec<[usize; 2]>,
        /// What is there.
        mode: PadMode,
        /// What is there of [`PadMode::Constant`].
        value: f32,
    },
    /// `[n, c, h, w]` to another height and width.
    Resize {
        /// Height and width of the output.
        size: [usize; 2],
        /// Where an element of the output lies.
        coordinates: Coordinates,
        /// What is made of the elements around it.
        sampling: Sampling,
    },
    /// Slices of the first operand along an axis, by their numbers in the second, which is of integers; negative ones count from the end. The
    /// output has the second's shape in place of the axis.
    Gather {
        /// The axis.
        axis: usize,
    },
    /// The same values as elements of another type: fractions are cut off, whatever is not 0 is true.
    Cast(Element),
    /// `softmax(scale * q k^T + mask) v` of `[.., m, d]`, `[.., n, d]` and `[.., n, e]`, and, as a fourth operand, a mask that is broadcast to
    /// `[.., m, n]`.
    Attention {
        /// What products of queries and keys are multiplied by.
        scale: f32,
    },
}

/// Elements along an axis that a slice has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The first.
    pub start: usize,
    /// From one to the next, backwards if negative.
    pub step: isize,
    /// How many.
    pub count: usize,
}

impl Range {
    /// All elements of every axis of a shape.
    pub(crate) fn all(shape: &[usize]) -> Vec<Self> {
        shape.iter().map(|&count| Self { start: 0, step: 1, count }).collect()
    }
}

impl Op {
    /// The operation in a word, as messages have it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input => "Input",
            Op::Constant(_) => "Constant",

            Op::Conv { .. } => "Conv",
            Op::ConvTranspose { .. } => "ConvTranspose",
            Op::MatMul => "MatMul",

            Op::Map(_) => "Map",
            Op::Prelu => "Prelu",
            Op::Binary(Binary::Add) => "Add",
            Op::Binary(Binary::Sub) => "Sub",
            Op::Binary(Binary::Mul) => "Mul",
            Op::Binary(Binary::Div) => "Div",
            Op::Binary(Binary::Max) => "Max",
            Op::Binary(Binary::Min) => "Min",
            Op::Binary(Binary::Pow) => "Pow",
            Op::Binary(Binary::Equal) => "Equal",
            Op::Binary(Binary::Less) => "Less",
            Op::Binary(Binary::And) => "And",

            Op::Not => "Not",
            Op::Where => "Where",

            Op::Pool { .. } => "Pool",
            Op::Reduce { .. } => "Reduce",
            Op::Softmax { log: false, .. } => "Softmax",
            Op::Softmax { log: true, .. } => "LogSoftmax",
            Op::LayerNorm { .. } => "LayerNorm",
            Op::GroupNorm { .. } => "GroupNorm",
            Op::LocalResponseNorm { .. } => "LocalResponseNorm",

            Op::Concat { .. } => "Concat",
            Op::Slice(_) => "Slice",
            Op::Reshape(_) => "Reshape",
            Op::Transpose(_) => "Transpose",
            Op::Expand(_) => "Expand",

            Op::Pad { .. } => "Pad",
            Op::Resize { .. } => "Resize",
            Op::Gather { .. } => "Gather",
            Op::Cast(_) => "Cast",
            Op::Attention { .. } => "Attention",
        }
    }

    /// Shape and element type of the output, from those of the operands.
    pub fn infer(&self, operands: &[(&[usize], Element)]) -> Result<(Vec<usize>, Element), OpError> {
        infer::output(self, operands)
    }

    /// The output, from the operands: the reference that kernels and rewriting are held to. Functions and sums are computed in double
    /// precision and rounded once; where ONNX has the operation, the meaning is its own. Whole numbers wrap around; an integer division by
    /// zero, and a number of [`Op::Gather`] that is out of range, are errors.
    ///
    /// ```
    /// use autotune_network::{Op, Tensor};
    /// let x = Tensor::f32(&[1, 3], vec![1.0, 2.0, 3.0])?;
    /// let y = Op::MatMul.evaluate(&[&x, &Tensor::f32(&[3, 1], vec![1.0; 3])?])?;
    /// assert_eq!(y, Tensor::f32(&[1, 1], vec![6.0])?);
    /// # Ok::<(), autotune_network::OpError>(())
    /// ```
    pub fn evaluate(&self, operands: &[&Tensor]) -> Result<Tensor, OpError> {
        evaluate::output(self, operands)
    }
}
