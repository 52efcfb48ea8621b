//! What can go wrong with a database.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::holder::Holder;
use crate::warning::TaskCounts;

mod record;
mod snapshot;

pub use record::RecordError;
pub use snapshot::SnapshotError;

/// Why a database cannot be opened, read or written. Every message names the path or the line at
/// fault, and tells the cause: there is no source behind it that would say it again.
#[derive(Debug, Error)]
pub enum DbError {
    /// There is nothing at the path.
    #[error("no tuning database at {path}")]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// The path leads to a file.
    #[error("{path} is a file; a tuning database is a directory")]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The directory holds something else; nothing in it was touched.
    #[error("{path} is not a tuning database: it holds '{found}' but no FORMAT file")]
    NotADatabase {
        /// The path.
        path: PathBuf,
        /// A file that has no business there.
        found: String,
    },
    /// A newer version of this library wrote the database; it was not touched.
    #[error(
        "{path} has database format {found}, newer than the supported format {supported}; update the tuner to use it"
    )]
    NewerFormat {
        /// The path.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Newest format that can be used.
        supported: u32,
    },
    /// Another process, or another handle of this one, has the database open for writing.
    #[error("{path} is held by {holder}")]
    Held {
        /// The path.
        path: PathBuf,
        /// Who holds it.
        holder: Holder,
    },
    /// The files of the database do not make sense.
    #[error("{path} is corrupt: {detail}; restore it from a copy, or save its records (log export --salvage)")]
    Corrupt {
        /// The path.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// Records that were durable are in neither copy any more.
    #[error(
        "{path} has lost {records}; its files were damaged{detail}: restore it from a copy, or save what is left \
         (log export --salvage), or delete {path}/flushed to go on with what is left"
    )]
    Lost {
        /// The path.
        path: PathBuf,
        /// What is gone.
        records: TaskCounts,
        /// What the storage engine says of its damage; empty if it says nothing.
        detail: String,
    },
    /// Records are read from the journal, and there is none.
    #[error(
        "{path} has no journal yet that could be read beside a running tuner: open it once for writing, such as by any \
         tuning run ({reason})"
    )]
    NoJournal {
        /// The path.
        path: PathBuf,
        /// Why it could not be made just now.
        reason: String,
    },
    /// The handle is for reading.
    #[error("{path} is open for reading: nothing can be appended")]
    ReadOnly {
        /// The path.
        path: PathBuf,
    },
    /// An earlier append failed and could not be taken back.
    #[error("{path} takes no more records since an append failed: open it anew")]
    Broken {
        /// The path.
        path: PathBuf,
    },
    /// The record to be stored is refused.
    #[error("the record cannot be stored: {0}")]
    Refused(RecordError),
    /// A line of an imported log is no record; nothing was imported.
    #[error("line {line} of the log: {reason}; nothing was imported")]
    Log {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// What is looked up in is a snapshot, and it cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
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
