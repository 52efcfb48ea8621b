//! The columns that a compiler knows better.

use std::sync::LazyLock;

use autotune_ir::analyse::gpu::Multiprocessor;
use autotune_ir::machine::gpu::registers_of_block;
use autotune_ir::{DType, GpuTarget};

use crate::features::names;
use crate::registers::RegisterUse;

/// Where the columns are: those that are written, and those that are read.
struct Places {
    registers: usize,
    spills: usize,
    room: usize,
    occupancy: usize,
    estimate: usize,
    threads: usize,
    /// By threads, shared memory and slots.
    other_rooms: [usize; 3],
}

static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let place = |name: &str| names().iter().position(|known| known == name).unwrap_or_default();
    Places {
        registers: place("gpu.compiled.registers.count"),
        spills: place("gpu.compiled.spills.log2_bytes"),
        room: place("gpu.compiled.room.log2_blocks"),
        occupancy: place("gpu.compiled.occupancy.ratio"),
        estimate: place("gpu.registers.count"),
        threads: place("gpu.threads.log2_count"),
        other_rooms: ["threads", "shared", "blocks"].map(|by| place(&format!("gpu.room.{by}.log2_blocks"))),
    }
});

/// The number that a column of logarithms stands for.
fn count(row: &[f32], column: usize) -> f64 {
    (f64::from(row[column]).exp2() - 1.0).round()
}

/// The registers that a thread of the main stage needs by the estimate in a row of features.
pub fn estimated_registers(row: &[f32]) -> f32 {
    row[PLACES.estimate]
}

/// The most registers that a device can give to each thread of a block of the main stage.
pub fn register_limit(row: &[f32], gpu: &GpuTarget) -> f32 {
    registers_of_block(gpu, count(row, PLACES.threads) as usize).max(1) as f32
}

/// Puts the registers that a kernel takes, or is expected to take, into the columns `gpu.compiled.*` of its row.
/// [`crate::features::extract`] puts the estimate there, and no spills.
pub fn set_register_use(row: &mut [f32], gpu: &GpuTarget, used: RegisterUse) {
    let log2 = |count: f64| (1.0 + count.max(0.0)).log2() as f32;
    let multiprocessor = Multiprocessor::of(gpu, DType::F32);
    let warps = (count(row, PLACES.threads) / multiprocessor.warp_threads).ceil().max(1.0);
    let room = multiprocessor.register_room(f64::from(used.registers).max(1.0), warps);
    let resident = PLACES.other_rooms.map(|column| count(row, column)).into_iter().fold(room, f64::min).max(1.0);
    row[PLACES.registers] = used.registers;
    row[PLACES.spills] = log2(used.spill_bytes.into());
    row[PLACES.room] = log2(room);
    row[PLACES.occupancy] = multiprocessor.occupancy(resident, warps) as f32;
}
