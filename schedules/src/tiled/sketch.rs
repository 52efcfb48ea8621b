//! The sketches of tiles in shared memory and registers, on GPUs.

use super::estimate::estimate;
use super::{Form, Tiled, knobs, lower};
use crate::config::Config;
use crate::lower::LowerError;
use crate::sketch::{self, Plan, Sketch};
use crate::space::{Knob, KnobSpace};
use crate::workload::Workload;
use autotune_ir::target::{GpuTarget, Target};

/// Name in configs of the sketch that tiles the axes of a workload.
pub const SKETCH: &str = "tiled";
/// That of the sketch for which the pixels of all images are the rows of one matrix product.
pub const IMPLICIT_GEMM: &str = "implicit_gemm";

/// A sketch of tiles.
pub(crate) struct TiledSketch(pub(crate) Form);

impl Sketch for TiledSketch {
    fn name(&self) -> &'static str {
        match self.0 {
            Form::Axes => SKETCH,
            Form::Pixels => IMPLICIT_GEMM,
        }
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        knobs::knobs(workload, target.gpu()?, self.0)
    }

    fn plan<'a>(
        &self,
        workload: &'a Workload,
        target: &'a Target,
        config: &Config,
    ) -> Result<Box<dyn Plan + 'a>, LowerError> {
        let gpu = sketch::gpu_of(self, workload, target)?;
        Ok(sketch::plan(workload, Tiled::new(workload, gpu, self.0, config)?, lower::lower))
    }

    /// What an analytic estimate prefers.
    fn default_config(&self, workload: &Workload, target: &Target, knobs: &KnobSpace) -> Option<(f64, Config)> {
        let gpu = target.gpu()?;
        knobs.least(|config| Some(estimate(&Tiled::new(workload, gpu, self.0, config).ok()?, gpu)))
    }
}

impl Tiled {
    /// [`Tiled::new`] for the sketch of the config.
    pub fn of_config(workload: &Workload, target: &GpuTarget, config: &Config) -> Result<Self, LowerError> {
        let form = if config.sketch == IMPLICIT_GEMM { Form::Pixels } else { Form::Axes };
        Self::new(workload, target, form, config)
    }
}
