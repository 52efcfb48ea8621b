//! GPU programs: what occupies a multiprocessor, how warps meet memory, and how long a run takes at nominal rates.
//!
//! Everything follows from the tree and the limits of the target. Requests to memory are those of one warp in the middle
//! of the grid ([`warp`]); the *main* stage, the one with most multiply-adds, is described in detail.

use autotune_ir::program::When;
use autotune_ir::{GpuTarget, Program};

use super::columns::Columns;
use super::columns::Scale::{Linear, Log2};
use super::columns::{each, one};
use super::nest::Nest;

mod compiled;
mod device;
mod stage;
mod warp;

pub use compiled::{estimated_registers, register_limit, set_register_use};
use device::{BARRIER_LATENCY, Device, ISSUE, LAUNCH_CYCLES, LIMITS, MEMORY_LATENCY};
use stage::{Requests, StageWork};

/// Bytes of a sector of global memory.
const SECTOR_BYTES: f64 = warp::SECTOR_BYTES as f64;

/// The stages of a GPU program that run in every run.
pub(super) struct Kernels {
    device: Device,
    main: StageWork,
    /// Number of stages.
    stages: f64,
    /// Cycles of a run by each of [`BOUNDS`], summed over stages.
    bounds: [f64; 6],
    /// Sum over stages of the largest bound, and that of the main stage.
    cycles: f64,
    main_cycles: f64,
    /// Bytes that all stages ask the second-level cache for.
    l2_bytes: f64,
    flops: f64,
}

/// What can bound a stage: multiply-adds, instructions, shared memory, the second-level cache, memory, waiting.
const BOUNDS: &[&str] = &["compute", "issue", "shared", "l2", "memory", "latency"];
const OPERANDS: &[&str] = &["data", "weight", "output"];
const SHARED: &[&str] = &["data.load", "weight.load", "data.store", "weight.store"];

impl Kernels {
    /// `None` if no stage is for a GPU.
    pub(super) fn of(nest: &Nest, program: &Program, gpu: &GpuTarget) -> Option<Self> {
        let device = Device::of(gpu, program.workload.dtype);
        let every_run = program.stages.iter().filter(|stage| stage.when == When::EveryRun);
        let works: Vec<StageWork> = every_run.filter_map(|s| StageWork::of(nest, s, gpu.warp_threads)).collect();
        let all: Vec<[f64; 6]> = works.iter().map(|work| work.bounds(&device)).collect();
        let longest = |bounds: &[f64; 6]| bounds.iter().copied().fold(0.0, f64::max);
        let all_fmas = |work: &StageWork| work.fmas * work.threads * work.blocks;
        let main = (0..works.len()).max_by(|&a, &b| all_fmas(&works[a]).total_cmp(&all_fmas(&works[b])))?;
        Some(Self {
            device,
            stages: works.len() as f64,
            bounds: std::array::from_fn(|by| all.iter().map(|bounds| bounds[by]).sum()),
            cycles: all.iter().map(longest).sum(),
            main_cycles: longest(&all[main]),
            l2_bytes: works.iter().map(|work| work.blocks * work.l2_bytes()).sum(),
            flops: program.workload.flops(),
            main: works.into_iter().nth(main)?,
        })
    }

    /// Cycles over those of the workload's multiply-adds alone on all multiprocessors, by tensor cores where there are some.
    fn slowdown(&self, cycles: f64) -> f64 {
        cycles * 2.0 * self.device.peak_fmas() * self.device.multiprocessors / self.flops
    }

    /// Blocks of the main stage that a multiprocessor gets, the busiest of them.
    fn blocks_each(&self) -> f64 {
        (self.main.blocks / self.device.multiprocessors).ceil()
    }

    fn waves(&self) -> f64 {
        self.main.blocks / (self.device.multiprocessors * self.device.resident(&self.main))
    }

    /// Requests of the main stage to shared memory by [`SHARED`].
    fn shared(&self, part: usize) -> &Requests {
        let memory = &self.main.shared;
        if part < 2 { &memory.loads[part] } else { &memory.stores[part - 2] }
    }

    /// Turns of a request to shared memory over those that its elements take without conflict.
    fn conflict_ways(&self, part: usize) -> f64 {
        let requests = self.shared(part);
        requests.units / requests.fewest_turns
    }

    /// Requests of the main stage to global memory by operand: loads, and stores of the output.
    fn global(&self, operand: usize) -> &Requests {
        let memory = &self.main.global;
        if operand < 2 { &memory.loads[operand] } else { &memory.stores[operand] }
    }

    /// Share of the fetched bytes that are asked for.
    fn coalescing(&self, operand: usize) -> f64 {
        let requests = self.global(operand);
        requests.bytes / (requests.units * SECTOR_BYTES)
    }

    /// Multiply-adds of the main stage's warps for each of `count` things of a block.
    fn fmas_per(&self, count: f64) -> f64 {
        self.main.fmas * self.main.warps / count
    }

    fn shared_loads(&self) -> impl Iterator<Item = &Requests> {
        self.main.shared.loads.iter()
    }
}

impl StageWork {
    /// Bytes that a block asks the second-level cache for.
    fn l2_bytes(&self) -> f64 {
        self.global.all().map(|requests| requests.units * SECTOR_BYTES).sum()
    }

    /// Bytes from memory: what is touched, once, and what does not stay in the cache in between, again.
    fn memory_bytes(&self, device: &Device) -> f64 {
        let asked = self.blocks * self.l2_bytes();
        let touched = self.touched_bytes.min(asked);
        let missed = (1.0 - device.cache_bytes / (2.0 * touched)).clamp(0.0, 1.0);
        touched + (asked - touched) * missed
    }

    /// Cycles of the stage, were it bound by one of [`BOUNDS`].
    fn bounds(&self, device: &Device) -> [f64; 6] {
        let requests: f64 = self.global.all().chain(self.shared.all()).map(|requests| requests.count).sum();
        let threaded = self.fmas - self.tensor_fmas;
        let instructions = (threaded + self.other) * self.warps + requests;
        let compute = (threaded / device.fmas + self.tensor_fmas / device.peak_fmas()) * self.threads;
        let issue = instructions / ISSUE;
        let shared: f64 = self.shared.all().map(|requests| requests.units).sum();
        let l2 = self.l2_bytes() / device.l2_bytes;
        // A block by itself: each of its warps belongs to one of the schedulers.
        let one_warp = instructions / self.warps * (self.warps / ISSUE).ceil();
        let alone = [compute, issue, shared, l2, one_warp].into_iter().fold(0.0, f64::max);
        let waiting = self.waits * MEMORY_LATENCY + self.barriers * BARRIER_LATENCY;
        let chain = waiting + alone.max(self.prefetches * MEMORY_LATENCY);
        let blocks = (self.blocks / device.multiprocessors).ceil();
        let turns = (blocks / device.resident(self)).ceil();
        let memory = self.memory_bytes(device) / (device.memory_bytes * device.multiprocessors);
        [compute * blocks, issue * blocks, shared * blocks, l2 * blocks, memory, turns * chain + LAUNCH_CYCLES]
    }
}

/// The columns of a GPU program; zero for programs of CPUs.
pub(super) const GPU: &[Columns<Kernels>] = &[
    // How the main stage fills the device.
    one("gpu.threads", "count", Log2, |k, _| k.main.threads),
    one("gpu.warp_use", "ratio", Linear, |k, _| k.main.threads / (k.main.warps * k.device.warp_threads as f64)),
    one("gpu.blocks", "count", Log2, |k, _| k.main.blocks),
    one("gpu.stages", "count", Linear, |k, _| k.stages),
    one("gpu.registers", "count", Linear, |k, _| k.main.registers),
    one("gpu.accumulators", "count", Log2, |k, _| k.main.accumulators),
    one("gpu.shared", "bytes", Log2, |k, _| k.main.shared_bytes),
    each("gpu.room.*", "blocks", LIMITS, Log2, |k, i| k.device.room(&k.main)[i]),
    one("gpu.occupancy", "ratio", Linear, |k, _| k.device.occupancy(&k.main)),
    one("gpu.waves", "count", Log2, |k, _| k.waves()),
    one("gpu.tail", "ratio", Linear, |k, _| k.main.blocks / (k.blocks_each() * k.device.multiprocessors)),
    // How its warps meet memory.
    each("gpu.coalescing.*", "ratio", OPERANDS, Linear, Kernels::coalescing),
    each("gpu.sectors.*", "per_request", OPERANDS, Linear, |k, i| k.global(i).units / k.global(i).count),
    each("gpu.global_width.*", "elements", OPERANDS, Linear, |k, i| k.global(i).mean_width()),
    each("gpu.conflicts.*", "ways", SHARED, Linear, Kernels::conflict_ways),
    each("gpu.shared_width.*", "elements", SHARED, Linear, |k, i| k.shared(i).mean_width()),
    one("gpu.shared_load", "fmas_per_request", Log2, |k, _| k.fmas_per(k.shared_loads().map(|r| r.count).sum())),
    one("gpu.shared_turn", "fmas_per_turn", Log2, |k, _| k.fmas_per(k.shared_loads().map(|r| r.units).sum())),
    one("gpu.barrier", "fmas_per_barrier", Log2, |k, _| k.main.fmas / k.main.barriers),
    one("gpu.wait", "fmas_per_wait", Log2, |k, _| k.main.fmas / k.main.waits),
    one("gpu.prefetched", "flag", Linear, |k, _| f64::from(u8::from(k.main.prefetches > 0.0))),
    one("gpu.other", "instructions_per_fma", Linear, |k, _| k.main.other / k.main.fmas),
    one("gpu.l2", "bytes_per_flop", Linear, |k, _| k.l2_bytes / k.flops),
    // Estimates of the time.
    each("gpu.estimate.*", "per_peak", BOUNDS, Log2, |k, i| k.slowdown(k.bounds[i])),
    one("gpu.estimate.max", "per_peak", Log2, |k, _| k.slowdown(k.cycles)),
    one("gpu.estimate.sum", "per_peak", Log2, |k, _| k.slowdown(k.bounds.iter().sum())),
    one("gpu.estimate.main", "share", Linear, |k, _| k.main_cycles / k.cycles),
    // What a compiler tells of all stages, the most of each: [`set_register_use`].
    one("gpu.compiled.registers", "count", Linear, |k, _| k.main.registers),
    one("gpu.compiled.spills", "bytes", Log2, |_, _| 0.0),
    one("gpu.compiled.room", "blocks", Log2, |k, _| k.device.room(&k.main)[1]),
    one("gpu.compiled.occupancy", "ratio", Linear, |k, _| k.device.occupancy(&k.main)),
];

#[cfg(test)]
mod tests;
