//! The sketches that fill in a [`Tiling`].

use std::sync::Arc;

use super::{AxisRoles, Tiling, lower, teams, threads};
use crate::config::KnobValues;
use crate::error::LowerError;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::Point;
use crate::sketch::{self, Plan, Sketch};
use autotune_ir::instruction::ThreadGroup;
use autotune_ir::target::{GpuTarget, Target};
use autotune_ir::{DType, Spec};
use autotune_workloads::Workload;

/// A sketch for GPUs: which axes it tiles, and who multiplies.
pub struct GpuSketch {
    /// As configs call it.
    pub name: &'static str,
    /// What is tiled.
    roles: fn(&Arc<Spec>) -> Option<AxisRoles>,
    /// Threads that multiply together by matrix instructions; none where each multiplies by itself.
    by: Option<ThreadGroup>,
}

/// Tiles of the workload's own axes.
pub const TILED: GpuSketch = GpuSketch { name: "tiled", roles: AxisRoles::of_axes, by: None };
/// The pixels of all images as the rows of one matrix product.
pub const IMPLICIT_GEMM: GpuSketch = GpuSketch { name: "implicit_gemm", roles: AxisRoles::of_pixels, by: None };
/// Instructions of warps.
pub const MMA: GpuSketch = GpuSketch { name: "mma", roles: AxisRoles::of_matrix, by: Some(ThreadGroup::Warp) };
/// Instructions of warp groups.
pub const WGMMA: GpuSketch = GpuSketch { name: "wgmma", roles: AxisRoles::of_matrix, by: Some(ThreadGroup::WarpGroup) };

impl GpuSketch {
    /// A spec as it is tiled; none if it is more than a contraction and a map.
    fn roles_of(&self, spec: &Arc<Spec>) -> Option<AxisRoles> {
        if spec.is_chain() { None } else { (self.roles)(spec) }
    }

    /// The workload as it is tiled; none if the sketch is not for it, or not on the target.
    fn roles(&self, workload: &Workload, target: &GpuTarget) -> Option<Arc<AxisRoles>> {
        let roles = Option::clone(&workload.once(self.name, || self.roles_of(workload.spec()).map(Arc::new)));
        roles.filter(|roles| match self.by {
            // Only matrix instructions round what they multiply.
            None => workload.dtype() != DType::Tf32,
            Some(by) => teams::are_for(roles, workload.dtype(), target, by),
        })
    }

    /// True where there are enough columns and steps for tensor cores, and where only they have the
    /// type.
    fn fills_tensor_cores(&self, workload: &Workload) -> bool {
        workload.dtype() == DType::Tf32 || self.roles_of(workload.spec()).is_some_and(|roles| teams::fill(&roles))
    }

    /// What a config asks for, or the first knob that is malformed, does not fit the workload, or
    /// breaks a limit of the target.
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

    /// None where the product leaves tensor cores mostly idle: later tiers are faster there.
    fn default(&self, workload: &Workload, target: &Target, space: &Arc<KnobSpace>) -> Option<(f64, Point)> {
        if self.by.is_some() && !self.fills_tensor_cores(workload) {
            return None;
        }
        space.least(|point| sketch::cycles(self, workload, target, point))
    }

    fn outdoes_later_tiers(&self, workload: &Workload, _target: &Target) -> bool {
        self.by == Some(ThreadGroup::Warp) && self.fills_tensor_cores(workload)
    }
}
