//! Errors of a database.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::holder::Holder;
use crate::warning::TaskCounts;

mod record;
mod snapshot;

pub use record::RecordError;
pub use snapshot::SnapshotError;

/// Error of opening, reading or writing a database. Every message names the path or line at fault
/// and includes the cause, so `source()` returns nothing.
#[derive(Debug, Error)]
pub enum DbError {
    /// Nothing exists at the path.
    #[error("no tuning database at {path}")]
    NotFound {
        /// Path of the missing database.
        path: PathBuf,
    },
    /// The path is a file.
    #[error("{path} is a file; a tuning database is a directory")]
    NotADirectory {
        /// Path of the file.
        path: PathBuf,
    },
    /// The directory contains something else; it was not changed.
    #[error("{path} is not a tuning database: it contains '{found}' but no FORMAT file")]
    NotADatabase {
        /// Path of the directory.
        path: PathBuf,
        /// Name of a file that does not belong to a database.
        found: String,
    },
    /// A newer version of this library wrote the database; it was not changed.
    #[error(
        "{path} has database format {found}, newer than the supported format {supported}; update the tuner to use it"
    )]
    NewerFormat {
        /// Path of the database.
        path: PathBuf,
        /// Format version of the database.
        found: u32,
        /// Newest supported format version.
        supported: u32,
    },
    /// Another process, or another handle of this process, has the database open for writing.
    #[error("{path} is in use by {holder}")]
    Held {
        /// Path of the database.
        path: PathBuf,
        /// Process that has it open.
        holder: Holder,
    },
    /// The files of the database are damaged.
    #[error("{path} is corrupt: {detail}; restore a backup, or save its records (log export --salvage)")]
    Corrupt {
        /// Path of the database.
        path: PathBuf,
        /// Damage that was found.
        detail: String,
    },
    /// Records that had been durable are missing in both copies.
    #[error(
        "{path} has lost {records}: its files were damaged{detail}; restore a backup, save the remaining records \
         (log export --salvage), or delete {path}/flushed to continue without the lost ones"
    )]
    Lost {
        /// Path of the database.
        path: PathBuf,
        /// Number of missing records per task.
        records: TaskCounts,
        /// Damage that the storage engine reports; empty if none.
        detail: String,
    },
    /// A reader needs the journal, but there is none.
    #[error(
        "{path} has no journal, which reading needs: open it once for writing, for example with a tuning run ({reason})"
    )]
    NoJournal {
        /// Path of the database.
        path: PathBuf,
        /// Reason that it could not be created now.
        reason: String,
    },
    /// The handle was opened for reading.
    #[error("{path} is open for reading only: cannot append records")]
    ReadOnly {
        /// Path of the database.
        path: PathBuf,
    },
    /// An earlier append failed and could not be undone.
    #[error("{path} accepts no more records after a failed append: reopen it")]
    Broken {
        /// Path of the database.
        path: PathBuf,
    },
    /// The record is invalid and was not stored.
    #[error("cannot store the record: {0}")]
    Refused(RecordError),
    /// A line of an imported log is not a valid record; nothing was imported.
    #[error("line {line} of the log: {reason}; nothing was imported")]
    Log {
        /// Number of the line, from 1.
        line: usize,
        /// Reason that the line is not a record.
        reason: String,
    },
    /// The source of a look-up is a snapshot that cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
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

impl DbError {
    /// Returns whether nothing exists at the path of the database or snapshot.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Snapshot(SnapshotError::NotFound { .. }))
    }
}
