//! From candidates to code, in parallel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use autotune_schedules::codegen::c;
use autotune_schedules::codegen::x86::{AssembleError, MachineCode, assemble};
use autotune_schedules::{EXACT_TOLERANCE, KernelPlan, Target, Workload, lower, tolerance};
use rayon::prelude::*;

use crate::compiler::Compiler;
use crate::libraries::{Libraries, Source};
use crate::measurement::{Candidate, CandidateError, MeasureError, Toolchain};
use crate::options::Backend;
use crate::process::duration;

/// A kernel's code.
#[derive(Clone, Debug, PartialEq)]
pub enum Code {
    /// In a shared object, under the names of the plan's stages.
    Library(PathBuf),
    /// In hand, one entry per stage of the plan.
    Machine(MachineCode),
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
    /// Wall-clock seconds of lowering, code generation and compiler; the compiler's part is 0 for a source that was
    /// built before.
    pub build_secs: f64,
}

/// Builds candidates with the assembler of their instruction set, or with the machine's C compiler, which is looked for
/// when it is first needed. Files that the compiler made live as long as the builder.
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
    Machine(MachineCode),
    /// To be compiled; why it was not assembled, if that was tried.
    Source(Source, Option<AssembleError>),
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
                Err(error) => return Build { outcome: Err(error), toolchain: None, build_secs: secs },
            };
            let (code, toolchain, compile_secs) = match content {
                Content::Machine(code) => (Ok(Code::Machine(code)), Some(Toolchain::assembler()), 0.0),
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
            Build { outcome, toolchain, build_secs: secs + compile_secs }
        };
        Ok(candidates.iter().zip(drafts).map(finish).collect())
    }

    /// Compiles C source for a plan written by hand: the seam through which tests bring broken kernels.
    pub fn build_source(
        &mut self,
        workload: &Workload,
        target: &Target,
        plan: &KernelPlan,
        source: &str,
    ) -> Result<Built, CandidateError> {
        let no_compiler = |e: MeasureError| CandidateError::Build { message: e.to_string() };
        let source = Source::new(source.to_string());
        let built = self.libraries().map_err(no_compiler)?.compile(&[&source]).pop();
        let missing = || Err(CandidateError::Build { message: "it was not compiled".into() });
        let library = built.map_or_else(missing, |(library, _)| library)?;
        Ok(Built {
            workload: *workload,
            target: target.clone(),
            plan: plan.clone(),
            tolerance: EXACT_TOLERANCE,
            code: Code::Library(library),
        })
    }

    /// The libraries of those drafts that are sources, in their order, and the compiler's seconds for each.
    fn compile<'a>(&mut self, drafts: impl Iterator<Item = &'a Draft>) -> Result<Vec<Library>, MeasureError> {
        let source = |draft: &'a Draft| match &draft.content {
            Content::Source(source, why) => Some((source, why)),
            Content::Machine(_) => None,
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
    let source = || Source::new(c::generate(&program, &candidate.target));
    let content = match backend {
        Backend::Assembler => match assemble(&program, &candidate.target) {
            Ok(code) => Content::Machine(code),
            Err(why) => Content::Source(source(), Some(why)),
        },
        Backend::C => Content::Source(source(), None),
    };
    Ok(Draft { plan: KernelPlan::of(&program), content })
}

pub(crate) fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = f();
    (value, start.elapsed().as_secs_f64())
}
