//! Errors of the measuring infrastructure.

use autotune_workloads::Workload;
use thiserror::Error;

/// Failure of the measuring infrastructure, which says nothing about the candidates.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// No C compiler was found on this machine.
    #[error("no C compiler found: tried {tried}; install gcc or clang, or set CC to one")]
    NoCompiler {
        /// Names of the compilers that were tried, or the value of `CC`.
        tried: String,
    },
    /// No program was found that can serve as the worker.
    #[error(
        "no measuring worker found: {near} and its parent have no program `autotune`; build it \
         (`cargo build -p autotune-cli`), set AUTOTUNE_WORKER to its path, or call `autotune::serve_if_worker` in this \
         program"
    )]
    NoWorker {
        /// Folder that was searched first.
        near: String,
    },
    /// The worker program cannot be started.
    #[error("cannot start the measuring worker '{command}': {source}")]
    Spawn {
        /// Program and its arguments.
        command: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The worker keeps failing before it runs a candidate.
    #[error("the measuring worker failed: {message}")]
    Worker {
        /// Last message of the worker.
        message: String,
    },
    /// Candidates of several targets in one race, or CPU candidates after GPU candidates in one
    /// sequence of batches.
    #[error("the candidates of a race or of a run of batches must have the same target")]
    MixedTargets,
    /// No GPU was found, or one that no longer responds.
    #[error("{message}")]
    Device {
        /// Message of the device or its driver.
        message: String,
    },
    /// The machine's ceilings cannot be measured.
    #[error("cannot measure the machine's ceilings: {message}")]
    Ceilings {
        /// Reason of the failure.
        message: String,
    },
    /// A workload needs more memory than is available.
    #[error("{workload}: needs {}, {} available", human_bytes(*needed_bytes), human_bytes(*available_bytes))]
    Memory {
        /// Workload that was to be measured.
        workload: Box<Workload>,
        /// Bytes for operands, reference and buffers, a lower bound; `usize::MAX` on overflow.
        needed_bytes: usize,
        /// Bytes that the system, control groups and resource limits leave to this process.
        available_bytes: usize,
    },
    /// The caller interrupted the measuring: [`crate::WorkerMeasurer::set_interrupt`].
    #[error("interrupted")]
    Interrupted,
    /// A file could not be written or read.
    #[error("{what}: {source}")]
    Io {
        /// Name of the file and the action.
        what: String,
        /// Error of the system.
        source: std::io::Error,
    },
}

/// Formats a number of bytes in kB, MB or GB.
pub(crate) fn human_bytes(bytes: usize) -> String {
    match bytes {
        usize::MAX => "more memory than can be addressed".into(),
        1_000_000_000.. => format!("{:.1} GB", bytes as f64 / 1e9),
        1_000_000.. => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.0} kB", bytes as f64 / 1e3),
    }
}
