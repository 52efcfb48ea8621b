//! Columns of registers and spills, estimated at first and replaced by the compiler's report.

use autotune_ir::analyse::gpu::{LIMITS, Multiprocessor};
use autotune_ir::machine::gpu::registers_of_block;
use autotune_ir::{DType, GpuTarget};

use super::GPU;
use crate::features::columns::{WHOLE, position, width};
use crate::features::leaf::LEAF;

/// Registers and spills of a GPU kernel's threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegisterUse {
    /// 32-bit registers per thread, as the maximum over all stages.
    pub registers: f32,
    /// Bytes per thread that are stored to and loaded from memory because registers are missing.
    pub spill_bytes: f32,
}

/// Returns the position of a GPU column in a row.
const fn place(name: &str) -> usize {
    width(WHOLE) + width(LEAF) + position(GPU, name)
}

// Columns that are written first, then those that are read.
const REGISTERS: usize = place("gpu.compiled.registers");
const SPILLS: usize = place("gpu.compiled.spills");
const ROOM: usize = place("gpu.compiled.room");
const OCCUPANCY: usize = place("gpu.compiled.occupancy");
const ESTIMATED_REGISTERS: usize = place("gpu.registers");
const THREADS: usize = place("gpu.threads");
/// First of the columns of blocks per multiprocessor, one for each of [`LIMITS`].
const ROOMS: usize = place("gpu.room.*");

/// Returns the count in a logarithmic column, which stores `log2(1 + count)`.
fn count(row: &[f32], column: usize) -> f64 {
    (f64::from(row[column]).exp2() - 1.0).round()
}

/// Returns the estimated registers of a thread of the main stage, from its row of features.
pub fn estimated_registers(row: &[f32]) -> f32 {
    row[ESTIMATED_REGISTERS]
}

/// Returns the largest number of registers that a device can give to each thread of a block of the
/// main stage.
pub fn register_limit(row: &[f32], gpu: &GpuTarget) -> f32 {
    registers_of_block(gpu, count(row, THREADS) as usize).max(1) as f32
}

/// Writes the measured or predicted registers and spills of a kernel into the columns
/// `gpu.compiled.*` of its row. [`crate::features::extract`] fills them with the estimate and no
/// spills.
pub fn set_register_use(row: &mut [f32], gpu: &GpuTarget, used: RegisterUse) {
    let log2 = |count: f64| (1.0 + count.max(0.0)).log2() as f32;
    let multiprocessor = Multiprocessor::of(gpu, DType::F32);
    let warps = (count(row, THREADS) / multiprocessor.warp_threads).ceil().max(1.0);
    let room = multiprocessor.register_room(f64::from(used.registers).max(1.0), warps);
    let other_rooms = (0..LIMITS.len()).filter(|&by| LIMITS[by] != "registers").map(|by| count(row, ROOMS + by));
    let resident = other_rooms.fold(room, f64::min).max(1.0);
    row[REGISTERS] = used.registers;
    row[SPILLS] = log2(used.spill_bytes.into());
    row[ROOM] = log2(room);
    row[OCCUPANCY] = multiprocessor.occupancy(resident, warps) as f32;
}
