//! Global memory that concurrently running blocks access.

use smallvec::SmallVec;

use super::super::footprint::Region;
use super::super::nest::RunNest;
use crate::affine::{Affine, VarId};
use crate::machine::gpu::SECTOR_BYTES;
use crate::program::{Access, Digit};

/// An index value that is split, with its digits.
type Digits<'a> = (&'a Affine, &'a [Digit]);

/// Order in which blocks run, and the buffers that they access.
#[derive(Clone, Debug, Default)]
pub(super) struct Waves {
    /// Variables that select a block's tile of the result, with their extents; first the one in
    /// which neighbouring blocks differ.
    tiles: Vec<(VarId, usize)>,
    /// Bytes of the sectors accessed by all tiles of the first `count` variables, indexed by
    /// buffer, then by `count`.
    touched: Vec<Vec<f64>>,
}

impl Waves {
    /// Creates the description of a grid numbered by these variables, outermost first.
    pub(super) fn new(blocks: impl DoubleEndedIterator<Item = (VarId, usize)>) -> Self {
        // Neighbouring blocks differ in the innermost variable first.
        Self { tiles: blocks.rev().collect(), touched: Vec::with_capacity(4) }
    }

    /// Registers a split index value. If it numbers the blocks, its digits replace it as tile
    /// variables.
    pub(super) fn unflatten(&mut self, value: &Affine, digits: &[Digit]) {
        if let Some(block) = self.tiles.iter().position(|&(var, _)| value.coefficient(var) == 1) {
            self.tiles.splice(block..=block, digits.iter().rev().map(|digit| (digit.var, digit.extent)));
        }
    }

    /// Registers an access of all threads of a block to a buffer. `numbers` are the split index
    /// values around it.
    pub(super) fn record_access(
        &mut self,
        nest: &RunNest,
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
        // A single block runs all loops except those that number tiles.
        vars.into_iter().filter(|&var| !is_tile(var)).for_each(|var| region.widen(var, extent_of(var)));

        // If digits depend on the tile, only some of their values occur in a block.
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

    /// Returns the bytes that the whole grid accesses.
    pub(super) fn all_bytes(&self) -> f64 {
        self.touched.iter().filter_map(|bytes| bytes.last()).sum()
    }

    /// Returns the bytes fetched into the second-level cache if waves of `blocks` blocks share
    /// nothing between them.
    pub(super) fn fetched_bytes(&self, blocks: f64) -> f64 {
        let tiles: f64 = self.tiles.iter().map(|tile| tile.1 as f64).product();
        let waves = (tiles / blocks).max(1.0);
        self.touched.iter().map(|bytes| waves * self.of_wave(bytes, blocks)).sum()
    }

    /// Returns the bytes of one buffer that `blocks` neighbouring tiles access, interpolated
    /// between the entries of `bytes`.
    fn of_wave(&self, bytes: &[f64], blocks: f64) -> f64 {
        let mut left = blocks;
        for (&(_, extent), inside) in self.tiles.iter().zip(bytes.windows(2)) {
            let extent = extent as f64;
            // The wave covers part of this dimension: interpolate linearly.
            if left < extent {
                return inside[0] + (inside[1] - inside[0]) * (left - 1.0).max(0.0) / (extent - 1.0);
            }
            left /= extent;
        }
        bytes.last().copied().unwrap_or(0.0)
    }
}
