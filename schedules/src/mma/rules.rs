//! Rules between the knobs of the sketch for tensor cores, and limits of the target.

use super::{Mma, Tile};
use crate::lower::LowerError;
use crate::tiled::check_parts;
use crate::workload::Workload;
use autotune_ir::program::{BOX_ROW_BYTES, Team};
use autotune_ir::target::GpuTarget;

/// Instructions of a warp in one straight-line body beyond which compilers are slow and the instruction cache overflows.
const MAX_BODY: usize = 512;
/// Registers that an instruction of a warp group takes beside its sums, for NVRTC 13.0.
const INSTRUCTION_REGISTERS: usize = 26;
/// Rounds in which the threads of a block copy a chunk of an operand, at most: more means too few threads for the tile.
const MAX_ROUNDS: usize = 16;
/// Rows of a box, and columns of an instruction of a warp group.
const MAX_BOX: usize = 256;
/// Blocks of a grid and elements of a buffer; indices within a kernel are 32 bits wide.
const MAX_INDEX: usize = i32::MAX as usize;

impl Mma {
    /// Rules between knobs and limits of the target.
    pub(super) fn check(&self, workload: &Workload, target: &GpuTarget) -> Result<(), LowerError> {
        self.check_tile("tile.m", self.rows, self.by.rows(), self.gemm.rows.extent)?;
        self.check_tile("tile.n", self.columns, 16, self.gemm.columns.extent)?;
        if self.by == Team::WarpGroup {
            self.check_boxes()?;
        }
        if !self.chunk.is_multiple_of(2 * self.steps()) && self.chunk != self.steps() {
            return Err(LowerError::knob("tile.k", format!("{} is not whole instructions", self.chunk)));
        }
        let fail = |name: &str, what: &str, found: usize, limit: usize| {
            let reason = format!("{found} {what} exceed {limit}");
            if found > limit { Err(LowerError::knob(name, reason)) } else { Ok(()) }
        };
        let [rows, columns] = self.instructions();
        fail("tile", "threads", self.all_threads(), target.threads_per_block)?;
        fail("tile", "bytes of shared memory", self.shared_bytes(), target.shared_bytes_per_block)?;
        fail("tile", "instructions in a row", rows * columns * self.chunk / self.steps(), MAX_BODY)?;
        if self.by == Team::Warp {
            fail("tile", "copies of a thread", self.rounds().into_iter().max().unwrap_or(0), MAX_ROUNDS)?;
        }
        fail("tile", "blocks", self.blocks(), MAX_INDEX)?;
        fail("tile", "registers", self.registers(), self.most_registers(target))?;
        if self.by == Team::WarpGroup {
            // The compiler does not count on registers that go from threads to others here.
            let one = 4 * columns + INSTRUCTION_REGISTERS;
            fail("tile.n", "registers of an instruction", one, self.launched_registers(target))?;
        }
        if !self.all_chunks().is_multiple_of(self.split) {
            return Err(LowerError::knob("split", "does not divide the chunks"));
        }
        let least = if self.by == Team::Warp || self.producer { 2 } else { 3 };
        if self.stages < least || self.ahead() > self.chunks() {
            return Err(LowerError::knob("stages", format!("is less than {least}, or more than chunks need")));
        }
        let whole = self.producer && self.threads() > self.by.threads() && self.split == 1;
        if self.persistent.is_some_and(|blocks| !whole || self.all_tiles() <= blocks) {
            return Err(LowerError::knob("grid", "has no producer with two warp groups, parts, or few tiles"));
        }
        let [row_tiles, _] = self.tiles();
        if !row_tiles.is_multiple_of(self.raster) {
            return Err(LowerError::knob("raster", "does not divide the tiles of rows"));
        }
        let elements = |shape: Vec<usize>, times: usize| shape.into_iter().fold(times, usize::saturating_mul);
        let operands =
            [(workload.input_shape(), 1), (workload.weight_shape(), 1), (workload.output_shape(), self.split)];
        let most = operands.map(|(shape, times)| elements(shape, times)).into_iter().max().unwrap_or(0);
        fail("tile", "elements of an operand", most, MAX_INDEX)?;
        check_parts(&workload.output_shape(), self.split)
    }

    /// Boxes of whole rows of the swizzle, and all columns of the block in one instruction.
    fn check_boxes(&self) -> Result<(), LowerError> {
        if self.chunk * self.dtype.bytes() != BOX_ROW_BYTES {
            return Err(LowerError::knob("tile.k", format!("a row of {} is not {BOX_ROW_BYTES} bytes", self.chunk)));
        }
        if self.columns.warps() != 1 || self.columns.block > MAX_BOX || self.rows.block > MAX_BOX || !self.gemm.packed {
            return Err(LowerError::knob("tile", "is not one instruction of packed weights"));
        }
        Ok(())
    }

    /// Whole warps of whole instructions, and no block that is half outside but for the smallest.
    fn check_tile(&self, name: &str, tile: Tile, instruction: usize, extent: usize) -> Result<(), LowerError> {
        if !tile.warp.is_multiple_of(instruction) || !tile.block.is_multiple_of(tile.warp) {
            return Err(LowerError::knob(name, "is not whole warps of whole instructions"));
        }
        if tile.block > instruction && tile.block >= 2 * extent.next_multiple_of(instruction) {
            return Err(LowerError::knob(name, format!("{} is far more than {extent}", tile.block)));
        }
        Ok(())
    }
}
