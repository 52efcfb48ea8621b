//! From candidates to shared objects, in parallel.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use autotune_schedules::codegen::c;
use autotune_schedules::config::fnv1a;
use autotune_schedules::{KernelPlan, Target, Workload, lower};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::compiler::{Compiler, scratch_dir};
use crate::measurement::{Candidate, CandidateError, MeasureError};
use crate::process::duration;

/// A candidate's code, ready to be loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// What it computes.
    pub workload: Workload,
    /// The machine it is made for.
    pub target: Target,
    /// Its interface.
    pub plan: KernelPlan,
    /// The shared object.
    pub library: PathBuf,
}

/// The outcome of building one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    /// The code, or why there is none.
    pub outcome: Result<Built, CandidateError>,
    /// Wall-clock seconds of lowering, code generation and compiler; the compiler's part is 0 for a source that was
    /// built before.
    pub build_secs: f64,
}

/// Builds candidates with the machine's C compiler. What it built lives as long as the builder.
pub struct Builder {
    compiler: Compiler,
    limit: Duration,
    dir: TempDir,
    /// What became of each source.
    builds: HashMap<SourceKey, Result<PathBuf, CandidateError>>,
}

/// Hash and length of a source.
type SourceKey = (u64, usize);

/// A candidate's interface and source.
struct Generated {
    plan: KernelPlan,
    source: String,
    key: SourceKey,
}

impl Builder {
    /// A builder that gives the compiler `limit_secs` of wall-clock time for each candidate.
    pub fn new(compiler: Compiler, limit_secs: f64) -> Result<Self, MeasureError> {
        Ok(Self { compiler, limit: duration(limit_secs), dir: scratch_dir()?, builds: HashMap::new() })
    }

    /// The compiler.
    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// The outcome for each candidate, in order. Every core is used; equal sources are compiled once.
    pub fn build(&mut self, candidates: &[Candidate]) -> Vec<Build> {
        let generated: Vec<_> = candidates.par_iter().map(|c| timed(|| generate(c))).collect();
        let compile_secs = self.compile_new(generated.iter().filter_map(|(g, _)| g.as_ref().ok()));
        let finish = |(candidate, (generated, secs)): (&Candidate, (Result<Generated, _>, f64))| {
            let key = generated.as_ref().ok().map(|g| g.key);
            let compiler_secs = key.and_then(|k| compile_secs.get(&k)).unwrap_or(&0.0);
            let outcome = generated.and_then(|g| self.built(&candidate.workload, &candidate.target, g));
            Build { outcome, build_secs: secs + compiler_secs }
        };
        candidates.iter().zip(generated).map(finish).collect()
    }

    /// Compiles C source for a plan written by hand: the seam through which tests bring broken kernels.
    pub fn build_source(
        &mut self,
        workload: &Workload,
        target: &Target,
        plan: &KernelPlan,
        source: &str,
    ) -> Result<Built, CandidateError> {
        let generated = Generated::new(plan.clone(), source.to_string());
        self.compile_new(std::iter::once(&generated));
        self.built(workload, target, generated)
    }

    /// Compiles those sources that were not compiled before; seconds of each.
    fn compile_new<'a>(&mut self, all: impl Iterator<Item = &'a Generated>) -> HashMap<SourceKey, f64> {
        let mut todo: HashMap<SourceKey, (&str, PathBuf)> = HashMap::new();
        for generated in all.filter(|g| !self.builds.contains_key(&g.key)) {
            let number = self.builds.len() + todo.len();
            let library = || self.dir.path().join(format!("kernel{number}.so"));
            todo.entry(generated.key).or_insert_with(|| (&generated.source, library()));
        }
        let compile = |(key, (source, library)): (SourceKey, (&str, PathBuf))| {
            let (outcome, secs) = timed(|| self.compiler.compile(source, &library, self.limit));
            (key, outcome.map(|()| library), secs)
        };
        let done: Vec<_> = todo.into_par_iter().map(compile).collect();
        let mut compile_secs = HashMap::with_capacity(done.len());
        for (key, outcome, secs) in done {
            compile_secs.insert(key, secs);
            self.builds.insert(key, outcome);
        }
        compile_secs
    }

    /// The finished build of a compiled source.
    fn built(&self, workload: &Workload, target: &Target, generated: Generated) -> Result<Built, CandidateError> {
        let missing = || Err(CandidateError::Build { message: "the source was not compiled".into() });
        let library = self.builds.get(&generated.key).cloned().unwrap_or_else(missing)?;
        Ok(Built { workload: *workload, target: target.clone(), plan: generated.plan, library })
    }
}

impl Generated {
    fn new(plan: KernelPlan, source: String) -> Self {
        let key = (fnv1a(source.as_bytes()), source.len());
        Self { plan, source, key }
    }
}

fn generate(candidate: &Candidate) -> Result<Generated, CandidateError> {
    let program = lower(&candidate.workload, &candidate.target, &candidate.config)
        .map_err(|e| CandidateError::Lower { message: e.to_string() })?;
    let source = c::generate(&program, &candidate.target);
    Ok(Generated::new(KernelPlan::of(&program), source))
}

fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = f();
    (value, start.elapsed().as_secs_f64())
}
