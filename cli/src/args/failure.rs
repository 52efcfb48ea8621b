//! Why the command ends early.

/// Why the command ends without having done its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Bad usage, such as a path where there is nothing, or something else: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Tuning stopped by Ctrl-C with everything measured kept: exit code 130.
    #[error("interrupted: everything measured is kept, rerun the same command to go on")]
    Interrupted,
}

impl Failure {
    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Interrupted => 130,
        }
    }
}
