//! Analysis of GPU programs: occupancy, memory requests of warps, and the cycles of a run at
//! nominal rates.
//!
//! Everything follows from the tree and the limits of the target. Memory requests are computed for
//! one warp in the middle of the grid. The *main* stage, the one with most multiply-adds, is
//! described in detail.

use super::nest::RunNest;
use crate::dtype::DType;
use crate::instruction::Fragments;
use crate::machine::gpu::{
    BARRIER_CYCLES, BOUND_SHARE, ISSUE_PER_CYCLE, L2_BYTES_PER_CYCLE, LAUNCH_CYCLES, MEMORY_BYTES_PER_CYCLE,
    MEMORY_LATENCY_CYCLES,
};
use crate::program::{Node, Program, When, preorder};
use crate::target::GpuTarget;

mod digits;
mod live;
mod occupancy;
mod requests;
mod stage;
mod warp;
mod wave;

pub use occupancy::{LIMITS, Multiprocessor};
pub use requests::{MemoryRequests, Requests};
pub use stage::StageWork;

/// Bottlenecks of a stage: multiply-adds, instruction issue, shared memory, second-level cache,
/// memory, latency.
pub const BOUNDS: &[&str] = &["compute", "issue", "shared", "l2", "memory", "latency"];

/// Stages of a GPU program that are executed in every run; each is one kernel launch.
#[derive(Clone, Debug)]
pub struct Kernels {
    /// Limits and rates of the multiprocessors.
    pub multiprocessor: Multiprocessor,
    /// The stage with most multiply-adds.
    pub main: StageWork,
    /// Number of stages per run.
    pub stages: f64,
    /// Cycles of a run by each of [`BOUNDS`], summed over stages.
    pub bounds: [f64; 6],
    /// Cycles of a run: for each stage the launch, its largest bound and a share of the other
    /// bounds.
    pub cycles: f64,
    /// Cycles of the main stage alone.
    pub main_cycles: f64,
    /// Bytes that all stages request from the second-level cache.
    pub l2_bytes: f64,
    /// Floating-point operations of the workload.
    pub flops: f64,
}

impl Kernels {
    /// Analyses the stages of every run; `None` if none of them is for a GPU.
    pub(super) fn of(nest: &RunNest, program: &Program, gpu: &GpuTarget) -> Option<Self> {
        let multiprocessor = Multiprocessor::of(gpu, multiplied_dtype(program));
        let every_run = program.stages.iter().filter(|stage| stage.when == When::EveryRun);
        let works: Vec<StageWork> = every_run.filter_map(|s| StageWork::of(nest, s, gpu.warp_threads)).collect();

        let all: Vec<[f64; 6]> = works.iter().map(|work| work.bounds(&multiprocessor)).collect();
        let cycles = |bounds: &[f64; 6]| {
            // Bottlenecks overlap only in part.
            let longest = bounds.iter().copied().fold(0.0, f64::max);
            LAUNCH_CYCLES + longest + BOUND_SHARE * (bounds.iter().sum::<f64>() - longest)
        };

        let all_fmas = |work: &StageWork| work.fmas * work.workers * work.blocks;
        let main = (0..works.len()).max_by(|&a, &b| all_fmas(&works[a]).total_cmp(&all_fmas(&works[b])))?;
        Some(Self {
            multiprocessor,
            stages: works.len() as f64,
            bounds: std::array::from_fn(|by| all.iter().map(|bounds| bounds[by]).sum()),
            cycles: all.iter().map(cycles).sum(),
            main_cycles: cycles(&all[main]),
            l2_bytes: works.iter().map(|work| work.blocks * work.l2_bytes()).sum(),
            flops: program.spec.flops(),
            main: works.into_iter().nth(main)?,
        })
    }

    /// Returns the number of blocks of the main stage resident on a multiprocessor at once.
    pub fn resident(&self) -> f64 {
        self.multiprocessor.resident(&self.main)
    }

    /// Returns the number of waves of the main stage: its blocks over those resident on the whole
    /// device.
    pub fn waves(&self) -> f64 {
        self.main.blocks / (self.multiprocessor.count * self.resident())
    }

    /// Returns the load balance of the main stage, in `0.0..=1.0`: its work over the work if every
    /// multiprocessor, block and thread did as much as the busiest.
    pub fn tail(&self) -> f64 {
        let busiest = (self.main.blocks / self.multiprocessor.count).ceil();
        self.main.blocks / (busiest * self.multiprocessor.count) * self.main.load_balance
    }
}

/// Returns the type that matrix instructions multiply, else that of the spec's factors.
fn multiplied_dtype(program: &Program) -> DType {
    let mut nodes = program.stages.iter().flat_map(|stage| preorder(&stage.body));
    let by_instruction = nodes.find_map(|node| match node {
        Node::Call { body, .. } => Fragments::of(body).map(|tile| program.dtype(tile.rows.buffer)),
        _ => None,
    });
    by_instruction.unwrap_or_else(|| program.spec.multiplied_dtype())
}

impl StageWork {
    /// Returns the bytes that one block requests from the second-level cache.
    pub fn l2_bytes(&self) -> f64 {
        self.global.all().map(Requests::sector_bytes).sum()
    }

    /// Returns the bytes fetched from memory: everything accessed once, plus what is evicted
    /// between waves and fetched again.
    fn memory_bytes(&self, multiprocessor: &Multiprocessor) -> f64 {
        let at_once = (multiprocessor.resident(self) * multiprocessor.count).min(self.blocks);
        let asked = self.blocks * self.l2_bytes();

        // The estimates are independent; none may exceed what is requested.
        let touched = self.waves.all_bytes().min(asked);
        let fetched = self.waves.fetched_bytes(at_once).clamp(touched, asked);

        // Data of up to half the cache stays there from wave to wave.
        let missed = (1.0 - multiprocessor.l2_bytes / (2.0 * touched)).clamp(0.0, 1.0);
        touched + (fetched - touched) * missed
    }

    /// Returns the cycles of the stage if each of [`BOUNDS`] were the only bottleneck.
    fn bounds(&self, multiprocessor: &Multiprocessor) -> [f64; 6] {
        // Cycles of one block on its multiprocessor, by resource.
        let requests: f64 = self.global.all().chain(self.shared.all()).map(|requests| requests.count).sum();
        let instructions = (self.fmas - self.tensor_fmas + self.other) * self.working_warps + requests;
        let compute = multiprocessor.compute_cycles(self);
        let issue = instructions / ISSUE_PER_CYCLE;
        let shared: f64 = self.shared.all().map(|requests| requests.units).sum();
        let l2 = self.l2_bytes() / L2_BYTES_PER_CYCLE;

        // A block that runs alone: each warp is assigned to one scheduler, so a partial round idles
        // the others.
        let unevenly = (self.working_warps / ISSUE_PER_CYCLE).ceil() * ISSUE_PER_CYCLE / self.working_warps;
        let alone = [compute * unevenly, issue * unevenly, shared, l2].into_iter().fold(0.0, f64::max);
        let waiting = self.waits * MEMORY_LATENCY_CYCLES + self.barriers * BARRIER_CYCLES;
        // Prefetches overlap with the work of the block; other waits do not.
        let chain = waiting + alone.max(self.prefetches * MEMORY_LATENCY_CYCLES);

        // All blocks of the busiest multiprocessor, as a number of the longest block: those that
        // skip work fill the gaps. Requests to the cache are those of an average block.
        let all = (self.blocks / multiprocessor.count).ceil();
        let blocks = (all * self.block_share).max(1.0);
        // Resident blocks hide each other's latency: only successive rounds add up.
        let turns = (blocks / multiprocessor.resident(self)).ceil();
        let memory = self.memory_bytes(multiprocessor) / (MEMORY_BYTES_PER_CYCLE * multiprocessor.count);
        [compute * blocks, issue * blocks, shared * blocks, l2 * all, memory, turns * chain]
    }
}
