//! Directory of a database.
//!
//! ```text
//! PATH/FORMAT        "autotune-db 2": name and format version; written last on creation
//! PATH/journal       one line per record, in the order of appending; readers use only this file
//! PATH/sled/         second copy of the records, in the storage engine
//! PATH/flushed       durable record counts per task, to detect lost records
//! PATH/holder        lock file of the writer; its text names the process
//! PATH/holder.*      lock files of tasks that are being tuned
//! PATH/*.damaged-N   damaged files that were replaced, for inspection
//! PATH/*.new         file being written, which will replace another
//! ```
//!
//! The writer appends to the journal first, so a record in the journal counts as appended. Opening
//! for writing compares the two copies record by record and repairs each from the other.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::DbError;
use crate::hold::Hold;

/// Format version of the database. It is increased when an older version of this library would
/// misread the files.
pub(crate) const FORMAT: u32 = 2;

/// Last format version without a journal.
const WITHOUT_JOURNAL: u32 = 1;

const FORMAT_WORD: &str = "autotune-db";

/// Layout according to a database's FORMAT file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormatFile {
    /// The file is missing: the database is new, or it lost the file.
    Unmade,
    /// Format 1, without a journal.
    WithoutJournal,
    /// Format 2, the present one.
    Present,
}

pub(crate) fn journal(path: &Path) -> PathBuf {
    path.join("journal")
}

/// Creates the directory if needed, and locks it for writing.
pub(crate) fn take(path: &Path) -> Result<(Hold, FormatFile), DbError> {
    fs::create_dir_all(path).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => DbError::NotADirectory { path: path.to_path_buf() },
        _ => io_error("cannot create", path)(e),
    })?;
    check_format(path)?;
    let hold = Hold::take(path, &path.join("holder"))?;

    // Check again: another process may have created the database before the lock was taken.
    Ok((hold, check_format(path)?))
}

/// Returns the layout of the directory; fails if it is not a database or has a newer format.
pub(crate) fn check_format(path: &Path) -> Result<FormatFile, DbError> {
    let format_path = path.join("FORMAT");
    let text = match fs::read(&format_path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == ErrorKind::NotFound => return check_unmade(path).map(|()| FormatFile::Unmade),
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            return Err(DbError::NotADirectory { path: path.to_path_buf() });
        }
        Err(e) => return Err(io_error("cannot read", &format_path)(e)),
    };

    let version = text.trim_end().strip_prefix(FORMAT_WORD).and_then(|rest| rest.trim_start().parse::<u32>().ok());
    match version {
        Some(found) if found > FORMAT => {
            Err(DbError::NewerFormat { path: path.to_path_buf(), found, supported: FORMAT })
        }
        Some(FORMAT) => Ok(FormatFile::Present),
        Some(WITHOUT_JOURNAL) => Ok(FormatFile::WithoutJournal),
        _ => {
            let word: String = text.chars().take(40).collect();
            let detail = format!("its FORMAT file says {word:?} instead of \"{FORMAT_WORD} {FORMAT}\"");
            Err(DbError::Corrupt { path: path.to_path_buf(), detail })
        }
    }
}

fn check_unmade(path: &Path) -> Result<(), DbError> {
    let failed = io_error("cannot list", path);
    for entry in fs::read_dir(path).map_err(&failed)? {
        let name = entry.map_err(&failed)?.file_name().to_string_lossy().into_owned();
        let stem = name.split('.').next().unwrap_or_default();
        if !["flushed", "holder", "journal", "sled", "FORMAT"].contains(&stem) {
            return Err(DbError::NotADatabase { path: path.to_path_buf(), found: name });
        }
    }
    Ok(())
}

/// Writes the FORMAT file, which marks the directory as a complete database.
pub(crate) fn write_format(path: &Path) -> Result<(), DbError> {
    write_whole(&path.join("FORMAT"), &format!("{FORMAT_WORD} {FORMAT}\n"))
}

/// Replaces a file atomically and durably: it always has either the old text or the new.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), DbError> {
    let write = || {
        let new_path = path.with_extension("new");
        let mut file = File::create(&new_path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new_path, path)
    };
    write().map_err(io_error("cannot write", path))?;
    sync_folder(path)
}

/// Makes the names in a file's folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), DbError> {
    let folder = path.parent().unwrap_or(path);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error("cannot flush", folder))
}

/// Returns an unused name next to `path` for damaged files.
pub(crate) fn set_aside_name(path: &Path) -> PathBuf {
    let unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut names = (unix_secs..).map(|number| path.with_extension(format!("damaged-{number}")));
    names.find(|name| !name.exists()).unwrap_or_else(|| path.with_extension("damaged"))
}

/// Returns the error for a storage engine that cannot be opened.
pub(crate) fn unusable(path: &Path, reason: impl Display) -> DbError {
    DbError::Corrupt { path: path.to_path_buf(), detail: format!("cannot open its storage engine: {reason}") }
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DbError + use<> {
    let path = path.to_path_buf();
    move |cause| DbError::Io { action, path: path.clone(), cause }
}
