//! Sketches: kinds of schedules, each with its rules.

use std::fmt;
use std::sync::Arc;

use crate::config::{Config, KnobValues};
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::Point;
use autotune_ir::analyse::run_cycles;
use autotune_ir::program::Program;
use autotune_ir::target::{GpuTarget, Target};
use autotune_workloads::{Work, Workload};

/// The error that sums of a workload's own products in f32, in any order, may have, over the
/// largest magnitude, and still be right.
///
/// The rounding errors of a sum of `k` products of random signs grow with `sqrt(k)` like the sum
/// itself, so that the error relative to the largest output stays near the f32 unit roundoff
/// (6e-8), a thousand times below, whereas one missing or doubled product shows: it is about
/// `1/sqrt(k)` of an output.
pub const EXACT_TOLERANCE: f64 = 1e-4;

/// A kind of schedule: which workloads and targets it is for, what may be chosen, and what becomes
/// of the choice.
pub trait Sketch: Sync {
    /// As configs call it.
    fn name(&self) -> &'static str;

    /// What may be chosen for a workload on a target; `None` if the sketch is not for them.
    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>>;

    /// Why it is not for a workload that it would be for but for one size, if that is so.
    fn refusal(&self, _workload: &Workload, _target: &Target) -> Option<LowerError> {
        None
    }

    /// What values of its knobs ask for. Fails with the first knob that is malformed, does not fit
    /// the workload, or breaks a limit of the target.
    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError>;

    /// What is chosen without measuring, the same on every machine, and its cost by an estimate
    /// that sketches of a tier share; `None` if the sketch does not choose.
    fn default(&self, _workload: &Workload, _target: &Target, _space: &Arc<KnobSpace>) -> Option<(f64, Point)> {
        None
    }

    /// True if what it chooses without measuring comes nearer to the best than what models rank
    /// first.
    fn is_settled(&self, _workload: &Workload, _target: &Target) -> bool {
        false
    }

    /// True if no sketch of a later tier comes near this one for a workload that it is for.
    fn outdoes_later_tiers(&self, _workload: &Workload, _target: &Target) -> bool {
        false
    }

    /// What the algorithm of a config has to do.
    fn work(&self, workload: &Workload, _config: &Config) -> Work {
        workload.work()
    }

    /// What its algorithms have to do where that is not what the direct one has to.
    fn works(&self, _workload: &Workload, _knobs: &KnobSpace) -> Vec<Work> {
        Vec::new()
    }

    /// Knobs whose values decide what is computed and in which stages, not only in which tiles and
    /// loops.
    fn algorithm_knobs(&self) -> &'static [&'static str] {
        &[]
    }

    /// The error that sums of a config's kernels in f32 may have, over the largest magnitude.
    fn tolerance(&self, _workload: &Workload, _config: &Config) -> f64 {
        EXACT_TOLERANCE
    }

    /// True if it has kernels for a workload of such an operator with tensors of integers.
    fn has_integers(&self, workload: &Workload) -> bool {
        let _ = workload;
        false
    }

    /// True if its kernels add up the workload's own products, in whatever order; false if they
    /// transform operands first, at the cost of larger rounding errors.
    fn is_exact(&self) -> bool {
        true
    }
}

impl fmt::Debug for dyn Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Values of knobs that keep the rules of their sketch, read.
pub trait Plan: Send + Sync {
    /// Its loop nests.
    fn lower(&self) -> Program;

    /// The largest share of the work that one of the target's threads has, as a multiple of a fair
    /// share.
    fn largest_share(&self) -> f64 {
        1.0
    }
}

/// A plan without more to it than how it is lowered.
struct Lowering<P> {
    workload: Workload,
    params: P,
    lower: fn(&Workload, &P) -> Program,
}

impl<P: Send + Sync> Plan for Lowering<P> {
    fn lower(&self) -> Program {
        (self.lower)(&self.workload, &self.params)
    }
}

/// The plan of a sketch's typed form, which a function lowers.
pub(crate) fn plan<P: Send + Sync + 'static>(
    workload: &Workload,
    params: P,
    lower: fn(&Workload, &P) -> Program,
) -> Box<dyn Plan> {
    Box::new(Lowering { workload: workload.clone(), params, lower })
}

/// Cycles of a point's kernel by the analysis of its loop nests; `None` if it breaks a rule.
pub(crate) fn cycles(sketch: &dyn Sketch, workload: &Workload, target: &Target, point: &Point) -> Option<f64> {
    Some(run_cycles(&sketch.plan(workload, target, point).ok()?.lower(), target))
}

/// The GPU that a target is; elsewhere the sketch is not for the workload.
pub(crate) fn gpu_of<'a>(
    sketch: &dyn Sketch,
    workload: &Workload,
    target: &'a Target,
) -> Result<&'a GpuTarget, LowerError> {
    target.gpu().ok_or_else(|| LowerError::unfit(sketch.name(), workload))
}
