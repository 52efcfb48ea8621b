//! What the blocks that run at once touch of global memory.

use smallvec::SmallVec;

use super::super::footprint::Region;
use super::super::nest::Nest;
use crate::affine::{Affine, VarId};
use crate::machine::gpu::SECTOR_BYTES;
use crate::program::{Access, Digit};

/// A number that is taken apart, and its digits.
type Digits<'a> = (&'a Affine, &'a [Digit]);

/// Which part of the grid runs at once, and the buffers that it touches.
#[derive(Clone, Debug, Default)]
pub(super) struct Waves {
    /// Variables that say which tile of the result a block has, the one that neighbouring blocks
    /// differ in first, with their extents.
    tiles: Vec<(VarId, usize)>,
    /// For each buffer, bytes of the sectors that the tiles of the first `count` variables touch.
    touched: Vec<Vec<f64>>,
}

impl Waves {
    /// For a grid of blocks with these variables, outermost first.
    pub(super) fn new(blocks: impl DoubleEndedIterator<Item = (VarId, usize)>) -> Self {
        Self { tiles: blocks.rev().collect(), touched: Vec::with_capacity(4) }
    }

    /// Notes that a number is taken apart: where it is that of a block, which goes from tile to
    /// tile, its digits say which tile.
    pub(super) fn unflatten(&mut self, value: &Affine, digits: &[Digit]) {
        if let Some(block) = self.tiles.iter().position(|&(var, _)| value.coefficient(var) == 1) {
            self.tiles.splice(block..=block, digits.iter().rev().map(|digit| (digit.var, digit.extent)));
        }
    }

    /// Notes the access of all threads of a block to a buffer, within these numbers taken apart.
    pub(super) fn touch(
        &mut self,
        nest: &Nest,
        access: &Access,
        numbers: &[Digits],
        extent_of: impl Fn(VarId) -> usize,
    ) {
        let mut region = nest.region(access);
        let is_tile = |var: VarId| self.tiles.iter().any(|tile| tile.0 == var);
        let mut vars: SmallVec<[VarId; 16]> =
            access.index.iter().flat_map(|index| &index.terms).map(|term| term.0).collect();
        vars.sort_unstable();
        vars.dedup();
        vars.into_iter().filter(|&var| !is_tile(var)).for_each(|var| region.widen(var, extent_of(var)));

        // Of digits that depend on the tile only some values occur in a block.
        let own = |var: VarId| access.index.iter().any(|index| index.uses(var));
        let numbers: SmallVec<[&Digits; 4]> =
            numbers.iter().filter(|(_, digits)| digits.iter().any(|d| own(d.var))).collect();
        let bytes = |region: &Region, tiles: usize| {
            let runs = |var: VarId| self.tiles.iter().position(|tile| tile.0 == var).is_none_or(|at| at < tiles);
            let occurring = |(value, digits): &&Digits| {
                let (low, high) = value.range(|var| if runs(var) { extent_of(var) } else { 1 });
                let count: f64 = digits.iter().map(|digit| digit.extent as f64).product();
                ((high - low + 1) as f64 / count).min(1.0)
            };
            let share: f64 = numbers.iter().map(occurring).product();
            share * region.blocks(SECTOR_BYTES as f64) * SECTOR_BYTES as f64
        };
        let mut touched = vec![bytes(&region, 0)];
        for (i, &(var, extent)) in self.tiles.iter().enumerate() {
            region.widen(var, extent);
            touched.push(bytes(&region, i + 1));
        }

        self.touched.push(touched);
    }

    /// Bytes that the whole grid touches.
    pub(super) fn all_bytes(&self) -> f64 {
        self.touched.iter().filter_map(|bytes| bytes.last()).sum()
    }

    /// Bytes that come into the second-level cache if nothing stays in it from one wave of `blocks`
    /// blocks to the next.
    pub(super) fn fetched_bytes(&self, blocks: f64) -> f64 {
        let tiles: f64 = self.tiles.iter().map(|tile| tile.1 as f64).product();
        let waves = (tiles / blocks).max(1.0);
        self.touched.iter().map(|bytes| waves * self.of_wave(bytes, blocks)).sum()
    }

    /// Bytes of one buffer that `blocks` neighbouring tiles touch, of which `bytes` has those of
    /// the first variables.
    fn of_wave(&self, bytes: &[f64], blocks: f64) -> f64 {
        let mut left = blocks;
        for (&(_, extent), inside) in self.tiles.iter().zip(bytes.windows(2)) {
            let extent = extent as f64;
            if left < extent {
                return inside[0] + (inside[1] - inside[0]) * (left - 1.0).max(0.0) / (extent - 1.0);
            }
            left /= extent;
        }
        bytes.last().copied().unwrap_or(0.0)
    }
}
