//! Vector accesses of GPU threads: neighbouring elements of a vectorised loop accessed at once.

use crate::affine::{Affine, VarId};
use crate::machine::gpu::MAX_ACCESS_BYTES;
use crate::program::InBounds;

/// Lanes `start..start + lanes` of a loop over `var`.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    /// Variable of the loop.
    pub var: VarId,
    /// First lane: the value of `var` there.
    pub start: usize,
    /// Number of consecutive lanes.
    pub lanes: usize,
}

impl Vector {
    /// Maximum number of lanes.
    pub const MAX_LANES: usize = 8;

    /// Returns the widest vector from lane `start` on that passes `fits`: 8, 4, 2 or 1 lanes.
    pub fn widest(var: VarId, start: usize, extent: usize, fits: impl Fn(Vector) -> bool) -> Self {
        let vectors = [Self::MAX_LANES, 4, 2].map(|lanes| Self { var, start, lanes });
        let widest = vectors.into_iter().find(|vector| start + vector.lanes <= extent && fits(*vector));
        widest.unwrap_or(Self { var, start, lanes: 1 })
    }

    /// Returns true if the value at the first lane is a multiple of the number of lanes.
    pub fn starts_aligned(self, value: &Affine, extent_of: impl Fn(VarId) -> usize) -> bool {
        let lanes = self.lanes as i64;
        let first = value.constant + value.coefficient(self.var) * self.start as i64;
        let is_multiple = |&(var, c): &(VarId, i64)| var == self.var || c % lanes == 0 || extent_of(var) == 1;
        first % lanes == 0 && value.terms.iter().all(is_multiple)
    }

    /// Returns true if one access can serve all lanes: they are neighbouring elements of
    /// `element_bytes` bytes, at most 16 bytes together, and aligned.
    pub fn is_contiguous(self, offset: &Affine, element_bytes: usize, extent_of: impl Fn(VarId) -> usize) -> bool {
        let fits = self.lanes * element_bytes <= MAX_ACCESS_BYTES;
        fits && offset.coefficient(self.var) == 1 && self.starts_aligned(offset, extent_of)
    }

    /// Returns the number of lanes that one access can serve: all, or a half, a quarter, and so on,
    /// if only those are contiguous and few enough; 1 if no neighbours are.
    pub fn lanes_at_once(
        self,
        offset: &Affine,
        element_bytes: usize,
        extent_of: impl Fn(VarId) -> usize + Copy,
    ) -> usize {
        let halved = std::iter::successors(Some(self.lanes), |lanes| Some(lanes / 2));
        let mut parts = halved.take_while(|&lanes| lanes > 1);
        parts.find(|&lanes| Self { lanes, ..self }.is_contiguous(offset, element_bytes, extent_of)).unwrap_or(1)
    }

    /// Returns true if the condition holds for all lanes or for none.
    pub fn is_uniform(self, condition: &InBounds, extent_of: impl Fn(VarId) -> usize) -> bool {
        match condition.index.coefficient(self.var) {
            0 => true,
            1 => self.starts_aligned(&condition.index, extent_of) && condition.extent.is_multiple_of(self.lanes),
            _ => false,
        }
    }
}
