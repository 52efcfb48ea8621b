//! Sketches: kinds of schedules, each with its knobs and rules.

use std::fmt;
use std::sync::Arc;

use crate::config::{Config, KnobValues};
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use autotune_ir::analyse::run_cycles;
use autotune_ir::program::Program;
use autotune_ir::target::{GpuTarget, Target};
use autotune_workloads::{Work, Workload};

/// Largest allowed error of sums of a workload's own products in f32, in any order, relative to the
/// largest magnitude of the output.
///
/// The rounding error of a sum of `k` products of random signs grows with `sqrt(k)`, as the sum
/// itself does. The error relative to the largest output therefore stays near the unit roundoff of
/// f32 (6e-8), a thousand times below this limit. One missing or doubled product changes an output
/// by about `1/sqrt(k)` and is detected.
pub const EXACT_TOLERANCE: f64 = 1e-4;

/// A kind of schedule: the workloads and targets that it applies to, its knobs, and the plan that
/// it makes of their values.
pub trait Sketch: Sync {
    /// Returns the sketch's name, as written in configs.
    fn name(&self) -> &'static str;

    /// Returns the knobs for a workload on a target; `None` if the sketch does not apply to them.
    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>>;

    /// Returns the reason if the sketch would apply to the workload but for one size.
    fn refusal(&self, _workload: &Workload, _target: &Target) -> Option<LowerError> {
        None
    }

    /// Reads the values of the knobs into a plan. Fails with the first knob that is malformed, does
    /// not fit the workload, or breaks a limit of the target.
    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError>;

    /// Returns the schedule that is chosen without measuring, and its cost in an estimate that all
    /// sketches of a tier share. The choice depends on workload and target alone. `None` if the
    /// sketch chooses no schedule.
    fn default(&self, _workload: &Workload, _target: &Target, _space: &Arc<KnobSpace>) -> Option<(f64, KnobIndices)> {
        None
    }

    /// True if the sketch's default schedule is closer to the best than a cost model's top pick, so
    /// that models are not consulted.
    fn trusts_default(&self, _workload: &Workload, _target: &Target) -> bool {
        false
    }

    /// True if the sketch beats all sketches of later tiers on this workload, so that those are not
    /// offered.
    fn outdoes_later_tiers(&self, _workload: &Workload, _target: &Target) -> bool {
        false
    }

    /// Returns the operations and bytes of the algorithm that a config uses.
    fn work(&self, workload: &Workload, _config: &Config) -> Work {
        workload.work()
    }

    /// Returns the work of each of the sketch's algorithms whose work differs from the direct
    /// one's.
    fn works(&self, _workload: &Workload, _knobs: &KnobSpace) -> Vec<Work> {
        Vec::new()
    }

    /// Returns the names of knobs that change what is computed and in which stages, and not only
    /// the tiling and the loops.
    fn algorithm_knobs(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the largest allowed error of a config's sums in f32, relative to the largest
    /// magnitude.
    fn tolerance(&self, _workload: &Workload, _config: &Config) -> f64 {
        EXACT_TOLERANCE
    }

    /// True if the sketch has kernels for integer tensors of the workload's operator.
    fn has_integers(&self, workload: &Workload) -> bool {
        let _ = workload;
        false
    }

    /// True if its kernels sum the workload's own products, in any order; false if they transform
    /// the operands first, which costs larger rounding errors.
    fn is_exact(&self) -> bool {
        true
    }
}

impl fmt::Debug for dyn Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Typed knob values that satisfy all rules of their sketch.
pub trait Plan: Send + Sync {
    /// Lowers the plan to loop nests.
    fn lower(&self) -> Program;

    /// Returns the work of the busiest thread of the target, as a multiple of an equal share.
    fn largest_share(&self) -> f64 {
        1.0
    }
}

/// A plan that consists of typed knob values and the function that lowers them.
struct PlanFromFn<P> {
    workload: Workload,
    params: P,
    lower: fn(&Workload, &P) -> Program,
}

impl<P: Send + Sync> Plan for PlanFromFn<P> {
    fn lower(&self) -> Program {
        (self.lower)(&self.workload, &self.params)
    }
}

/// Returns a plan of the typed knob values `params`, which `lower` turns into loop nests.
pub(crate) fn plan<P: Send + Sync + 'static>(
    workload: &Workload,
    params: P,
    lower: fn(&Workload, &P) -> Program,
) -> Box<dyn Plan> {
    Box::new(PlanFromFn { workload: workload.clone(), params, lower })
}

/// Returns the estimated cycles of a point's kernel, from the analysis of its loop nests; `None` if
/// the point breaks a rule.
pub(crate) fn cycles(sketch: &dyn Sketch, workload: &Workload, target: &Target, point: &KnobIndices) -> Option<f64> {
    Some(run_cycles(&sketch.plan(workload, target, point).ok()?.lower(), target))
}

/// Returns the GPU of a target, or an error that the sketch does not apply if the target is a CPU.
pub(crate) fn gpu_of<'a>(
    sketch: &dyn Sketch,
    workload: &Workload,
    target: &'a Target,
) -> Result<&'a GpuTarget, LowerError> {
    target.gpu().ok_or_else(|| LowerError::unfit(sketch.name(), workload))
}
