//! Export to and import from JSON Lines: one record a line.

use std::io::{BufRead, Read, Write};

use crate::error::DbError;
use crate::files::io_error;
use crate::record::TuningRecord;
use crate::store::TuningDb;

/// Longest line that is taken for a record.
const MAX_LINE_BYTES: u64 = 16 << 20;
/// Records stored together on import.
const BATCH: usize = 256;

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Records that were new.
    pub added: usize,
    /// Records that were there already.
    pub skipped_duplicates: usize,
}

impl TuningDb {
    /// Writes every record as one line of JSON, ordered by target, workload text, and place in the task; returns how many.
    ///
    /// Importing the lines into an empty database yields the same records, the same best ones and the same export, byte for
    /// byte.
    pub fn export(&self, mut out: impl Write) -> Result<u64, DbError> {
        let failed = io_error("cannot export", self.path());
        let mut records = 0;
        for pair in self.lines() {
            let (key, line) = pair?;
            self.decode(&key, &line)?;
            out.write_all(&line).and_then(|()| out.write_all(b"\n")).map_err(&failed)?;
            records += 1;
        }
        out.flush().map_err(failed)?;
        Ok(records)
    }

    /// Stores every record of an exported log that is not there yet, durably. Blank lines are passed over.
    ///
    /// # Errors
    /// [`Log`](DbError::Log) names the first line that is no record; nothing is imported then.
    pub fn import(&self, log: impl BufRead) -> Result<ImportReport, DbError> {
        let records = self.read_log(log)?;
        let mut added = 0;
        for batch in records.chunks(BATCH) {
            added += self.append_all(batch)?;
        }
        self.flush()?;
        Ok(ImportReport { added, skipped_duplicates: records.len() - added })
    }

    fn read_log(&self, mut log: impl BufRead) -> Result<Vec<TuningRecord>, DbError> {
        let mut records = Vec::new();
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            let mut limited = log.by_ref().take(MAX_LINE_BYTES);
            let read = limited.read_until(b'\n', &mut bytes).map_err(io_error("cannot import into", self.path()))?;
            if read == 0 {
                break;
            }
            let malformed = |reason: String| DbError::Log { line, reason };
            if read as u64 == MAX_LINE_BYTES && bytes.last() != Some(&b'\n') {
                return Err(malformed(format!("longer than {MAX_LINE_BYTES} bytes")));
            }
            let text = std::str::from_utf8(&bytes).map_err(|e| malformed(e.to_string()))?.trim();
            if !text.is_empty() {
                records.push(TuningRecord::from_line(text).map_err(|e| malformed(e.to_string()))?);
            }
        }
        Ok(records)
    }
}
