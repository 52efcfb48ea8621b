//! Regions of the iteration space: a range of each axis, for a tile at some depth of the nest.

use crate::lower::nest::Segment;
use autotune_ir::affine::Affine;

/// Range of one axis at some depth of the nest: `base..base + extent`.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) base: Affine,
    pub(crate) extent: usize,
}

impl Span {
    /// Returns the tile number `index` of a segment.
    pub(crate) fn tile(&self, segment: Segment, index: Affine) -> Self {
        let base = index * segment.extent as i64 + self.base.clone() + segment.start as i64;
        Self { base, extent: segment.extent }
    }
}

/// A span per axis of the contraction.
pub(crate) type Region = Vec<Span>;

/// Returns the first element of the region along every axis.
pub(crate) fn bases(region: &Region) -> Vec<Affine> {
    region.iter().map(|span| span.base.clone()).collect()
}
