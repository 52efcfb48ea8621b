//! Winograd's algorithm as a sketch, for convolutions on CPUs and on GPUs.

use std::sync::Arc;

use super::conv::WinogradConv;
use super::gpu::{self, GpuWinograd};
use super::lower::lower;
use super::{INPUT_KNOB, SKETCH, TILE_SIZE_KNOB, Winograd, knobs, tolerance, work};
use crate::config::{Config, KnobValue, KnobValues};
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use crate::sketch::{self, EXACT_TOLERANCE, Plan, Sketch};
use autotune_ir::target::Target;
use autotune_workloads::{Work, Workload};

/// Sketch of Winograd's algorithm for convolutions, on CPUs and GPUs.
pub(crate) struct WinogradSketch;

impl Sketch for WinogradSketch {
    fn name(&self) -> &'static str {
        SKETCH
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        match target {
            Target::Cpu(cpu) => knobs::knobs(workload, cpu),
            Target::Gpu(gpu) => gpu::knobs(workload, gpu),
        }
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        Ok(match target {
            Target::Cpu(cpu) => sketch::plan(workload, Winograd::new(workload, cpu, knobs)?, lower),
            Target::Gpu(gpu) => sketch::plan(workload, GpuWinograd::new(workload, gpu, knobs)?, gpu::lower::lower),
        })
    }

    /// Chooses by estimated cycles, on GPUs only. There, estimates of direct and of Winograd's
    /// kernels agree with measurements.
    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, KnobIndices)> {
        target.gpu()?;
        space.least(|point| sketch::cycles(self, workload, target, point))
    }

    fn work(&self, workload: &Workload, config: &Config) -> Work {
        let size = config.knobs.get(TILE_SIZE_KNOB).and_then(tile_size);
        size.and_then(|m| work(workload, m)).unwrap_or_else(|| workload.work())
    }

    fn works(&self, workload: &Workload, knobs: &KnobSpace) -> Vec<Work> {
        let sizes = knobs.knobs.iter().filter(|knob| knob.name == TILE_SIZE_KNOB).flat_map(|knob| &knob.values);
        sizes.filter_map(|size| work(workload, tile_size(size)?)).collect()
    }

    fn algorithm_knobs(&self) -> &'static [&'static str] {
        &[TILE_SIZE_KNOB, INPUT_KNOB]
    }

    fn tolerance(&self, workload: &Workload, config: &Config) -> f64 {
        let size = config.knobs.get(TILE_SIZE_KNOB).and_then(tile_size);
        let conv = WinogradConv::of(workload).zip(size).filter(|(conv, m)| conv.filtering(*m).is_known());
        conv.map_or(EXACT_TOLERANCE, |(conv, m)| tolerance(&conv, m))
    }

    fn is_exact(&self) -> bool {
        false
    }
}

fn tile_size(value: &KnobValue) -> Option<usize> {
    match value {
        KnobValue::Choice(m) => m.parse().ok(),
        _ => None,
    }
}
