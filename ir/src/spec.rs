//! Specification of a computation: a small graph of equations over named tensors.
//!
//! A convolution with padding, bias and ReLU, with the reduction axes `c`, `kh` and `kw`:
//!
//! ```text
//! sum[n, o, oh, ow]    = Σ input[n, c, oh + kh - 1, ow + kw - 1] * weight[o, c, kh, kw]
//! output[n, o, oh, ow] = max(sum[n, o, oh, ow] + bias[o], 0)
//! ```
//!
//! Each equation has one reduction operation ([`Reduction`]): a max pooling takes the largest value
//! of its window.
//!
//! Every index is affine in the axes of its equation, or computed from values such as elements of
//! another tensor, which are then clamped to the tensor ([`Expr::Gather`]). A sum reads zero
//! outside of a tensor; other reductions skip iterations that read outside. Writes outside of a
//! tensor are dropped. Sums are f32 for tensors of floating-point types.

use std::borrow::Cow;

use crate::affine::{Affine, VarId};
use crate::dtype::DType;
use crate::program::{Access, BinaryOp, BufferId, Expr, Iteration, Role, Store, StoreMode};

mod causal;

pub use causal::CausalMask;

/// Position of an axis in [`Equation::axes`]; in an [`Affine`] of the equation it is `VarId(axis)`.
pub type AxisId = usize;

/// Returns the first `N` axes of an equation as index expressions.
pub fn axis_vars<const N: usize>() -> [Affine; N] {
    std::array::from_fn(|axis| Affine::var(VarId(axis as u32)))
}

/// Axis of an equation's iteration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Name, unique within the equation.
    pub name: &'static str,
    /// Number of iterations, at least 1.
    pub extent: usize,
    /// True for a reduction axis.
    pub reduce: bool,
}

/// Origin of a tensor's elements.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorSource {
    /// Provided by the caller.
    Given {
        /// True if the elements are the same in every run, so that they can be packed once.
        is_constant: bool,
    },
    /// Known at compile time: these elements, row-major.
    Known(Vec<f32>),
    /// Computed by an equation.
    Computed,
}

/// Dense row-major array that equations read or define.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// Name, unique within the spec.
    pub name: Cow<'static, str>,
    /// Shape of the array, outermost first.
    pub shape: Vec<usize>,
    /// Type of the elements in memory.
    pub dtype: DType,
    /// Origin of the elements.
    pub source: TensorSource,
}

impl TensorSpec {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }

    /// Returns true if the caller provides the tensor.
    pub fn is_given(&self) -> bool {
        matches!(self.source, TensorSource::Given { .. })
    }

    /// Returns true if the elements are known before the first run.
    pub fn is_constant(&self) -> bool {
        matches!(self.source, TensorSource::Given { is_constant: true } | TensorSource::Known(_))
    }
}

/// Operation that combines the values along the reduction axes, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Sum of the values.
    #[default]
    Sum,
    /// Product of the values.
    Product,
    /// Largest value; NaN if any value is NaN.
    Max,
    /// Largest value, ignoring NaN.
    MaxNumber,
    /// Smallest value; NaN if any value is NaN.
    Min,
}

impl Reduction {
    /// Returns the neutral element.
    pub fn neutral(self) -> f32 {
        match self {
            Reduction::Sum => 0.0,
            Reduction::Product => 1.0,
            Reduction::Max | Reduction::MaxNumber => f32::NEG_INFINITY,
            Reduction::Min => f32::INFINITY,
        }
    }

    /// Returns the expression that combines a partial result with one more value.
    pub fn combined(self, so_far: Expr, value: Expr) -> Expr {
        match self {
            Reduction::Sum => Expr::sum(so_far, value),
            Reduction::Product => Expr::product(so_far, value),
            // Code generators can use a memory operand only for the second operand.
            Reduction::Max => Expr::max(value, so_far),
            Reduction::MaxNumber => Expr::binary(BinaryOp::MaxNumber, so_far, value),
            Reduction::Min => Expr::binary(BinaryOp::Min, value, so_far),
        }
    }

    /// Combines two numbers; NaN propagates, except in [`Reduction::MaxNumber`].
    pub fn of(self, so_far: f64, value: f64) -> f64 {
        match self {
            Reduction::Sum => so_far + value,
            Reduction::Product => so_far * value,
            // `f64::max` and `f64::min` ignore NaN, which these reductions propagate.
            Reduction::Max | Reduction::Min if so_far.is_nan() || value.is_nan() => f64::NAN,
            Reduction::Max | Reduction::MaxNumber => so_far.max(value),
            Reduction::Min => so_far.min(value),
        }
    }

    /// Returns the statement that combines `value` with the element at `dst`. `iteration` is the
    /// iteration of an equation that it computes, if any.
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

/// `output[..] = Σ value` over the reduction axes, or another [`Reduction`], for every value of the
/// other axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Equation {
    /// Iteration space, including the reduction axes.
    pub axes: Vec<Axis>,
    /// Element that is defined. Here and in `value`, `BufferId(t)` is tensor `t` of the spec.
    pub output: Access,
    /// Values that are reduced.
    pub value: Expr,
    /// Operation that reduces them.
    pub reduction: Reduction,
}

impl Equation {
    /// Returns true if there is a reduction axis.
    pub fn reduces(&self) -> bool {
        self.axes.iter().any(|axis| axis.reduce)
    }

    /// Returns the number of values that are reduced to one.
    pub fn reduction_len(&self) -> usize {
        self.axes.iter().filter(|axis| axis.reduce).map(|axis| axis.extent).product()
    }

    /// Returns the elements that are read, in order of occurrence.
    pub fn loads(&self) -> Vec<&Access> {
        let mut loads = Vec::new();
        self.value.for_each_load(&mut |access| loads.push(access));
        loads
    }

    /// Returns the smallest and the largest value of an index.
    pub fn range(&self, index: &Affine) -> (i64, i64) {
        index.range(|axis| self.axes[axis.0 as usize].extent)
    }

    /// Returns true if some value of an index is outside a dimension of `extent` elements.
    pub fn is_beyond(&self, index: &Affine, extent: usize) -> bool {
        let (low, high) = self.range(index);
        low < 0 || high >= extent as i64
    }
}

/// Specification of a computation: tensors, and equations that define them.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Name: the text form of the workload.
    pub name: String,
    /// Operands, intermediate tensors and the result.
    pub tensors: Vec<TensorSpec>,
    /// Equations, each after those whose results it reads.
    pub equations: Vec<Equation>,
    /// Position of the equation with the most work.
    pub main: usize,
}

impl Spec {
    /// Returns the tensor that an access of an equation refers to.
    pub fn tensor(&self, access: &Access) -> &TensorSpec {
        &self.tensors[access.buffer.0 as usize]
    }

    /// Returns true if an equation reads some tensor out of bounds.
    pub fn reads_beyond(&self, equation: &Equation) -> bool {
        equation.loads().into_iter().any(|access| {
            let mut dims = access.index.iter().zip(&self.tensor(access).shape);
            dims.any(|(index, &extent)| equation.is_beyond(index, extent))
        })
    }

    /// Returns the role of buffers that store a tensor.
    pub fn role(&self, tensor: BufferId) -> Role {
        let before = &self.tensors[..tensor.0 as usize];
        match self.tensors[tensor.0 as usize].source {
            TensorSource::Given { .. } => Role::Operand(before.iter().filter(|tensor| tensor.is_given()).count()),
            TensorSource::Computed if self.result() == Some(tensor) => Role::Output,
            TensorSource::Computed | TensorSource::Known(_) => Role::Packed,
        }
    }

    /// Returns the operand with this number, or the result; `None` for other roles.
    pub fn find(&self, role: Role) -> Option<&TensorSpec> {
        match role {
            Role::Operand(number) => self.operands().nth(number),
            Role::Output => self.result().map(|id| &self.tensors[id.0 as usize]),
            Role::Packed | Role::Accumulator => None,
        }
    }

    /// Returns the number of the operand with this name, if there is one.
    pub fn operand(&self, name: &str) -> Option<usize> {
        self.operands().position(|tensor| tensor.name == name)
    }

    /// Returns the tensor that the last equation defines.
    pub fn result(&self) -> Option<BufferId> {
        self.equations.last().map(|equation| equation.output.buffer)
    }

    /// Returns the tensors that the caller provides, in order.
    pub fn operands(&self) -> impl Iterator<Item = &TensorSpec> {
        self.tensors.iter().filter(|tensor| tensor.is_given())
    }

    /// Returns true for a contraction, possibly with a prologue and an elementwise map of its sums.
    pub fn is_contraction(&self) -> bool {
        !self.is_chain() && self.multiplies_tensors()
    }

    /// Returns true if a tensor contains data or weights of a contraction. Such elements are
    /// rounded when they are multiplied ([`DType::multiplied`]); others are rounded as stored.
    pub fn is_multiplied(&self, tensor: &TensorSpec) -> bool {
        self.is_contraction() && self.main().loads().iter().any(|access| std::ptr::eq(self.tensor(access), tensor))
    }

    /// Returns the element type of the first tensor that the main equation reads.
    pub fn multiplied_dtype(&self) -> DType {
        self.main().loads().first().map_or_else(DType::default, |access| self.tensor(access).dtype)
    }

    /// Returns the extent of the dimension that the elements of `tensor` index, the smallest of
    /// several; `None` if they are not used as indices.
    pub fn indexes(&self, tensor: &TensorSpec) -> Option<usize> {
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
        // An index must be valid in every dimension that it selects from.
        extents.into_iter().min()
    }

    /// Returns a lower bound on the elements of an operand that are read; each iteration of a
    /// gather reads one.
    fn elements_read(&self, tensor: &TensorSpec) -> f64 {
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
        // An ordinary load is assumed to read the whole tensor.
        if loaded || gathered == 0.0 { all } else { all.min(gathered) }
    }

    /// Returns true for a chain: an intermediate tensor other than a prologue is computed before
    /// the last reduction.
    pub fn is_chain(&self) -> bool {
        self.equations.len() > 2 && self.prologue().is_none()
    }

    /// Returns the map that is applied to the data of a contraction before it is multiplied, if
    /// there is one. It defines `mapped[i, j, ..] = f(input[i, j, ..], ..)`, with the axes of the
    /// first operand in order; the main equation reads `mapped` first.
    pub fn prologue(&self) -> Option<&Equation> {
        let [map, main, _] = &self.equations[..] else { return None };
        let is_axis = |(axis, index): (usize, &Affine)| *index == Affine::var(VarId(axis as u32));
        // The map must keep the axes in order, so that the copy of the operand can apply it.
        let is_map = !map.reduces()
            && map.output.index.len() == map.axes.len()
            && map.output.index.iter().enumerate().all(is_axis)
            && map.loads().iter().all(|access| self.tensor(access).is_given())
            && map.loads().first().is_some_and(|data| data.buffer == BufferId(0) && data.index == map.output.index);
        // The mapped tensor must be the data operand, the first factor.
        let reads_it = matches!(main.loads()[..], [data, _] if data.buffer == map.output.buffer);
        (self.main == 1 && is_map && reads_it && self.multiplies_tensors()).then_some(map)
    }

    /// Returns true if some equation sums products of elements of two tensors.
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

    /// Returns the number of terms per sum of the main equation.
    pub fn reduction_len(&self) -> usize {
        self.main().reduction_len()
    }

    /// Returns the floating-point operations: two per iteration of the main equation; for a chain,
    /// of every equation with a reduction.
    pub fn flops(&self) -> f64 {
        let iterations = |equation: &Equation| equation.axes.iter().map(|axis| axis.extent as f64).product::<f64>();
        let combining = self.equations.iter().filter(|equation| self.is_chain() && equation.reduces());
        let all: f64 = combining.map(iterations).sum();
        // By convention, combining an element counts as a multiplication and an addition.
        2.0 * if all > 0.0 { all } else { iterations(self.main()) }
    }

    /// Returns a lower bound on the bytes that any algorithm moves: every operand read and the
    /// result written once.
    pub fn min_bytes(&self) -> f64 {
        let moved = self.operands().chain(self.find(Role::Output));
        moved.map(|tensor| self.elements_read(tensor) * tensor.dtype.bytes() as f64).sum()
    }

    /// Returns the equation with the most work, which defines the axes of programs.
    pub fn main(&self) -> &Equation {
        &self.equations[self.main]
    }

    /// Returns the iteration of the main equation at a point of the program's axes.
    pub fn iteration(&self, point: Vec<Affine>) -> Option<Iteration> {
        Some(Iteration { equation: self.main, point })
    }
}
