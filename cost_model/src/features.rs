//! Features: a program as a row of numbers that tell fast schedules from slow ones.
//!
//! Every program, of any workload and any schedule, gives a row of [`FEATURE_COUNT`] finite
//! numbers; [`names`] says what each is, its unit last. Everything follows from extents and
//! strides: no loop is run, and a row takes microseconds. The rows are in the spirit of "Learning
//! to Optimize Tensor Programs" (Chen et al., NeurIPS 2018, section 4.1: per-loop context features
//! and the relation of touched memory to reuse) and of "Ansor" (Zheng et al., OSDI 2020, appendix
//! B), with a cache and a register model in place of raw counts.
//!
//! A program is many sibling nests (the main tile, remainders, boundaries). One
//! multiply-accumulate, the *dominant* one that runs most often, is described in detail; sums over
//! all leaves describe the rest.
//!
//! | columns | what they say |
//! |---|---|
//! | `workload.*`, `target.*` | sizes of the problem, of the vectors and of the caches, and what was measured of these over the peak ([`Rates`](autotune_ir::Rates)), so that a model may serve many |
//! | `parallel.*` | tasks, how evenly they divide among the threads, work of one task, stages (barriers) |
//! | `total.*` | over all leaves: code size, use of vector lanes, copies, partial sums read back, bookkeeping |
//! | `estimate.*` | time over that of the workload's multiply-adds at the peak of a core, were the kernel bound by arithmetic, by each cache, by memory, by constants that are in no cache, at the target's rates; their maximum and sum |
//! | `vector.*`, `register.*` | the register tile: accumulators, loads for each multiply-add, spare registers, code |
//! | `iterations.<part>.<class>` | the tile sizes: iterations in the straight-line code, while the accumulators live, in the cache tiles and in parallel, over axes that index the weight (`column`), the data (`row`), both (`reduce`) or everything (`batch`) |
//! | `loop.<i>.*` | the loops outside the straight-line code, innermost first: extent, kind, bytes touched, reuse |
//! | `footprint.*`, `reuse.*` | per operand: bytes of lines touched and multiply-adds per element at four points (`body`: straight-line code, `tile`: while the accumulators live, `above`: one loop further out, `task`) |
//! | `line_use.*`, `pages.*`, `lines_per_set.*` | spatial locality: used part of the lines, pages of 4 KiB, conflicts |
//! | `traffic.<cache>.<operand>` | bytes per flop that come into each cache |
//! | `traffic_at.<size>` | the same for caches of fixed sizes: the curve of traffic over capacity |
//! | `fits.*`, `fill.*`, `overflow.*` | multiply-adds of the largest nest that fits a cache, how full it is, how far the next is over |
//! | `tile_set.*`, `task_set.*` | working set of a register tile and of a task over each cache |
//! | `gpu.threads` to `gpu.tail` | how the main stage fills the device: blocks, registers, shared memory, blocks that a multiprocessor has room for by each limit, occupancy, waves |
//! | `gpu.coalescing.*` to `gpu.l2` | how its warps meet memory: sectors and vector width of global accesses, bank conflicts and vector width of shared ones, multiply-adds for each load, barrier and wait |
//! | `gpu.estimate.*` | time at nominal rates over that of the workload's multiply-adds alone (by tensor cores, where there are some for its type), by each bound; of a run, and the sum of the bounds |
//! | `gpu.compiled.*` | registers, spills and what follows from them as estimated, and better once they are known: [`set_register_use`] |
//!
//! Sizes and counts are `log2(1 + x)` (signed where `x` has a sign); ratios are as they are.
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

use columns::{Elements, WHOLE, Whole, position, width, write};
use gpu::GPU;
pub use gpu::{RegisterUse, estimated_registers, register_limit, set_register_use};
use leaf::LEAF;
use window::Window;

/// Changes whenever a column changes its place or meaning; a model is only good for the version it
/// was fitted on.
pub const VERSION: u32 = 9;

/// Number of columns.
pub const FEATURE_COUNT: usize = width(WHOLE) + width(LEAF) + width(GPU);

static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let whole = WHOLE.iter().flat_map(|family| family.names());
    let leaf = LEAF.iter().flat_map(|family| family.names());
    whole.chain(leaf).chain(GPU.iter().flat_map(|family| family.names())).collect()
});

/// The name of every column, in order: what it is, then its unit. Letters, digits, dots and
/// underscores only.
pub fn names() -> &'static [String] {
    &NAMES
}

/// The column that ranks programs for a target before anything is learnt: the logarithm of the
/// cycles of a run by the analysis ([`autotune_ir::analyse::Analysis::cycles`]), for each
/// operation.
pub fn estimate_column(target: &Target) -> usize {
    const OF_CPU: usize = position(WHOLE, "estimate.sum");
    const OF_GPU: usize = width(WHOLE) + width(LEAF) + position(GPU, "gpu.estimate.run");
    match target {
        Target::Cpu(_) => OF_CPU,
        Target::Gpu(_) => OF_GPU,
    }
}

/// The features of a program for a target: [`FEATURE_COUNT`] finite values, in the order of
/// [`names`].
pub fn extract(program: &Program, target: &Target) -> Vec<f32> {
    let mut row = vec![0.0; FEATURE_COUNT];
    extract_into(program, target, &mut row);
    row
}

/// The features of a candidate; `None` if it cannot be lowered.
pub fn of(candidate: &Candidate) -> Option<Vec<f32>> {
    Some(extract(&candidate.lower().ok()?, candidate.target()))
}

fn extract_into(program: &Program, target: &Target, row: &mut [f32]) {
    let whole = Whole {
        spec: Arc::clone(&program.spec),
        window: Window::of(&program.spec),
        analysis: analyse(program, target),
        elements: Elements::of(&program.spec),
    };
    let rest = write(WHOLE, Some(&whole), row);
    let rest = write(LEAF, whole.analysis.dominant.as_ref(), rest);
    write(GPU, whole.analysis.kernels.as_ref(), rest);
}
