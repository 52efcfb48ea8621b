//! Columns of the dominant multiply-accumulate.

use autotune_ir::analyse::{AxisClass, Dominant, Footprint};
use autotune_ir::machine::cpu::{FMA_LATENCY_CYCLES, FMAS_PER_CYCLE};
use autotune_ir::program::LoopKind;

use super::columns::ValueScale::{Linear, Log2, SignedLog2};
use super::columns::{Columns, each, one};

/// Cache sizes at which traffic is sampled, whatever the target's caches: 4 KiB to 4 MiB.
const CURVE_BYTES: [f64; 6] = [4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0];

/// Returns the part of the nest that a loop belongs to: 0 straight-line code, 1 register tile, 2
/// cache tiles, 3 parallel loops.
fn part(d: &Dominant, at: usize) -> usize {
    match at {
        _ if at >= d.tile.body => 0,
        _ if at >= d.tile.tile => 1,
        _ if at >= d.task => 2,
        _ => 3,
    }
}

/// Returns the iterations of one of [`PARTS`].
fn iterations(d: &Dominant, of: usize) -> f64 {
    let class = |class: Option<AxisClass>| class.unwrap_or(AxisClass::Row) as usize;
    let within = d.loops.iter().enumerate().filter(|(at, l)| 4 * part(d, *at) + class(l.class) == of);
    within.map(|(_, l)| l.extent).product()
}

/// Returns the class of the vectorised axis: 0 none, 1 column, 2 row, 3 reduction, 4 batch.
fn vector_class(d: &Dominant) -> f64 {
    let vector = d.loops.last().filter(|l| l.kind == LoopKind::Vectorized);
    vector.and_then(|l| l.class).map_or(0.0, |class| 1.0 + f64::from(class as u8))
}

/// Returns the stride of data or weight, in elements, along the vectorised loop.
fn vector_stride(d: &Dominant, operand: usize) -> f64 {
    let vector = d.loops.last().filter(|l| l.kind == LoopKind::Vectorized);
    vector.map_or(0.0, |l| l.strides[operand])
}

/// Returns the position of a loop by its number outside the straight-line code, innermost first.
fn slot(d: &Dominant, slot: usize) -> Option<usize> {
    d.tile.body.checked_sub(1 + slot)
}

/// Returns the kind of a loop: 0 no loop, 1 serial over a reduction axis, 2 serial over another
/// axis, 3 parallel, 4 unrolled.
fn slot_kind(d: &Dominant, number: usize) -> f64 {
    slot(d, number).map_or(0.0, |at| match d.loops[at].kind {
        LoopKind::Serial if d.loops[at].class == Some(AxisClass::Reduce) => 1.0,
        LoopKind::Serial => 2.0,
        LoopKind::Parallel | LoopKind::Block | LoopKind::Thread => 3.0,
        LoopKind::Unrolled | LoopKind::Vectorized => 4.0,
    })
}

/// Returns how often a loop touches the same element of an operand: between 1 and its extent.
fn slot_reuse(d: &Dominant, number: usize, operand: usize) -> f64 {
    slot(d, number).map_or(0.0, |at| {
        let (inside, outside) = (d.footprint(operand, at + 1), d.footprint(operand, at));
        d.loops[at].extent * inside.elements / outside.elements
    })
}

/// Returns the operand and the loop level of one of [`POINTS`].
fn point(d: &Dominant, of: usize) -> (usize, usize) {
    let level = match of % 4 {
        0 => d.tile.body,
        1 => d.tile.tile,
        2 => d.tile.tile.saturating_sub(1).max(d.task),
        _ => d.task,
    };
    (of / 4, level)
}

fn footprint_bytes(d: &Dominant, of: usize) -> f64 {
    let (operand, level) = point(d, of);
    d.footprint(operand, level).bytes
}

/// Returns the multiply-adds per touched element.
fn reuse(d: &Dominant, of: usize) -> f64 {
    let (operand, level) = point(d, of);
    let elements = d.footprint(operand, level).elements;
    if elements > 0.0 { d.cache.fmas(level) / elements } else { 0.0 }
}

/// Returns the used share of the touched cache lines while the accumulators live.
fn line_use(d: &Dominant, operand: usize) -> f64 {
    let Footprint { elements, bytes } = d.footprint(operand, d.tile.tile);
    if bytes > 0.0 { 4.0 * elements / bytes } else { 0.0 }
}

/// Returns the working set of the smallest nest that does not fit a cache, over the cache's size.
fn first_overflow(d: &Dominant, cache: usize) -> f64 {
    let level = d.fitting_level(cache).saturating_sub(1);
    d.cache.working_set(level) / d.cache_bytes[cache]
}

/// Operands by four points of the nest: `body` is the straight-line code, `tile` lasts while the
/// accumulators live, `above` is one loop further out, `task` is one task.
const POINTS: &[&str] = &[
    "data.body",
    "data.tile",
    "data.above",
    "data.task",
    "weight.body",
    "weight.tile",
    "weight.above",
    "weight.task",
    "output.body",
    "output.tile",
    "output.above",
    "output.task",
];
const OPERANDS: &[&str] = &["data", "weight", "output"];
const PAIR: &[&str] = &["data", "weight"];
const SLOTS: &[&str] = &["0", "1", "2", "3", "4", "5", "6"];
const CACHES: &[&str] = &["l1", "l2", "l3"];
const CURVE: &[&str] = &["4k", "16k", "64k", "256k", "1m", "4m"];
const TRAFFIC: &[&str] =
    &["l1.data", "l1.weight", "l1.output", "l2.data", "l2.weight", "l2.output", "l3.data", "l3.weight", "l3.output"];
const PARTS: &[&str] = &[
    "body.column",
    "body.row",
    "body.reduce",
    "body.batch",
    "tile.column",
    "tile.row",
    "tile.reduce",
    "tile.batch",
    "cache.column",
    "cache.row",
    "cache.reduce",
    "cache.batch",
    "parallel.column",
    "parallel.row",
    "parallel.reduce",
    "parallel.batch",
];

/// Columns of the dominant multiply-accumulate.
pub(super) const LEAF: &[Columns<Dominant>] = &[
    // Register tile.
    one("vector.extent", "elements", Log2, |d, _| d.tile.vector_extent),
    one("vector.class", "code", Linear, |d, _| vector_class(d)),
    one("vector.lane_use", "ratio", Linear, |d, _| d.tile.lane_use),
    each("vector.stride.*", "elements", PAIR, SignedLog2, vector_stride),
    one("register.accumulators", "vectors", Linear, |d, _| d.tile.fmas),
    one("register.free", "vectors", Linear, |d, _| d.tile.free_registers),
    one("register.latency_hidden", "ratio", Linear, |d, _| {
        (d.tile.fmas / (FMA_LATENCY_CYCLES * FMAS_PER_CYCLE)).min(1.0)
    }),
    one("register.vector_loads", "per_fma", Linear, |d, _| d.tile.vector_loads / d.tile.fmas),
    one("register.broadcasts", "per_fma", Linear, |d, _| d.tile.broadcasts / d.tile.fmas),
    one("register.gathers", "per_fma", Linear, |d, _| d.tile.gathers / d.tile.fmas),
    one("register.unrolled", "steps", Log2, |d, _| d.tile.unrolled_steps),
    one("register.inner", "steps", Log2, |d, _| d.tile.inner_steps),
    one("register.code", "bytes", Log2, |d, _| d.tile.code_bytes),
    one("register.in_memory", "flag", Linear, |d, _| f64::from(u8::from(d.tile.in_memory))),
    one("register.efficiency", "share_of_peak", Linear, |d, _| d.tile.efficiency),
    // Loops of the nest.
    each("iterations.*", "count", PARTS, Log2, iterations),
    each("loop.*.extent", "count", SLOTS, Log2, |d, i| slot(d, i).map_or(0.0, |at| d.loops[at].extent)),
    each("loop.*.kind", "code", SLOTS, Linear, slot_kind),
    each("loop.*.working_set", "bytes", SLOTS, Log2, |d, i| slot(d, i).map_or(0.0, |at| d.cache.working_set(at))),
    each("loop.*.data_reuse", "count", SLOTS, Log2, |d, i| slot_reuse(d, i, 0)),
    each("loop.*.weight_reuse", "count", SLOTS, Log2, |d, i| slot_reuse(d, i, 1)),
    each("loop.0.stride.*", "elements", PAIR, SignedLog2, |d, i| slot(d, 0).map_or(0.0, |at| d.loops[at].strides[i])),
    // Touched memory.
    each("footprint.*", "bytes", POINTS, Log2, footprint_bytes),
    each("reuse.*", "fmas_per_element", POINTS, Log2, reuse),
    each("line_use.*", "ratio", OPERANDS, Linear, line_use),
    each("pages.tile.*", "count", PAIR, Log2, |d, i| d.cache.tile_locality[i].pages),
    each("pages.task.*", "count", PAIR, Log2, |d, i| d.cache.task_locality[i].pages),
    each("lines_per_set.tile.*", "count", PAIR, Log2, |d, i| d.cache.tile_locality[i].lines_per_set),
    // Caches.
    each("traffic.*", "bytes_per_flop", TRAFFIC, Linear, |d, i| d.traffic[i / 3][i % 3]),
    each("traffic_at.*", "bytes_per_flop", CURVE, Linear, |d, i| d.cache.traffic(CURVE_BYTES[i]).iter().sum()),
    each("fits.*", "fmas", CACHES, Log2, |d, i| d.cache.fmas(d.fitting_level(i))),
    each("fill.*", "ratio", CACHES, Log2, |d, i| d.cache.working_set(d.fitting_level(i)) / d.cache_bytes[i]),
    each("overflow.*", "ratio", CACHES, Log2, first_overflow),
    each("tile_set.*", "ratio", CACHES, Log2, |d, i| d.cache.working_set(d.tile.tile) / d.cache_bytes[i]),
    each("task_set.*", "ratio", CACHES, Log2, |d, i| d.cache.working_set(d.task) / d.cache_bytes[i]),
];
