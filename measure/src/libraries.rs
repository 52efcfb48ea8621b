//! Shared objects built from C sources, each source once.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use autotune_measurement::CandidateError;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use crate::compiler::Compiler;
use crate::error::MeasureError;
use crate::process::timed;
use crate::scratch::ScratchDir;

/// Hash and length of a source.
type SourceKey = (u64, usize);

/// C source of a kernel.
pub(crate) struct KernelSource {
    text: String,
    key: SourceKey,
}

impl KernelSource {
    pub(crate) fn new(text: String) -> Self {
        let key = (xxh3_64(text.as_bytes()), text.len());
        Self { text, key }
    }
}

/// Built shared objects. The files live as long as this value.
pub(crate) struct Libraries {
    compiler: Compiler,
    limit: Duration,
    dir: ScratchDir,
    /// Result of each source.
    builds: HashMap<SourceKey, Result<PathBuf, CandidateError>>,
}

impl Libraries {
    /// Returns an empty collection; the compiler gets `limit` of wall-clock time per source.
    pub(crate) fn new(compiler: Compiler, limit: Duration) -> Result<Self, MeasureError> {
        Ok(Self { compiler, limit, dir: ScratchDir::new()?, builds: HashMap::new() })
    }

    pub(crate) fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// Compiles the sources that were not compiled before, on all cores. Returns, for each source,
    /// the library and the seconds that the compiler took now: 0 for a source that was built
    /// before.
    pub(crate) fn compile(&mut self, sources: &[&KernelSource]) -> Vec<(Result<PathBuf, CandidateError>, f64)> {
        let mut todo: HashMap<SourceKey, (&str, PathBuf)> = HashMap::new();
        for source in sources.iter().filter(|s| !self.builds.contains_key(&s.key)) {
            let number = self.builds.len() + todo.len();
            let library = || self.dir.path().join(format!("kernel{number}.so"));
            todo.entry(source.key).or_insert_with(|| (&source.text, library()));
        }
        let compile = |(key, (source, library)): (SourceKey, (&str, PathBuf))| {
            let (outcome, secs) = timed(|| self.compiler.compile(source, &library, self.limit));
            (key, outcome.map(|()| library), secs)
        };

        let done: Vec<_> = todo.into_par_iter().map(compile).collect();
        let mut secs_of = HashMap::with_capacity(done.len());
        for (key, outcome, secs) in done {
            secs_of.insert(key, secs);
            self.builds.insert(key, outcome);
        }

        let missing = || Err(CandidateError::Build { message: "the source was not compiled".into() });
        let outcome = |s: &&KernelSource| {
            let library = self.builds.get(&s.key).cloned().unwrap_or_else(missing);
            (library, secs_of.get(&s.key).copied().unwrap_or(0.0))
        };
        sources.iter().map(outcome).collect()
    }
}
