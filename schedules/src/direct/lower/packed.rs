//! Indices of elements in packed operands.

use super::region::{Region, Span};
use crate::contraction::{AxisId, divide};
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Index};

/// A packed operand. The index of an element consists of its register tile's number along each
/// axis, then its position in the tile.
pub(crate) struct PackedOperand {
    pub(crate) buffer: BufferId,
    /// Axes with several register tiles, and the tile's extent along each.
    pub(super) tiles: Vec<(AxisId, usize)>,
    /// Axes that one register tile reads, in memory order.
    pub(super) inner: Vec<InnerAxis>,
    /// Region that is packed, with the whole extent of the reduction in the loops that read it;
    /// `None` for the whole operand.
    pub(super) region: Option<Region>,
}

/// A reduction axis or an axis of the register tile.
#[derive(Clone, Copy)]
pub(super) struct InnerAxis {
    pub(super) axis: AxisId,
    pub(super) extent: usize,
    pub(super) is_reduced: bool,
}

impl PackedOperand {
    /// Returns the index of an element: in register tile `region`, at `local` within it, at `point`
    /// in the iteration space.
    pub(crate) fn index(&self, region: &[Span], local: &[Affine], point: &[Affine]) -> Index {
        let tiles = self.tiles.iter().map(|&(axis, tile)| match &self.region {
            Some(origin) => divide(&(region[axis].base.clone() + origin[axis].base.clone() * -1), tile),
            None => divide(&region[axis].base, tile),
        });
        let reduced = if self.region.is_some() { local } else { point };
        let inner = self.inner.iter().map(|i| if i.is_reduced { &reduced[i.axis] } else { &local[i.axis] });
        tiles.chain(inner.cloned()).collect()
    }

    /// Number of elements that a reduction step reads.
    pub(super) fn step_len(&self) -> usize {
        self.inner.iter().filter(|inner| !inner.is_reduced).map(|inner| inner.extent).product()
    }
}
