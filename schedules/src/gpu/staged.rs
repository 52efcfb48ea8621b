//! Operands on their way to the threads.

use super::AxisRoles;
use crate::contraction::Operand;
use autotune_ir::DType;
use autotune_ir::affine::Affine;

/// One operand on its way to the threads.
#[derive(Clone, Debug)]
pub struct Staged {
    /// As it lies in global memory when the compute stage reads it.
    pub source: Operand,
    /// Type of its elements in shared memory.
    pub dtype: DType,
    /// Dimensions of `source` in the order in which they lie in shared memory. A block needs one
    /// element of any other.
    pub order: Vec<usize>,
    /// Elements that a block needs of each dimension of `source` for one chunk.
    pub extents: Vec<usize>,
    /// Elements that one thread copies at once, along the last dimension of `source` that is in
    /// `order`.
    pub vector: usize,
    /// Elements more in each row of shared memory, against bank conflicts.
    pub pad: usize,
}

impl Staged {
    /// Shape in shared memory.
    pub fn shape(&self) -> Vec<usize> {
        let mut shape: Vec<usize> = self.order.iter().map(|&dim| self.extents[dim]).collect();
        if let Some(row) = shape.last_mut() {
            *row += self.pad;
        }
        shape
    }

    /// The dimension along which vectors are copied.
    pub(crate) fn along(&self) -> usize {
        self.order.iter().copied().max().unwrap_or_default()
    }

    /// Elements of a chunk.
    pub fn elements(&self) -> usize {
        self.extents.iter().product()
    }

    /// Rounds in which `threads` threads copy a chunk.
    pub fn rounds(&self, threads: usize) -> usize {
        (self.elements() / self.vector).div_ceil(threads)
    }
}

/// How weights are copied ahead of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Their dimensions in the order in which they are packed. Any other has one element.
    pub order: Vec<usize>,
    /// Pairs of columns that a lane of matrix instructions has one after the other: the packed
    /// column `8*run*j + 8*p + 2*q + c` is column `8*run*j + 2*run*q + 2*p + c`, so that the pairs
    /// which instructions deal out to lane `q` are neighbours, and its stores, and its loads of a
    /// residual, are of 16 bytes and those of four lanes of whole sectors. 1 for the order as it
    /// is.
    pub run: usize,
}

impl Packing {
    /// The weights as they are packed, with columns of zeros that make whole runs.
    pub(crate) fn packed(&self, weight: &Operand) -> Operand {
        let mut shape: Vec<usize> = self.order.iter().map(|&dim| weight.shape[dim]).collect();
        if self.run > 1 {
            shape[0] = shape[0].next_multiple_of(8 * self.run);
        }
        Operand { shape, index: self.order.iter().map(|&dim| weight.index[dim].clone()).collect() }
    }

    /// For `[j, p, q, c]` the column, and the packed column.
    pub(crate) fn columns(&self, digits: &[Affine]) -> [Affine; 2] {
        let run = self.run as i64;
        let sum = |steps: [i64; 4]| {
            digits.iter().zip(steps).fold(Affine::default(), |sum, (digit, step)| sum + digit.clone() * step)
        };
        [sum([8 * run, 2, 2 * run, 1]), sum([8 * run, 8, 2, 1])]
    }
}

impl AxisRoles {
    /// Data and weights as the compute stage reads them.
    pub(crate) fn sources(&self, packing: &Option<Packing>) -> [Operand; 2] {
        let [data, weight] = self.operands.clone();
        [data, packing.as_ref().map_or_else(|| weight.clone(), |packing| packing.packed(&weight))]
    }

    /// Dimensions of the operand, those of the reduction first.
    pub(crate) fn reduce_first(&self, operand: &Operand) -> Vec<usize> {
        let reduces = |dim: &usize| {
            let terms = &operand.index[*dim].terms;
            !terms.is_empty() && terms.iter().all(|&(axis, _)| self.axes[axis.0 as usize].reduce)
        };
        let mut order: Vec<usize> = (0..operand.shape.len()).collect();
        order.sort_by_key(|dim| !reduces(dim));
        order
    }

    /// The order in which the weights' dimensions are packed for threads of their own, if that
    /// changes where they lie.
    pub(crate) fn packing(&self) -> Option<Packing> {
        let weight = &self.operands[1];
        let order = self.reduce_first(weight);
        let moved = order.iter().filter(|&&dim| weight.shape[dim] > 1);
        let changes = self.unfolded || self.own.weight_is_constant && !moved.is_sorted();
        changes.then_some(Packing { order, run: 1 })
    }
}
