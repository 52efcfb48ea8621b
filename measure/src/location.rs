//! Search for the worker program.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::MeasureError;

/// Environment variable with the path of the worker program.
pub const WORKER_VARIABLE: &str = "AUTOTUNE_WORKER";

/// Command-line argument with which programs of this project run as a worker.
pub const WORKER_ARGUMENT: &str = "worker";

/// A command that serves a measurer over its standard input and output; see
/// [`crate::worker::serve`].
///
/// The program may be another one that starts the worker, as long as it passes on both streams:
///
/// ```
/// use autotune_measure::WorkerCommand;
///
/// let here = WorkerCommand::new("target/release/autotune");
/// assert_eq!(here.to_string(), "target/release/autotune worker");
/// let arguments = ["--cpunodebind=0", "autotune", "worker"];
/// let on_one_node = WorkerCommand::new("numactl").with_arguments(arguments);
/// assert_eq!(on_one_node.to_string(), "numactl --cpunodebind=0 autotune worker");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// Path of the program, or a name that is searched for in `PATH`.
    pub program: PathBuf,
    /// Arguments of the program, in order.
    pub arguments: Vec<OsString>,
}

impl WorkerCommand {
    /// Returns the command of a program that runs as a worker if its only argument is `worker`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), arguments: vec![WORKER_ARGUMENT.into()] }
    }

    /// Replaces all arguments and returns the command.
    pub fn with_arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Finds the worker program: the one that `AUTOTUNE_WORKER` names, else this executable if it
    /// is called `autotune`, else an `autotune` in this executable's folder or its parent folder
    /// (where cargo puts it relative to examples and tests).
    pub fn find() -> Result<Self, MeasureError> {
        let named = std::env::var_os(WORKER_VARIABLE).filter(|value| !value.is_empty());
        let here = std::env::current_exe().ok();
        Self::choose(named.map(PathBuf::from), here.as_deref())
    }

    fn choose(named: Option<PathBuf>, here: Option<&Path>) -> Result<Self, MeasureError> {
        if let Some(program) = named {
            return Ok(Self::new(program));
        }
        let name = format!("autotune{}", std::env::consts::EXE_SUFFIX);
        let own = here.filter(|path| path.file_name().is_some_and(|n| n == name.as_str())).map(Path::to_path_buf);
        let folders = here.into_iter().flat_map(|path| path.ancestors().skip(1).take(2));
        let beside = folders.map(|folder| folder.join(&name)).find(|path| path.is_file());
        own.or(beside).map(Self::new).ok_or_else(|| MeasureError::NoWorker {
            near: here.and_then(Path::parent).unwrap_or(Path::new(".")).display().to_string(),
        })
    }
}

impl fmt::Display for WorkerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.display())?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", argument.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_wins_then_the_program_itself_then_a_neighbour() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(format!("autotune{}", std::env::consts::EXE_SUFFIX));
        let deep = dir.path().join("examples").join("demo");
        let far = dir.path().join("a").join("b").join("demo");
        let choose = |named: Option<&str>, here: &Path| WorkerCommand::choose(named.map(PathBuf::from), Some(here));
        let error = choose(None, &deep).unwrap_err().to_string();
        assert!(error.contains("AUTOTUNE_WORKER"), "{error}");
        assert_eq!(choose(Some("w"), &deep).unwrap().program, Path::new("w"));
        assert_eq!(choose(None, &program).unwrap().program, program);
        std::fs::write(&program, "").unwrap();
        assert_eq!(choose(None, &deep).unwrap().program, program);
        assert_eq!(choose(None, &dir.path().join("demo")).unwrap().program, program);
        assert!(choose(None, &far).is_err());
    }
}
