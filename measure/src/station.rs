//! A device of any kind (CPU, CUDA or OpenCL) that is open in this process, on which kernels are
//! loaded, checked and timed.

use std::collections::HashMap;
use std::rc::Rc;

use autotune_ir::{GpuApi, GpuTarget, KernelPlan, Target};
use autotune_measurement::{CandidateError, RunSecs};
use autotune_runtime::{Cpu, CudaDevice, Device, DeviceError, OpenClDevice, bytes_of, bytes_of_mut};
use autotune_workloads::Workload;

use crate::built::Built;
use crate::ceilings::{self, Ceilings};
use crate::checks::{Checks, HostChecks, KernelChecks};
use crate::error::MeasureError;
use crate::loaded::LoadedKernel;
use crate::options::TimingOptions;
use crate::problem::TestProblem;
use crate::race::race;
use crate::reference_kernels::ReferenceKernels;
use crate::resident::Resident;
use crate::timing;
use crate::trial::{self, Trial};

/// Limits in bytes of cached tensors in the memory of a GPU, and in that of the host.
const GPU_BYTES: usize = 4 << 30;
const HOST_BYTES: usize = 1 << 30;

/// Result of measuring a kernel.
pub(crate) type Outcome = Result<RunSecs, CandidateError>;

/// Device with the data that stays on it between candidates.
pub(crate) trait Station {
    /// Loads a kernel with its operands.
    ///
    /// # Safety
    ///
    /// Here and below, the code runs in this process: see [`autotune_runtime::Kernel::load`].
    unsafe fn load(&self, problem: &TestProblem, built: &Built) -> Result<Box<dyn LoadedKernel>, CandidateError>;

    /// Checks and times a kernel.
    ///
    /// # Safety
    ///
    /// As [`Station::load`].
    unsafe fn time(
        &mut self,
        problem: &TestProblem,
        built: &Built,
        timing: &TimingOptions,
        incumbent_secs: Option<f64>,
    ) -> Outcome;

    /// Checks kernels and races them ([`race()`]). `problems` has the problems of all their
    /// workloads. Returns one outcome per kernel.
    ///
    /// # Safety
    ///
    /// As [`Station::load`].
    unsafe fn race(
        &mut self,
        problems: &HashMap<Workload, TestProblem>,
        built: &[Built],
        timing: &TimingOptions,
        budget_secs: f64,
    ) -> Vec<Outcome>;

    /// Measures the peak rates of the device.
    fn ceilings(&self) -> Result<Ceilings, MeasureError>;

    /// Returns the bytes of host memory that a kernel's buffers need: 0 if they are on a GPU,
    /// `None` on overflow.
    fn host_bytes(&self, plan: &KernelPlan) -> Option<usize>;

    /// Returns true if kernels with these outcomes may have left the process or device in a state
    /// that affects later kernels.
    fn is_spoilt(&self, outcomes: &[Outcome]) -> bool;

    /// Returns the bytes of cached operands and outputs.
    fn bytes(&self) -> usize;

    /// Drops the cached data of a workload; it is made again when needed.
    fn forget(&mut self, workload: &Workload);
}

struct Open<D: Device> {
    resident: Rc<Resident<D>>,
    reference_kernels: ReferenceKernels<Trial<D>>,
    target: Target,
}

impl<D: Device + 'static> Open<D> {
    fn boxed(device: D, checks: Box<dyn Checks<D>>, target: &Target, bytes: usize) -> Box<dyn Station> {
        let resident = Rc::new(Resident::new(device, checks, bytes));
        Box::new(Self { resident, reference_kernels: ReferenceKernels::default(), target: target.clone() })
    }

    /// Wraps a GPU whose outputs are checked by kernels on the GPU.
    fn gpu(device: Result<D, DeviceError>, gpu: &GpuTarget, target: &Target) -> Result<Box<dyn Station>, MeasureError> {
        let absent = |message: String| MeasureError::Device { message };
        let device = device.map_err(|e| absent(e.to_string()))?;
        let checks = KernelChecks::new(&device, gpu)
            .map_err(|e| absent(format!("cannot load the kernels that check outputs: {e}")))?;
        Ok(Self::boxed(device, Box::new(checks), target, GPU_BYTES))
    }

    /// Returns true if the device still stores and returns data correctly. A kernel that accessed
    /// memory outside its buffers may have made a CUDA context unusable; one that failed to load or
    /// gave a wrong result has not.
    fn is_healthy(&self) -> bool {
        let device = &self.resident.device;
        let (content, mut found) = ([0xa5a5_a5a5u32; 16], [0; 16]);
        let held = device.allocate(size_of_val(&content)).and_then(|mut memory| {
            device.write(&mut memory, 0, bytes_of(&content))?;
            device.read(&memory, 0, bytes_of_mut(&mut found))
        });
        held.is_ok() && found == content
    }
}

impl<D: Device + 'static> Station for Open<D> {
    unsafe fn load(&self, problem: &TestProblem, built: &Built) -> Result<Box<dyn LoadedKernel>, CandidateError> {
        // SAFETY: the caller guarantees that the code is fit to run.
        Ok(Box::new(unsafe { Trial::new(&self.resident, problem, built) }?))
    }

    unsafe fn time(
        &mut self,
        problem: &TestProblem,
        built: &Built,
        timing: &TimingOptions,
        incumbent_secs: Option<f64>,
    ) -> Outcome {
        // SAFETY: the caller guarantees that the code is fit to run.
        let mut trial = unsafe { Trial::new(&self.resident, problem, built) }?;
        // A reference kernel detects a machine slowed down by other programs, which are assumed not
        // to use the GPU.
        if !self.resident.is_host() {
            let outcome = timing::measure(&mut trial, timing, incumbent_secs, None);
            trial.give_back();
            return outcome.map(|timing| timing.run);
        }
        let (outcome, spare) = self.reference_kernels.measure(&built.workload, trial, timing, incumbent_secs);
        spare.into_iter().for_each(Trial::give_back);
        outcome
    }

    unsafe fn race(
        &mut self,
        problems: &HashMap<Workload, TestProblem>,
        built: &[Built],
        timing: &TimingOptions,
        budget_secs: f64,
    ) -> Vec<Outcome> {
        let trial = |built: &Built| {
            let missing = || CandidateError::Lower { message: "its workload was not prepared".into() };
            let problem = problems.get(&built.workload).ok_or_else(missing)?;
            // SAFETY: the caller guarantees that the code is fit to run.
            unsafe { Trial::new(&self.resident, problem, built) }
        };
        race(built.iter().map(trial).collect(), timing, budget_secs)
    }

    fn ceilings(&self) -> Result<Ceilings, MeasureError> {
        let fault = |error: CandidateError| MeasureError::Ceilings { message: error.to_string() };
        match &self.target {
            Target::Cpu(_) => Ceilings::measure(&self.target),
            Target::Gpu(gpu) => ceilings::gpu::measure(&self.resident.device, gpu).map_err(fault),
        }
    }

    fn host_bytes(&self, plan: &KernelPlan) -> Option<usize> {
        match self.resident.is_host() {
            true => trial::needed_bytes(&self.resident.device, plan),
            false => Some(0),
        }
    }

    fn is_spoilt(&self, outcomes: &[Outcome]) -> bool {
        if self.resident.is_host() {
            return !outcomes.iter().all(is_harmless);
        }
        let is_stray = |outcome: &Outcome| matches!(outcome, Err(CandidateError::StrayWrite { .. }));
        outcomes.iter().any(is_stray) || (outcomes.iter().any(|outcome| outcome.is_err()) && !self.is_healthy())
    }

    fn bytes(&self) -> usize {
        self.resident.bytes()
    }

    fn forget(&mut self, workload: &Workload) {
        self.resident.forget(workload);
    }
}

/// Returns true if the process can run further kernels: the kernel ran correctly, or was never run.
fn is_harmless(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(_) | Err(CandidateError::Lower { .. } | CandidateError::Build { .. }))
}

/// Opens the device of this machine that the target describes. For a GPU target that was stated,
/// not detected, any device of its API and compute capability is opened.
pub(crate) fn open(target: &Target) -> Result<Box<dyn Station>, MeasureError> {
    match target {
        Target::Cpu(cpu) => Ok(Open::boxed(Cpu::pinned(cpu.threads), Box::new(HostChecks), target, HOST_BYTES)),
        Target::Gpu(gpu) => match gpu.api {
            GpuApi::Cuda { .. } => Open::gpu(CudaDevice::open(gpu), gpu, target),
            GpuApi::OpenCl => Open::gpu(OpenClDevice::open(gpu), gpu, target),
        },
    }
}
