//! Rules between the knobs of the tiled sketch, and limits of the target.

use super::{SpatialTile, Staged, Tiled};
use crate::contraction::{Contraction, Operand};
use crate::lower::LowerError;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::target::GpuTarget;

/// Straight-line multiply-adds of one loop body beyond which compilers are slow and the instruction cache overflows.
const MAX_BODY: usize = 4096;
/// Rounds in which the threads of a block copy a chunk, at most: more means too few threads for the tile.
const MAX_ROUNDS: usize = 32;
/// Chunks of a reduction with two stages, whose even and odd ones are separate sets of what [`autotune_ir::verify`] adds up.
const MAX_STAGED_CHUNKS: usize = 1 << 17;
/// Blocks of a grid; indices within a kernel are 32 bits wide.
const MAX_INDEX: usize = i32::MAX as usize;

impl Tiled {
    /// Rules between knobs and limits of the target.
    pub(super) fn check(&self, target: &GpuTarget) -> Result<(), LowerError> {
        self.check_threads(target)?;
        self.check_memory(target)?;
        let needed = self.registers();
        // A multiprocessor deals registers out to four warps at a time, eight for each thread.
        let of_block = target.registers_per_multiprocessor / self.threads().next_multiple_of(4 * target.warp_threads);
        let available = target.registers_per_thread.min(of_block / 8 * 8);
        if needed > available {
            return Err(LowerError::knob("tile", format!("a thread needs {needed} registers of {available}")));
        }
        let body = self.unroll * self.spatial.iter().map(SpatialTile::per_thread).product::<usize>();
        if body > MAX_BODY {
            return Err(LowerError::knob("unroll", format!("{body} multiply-adds in a row exceed {MAX_BODY}")));
        }
        if (self.split - 1) * self.chunks() >= self.all_chunks() {
            return Err(LowerError::knob("split", "a block without a chunk"));
        }
        match self.stages {
            1 => {}
            2 if self.chunks() > 1 && self.all_chunks() <= MAX_STAGED_CHUNKS => {}
            _ => return Err(LowerError::knob("stages", "is not 1, or 2 with two chunks at least and not too many")),
        }
        if self.pixels.as_ref().is_some_and(|pixels| self.staged[0].vector > pixels.vector) {
            return Err(LowerError::knob("vector.data", "neighbouring pixels do not lie together"));
        }
        for (staged, knob) in self.staged.iter().zip(["vector.data", "vector.weight"]) {
            self.check_copy(staged, knob)?;
        }
        Ok(())
    }

    /// Blocks of which half is needed at least, and whole warps, unless the output is too small for one.
    fn check_threads(&self, target: &GpuTarget) -> Result<(), LowerError> {
        let wasted = |tile: &&SpatialTile| tile.block >= 2 * self.contraction.axes[tile.axis].extent;
        if let Some(tile) = self.spatial.iter().find(wasted) {
            return Err(LowerError::knob("tile", format!("a block of {} is mostly beyond the axis", tile.block)));
        }
        let threads = self.threads();
        let possible = self.spatial.iter().fold(1usize, |product, tile| {
            let extent = self.contraction.axes[tile.axis].extent;
            product.saturating_mul(extent.next_power_of_two())
        });
        if threads > target.threads_per_block {
            let reason = format!("{threads} threads a block exceed {}", target.threads_per_block);
            return Err(LowerError::knob("tile", reason));
        }
        if !threads.is_multiple_of(target.warp_threads) && possible >= target.warp_threads {
            return Err(LowerError::knob("tile", format!("{threads} threads are not whole warps")));
        }
        if self.blocks() > MAX_INDEX {
            return Err(LowerError::knob("tile", "too many blocks"));
        }
        Ok(())
    }

    fn check_memory(&self, target: &GpuTarget) -> Result<(), LowerError> {
        let (bytes, limit) = (self.shared_bytes(), target.shared_bytes_per_block);
        if bytes > limit {
            return Err(LowerError::knob("tile", format!("{bytes} bytes of shared memory exceed {limit}")));
        }
        let Contraction { data, weight, output, .. } = self.own();
        let elements = |(o, n): (&Operand, usize)| o.shape.iter().fold(n, |n, &d| n.saturating_mul(d));
        if [(data, 1), (weight, 1), (output, self.split)].into_iter().map(elements).any(|n| n > MAX_INDEX) {
            return Err(LowerError::knob("tile", "an operand of 2^31 elements or more"));
        }
        check_parts(&output.shape, self.split)
    }

    /// Few rounds, and vectors that are aligned and lie within the tensor or outside of it as a whole.
    fn check_copy(&self, staged: &Staged, knob: &str) -> Result<(), LowerError> {
        if staged.rounds(self.threads()) > MAX_ROUNDS {
            return Err(LowerError::knob("tile", "too few threads for what a block copies"));
        }
        let vector = staged.vector;
        if ![1, 2, 4].contains(&vector) {
            return Err(LowerError::knob(knob, "is not 1, 2 or 4"));
        }
        let (Some(&row), Some(index), Some(&extent)) =
            (staged.source.shape.last(), staged.source.index.last(), staged.extents.last())
        else {
            return Ok(());
        };
        let steps = index.terms.iter().all(|&(VarId(axis), c)| self.step(axis as usize, c).is_multiple_of(vector));
        let aligned = [row, extent, index.constant.unsigned_abs() as usize].iter().all(|n| n.is_multiple_of(vector));
        if vector > 1 && !(aligned && steps) {
            return Err(LowerError::knob(knob, format!("rows do not begin at multiples of {vector}")));
        }
        Ok(())
    }

    /// Elements between the chunks that follow each other along an axis, in a dimension with coefficient `c`.
    fn step(&self, axis: usize, c: i64) -> usize {
        let info = &self.contraction.axes[axis];
        let chunk = self.chunk_extent(axis);
        if chunk >= info.extent && !self.batch.contains(&axis) { 0 } else { chunk * c.unsigned_abs() as usize }
    }
}

/// The widest copy that a row of the operand allows.
pub(super) fn widest(row: &Affine, last: usize) -> usize {
    [4, 2]
        .into_iter()
        .find(|&w| last.is_multiple_of(w) && (row.constant.unsigned_abs() as usize).is_multiple_of(w))
        .unwrap_or(1)
}

/// Elements of the sums of parts, at most: a gigabyte, which takes longer to write and read than a split gains.
const MAX_PARTS: usize = 1 << 28;

/// Refuses splits whose parts of an output of this shape are too large.
pub(crate) fn check_parts(output: &[usize], split: usize) -> Result<(), LowerError> {
    let elements = output.iter().fold(split, |n, &d| n.saturating_mul(d));
    match split > 1 && elements > MAX_PARTS {
        true => Err(LowerError::knob("split", format!("{elements} sums of parts exceed {MAX_PARTS}"))),
        false => Ok(()),
    }
}
