//! Typed forms of configs.

use autotune_ir::GpuTarget;
use autotune_schedules::gpu::{IMPLICIT_GEMM, MMA, TILED, Tiling, WGMMA};
use autotune_schedules::winograd::gpu::GpuWinograd;
use autotune_schedules::{Config, LowerError};
use autotune_workloads::Workload;

/// What a config of a sketch for GPUs asks for; of Winograd's, the products.
pub fn tiling(workload: &Workload, gpu: &GpuTarget, config: &Config) -> Result<Tiling, LowerError> {
    match [&TILED, &IMPLICIT_GEMM, &MMA, &WGMMA].into_iter().find(|sketch| sketch.name == config.sketch) {
        Some(sketch) => sketch.tiling(workload, gpu, config),
        None => Ok(GpuWinograd::new(workload, gpu, config)?.product),
    }
}
