//! The C compiler of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use autotune_measurement::CandidateError;
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;
use crate::process::run_with_limit;
use crate::scratch::Scratch;

/// What every build needs.
const NEEDED_FLAGS: [&str; 4] = ["-x", "c", "-shared", "-fPIC"];

/// What makes better code where the compiler has it. Contraction to fused multiply-adds is wanted;
/// other liberties with floating-point arithmetic are not.
const WISHED_FLAGS: [&str; 5] = ["-O2", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-w"];

/// Names that are tried, in this order, if `CC` is not set.
const NAMES: [&str; 3] = ["cc", "gcc", "clang"];

/// How long `--version` and the test of the flags may take.
const PROBE_LIMIT: Duration = Duration::from_secs(20);

/// Lines of the compiler's complaints that are kept.
const MESSAGE_LINES: usize = 4;

/// Characters of them that are kept.
const MESSAGE_CHARS: usize = 600;

/// A C compiler and how it is called. Two builds of a source with equal values of this are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiler {
    /// The program.
    pub path: PathBuf,
    /// First line of its `--version`.
    pub version: String,
    /// Arguments of every build.
    pub flags: Vec<String>,
}

impl Compiler {
    /// The compiler that the environment variable `CC` names (with arguments, if it has some), else
    /// the first of `cc`, `gcc` and `clang` that builds a shared object.
    pub fn find() -> Result<Self, MeasureError> {
        let chosen = std::env::var("CC").ok().filter(|cc| !cc.trim().is_empty());
        let commands = chosen.as_ref().map_or(NAMES.to_vec(), |cc| vec![cc.as_str()]);
        let dir = Scratch::new()?;
        let found = commands.iter().find_map(|command| Self::probe(command, dir.path()));
        let tried = || chosen.as_ref().map_or(NAMES.join(", "), |cc| format!("CC={cc}"));
        found.ok_or_else(|| MeasureError::NoCompiler { tried: tried() })
    }

    /// The compiler called `command`, with those of the wished flags that it takes, if it works at
    /// all.
    fn probe(command: &str, dir: &Path) -> Option<Self> {
        let mut words = command.split_whitespace();
        let path = PathBuf::from(words.next()?);
        let own: Vec<&str> = words.collect();
        let output = Command::new(&path).args(&own).arg("--version").stdin(Stdio::null()).output().ok()?;
        let version = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_string();
        let with = |wished: &[&str]| Self {
            path: path.clone(),
            version: version.clone(),
            flags: wished.iter().chain(&own).chain(&NEEDED_FLAGS).map(|f| f.to_string()).collect(),
        };
        let works = |wished: &[&str]| {
            let source = "void probe(float *x, long n) { for (long i = 0; i < n; i++) x[i] += 1; }";
            with(wished).compile(source, &dir.join("probe.so"), PROBE_LIMIT).is_ok()
        };
        if works(&WISHED_FLAGS) {
            return Some(with(&WISHED_FLAGS));
        }
        let taken: Vec<&str> = WISHED_FLAGS.into_iter().filter(|flag| works(&[flag])).collect();
        works(&taken).then(|| with(&taken))
    }

    /// Builds the shared object `library` from C source. Other files are made only beside it, and
    /// removed.
    pub fn compile(&self, source: &str, library: &Path, limit: Duration) -> Result<(), CandidateError> {
        let limit_secs = limit.as_secs_f64();
        let build_error = |message: String| CandidateError::Build { message };
        let io_error = |what: &Path, e: std::io::Error| build_error(format!("{}: {e}", what.display()));
        let (source_file, log_file) = (library.with_extension("c"), library.with_extension("log"));
        fs::write(&source_file, source).map_err(|e| io_error(&source_file, e))?;
        let log = fs::File::create(&log_file).map_err(|e| io_error(&log_file, e))?;
        let mut command = Command::new(&self.path);
        command.args(&self.flags).arg(&source_file).arg("-o").arg(library).arg("-lm");
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if let Some(dir) = library.parent() {
            command.env("TMPDIR", dir);
        }
        let status = run_with_limit(&mut command, limit);
        let log = fs::read(&log_file).unwrap_or_default();
        // What cannot be removed now goes with the directory.
        let _ = (fs::remove_file(&source_file), fs::remove_file(&log_file));
        match status.map_err(|e| io_error(&self.path, e))? {
            Some(status) if status.success() && library.is_file() => Ok(()),
            Some(status) => Err(build_error(complaint(&String::from_utf8_lossy(&log), &status.to_string()))),
            None => Err(CandidateError::BuildTimeout { limit_secs }),
        }
    }
}

/// The first errors among a compiler's output, else its first lines, else how it ended.
fn complaint(log: &str, status: &str) -> String {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let errors: Vec<&str> = lines().filter(|line| line.contains("error")).take(MESSAGE_LINES).collect();
    let kept = if errors.is_empty() { lines().take(MESSAGE_LINES).collect() } else { errors };
    if kept.is_empty() {
        return status.to_string();
    }
    kept.join("; ").chars().take(MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_before_other_words() {
        let log = "k.c: In function 'f':\nk.c:1:20: error: 'x' undeclared\n  1 | code\nnote: each";
        assert_eq!(complaint(log, "exit status: 1"), "k.c:1:20: error: 'x' undeclared");
        assert_eq!(complaint("ld: cannot find -lfoo\n", "exit status: 1"), "ld: cannot find -lfoo");
        assert_eq!(complaint("", "exit status: 1"), "exit status: 1");
    }

    #[test]
    fn a_build_leaves_only_its_library() {
        let compiler = Compiler::find().unwrap();
        assert!(!compiler.version.is_empty());
        assert!(compiler.flags.iter().any(|f| f == "-O2"));
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("a.so");
        compiler.compile("int answer(void) { return 42; }", &library, PROBE_LIMIT).unwrap();
        let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(files, ["a.so"]);
        let error = compiler.compile("int answer(void) { return x; }", &library, PROBE_LIMIT).unwrap_err();
        let CandidateError::Build { message } = error else { panic!("{error:?}") };
        assert!(message.contains("error") && message.contains('x'), "{message}");
    }

    #[test]
    fn a_compiler_that_hangs_is_stopped() {
        let compiler = Compiler {
            path: "sh".into(),
            version: String::new(),
            flags: ["-c", "sleep 60", "sh"].map(String::from).to_vec(),
        };
        let dir = tempfile::tempdir().unwrap();
        let result = compiler.compile("", &dir.path().join("a.so"), Duration::from_millis(30));
        assert_eq!(result, Err(CandidateError::BuildTimeout { limit_secs: 0.03 }));
    }

    #[test]
    fn an_unknown_compiler_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Compiler::probe("no-such-compiler-9", dir.path()), None);
        assert_eq!(Compiler::probe("true", dir.path()), None);
    }
}
