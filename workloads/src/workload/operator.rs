//! The interface of operators.

use std::any::Any;
use std::fmt::{self, Debug};

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, AxisId, Reduction};
use autotune_ir::{Affine, DType};

use super::error::WorkloadError;
use super::fields::Fields;

/// Maximum number of elements in a tensor.
const MAX_ELEMENTS: usize = 1 << 34;
/// Maximum number of multiply-adds of a workload.
const MAX_MACS: usize = 1 << 50;

/// Name and text form of an operator.
#[derive(Debug)]
pub struct OperatorKind {
    /// Name before the colon.
    pub name: &'static str,
    /// Fields of the operator, separated by commas.
    pub fields: &'static str,
    /// A complete workload as an example.
    pub example: &'static str,
    /// Reads an operator from its fields. The sizes need not be valid yet.
    pub parse: fn(&Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError>,
}

/// An operator with its sizes. Each operator is a file of its own; parser, printer, help,
/// references and schedules are derived from it.
pub trait WorkloadOperator: Any + Debug + Send + Sync {
    /// Returns the name and text form of the operator.
    fn kind(&self) -> &'static OperatorKind;

    /// Writes the sizes in the text form, as [`OperatorKind::parse`] reads them.
    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result;

    /// Fails with the first invalid field, or if tensors or work are too large
    /// ([`check_elements`]).
    fn check(&self) -> Result<(), WorkloadError>;

    /// Returns the operator's formula. Only called after [`WorkloadOperator::check`].
    fn formula(&self) -> OperatorFormula;

    /// Returns the type of the result, if it differs from that of the operands.
    fn result_dtype(&self) -> Option<DType> {
        None
    }

    /// True for elementwise functions whose operands are converted when they are loaded
    /// ([`autotune_ir::Target::supports_cast`]).
    fn is_cast(&self) -> bool {
        false
    }

    /// True if CPUs have kernels for 8-bit integers, apart from contractions: the operator moves
    /// elements, or computes functions of them that are always defined.
    fn moves_bytes(&self) -> bool {
        false
    }

    /// Returns tensors with known elements, such as values that depend only on a position. Kernels
    /// compute them ahead of time.
    ///
    /// In the [`OperatorFormula`], `BufferId(operands + computed + i)` refers to table `i`.
    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }
}

/// A one-dimensional tensor whose elements are known.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name, unique in the formula.
    pub name: &'static str,
    /// Elements of the table.
    pub elements: Vec<f32>,
}

/// An operand of an operator.
#[derive(Clone, Debug)]
pub struct OperandTensor {
    /// Name, unique among the operands.
    pub name: &'static str,
    /// Shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// True if its elements are the same in every run.
    pub is_constant: bool,
}

/// `result[index] = Σ value`, summed over the reduction axes, or combined by another reduction.
#[derive(Clone, Debug)]
pub struct OperatorFormula {
    /// Operands in the order in which callers pass them.
    pub operands: Vec<OperandTensor>,
    /// Intermediate tensors, each before those that read it. `BufferId(operands.len() + i)` refers
    /// to tensor `i`.
    pub computed: Vec<Computed>,
    /// Axes of the result, then reduction axes.
    pub axes: Vec<Axis>,
    /// Values that are combined. `BufferId(i)` refers to operand `i`. Elements outside an operand
    /// count as zero in sums, and are ignored by other reductions.
    pub value: Expr,
    /// Operator that combines the values.
    pub reduction: Reduction,
    /// Factor of each result before anything else is applied, by the axes of the result: for a
    /// mean, the reciprocal of the number of elements.
    pub share: Option<Expr>,
    /// Shape of the result, outermost dimension first.
    pub shape: Vec<usize>,
    /// Index of the result's element, by the axes.
    pub index: Vec<Affine>,
    /// Dimension of the result that a bias goes along.
    pub channel: usize,
}

/// An intermediate tensor, `name[index] = Σ value` as in a [`OperatorFormula`]. Every element is
/// defined.
#[derive(Clone, Debug)]
pub struct Computed {
    /// Name, unique in the formula.
    pub name: &'static str,
    /// Axes of the tensor, then reduction axes.
    pub axes: Vec<Axis>,
    /// Values that are combined.
    pub value: Expr,
    /// Operator that combines the values.
    pub reduction: Reduction,
    /// Axes that are the tensor's dimensions, outermost first: all except the reduction axes.
    pub dims: Vec<AxisId>,
}

/// Creates axes from names, extents, and true for reduction axes.
pub fn named_axes(axes: &[(&'static str, usize, bool)]) -> Vec<Axis> {
    axes.iter().map(|&(name, extent, reduce)| Axis { name, extent, reduce }).collect()
}

/// Returns an element of an operand or intermediate tensor, by its number in a [`OperatorFormula`].
pub fn element(number: usize, index: &[Affine]) -> Expr {
    Expr::Load(Access { buffer: BufferId(number as u32), index: index.to_vec().into() })
}

impl OperatorFormula {
    /// Creates a reduction of the elements of one operand at an index.
    pub fn reduced(
        axes: &[(&'static str, usize, bool)],
        reduction: Reduction,
        (data, read): (OperandTensor, Vec<Affine>),
        (shape, index): (Vec<usize>, Vec<Affine>),
        channel: usize,
    ) -> Self {
        Self {
            axes: named_axes(axes),
            operands: vec![data],
            computed: Vec::new(),
            value: element(0, &read),
            reduction,
            share: None,
            shape,
            index,
            channel,
        }
    }

    /// Creates a sum of products of two operands at an index each.
    pub fn product(
        axes: &[(&'static str, usize, bool)],
        [data, weight]: [(OperandTensor, Vec<Affine>); 2],
        (shape, index): (Vec<usize>, Vec<Affine>),
        channel: usize,
    ) -> Self {
        Self {
            axes: named_axes(axes),
            operands: vec![data.0, weight.0],
            computed: Vec::new(),
            value: Expr::product(element(0, &data.1), element(1, &weight.1)),
            reduction: Reduction::Sum,
            share: None,
            shape,
            index,
            channel,
        }
    }
}

/// Fails if a tensor or the number of multiply-adds exceeds the supported size.
pub fn check_elements(
    op: &'static str,
    tensors: &[(&'static str, &[usize])],
    work: &[usize],
) -> Result<(), WorkloadError> {
    let fits = |dims: &[usize], limit| {
        let product = dims.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        product.is_some_and(|product| product <= limit)
    };
    let large = tensors.iter().find(|(_, dims)| !fits(dims, MAX_ELEMENTS)).map(|(what, _)| *what);
    match large.or((!fits(work, MAX_MACS)).then_some("work")) {
        Some(what) => Err(WorkloadError::Overflow { op, what }),
        None => Ok(()),
    }
}

/// Fails with the first field that is zero.
pub fn check_positive(op: &'static str, fields: &[(&'static str, usize)]) -> Result<(), WorkloadError> {
    match fields.iter().find(|(_, v)| *v == 0) {
        Some((field, _)) => Err(WorkloadError::Unfit { op, field, reason: "must be at least 1".into() }),
        None => Ok(()),
    }
}
