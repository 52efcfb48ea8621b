//! Errors of targets that do not exist or do not fit this machine.

use thiserror::Error;

use super::isa::Isa;

/// A target does not exist or does not fit this machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// No target has this name.
    #[error("unknown target '{word}': expected 'cpu', 'cpu:avx2', 'cpu:avx512', 'cuda' or one of {stated}")]
    Unknown {
        /// Target as the user wrote it.
        word: String,
        /// Names of all stated GPUs, separated by commas.
        stated: String,
    },
    /// An instruction set was requested on a machine without it.
    #[error("target '{word}': this machine's instruction set is {isa}")]
    Isa {
        /// Target as the user wrote it.
        word: &'static str,
        /// Instruction set of the machine.
        isa: Isa,
    },
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
