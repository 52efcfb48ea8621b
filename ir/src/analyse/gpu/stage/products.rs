//! Multiply-adds and copies of a GPU stage.

use super::super::requests::TURN_BYTES;
use super::super::warp::WarpRequest;
use super::GpuStageWalk;
use crate::instruction::{Fragments, ThreadGroup};
use crate::machine::gpu::{
    ASYNC_COPY_REGISTERS, CONVERSION_INSTRUCTIONS, COPY_REGISTERS, FRAGMENT_TURNS, PREFETCH_REGISTERS,
};
use crate::program::{Access, Scope, Store};
use crate::vector::Vector;

impl<'a> GpuStageWalk<'a> {
    /// Counts the multiply-adds, instructions and shared-memory reads of a matrix instruction. Each
    /// warp reads its own rows and columns; the four warps of a warp group share one read of the
    /// columns. Warps read whole fragments into registers, without bank conflicts.
    pub(super) fn mma(&mut self, by: ThreadGroup, tile: &Fragments) {
        let [steps, rows, ..] = tile.loops.map(|l| l.extent as f64);
        // Matrix instructions of a warp compute eight columns at a time.
        let columns = tile.width() as f64 / 8.0;
        let fmas = tile.fmas() as f64;
        self.multiply(fmas);
        self.work.tensor_fmas += self.trips * fmas;
        self.work.team = Some(by);
        self.work.accumulators =
            self.work.accumulators.max(self.nest.program.buffer(tile.store.dst.buffer).len() as f64);
        // Sixteen rows, or two groups of eight columns, are 512 bytes: one instruction.
        let pairs = columns / 2.0;
        let (instructions, column_turns) = match by {
            ThreadGroup::Warp => (steps * rows * columns, FRAGMENT_TURNS),
            ThreadGroup::WarpGroup => (steps * rows, FRAGMENT_TURNS / 4.0),
        };
        self.work.other += self.trips * instructions;

        // A warp group's instruction reads its operands from shared memory directly.
        if by == ThreadGroup::Warp {
            self.registers.fragments = self.registers.fragments.max(4.0 * rows + 2.0 * columns);
        }
        // Rows in registers are narrowed in pairs.
        let row_loads = if tile.digits.is_some() { 0.0 } else { rows };
        self.work.other += self.trips * CONVERSION_INSTRUCTIONS * 4.0 * steps * (rows - row_loads);
        for (access, count, turns) in [(tile.rows, row_loads, FRAGMENT_TURNS), (tile.columns, pairs, column_turns)] {
            let request = WarpRequest { bytes: turns * TURN_BYTES, units: turns };
            let operand = self.nest.operand(access.buffer) as usize;
            self.work.shared.loads[operand].add(
                request,
                self.trips * self.work.working_warps * steps * count,
                Vector::MAX_LANES,
            );
        }
    }

    /// Counts `fmas` multiply-adds for each execution.
    pub(super) fn multiply(&mut self, fmas: f64) {
        let (before, added) = (self.work.fmas, self.trips * fmas);
        self.work.fmas += added;
        if self.work.fmas > 0.0 {
            let mean = |share: f64, here: f64| (share * before + here * added) / (before + added);
            self.work.load_balance = mean(self.work.load_balance, self.busy);
            self.work.block_share = mean(self.work.block_share, self.whole);
        }
    }

    /// Records the registers that a copy from global memory needs, and its waits.
    pub(super) fn note_copy(&mut self, store: &Store, scope: Scope, loads: &[(&'a Access, f64)]) {
        let from = loads.iter().find(|(load, _)| self.nest.scope(load.buffer) == Scope::Global);
        let Some((load, _)) = from else { return };
        let (registers, times) = match scope {
            // Asynchronous copies are awaited by another node, which counts the waits.
            Scope::Shared if self.in_group => (ASYNC_COPY_REGISTERS, &mut 0.0),
            // A synchronous copy must wait for its load at once.
            Scope::Shared => (COPY_REGISTERS, &mut self.work.waits),
            // A prefetch is awaited when its registers are used.
            Scope::Register if self.nest.main_point(store).is_none() => (PREFETCH_REGISTERS, &mut self.work.prefetches),
            _ => return,
        };
        *times = times.max(self.serial);
        let is_first = self.in_group && self.serial == 1.0;
        let operand = self.nest.operand(load.buffer) as usize;
        self.registers.add_copy(operand, self.written_out * registers as f64, is_first);
    }
}
