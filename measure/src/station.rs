//! An open device, whatever it is, on which kernels are loaded, checked and timed.

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
use crate::loaded::Loaded;
use crate::options::TimingOptions;
use crate::problem::Problem;
use crate::race::race;
use crate::reference_kernels::ReferenceKernels;
use crate::resident::Resident;
use crate::timing;
use crate::trial::{self, Trial};

/// Most bytes of tensors that stay in the memory of a GPU, and in that of the host.
const GPU_BYTES: usize = 4 << 30;
const HOST_BYTES: usize = 1 << 30;

/// What became of a kernel.
pub(crate) type Outcome = Result<RunSecs, CandidateError>;

/// A device with what stays on it.
pub(crate) trait Station {
    /// A kernel with its operands.
    ///
    /// # Safety
    ///
    /// Here and below, the code runs in this process: see [`autotune_runtime::Kernel::load`].
    unsafe fn load(&self, problem: &Problem, built: &Built) -> Result<Box<dyn Loaded>, CandidateError>;

    /// Checks and times a kernel.
    ///
    /// # Safety
    ///
    /// As [`Station::load`].
    unsafe fn time(
        &mut self,
        problem: &Problem,
        built: &Built,
        timing: &TimingOptions,
        incumbent_secs: Option<f64>,
    ) -> Outcome;

    /// Checks kernels, whose problems are among those given, and times them in turns; one outcome
    /// each.
    ///
    /// # Safety
    ///
    /// As [`Station::load`].
    unsafe fn race(
        &mut self,
        problems: &HashMap<Workload, Problem>,
        built: &[Built],
        timing: &TimingOptions,
        budget_secs: f64,
    ) -> Vec<Outcome>;

    /// What the device can do at best.
    fn ceilings(&self) -> Result<Ceilings, MeasureError>;

    /// Bytes of the host that the buffers of a kernel need; 0 if they are the device's, `None` if
    /// there is no such number.
    fn host_bytes(&self, plan: &KernelPlan) -> Option<usize>;

    /// True if kernels that ended like this may have left something behind that harms the next.
    fn is_spoilt(&self, outcomes: &[Outcome]) -> bool;

    /// Bytes of the operands and outputs that stay.
    fn bytes(&self) -> usize;

    /// Drops what stays of a workload; it can be made again.
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

    /// A GPU, checked by kernels of its own.
    fn gpu(device: Result<D, DeviceError>, gpu: &GpuTarget, target: &Target) -> Result<Box<dyn Station>, MeasureError> {
        let absent = |message: String| MeasureError::Device { message };
        let device = device.map_err(|e| absent(e.to_string()))?;
        let checks = KernelChecks::new(&device, gpu)
            .map_err(|e| absent(format!("the kernels that check outputs cannot be loaded: {e}")))?;
        Ok(Self::boxed(device, Box::new(checks), target, GPU_BYTES))
    }

    /// True if the device still holds what it is given: a kernel that touched memory which is not
    /// its own may have ended that, one that was refused or is wrong has not.
    fn is_well(&self) -> bool {
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
    unsafe fn load(&self, problem: &Problem, built: &Built) -> Result<Box<dyn Loaded>, CandidateError> {
        // SAFETY: the caller's promise.
        Ok(Box::new(unsafe { Trial::new(&self.resident, problem, built) }?))
    }

    unsafe fn time(
        &mut self,
        problem: &Problem,
        built: &Built,
        timing: &TimingOptions,
        incumbent_secs: Option<f64>,
    ) -> Outcome {
        // SAFETY: the caller's promise.
        let mut trial = unsafe { Trial::new(&self.resident, problem, built) }?;
        // A GPU has nobody beside us.
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
        problems: &HashMap<Workload, Problem>,
        built: &[Built],
        timing: &TimingOptions,
        budget_secs: f64,
    ) -> Vec<Outcome> {
        let trial = |built: &Built| {
            let missing = || CandidateError::Lower { message: "its workload has no operands".into() };
            let problem = problems.get(&built.workload).ok_or_else(missing)?;
            // SAFETY: the caller's promise.
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
        outcomes.iter().any(is_stray) || (outcomes.iter().any(|outcome| outcome.is_err()) && !self.is_well())
    }

    fn bytes(&self) -> usize {
        self.resident.bytes()
    }

    fn forget(&mut self, workload: &Workload) {
        self.resident.forget(workload);
    }
}

/// True for the outcome of a kernel that ran well, or not at all: the process can run others.
fn is_harmless(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(_) | Err(CandidateError::Lower { .. } | CandidateError::Build { .. }))
}

/// Opens the device of this machine that the target describes; of GPUs that are stated, any of its
/// interface and compute capability.
pub(crate) fn open(target: &Target) -> Result<Box<dyn Station>, MeasureError> {
    match target {
        Target::Cpu(cpu) => Ok(Open::boxed(Cpu::pinned(cpu.threads), Box::new(HostChecks), target, HOST_BYTES)),
        Target::Gpu(gpu) => match gpu.api {
            GpuApi::Cuda { .. } => Open::gpu(CudaDevice::open(gpu), gpu, target),
            GpuApi::OpenCl => Open::gpu(OpenClDevice::open(gpu), gpu, target),
        },
    }
}
