//! The columns that a compiler knows better.

use autotune_ir::analyse::gpu::{LIMITS, Multiprocessor};
use autotune_ir::machine::gpu::registers_of_block;
use autotune_ir::{DType, GpuTarget};

use super::GPU;
use crate::features::columns::{WHOLE, position, width};
use crate::features::leaf::LEAF;

/// Registers and spills of a GPU kernel's threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegisterUse {
    /// 32-bit registers of a thread, the most of any stage.
    pub registers: f32,
    /// Bytes of a thread's registers that are stored to and loaded from memory for want of
    /// registers.
    pub spill_bytes: f32,
}

/// Position of the columns of a GPU program in a row.
const fn place(name: &str) -> usize {
    width(WHOLE) + width(LEAF) + position(GPU, name)
}

// Those that are written, and those that are read.
const REGISTERS: usize = place("gpu.compiled.registers");
const SPILLS: usize = place("gpu.compiled.spills");
const ROOM: usize = place("gpu.compiled.room");
const OCCUPANCY: usize = place("gpu.compiled.occupancy");
const ESTIMATED_REGISTERS: usize = place("gpu.registers");
const THREADS: usize = place("gpu.threads");
/// By each of [`LIMITS`].
const ROOMS: usize = place("gpu.room.*");

/// The number that a column of logarithms stands for.
fn count(row: &[f32], column: usize) -> f64 {
    (f64::from(row[column]).exp2() - 1.0).round()
}

/// The registers that a thread of the main stage needs by the estimate in a row of features.
pub fn estimated_registers(row: &[f32]) -> f32 {
    row[ESTIMATED_REGISTERS]
}

/// The most registers that a device can give to each thread of a block of the main stage.
pub fn register_limit(row: &[f32], gpu: &GpuTarget) -> f32 {
    registers_of_block(gpu, count(row, THREADS) as usize).max(1) as f32
}

/// Puts the registers that a kernel takes, or is expected to take, into the columns
/// `gpu.compiled.*` of its row. [`crate::features::extract`] puts the estimate there, and no
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
