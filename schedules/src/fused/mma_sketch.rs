//! Attention by matrix instructions as a [`Sketch`].

use std::sync::Arc;

use autotune_ir::target::Target;
use autotune_workloads::Workload;

use super::gpu::matrix::{self, SKETCH};
use super::gpu::{self, GpuFused};
use crate::config::{Config, KnobValues};
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use crate::sketch::{self, EXACT_TOLERANCE, Plan, Sketch};

/// Sketch of attention by matrix instructions of warps.
pub(crate) struct FusedMmaSketch;

impl Sketch for FusedMmaSketch {
    fn name(&self) -> &'static str {
        SKETCH
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        matrix::knobs(workload, target.gpu()?)
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        let gpu = sketch::gpu_of(self, workload, target)?;
        Ok(sketch::plan(workload, GpuFused::by_matrices(workload, gpu, knobs)?, gpu::lower::lower))
    }

    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, KnobIndices)> {
        space.least(|point| sketch::cycles(self, workload, target, point))
    }

    /// The weights of the softmax are rounded to the type of the values.
    fn tolerance(&self, workload: &Workload, _config: &Config) -> f64 {
        EXACT_TOLERANCE + 2.0 * workload.dtype().unit_roundoff()
    }
}
