//! Measures GPU kernels in the calling process.
//!
//! CUDA goes through the driver and NVRTC, OpenCL through its loader; each is found at run time. `AUTOTUNE_NVRTC` can name the
//! folder of `libnvrtc.so.*` (in the Python package `nvidia-cuda-nvrtc`: `nvidia/cu13/lib`).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Instant;

use autotune_schedules::codegen::gpu::generate;
use autotune_schedules::{GpuTarget, KernelPlan, Target, Workload, lower, tolerance};
use rayon::prelude::*;

use crate::measurement::{Candidate, CandidateError, MeasureError, Measurement, Measurer, RunSecs};
use crate::options::TimingOptions;
use crate::problem::Problem;

pub mod cuda;
pub mod opencl;
mod tensor_map;
mod trial;

use trial::Trial;

/// Candidates that are built before the first of them is run.
const BUILDS_AT_ONCE: usize = 64;

/// A kernel's code, ready to be loaded, and its interface.
pub(crate) struct Code {
    workload: Workload,
    plan: KernelPlan,
    /// Largest relative error that is right.
    tolerance: f64,
    bytes: Vec<u8>,
}

/// What turns source into code, on any thread.
#[derive(Clone, Copy)]
pub(crate) enum Compiler {
    /// NVRTC, for a compute capability times ten.
    Nvrtc { sm: u32 },
    /// The device itself, when the code is loaded.
    AtLoad,
}

impl Compiler {
    fn compile(self, source: &str) -> Result<Vec<u8>, CandidateError> {
        match self {
            Compiler::Nvrtc { sm } => cuda::compile(source, sm).map(|compiled| compiled.cubin),
            Compiler::AtLoad => Ok(source.as_bytes().to_vec()),
        }
    }
}

/// A GPU.
pub(crate) trait Device {
    /// Loaded code.
    type Module;
    /// 32-bit words on the device.
    type Memory;

    fn compiler(&self) -> Compiler;
    fn load(&self, code: &[u8], plan: &KernelPlan) -> Result<Self::Module, CandidateError>;
    /// Memory that holds `values`.
    fn upload(&self, values: &[f32]) -> Result<Self::Memory, CandidateError>;
    fn write(&self, memory: &mut Self::Memory, values: &[f32]) -> Result<(), CandidateError>;
    fn read(&self, memory: &Self::Memory, values: &mut [f32]) -> Result<(), CandidateError>;
    /// Starts stage `number` of the module's plan on its global buffers.
    fn launch(&self, module: &Self::Module, number: usize, buffers: &mut [Self::Memory]) -> Result<(), CandidateError>;
    /// Seconds of the device for what `work` starts, which is done when this returns.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), CandidateError>) -> Result<f64, CandidateError>;
    /// Whether the device still does what it is told, or what it says instead.
    fn ping(&self) -> Result<(), String>;
}

/// A device with the operands of workloads.
trait Bench {
    fn compiler(&self) -> Compiler;
    fn time(&mut self, code: &Code, timing: &TimingOptions, incumbent: Option<f64>) -> Result<RunSecs, CandidateError>;
    fn race(&mut self, codes: &[&Code], timing: &TimingOptions) -> Vec<Result<RunSecs, CandidateError>>;
    fn ping(&self) -> Result<(), String>;
}

struct On<D> {
    device: D,
    /// Of the last workload: candidates of a workload come in batches.
    problem: Option<(Workload, Problem)>,
}

impl<D: Device> On<D> {
    fn trial(&mut self, code: &Code) -> Result<Trial<'_, D>, CandidateError> {
        let known = self.problem.take_if(|(workload, _)| *workload == code.workload);
        let known = known.unwrap_or_else(|| (code.workload, Problem::new(&code.workload)));
        Trial::new(&self.device, &mut self.problem.insert(known).1, code)
    }
}

impl<D: Device> Bench for On<D> {
    fn compiler(&self) -> Compiler {
        self.device.compiler()
    }

    fn time(&mut self, code: &Code, timing: &TimingOptions, incumbent: Option<f64>) -> Result<RunSecs, CandidateError> {
        self.trial(code)?.measure(timing, incumbent)
    }

    fn race(&mut self, codes: &[&Code], timing: &TimingOptions) -> Vec<Result<RunSecs, CandidateError>> {
        let mut problems: HashMap<Workload, Problem> = HashMap::new();
        let mut trial = |code: &Code| {
            let problem = problems.entry(code.workload).or_insert_with(|| Problem::new(&code.workload));
            Trial::new(&self.device, problem, code)
        };
        let trials = codes.iter().map(|code| trial(code)).collect();
        trial::race(trials, timing)
    }

    fn ping(&self) -> Result<(), String> {
        self.device.ping()
    }
}

/// Measures candidates on a GPU of this machine: builds in parallel, runs one by one, checks each against the reference
/// before and after its time is taken.
///
/// There is no protection: a kernel that hangs keeps the process waiting, and one that touches memory that is not its own may
/// make a CUDA device useless to the process, which is [`MeasureError::Device`]. Wrong results and writes just behind the
/// buffers are found. Caches are as warm as a kernel leaves them ([`TimingOptions::cold`] has no effect).
pub struct GpuMeasurer {
    target: Target,
    bench: Box<dyn Bench>,
    timing: TimingOptions,
    incumbents: HashMap<Workload, f64>,
}

impl GpuMeasurer {
    /// A measurer on CUDA device `ordinal`.
    pub fn cuda(ordinal: usize, timing: TimingOptions) -> Result<Self, MeasureError> {
        let device = cuda::CudaDevice::open(ordinal).map_err(|message| MeasureError::Device { message })?;
        Ok(Self::with(device.target().clone(), device, timing))
    }

    /// A measurer on OpenCL device `ordinal`, counted over all platforms.
    pub fn opencl(ordinal: usize, timing: TimingOptions) -> Result<Self, MeasureError> {
        let device = opencl::OpenClDevice::open(ordinal).map_err(|message| MeasureError::Device { message })?;
        Ok(Self::with(device.target().clone(), device, timing))
    }

    fn with(target: GpuTarget, device: impl Device + 'static, timing: TimingOptions) -> Self {
        let bench = Box::new(On { device, problem: None });
        Self { target: Target::Gpu(target), bench, timing, incumbents: HashMap::new() }
    }

    /// The device, with its own limits.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Code of the candidates, and the seconds that lowering and compiling took.
    fn build(&self, candidates: &[Candidate]) -> Vec<(Result<Code, CandidateError>, f64)> {
        let compiler = self.bench.compiler();
        let build = |candidate: &Candidate| {
            let start = Instant::now();
            let code = build(candidate, compiler);
            (code, start.elapsed().as_secs_f64())
        };
        candidates.par_iter().map(build).collect()
    }

    /// An error if the device is of no use any more.
    fn check_device(&self) -> Result<(), MeasureError> {
        self.bench.ping().map_err(|message| MeasureError::Device { message })
    }

    fn time(&mut self, code: &Code) -> Result<Result<RunSecs, CandidateError>, MeasureError> {
        let incumbent = self.incumbents.get(&code.workload).copied();
        let outcome = self.bench.time(code, &self.timing, incumbent);
        match &outcome {
            Ok(run) if incumbent.is_none_or(|secs| run.run_secs < secs) => {
                self.incumbents.insert(code.workload, run.run_secs);
            }
            Ok(_) => {}
            Err(_) => self.check_device()?,
        }
        Ok(outcome)
    }
}

fn build(candidate: &Candidate, compiler: Compiler) -> Result<Code, CandidateError> {
    let Some(gpu) = candidate.target.gpu() else {
        return Err(CandidateError::Lower { message: format!("{} is no GPU", candidate.target) });
    };
    let program = lower(&candidate.workload, &candidate.target, &candidate.config)
        .map_err(|e| CandidateError::Lower { message: e.to_string() })?;
    let bytes = compiler.compile(&generate(&program, gpu.api))?;
    let (plan, tolerance) = (KernelPlan::of(&program), tolerance(&candidate.workload, &candidate.config));
    Ok(Code { workload: candidate.workload, plan, tolerance, bytes })
}

impl Measurer for GpuMeasurer {
    fn measure(
        &mut self,
        candidates: &[Candidate],
        on_result: &mut dyn FnMut(usize, Measurement) -> ControlFlow<()>,
    ) -> Result<(), MeasureError> {
        let mut index = 0;
        for candidates in candidates.chunks(BUILDS_AT_ONCE) {
            for (code, build_secs) in self.build(candidates) {
                let start = Instant::now();
                let outcome = match code {
                    Ok(code) => self.time(&code)?,
                    Err(error) => Err(error),
                };
                let measure_secs = start.elapsed().as_secs_f64();
                if on_result(index, Measurement { outcome, toolchain: None, build_secs, measure_secs }).is_break() {
                    return Ok(());
                }
                index += 1;
            }
        }
        Ok(())
    }

    fn race(&mut self, candidates: &[Candidate]) -> Result<Vec<Measurement>, MeasureError> {
        if candidates.windows(2).any(|pair| pair[0].target != pair[1].target) {
            return Err(MeasureError::MixedTargets);
        }
        let builds = self.build(candidates);
        let codes: Vec<&Code> = builds.iter().filter_map(|(code, _)| code.as_ref().ok()).collect();
        let start = Instant::now();
        let mut outcomes = self.bench.race(&codes, &self.timing).into_iter();
        self.check_device()?;
        let measure_secs = start.elapsed().as_secs_f64() / codes.len().max(1) as f64;
        let nothing = || Err(CandidateError::Crash { message: "the race gave no result".into() });
        let measurement = |(code, build_secs): &(Result<Code, CandidateError>, f64)| match code {
            Ok(_) => {
                let outcome = outcomes.next().unwrap_or_else(nothing);
                Measurement { outcome, toolchain: None, build_secs: *build_secs, measure_secs }
            }
            Err(error) => {
                let outcome = Err(error.clone());
                Measurement { outcome, toolchain: None, build_secs: *build_secs, measure_secs: 0.0 }
            }
        };
        Ok(builds.iter().map(measurement).collect())
    }
}
