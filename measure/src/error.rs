//! Broken infrastructure, for which candidates cannot be measured.

use autotune_workloads::Workload;
use thiserror::Error;

/// Broken infrastructure: nothing can be said about the candidates.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// No C compiler on this machine.
    #[error("no C compiler found: tried {tried}; install gcc or clang, or set CC to one")]
    NoCompiler {
        /// Names that were looked for.
        tried: String,
    },
    /// No program that could serve as the worker.
    #[error(
        "no measuring worker found: there is no `autotune` beside {near}; build it (`cargo build -p autotune-cli`), set \
         AUTOTUNE_WORKER to its path, or let this program serve (`autotune::serve_if_worker`)"
    )]
    NoWorker {
        /// The folder that was looked into first.
        near: String,
    },
    /// The worker program cannot be started.
    #[error("cannot start the measuring worker '{command}': {source}")]
    Spawn {
        /// The program and its arguments.
        command: String,
        /// Why.
        source: std::io::Error,
    },
    /// The worker keeps failing without running a candidate.
    #[error("the measuring worker fails: {message}")]
    Worker {
        /// What it said.
        message: String,
    },
    /// Candidates of several targets in one race, or for a CPU behind some for GPUs.
    #[error("candidates of several targets in one race or in one run of batches")]
    MixedTargets,
    /// No GPU, or one that does not do what it is told any more.
    #[error("{message}")]
    Device {
        /// What it says.
        message: String,
    },
    /// The machine's ceilings cannot be measured.
    #[error("cannot measure the machine's ceilings: {message}")]
    Ceilings {
        /// Why.
        message: String,
    },
    /// A workload takes more memory than there is.
    #[error("{workload}: needs {}, {} available", human_bytes(*needed_bytes), human_bytes(*available_bytes))]
    Memory {
        /// Which.
        workload: Box<Workload>,
        /// For operands, reference and buffers, at least (`usize::MAX` if there is no such number).
        needed_bytes: usize,
        /// What the system, control groups and limits leave.
        available_bytes: usize,
    },
    /// The caller wanted no more: [`crate::WorkerMeasurer::set_interrupt`].
    #[error("interrupted")]
    Interrupted,
    /// A file could not be written or read.
    #[error("{what}: {source}")]
    Io {
        /// The file and the action.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Bytes for people, in a unit in which they are at least 1.
pub(crate) fn human_bytes(bytes: usize) -> String {
    match bytes {
        usize::MAX => "more memory than can be counted".into(),
        1_000_000_000.. => format!("{:.1} GB", bytes as f64 / 1e9),
        1_000_000.. => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.0} kB", bytes as f64 / 1e3),
    }
}
