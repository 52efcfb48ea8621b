//! GPUs: which there are.
//!
//! CUDA goes through the driver and NVRTC, OpenCL through its loader; each is found at run time.
//! `AUTOTUNE_NVRTC` can name the folder of `libnvrtc.so.*`: in the Python package
//! `nvidia-cuda-nvrtc-cu12` that is `nvidia/cuda_nvrtc/lib`, in `nvidia-cuda-nvrtc`, whose version
//! 13 compiles for no device older than compute capability 7.5, `nvidia/cu13/lib`.
//!
//! A kernel runs in the process that loads it without protection: one that hangs keeps it waiting,
//! and one that touches memory that is not its own may make a CUDA device useless to it.
//! [`crate::WorkerMeasurer`] keeps that to a worker process.

use autotune_ir::{GpuApi, GpuTarget};
use autotune_runtime::{DeviceError, GpuInfo, cuda, opencl};

use crate::error::MeasureError;
use crate::nvrtc;

/// The GPU of this machine that a word means: `cuda` the first CUDA device, `cuda:sm_90` the first
/// of that compute capability, `opencl` the first OpenCL device that is a GPU, else the first. For
/// CUDA a compiler for it must be there, too.
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
            false => format!("no CUDA device of this machine is {word}: {}", names.join(", ")),
        }));
    };
    if let GpuApi::Cuda { sm } = found.target.api {
        nvrtc::compiler_for(sm).map_err(absent)?;
    }
    Ok(found.clone())
}

/// Says that a test is skipped for want of a tool; a failure where `AUTOTUNE_REQUIRE` has the tool.
#[cfg(test)]
pub(crate) fn missing(tool: &str, reason: impl std::fmt::Display) {
    let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    eprintln!("skipped, {tool} is missing: {reason}");
}
