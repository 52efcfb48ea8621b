//! What can be said of a program without running it: the one analysis that the default choice on
//! GPUs, the model's prior and its features go by.
//!
//! Everything follows from extents and strides, the [`Target`] and the [machine
//! table](crate::machine): no loop is run, and an analysis takes microseconds.
//!
//! | part | what it says |
//! |---|---|
//! | [`Totals`] | sums over all leaves: multiply-adds, instructions, copies, code, cycles; how evenly the work divides among threads |
//! | [`Dominant`] | the multiply-accumulate that runs most often: its loops, its register tile, its cache footprints and traffic |
//! | [`gpu::Kernels`] | the stages of a GPU program: occupancy, registers, coalescing, bank conflicts, cycles by each bottleneck |
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
pub use nest::{AxisClass, Operand};
pub use processor::Core;
pub use registers::{RegisterTile, pieces, tile_registers};
pub use totals::{Division, Totals, busiest_thread};

use nest::Nest;

/// What bounds a program on a core: arithmetic and copies, the second-level cache, the third,
/// memory.
pub const BOUNDS: &[&str] = &["compute", "l2", "l3", "memory"];

/// What is known of a program on a target.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// What is used of the target.
    pub core: Core,
    /// Sums over all leaves.
    pub totals: Totals,
    /// The multiply-accumulate that runs most often, if there is one.
    pub dominant: Option<Dominant>,
    /// The kernels of a program for a GPU.
    pub kernels: Option<gpu::Kernels>,
    /// Floating-point operations of the workload.
    pub flops: f64,
}

/// Analyses a program.
pub fn analyse(program: &Program, target: &Target) -> Analysis {
    let core = Core::of(target);
    let nest = Nest::new(program);
    let (totals, dominant) = Totals::new(&nest, &core);
    Analysis {
        totals,
        dominant: dominant.map(|(leaf, tile)| Dominant::new(&nest, &nest.leaves[leaf], tile, &core)),
        kernels: target.gpu().and_then(|gpu| gpu::Kernels::of(&nest, program, gpu)),
        flops: program.spec.flops(),
        core,
    }
}

/// Cycles of a run: [`Analysis::cycles`] without the rest of the analysis.
pub fn run_cycles(program: &Program, target: &Target) -> f64 {
    match target {
        Target::Cpu(_) => analyse(program, target).cycles(),
        Target::Gpu(gpu) => gpu::Kernels::of(&Nest::new(program), program, gpu).map_or(f64::INFINITY, |k| k.cycles),
    }
}

impl Analysis {
    /// Cycles of a run, at the target's [rates](crate::target::Rates). Of two programs that one is
    /// faster which has fewer, as a rule.
    pub fn cycles(&self) -> f64 {
        match &self.kernels {
            Some(kernels) => kernels.cycles,
            None => self.flops * self.thread_cycles_per_flop(),
        }
    }

    /// The same for each floating-point operation of one thread of a CPU. Traffic and arithmetic
    /// overlap in part.
    pub fn thread_cycles_per_flop(&self) -> f64 {
        let traffic = (1..4).map(|by| self.cycles_per_flop(by)).sum::<f64>() + self.cold_cycles_per_flop();
        (self.cycles_per_flop(0) + TRAFFIC_SHARE * traffic) * self.imbalance()
    }

    /// Cycles per floating-point operation of one thread to fetch cold constants from memory, which
    /// is counted as traffic once already.
    pub fn cold_cycles_per_flop(&self) -> f64 {
        self.totals.cold_bytes / self.flops * self.core.threads as f64 / self.core.rates.read_bytes_per_cycle()[2]
    }

    /// Cycles per floating-point operation of one thread, were it bound by one of [`BOUNDS`] alone.
    pub fn cycles_per_flop(&self, by: usize) -> f64 {
        match by {
            0 => (self.totals.mac_cycles + self.totals.other_cycles) / self.flops,
            _ => {
                // Traffic is for each operation that the program does, of which Winograd programs
                // do fewer.
                let work = 2.0 * self.totals.fmas / self.flops;
                let traffic = self.dominant.as_ref().map_or([0.0; 3], |d| d.traffic[by - 1].map(|bytes| bytes * work));
                let sharers = if by == 3 { self.core.threads as f64 } else { 1.0 };
                // What is written is read first and written back later.
                (traffic[0] + traffic[1] + 2.0 * traffic[2]) * sharers / self.core.rates.read_bytes_per_cycle()[by - 1]
            }
        }
    }

    /// Cycles of all threads over those of a thread's fair share, at least 1.
    pub fn imbalance(&self) -> f64 {
        self.totals.division.imbalance.max(1.0)
    }
}
