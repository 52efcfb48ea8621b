//! What is computed: a small graph of equations over named tensors.
//!
//! A convolution with padding, bias and ReLU, the axes `c`, `kh` and `kw` being summed over:
//!
//! ```text
//! sum[n, o, oh, ow]    = Σ input[n, c, oh + kh - 1, ow + kw - 1] * weight[o, c, kh, kw]
//! output[n, o, oh, ow] = max(sum[n, o, oh, ow] + bias[o], 0)
//! ```
//!
//! An equation combines values by one operation ([`Reduction`]): a pooling takes the largest of its
//! window.
//!
//! Every index is affine in the axes of its equation, or found by values, such as those of another
//! tensor, and then within the tensor whatever they are ([`Expr::Gather`]). What a sum reads beyond
//! a tensor is zero; another reduction leaves out iterations that read there. What would be written
//! beyond a tensor is not. Sums are f32 whatever the tensors are.

use std::borrow::Cow;

use crate::affine::{Affine, VarId};
use crate::dtype::DType;
use crate::program::{Access, BinaryOp, BufferId, Expr, Iteration, Role, Store, StoreMode};

/// An axis, by its position in [`Equation::axes`]; in an [`Affine`] of the equation, `VarId(axis)`
/// stands for it.
pub type AxisId = usize;

/// The first axes of an equation, as its indices name them.
pub fn axis_vars<const N: usize>() -> [Affine; N] {
    std::array::from_fn(|axis| Affine::var(VarId(axis as u32)))
}

/// One axis of the iteration space of an equation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// A name that is unique within the equation.
    pub name: &'static str,
    /// Number of iterations, at least 1.
    pub extent: usize,
    /// True if the equation combines the values along it.
    pub reduce: bool,
}

/// Where the elements of a tensor come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The caller.
    Given {
        /// True if they are the same in every run, so that they can be packed once.
        is_constant: bool,
    },
    /// They are these, row-major.
    Known(Vec<f32>),
    /// An equation.
    Computed,
}

/// A dense row-major array.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// A name that is unique within the spec.
    pub name: Cow<'static, str>,
    /// Shape, outermost first.
    pub shape: Vec<usize>,
    /// Type of its elements.
    pub dtype: DType,
    /// Where its elements come from.
    pub source: Source,
}

impl Tensor {
    /// Size of its elements in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }

    /// True if the caller gives it.
    pub fn is_given(&self) -> bool {
        matches!(self.source, Source::Given { .. })
    }

    /// True if it is known before any run.
    pub fn is_constant(&self) -> bool {
        matches!(self.source, Source::Given { is_constant: true } | Source::Known(_))
    }
}

/// What an equation makes of all values along the axes that are reduced, in whatever order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum.
    #[default]
    Sum,
    /// Their product.
    Product,
    /// The largest.
    Max,
    /// The largest of those that are numbers.
    MaxNumber,
    /// The smallest.
    Min,
}

impl Reduction {
    /// What changes no value that it is combined with.
    pub fn neutral(self) -> f32 {
        match self {
            Reduction::Sum => 0.0,
            Reduction::Product => 1.0,
            Reduction::Max | Reduction::MaxNumber => f32::NEG_INFINITY,
            Reduction::Min => f32::INFINITY,
        }
    }

    /// One value more.
    pub fn combined(self, so_far: Expr, value: Expr) -> Expr {
        match self {
            Reduction::Sum => Expr::sum(so_far, value),
            Reduction::Product => Expr::product(so_far, value),
            // Code generators take the second of two from memory where they are named in this
            // order.
            Reduction::Max => Expr::max(value, so_far),
            Reduction::MaxNumber => Expr::binary(BinaryOp::MaxNumber, so_far, value),
            Reduction::Min => Expr::binary(BinaryOp::Min, value, so_far),
        }
    }

    /// The same of numbers; NaN where either is and counts.
    pub fn of(self, so_far: f64, value: f64) -> f64 {
        match self {
            Reduction::Sum => so_far + value,
            Reduction::Product => so_far * value,
            Reduction::Max | Reduction::Min if so_far.is_nan() || value.is_nan() => f64::NAN,
            Reduction::Max | Reduction::MaxNumber => so_far.max(value),
            Reduction::Min => so_far.min(value),
        }
    }

    /// The store that combines a value with what is at `dst`, as an iteration of an equation or for
    /// itself.
    pub fn store(self, dst: Access, value: Expr, iteration: Option<Iteration>) -> Store {
        match self {
            Reduction::Sum => Store { dst, mode: StoreMode::Accumulate, value, iteration },
            _ => {
                let value = self.combined(Expr::Load(dst.clone()), value);
                Store { dst, mode: StoreMode::Assign, value, iteration }
            }
        }
    }
}

/// `output[..] = Σ value`, over the axes that are reduced, or what another [`Reduction`] makes of
/// the values; for every value of the other axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Equation {
    /// The iteration space.
    pub axes: Vec<Axis>,
    /// What is defined; `BufferId(t)` stands for tensor `t` of the spec here and in `value`.
    pub output: Access,
    /// What is combined.
    pub value: Expr,
    /// By what.
    pub reduction: Reduction,
}

impl Equation {
    /// True if it combines values along some axis.
    pub fn reduces(&self) -> bool {
        self.axes.iter().any(|axis| axis.reduce)
    }

    /// Number of values that it combines to one.
    pub fn reduction_len(&self) -> usize {
        self.axes.iter().filter(|axis| axis.reduce).map(|axis| axis.extent).product()
    }

    /// The tensors that are read, in the order in which they occur.
    pub fn loads(&self) -> Vec<&Access> {
        let mut loads = Vec::new();
        self.value.for_each_load(&mut |access| loads.push(access));
        loads
    }

    /// Smallest and largest value of an index.
    pub fn range(&self, index: &Affine) -> (i64, i64) {
        index.range(|axis| self.axes[axis.0 as usize].extent)
    }

    /// True if some value of an index lies outside of a dimension of `extent` elements.
    pub fn is_beyond(&self, index: &Affine, extent: usize) -> bool {
        let (low, high) = self.range(index);
        low < 0 || high >= extent as i64
    }
}

/// What is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// How it is called: the workload's text form.
    pub name: String,
    /// What is given, computed on the way, and returned.
    pub tensors: Vec<Tensor>,
    /// What defines the tensors, each before it is read.
    pub equations: Vec<Equation>,
    /// Position of the equation with the most work.
    pub main: usize,
}

impl Spec {
    /// The tensor that an access of an equation reads or defines.
    pub fn tensor(&self, access: &Access) -> &Tensor {
        &self.tensors[access.buffer.0 as usize]
    }

    /// True if an equation reads some tensor beyond its ends.
    pub fn reads_beyond(&self, equation: &Equation) -> bool {
        equation.loads().into_iter().any(|access| {
            let mut dims = access.index.iter().zip(&self.tensor(access).shape);
            dims.any(|(index, &extent)| equation.is_beyond(index, extent))
        })
    }

    /// What buffers that hold a tensor are for.
    pub fn role(&self, tensor: BufferId) -> Role {
        let before = &self.tensors[..tensor.0 as usize];
        match self.tensors[tensor.0 as usize].source {
            Source::Given { .. } => Role::Operand(before.iter().filter(|tensor| tensor.is_given()).count()),
            Source::Computed if self.result() == Some(tensor) => Role::Output,
            Source::Computed | Source::Known(_) => Role::Packed,
        }
    }

    /// The operand of a number, or the result; what is computed on the way is found by no role.
    pub fn find(&self, role: Role) -> Option<&Tensor> {
        match role {
            Role::Operand(number) => self.operands().nth(number),
            Role::Output => self.result().map(|id| &self.tensors[id.0 as usize]),
            Role::Packed | Role::Accumulator => None,
        }
    }

    /// The number of the operand of a name, if there is one.
    pub fn operand(&self, name: &str) -> Option<usize> {
        self.operands().position(|tensor| tensor.name == name)
    }

    /// The tensor that the last equation defines.
    pub fn result(&self) -> Option<BufferId> {
        self.equations.last().map(|equation| equation.output.buffer)
    }

    /// The tensors that the caller gives, in order.
    pub fn operands(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|tensor| tensor.is_given())
    }

    /// True for a contraction and a map of its sums.
    pub fn is_contraction(&self) -> bool {
        !self.is_chain() && self.multiplies_tensors()
    }

    /// True if the values of a tensor are data or weights of a contraction, which are rounded as
    /// their type is multiplied ([`DType::multiplied`]); others are rounded as they are stored.
    pub fn is_multiplied(&self, tensor: &Tensor) -> bool {
        self.is_contraction() && self.main().loads().iter().any(|access| std::ptr::eq(self.tensor(access), tensor))
    }

    /// Type of the elements that the main equation reads first.
    pub fn multiplied_dtype(&self) -> DType {
        self.main().loads().first().map_or_else(DType::default, |access| self.tensor(access).dtype)
    }

    /// The extent of the dimension along which the elements of a tensor are indices of another, if
    /// they are: the least of several.
    pub fn indexes(&self, tensor: &Tensor) -> Option<usize> {
        let mut extents = Vec::new();
        for equation in &self.equations {
            equation.value.for_each(&mut |expr| {
                let Expr::Gather(gather) = expr else { return };
                for (&dim, at) in gather.dims.iter().zip(&gather.at) {
                    if at.any(&|expr| matches!(expr, Expr::Load(access) if std::ptr::eq(self.tensor(access), tensor))) {
                        extents.push(self.tensor(&gather.access).shape[dim]);
                    }
                }
            });
        }
        extents.into_iter().min()
    }

    /// Elements of an operand that are read at least: of what is found by values one for each
    /// iteration.
    fn elements_read(&self, tensor: &Tensor) -> f64 {
        let all = tensor.shape.iter().map(|&extent| extent as f64).product::<f64>();
        let (mut gathered, mut loaded) = (0.0, false);
        for equation in &self.equations {
            let iterations = equation.axes.iter().map(|axis| axis.extent as f64).product::<f64>();
            equation.value.for_each(&mut |expr| match expr {
                Expr::Load(access) => loaded |= std::ptr::eq(self.tensor(access), tensor),
                Expr::Gather(gather) if std::ptr::eq(self.tensor(&gather.access), tensor) => gathered += iterations,
                _ => {}
            });
        }
        if loaded || gathered == 0.0 { all } else { all.min(gathered) }
    }

    /// True if values are computed on the way to what the last equation but one combines, other
    /// than by a prologue.
    pub fn is_chain(&self) -> bool {
        self.equations.len() > 2 && self.prologue().is_none()
    }

    /// The map in front of a contraction, if there is one: it makes an element of what the main
    /// equation reads first of each element of the first operand,
    /// `mapped[i, j, ..] = f(input[i, j, ..], ..)`, by its own axes.
    pub fn prologue(&self) -> Option<&Equation> {
        let [map, main, _] = &self.equations[..] else { return None };
        let is_axis = |(axis, index): (usize, &Affine)| *index == Affine::var(VarId(axis as u32));
        let is_map = !map.reduces()
            && map.output.index.len() == map.axes.len()
            && map.output.index.iter().enumerate().all(is_axis)
            && map.loads().iter().all(|access| self.tensor(access).is_given())
            && map.loads().first().is_some_and(|data| data.buffer == BufferId(0) && data.index == map.output.index);
        let reads_it = matches!(main.loads()[..], [data, _] if data.buffer == map.output.buffer);
        (self.main == 1 && is_map && reads_it && self.multiplies_tensors()).then_some(map)
    }

    /// True if some equation adds up products of elements of two tensors.
    pub fn multiplies_tensors(&self) -> bool {
        let is_product = |equation: &Equation| match &equation.value {
            Expr::Binary(BinaryOp::Mul, of) => match &**of {
                [Expr::Load(a), Expr::Load(b)] => equation.reduces() && a.buffer != b.buffer,
                _ => false,
            },
            _ => false,
        };
        self.equations.iter().any(is_product)
    }

    /// Number of terms of one sum of the main equation.
    pub fn reduction_len(&self) -> usize {
        self.main().reduction_len()
    }

    /// Floating-point operations: two for each iteration of the main equation, in a chain of every
    /// equation that combines values.
    pub fn flops(&self) -> f64 {
        let iterations = |equation: &Equation| equation.axes.iter().map(|axis| axis.extent as f64).product::<f64>();
        let combining = self.equations.iter().filter(|equation| self.is_chain() && equation.reduces());
        let all: f64 = combining.map(iterations).sum();
        2.0 * if all > 0.0 { all } else { iterations(self.main()) }
    }

    /// Bytes that any algorithm must move at least once: every operand read and the result written.
    pub fn min_bytes(&self) -> f64 {
        let moved = self.operands().chain(self.find(Role::Output));
        moved.map(|tensor| self.elements_read(tensor) * tensor.dtype.bytes() as f64).sum()
    }

    /// The equation with the most work, whose axes are those of programs.
    pub fn main(&self) -> &Equation {
        &self.equations[self.main]
    }

    /// The iteration of the main equation at a point of the program's axes.
    pub fn iteration(&self, point: Vec<Affine>) -> Option<Iteration> {
        Some(Iteration { equation: self.main, point })
    }
}
