//! Two fused contractions as a [`Sketch`].

use std::sync::Arc;

use autotune_ir::program::Program;
use autotune_ir::target::Target;
use autotune_workloads::Workload;

use super::gpu::{self, GpuFused};
use super::lower::lower;
use super::pair::Pair;
use super::{Fused, SKETCH, default, knobs};
use crate::config::KnobValues;
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use crate::sketch::{self, Plan, Sketch};

/// Sketch of two fused contractions.
pub(crate) struct FusedSketch;

struct FusedPlan {
    workload: Workload,
    fused: Fused,
    lanes: usize,
    largest_share: f64,
}

impl Sketch for FusedSketch {
    fn name(&self) -> &'static str {
        SKETCH
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        match target {
            Target::Cpu(cpu) => Some(knobs::knobs(&*Pair::of(workload)?, cpu)),
            Target::Gpu(gpu) => gpu::knobs::knobs(workload, gpu),
        }
    }

    fn refusal(&self, workload: &Workload, target: &Target) -> Option<LowerError> {
        target.gpu().and_then(|_| gpu::widest(workload)).map(|(field, extent)| LowerError::Size {
            field,
            extent,
            target: target.key(),
        })
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        let cpu = match target {
            Target::Cpu(cpu) => cpu,
            Target::Gpu(gpu) => {
                return Ok(sketch::plan(workload, GpuFused::new(workload, gpu, knobs)?, gpu::lower::lower));
            }
        };
        let fused = Fused::new(workload, cpu, knobs)?;
        let (lanes, largest_share) = (cpu.lanes(), fused.first.largest_share(cpu));
        Ok(Box::new(FusedPlan { workload: workload.clone(), fused, lanes, largest_share }))
    }

    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, KnobIndices)> {
        match target {
            Target::Cpu(cpu) => Some((0.0, default::default_point(&Pair::of(workload)?, cpu, space)?)),
            Target::Gpu(gpu) => {
                let cycles = |point: &KnobIndices| sketch::cycles(self, workload, target, point);
                let smallest = || {
                    let point = space.locate(&gpu::knobs::smallest(workload, gpu, &space.knobs)?)?;
                    Some((cycles(&point)?, point))
                };
                space.least(cycles).or_else(smallest)
            }
        }
    }

    /// Always true: any other sketch that can compute two contractions multiplies without register
    /// tiles.
    fn outdoes_later_tiers(&self, _workload: &Workload, _target: &Target) -> bool {
        true
    }

    fn algorithm_knobs(&self) -> &'static [&'static str] {
        &["between"]
    }
}

impl Plan for FusedPlan {
    fn lower(&self) -> Program {
        lower(&self.workload, &self.fused, self.lanes)
    }

    fn largest_share(&self) -> f64 {
        self.largest_share
    }
}
