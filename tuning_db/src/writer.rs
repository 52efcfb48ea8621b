//! Files that the only writing process of a database has open.

use std::path::Path;

use crate::engine::Engine;
use crate::error::DbError;
use crate::flushed::RecordCounts;
use crate::hold::Hold;
use crate::journal::Journal;
use crate::keys::FiledRecord;

/// Both copies of the records. The fields drop in order, so the lock is released last.
pub(crate) struct DbWriter {
    pub(crate) journal: Journal,
    pub(crate) engine: Engine,
    /// Record counts that are known to be durable.
    pub(crate) flushed: RecordCounts,
    /// True if an unfinished append could not be undone.
    pub(crate) broken: bool,
    pub(crate) _hold: Hold,
}

impl DbWriter {
    /// Stores records in both copies, or in neither.
    pub(crate) fn append(&mut self, path: &Path, entries: &[FiledRecord]) -> Result<(), DbError> {
        if self.broken {
            return Err(DbError::Broken { path: path.to_path_buf() });
        }
        let end = self.journal.end();
        let records = entries.iter().map(|entry| (&entry.task, entry.place, entry.line.as_str()));
        let stored = self.journal.append(entries).and_then(|()| self.engine.insert(records));
        if stored.is_err() {
            self.broken = self.journal.cut_back_to(end).is_err();
        }
        stored
    }

    /// Makes everything appended durable and stores `counts`, the record counts.
    pub(crate) fn flush(&mut self, path: &Path, counts: RecordCounts) -> Result<(), DbError> {
        self.journal.sync()?;
        self.engine.flush_to_system()?;
        if counts != self.flushed {
            counts.write(path)?;
            self.flushed = counts;
        }
        Ok(())
    }

    /// Flushes, and also makes the engine's copy durable.
    pub(crate) fn close(&mut self, path: &Path, counts: RecordCounts) -> Result<(), DbError> {
        if counts == self.flushed {
            return Ok(());
        }
        self.flush(path, counts)?;
        self.engine.sync()
    }
}
