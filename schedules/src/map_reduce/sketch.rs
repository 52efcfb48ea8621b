//! Maps and reductions as a [`Sketch`].

use std::sync::Arc;

use super::default::{self, default_point};
use super::lower::lower;
use super::rewritten::spec_of;
use super::{MapReduce, SKETCH, chain_for, knobs, separable};
use crate::config::{Config, KnobValues};
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use crate::sketch::{Plan, Sketch};
use autotune_ir::program::Program;
use autotune_ir::spec::Spec;
use autotune_ir::target::Target;
use autotune_workloads::{Work, Workload};

/// Sketch of maps, reductions and chains of both.
pub(crate) struct MapReduceSketch;

/// A schedule of a workload, with the workload's own spec: the passes may be those of a rewritten
/// one.
pub(super) struct MapReducePlan {
    pub(super) spec: Arc<Spec>,
    pub(super) plan: MapReduce,
}

impl Sketch for MapReduceSketch {
    fn name(&self) -> &'static str {
        SKETCH
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        let (chain, cpu) = (chain_for(&spec_of(workload))?, target.cpu()?);
        Some(knobs::knobs(&chain, cpu))
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        let unfit = || LowerError::unfit(SKETCH, workload);
        let plan = MapReduce::new(&spec_of(workload), target.cpu().ok_or_else(unfit)?, knobs)?;
        Ok(Box::new(MapReducePlan { spec: Arc::clone(workload.spec()), plan: plan.ok_or_else(unfit)? }))
    }

    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, KnobIndices)> {
        let cpu = target.cpu()?;
        let spec = spec_of(workload);
        let cost = if default::beats_direct(&spec, cpu) { -1.0 } else { 0.0 };
        Some((cost, default_point(&spec, cpu, space)?))
    }

    /// True for transposes: on 19 shapes (AMD EPYC 25/17, AVX-512 and AVX2, 40 trials) the default
    /// schedule takes 1.06 and 1.11 times as long as the best found, and the model's top pick 1.3
    /// and 1.25 times. Also true for products with a few vectors, for which no model was trained on
    /// schedules of this sketch.
    fn trusts_default(&self, workload: &Workload, target: &Target) -> bool {
        let spec = spec_of(workload);
        default::is_transpose(&spec) || target.cpu().is_some_and(|cpu| default::beats_direct(&spec, cpu))
    }

    fn has_integers(&self, workload: &Workload) -> bool {
        workload.operator().moves_bytes()
    }

    /// Overlapping windows count as in the separable algorithm: the generated code combines once
    /// what several windows share.
    fn work(&self, workload: &Workload, _config: &Config) -> Work {
        separable::work(workload)
    }

    fn works(&self, workload: &Workload, _knobs: &KnobSpace) -> Vec<Work> {
        separable::works(workload)
    }
}

impl Plan for MapReducePlan {
    fn lower(&self) -> Program {
        Program { spec: Arc::clone(&self.spec), ..lower(&self.plan) }
    }
}
