//! Errors of a snapshot.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Error of reading or writing a snapshot, in one line that includes its path.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// Nothing exists at the path.
    #[error("no snapshot at {path}")]
    NotFound {
        /// Path of the missing snapshot.
        path: PathBuf,
    },
    /// The path is something else than a snapshot.
    #[error("{path} is not a snapshot: {reason}")]
    NotASnapshot {
        /// Path of the file.
        path: PathBuf,
        /// Reason that it is not a snapshot.
        reason: &'static str,
    },
    /// Another version of this library wrote the snapshot.
    #[error(
        "{path} has snapshot format {found}, this version reads format {supported}: write it again (autotune snapshot write)"
    )]
    OtherFormat {
        /// Path of the snapshot.
        path: PathBuf,
        /// Format version of the snapshot.
        found: u32,
        /// Snapshot format that this version supports.
        supported: u32,
    },
    /// A newer version of this library wrote the records in the snapshot.
    #[error("{path} has records of version {found}, this version reads up to {supported}: update the tuner")]
    NewerRecords {
        /// Path of the snapshot.
        path: PathBuf,
        /// Version of its records.
        found: u32,
        /// Newest supported record version.
        supported: u32,
    },
    /// A checksum of the snapshot does not match.
    #[error("{path} is corrupt: {detail}; write it again (autotune snapshot write)")]
    Corrupt {
        /// Path of the snapshot.
        path: PathBuf,
        /// Part that is damaged.
        detail: String,
    },
    /// Something else than a snapshot exists at the target path; it was not changed.
    #[error("{path} exists and {reason}: it was not changed; choose another name or remove it")]
    InTheWay {
        /// Path of the existing file.
        path: PathBuf,
        /// Description of the existing file.
        reason: &'static str,
    },
    /// The snapshot would exceed a limit of its format.
    #[error("the snapshot is too large: {what}")]
    TooLarge {
        /// Part that exceeds its limit, as a sentence.
        what: &'static str,
    },
    /// A file cannot be read or written.
    #[error("{action} {path}: {cause}")]
    Io {
        /// Action that failed, as a phrase.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
}
