//! Static analysis of a program. The default choice on GPUs, the prior of the cost model and its
//! features all use it.
//!
//! Everything follows from extents and strides, the [`Target`] and the [machine
//! table](crate::machine): no loop is executed, and an analysis takes microseconds.
//!
//! | part | contents |
//! |---|---|
//! | [`Totals`] | sums over all leaves: multiply-adds, copies, code size, cycles; load balance |
//! | [`Dominant`] | most frequent multiply-accumulate: loops, register tile, cache traffic |
//! | [`gpu::Kernels`] | GPU stages: occupancy, registers, coalescing, cycles by bottleneck |
//!
//! ```
//! use autotune_ir::analyse::analyse;
//! # use autotune_ir::spec::{Equation, Reduction, Spec};
//! # use autotune_ir::program::{Access, BufferId, Expr, Program};
//! # use autotune_ir::{CpuTarget, Target};
//! # let (axes, output, value) = (vec![], Access { buffer: BufferId(0), index: [].into() }, Expr::Const(0.0));
//! # let equations = vec![Equation { axes, output, value, reduction: Reduction::Sum }];
//! # let spec = std::sync::Arc::new(Spec { name: "nothing".into(), tensors: vec![], equations, main: 0 });
//! # let (axes, vars, buffers, stages) = (vec![], vec![], vec![], vec![]);
//! # let program = Program { algorithm: spec.clone(), spec, axes, vars, buffers, stages, cold: false };
//! let analysis = analyse(&program, &Target::Cpu(CpuTarget::generic_avx2(1)));
//! assert_eq!(analysis.totals.fmas, 0.0, "no stage, no work");
//! ```

use crate::machine::cpu::TRAFFIC_SHARE;
use crate::program::Program;
use crate::target::Target;

mod cache;
mod dominant;
mod footprint;
pub mod gpu;
mod nest;
mod processor;
mod registers;
mod totals;

#[cfg(test)]
mod tests;

pub use cache::{CacheModel, Footprint, Locality};
pub use dominant::{ChainLoop, Dominant};
pub use nest::{AxisClass, OperandSide};
pub use processor::Core;
pub use registers::{RegisterTile, pieces, tile_registers};
pub use totals::{Division, Totals, busiest_thread};

use nest::RunNest;

/// Bottlenecks of a CPU core: arithmetic and copies, second-level cache, third-level cache, memory.
pub const BOUNDS: &[&str] = &["compute", "l2", "l3", "memory"];

/// Analysis of a program on a target.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// Parameters of the target that the analysis uses.
    pub core: Core,
    /// Sums over all leaves of the loop nests.
    pub totals: Totals,
    /// The multiply-accumulate that is executed most often; `None` if the program has none.
    pub dominant: Option<Dominant>,
    /// Stages of a GPU program; `None` on a CPU.
    pub kernels: Option<gpu::Kernels>,
    /// Floating-point operations of the workload, by its direct algorithm.
    pub flops: f64,
}

/// Analyses `program` on `target`.
pub fn analyse(program: &Program, target: &Target) -> Analysis {
    let core = Core::of(target);
    let nest = RunNest::new(program);
    let (totals, dominant) = Totals::new(&nest, &core);
    Analysis {
        totals,
        dominant: dominant.map(|(leaf, tile)| Dominant::new(&nest, &nest.leaves[leaf], tile, &core)),
        kernels: target.gpu().and_then(|gpu| gpu::Kernels::of(&nest, program, gpu)),
        flops: program.spec.flops(),
        core,
    }
}

/// Returns the estimated cycles of a run, equal to [`Analysis::cycles`]; skips the rest of the
/// analysis on GPUs.
pub fn run_cycles(program: &Program, target: &Target) -> f64 {
    match target {
        Target::Cpu(_) => analyse(program, target).cycles(),
        Target::Gpu(gpu) => gpu::Kernels::of(&RunNest::new(program), program, gpu).map_or(f64::INFINITY, |k| k.cycles),
    }
}

impl Analysis {
    /// Returns the estimated cycles of a run, at the target's [rates](crate::target::Rates). A
    /// program with fewer cycles is usually the faster one.
    pub fn cycles(&self) -> f64 {
        match &self.kernels {
            Some(kernels) => kernels.cycles,
            None => self.flops * self.thread_cycles_per_flop(),
        }
    }

    /// Returns the estimated cycles of a CPU thread per floating-point operation. Traffic and
    /// arithmetic overlap in part.
    pub fn thread_cycles_per_flop(&self) -> f64 {
        let traffic = (1..4).map(|by| self.cycles_per_flop(by)).sum::<f64>() + self.cold_cycles_per_flop();
        (self.cycles_per_flop(0) + TRAFFIC_SHARE * traffic) * self.imbalance()
    }

    /// Returns the extra cycles of a thread per floating-point operation for constants that are not
    /// cached and come from memory. [`Analysis::cycles_per_flop`] already counts them once as
    /// ordinary traffic.
    pub fn cold_cycles_per_flop(&self) -> f64 {
        // All threads share the memory bandwidth.
        self.totals.cold_bytes / self.flops * self.core.threads as f64 / self.core.rates.read_bytes_per_cycle()[2]
    }

    /// Returns the cycles of a thread per floating-point operation if `BOUNDS[by]` were the only
    /// bottleneck.
    pub fn cycles_per_flop(&self, by: usize) -> f64 {
        match by {
            0 => (self.totals.mac_cycles + self.totals.other_cycles) / self.flops,
            _ => {
                // Traffic is per operation that the program executes; a Winograd program executes
                // fewer than the workload counts.
                let work = 2.0 * self.totals.fmas / self.flops;
                let traffic = self.dominant.as_ref().map_or([0.0; 3], |d| d.traffic[by - 1].map(|bytes| bytes * work));

                // All threads share the memory bandwidth; cache rates are per thread.
                let sharers = if by == 3 { self.core.threads as f64 } else { 1.0 };
                // Output lines are read before they are written, and written back later: twice the
                // traffic.
                (traffic[0] + traffic[1] + 2.0 * traffic[2]) * sharers / self.core.rates.read_bytes_per_cycle()[by - 1]
            }
        }
    }

    /// Returns the load imbalance: cycles of the busiest thread over those of an even share, at
    /// least 1.
    pub fn imbalance(&self) -> f64 {
        self.totals.division.imbalance.max(1.0)
    }
}
