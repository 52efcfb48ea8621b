//! A factor of the products that are summed.

use autotune_ir::program::Access;
use autotune_ir::spec::{AxisId, Equation};
use autotune_ir::{Affine, VarId};

use super::line::{Elements, ReferenceTensor, at, box_of, dot, is_contiguous, points, position, step, unravel};
use super::selection::LineSelection;
use crate::operands::OutOfMemory;
use crate::parallel::for_each_chunk;

/// A tensor and the index at which it is read.
pub(super) struct ReferenceOperand<'a> {
    pub(super) tensor: ReferenceTensor<'a>,
    pub(super) index: Vec<Affine>,
}

impl ReferenceOperand<'_> {
    pub(super) fn new<'a>(tensors: &[ReferenceTensor<'a>], access: &Access) -> ReferenceOperand<'a> {
        ReferenceOperand { tensor: tensors[access.buffer.0 as usize].clone(), index: access.index.to_vec() }
    }

    pub(super) fn uses(&self, axis: AxisId) -> bool {
        step(&self.index, axis).any(|step| step != 0)
    }

    /// Returns the position of the element that is read at a point.
    pub(super) fn position(&self, point: &[i64]) -> i64 {
        position(&self.tensor.shape, at(&self.index, point))
    }

    /// Returns the distance between the elements read at two points that differ by `by`.
    pub(super) fn offset(&self, by: &[i64]) -> i64 {
        self.position(by) - position(&self.tensor.shape, self.index.iter().map(|index| index.constant))
    }

    /// Replaces the channels of each block by their weighted sum. The terms of a reduction are
    /// adjacent in the result.
    pub(super) fn weighted(
        &self,
        main: &Equation,
        selection: &LineSelection,
    ) -> Result<ReferenceOperand<'static>, OutOfMemory> {
        let channel = selection.lines.channel.0;
        let stride = position(&self.tensor.shape, step(&self.index, channel));
        let terms = box_of(main, |_, axis| axis.reduce);
        let mut outer = box_of(main, |id, axis| !axis.reduce && id != channel && self.uses(id));
        outer[channel] = selection.blocks();

        let offsets: Vec<i64> = (0..points(&terms)).map(|term| self.offset(&unravel(term, &terms))).collect();
        let is_contiguous = is_contiguous(&offsets);
        let mut sums = OutOfMemory::zeros(points(&outer).saturating_mul(offsets.len()))?;
        for_each_chunk(&mut sums, offsets.len(), |number, sums: &mut [f64]| {
            let mut first = unravel(number, &outer);
            let block = std::mem::take(&mut first[channel]) as usize;
            let first = self.position(&first);

            // Read adjacent elements together: channels, or terms of the reduction.
            if stride == 1 {
                let (channels, weights) = (selection.channels(block), selection.weights(block));
                let mut elements = vec![0.0; channels.len()];
                for (sum, offset) in sums.iter_mut().zip(&offsets) {
                    self.tensor.copy(first + offset + channels.start as i64, &mut elements);
                    *sum = dot(weights, &elements);
                }
                return;
            }
            let mut elements = vec![0.0; offsets.len()];
            for (channel, weight) in selection.terms(0, block) {
                self.tensor.gather(first + channel as i64 * stride, &offsets, is_contiguous, &mut elements);
                sums.iter_mut().zip(&elements).for_each(|(sum, element)| *sum += weight * element);
            }
        });

        let shape: Vec<usize> = outer.iter().zip(&terms).map(|(outer, terms)| outer * terms).collect();
        let along = |(axis, &extent)| if extent > 1 { Affine::var(VarId(axis)) } else { Affine::default() };
        let index = (0..).zip(&shape).map(along).collect();
        Ok(ReferenceOperand { tensor: ReferenceTensor { shape, elements: Elements::Made(sums) }, index })
    }
}
