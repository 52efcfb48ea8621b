//! From candidates to code, in parallel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use autotune_schedules::codegen::x86::{AssembleError, MachineCode, assemble};
use autotune_schedules::codegen::{c, gpu};
use autotune_schedules::{EXACT_TOLERANCE, GpuApi, KernelPlan, Target, Workload, lower, tolerance};
use rayon::prelude::*;

use crate::compiler::Compiler;
use crate::gpu::cuda;
use crate::libraries::{Libraries, Source};
use crate::measurement::{Candidate, CandidateError, MeasureError, Resources, Toolchain};
use crate::options::Backend;
use crate::process::duration;

/// A kernel's code.
#[derive(Clone, Debug, PartialEq)]
pub enum Code {
    /// In a shared object, under the names of the plan's stages.
    Library(PathBuf),
    /// In hand, one entry per stage of the plan.
    Machine(MachineCode),
    /// Of a CUDA device, under the names of the plan's stages.
    Cubin(Vec<u8>),
    /// Source that the OpenCL device compiles when it loads it.
    OpenCl(String),
}

/// A candidate's code, ready to be loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// What it computes.
    pub workload: Workload,
    /// The machine it is made for.
    pub target: Target,
    /// Its interface.
    pub plan: KernelPlan,
    /// The relative error that its output may have, [`tolerance`].
    pub tolerance: f64,
    /// The code.
    pub code: Code,
}

/// The outcome of building one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    /// The code, or why there is none.
    pub outcome: Result<Built, CandidateError>,
    /// What made it; `None` if it was not lowered.
    pub toolchain: Option<Toolchain>,
    /// What it takes of a GPU, where the compiler tells.
    pub resources: Option<Resources>,
    /// Wall-clock seconds of lowering, code generation and compiler; the compiler's part is 0 for a source that was
    /// built before.
    pub build_secs: f64,
}

/// Builds candidates for CPUs with the assembler of their instruction set, or with the machine's C compiler, which is looked for
/// when it is first needed, and candidates for CUDA devices with NVRTC. Files that the compiler made live as long as the builder.
pub struct Builder {
    backend: Backend,
    limit: Duration,
    libraries: Option<Libraries>,
}

/// A lowered candidate on its way to code.
struct Draft {
    plan: KernelPlan,
    content: Content,
}

enum Content {
    Ready(Ready),
    /// To be compiled; why it was not assembled, if that was tried.
    Source(Source, Option<AssembleError>),
}

/// Code, what made it and what it takes of a GPU.
struct Ready {
    code: Code,
    toolchain: Toolchain,
    resources: Option<Resources>,
}

impl Builder {
    /// A builder that gives the compiler, where it is used, `limit_secs` of wall-clock time for each candidate.
    pub fn new(backend: Backend, limit_secs: f64) -> Self {
        Self { backend, limit: duration(limit_secs), libraries: None }
    }

    /// The C compiler, found now if it was not needed before.
    pub fn compiler(&mut self) -> Result<&Compiler, MeasureError> {
        Ok(self.libraries()?.compiler())
    }

    /// The outcome for each candidate, in order. Every core is used; equal sources are compiled once.
    ///
    /// It is an error if a candidate needs a C compiler by the choice of backend or for its instruction set, and there
    /// is none. A candidate that needs one only because the assembler cannot express it fails alone.
    pub fn build(&mut self, candidates: &[Candidate]) -> Result<Vec<Build>, MeasureError> {
        let backend = self.backend;
        let drafts: Vec<_> = candidates.par_iter().map(|c| timed(|| draft(c, backend))).collect();
        let mut compiled = self.compile(drafts.iter().filter_map(|(d, _)| d.as_ref().ok()))?.into_iter();
        let finish = |(candidate, (draft, secs)): (&Candidate, (Result<Draft, CandidateError>, f64))| {
            let (plan, content) = match draft {
                Ok(Draft { plan, content }) => (plan, content),
                Err(error) => return Build { outcome: Err(error), toolchain: None, resources: None, build_secs: secs },
            };
            let mut resources = None;
            let (code, toolchain, compile_secs) = match content {
                Content::Ready(Ready { code, toolchain, resources: taken }) => {
                    resources = taken;
                    (Ok(code), Some(toolchain), 0.0)
                }
                Content::Source(..) => {
                    let missing = (Err(CandidateError::Build { message: "it was not compiled".into() }), 0.0);
                    let (library, compile_secs) = compiled.next().unwrap_or(missing);
                    let compiler = self.libraries.as_ref().map(Libraries::compiler);
                    (library.map(Code::Library), compiler.map(Toolchain::c), compile_secs)
                }
            };
            let Candidate { workload, target, config } = candidate;
            let (target, tolerance) = (target.clone(), tolerance(workload, config));
            let outcome = code.map(|code| Built { workload: *workload, target, plan, tolerance, code });
            Build { outcome, toolchain, resources, build_secs: secs + compile_secs }
        };
        Ok(candidates.iter().zip(drafts).map(finish).collect())
    }

    /// Compiles source for a plan written by hand, C or the target's dialect: the seam through which tests bring broken kernels.
    pub fn build_source(
        &mut self,
        workload: &Workload,
        target: &Target,
        plan: &KernelPlan,
        source: &str,
    ) -> Result<Built, CandidateError> {
        let code = match target.gpu() {
            Some(gpu) => gpu_code(source.to_string(), gpu.api, plan)?.code,
            None => Code::Library(self.build_library(source)?),
        };
        let (target, plan) = (target.clone(), plan.clone());
        Ok(Built { workload: *workload, target, plan, tolerance: EXACT_TOLERANCE, code })
    }

    fn build_library(&mut self, source: &str) -> Result<PathBuf, CandidateError> {
        let no_compiler = |e: MeasureError| CandidateError::Build { message: e.to_string() };
        let source = Source::new(source.to_string());
        let built = self.libraries().map_err(no_compiler)?.compile(&[&source]).pop();
        let missing = || Err(CandidateError::Build { message: "it was not compiled".into() });
        built.map_or_else(missing, |(library, _)| library)
    }

    /// The libraries of those drafts that are sources, in their order, and the compiler's seconds for each.
    fn compile<'a>(&mut self, drafts: impl Iterator<Item = &'a Draft>) -> Result<Vec<Library>, MeasureError> {
        let source = |draft: &'a Draft| match &draft.content {
            Content::Source(source, why) => Some((source, why)),
            Content::Ready(_) => None,
        };
        let (sources, reasons): (Vec<_>, Vec<_>) = drafts.filter_map(source).unzip();
        if sources.is_empty() {
            return Ok(Vec::new());
        }
        let alone = |why: &&Option<AssembleError>| !matches!(why, None | Some(AssembleError::Isa(_)));
        match self.libraries() {
            Ok(libraries) => Ok(libraries.compile(&sources)),
            Err(error) if reasons.iter().all(alone) => {
                let failed = |why: &Option<AssembleError>| {
                    let why = why.as_ref().map_or(String::new(), AssembleError::to_string);
                    (Err(CandidateError::Build { message: format!("{why}; {error}") }), 0.0)
                };
                Ok(reasons.into_iter().map(failed).collect())
            }
            Err(error) => Err(error),
        }
    }

    fn libraries(&mut self) -> Result<&mut Libraries, MeasureError> {
        let libraries = match self.libraries.take() {
            Some(libraries) => libraries,
            None => Libraries::new(Compiler::find()?, self.limit)?,
        };
        Ok(self.libraries.insert(libraries))
    }
}

/// A shared object, or why there is none, and the compiler's seconds for it.
type Library = (Result<PathBuf, CandidateError>, f64);

fn draft(candidate: &Candidate, backend: Backend) -> Result<Draft, CandidateError> {
    let program = lower(&candidate.workload, &candidate.target, &candidate.config)
        .map_err(|e| CandidateError::Lower { message: e.to_string() })?;
    let plan = KernelPlan::of(&program);
    if let Some(gpu) = candidate.target.gpu() {
        let content = Content::Ready(gpu_code(gpu::generate(&program, gpu.api), gpu.api, &plan)?);
        return Ok(Draft { plan, content });
    }
    let source = || Source::new(c::generate(&program, &candidate.target));
    let content = match backend {
        Backend::Assembler => match assemble(&program, &candidate.target) {
            Ok(code) => {
                let (code, toolchain) = (Code::Machine(code), Toolchain::assembler());
                Content::Ready(Ready { code, toolchain, resources: None })
            }
            Err(why) => Content::Source(source(), Some(why)),
        },
        Backend::C => Content::Source(source(), None),
    };
    Ok(Draft { plan, content })
}

/// Code of a GPU's source.
fn gpu_code(source: String, api: GpuApi, plan: &KernelPlan) -> Result<Ready, CandidateError> {
    let GpuApi::Cuda { sm } = api else {
        let toolchain = Toolchain { backend: None, compiler: "the OpenCL driver's".into(), flags: String::new() };
        return Ok(Ready { code: Code::OpenCl(source), toolchain, resources: None });
    };
    let no_compiler = |message: String| CandidateError::Build { message };
    let compiler = cuda::compiler_version().map_err(no_compiler)?;
    let compiled = cuda::compile(&source, sm)?;
    let toolchain = Toolchain { backend: None, compiler, flags: cuda::flags(&format!("sm_{sm}")).join(" ") };
    let mut resources = compiled.resources();
    let dynamic = plan.stages.iter().filter_map(|stage| stage.launch).map(|launch| launch.shared_bytes);
    resources.shared_bytes += dynamic.max().unwrap_or(0);
    Ok(Ready { code: Code::Cubin(compiled.cubin), toolchain, resources: Some(resources) })
}

pub(crate) fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = f();
    (value, start.elapsed().as_secs_f64())
}
