//! Limits and rates of GPUs that depend on API and compute capability.

use super::{REGISTER_STEP, REGISTER_WARPS};
use crate::dtype::DType;
use crate::instruction::{MMA, ThreadGroup};
use crate::target::{GpuApi, GpuTarget};

/// Returns the maximum number of resident blocks per multiprocessor (Guide, "Technical
/// Specifications per Compute Capability"; on other devices, blocks of two warps fill it).
pub fn block_slots(gpu: &GpuTarget) -> usize {
    match gpu.api {
        GpuApi::Cuda { sm: 75 | 86 } => 16,
        GpuApi::Cuda { sm: 89 | 120 } => 24,
        GpuApi::Cuda { .. } => 32,
        GpuApi::OpenCl => gpu.threads_per_multiprocessor / (2 * gpu.warp_threads.max(1)),
    }
}

/// Returns the maximum registers per thread for a block of `threads` threads.
pub fn registers_of_block(gpu: &GpuTarget, threads: usize) -> usize {
    let dealt = threads.next_multiple_of(REGISTER_WARPS * gpu.warp_threads.max(1)).max(1);
    gpu.registers_per_thread.min(gpu.registers_per_multiprocessor / dealt / REGISTER_STEP * REGISTER_STEP)
}

/// Returns the f32 multiply-adds per cycle without tensor cores (Guide, "Arithmetic Instructions").
pub fn thread_fmas_per_cycle(api: GpuApi) -> f64 {
    match api {
        GpuApi::Cuda { sm: 70 | 75 | 80 } => 64.0,
        _ => 128.0,
    }
}

/// Returns the multiply-adds per cycle of the tensor cores, dense, with f32 accumulators; `None` if
/// they do not support the type (NVIDIA, whitepapers "A100" and "H100"; "GA102", "AD102" and "RTX
/// Blackwell" for the others, professional devices).
pub fn tensor_fmas_per_cycle(api: GpuApi, dtype: DType) -> Option<f64> {
    let halves = match api {
        GpuApi::Cuda { sm: 90..120 } => 2048.0,
        GpuApi::Cuda { sm: 80 } => 1024.0,
        GpuApi::Cuda { sm: 81.. } => 512.0,
        _ => return None,
    };
    MMA.steps(dtype).map(|steps| halves * steps as f64 / 16.0)
}

/// Returns the share of the tensor cores' peak that kernels reach with the instructions of these
/// threads. On compute capability 9.0, instructions of single warps do not keep the tensor cores
/// busy (Luo et al.: 62 % of the peak on H100 in isolation; fitted: 40 % within kernels).
pub fn tensor_share(api: GpuApi, by: ThreadGroup) -> f64 {
    match (api, by) {
        (GpuApi::Cuda { sm: 90..120 }, ThreadGroup::Warp) => 0.4,
        _ => 1.0,
    }
}
