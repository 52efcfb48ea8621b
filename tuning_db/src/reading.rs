//! Reading of a database while another process may write it: reads the journal without a lock and
//! writes nothing.

use std::path::Path;

use crate::error::DbError;
use crate::files::{self, FormatFile};
use crate::flushed::{Flushed, RecordCounts};
use crate::journal;
use crate::keys::Records;
use crate::warning::Warning;

/// Records and warnings that a reader finds.
pub(crate) struct Reading {
    pub(crate) records: Records,
    pub(crate) warnings: Vec<Warning>,
    /// False for a database of an earlier version, and for one that lost its journal.
    pub(crate) has_journal: bool,
    /// True if the first writer has not finished creating the database.
    pub(crate) is_unmade: bool,
}

impl Reading {
    /// Reads the database at `path`.
    pub(crate) fn of(path: &Path) -> Result<Self, DbError> {
        let not_found = || DbError::NotFound { path: path.to_path_buf() };
        if !path.exists() {
            return Err(not_found());
        }
        let layout = files::check_format(path)?;

        // Read before the journal, so that the journal contains everything that is counted as
        // durable.
        let flushed = Flushed::read(path);
        let journal = journal::read_while_written(&files::journal(path))?;
        if files::check_format(path)? != layout {
            // A writer has created or migrated the database meanwhile.
            return Self::of(path);
        }
        if layout == FormatFile::Unmade
            && journal.as_ref().is_none_or(|journal| journal.end == 0)
            && !path.join("sled").exists()
        {
            return Err(not_found());
        }

        let has_journal = journal.is_some() && layout != FormatFile::WithoutJournal;
        let is_unmade = layout == FormatFile::Unmade;
        let mut reading = Self { records: Records::default(), warnings: Vec::new(), has_journal, is_unmade };
        reading.take_journal(path, layout, journal.unwrap_or_default(), flushed);
        if layout == FormatFile::Unmade && !reading.records.is_empty() {
            reading.warnings.push(Warning::format(path));
        }
        Ok(reading)
    }

    /// Takes over the journal's records and warns of missing ones.
    fn take_journal(&mut self, path: &Path, layout: FormatFile, journal: journal::JournalContents, flushed: Flushed) {
        let durable = match flushed {
            Flushed::Counts(counts) => counts,
            Flushed::Total(_) | Flushed::Unknown(_) => {
                let reason = if let Flushed::Unknown(reason) = flushed { reason } else { "it is damaged" };
                if layout == FormatFile::Present || journal.end > 0 {
                    self.warnings.push(Warning::flushed(path, reason));
                }
                RecordCounts::default()
            }
        };
        self.records = journal.records;
        let was_durable = journal.unfinished.into_iter().filter(|entry| durable.covers(&entry.task, entry.place));
        was_durable.for_each(|entry| self.records.insert(entry));

        let path = path.to_path_buf();
        if let Some(&first) = journal.damaged_lines.first() {
            self.warnings.push(Warning::Unreadable { path: path.clone(), lines: journal.damaged_lines.len(), first });
        }
        let reason = "a tuner restores those that are in the other copy when it opens the database";
        for records in [durable.lost(&self.records), durable.gaps(&self.records)] {
            if !records.is_empty() {
                self.warnings.push(Warning::Lost { path: path.clone(), records, reason });
            }
        }
    }
}
