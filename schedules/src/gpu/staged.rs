//! Staging of operands in shared memory, and packing of weights.

use super::AxisRoles;
use crate::contraction::Operand;
use autotune_ir::DType;
use autotune_ir::affine::Affine;

/// Staging of one operand in shared memory.
#[derive(Clone, Debug)]
pub struct Staged {
    /// Operand in global memory, as the compute stage reads it.
    pub source: Operand,
    /// Element type in shared memory.
    pub dtype: DType,
    /// Dimensions of `source` in the order of shared memory. A block needs only one element along
    /// any other dimension.
    pub order: Vec<usize>,
    /// Extent of a block's chunk along each dimension of `source`.
    pub extents: Vec<usize>,
    /// Number of elements that one thread copies at once, along the last dimension of `source` that
    /// is in `order`.
    pub vector: usize,
    /// Padding elements per row of shared memory, which avoid bank conflicts.
    pub pad: usize,
}

impl Staged {
    /// Shape in shared memory, with padding.
    pub fn shape(&self) -> Vec<usize> {
        let mut shape: Vec<usize> = self.order.iter().map(|&dim| self.extents[dim]).collect();
        if let Some(row) = shape.last_mut() {
            *row += self.pad;
        }
        shape
    }

    /// Dimension along which vectors are copied.
    pub(crate) fn along(&self) -> usize {
        // The last dimension is contiguous in global memory, whatever the order in shared memory.
        self.order.iter().copied().max().unwrap_or_default()
    }

    /// Number of elements in a chunk.
    pub fn elements(&self) -> usize {
        self.extents.iter().product()
    }

    /// Number of rounds in which `threads` threads copy a chunk.
    pub fn rounds(&self, threads: usize) -> usize {
        (self.elements() / self.vector).div_ceil(threads)
    }
}

/// Packing of weights ahead of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Dimensions of the weights in packed order. The extent of any other is 1.
    pub order: Vec<usize>,
    /// Pairs of columns that a lane of matrix instructions has adjacent in the result; 1 for the
    /// original order. The packed column `8*run*j + 8*p + 2*q + c` is column
    /// `8*run*j + 2*run*q + 2*p + c`. The pairs that instructions assign to lane `q` are then
    /// adjacent. Its stores, and its loads of a residual, are 16 bytes wide, and four lanes access
    /// whole sectors.
    pub run: usize,
}

impl Packing {
    /// Returns the packed weights, with columns of zeros to complete the last run.
    pub(crate) fn packed(&self, weight: &Operand) -> Operand {
        let mut shape: Vec<usize> = self.order.iter().map(|&dim| weight.shape[dim]).collect();
        if self.run > 1 {
            shape[0] = shape[0].next_multiple_of(8 * self.run);
        }
        Operand { shape, index: self.order.iter().map(|&dim| weight.index[dim].clone()).collect() }
    }

    /// Returns the column and the packed column for digits `[j, p, q, c]`.
    pub(crate) fn columns(&self, digits: &[Affine]) -> [Affine; 2] {
        let run = self.run as i64;
        let sum = |steps: [i64; 4]| {
            digits.iter().zip(steps).fold(Affine::default(), |sum, (digit, step)| sum + digit.clone() * step)
        };
        [sum([8 * run, 2, 2 * run, 1]), sum([8 * run, 8, 2, 1])]
    }
}

impl AxisRoles {
    /// Returns data and weights as the compute stage reads them.
    pub(crate) fn sources(&self, packing: &Option<Packing>) -> [Operand; 2] {
        let [data, weight] = self.operands.clone();
        [data, packing.as_ref().map_or_else(|| weight.clone(), |packing| packing.packed(&weight))]
    }

    /// Returns the dimensions of an operand, those of the reduction first.
    pub(crate) fn reduce_first(&self, operand: &Operand) -> Vec<usize> {
        let reduces = |dim: &usize| {
            let terms = &operand.index[*dim].terms;
            !terms.is_empty() && terms.iter().all(|&(axis, _)| self.axes[axis.0 as usize].reduce)
        };
        let mut order: Vec<usize> = (0..operand.shape.len()).collect();
        // The sort is stable, so that other dimensions keep their order.
        order.sort_by_key(|dim| !reduces(dim));
        order
    }

    /// Returns the packing for single threads, which puts reduction dimensions first. Returns
    /// `None` if packing would not change the order.
    pub(crate) fn packing(&self) -> Option<Packing> {
        let weight = &self.operands[1];
        let order = self.reduce_first(weight);
        // The place of a dimension with one element changes nothing in memory.
        let moved = order.iter().filter(|&&dim| weight.shape[dim] > 1);
        let changes = self.unfolded || self.own.weight_is_constant && !moved.is_sorted();
        changes.then_some(Packing { order, run: 1 })
    }
}
