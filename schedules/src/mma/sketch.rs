//! The sketches for tensor cores: matrix instructions of warps, and of warp groups.

use super::estimate::cycles;
use super::{Mma, fills, knobs, lower};
use crate::config::Config;
use crate::lower::LowerError;
use crate::sketch::{self, Plan, Sketch};
use crate::space::{Knob, KnobSpace};
use crate::workload::Workload;
use autotune_ir::DType;
use autotune_ir::program::Team;
use autotune_ir::target::{GpuTarget, Target};

/// Name in configs of the sketch for instructions of warps.
pub const SKETCH: &str = "mma";
/// That of the sketch for instructions of warp groups.
pub const GROUP_SKETCH: &str = "wgmma";

/// A sketch for instructions of a team.
pub(crate) struct MmaSketch(pub(crate) Team);

impl Sketch for MmaSketch {
    fn name(&self) -> &'static str {
        match self.0 {
            Team::Warp => SKETCH,
            Team::WarpGroup => GROUP_SKETCH,
        }
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        match self.0 {
            Team::Warp => knobs::knobs(workload, target.gpu()?),
            Team::WarpGroup => knobs::group_knobs(workload, target.gpu()?),
        }
    }

    fn plan<'a>(
        &self,
        workload: &'a Workload,
        target: &'a Target,
        config: &Config,
    ) -> Result<Box<dyn Plan + 'a>, LowerError> {
        let gpu = sketch::gpu_of(self, workload, target)?;
        Ok(sketch::plan(workload, Mma::new(workload, gpu, self.0, config)?, lower::lower))
    }

    /// What an analytic estimate prefers.
    fn default_config(&self, workload: &Workload, target: &Target, knobs: &KnobSpace) -> Option<(f64, Config)> {
        let gpu = target.gpu()?;
        knobs.least(|config| Some(cycles(&Mma::new(workload, gpu, self.0, config).ok()?, gpu)))
    }

    /// Where there are enough columns for tensor cores, and where only they have the type.
    fn outdoes_later_tiers(&self, workload: &Workload) -> bool {
        self.0 == Team::Warp && (fills(workload) || workload.dtype == DType::Tf32)
    }
}

impl Mma {
    /// [`Mma::new`] for the sketch of the config.
    pub fn of_config(workload: &Workload, target: &GpuTarget, config: &Config) -> Result<Self, LowerError> {
        let team = if config.sketch == GROUP_SKETCH { Team::WarpGroup } else { Team::Warp };
        Self::new(workload, target, team, config)
    }
}
