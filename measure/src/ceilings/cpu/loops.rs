//! The loops that find ceilings, and the sizes that they share.

use autotune_ir::instruction::Instruction;

/// Independent accumulators: more than any core needs to hide the latency of a multiply-add.
pub(super) const ACCUMULATORS: usize = 12;

/// Independent sums of the reading loop.
pub(super) const READ_ACCUMULATORS: usize = 8;

/// f32 elements between the operands of two tasks: no two share a cache line, and the widest vector
/// fits.
pub(super) const LINE: usize = 16;

/// Rounds of the multiply-add loop in one task, about half a millisecond.
pub(super) const ROUNDS: usize = 300_000;

/// A loop that reaches a ceiling, as a stage with three buffers: operands, results, and the number
/// of elements of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    /// Task `t` runs independent multiply-adds on line `t` of the operands, vectors of `lanes` f32,
    /// and leaves their sum in line `t` of the results.
    MultiplyAdd { lanes: usize },
    /// The same with an instruction of dot products, in whole vectors.
    Dot(&'static Instruction),
    /// Task `t` copies the `t`-th chunk of the operands to the results.
    Copy,
    /// Task `t` reads the `t`-th chunk of the operands and leaves its sum in line `t` of the
    /// results.
    Read,
}

impl Loop {
    /// Name of its C function.
    pub(super) fn symbol(self) -> String {
        match self {
            Loop::MultiplyAdd { lanes } => format!("autotune_fma{lanes}"),
            Loop::Dot(instruction) => format!("autotune_{}", instruction.name),
            Loop::Copy => "autotune_copy".into(),
            Loop::Read => "autotune_read".into(),
        }
    }
}

/// Elements of a chunk.
///
/// # Safety
///
/// The buffers are those of a [`Loop`].
pub(super) unsafe fn chunk(buffers: *const *mut f32) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (**buffers.add(2)).to_bits() as usize }
}
