//! The time of a config, estimated without measuring and without lowering, at nominal rates.

use crate::gpu::{Kernel, Level, MAX_UNROLLED_ROUNDS, Staged, Tiling};
use autotune_ir::affine::VarId;
use autotune_ir::target::{GpuApi, GpuTarget};

/// Threads of a warp, banks of shared memory and bytes of their words, bytes of a sector of global memory.
const WARP: usize = 32;
const BANKS: usize = 32;
const WORD_BYTES: usize = 4;
const SECTOR_BYTES: usize = 32;
/// Instructions of warps that a multiprocessor starts in a cycle.
const ISSUE: f64 = 4.0;
/// Bytes a cycle that a multiprocessor gets from the second-level cache, and from memory.
const L2_BYTES: f64 = 48.0;
const MEMORY_BYTES: f64 = 12.0;
/// Cycles until memory answers, of a barrier, and of a launch.
const MEMORY_LATENCY: f64 = 500.0;
const BARRIER_LATENCY: f64 = 30.0;
const LAUNCH: f64 = 4000.0;
/// Blocks on a multiprocessor, at most.
const MAX_RESIDENT: usize = 32;
/// Instructions of a round of a copy: load, store, addresses and conditions; more where pixels are looked for.
const COPY: f64 = 8.0;
const PIXEL_COPY: f64 = 14.0;

/// What a block does for one chunk.
struct Chunk {
    /// Instructions of one warp.
    instructions: f64,
    /// Turns that shared memory takes.
    turns: f64,
    /// Bytes from the second-level cache.
    bytes: f64,
}

/// Cycles of a kernel: the slowest of multiply-adds, instructions, shared memory, second-level cache, memory and waiting.
pub(super) fn estimate(tiled: &Tiling, target: &GpuTarget) -> f64 {
    let axes = &tiled.view.contraction.axes;
    let chunk = chunk(tiled);
    let warps = tiled.threads().div_ceil(WARP) as f64;
    let chunks: usize =
        tiled.reduce.iter().rev().skip(1).map(|&(axis, chunk)| axes[axis].extent.div_ceil(chunk)).product();
    let chunks = (chunks * tiled.chunks()) as f64;
    let steps: usize = tiled.reduce.iter().map(|r| r.1).product();
    let per_thread: usize = tiled.sums();
    let lanes = if matches!(target.api, GpuApi::Cuda { sm: 70 | 75 | 80 }) { 64.0 } else { 128.0 };
    // Partial sums are f32.
    let sum_bytes = if tiled.split > 1 { 4 } else { tiled.dtype.bytes() };
    let stored_bytes = (sum_bytes * per_thread * tiled.threads()) as f64;

    let compute = chunks * (steps * per_thread * tiled.threads()) as f64 / lanes;
    let one_warp = chunks * chunk.instructions + 4.0 * per_thread as f64;
    let issue = one_warp * warps / ISSUE;
    let shared = chunks * chunk.turns;
    let l2 = (chunks * chunk.bytes + stored_bytes) / L2_BYTES;
    let alone = [compute, issue, shared, l2, one_warp * (warps / ISSUE).ceil()].into_iter().fold(0.0, f64::max);
    let waiting = waits(tiled) * MEMORY_LATENCY;
    let chain = match tiled.slots {
        1 => chunks * (waiting + 2.0 * BARRIER_LATENCY) + alone,
        _ => waiting + alone.max(chunks * MEMORY_LATENCY) + chunks * BARRIER_LATENCY,
    };

    let blocks = tiled.blocks().div_ceil(target.multiprocessors) as f64;
    let turns = (blocks / resident(tiled, target) as f64).ceil();
    let memory = memory_bytes(tiled) / (MEMORY_BYTES * target.multiprocessors as f64);
    let bounds = [compute * blocks, issue * blocks, shared * blocks, l2 * blocks, memory, turns * chain];
    let (most, sum) = bounds.iter().fold((0.0f64, 0.0), |(most, sum), &bound| (most.max(bound), sum + bound));
    let again = if tiled.split > 1 { LAUNCH + MEMORY_LATENCY } else { 0.0 };
    // Bounds that are near one another add up in part.
    most + 0.1 * sum + again
}

/// How often a block waits for memory in a copy straight to shared memory: rounds of a copy that are no loop are asked for at once.
fn waits(tiled: &Tiling) -> f64 {
    let rounds = tiled.staged.iter().map(|staged| staged.rounds(tiled.threads()));
    rounds.map(|rounds| if rounds > MAX_UNROLLED_ROUNDS { rounds } else { 1 }).max().unwrap_or(1) as f64
}

/// Blocks on a multiprocessor at once.
fn resident(tiled: &Tiling, target: &GpuTarget) -> usize {
    let threads = tiled.threads().next_multiple_of(WARP);
    let room = [
        target.threads_per_multiprocessor / threads,
        target.registers_per_multiprocessor
            / (tiled.registers().next_multiple_of(8) * threads.next_multiple_of(4 * WARP)),
        target.shared_bytes_per_multiprocessor / (tiled.shared_bytes() + 1024),
    ];
    room.into_iter().min().unwrap_or(1).clamp(1, MAX_RESIDENT)
}

/// Bytes of operands and output, and of partial sums written and read.
fn memory_bytes(tiled: &Tiling) -> f64 {
    let own = tiled.view.own();
    let elements = |shape: &[usize]| shape.iter().map(|&d| d as f64).product::<f64>();
    let outputs = elements(&own.output.shape);
    let partial_bytes = if tiled.split > 1 { 2.0 * 4.0 * outputs * tiled.split as f64 } else { 0.0 };
    let operands = elements(&own.data.shape) + elements(&own.weight.shape) + outputs;
    tiled.dtype.bytes() as f64 * operands + partial_bytes
}

fn chunk(tiled: &Tiling) -> Chunk {
    let steps: usize = tiled.reduce.iter().map(|r| r.1).product();
    let per_thread: usize = tiled.sums();
    let warps = tiled.threads().div_ceil(WARP) as f64;
    let branches = steps as f64 / unroll(tiled).min(steps) as f64 * 3.0;
    let bytes = tiled.dtype.bytes();
    // Elements of 16 bits are widened when they are read, and widened and rounded when they are copied.
    let conversions = if bytes < 4 { 1.0 } else { 0.0 };
    let mut chunk = Chunk { instructions: (steps * per_thread) as f64 + branches, turns: 0.0, bytes: 0.0 };
    for (which, staged) in tiled.staged.iter().enumerate() {
        let Fragment { elements, requests, turns } = fragment(tiled, which);
        let rounds = staged.rounds(tiled.threads()) as f64;
        let copy = if which == 0 && tiled.view.pixels.is_some() { PIXEL_COPY } else { COPY };
        let copy = copy + 2.0 * conversions * staged.vector as f64;
        chunk.instructions += steps as f64 * (requests + conversions * elements) + rounds * copy;
        chunk.turns += warps * (steps as f64 * requests * turns + rounds * stored(staged, bytes));
        chunk.bytes += (bytes * staged.elements()) as f64 * fetched(staged, bytes);
    }
    chunk
}

/// What a thread loads of an operand for one step.
struct Fragment {
    elements: f64,
    /// Loads.
    requests: f64,
    /// Turns of shared memory that one load of a warp takes.
    turns: f64,
}

fn fragment(tiled: &Tiling, which: usize) -> Fragment {
    let tiles: Vec<&Level> = tiled.sums_of(which).map(|(_, level)| level).collect();
    let source = &tiled.staged[which].source;
    let elements: usize = tiles.iter().map(|level| level.extent).product();
    let Some(last) = tiles.last() else { return Fragment { elements: 1.0, requests: 1.0, turns: 1.0 } };
    let step = source.index.iter().map(|i| i.coefficient(VarId(last.axis as u32)).unsigned_abs()).max().unwrap_or(1);
    // Vectors along the last dimension of shared memory, if nothing but the axis moves along it.
    let order = tiled.staged[which].order.last().map(|&dim| &source.index[dim]);
    let alone = order.is_some_and(|index| matches!(index.terms[..], [(VarId(axis), 1)] if axis as usize == last.axis));
    let bytes = tiled.dtype.bytes();
    let fits = |w: &usize| alone && last.extent.is_multiple_of(*w) && tiled.staged[which].pad.is_multiple_of(*w);
    let width = [8, 4, 2].into_iter().filter(|w| w * bytes <= 16).find(fits).unwrap_or(1);
    // Threads of a warp that differ along the axes of the operand.
    let (mut left, mut distinct) = (WARP, 1);
    for level in tiled.threads.iter().rev() {
        let threads = level.extent.min(left);
        left /= threads;
        if source.uses(level.axis) {
            distinct *= threads;
        }
    }
    let span = distinct * width * if width == 1 { last.extent * step as usize } else { 1 };
    let turns = (span * bytes).div_ceil(BANKS * WORD_BYTES).min(distinct.max(1));
    Fragment { elements: elements as f64, requests: (elements / width) as f64, turns: turns as f64 }
}

/// Turns of shared memory that a warp takes to store what its threads have copied in one round: neighbours of the last dimension in
/// global memory may be rows apart in shared memory, and are stored one by one then.
fn stored(staged: &Staged, bytes: usize) -> f64 {
    let (shape, last) = (staged.shape(), staged.extents.len() - 1);
    let at = staged.order.iter().position(|&dim| dim == last).unwrap_or(last);
    if at == last {
        return (staged.vector * bytes).div_ceil(WORD_BYTES) as f64;
    }
    let apart_bytes = bytes * staged.vector * shape[at + 1..].iter().product::<usize>();
    let doublings = (apart_bytes / WORD_BYTES).max(1).trailing_zeros().min(BANKS.trailing_zeros());
    let neighbours = (staged.extents[last] / staged.vector).clamp(1, WARP);
    (staged.vector * neighbours.div_ceil(BANKS >> doublings)) as f64
}

/// Elements fetched for each that is asked for: rows are fetched in whole sectors.
fn fetched(staged: &Staged, bytes: usize) -> f64 {
    let mut run = 1;
    for (&extent, &whole) in staged.extents.iter().zip(&staged.source.shape).rev() {
        run *= extent;
        if extent < whole {
            break;
        }
    }
    run.next_multiple_of(SECTOR_BYTES / bytes) as f64 / run as f64
}

fn unroll(tiled: &Tiling) -> usize {
    match tiled.kernel {
        Kernel::Registers { unroll } => unroll,
        Kernel::Matrix { .. } => 1,
    }
}
