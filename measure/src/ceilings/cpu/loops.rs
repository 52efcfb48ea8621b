//! Loops that measure ceilings, and the sizes that their implementations share.

use autotune_ir::instruction::Instruction;

/// Independent accumulators: more than any core needs to hide the latency of a multiply-add.
pub(super) const ACCUMULATORS: usize = 12;

/// Independent accumulators of the reading loop.
pub(super) const READ_ACCUMULATORS: usize = 8;

/// Distance in f32 elements between the operands of two tasks. No two tasks share a cache line, and
/// the widest vector fits.
pub(super) const LINE: usize = 16;

/// Rounds of the multiply-add loop per task, about half a millisecond.
pub(super) const ROUNDS: usize = 300_000;

/// Rounds of the loop of tile products per task, as long.
pub(super) const TILE_ROUNDS: usize = 20_000;

/// Independent tiles of sums: with two tiles of each factor, all eight tile registers.
pub(super) const TILE_SUMS: usize = 4;

/// Loop that reaches a peak rate: a stage with three buffers, operands, results, and the number of
/// elements of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CeilingLoop {
    /// Task `t` does independent multiply-adds on line `t` of the operands, with vectors of `lanes`
    /// f32, and stores their sum in line `t` of the results.
    MultiplyAdd { lanes: usize },
    /// Same loop with a dot-product instruction on full vectors.
    Dot(&'static Instruction),
    /// Task `t` does independent products of tiles, all of whose rows are line `t` of the operands,
    /// and stores a row of sums in line `t` of the results.
    Tile(&'static Instruction),
    /// Task `t` copies the `t`-th chunk of the operands to the results.
    Copy,
    /// Task `t` reads the `t`-th chunk of the operands and stores its sum in line `t` of the
    /// results.
    Read,
}

impl CeilingLoop {
    /// Returns the name of the loop's C function.
    pub(super) fn symbol(self) -> String {
        match self {
            CeilingLoop::MultiplyAdd { lanes } => format!("autotune_fma{lanes}"),
            CeilingLoop::Dot(instruction) | CeilingLoop::Tile(instruction) => format!("autotune_{}", instruction.name),
            CeilingLoop::Copy => "autotune_copy".into(),
            CeilingLoop::Read => "autotune_read".into(),
        }
    }
}

/// Returns the number of elements of a chunk.
///
/// # Safety
///
/// The buffers must be those of a [`CeilingLoop`].
pub(super) unsafe fn chunk(buffers: *const *mut f32) -> usize {
    // SAFETY: the caller guarantees that there is a third buffer with at least one element.
    unsafe { (**buffers.add(2)).to_bits() as usize }
}
