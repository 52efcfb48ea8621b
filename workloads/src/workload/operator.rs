//! What an operator says of itself.

use std::any::Any;
use std::fmt::{self, Debug};

use autotune_ir::program::{Access, BufferId, Expr};
use autotune_ir::spec::{Axis, AxisId, Reduction};
use autotune_ir::{Affine, DType};

use super::error::WorkloadError;
use super::fields::Fields;

/// Largest number of elements any one tensor, and largest number of multiply-adds any one workload,
/// may have.
const MAX_ELEMENTS: usize = 1 << 34;
const MAX_MACS: usize = 1 << 50;

/// A kind of operators: its text form.
#[derive(Debug)]
pub struct OperatorKind {
    /// The word before the colon.
    pub name: &'static str,
    /// The fields of its own, separated by commas.
    pub fields: &'static str,
    /// A complete workload.
    pub example: &'static str,
    /// An operator of the fields, whose sizes need not make sense yet.
    pub parse: fn(&Fields) -> Result<Box<dyn Operator>, WorkloadError>,
}

/// An operator with its sizes. Each kind is a file of its own, from which parser, printer, help,
/// reference and schedules are made.
pub trait Operator: Any + Debug + Send + Sync {
    /// Its kind.
    fn kind(&self) -> &'static OperatorKind;

    /// Its sizes in the text form, as [`OperatorKind::parse`] reads them.
    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result;

    /// Fails with the first field that makes no sense, and where tensors or work are too large
    /// ([`check_elements`]).
    fn check(&self) -> Result<(), WorkloadError>;

    /// What it computes. Called after [`Operator::check`] only.
    fn formula(&self) -> Formula;

    /// The type of the result, where it is not that of the operands.
    fn result_dtype(&self) -> Option<DType> {
        None
    }

    /// True for functions of single elements, whose operands are converted where they are loaded
    /// ([`autotune_ir::Target::supports_cast`]).
    fn is_cast(&self) -> bool {
        false
    }

    /// True if CPUs have kernels of it for integers of 8 bits, beside those of contractions: it
    /// moves elements, or what it computes of them is never undefined.
    fn moves_bytes(&self) -> bool {
        false
    }

    /// Tensors whose elements it knows itself, such as what depends on a position only: kernels
    /// have them made ahead of time. `BufferId(operands + computed + i)` stands for that at `i` in
    /// its [`Formula`].
    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }
}

/// A tensor whose elements are known, row-major.
#[derive(Clone, Debug)]
pub struct Table {
    /// A name that is unique in the formula.
    pub name: &'static str,
    /// Its elements, of one dimension.
    pub elements: Vec<f32>,
}

/// A tensor that an operator is given.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// A name that is unique among the operands.
    pub name: &'static str,
    /// Shape, outermost first.
    pub shape: Vec<usize>,
    /// True if its elements are the same in every run.
    pub is_constant: bool,
}

/// `result[index] = Σ value`, over the axes that are reduced, or what another reduction makes of
/// the values.
#[derive(Clone, Debug)]
pub struct Formula {
    /// What is read, in the order in which callers give it.
    pub operands: Vec<Tensor>,
    /// What is computed on the way, each before it is read; `BufferId(operands.len() + i)` stands
    /// for what is computed at `i`.
    pub computed: Vec<Computed>,
    /// Those of the result first.
    pub axes: Vec<Axis>,
    /// What is combined, by the axes; `BufferId(i)` stands for operand `i`. What a sum reads beyond
    /// an operand is zero; other reductions leave it out.
    pub value: Expr,
    /// By what.
    pub reduction: Reduction,
    /// What each result is multiplied by before anything else is made of it, by the axes of the
    /// result: one over the number of elements in a mean.
    pub share: Option<Expr>,
    /// Shape of the result, outermost first.
    pub shape: Vec<usize>,
    /// Its element, by the axes.
    pub index: Vec<Affine>,
    /// The dimension of the result that a bias goes along.
    pub channel: usize,
}

/// A tensor between operands and result, `name[index] = Σ value` as in a [`Formula`], whose every
/// element is defined.
#[derive(Clone, Debug)]
pub struct Computed {
    /// A name that is unique in the formula.
    pub name: &'static str,
    /// Those that are not reduced first.
    pub axes: Vec<Axis>,
    /// What is combined.
    pub value: Expr,
    /// By what.
    pub reduction: Reduction,
    /// The axes that are the tensor's dimensions, outermost first: all that are not reduced.
    pub dims: Vec<AxisId>,
}

/// Axes of a name and an extent each; true for those that are reduced.
pub fn named_axes(axes: &[(&'static str, usize, bool)]) -> Vec<Axis> {
    axes.iter().map(|&(name, extent, reduce)| Axis { name, extent, reduce }).collect()
}

/// An element of an operand, or of what is computed on the way, by its number in a [`Formula`].
pub fn element(number: usize, index: &[Affine]) -> Expr {
    Expr::Load(Access { buffer: BufferId(number as u32), index: index.to_vec().into() })
}

impl Formula {
    /// What a reduction makes of the elements of one operand at an index.
    pub fn reduced(
        axes: &[(&'static str, usize, bool)],
        reduction: Reduction,
        (data, read): (Tensor, Vec<Affine>),
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

    /// A sum of products of two operands at an index each.
    pub fn product(
        axes: &[(&'static str, usize, bool)],
        [data, weight]: [(Tensor, Vec<Affine>); 2],
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

/// Fails where a tensor, or the multiply-adds, are more than can be addressed.
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

/// Fails with the first of the fields that is zero.
pub fn check_positive(op: &'static str, fields: &[(&'static str, usize)]) -> Result<(), WorkloadError> {
    match fields.iter().find(|(_, v)| *v == 0) {
        Some((field, _)) => Err(WorkloadError::Unfit { op, field, reason: "must be at least 1".into() }),
        None => Ok(()),
    }
}
