//! How long a kernel takes, roughly, without measuring.

use crate::gpu::{Kernel, Pipeline, Tiling};
use autotune_ir::DType;
use autotune_ir::instruction::ThreadGroup;
use autotune_ir::target::GpuTarget;

/// Of a multiprocessor, in a cycle: multiply-adds of 16-bit operands, bytes of shared memory, bytes of the second-level cache.
const MULTIPLIES: f64 = 1024.0;
const SHARED_BYTES: f64 = 128.0;
const COPIED_BYTES: f64 = 48.0;
/// Cycles of a copy from global memory, of a barrier with what is around it, and of a second launch.
const LATENCY: f64 = 900.0;
const BARRIER: f64 = 60.0;
const LAUNCH: f64 = 4000.0;

/// The tiles of a block and of a team, and what else the estimate reads.
struct Mma<'a> {
    tiling: &'a Tiling,
    by: ThreadGroup,
    instructions: [usize; 2],
    /// Rows and columns of a block.
    block: [usize; 2],
    outputs: usize,
    producer: bool,
}

impl<'a> Mma<'a> {
    fn of(tiling: &'a Tiling) -> Option<Self> {
        let Kernel::Matrix { by, instructions, .. } = tiling.kernel else { return None };
        let block = [tiling.spatial[0].1, tiling.spatial[1].1];
        let spatial = tiling.view.contraction.axes.iter().filter(|axis| !axis.reduce);
        let outputs = spatial.map(|axis| axis.extent).product();
        Some(Self { tiling, by, instructions, block, outputs, producer: tiling.pipeline == Pipeline::Producer })
    }
}

/// Cycles of a kernel: for each chunk the longest of multiplying, reading shared memory and copying, but no less than the latency
/// of a copy lets the stages have; by how badly the device is filled.
pub(super) fn cycles(tiling: &Tiling, target: &GpuTarget) -> f64 {
    let Some(mma) = &Mma::of(tiling) else { return f64::INFINITY };
    let resident = resident(mma, target);
    let tiles = mma.tiling.all_tiles() as f64;
    let waves = (tiles / (target.multiprocessors * resident) as f64).ceil();
    // Fewer blocks than slots leave each with a larger part of its multiprocessor.
    let sharing = (tiles / target.multiprocessors as f64).ceil().min(resident as f64);
    let outputs = (mma.outputs) as f64;
    let again = if mma.tiling.split > 1 {
        LAUNCH + 8.0 * (mma.tiling.split as f64 + 1.0) * outputs / (target.multiprocessors as f64 * COPIED_BYTES)
    } else {
        0.0
    };
    let fetched_twice = if tiling.blocks[2].extent == 1 { 1.02 } else { 1.0 };
    // Another block multiplies while one stores its sums.
    let stored = match mma.by {
        ThreadGroup::Warp => 0.0,
        ThreadGroup::WarpGroup => {
            (mma.block[0] * mma.block[1] * mma.tiling.dtype.bytes()) as f64 / COPIED_BYTES / sharing
        }
    };
    let starts = if mma.tiling.persistent.is_some() { 1.0 } else { waves };
    let tile = mma.tiling.chunks() as f64 * of_chunk(mma, sharing) * fetched_twice + stored;
    waves * tile + starts * LATENCY + again
}

/// Blocks on a multiprocessor at once.
fn resident(mma: &Mma, target: &GpuTarget) -> usize {
    // Where registers go from threads to others, a block has all of them.
    let is_split = mma.producer && mma.tiling.threads() > ThreadGroup::WarpGroup.threads();
    let registers = if is_split { mma.tiling.launched_registers(target) } else { mma.tiling.registers() };
    let resident = [
        target.threads_per_multiprocessor / mma.tiling.all_threads(),
        target.registers_per_multiprocessor / (registers * mma.tiling.all_threads()),
        target.shared_bytes_per_multiprocessor / (mma.tiling.shared_bytes() + 1024),
    ];
    resident.into_iter().min().unwrap_or(1).clamp(1, 8)
}

/// Cycles of a chunk where so many blocks share a multiprocessor.
fn of_chunk(mma: &Mma, sharing: f64) -> f64 {
    let (bytes, chunk) =
        (mma.tiling.dtype.bytes() as f64, mma.tiling.reduce.last().map_or(1, |reduce| reduce.1) as f64);
    let (rows, columns) = (mma.block[0] as f64, mma.block[1] as f64);
    let rate = match (mma.by, mma.tiling.dtype) {
        (ThreadGroup::WarpGroup, _) => 2.0 * MULTIPLIES,
        (ThreadGroup::Warp, DType::Tf32) => MULTIPLIES / 2.0,
        (ThreadGroup::Warp, _) => MULTIPLIES,
    };
    let multiplies = rows * columns * chunk / rate;
    // Each warp reads its rows and its columns, each instruction of a warp group both.
    let teams = (mma.tiling.threads() / mma.by.threads()) as f64;
    let read_by_team = match mma.by {
        ThreadGroup::Warp => 16 * mma.instructions[0] + 8 * mma.instructions[1],
        ThreadGroup::WarpGroup => mma.instructions[0] * (mma.by.rows() + 8 * mma.instructions[1]),
    };
    let read = teams * read_by_team as f64 * chunk * bytes / SHARED_BYTES;
    let copied = (rows + columns) * chunk * bytes / COPIED_BYTES;
    let busy = match mma.by {
        ThreadGroup::Warp => {
            let few_warps = (8.0 / (sharing * (mma.tiling.threads() / 32) as f64)).max(1.0);
            let narrow =
                |i: usize| mma.tiling.rounds()[i] as f64 * if mma.tiling.staged[i].vector < 4 { 30.0 } else { 4.0 };
            // Half of the reading is hidden behind multiplying.
            let multiplied = (multiplies.max(read) + 0.5 * read).max(copied) * few_warps.sqrt();
            sharing * (multiplied + narrow(0) + narrow(1)) + BARRIER
        }
        ThreadGroup::WarpGroup => {
            let [waiting, barrier] = if mma.producer { [0.05, 0.0] } else { [0.1, BARRIER / 2.0] };
            // The copy engine asks for whole tiles. A second warp group multiplies while the first one waits; of two equal tiles
            // that which reads less is better.
            sharing * (multiplies.max(read).max(0.75 * copied) * (1.0 + waiting / teams) + 0.02 * read) + barrier
        }
    };
    // Copies do not take the same time each; a producer does not wait for the slowest warp group.
    let uneven = if mma.producer { 0.05 * LATENCY / mma.tiling.ahead() as f64 } else { 0.0 };
    busy.max(LATENCY / mma.tiling.ahead() as f64) + uneven
}
