//! The direct sketch: loops around a register tile, on CPUs.

use std::sync::Arc;

use super::lower::lower;
use super::roles::Roles;
use super::{Direct, SKETCH, default, knobs};
use crate::config::KnobValues;
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use crate::sketch::{Plan, Sketch};
use autotune_ir::program::Program;
use autotune_ir::target::Target;
use autotune_workloads::Workload;

/// Sketch for contractions on CPUs.
pub(crate) struct DirectSketch;

struct DirectPlan {
    workload: Workload,
    direct: Direct,
    lanes: usize,
    largest_share: f64,
}

impl Sketch for DirectSketch {
    fn name(&self) -> &'static str {
        SKETCH
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        let roles = Roles::of_workload(workload)?;
        Some(knobs::knobs(&roles, target.cpu()?))
    }

    fn has_integers(&self, _workload: &Workload) -> bool {
        true
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        let cpu = target.cpu().ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        let direct = Direct::new(workload, cpu, knobs)?;
        let (lanes, largest_share) = (cpu.lanes(), direct.largest_share(cpu));
        Ok(Box::new(DirectPlan { workload: workload.clone(), direct, lanes, largest_share }))
    }

    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, KnobIndices)> {
        let roles = Roles::of_workload(workload)?;
        Some((0.0, default::default_point(&roles, target.cpu()?, space)?))
    }

    /// True for two kinds of products. For tile instructions, no pretrained model ships. For
    /// products that stream a matrix, the rule beats the models: [1, 768] by [768, 50257] takes 5.0
    /// ms by the rule and 13 ms by the model's first choice (one thread of an AMD EPYC 25/17,
    /// AVX-512).
    fn trusts_default(&self, workload: &Workload, target: &Target) -> bool {
        let roles = Roles::of_workload(workload).zip(target.cpu());
        roles.is_some_and(|(roles, cpu)| roles.tile(cpu).is_some() || default::streams(&roles, cpu))
    }
}

impl Plan for DirectPlan {
    fn lower(&self) -> Program {
        lower(&self.workload, &self.direct, self.lanes)
    }

    fn largest_share(&self) -> f64 {
        self.largest_share
    }
}
