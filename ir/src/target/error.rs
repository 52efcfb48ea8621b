//! Errors of targets that do not exist or do not fit this machine.

use thiserror::Error;

use super::isa::Isa;

/// A target does not exist or does not fit this machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// No target has this name.
    #[error("unknown target '{word}': expected 'cpu', 'cpu:avx2', 'cuda' or one of {stated}")]
    Unknown {
        /// Target as the user wrote it.
        word: String,
        /// Names of all stated GPUs, separated by commas.
        stated: String,
    },
    /// `cpu:avx2` was requested on a machine without this instruction set.
    #[error("target 'cpu:avx2': this machine's instruction set is {0}")]
    Isa(Isa),
    /// A number of threads was given for a GPU.
    #[error("--threads is for CPUs, not for '{0}'")]
    GpuThreads(String),
    /// The number of threads is 0 or exceeds the cores.
    #[error("--threads {threads} does not fit this machine: it has {cores} core(s)")]
    Threads {
        /// Requested number of threads.
        threads: usize,
        /// Number of cores of the machine.
        cores: usize,
    },
}
