//! What may be chosen in the sketch for tensor cores, and what is chosen without measuring.

use super::{COPY_BYTES, Gemm, Mma};
use crate::config::Config;
use crate::program::{BOX_ROW_BYTES, Team, WarpTile};
use crate::space::{Knob, Sketch};
use crate::target::GpuTarget;
use crate::workload::{DType, Workload};

/// Every knob of the sketch with its values; none for workloads that it is not for.
pub fn knobs(workload: &Workload, target: &GpuTarget) -> Option<Vec<Knob>> {
    let steps = WarpTile::steps(workload.dtype).filter(|_| super::is_for(workload, target, Team::Warp))?;
    let gemm = Gemm::new(workload, false);
    // Rows of a chunk of 32, 64 or 128 bytes.
    let chunks = [1, 2, 4].map(|n| vec![2 * COPY_BYTES / workload.dtype.bytes() * n]);
    debug_assert!(chunks.iter().all(|chunk| chunk[0].is_multiple_of(steps)));
    let fits = |chunk: &Vec<usize>| chunk[0] < 2 * gemm.steps.extent || chunk[0] == chunks[0][0];
    Some(vec![
        Knob::tile("tile.m", tiles(gemm.rows.extent)),
        Knob::tile("tile.n", tiles(gemm.columns.extent)),
        Knob::tile("tile.k", chunks.iter().filter(|chunk| fits(chunk)).cloned().collect()),
        Knob::choice("weights", Gemm::weight_choices(workload)),
        Knob::choice("stages", &["2", "3", "4", "5"]),
        Knob::choice("raster", &["1", "2", "4", "8", "16", "all"]),
        Knob::choice("split", &["1", "2", "3", "4", "6", "8", "16"]),
    ])
}

/// Every knob of the sketch for warp groups with its values; none for workloads that it is not for.
pub fn group_knobs(workload: &Workload, target: &GpuTarget) -> Option<Vec<Knob>> {
    let gemm = Gemm::new(workload, true);
    if !super::is_for(workload, target, Team::WarpGroup) {
        return None;
    }
    let rows = [[64, 64], [128, 64], [128, 128], [192, 64], [256, 64], [256, 128]];
    let fits = |tile: &[usize; 2]| tile[0] == 64 || tile[0] < 2 * gemm.rows.extent.next_multiple_of(64);
    let columns = (1..=16).map(|n| 16 * n).filter(|&n| n == 16 || n < 2 * gemm.columns.extent.next_multiple_of(16));
    let chunk = BOX_ROW_BYTES / workload.dtype.bytes();
    Some(vec![
        Knob::tile("tile.m", rows.iter().filter(|tile| fits(tile)).map(|tile| tile.to_vec()).collect()),
        Knob::tile("tile.n", columns.map(|n| vec![n, n]).collect()),
        Knob::tile("tile.k", vec![vec![chunk]]),
        Knob::choice("weights", &["packed"]),
        Knob::choice("stages", &["3", "4", "5", "6", "8"]),
        Knob::choice("producer", &["inline", "group"]),
        Knob::choice("grid", &["tiles", "persistent"]),
        Knob::choice("raster", &["1", "2", "4", "8", "16", "all"]),
        Knob::choice("split", &["1", "2", "3", "4", "6", "8", "16"]),
    ])
}

/// `[block, warp]` values: one to eight warps, and no block that is half outside but for the smallest.
fn tiles(extent: usize) -> Vec<Vec<usize>> {
    let blocks = [16, 32, 64, 96, 128, 192, 256].into_iter();
    let blocks = blocks.filter(|&block| block == 16 || block < 2 * extent.next_multiple_of(16));
    let warps = |block: usize| {
        let warps = [16, 32, 48, 64, 96, 128].into_iter();
        warps.filter(move |warp| block.is_multiple_of(*warp) && block / warp <= 8).map(move |warp| vec![block, warp])
    };
    blocks.flat_map(warps).collect()
}

/// What an analytic estimate prefers, without measuring; the same on every machine.
pub fn default_config(workload: &Workload, target: &GpuTarget, sketch: &Sketch) -> Option<Config> {
    sketch.least(|config| Mma::new(workload, target, config).ok().map(|mma| estimate(&mma, target)))
}

/// Time of a kernel in cycles, roughly: for each chunk the longest of multiplying, reading shared memory and copying, but no
/// less than the latency of a copy lets the stages have; by how badly the device is filled.
fn estimate(mma: &Mma, target: &GpuTarget) -> f64 {
    /// Of a multiprocessor, in a cycle: multiply-adds of 16-bit operands, bytes of shared memory, bytes of the second-level cache.
    const MULTIPLIES: f64 = 1024.0;
    const SHARED_BYTES: f64 = 128.0;
    const COPIED_BYTES: f64 = 48.0;
    /// Cycles of a copy from global memory, of a barrier with what is around it, and of a second launch.
    const LATENCY: f64 = 900.0;
    const BARRIER: f64 = 60.0;
    const LAUNCH: f64 = 4000.0;
    let bytes = mma.dtype.bytes() as f64;
    let chunk = mma.chunk as f64;
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
    // The copy engine asks for whole tiles.
    let copied = if mma.by == Team::WarpGroup { 0.75 * copied } else { copied };
    let narrow: f64 = (0..2).map(|i| mma.rounds()[i] as f64 * if mma.gemm.vectors[i] < 4 { 30.0 } else { 4.0 }).sum();
    // Where registers go from threads to others, a block has all of them.
    let is_split = mma.producer && mma.threads() > Team::WarpGroup.threads();
    let registers = if is_split { mma.launched_registers(target) } else { mma.registers() };
    let resident = [
        target.threads_per_multiprocessor / mma.all_threads(),
        target.registers_per_multiprocessor / (registers * mma.all_threads()),
        target.shared_bytes_per_multiprocessor / (mma.shared_bytes() + 1024),
    ];
    let resident = resident.into_iter().min().unwrap_or(1).clamp(1, 8);
    let slots = (target.multiprocessors * resident) as f64;
    let waves = (mma.all_tiles() as f64 / slots).ceil();
    // Fewer blocks than slots leave each with a larger part of its multiprocessor.
    let sharing = (mma.all_tiles() as f64 / target.multiprocessors as f64).ceil().min(resident as f64);
    let few_warps = (8.0 / (sharing * mma.warps() as f64)).max(1.0);
    // Half of the reading is hidden behind multiplying.
    let busy = match mma.by {
        Team::Warp => sharing * ((multiplies.max(read) + 0.5 * read).max(copied) * few_warps.sqrt() + narrow) + BARRIER,
        // A second warp group multiplies while the first one waits; of two equal tiles that which reads less is better.
        Team::WarpGroup => {
            let [waiting, barrier] = if mma.producer { [0.05, 0.0] } else { [0.1, BARRIER / 2.0] };
            sharing * (multiplies.max(read).max(copied) * (1.0 + waiting / teams) + 0.02 * read) + barrier
        }
    };
    // Copies do not take the same time each; a producer does not wait for the slowest warp group.
    let uneven = if mma.producer { 0.05 * LATENCY / mma.ahead() as f64 } else { 0.0 };
    let chunk_cycles = busy.max(LATENCY / mma.ahead() as f64) + uneven;
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
        Team::WarpGroup => rows * columns * bytes / COPIED_BYTES / sharing,
    };
    let starts = if mma.persistent.is_some() { 1.0 } else { waves };
    waves * (mma.chunks() as f64 * chunk_cycles * fetched_twice + stored) + starts * LATENCY + again
}
