//! Typed forms of configs.

use autotune_ir::GpuTarget;
use autotune_ir::instruction::ThreadGroup;
use autotune_schedules::gpu::Tiling;
use autotune_schedules::tiled::{self, Form};
use autotune_schedules::winograd::gpu::GpuWinograd;
use autotune_schedules::{Config, LowerError, Workload, mma};

/// What a config of a sketch for GPUs asks for; of Winograd's, the products.
pub fn tiling(workload: &Workload, gpu: &GpuTarget, config: &Config) -> Result<Tiling, LowerError> {
    match config.sketch.as_str() {
        mma::SKETCH => mma::tiling(workload, gpu, ThreadGroup::Warp, config),
        mma::GROUP_SKETCH => mma::tiling(workload, gpu, ThreadGroup::WarpGroup, config),
        tiled::SKETCH => tiled::tiling(workload, gpu, Form::Axes, config),
        tiled::IMPLICIT_GEMM => tiled::tiling(workload, gpu, Form::Pixels, config),
        _ => Ok(GpuWinograd::new(workload, gpu, config)?.product),
    }
}
