//! How long a kernel takes, roughly, without measuring.

use super::Mma;
use autotune_ir::DType;
use autotune_ir::program::Team;
use autotune_ir::target::GpuTarget;

/// Of a multiprocessor, in a cycle: multiply-adds of 16-bit operands, bytes of shared memory, bytes of the second-level cache.
const MULTIPLIES: f64 = 1024.0;
const SHARED_BYTES: f64 = 128.0;
const COPIED_BYTES: f64 = 48.0;
/// Cycles of a copy from global memory, of a barrier with what is around it, and of a second launch.
const LATENCY: f64 = 900.0;
const BARRIER: f64 = 60.0;
const LAUNCH: f64 = 4000.0;

/// Cycles of a kernel: for each chunk the longest of multiplying, reading shared memory and copying, but no less than the latency
/// of a copy lets the stages have; by how badly the device is filled.
pub(super) fn cycles(mma: &Mma, target: &GpuTarget) -> f64 {
    let resident = resident(mma, target);
    let tiles = mma.all_tiles() as f64;
    let waves = (tiles / (target.multiprocessors * resident) as f64).ceil();
    // Fewer blocks than slots leave each with a larger part of its multiprocessor.
    let sharing = (tiles / target.multiprocessors as f64).ceil().min(resident as f64);
    let outputs = (mma.gemm.batch.extent * mma.gemm.rows.extent * mma.gemm.columns.extent) as f64;
    let again = if mma.split > 1 {
        LAUNCH + 8.0 * (mma.split as f64 + 1.0) * outputs / (target.multiprocessors as f64 * COPIED_BYTES)
    } else {
        0.0
    };
    let fetched_twice = if mma.raster == 1 { 1.02 } else { 1.0 };
    // Another block multiplies while one stores its sums.
    let stored = match mma.by {
        Team::Warp => 0.0,
        Team::WarpGroup => (mma.rows.block * mma.columns.block * mma.dtype.bytes()) as f64 / COPIED_BYTES / sharing,
    };
    let starts = if mma.persistent.is_some() { 1.0 } else { waves };
    let tile = mma.chunks() as f64 * of_chunk(mma, sharing) * fetched_twice + stored;
    waves * tile + starts * LATENCY + again
}

/// Blocks on a multiprocessor at once.
fn resident(mma: &Mma, target: &GpuTarget) -> usize {
    // Where registers go from threads to others, a block has all of them.
    let is_split = mma.producer && mma.threads() > Team::WarpGroup.threads();
    let registers = if is_split { mma.launched_registers(target) } else { mma.registers() };
    let resident = [
        target.threads_per_multiprocessor / mma.all_threads(),
        target.registers_per_multiprocessor / (registers * mma.all_threads()),
        target.shared_bytes_per_multiprocessor / (mma.shared_bytes() + 1024),
    ];
    resident.into_iter().min().unwrap_or(1).clamp(1, 8)
}

/// Cycles of a chunk where so many blocks share a multiprocessor.
fn of_chunk(mma: &Mma, sharing: f64) -> f64 {
    let (bytes, chunk) = (mma.dtype.bytes() as f64, mma.chunk as f64);
    let (rows, columns) = (mma.rows.block as f64, mma.columns.block as f64);
    let rate = match (mma.by, mma.dtype) {
        (Team::WarpGroup, _) => 2.0 * MULTIPLIES,
        (Team::Warp, DType::Tf32) => MULTIPLIES / 2.0,
        (Team::Warp, _) => MULTIPLIES,
    };
    let multiplies = rows * columns * chunk / rate;
    // Each warp reads its rows and its columns, each instruction of a warp group both.
    let teams = (mma.threads() / mma.by.threads()) as f64;
    let read_by_team = match mma.by {
        Team::Warp => mma.rows.warp + mma.columns.warp,
        Team::WarpGroup => mma.instructions()[0] * (mma.by.rows() + mma.columns.warp),
    };
    let read = teams * read_by_team as f64 * chunk * bytes / SHARED_BYTES;
    let copied = (rows + columns) * chunk * bytes / COPIED_BYTES;
    let busy = match mma.by {
        Team::Warp => {
            let few_warps = (8.0 / (sharing * mma.warps() as f64)).max(1.0);
            let narrow = |i: usize| mma.rounds()[i] as f64 * if mma.gemm.vectors[i] < 4 { 30.0 } else { 4.0 };
            // Half of the reading is hidden behind multiplying.
            let multiplied = (multiplies.max(read) + 0.5 * read).max(copied) * few_warps.sqrt();
            sharing * (multiplied + narrow(0) + narrow(1)) + BARRIER
        }
        Team::WarpGroup => {
            let [waiting, barrier] = if mma.producer { [0.05, 0.0] } else { [0.1, BARRIER / 2.0] };
            // The copy engine asks for whole tiles. A second warp group multiplies while the first one waits; of two equal tiles
            // that which reads less is better.
            sharing * (multiplies.max(read).max(0.75 * copied) * (1.0 + waiting / teams) + 0.02 * read) + barrier
        }
    };
    // Copies do not take the same time each; a producer does not wait for the slowest warp group.
    let uneven = if mma.producer { 0.05 * LATENCY / mma.ahead() as f64 } else { 0.0 };
    busy.max(LATENCY / mma.ahead() as f64) + uneven
}
