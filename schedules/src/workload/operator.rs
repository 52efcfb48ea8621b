//! What an operator says of itself, and the registry of all.

use std::fmt;

use autotune_ir::Affine;

use super::text::Fields;
use super::{Conv2d, Matmul, WorkloadError, conv2d, matmul};

/// Largest number of elements any one tensor, and largest number of multiply-adds any one workload, may have.
pub(super) const MAX_ELEMENTS: usize = 1 << 34;
pub(super) const MAX_MACS: usize = 1 << 50;

/// The operators, of which each is a file of its own: sizes, text form, what makes sense, meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    /// Two-dimensional convolution.
    Conv2d(Conv2d),
    /// (Batched) matrix product.
    Matmul(Matmul),
}

/// An operator's text form.
pub(super) struct Entry {
    /// The word before the colon.
    pub(super) name: &'static str,
    /// The fields of its own.
    pub(super) fields: &'static str,
    /// A complete workload.
    pub(super) example: &'static str,
    pub(super) parse: fn(&Fields) -> Result<Operator, WorkloadError>,
}

/// Every operator.
pub(super) const OPERATORS: &[Entry] = &[conv2d::ENTRY, matmul::ENTRY];

/// `result[..] = Σ data[..] * weight[..]`.
pub(super) struct Contraction {
    /// Name, extent, and whether it is summed over; spatial axes first.
    pub(super) axes: Vec<(&'static str, usize, bool)>,
    /// Indices of the operands and the result, affine in the axes; what is read beyond an operand is zero.
    pub(super) data: Vec<Affine>,
    pub(super) weight: Vec<Affine>,
    pub(super) output: Vec<Affine>,
    /// Index of the bias.
    pub(super) channel: Affine,
    /// True if the weights are the same in every run.
    pub(super) weight_is_constant: bool,
}

/// What an operator says of itself.
pub(super) trait Definition {
    /// Its sizes in the text form.
    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Fails with the first field that makes no sense.
    fn check(&self) -> Result<(), WorkloadError>;

    /// Shapes of data, weights and result, outermost first.
    fn shapes(&self) -> [Vec<usize>; 3];

    /// Values that a bias has.
    fn bias_len(&self) -> usize;

    /// Terms of the sum behind one element of the result.
    fn reduction_len(&self) -> usize;

    /// What it computes.
    fn contraction(&self) -> Contraction;
}

impl Operator {
    pub(super) fn definition(&self) -> (&'static Entry, &dyn Definition) {
        match self {
            Self::Conv2d(conv) => (&conv2d::ENTRY, conv),
            Self::Matmul(matmul) => (&matmul::ENTRY, matmul),
        }
    }
}

/// The product of sizes, if it is within a limit.
pub(super) fn product(
    op: &'static str,
    what: &'static str,
    dims: &[usize],
    limit: usize,
) -> Result<usize, WorkloadError> {
    dims.iter()
        .try_fold(1usize, |acc, &d| acc.checked_mul(d))
        .filter(|&p| p <= limit)
        .ok_or(WorkloadError::Overflow { op, what })
}

/// Fails with the first of the fields that is zero.
pub(super) fn check_positive(op: &'static str, fields: &[(&'static str, usize)]) -> Result<(), WorkloadError> {
    match fields.iter().find(|(_, v)| *v == 0) {
        Some((field, _)) => Err(WorkloadError::Unfit { op, field, reason: "must be at least 1".into() }),
        None => Ok(()),
    }
}
