//! Limits of the target that every tiling keeps.

use super::{Kernel, Tiling};
use crate::contraction::{Contraction, Operand};
use crate::error::LowerError;
use autotune_ir::instruction::ThreadGroup;
use autotune_ir::target::GpuTarget;

/// Multiply-adds or matrix instructions of one loop body beyond which compilers are slow and the instruction cache overflows.
const MAX_BODY: usize = 4096;
const MAX_MATRIX_BODY: usize = 512;
/// Rounds in which the threads of a block copy a chunk, at most: more means too few threads for the tile.
const MAX_ROUNDS: usize = 32;
const MAX_MATRIX_ROUNDS: usize = 16;
/// Registers that an instruction of a warp group takes beside its sums, for NVRTC 13.0.
const INSTRUCTION_REGISTERS: usize = 26;
/// Blocks of a grid and elements of a buffer; indices within a kernel are 32 bits wide.
const MAX_INDEX: usize = i32::MAX as usize;
/// Elements of the sums of parts, at most: a gigabyte, which takes longer to write and read than a split gains.
const MAX_PARTS: usize = 1 << 28;

impl Tiling {
    /// Limits of the target.
    pub(crate) fn check(&self, target: &GpuTarget) -> Result<(), LowerError> {
        let rounds = self.rounds().into_iter().max().unwrap_or(0);
        most("tile", "threads of a block", self.all_threads(), target.threads_per_block)?;
        most("tile", "bytes of shared memory", self.shared_bytes(), target.shared_bytes_per_block)?;
        most("tile", "registers of a thread", self.registers(), self.most_registers(target))?;
        most("tile", "blocks", self.blocks(), MAX_INDEX)?;
        match self.kernel {
            Kernel::Registers { unroll } => {
                most("unroll", "multiply-adds in a row", unroll * self.sums(), MAX_BODY)?;
                most("tile", "copies of a thread", rounds, MAX_ROUNDS)?;
            }
            Kernel::Matrix { by, instructions: [rows, columns], .. } => {
                let steps = self.reduce.last().map_or(1, |reduce| reduce.1) / self.instruction_steps();
                most("tile", "instructions in a row", rows * columns * steps, MAX_MATRIX_BODY)?;
                match by {
                    ThreadGroup::Warp => most("tile", "copies of a thread", rounds, MAX_MATRIX_ROUNDS)?,
                    // The compiler does not count on registers that go from threads to others here.
                    ThreadGroup::WarpGroup => {
                        let one = 4 * columns + INSTRUCTION_REGISTERS;
                        most("tile.n", "registers of an instruction", one, self.launched_registers(target))?;
                    }
                }
            }
        }
        self.check_operands()
    }

    fn check_operands(&self) -> Result<(), LowerError> {
        let Contraction { data, weight, output, .. } = self.roles.own();
        let elements = |operand: &Operand, n: usize| operand.shape.iter().fold(n, |n, &d| n.saturating_mul(d));
        let sums = elements(output, self.split);
        let largest = elements(data, 1).max(elements(weight, 1)).max(sums);
        most("tile", "elements of an operand", largest, MAX_INDEX)?;
        if self.split > 1 { most("split", "sums of parts", sums, MAX_PARTS) } else { Ok(()) }
    }
}

fn most(knob: &str, what: &str, found: usize, limit: usize) -> Result<(), LowerError> {
    if found > limit { Err(LowerError::knob(knob, format!("{found} {what} exceed {limit}"))) } else { Ok(()) }
}
