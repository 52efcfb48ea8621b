//! Search for GPUs.
//!
//! CUDA uses the driver and NVRTC, OpenCL its loader; all are found at run time. `AUTOTUNE_NVRTC`
//! can name the folder of `libnvrtc.so.*`. It is `nvidia/cuda_nvrtc/lib` in the Python package
//! `nvidia-cuda-nvrtc-cu12`, and `nvidia/cu13/lib` in `nvidia-cuda-nvrtc`, whose version 13 does
//! not support devices older than compute capability 7.5.
//!
//! A kernel runs without protection in the process that loads it. A kernel that hangs blocks the
//! process, and one that accesses memory outside its buffers may make the CUDA device unusable for
//! it. [`crate::WorkerMeasurer`] confines such faults to a worker process.

use autotune_ir::plan::{Binding, PlanBuffer, PlanStage};
use autotune_ir::program::{Layout, Role, When};
use autotune_ir::{Artifact, Code, DType, GpuApi, GpuTarget, KernelPlan, Launch, Target};
use autotune_measurement::CandidateError;
use autotune_runtime::{DeviceError, GpuInfo, cuda, opencl};

use crate::error::MeasureError;
use crate::nvrtc;

/// Returns the GPU of this machine that `word` names: `cuda` is the first CUDA device, `cuda:sm_90`
/// the first of that compute capability, and `opencl` the first OpenCL device that is a GPU, else
/// the first of any kind. Fails for a CUDA device without a compiler.
pub fn find(word: &str) -> Result<GpuInfo, MeasureError> {
    let absent = |message: String| MeasureError::Device { message };
    let no_device = |error: DeviceError| absent(error.to_string());
    if word == "opencl" {
        return opencl::devices()
            .map_err(no_device)?
            .into_iter()
            .next()
            .ok_or_else(|| absent(opencl::NO_DEVICE.into()));
    }
    let devices = cuda::devices().map_err(no_device)?;
    let stated = GpuTarget::stated(word).map(|target| target.api);
    let fits = |info: &&GpuInfo| stated.is_none_or(|api| info.target.api == api);
    let Some(found) = devices.iter().find(fits) else {
        let names: Vec<String> = devices.iter().map(|info| format!("{} is {}", info.name, info.target.api)).collect();
        return Err(absent(match names.is_empty() {
            true => cuda::NO_DEVICE.into(),
            false => format!("no CUDA device of this machine matches {word}: {}", names.join(", ")),
        }));
    };
    if let GpuApi::Cuda { sm } = found.target.api {
        nvrtc::compiler_for(sm).map_err(absent)?;
    }
    Ok(found.clone())
}

/// Threads of a block of [`plan_of_source`].
const THREADS: usize = 256;

/// Replaces `KERNEL` in a source by the words of an API before the name of a kernel.
pub fn with_kernel_words(source: &str, api: GpuApi) -> String {
    let words = match api {
        GpuApi::Cuda { .. } => "extern \"C\" __global__ void",
        GpuApi::OpenCl => "__kernel void",
    };
    source.replace("KERNEL", words)
}

/// Returns the plan of kernels that take two operands and an output, with these names, and process
/// any number of elements by a fixed number of threads.
pub fn plan_of_source(
    [first, second, output]: [&str; 3],
    symbols: impl IntoIterator<Item = String>,
    blocks_per_multiprocessor: usize,
    target: &GpuTarget,
) -> KernelPlan {
    let buffer = |name: &str, role: Role, binding: Binding| PlanBuffer {
        name: name.into(),
        role,
        binding,
        shape: vec![1],
        layout: Layout::Plain,
        dtype: DType::F32,
    };
    let buffers = vec![
        buffer(first, Role::Operand(0), Binding::Data),
        buffer(second, Role::Operand(1), Binding::Data),
        buffer(output, Role::Output, Binding::Output),
    ];

    let threads = THREADS.min(target.threads_per_block);
    let launch = Launch { blocks: blocks_per_multiprocessor * target.multiprocessors, threads, shared_bytes: 0 };
    let stage = |symbol: String| PlanStage {
        symbol,
        when: When::EveryRun,
        tasks: launch.blocks,
        launch: Some(launch),
        boxes: vec![],
    };
    KernelPlan { buffers, stages: symbols.into_iter().map(stage).collect(), local_bytes: 0, uses_tiles: false }
}

/// Returns kernels of the source's own for a device; machine code of CUDA is kept in the cache
/// folder, since many processes load the same few kernels.
pub fn artifact_of_source(source: String, plan: KernelPlan, target: &GpuTarget) -> Result<Artifact, CandidateError> {
    let code = match target.api {
        GpuApi::Cuda { sm } => Code::Cubin(nvrtc::cubin_of(&source, sm)?),
        GpuApi::OpenCl => Code::OpenCl(source),
    };
    Ok(Artifact { target: Target::Gpu(target.clone()), plan, code })
}

/// Reports that a test is skipped because a tool is missing; panics if `AUTOTUNE_REQUIRE` lists the
/// tool.
#[cfg(test)]
pub(crate) fn missing(tool: &str, reason: impl std::fmt::Display) {
    let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    eprintln!("skipped, {tool} is missing: {reason}");
}
