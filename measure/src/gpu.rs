//! GPUs: which there are, and kernels on them.
//!
//! CUDA goes through the driver and NVRTC, OpenCL through its loader; each is found at run time. `AUTOTUNE_NVRTC` can name the
//! folder of `libnvrtc.so.*`: in the Python package `nvidia-cuda-nvrtc-cu12` that is `nvidia/cuda_nvrtc/lib`, in `nvidia-cuda-nvrtc`,
//! whose version 13 compiles for no device older than compute capability 7.5, `nvidia/cu13/lib`.
//!
//! A kernel runs in the process that loads it without protection: one that hangs keeps it waiting, and one that touches memory
//! that is not its own may make a CUDA device useless to it. [`crate::WorkerMeasurer`] keeps that to a worker process.

use std::rc::Rc;

use autotune_schedules::{GpuApi, GpuTarget, KernelPlan};

use crate::builder::{Built, Code};
use crate::ceilings::Ceilings;
use crate::measurement::{CandidateError, MeasureError};
use crate::problem::Problem;

pub(crate) mod ceilings;
pub mod cuda;
pub mod driver;
pub mod nvrtc;
pub mod opencl;
mod tensor_map;
pub(crate) mod trial;

use trial::{Loaded, Trial};

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its interface and limits.
    pub target: GpuTarget,
    /// Its name as the driver tells it.
    pub name: String,
    /// The driver and its version.
    pub driver: String,
}

impl GpuInfo {
    /// Name and driver, as records tell them.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.driver)
    }
}

/// The GPU of this machine that a word means: `cuda` the first CUDA device, `cuda:sm_90` the first of that compute capability,
/// `opencl` the first OpenCL device that is a GPU, else the first. For CUDA a compiler for it must be there, too.
pub fn find(word: &str) -> Result<GpuInfo, MeasureError> {
    let absent = |message: String| MeasureError::Device { message };
    if word == "opencl" {
        return opencl::devices().map_err(absent)?.into_iter().next().ok_or_else(|| absent(opencl::NO_DEVICE.into()));
    }
    let devices = cuda::devices().map_err(absent)?;
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

/// A GPU.
pub(crate) trait Device {
    /// Loaded code.
    type Module;
    /// Bytes on the device.
    type Memory;

    fn load(&self, code: &Code, plan: &KernelPlan) -> Result<Self::Module, CandidateError>;
    /// Memory that holds `content`.
    fn upload(&self, content: &[u8]) -> Result<Self::Memory, CandidateError>;
    /// Writes to the beginning of the memory.
    fn write(&self, memory: &mut Self::Memory, content: &[u8]) -> Result<(), CandidateError>;
    /// Reads from the beginning of the memory.
    fn read(&self, memory: &Self::Memory, content: &mut [u8]) -> Result<(), CandidateError>;
    /// Starts stage `number` of the module's plan on its global buffers.
    fn launch(&self, module: &Self::Module, number: usize, buffers: &mut [Self::Memory]) -> Result<(), CandidateError>;
    /// Seconds of the device for what `work` starts, which is done when this returns.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), CandidateError>) -> Result<f64, CandidateError>;
}

/// An open GPU, whatever its interface.
pub(crate) trait Gpu {
    /// A kernel with its operands, what runs ahead of time done.
    fn load(&self, problem: &mut Problem, built: &Built, cold: bool) -> Result<Box<dyn Loaded>, CandidateError>;
    /// Measures what the device can do.
    fn ceilings(&self) -> Result<Ceilings, CandidateError>;
    /// True if the device still holds what it is given: a kernel that touched memory which is not its own may have ended that, one
    /// that was refused or is wrong has not.
    fn is_well(&self) -> bool;
}

struct Open<D> {
    device: Rc<D>,
    target: GpuTarget,
}

impl<D: Device + 'static> Gpu for Open<D> {
    fn load(&self, problem: &mut Problem, built: &Built, cold: bool) -> Result<Box<dyn Loaded>, CandidateError> {
        let cold_bytes = if cold { 2 * self.target.l2_bytes } else { 0 };
        Ok(Box::new(Trial::new(Rc::clone(&self.device), problem, built, cold_bytes)?))
    }

    fn ceilings(&self) -> Result<Ceilings, CandidateError> {
        ceilings::measure(&*self.device, &self.target)
    }

    fn is_well(&self) -> bool {
        let (content, mut found) = ([0xa5; 64], [0; 64]);
        let memory = self.device.upload(&content);
        let read = memory.and_then(|memory| self.device.read(&memory, &mut found));
        read.is_ok() && found == content
    }
}

/// Opens the device of this machine that the target describes; one that is stated, any of its interface and compute
/// capability.
pub(crate) fn open(target: &GpuTarget) -> Result<Box<dyn Gpu>, MeasureError> {
    let target = target.clone();
    let opened: Result<Box<dyn Gpu>, String> = match target.api {
        GpuApi::Cuda { .. } => cuda::CudaDevice::open(&target)
            .map(|device| Box::new(Open { device: Rc::new(device), target }) as Box<dyn Gpu>),
        GpuApi::OpenCl => opencl::OpenClDevice::open(&target)
            .map(|device| Box::new(Open { device: Rc::new(device), target }) as Box<dyn Gpu>),
    };
    opened.map_err(|message| MeasureError::Device { message })
}

/// True if the device that `found` describes is one that `wanted` means.
fn is_meant(wanted: &GpuTarget, found: &GpuTarget) -> bool {
    wanted.api == found.api && (wanted.is_stated() || wanted.model == found.model)
}

/// A device's name as a target's model.
fn model(name: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    name.trim().chars().map(word).collect()
}
