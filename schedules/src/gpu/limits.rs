//! Rules between the parts of a tiling, and limits of the target, that every one keeps.

use std::fmt::Display;

use super::{Kernel, Tiling};
use crate::contraction::{Contraction, Operand};
use crate::error::LowerError;
use autotune_ir::instruction::ThreadGroup;
use autotune_ir::target::GpuTarget;

/// Multiply-adds or matrix instructions of one loop body beyond which compilers are slow and the
/// instruction cache overflows.
pub(crate) const MAX_BODY: usize = 4096;
const MAX_MATRIX_BODY: usize = 512;
/// Rounds in which the threads of a block copy a chunk, at most: more means too few threads for the
/// tile.
const MAX_ROUNDS: usize = 32;
const MAX_MATRIX_ROUNDS: usize = 16;
/// Registers that an instruction of a warp group takes beside its sums, for NVRTC 13.0.
const INSTRUCTION_REGISTERS: usize = 26;
/// Blocks of a grid and elements of a buffer; indices within a kernel are 32 bits wide.
const MAX_INDEX: usize = i32::MAX as usize;
/// Chunks of a reduction with two stages, whose even and odd ones are separate sets of what
/// [`autotune_ir::verify`] adds up.
const MAX_STAGED_CHUNKS: usize = 1 << 17;
/// Elements of the sums of parts, at most: a gigabyte, which takes longer to write and read than a
/// split gains.
const MAX_PARTS: usize = 1 << 28;

impl Tiling {
    /// The tiling itself if it keeps the rules between its parts and the limits of the target.
    pub(crate) fn checked(self, target: &GpuTarget) -> Result<Self, LowerError> {
        if let Kernel::Registers { .. } = self.kernel {
            let extents = self.spatial.iter().map(|&(axis, _)| self.roles.extent(axis).next_power_of_two());
            let (threads, warp) = (self.threads(), target.warp_threads);
            let is_small = extents.fold(1, usize::saturating_mul) < warp;
            let is_whole = threads.is_multiple_of(warp) || is_small;
            require(is_whole, "tile", format_args!("{threads} threads are not whole warps"))?;
            most("tile", "copies of a thread", self.most_rounds(), MAX_ROUNDS)?;
        }
        self.within_limits(target)
    }

    /// The same where there may be few threads for a tile, because other rules leave no more.
    pub(crate) fn within_limits(self, target: &GpuTarget) -> Result<Self, LowerError> {
        self.check_chunks()?;
        self.check_block(target)?;
        self.check_operands()?;
        Ok(self)
    }

    fn most_rounds(&self) -> usize {
        self.rounds().into_iter().max().unwrap_or(0)
    }

    /// A chunk for every block, and one for every slot.
    fn check_chunks(&self) -> Result<(), LowerError> {
        let (split, slots, chunks, all) = (self.split, self.slots, self.chunks(), self.all_chunks());
        if self.counts_all_chunks() {
            require(all.is_multiple_of(split), "split", "does not divide the chunks")?;
            return require(self.ahead() <= chunks, "stages", "is more than chunks need");
        }
        require((split - 1) * chunks < all, "split", "a block without a chunk")?;
        let has_two = slots == 2 && chunks > 1 && all <= MAX_STAGED_CHUNKS;
        require(slots == 1 || has_two, "stages", "is not 1, or 2 with two chunks at least and not too many")
    }

    fn check_block(&self, target: &GpuTarget) -> Result<(), LowerError> {
        most("tile", "threads of a block", self.all_threads(), target.threads_per_block)?;
        most("tile", "bytes of shared memory", self.shared_bytes(), target.shared_bytes_per_block)?;
        most("tile", "registers of a thread", self.registers(), self.most_registers(target))?;
        most("tile", "blocks", self.blocks(), MAX_INDEX)?;
        match self.kernel {
            Kernel::Registers { unroll } => most("unroll", "multiply-adds in a row", unroll * self.sums(), MAX_BODY),
            Kernel::Matrix { by, instructions: [rows, columns], .. } => {
                let steps = self.reduce.last().map_or(1, |reduce| reduce.1) / self.instruction_steps();
                most("tile", "instructions in a row", rows * columns * steps, MAX_MATRIX_BODY)?;
                match by {
                    ThreadGroup::Warp => most("tile", "copies of a thread", self.most_rounds(), MAX_MATRIX_ROUNDS),
                    // The compiler does not count on registers that go from threads to others here.
                    ThreadGroup::WarpGroup => {
                        let one = 4 * columns + INSTRUCTION_REGISTERS;
                        most("tile.n", "registers of an instruction", one, self.launched_registers(target))
                    }
                }
            }
        }
    }

    fn check_operands(&self) -> Result<(), LowerError> {
        let Contraction { data, weight, output, .. } = &self.roles.own;
        let elements = |operand: &Operand, n: usize| operand.shape.iter().fold(n, |n, &d| n.saturating_mul(d));
        let sums = elements(output, self.split);
        let packed = elements(&self.staged[1].source, 1);
        let largest = elements(data, 1).max(elements(weight, 1)).max(packed).max(sums);
        most("tile", "elements of an operand", largest, MAX_INDEX)?;
        if self.split > 1 { most("split", "sums of parts", sums, MAX_PARTS) } else { Ok(()) }
    }
}

/// Fails with a knob unless what it needs holds.
pub(super) fn require(holds: bool, knob: &str, reason: impl Display) -> Result<(), LowerError> {
    if holds { Ok(()) } else { Err(LowerError::knob(knob, reason.to_string())) }
}

fn most(knob: &str, what: &str, found: usize, limit: usize) -> Result<(), LowerError> {
    require(found <= limit, knob, format_args!("{found} {what} exceed {limit}"))
}
