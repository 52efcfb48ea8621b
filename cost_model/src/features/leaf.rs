//! The dominant multiply-accumulate, the one that runs most often: what its columns are computed from, and those columns.

use autotune_ir::program::{Loop, LoopKind};

use super::cache::CacheModel;
use super::columns::Columns;
use super::columns::Machine;
use super::columns::Scale::{Linear, Log2, SignedLog2};
use super::columns::{each, one};
use super::nest::{AxisClass, Leaf, Nest, vector_loop};
use super::register::{FMA_LATENCY, FMA_PER_CYCLE, RegisterTile, operand_accesses};
use super::totals::parallel_depth;

/// Capacities at which traffic is sampled whatever the target's caches: 4 KiB to 4 MiB.
const CURVE_BYTES: [f64; 6] = [4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0];

/// The dominant multiply-accumulate of a program.
pub(super) struct Dominant {
    /// Number of times it runs.
    pub(super) trips: f64,
    /// Bytes per floating-point operation into the first-, second- and third-level cache, by operand: data, weight,
    /// output.
    pub(super) traffic: [[f64; 3]; 3],
    /// Bytes per floating-point operation into a cache of each of `CURVE_BYTES`.
    curve: [f64; 6],
    /// Bytes of the three caches; of the last, one thread's part.
    caches: [f64; 3],
    machine: Machine,
    /// Extent and kind of each loop around it, outermost first.
    loops: Vec<(f64, LoopKind)>,
    tile: RegisterTile,
    cache: CacheModel,
    /// Number of parallel loops.
    task: usize,
    /// Iterations by part of the chain (straight-line code, register tile, cache tiles, parallel) and axis class (column,
    /// row, reduction, batch).
    iterations: [f64; 16],
    /// Class of the vectorised axis: 0 none, 1 column, 2 row, 3 reduction, 4 batch.
    vector_class: f64,
    /// Element strides of data, weight along the vectorised loop.
    vector_strides: [f64; 2],
    /// Element strides of data, weight along the innermost loop that is no straight-line code.
    next_strides: [f64; 2],
    reductions: u32,
}

impl Dominant {
    pub(super) fn new(nest: &Nest, leaf: &Leaf, tile: RegisterTile, machine: Machine) -> Self {
        let loops = nest.loops_of(leaf);
        let task = parallel_depth(nest, leaf);
        let cache = CacheModel::new(nest, leaf, tile.tile, task);
        let [l1, l2, l3] = machine.cache_bytes;
        let caches = [l1, l2, l3 / machine.threads as f64];
        let stride = |l: Option<&Loop>| {
            operand_accesses(nest, leaf).map(|access| match (access, l) {
                (Some(access), Some(l)) => nest.stride_along(access, l.var) as f64,
                _ => 0.0,
            })
        };
        let vector = vector_loop(loops);
        let next = tile.body.checked_sub(1).and_then(|i| loops.get(i).copied());
        let mut iterations = [1.0; 16];
        let mut reductions = 0;
        for (i, l) in loops.iter().enumerate() {
            let part = match i {
                _ if i >= tile.body => 0,
                _ if i >= tile.tile => 1,
                _ if i >= task => 2,
                _ => 3,
            };
            let class = nest.class(l.var).unwrap_or(AxisClass::Row);
            iterations[part * 4 + class as usize] *= l.extent as f64;
            reductions |= u32::from(class == AxisClass::Reduce) << i.min(31);
        }
        Self {
            trips: leaf.trips,
            traffic: caches.map(|capacity| cache.traffic(capacity)),
            curve: CURVE_BYTES.map(|capacity| cache.traffic(capacity).iter().sum()),
            caches,
            machine,
            vector_class: vector.and_then(|l| nest.class(l.var)).map_or(0.0, |class| 1.0 + class as u8 as f64),
            vector_strides: stride(vector),
            next_strides: stride(next),
            loops: loops.iter().map(|l| (l.extent as f64, l.kind)).collect(),
            tile,
            cache,
            task,
            iterations,
            reductions,
        }
    }

    /// Position of the loop `slot` loops outside the straight-line code, counted from there outward.
    fn slot(&self, slot: usize) -> Option<usize> {
        self.tile.body.checked_sub(1 + slot)
    }

    /// 0 no loop, 1 a serial loop over a reduction axis, 2 over another, 3 a parallel loop, 4 an unrolled one.
    fn slot_kind(&self, slot: usize) -> f64 {
        self.slot(slot).map_or(0.0, |i| match self.loops[i].1 {
            LoopKind::Serial if (self.reductions >> i.min(31)) & 1 == 1 => 1.0,
            LoopKind::Serial => 2.0,
            LoopKind::Parallel | LoopKind::Block | LoopKind::Thread => 3.0,
            LoopKind::Unrolled | LoopKind::Vectorized => 4.0,
        })
    }

    /// How often the loop in a slot touches an element of an operand again: 1 for never, its extent for always.
    fn slot_reuse(&self, slot: usize, operand: usize) -> f64 {
        self.slot(slot).map_or(0.0, |i| {
            let (inside, outside) = (self.cache.footprint(operand, i + 1), self.cache.footprint(operand, i));
            self.loops[i].0 * inside.elements / outside.elements
        })
    }

    /// The levels of [`POINTS`].
    fn level(&self, point: usize) -> usize {
        match point {
            0 => self.tile.body,
            1 => self.tile.tile,
            2 => self.tile.tile.saturating_sub(1).max(self.task),
            _ => self.task,
        }
    }

    fn footprint_bytes(&self, part: usize) -> f64 {
        self.cache.footprint(part / 4, self.level(part % 4)).bytes
    }

    /// Multiply-adds for each element touched.
    fn reuse(&self, part: usize) -> f64 {
        let level = self.level(part % 4);
        let elements = self.cache.footprint(part / 4, level).elements;
        if elements > 0.0 { self.cache.fmas(level) / elements } else { 0.0 }
    }

    /// Share of the bytes of the touched lines that is used, while the accumulators live.
    fn line_use(&self, operand: usize) -> f64 {
        let footprint = self.cache.footprint(operand, self.tile.tile);
        if footprint.bytes > 0.0 { 4.0 * footprint.elements / footprint.bytes } else { 0.0 }
    }

    fn fitting_level(&self, cache: usize) -> usize {
        self.cache.fitting_level(self.caches[cache])
    }

    /// Working set of the loop just outside those that fit, over the cache's size.
    fn first_overflow(&self, cache: usize) -> f64 {
        let level = self.fitting_level(cache).saturating_sub(1);
        self.cache.working_set(level) / self.caches[cache]
    }
}

/// Inside the straight-line code; while the accumulators live; one loop further out; in one task.
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

/// The columns of the dominant multiply-accumulate.
pub(super) const LEAF: &[Columns<Dominant>] = &[
    // The register tile.
    one("vector.extent", "elements", Log2, |d, _| d.tile.vector_extent),
    one("vector.class", "code", Linear, |d, _| d.vector_class),
    one("vector.lane_use", "ratio", Linear, |d, _| d.tile.lane_use),
    each("vector.stride.*", "elements", PAIR, SignedLog2, |d, i| d.vector_strides[i]),
    one("register.accumulators", "vectors", Linear, |d, _| d.tile.fmas),
    one("register.free", "vectors", Linear, |d, _| d.machine.vector_registers as f64 - d.tile.registers),
    one("register.latency_hidden", "ratio", Linear, |d, _| (d.tile.fmas / (FMA_LATENCY * FMA_PER_CYCLE)).min(1.0)),
    one("register.vector_loads", "per_fma", Linear, |d, _| d.tile.vector_loads / d.tile.fmas),
    one("register.broadcasts", "per_fma", Linear, |d, _| d.tile.broadcasts / d.tile.fmas),
    one("register.gathers", "per_fma", Linear, |d, _| d.tile.gathers / d.tile.fmas),
    one("register.unrolled", "steps", Log2, |d, _| d.tile.unrolled_steps),
    one("register.inner", "steps", Log2, |d, _| d.tile.inner_steps),
    one("register.code", "bytes", Log2, |d, _| d.tile.code_bytes),
    one("register.in_memory", "flag", Linear, |d, _| f64::from(u8::from(d.tile.in_memory))),
    one("register.efficiency", "share_of_peak", Linear, |d, _| {
        d.tile.elements / (d.machine.lanes as f64 * FMA_PER_CYCLE * d.tile.cycles)
    }),
    // The chain of loops.
    each("iterations.*", "count", PARTS, Log2, |d, i| d.iterations[i]),
    each("loop.*.extent", "count", SLOTS, Log2, |d, i| d.slot(i).map_or(0.0, |at| d.loops[at].0)),
    each("loop.*.kind", "code", SLOTS, Linear, Dominant::slot_kind),
    each("loop.*.working_set", "bytes", SLOTS, Log2, |d, i| d.slot(i).map_or(0.0, |at| d.cache.working_set(at))),
    each("loop.*.data_reuse", "count", SLOTS, Log2, |d, i| d.slot_reuse(i, 0)),
    each("loop.*.weight_reuse", "count", SLOTS, Log2, |d, i| d.slot_reuse(i, 1)),
    each("loop.0.stride.*", "elements", PAIR, SignedLog2, |d, i| d.next_strides[i]),
    // What it touches.
    each("footprint.*", "bytes", POINTS, Log2, Dominant::footprint_bytes),
    each("reuse.*", "fmas_per_element", POINTS, Log2, Dominant::reuse),
    each("line_use.*", "ratio", OPERANDS, Linear, Dominant::line_use),
    each("pages.tile.*", "count", PAIR, Log2, |d, i| d.cache.tile_locality[i].pages),
    each("pages.task.*", "count", PAIR, Log2, |d, i| d.cache.task_locality[i].pages),
    each("lines_per_set.tile.*", "count", PAIR, Log2, |d, i| d.cache.tile_locality[i].lines_per_set),
    // The caches.
    each("traffic.*", "bytes_per_flop", TRAFFIC, Linear, |d, i| d.traffic[i / 3][i % 3]),
    each("traffic_at.*", "bytes_per_flop", CURVE, Linear, |d, i| d.curve[i]),
    each("fits.*", "fmas", CACHES, Log2, |d, i| d.cache.fmas(d.fitting_level(i))),
    each("fill.*", "ratio", CACHES, Log2, |d, i| d.cache.working_set(d.fitting_level(i)) / d.caches[i]),
    each("overflow.*", "ratio", CACHES, Log2, Dominant::first_overflow),
    each("tile_set.*", "ratio", CACHES, Log2, |d, i| d.cache.working_set(d.tile.tile) / d.caches[i]),
    each("task_set.*", "ratio", CACHES, Log2, |d, i| d.cache.working_set(d.task) / d.caches[i]),
];
