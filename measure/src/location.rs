//! Where the worker program is.

use std::path::{Path, PathBuf};

use crate::error::MeasureError;

/// Environment variable that names the worker program.
pub const WORKER_VARIABLE: &str = "AUTOTUNE_WORKER";

/// The argument that makes a program serve.
pub const WORKER_ARGUMENT: &str = "worker";

/// The program that serves a measurer when it is started with the one argument `worker`; see [`crate::worker::serve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// Its path.
    pub program: PathBuf,
}

impl WorkerCommand {
    /// The program that `AUTOTUNE_WORKER` names, else this executable if it is called `autotune`, else an `autotune`
    /// beside it or one folder up (where cargo puts it relative to examples and tests).
    pub fn find() -> Result<Self, MeasureError> {
        let named = std::env::var_os(WORKER_VARIABLE).filter(|value| !value.is_empty());
        let here = std::env::current_exe().ok();
        Self::choose(named.map(PathBuf::from), here.as_deref())
    }

    fn choose(named: Option<PathBuf>, here: Option<&Path>) -> Result<Self, MeasureError> {
        if let Some(program) = named {
            return Ok(Self { program });
        }
        let name = format!("autotune{}", std::env::consts::EXE_SUFFIX);
        let own = here.filter(|path| path.file_name().is_some_and(|n| n == name.as_str())).map(Path::to_path_buf);
        let folders = here.into_iter().flat_map(|path| path.ancestors().skip(1).take(2));
        let beside = folders.map(|folder| folder.join(&name)).find(|path| path.is_file());
        own.or(beside).map(|program| Self { program }).ok_or_else(|| MeasureError::NoWorker {
            near: here.and_then(Path::parent).unwrap_or(Path::new(".")).display().to_string(),
        })
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
