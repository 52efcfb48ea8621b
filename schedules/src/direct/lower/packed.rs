//! Where elements of packed operands are.

use super::region::{Region, Span};
use crate::contraction::{AxisId, divide};
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Index};

/// A packed operand: an element's index is the numbers of its register tile, then its place within.
pub(crate) struct Packed {
    pub(crate) buffer: BufferId,
    /// Axes with several register tiles, and the extent of those.
    pub(super) tiles: Vec<(AxisId, usize)>,
    /// What one register tile reads, in the order in which it lies in memory.
    pub(super) inner: Vec<Inner>,
    /// What is packed, the whole extent of the reduction in the loops that read it; none for the
    /// whole operand.
    pub(super) region: Option<Region>,
}

/// A reduction axis or an axis of the register tile.
#[derive(Clone, Copy)]
pub(super) struct Inner {
    pub(super) axis: AxisId,
    pub(super) extent: usize,
    pub(super) is_reduced: bool,
}

impl Packed {
    /// The index of an element: of the register tile `region`, `local` within it, `point` in all.
    pub(crate) fn index(&self, region: &[Span], local: &[Affine], point: &[Affine]) -> Index {
        let tiles = self.tiles.iter().map(|&(axis, tile)| match &self.region {
            Some(origin) => divide(&(region[axis].base.clone() + origin[axis].base.clone() * -1), tile),
            None => divide(&region[axis].base, tile),
        });
        let reduced = if self.region.is_some() { local } else { point };
        let inner = self.inner.iter().map(|i| if i.is_reduced { &reduced[i.axis] } else { &local[i.axis] });
        tiles.chain(inner.cloned()).collect()
    }

    /// Elements that a step of the reduction reads.
    pub(super) fn step_len(&self) -> usize {
        self.inner.iter().filter(|inner| !inner.is_reduced).map(|inner| inner.extent).product()
    }
}
