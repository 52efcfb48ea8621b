//! Limits that every tiling keeps: rules between its parts, and limits of the target.

use std::fmt::Display;

use super::{MicroKernel, Tiling};
use crate::contraction::{Contraction, Operand};
use crate::error::LowerError;
use autotune_ir::instruction::ThreadGroup;
use autotune_ir::target::GpuTarget;

/// Maximum number of multiply-adds or matrix instructions in a loop body. Larger bodies compile
/// slowly and overflow the instruction cache.
pub(crate) const MAX_BODY: usize = 4096;
const MAX_MATRIX_BODY: usize = 512;
/// Maximum number of rounds in which a block copies a chunk; more means too few threads for the
/// tile.
const MAX_ROUNDS: usize = 32;
const MAX_MATRIX_ROUNDS: usize = 16;
/// Registers that an instruction of a warp group needs in addition to its sums (NVRTC 13.0).
const INSTRUCTION_REGISTERS: usize = 26;
/// Maximum number of blocks in a grid and of elements in a buffer: kernels use 32-bit indices.
const MAX_INDEX: usize = i32::MAX as usize;
/// Maximum number of chunks with two stages. The even and the odd chunks are two sets of
/// iterations, which [`autotune_ir::verify`] adds up.
const MAX_STAGED_CHUNKS: usize = 1 << 17;
/// Maximum number of partial sums of a split: one gigabyte of f32, which takes longer to write and
/// read than a split saves.
const MAX_PARTS: usize = 1 << 28;

impl Tiling {
    /// Checks the rules between the parts and the limits of the target, and returns the tiling.
    pub(crate) fn checked(self, target: &GpuTarget) -> Result<Self, LowerError> {
        if let MicroKernel::Registers { .. } = self.kernel {
            let extents = self.spatial.iter().map(|&(axis, _)| self.roles.extent(axis).next_power_of_two());
            let (threads, warp) = (self.threads(), target.warp_threads);
            let is_small = extents.fold(1, usize::saturating_mul) < warp;
            let is_whole = threads.is_multiple_of(warp) || is_small;
            require(is_whole, "tile", format_args!("{threads} threads are not a multiple of the warp size"))?;
            most("tile", "copies per thread", self.most_rounds(), MAX_ROUNDS)?;
        }
        self.within_limits(target)
    }

    /// Checks everything but the number of threads, for tilings whose other rules leave few
    /// threads.
    pub(crate) fn within_limits(self, target: &GpuTarget) -> Result<Self, LowerError> {
        self.check_chunks()?;
        self.check_block(target)?;
        self.check_operands()?;
        Ok(self)
    }

    fn most_rounds(&self) -> usize {
        self.rounds().into_iter().max().unwrap_or(0)
    }

    /// Checks that each block of a split and each slot has a chunk.
    fn check_chunks(&self) -> Result<(), LowerError> {
        let (split, slots, chunks, all) = (self.split, self.slots, self.chunks(), self.all_chunks());
        // Blocks that count all chunks in one loop need the same number of them.
        if self.counts_all_chunks() {
            require(all.is_multiple_of(split), "split", "does not divide the number of chunks")?;
            return require(self.ahead() <= chunks, "stages", "is too large for the number of chunks");
        }
        require((split - 1) * chunks < all, "split", "leaves a block without a chunk")?;
        let has_two = slots == 2 && chunks > 1 && all <= MAX_STAGED_CHUNKS;
        require(slots == 1 || has_two, "stages", "must be 1, or 2 with at least two chunks but not too many")
    }

    fn check_block(&self, target: &GpuTarget) -> Result<(), LowerError> {
        most("tile", "threads per block", self.all_threads(), target.threads_per_block)?;
        most("tile", "bytes of shared memory", self.shared_bytes(), target.shared_bytes_per_block)?;
        most("tile", "registers per thread", self.registers(), self.most_registers(target))?;
        most("tile", "blocks", self.blocks(), MAX_INDEX)?;
        match self.kernel {
            MicroKernel::Registers { unroll } => {
                most("unroll", "unrolled multiply-adds", unroll * self.sums(), MAX_BODY)
            }
            MicroKernel::Matrix { by, instructions: [rows, columns], .. } => {
                let steps = self.reduce.last().map_or(1, |reduce| reduce.1) / self.instruction_steps();
                most("tile", "unrolled instructions", rows * columns * steps, MAX_MATRIX_BODY)?;
                match by {
                    ThreadGroup::Warp => most("tile", "copies per thread", self.most_rounds(), MAX_MATRIX_ROUNDS),
                    // The compiler gives an instruction the registers of the launch, before any
                    // move between roles.
                    ThreadGroup::WarpGroup => {
                        let one = 4 * columns + INSTRUCTION_REGISTERS;
                        most("tile.n", "registers per instruction", one, self.launched_registers(target))
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
        if self.split > 1 { most("split", "partial sums", sums, MAX_PARTS) } else { Ok(()) }
    }
}

/// Fails with `knob` and `reason` unless `holds`.
pub(super) fn require(holds: bool, knob: &str, reason: impl Display) -> Result<(), LowerError> {
    if holds { Ok(()) } else { Err(LowerError::knob(knob, reason.to_string())) }
}

fn most(knob: &str, what: &str, found: usize, limit: usize) -> Result<(), LowerError> {
    require(found <= limit, knob, format_args!("{found} {what} exceed the limit of {limit}"))
}
