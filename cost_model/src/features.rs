//! Features: a program as a row of numbers from which models predict its speed.
//!
//! Every program, of any workload and schedule, gives a row of [`FEATURE_COUNT`] finite numbers;
//! [`names`] tells the meaning of each, with its unit last. All of them follow from extents and
//! strides: no loop is run, and a row takes microseconds. The features follow "Learning to Optimize
//! Tensor Programs" (Chen et al., NeurIPS 2018, section 4.1: per-loop context features, and touched
//! memory by reuse) and "Ansor" (Zheng et al., OSDI 2020, appendix B), with a cache model and a
//! register model in place of raw counts.
//!
//! A program has many sibling nests (the main tile, remainders, boundaries). The *dominant*
//! multiply-accumulate, the one that runs most often, is described in detail; sums over all leaves
//! describe the rest. Families of columns:
//!
//! - `workload.*`, `target.*`: sizes of the problem, the vectors and the caches, and the measured
//!   rates of the target ([`Rates`](autotune_ir::Rates)), so that one model may serve many targets
//! - `parallel.*`: number of tasks, their balance among threads, work per task, stages (barriers)
//! - `total.*`: sums over all leaves: code size, vector lane use, copies, partial sums that are
//!   loaded again, bookkeeping
//! - `estimate.*`: time over that of the workload's multiply-adds at the peak of a core, if the
//!   kernel were bound by arithmetic, by each cache, by memory, or by uncached constants; their
//!   maximum and sum
//! - `vector.*`, `register.*`: the register tile: accumulators, loads per multiply-add, spare
//!   registers, code size
//! - `iterations.<part>.<class>`: the tile sizes: iterations in the straight-line code, while the
//!   accumulators live, in the cache tiles and in parallel, over axes that index the weight
//!   (`column`), the data (`row`), both (`reduce`) or everything (`batch`)
//! - `loop.<i>.*`: the loops outside the straight-line code, innermost first: extent, kind, bytes
//!   touched, reuse
//! - `footprint.*`, `reuse.*`: per operand: bytes of touched lines, and multiply-adds per element,
//!   at four points: `body` (straight-line code), `tile` (while the accumulators live), `above`
//!   (one loop further out), `task`
//! - `line_use.*`, `pages.*`, `lines_per_set.*`: spatial locality: used part of the lines, pages of
//!   4 KiB, conflicts
//! - `traffic.<cache>.<operand>`: bytes per flop that are loaded into each cache
//! - `traffic_at.<size>`: the same for caches of fixed sizes, which samples the curve of traffic
//!   over capacity
//! - `fits.*`, `fill.*`, `overflow.*`: multiply-adds of the largest nest that fits a cache, how
//!   full the cache is, and how much too large the next nest is
//! - `tile_set.*`, `task_set.*`: working set of a register tile and of a task over each cache's
//!   size
//! - `gpu.threads` to `gpu.tail`: how the main stage fills the device: blocks, registers, shared
//!   memory, blocks per multiprocessor by each limit, occupancy, waves
//! - `gpu.coalescing.*` to `gpu.l2`: memory accesses of its warps: sectors and vector width of
//!   global accesses, bank conflicts and vector width of shared ones, multiply-adds per load,
//!   barrier and wait
//! - `gpu.estimate.*`: time at nominal rates over that of the workload's multiply-adds alone (on
//!   tensor cores if there are any for the type), by each bound; of a run, and the sum of the
//!   bounds
//! - `gpu.compiled.*`: estimated registers, spills and their consequences, or the real ones once
//!   they are known: [`set_register_use`]
//!
//! Sizes and counts are `log2(1 + x)`, with the sign of `x` if it has one; ratios are linear.
//!
//! ```
//! use autotune_cost_model::features;
//! use autotune_ir::{CpuTarget, Target};
//! use autotune_schedules::{ScheduleSpace, lower};
//! use autotune_workloads::Workload;
//!
//! let workload: Workload = "matmul:m=64,n=64,k=64".parse()?;
//! let target = Target::Cpu(CpuTarget::generic_avx2(1));
//! let config = ScheduleSpace::new(&workload, &target).default_config();
//! let row = features::extract(&lower(&workload, &target, &config)?, &target);
//! assert_eq!(row.len(), features::FEATURE_COUNT);
//! let lane_use = features::names().iter().position(|n| n == "vector.lane_use.ratio").unwrap();
//! assert_eq!(row[lane_use], 1.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod columns;
mod gpu;
mod leaf;
mod window;

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use autotune_ir::analyse::analyse;
use autotune_ir::{Program, Target};
use autotune_schedules::Candidate;

use columns::{ElementCounts, WHOLE, Whole, position, width, write};
use gpu::GPU;
pub use gpu::{RegisterUse, estimated_registers, register_limit, set_register_use};
use leaf::LEAF;
use window::WindowFeatures;

/// Version of the columns. It changes whenever a column changes its position or meaning; models are
/// valid for the version that they were fitted on only.
pub const VERSION: u32 = 9;

/// Number of feature columns of a row.
pub const FEATURE_COUNT: usize = width(WHOLE) + width(LEAF) + width(GPU);

static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let whole = WHOLE.iter().flat_map(|family| family.names());
    let leaf = LEAF.iter().flat_map(|family| family.names());
    whole.chain(leaf).chain(GPU.iter().flat_map(|family| family.names())).collect()
});

/// Returns the name of each column, in order: meaning, then unit. Names consist of letters, digits,
/// dots and underscores.
pub fn names() -> &'static [String] {
    &NAMES
}

/// Returns the column that ranks programs for a target without a trained model: the logarithm of
/// the estimated cycles of a run ([`autotune_ir::analyse::Analysis::cycles`]) per operation.
pub fn estimate_column(target: &Target) -> usize {
    const OF_CPU: usize = position(WHOLE, "estimate.sum");
    const OF_GPU: usize = width(WHOLE) + width(LEAF) + position(GPU, "gpu.estimate.run");
    match target {
        Target::Cpu(_) => OF_CPU,
        Target::Gpu(_) => OF_GPU,
    }
}

/// Returns the features of a program for a target: [`FEATURE_COUNT`] finite values, in the order of
/// [`names`].
pub fn extract(program: &Program, target: &Target) -> Vec<f32> {
    let mut row = vec![0.0; FEATURE_COUNT];
    extract_into(program, target, &mut row);
    row
}

/// Returns the features of a candidate; `None` if it cannot be lowered.
pub fn of(candidate: &Candidate) -> Option<Vec<f32>> {
    Some(extract(&candidate.lower().ok()?, candidate.target()))
}

fn extract_into(program: &Program, target: &Target, row: &mut [f32]) {
    let whole = Whole {
        spec: Arc::clone(&program.spec),
        window: WindowFeatures::of(&program.spec),
        analysis: analyse(program, target),
        elements: ElementCounts::of(&program.spec),
    };
    let rest = write(WHOLE, Some(&whole), row);
    let rest = write(LEAF, whole.analysis.dominant.as_ref(), rest);
    write(GPU, whole.analysis.kernels.as_ref(), rest);
}
