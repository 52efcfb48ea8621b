//! What can go wrong with a database.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::holder::Holder;
use crate::record::RecordError;

/// Why a database cannot be opened, read or written. Every message names the path or the line at fault.
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
    /// Another process, or another handle of this one, has the database open.
    #[error("{path} is held by {holder}")]
    Held {
        /// The path.
        path: PathBuf,
        /// Who holds it.
        holder: Holder,
    },
    /// The files of the database do not make sense.
    #[error("{path} is corrupt: {detail}; restore it from a copy or import an exported log into a new database")]
    Corrupt {
        /// The path.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The storage engine recovered from damage to its files, but not everything: records that were durable are gone.
    #[error(
        "{path} has lost {} of {flushed} records, its files were damaged; restore it from a copy, or delete \
         {path}/flushed to go on with what is left",
        flushed - found
    )]
    Lost {
        /// The path.
        path: PathBuf,
        /// Records that were durable.
        flushed: u64,
        /// Records that are left.
        found: u64,
    },
    /// One stored entry cannot be read; the others can.
    #[error("entry '{key}' of {path} cannot be read: {reason}")]
    BadEntry {
        /// Path of the database.
        path: PathBuf,
        /// Target, workload and place.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The record to be stored is refused.
    #[error("the record cannot be stored: {0}")]
    Refused(#[from] RecordError),
    /// A line of an imported log is no record; nothing was imported.
    #[error("line {line} of the log: {reason}; nothing was imported")]
    Log {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}
