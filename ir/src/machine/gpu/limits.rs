//! Limits and rates of GPUs that depend on their interface and compute capability.

use super::{REGISTER_STEP, REGISTER_WARPS};
use crate::dtype::DType;
use crate::instruction::{MMA, ThreadGroup};
use crate::target::{GpuApi, GpuTarget};

/// Most blocks on a multiprocessor at once (Guide, "Technical Specifications per Compute
/// Capability"; elsewhere two warps each fill it).
pub fn block_slots(gpu: &GpuTarget) -> usize {
    match gpu.api {
        GpuApi::Cuda { sm: 75 | 86 } => 16,
        GpuApi::Cuda { sm: 89 | 120 } => 24,
        GpuApi::Cuda { .. } => 32,
        GpuApi::OpenCl => gpu.threads_per_multiprocessor / (2 * gpu.warp_threads.max(1)),
    }
}

/// The most registers that each thread of a block of `threads` threads can have.
pub fn registers_of_block(gpu: &GpuTarget, threads: usize) -> usize {
    let dealt = threads.next_multiple_of(REGISTER_WARPS * gpu.warp_threads.max(1)).max(1);
    gpu.registers_per_thread.min(gpu.registers_per_multiprocessor / dealt / REGISTER_STEP * REGISTER_STEP)
}

/// Multiply-adds of f32 a cycle (Guide, "Arithmetic Instructions").
pub fn thread_fmas_per_cycle(api: GpuApi) -> f64 {
    match api {
        GpuApi::Cuda { sm: 70 | 75 | 80 } => 64.0,
        _ => 128.0,
    }
}

/// Multiply-adds a cycle of tensor cores, dense, with sums in f32; `None` where there are none for
/// a type (NVIDIA, whitepapers "A100" and "H100"; "GA102", "AD102" and "RTX Blackwell" for the
/// others, professional devices).
pub fn tensor_fmas_per_cycle(api: GpuApi, dtype: DType) -> Option<f64> {
    let halves = match api {
        GpuApi::Cuda { sm: 90..120 } => 2048.0,
        GpuApi::Cuda { sm: 80 } => 1024.0,
        GpuApi::Cuda { sm: 81.. } => 512.0,
        _ => return None,
    };
    MMA.steps(dtype).map(|steps| halves * steps as f64 / 16.0)
}

/// The share of them that kernels by the instructions of a team reach: on compute capability
/// 9.0 those of warps do not keep tensor cores busy (Luo et al.: 62 % of the peak on H100 by
/// themselves; fitted: 40 % with what kernels do beside them).
pub fn tensor_share(api: GpuApi, by: ThreadGroup) -> f64 {
    match (api, by) {
        (GpuApi::Cuda { sm: 90..120 }, ThreadGroup::Warp) => 0.4,
        _ => 1.0,
    }
}
