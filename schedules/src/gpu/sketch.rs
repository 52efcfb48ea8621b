//! Sketches whose plan is a [`Tiling`].

use std::sync::Arc;

use super::{AxisRoles, Tiling, lower, teams, threads};
use crate::config::KnobValues;
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use crate::sketch::{self, Plan, Sketch};
use autotune_ir::instruction::ThreadGroup;
use autotune_ir::target::{GpuTarget, Target};
use autotune_ir::{DType, Spec};
use autotune_workloads::Workload;

/// Number of descents in the search for a default schedule.
const DESCENTS: usize = 4;

/// A sketch of contractions on GPUs. Sketches differ in the tiled axes and in the threads that
/// multiply together.
pub struct GpuSketch {
    /// Name of the sketch in configs.
    pub name: &'static str,
    /// Returns the roles of the axes, if the sketch applies to a spec.
    roles: fn(&Arc<Spec>) -> Option<AxisRoles>,
    /// Threads that share a matrix instruction; `None` if each thread multiplies its own tile.
    by: Option<ThreadGroup>,
}

/// Tiles the workload's own axes; threads multiply.
pub const TILED: GpuSketch = GpuSketch { name: "tiled", roles: AxisRoles::of_axes, by: None };
/// Tiles the pixels of all images as the rows of one matrix product; threads multiply.
pub const IMPLICIT_GEMM: GpuSketch = GpuSketch { name: "implicit_gemm", roles: AxisRoles::of_pixels, by: None };
/// Matrix products by matrix instructions of warps.
pub const MMA: GpuSketch = GpuSketch { name: "mma", roles: AxisRoles::of_matrix, by: Some(ThreadGroup::Warp) };
/// Matrix products by matrix instructions of warp groups.
pub const WGMMA: GpuSketch = GpuSketch { name: "wgmma", roles: AxisRoles::of_matrix, by: Some(ThreadGroup::WarpGroup) };

impl GpuSketch {
    /// Returns the roles of a spec's axes. Returns `None` for specs with more equations than a
    /// contraction, its prologue and epilogue.
    fn roles_of(&self, spec: &Arc<Spec>) -> Option<AxisRoles> {
        if spec.is_chain() { None } else { (self.roles)(spec) }
    }

    /// Returns the roles of a workload's axes, cached. Returns `None` if the sketch does not apply
    /// to the workload or the target.
    fn roles(&self, workload: &Workload, target: &GpuTarget) -> Option<Arc<AxisRoles>> {
        let roles = Option::clone(&workload.once(self.name, || self.roles_of(workload.spec()).map(Arc::new)));
        roles.filter(|roles| match self.by {
            // Tf32 rounds factors, which only matrix instructions do.
            None => workload.dtype() != DType::Tf32,
            Some(by) => teams::are_for(roles, workload.dtype(), target, by),
        })
    }

    /// True if the product has enough columns and steps to fill tensor cores, or its type needs
    /// them.
    fn fills_tensor_cores(&self, workload: &Workload) -> bool {
        workload.dtype() == DType::Tf32 || self.roles_of(workload.spec()).is_some_and(|roles| teams::fill(&roles))
    }

    /// Parses the knobs of a config. Fails with the first knob that is malformed, does not fit the
    /// workload, or breaks a limit of the target.
    pub fn tiling(
        &self,
        workload: &Workload,
        target: &GpuTarget,
        knobs: &dyn KnobValues,
    ) -> Result<Tiling, LowerError> {
        let dtype = workload.dtype();
        let roles = self.roles(workload, target).ok_or_else(|| LowerError::unfit(self.name, workload))?;
        match self.by {
            None => threads::tiling(roles, dtype, knobs)?.checked(target),
            Some(by) => teams::tiling(roles, dtype, target, by, knobs)?.checked(target),
        }
    }
}

impl Sketch for GpuSketch {
    fn name(&self) -> &'static str {
        self.name
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        let gpu = target.gpu()?;
        let roles = self.roles(workload, gpu)?;
        Some(match self.by {
            None => threads::knobs(&roles, gpu),
            Some(by) => teams::knobs(&roles, workload.dtype(), by),
        })
    }

    fn plan(&self, workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
        let gpu = sketch::gpu_of(self, workload, target)?;
        Ok(sketch::plan(workload, self.tiling(workload, gpu, knobs)?, lower::lower))
    }

    /// Returns `None` for products that leave tensor cores mostly idle: sketches of later tiers are
    /// faster there.
    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, KnobIndices)> {
        if self.by.is_some() && !self.fills_tensor_cores(workload) {
            return None;
        }
        space.least_of(DESCENTS, |point| sketch::cycles(self, workload, target, point))
    }

    fn outdoes_later_tiers(&self, workload: &Workload, _target: &Target) -> bool {
        self.by == Some(ThreadGroup::Warp) && self.fills_tensor_cores(workload)
    }
}
