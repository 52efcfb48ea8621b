//! GPUs: which there are, and kernels on them.
//!
//! CUDA goes through the driver and NVRTC, OpenCL through its loader; each is found at run time. `AUTOTUNE_NVRTC` can name the
//! folder of `libnvrtc.so.*`: in the Python package `nvidia-cuda-nvrtc-cu12` that is `nvidia/cuda_nvrtc/lib`, in `nvidia-cuda-nvrtc`,
//! whose version 13 compiles for no device older than compute capability 7.5, `nvidia/cu13/lib`.
//!
//! A kernel runs in the process that loads it without protection: one that hangs keeps it waiting, and one that touches memory
//! that is not its own may make a CUDA device useless to it. [`crate::WorkerMeasurer`] keeps that to a worker process.

use std::rc::Rc;

use autotune_ir::{GpuApi, GpuTarget, KernelPlan};

use crate::builder::{Built, Code};
use crate::ceilings::Ceilings;
use crate::measurement::{CandidateError, MeasureError};
use crate::problem::Problem;

pub(crate) mod ceilings;
mod checks;
pub mod cuda;
pub mod driver;
pub mod nvrtc;
pub mod opencl;
mod replays;
mod resident;
mod tensor_map;
pub(crate) mod trial;

use resident::Resident;
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

/// A GPU. What is started runs in the order in which it was started; reading waits for what was started before.
pub(crate) trait Device {
    /// Loaded code.
    type Module;
    /// Bytes on the device.
    type Memory;
    /// A stage of a module on its buffers, ready to be started.
    type Call;
    /// Calls that were recorded and are started as one.
    type Recording;

    fn load(&self, code: &Code, plan: &KernelPlan) -> Result<Self::Module, CandidateError>;
    /// Memory of so many bytes, which hold anything.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, CandidateError>;
    /// Sets the first `words` 32-bit words of the memory.
    fn fill(&self, memory: &Self::Memory, words: usize, word: u32) -> Result<(), CandidateError>;
    /// Writes from a byte of the memory on.
    fn write(&self, memory: &Self::Memory, first_byte: usize, content: &[u8]) -> Result<(), CandidateError>;
    /// Reads from a byte of the memory on.
    fn read(&self, memory: &Self::Memory, first_byte: usize, content: &mut [u8]) -> Result<(), CandidateError>;
    /// Copies the first bytes of one memory to another.
    fn copy(&self, from: &Self::Memory, to: &Self::Memory, bytes: usize) -> Result<(), CandidateError>;
    /// Stage `number` of the module's plan on its global buffers.
    fn bind(
        &self,
        module: &Self::Module,
        number: usize,
        buffers: &[Rc<Self::Memory>],
    ) -> Result<Self::Call, CandidateError>;
    fn start(&self, call: &Self::Call) -> Result<(), CandidateError>;
    /// What `work` starts, recorded instead of started; `None` if the device cannot do that.
    fn record(&self, work: &mut dyn FnMut() -> Result<(), CandidateError>) -> Option<Self::Recording>;
    fn replay(&self, recording: &Self::Recording) -> Result<(), CandidateError>;
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

struct Open<D: Device> {
    device: Rc<D>,
    target: GpuTarget,
    resident: Rc<Resident<D>>,
}

impl<D: Device + 'static> Open<D> {
    fn boxed(device: D, target: GpuTarget) -> Result<Box<dyn Gpu>, String> {
        let device = Rc::new(device);
        let resident = Resident::new(Rc::clone(&device), &target)
            .map_err(|e| format!("the kernels that check outputs cannot be loaded: {e}"))?;
        Ok(Box::new(Self { device, target, resident: Rc::new(resident) }))
    }
}

impl<D: Device + 'static> Gpu for Open<D> {
    fn load(&self, problem: &mut Problem, built: &Built, cold: bool) -> Result<Box<dyn Loaded>, CandidateError> {
        let cold_bytes = if cold { 2 * self.target.l2_bytes } else { 0 };
        Ok(Box::new(Trial::new(Rc::clone(&self.resident), problem, built, cold_bytes)?))
    }

    fn ceilings(&self) -> Result<Ceilings, CandidateError> {
        ceilings::measure(&self.device, &self.target)
    }

    fn is_well(&self) -> bool {
        let (content, mut found) = ([0xa5; 64], [0; 64]);
        let held = self.device.allocate(content.len()).and_then(|memory| {
            self.device.write(&memory, 0, &content)?;
            self.device.read(&memory, 0, &mut found)
        });
        held.is_ok() && found == content
    }
}

/// Opens the device of this machine that the target describes; one that is stated, any of its interface and compute
/// capability.
pub(crate) fn open(target: &GpuTarget) -> Result<Box<dyn Gpu>, MeasureError> {
    let target = target.clone();
    let opened: Result<Box<dyn Gpu>, String> = match target.api {
        GpuApi::Cuda { .. } => cuda::CudaDevice::open(&target).and_then(|device| Open::boxed(device, target)),
        GpuApi::OpenCl => opencl::OpenClDevice::open(&target).and_then(|device| Open::boxed(device, target)),
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

/// Says that a test is skipped for want of a tool; a failure where `AUTOTUNE_REQUIRE` has the tool.
#[cfg(test)]
fn missing(tool: &str, reason: &str) {
    let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    eprintln!("skipped, {tool} is missing: {reason}");
}
