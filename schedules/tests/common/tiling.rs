//! Parses configs into tilings.

use autotune_ir::GpuTarget;
use autotune_schedules::gpu::{IMPLICIT_GEMM, MMA, TILED, Tiling, WGMMA};
use autotune_schedules::winograd::gpu::GpuWinograd;
use autotune_schedules::{Config, LowerError};
use autotune_workloads::Workload;

/// Returns the tiling of a config on a GPU; for the Winograd sketch, that of its products.
pub fn tiling(workload: &Workload, gpu: &GpuTarget, config: &Config) -> Result<Tiling, LowerError> {
    match [&TILED, &IMPLICIT_GEMM, &MMA, &WGMMA].into_iter().find(|sketch| sketch.name == config.sketch) {
        Some(sketch) => sketch.tiling(workload, gpu, config),
        None => Ok(GpuWinograd::new(workload, gpu, config)?.product),
    }
}
