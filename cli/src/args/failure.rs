//! Failures with exit codes of their own.

/// Failure that determines the exit code of the process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Bad usage, such as a path to nothing or to a file of another kind: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Tuning stopped by Ctrl-C; all measurements are stored: exit code 130.
    #[error("interrupted: all measurements are stored; rerun the same command to continue")]
    Interrupted,
}

impl Failure {
    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Interrupted => 130,
        }
    }
}
