//! What can go wrong with a snapshot.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a snapshot cannot be read or written, in one line that names it.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// There is nothing at the path.
    #[error("no snapshot at {path}")]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{path} is not a snapshot: {reason}")]
    NotASnapshot {
        /// The path.
        path: PathBuf,
        /// What tells so.
        reason: &'static str,
    },
    /// Another version of this library wrote it.
    #[error(
        "{path} has snapshot format {found}, this version reads format {supported}: write it anew (autotune snapshot write)"
    )]
    OtherFormat {
        /// The path.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format that can be read.
        supported: u32,
    },
    /// A newer version of this library wrote its records.
    #[error("{path} has records of version {found}, this version reads up to {supported}: update the tuner")]
    NewerRecords {
        /// The path.
        path: PathBuf,
        /// Their version.
        found: u32,
        /// The newest version that can be read.
        supported: u32,
    },
    /// It is not what was written.
    #[error("{path} is corrupt: {detail}; write it anew (autotune snapshot write)")]
    Corrupt {
        /// The path.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// There is something else where it is to be written; it was not touched.
    #[error("{path} is there and {reason}: it is left alone; choose another name or remove it")]
    InTheWay {
        /// The path.
        path: PathBuf,
        /// What is there.
        reason: &'static str,
    },
    /// There is too much of it.
    #[error("too much for a snapshot: {what} exceeds its limit")]
    TooLarge {
        /// What exceeds its limit.
        what: &'static str,
    },
    /// A file cannot be read or written.
    #[error("{action} {path}: {cause}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        cause: io::Error,
    },
}
