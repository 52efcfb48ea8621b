//! Search for a C compiler, and its calls.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use autotune_measurement::CandidateError;
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;
use crate::process::run_with_limit;
use crate::scratch::ScratchDir;

/// Flags that every build needs.
const NEEDED_FLAGS: [&str; 4] = ["-x", "c", "-shared", "-fPIC"];

/// Flags that are used if the compiler accepts them. Contraction to fused multiply-adds is wanted;
/// other relaxations of floating-point arithmetic are not.
const WISHED_FLAGS: [&str; 5] = ["-O2", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-w"];

/// Compiler names tried in this order if `CC` is not set.
const NAMES: [&str; 3] = ["cc", "gcc", "clang"];

/// Time limit of `--version` and of each test of flags.
const PROBE_LIMIT: Duration = Duration::from_secs(20);

/// Most lines of compiler output that an error message quotes.
const MESSAGE_LINES: usize = 4;

/// Most characters of compiler output that an error message quotes.
const MESSAGE_CHARS: usize = 600;

/// C compiler with its flags. Equal values give equal builds of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiler {
    /// Path or name of the program.
    pub path: PathBuf,
    /// First line of the output of `--version`.
    pub version: String,
    /// Arguments of every build.
    pub flags: Vec<String>,
}

impl Compiler {
    /// Finds the compiler that the environment variable `CC` names (possibly with arguments), else
    /// the first of `cc`, `gcc` and `clang` that builds a shared object.
    pub fn find() -> Result<Self, MeasureError> {
        let chosen = std::env::var("CC").ok().filter(|cc| !cc.trim().is_empty());
        let commands = chosen.as_ref().map_or(NAMES.to_vec(), |cc| vec![cc.as_str()]);
        let dir = ScratchDir::new()?;
        let found = commands.iter().find_map(|command| Self::probe(command, dir.path()));
        let tried = || chosen.as_ref().map_or(NAMES.join(", "), |cc| format!("CC={cc}"));
        found.ok_or_else(|| MeasureError::NoCompiler { tried: tried() })
    }

    /// Returns the compiler called `command`, with the optional flags that it accepts; `None` if it
    /// builds nothing.
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
        // Some flag is unknown to this compiler: test each alone, then all accepted ones together.
        let taken: Vec<&str> = WISHED_FLAGS.into_iter().filter(|flag| works(&[flag])).collect();
        works(&taken).then(|| with(&taken))
    }

    /// Builds the shared object `library` from C source. Temporary files are made only in its
    /// folder, and removed.
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
        // A file that cannot be removed now is removed with the folder.
        let _ = (fs::remove_file(&source_file), fs::remove_file(&log_file));
        match status.map_err(|e| io_error(&self.path, e))? {
            Some(status) if status.success() && library.is_file() => Ok(()),
            Some(status) => Err(build_error(first_errors(&String::from_utf8_lossy(&log), &status.to_string()))),
            None => Err(CandidateError::BuildTimeout { limit_secs }),
        }
    }
}

/// Returns the first errors in a compiler's output, else its first lines, else its exit status.
fn first_errors(log: &str, status: &str) -> String {
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
        assert_eq!(first_errors(log, "exit status: 1"), "k.c:1:20: error: 'x' undeclared");
        assert_eq!(first_errors("ld: cannot find -lfoo\n", "exit status: 1"), "ld: cannot find -lfoo");
        assert_eq!(first_errors("", "exit status: 1"), "exit status: 1");
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
