//! The direct sketch: loops around a register tile, on CPUs.

use super::{Direct, Roles, default, knobs};
use crate::config::Config;
use crate::contraction::Contraction;
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::lower::direct;
use crate::sketch::{Plan, Sketch};
use crate::workload::Workload;
use autotune_ir::program::Program;
use autotune_ir::target::{CpuTarget, Target};

/// Name of the sketch in configs.
pub const SKETCH: &str = "direct";

/// The sketch.
pub(crate) struct DirectSketch;

struct Planned<'a> {
    workload: &'a Workload,
    cpu: &'a CpuTarget,
    direct: Direct,
}

impl Sketch for DirectSketch {
    fn name(&self) -> &'static str {
        SKETCH
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        Some(knobs::knobs(&Roles::of(Contraction::of(workload))?, target.cpu()?))
    }

    fn plan<'a>(
        &self,
        workload: &'a Workload,
        target: &'a Target,
        config: &Config,
    ) -> Result<Box<dyn Plan + 'a>, LowerError> {
        let cpu = target.cpu().ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        Ok(Box::new(Planned { workload, cpu, direct: Direct::new(workload, cpu, config)? }))
    }

    fn default_config(&self, workload: &Workload, target: &Target, knobs: &KnobSpace) -> Option<(f64, Config)> {
        let roles = Roles::of(Contraction::of(workload))?;
        Some((0.0, default::default_config(&roles, target.cpu()?, knobs)?))
    }
}

impl Plan for Planned<'_> {
    fn lower(&self) -> Program {
        direct::lower(self.workload, &self.direct, self.cpu.lanes())
    }

    fn largest_share(&self) -> f64 {
        self.direct.largest_share(self.cpu)
    }
}
