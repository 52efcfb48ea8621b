//! Parallel building: from candidates to code.

use std::path::PathBuf;
use std::slice;
use std::time::Duration;

use autotune_codegen::asm::AssembleError;
use autotune_codegen::{CompilerNeeded, artifact, c, gpu};
use autotune_ir::{Artifact, Code, GpuApi, KernelPlan, Program, Target};
use autotune_measurement::{Backend, CandidateError, Resources, Toolchain};
use autotune_schedules::{Candidate, EXACT_TOLERANCE, tolerance};
use autotune_workloads::Workload;
use rayon::prelude::*;

use crate::built::Built;
use crate::compile_workers::CompileWorkers;
use crate::compiler::Compiler;
use crate::error::MeasureError;
use crate::libraries::{KernelSource, Libraries};
use crate::location::WorkerCommand;
use crate::nvrtc;
use crate::process::{duration, timed};

/// Result of building one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    /// Built kernel, or the reason that there is none.
    pub outcome: Result<Built, CandidateError>,
    /// Assembler or compiler used; `None` if the candidate was not lowered.
    pub toolchain: Option<Toolchain>,
    /// GPU resources that the kernel uses, if the compiler reports them.
    pub resources: Option<Resources>,
    /// Wall-clock seconds of lowering, code generation and compiler. The compiler's part is 0 for a
    /// source that was built before.
    pub build_secs: f64,
}

/// Builds candidates: for CPUs with the assembler or with the machine's C compiler, for CUDA
/// devices with NVRTC. The C compiler is searched for when first needed. Files that it made live as
/// long as the builder.
pub struct KernelBuilder {
    backend: Backend,
    limit: Duration,
    libraries: Option<Libraries>,
    /// Workers in which NVRTC runs; `None` to run it in this process.
    workers: Option<CompileWorkers>,
}

/// Lowered candidate: its finished code, or C source that is still to be compiled.
struct LoweredCandidate {
    plan: KernelPlan,
    content: CandidateCode,
}

enum CandidateCode {
    Ready(Ready),
    /// C source to compile, and the reason why it was not assembled, if that was tried.
    Source(KernelSource, Option<AssembleError>),
}

/// Finished code, its toolchain and the GPU resources that it uses.
struct Ready {
    code: Code,
    toolchain: Toolchain,
    resources: Option<Resources>,
}

impl KernelBuilder {
    /// Returns a builder that gives the C compiler `limit_secs` of wall-clock time per candidate.
    /// NVRTC runs in this process, without a limit.
    pub fn new(backend: Backend, limit_secs: f64) -> Self {
        Self { backend, limit: duration(limit_secs), libraries: None, workers: None }
    }

    /// Returns a builder that runs NVRTC in worker processes, where it may crash, with the same
    /// limit.
    pub fn with_workers(backend: Backend, limit_secs: f64, command: WorkerCommand) -> Self {
        let workers = CompileWorkers::new(command, duration(limit_secs));
        Self { workers: Some(workers), ..Self::new(backend, limit_secs) }
    }

    /// Returns the C compiler, which is searched for now if it was not needed before.
    pub fn compiler(&mut self) -> Result<&Compiler, MeasureError> {
        Ok(self.libraries()?.compiler())
    }

    /// Builds candidates on all cores; equal sources are compiled once. Returns one result per
    /// candidate, in order.
    ///
    /// Fails if a candidate needs a C compiler because of the chosen backend or its instruction
    /// set, and there is none. A candidate that needs one only because the assembler cannot express
    /// it fails alone.
    pub fn build(&mut self, candidates: &[Candidate]) -> Result<Vec<Build>, MeasureError> {
        let draft = |candidate| self.lower(candidate);
        let drafts = candidates.par_iter().map(draft).collect::<Result<Vec<_>, MeasureError>>()?;
        self.finished(candidates, drafts)
    }

    /// Builds a candidate that was already lowered to `program`.
    pub fn build_lowered(&mut self, candidate: &Candidate, program: &Program) -> Result<Option<Build>, MeasureError> {
        let (draft, secs) = timed(|| self.draft_of(program, candidate.target()));
        Ok(self.finished(slice::from_ref(candidate), vec![(draft?, secs)])?.pop())
    }

    fn finished(&mut self, candidates: &[Candidate], drafts: Vec<TimedLowering>) -> Result<Vec<Build>, MeasureError> {
        let mut libraries = self.compile(drafts.iter().filter_map(|(d, _)| d.as_ref().ok()))?.into_iter();
        let toolchain = self.libraries.as_ref().map(|libraries| c_toolchain(libraries.compiler()));
        let finish = |(candidate, draft): (&Candidate, TimedLowering)| {
            finish(candidate, draft, || Some((libraries.next()?, toolchain.clone()?)))
        };
        Ok(candidates.iter().zip(drafts).map(finish).collect())
    }

    /// Builds a GPU candidate.
    pub(crate) fn build_for_gpu(&self, candidate: &Candidate) -> Result<Build, MeasureError> {
        match candidate.target().gpu() {
            Some(_) => Ok(finish(candidate, self.lower(candidate)?, || None)),
            None => Err(MeasureError::MixedTargets),
        }
    }

    /// Compiles source, C or the target's dialect, for a handwritten plan. Tests use it to run
    /// broken kernels.
    pub fn build_source(
        &mut self,
        workload: &Workload,
        target: &Target,
        plan: &KernelPlan,
        source: &str,
    ) -> Result<Built, CandidateError> {
        let code = match target.gpu() {
            Some(gpu) => match gpu.api {
                GpuApi::Cuda { sm } => self.cuda_code(source, sm, plan).map_err(build_failure)??.code,
                GpuApi::OpenCl => Code::OpenCl(source.to_string()),
            },
            None => Code::Library(self.build_library(source)?),
        };
        let artifact = Artifact { target: target.clone(), plan: plan.clone(), code };
        Ok(Built { workload: workload.clone(), artifact, tolerance: EXACT_TOLERANCE })
    }

    fn build_library(&mut self, source: &str) -> Result<PathBuf, CandidateError> {
        let source = KernelSource::new(source.to_string());
        let built = self.libraries().map_err(build_failure)?.compile(&[&source]).pop();
        let missing = || Err(CandidateError::Build { message: "the source was not compiled".into() });
        built.map_or_else(missing, |(library, _)| library)
    }

    /// Compiles the candidates that were lowered to C sources. Returns their libraries in order,
    /// and the compiler's seconds for each.
    fn compile<'a>(
        &mut self,
        drafts: impl Iterator<Item = &'a LoweredCandidate>,
    ) -> Result<Vec<Library>, MeasureError> {
        let source = |draft: &'a LoweredCandidate| match &draft.content {
            CandidateCode::Source(source, why) => Some((source, why)),
            CandidateCode::Ready(_) => None,
        };
        let (sources, reasons): (Vec<_>, Vec<_>) = drafts.filter_map(source).unzip();
        if sources.is_empty() {
            return Ok(Vec::new());
        }

        // Without a C compiler, candidates that merely could not be assembled fail alone; a chosen
        // C backend or an unsupported instruction set is an error of the whole batch.
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

    /// Lowers a candidate and makes its code, or C source if it must be compiled.
    fn lower(&self, candidate: &Candidate) -> Result<TimedLowering, MeasureError> {
        let (draft, secs) = timed(|| match candidate.lower() {
            Ok(program) => self.draft_of(&program, candidate.target()),
            Err(error) => Ok(Err(CandidateError::Lower { message: error.to_string() })),
        });
        Ok((draft?, secs))
    }

    /// Makes the code of a loop nest, or C source if it must be compiled.
    fn draft_of(
        &self,
        program: &Program,
        target: &Target,
    ) -> Result<Result<LoweredCandidate, CandidateError>, MeasureError> {
        let plan = KernelPlan::of(program);
        let by_c = |why| CandidateCode::Source(KernelSource::new(c::generate(program, target)), why);
        if self.backend == Backend::C && target.cpu().is_some() {
            return Ok(Ok(LoweredCandidate { content: by_c(None), plan }));
        }

        let content = match artifact(program, &plan, target) {
            Ok(made) => Ok(CandidateCode::Ready(ready(made.code))),
            Err(CompilerNeeded::C(why)) => Ok(by_c(Some(why))),
            Err(CompilerNeeded::Nvrtc { sm }) => {
                self.cuda_code(&gpu::generate(program, GpuApi::Cuda { sm }), sm, &plan)?.map(CandidateCode::Ready)
            }
        };
        Ok(content.map(|content| LoweredCandidate { plan, content }))
    }

    /// Compiles CUDA C and collects the GPU resources, including dynamic shared memory.
    fn cuda_code(
        &self,
        source: &str,
        sm: u32,
        plan: &KernelPlan,
    ) -> Result<Result<Ready, CandidateError>, MeasureError> {
        let compiled = match &self.workers {
            Some(workers) => workers.compile(source, sm)?,
            None => nvrtc::compile(source, sm),
        };
        Ok(compiled.map(|compiled| {
            let mut resources = compiled.resources();
            let dynamic = plan.stages.iter().filter_map(|stage| stage.launch).map(|launch| launch.shared_bytes);
            resources.shared_bytes += dynamic.max().unwrap_or(0);
            let flags = nvrtc::flags(&gpu::architecture(source, sm)).join(" ");
            let toolchain = Toolchain { backend: None, compiler: compiled.compiler, flags };
            Ready { code: Code::Cubin(compiled.cubin), toolchain, resources: Some(resources) }
        }))
    }

    fn libraries(&mut self) -> Result<&mut Libraries, MeasureError> {
        let libraries = match self.libraries.take() {
            Some(libraries) => libraries,
            None => Libraries::new(Compiler::find()?, self.limit)?,
        };
        Ok(self.libraries.insert(libraries))
    }
}

/// Shared object, or the reason that there is none, and the compiler's seconds for it.
type Library = (Result<PathBuf, CandidateError>, f64);

/// Lowered candidate, or the reason that there is none, and the seconds that lowering took.
type TimedLowering = (Result<LoweredCandidate, CandidateError>, f64);

/// Returns the result for a lowered candidate. If that is C source, `library` supplies the compiled
/// code and the toolchain.
fn finish(
    candidate: &Candidate,
    (draft, secs): TimedLowering,
    library: impl FnOnce() -> Option<(Library, Toolchain)>,
) -> Build {
    let (plan, content) = match draft {
        Ok(LoweredCandidate { plan, content }) => (plan, content),
        Err(error) => return Build { outcome: Err(error), toolchain: None, resources: None, build_secs: secs },
    };
    let (code, toolchain, resources, compile_secs) = match content {
        CandidateCode::Ready(Ready { code, toolchain, resources }) => (Ok(code), Some(toolchain), resources, 0.0),
        CandidateCode::Source(..) => match library() {
            Some(((library, secs), toolchain)) => (library.map(Code::Library), Some(toolchain), None, secs),
            None => (Err(CandidateError::Build { message: "the source was not compiled".into() }), None, None, 0.0),
        },
    };
    let tolerance = tolerance(candidate.workload(), candidate.config());
    let artifact = code.map(|code| Artifact { target: candidate.target().clone(), plan, code });
    let outcome = artifact.map(|artifact| Built { workload: candidate.workload().clone(), artifact, tolerance });
    Build { outcome, toolchain, resources, build_secs: secs + compile_secs }
}

/// Returns finished code with its toolchain: the assembler of this project, or the OpenCL driver
/// that compiles when loading.
fn ready(code: Code) -> Ready {
    let (backend, compiler) = match code {
        Code::OpenCl(_) => (None, "the OpenCL driver's"),
        _ => (Some(Backend::Assembler), concat!("autotune assembler ", env!("CARGO_PKG_VERSION"))),
    };
    let toolchain = Toolchain { backend, compiler: compiler.into(), flags: String::new() };
    Ready { code, toolchain, resources: None }
}

fn c_toolchain(compiler: &Compiler) -> Toolchain {
    let (compiler, flags) = (compiler.version.clone(), compiler.flags.join(" "));
    Toolchain { backend: Some(Backend::C), compiler, flags }
}

/// Converts an infrastructure error to a failure of the kernel that was to be built.
fn build_failure(error: MeasureError) -> CandidateError {
    CandidateError::Build { message: error.to_string() }
}
