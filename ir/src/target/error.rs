//! Why a target cannot be had.

use thiserror::Error;

use super::isa::Isa;

/// Why a target cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The word names no target.
    #[error("unknown target '{word}': expected 'cpu', 'cpu:avx2', 'cuda' or one of {stated}")]
    Unknown {
        /// The word.
        word: String,
        /// The words of GPUs that are stated.
        stated: String,
    },
    /// An instruction set that this machine does not have.
    #[error("target 'cpu:avx2': this machine's instruction set is {0}")]
    Isa(Isa),
    /// A number of threads for a GPU.
    #[error("--threads is for CPUs, not for '{0}'")]
    GpuThreads(String),
    /// More threads than cores, or none.
    #[error("--threads {threads} does not fit this machine: it has {cores} core(s)")]
    Threads {
        /// The number asked for.
        threads: usize,
        /// The number of cores there are.
        cores: usize,
    },
}
