//! Recovery of readable records from a damaged database.

use std::io::Write;
use std::path::Path;

use crate::engine::Engine;
use crate::error::DbError;
use crate::files::{self, FormatFile, io_error};
use crate::hold::Hold;
use crate::log::{check_exportable, write_line};
use crate::mend::Copies;
use crate::store::TuningDb;
use crate::warning::{TaskCounts, Warning};

/// Result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvageReport {
    /// Number of records that were written.
    pub saved: u64,
    /// Records that are known to have existed and cannot be read.
    pub unreadable: TaskCounts,
    /// Number of unreadable parts of the files. Their records may have been saved from the other
    /// copy.
    pub damaged_pieces: u64,
    /// Reasons for which `unreadable` may be incomplete.
    pub warnings: Vec<Warning>,
}

impl TuningDb {
    /// Writes every record of the database at `path` that can be read in either copy, in the format
    /// of [`export`](Self::export), however damaged the rest is. Repairs nothing. Omits the storage
    /// engine's copy if another process has the database open, or if it is not writable.
    ///
    /// # Errors
    /// [`NotFound`](DbError::NotFound), [`NewerFormat`](DbError::NewerFormat),
    /// [`NotADatabase`](DbError::NotADatabase), [`NotADirectory`](DbError::NotADirectory),
    /// [`Io`](DbError::Io).
    pub fn salvage(path: impl AsRef<Path>, mut out: impl Write) -> Result<SalvageReport, DbError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(DbError::NotFound { path: path.to_path_buf() });
        }
        // A damaged FORMAT file must not prevent the recovery.
        let layout = match files::check_format(path) {
            Err(DbError::Corrupt { .. }) => FormatFile::Present,
            layout => layout?,
        };

        let hold = Hold::take(path, &path.join("holder"));
        let engine = match &hold {
            Ok(_) if Engine::folder(path).exists() => Engine::open(path),
            Ok(_) => Err(files::unusable(path, "it is missing")),
            Err(error) => Err(files::unusable(path, error)),
        };
        let mut copies = Copies::read(path, layout, engine)?;
        copies.unite_all();

        let (mut saved, mut damaged_pieces) = (0, copies.damaged_pieces());
        for (_, _, line) in copies.records.iter() {
            if check_exportable(line).is_ok() {
                write_line(&mut out, line, path)?;
                saved += 1;
            } else {
                damaged_pieces += 1;
            }
        }
        out.flush().map_err(io_error("cannot export", path))?;
        Ok(SalvageReport { saved, unreadable: copies.missing(), damaged_pieces, warnings: copies.warnings })
    }
}
