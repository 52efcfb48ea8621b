//! Export to and import from JSON Lines, one record per line.

use std::io::{BufRead, Read, Write};
use std::path::Path;

use serde_json::Value;

use crate::error::{DbError, RecordError};
use crate::files::io_error;
use crate::keys::TaskKey;
use crate::record::TuningRecord;
use crate::store::TuningDb;

/// Most bytes of a line.
const MAX_LINE_BYTES: u64 = 128 << 10;
/// Records per append on import.
const BATCH: usize = 256;
/// Most skipped lines that a report names.
const NAMED: usize = 3;

/// Handling of invalid lines on import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInvalid {
    /// Fails at the first invalid line and imports nothing.
    Refuse,
    /// Skips and counts invalid lines.
    Skip,
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Number of records that were new.
    pub added: usize,
    /// Number of records that the database had already.
    pub skipped_duplicates: usize,
    /// Number of invalid lines that were skipped.
    pub invalid_lines: usize,
    /// The first few invalid lines: line number, from 1, and reason.
    pub first_invalid: Vec<(usize, String)>,
}

impl TuningDb {
    /// Writes every record as one line of JSON, ordered by target, workload text and position in
    /// the task. Returns the number of lines. Records of newer versions are written unchanged;
    /// [`warnings`](Self::warnings) report other unreadable ones.
    ///
    /// Importing the lines into an empty database gives the same records, marked as untrusted.
    pub fn export(&self, mut out: impl Write) -> Result<u64, DbError> {
        let mut records = 0;
        for (task, log) in self.logs().iter() {
            for (&place, line) in &log.lines {
                records += u64::from(self.export_line(&mut out, task, place, line)?);
            }
        }
        out.flush().map_err(io_error("cannot export", self.path()))?;
        Ok(records)
    }

    /// Writes one record; returns false if the line is not one.
    fn export_line(&self, out: &mut impl Write, task: &TaskKey, place: u64, line: &str) -> Result<bool, DbError> {
        match check_exportable(line) {
            Ok(()) => write_line(out, line, self.path()).map(|()| true),
            Err(reason) => {
                self.skip(task, place, reason);
                Ok(false)
            }
        }
    }

    /// Stores, durably, every record of an exported log that is not there yet. They are marked as
    /// [untrusted](TuningRecord::is_untrusted), because their times may not hold on this machine.
    /// Blank lines are skipped.
    ///
    /// # Errors
    /// [`Log`](DbError::Log) names the first line that is no record, if such lines are refused;
    /// nothing is imported then.
    pub fn import(&self, log: impl BufRead, on_invalid: OnInvalid) -> Result<ImportReport, DbError> {
        let (records, mut report) = self.read_log(log, on_invalid)?;
        for batch in records.chunks(BATCH) {
            report.added += self.append_all(batch)?;
        }
        self.flush()?;
        report.skipped_duplicates = records.len() - report.added;
        Ok(report)
    }

    fn read_log(
        &self,
        mut log: impl BufRead,
        on_invalid: OnInvalid,
    ) -> Result<(Vec<TuningRecord>, ImportReport), DbError> {
        let (mut records, mut report) = (Vec::new(), ImportReport::default());
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            let mut limited = log.by_ref().take(MAX_LINE_BYTES);
            let failed = io_error("cannot import into", self.path());
            if limited.read_until(b'\n', &mut bytes).map_err(&failed)? == 0 {
                break;
            }

            match (read_record(&bytes), on_invalid) {
                (Ok(record), _) => records.extend(record),
                (Err(reason), OnInvalid::Refuse) => return Err(DbError::Log { line, reason }),
                (Err(reason), OnInvalid::Skip) => {
                    report.invalid_lines += 1;
                    if report.first_invalid.len() < NAMED {
                        report.first_invalid.push((line, reason));
                    }
                    if !bytes.ends_with(b"\n") {
                        log.skip_until(b'\n').map_err(failed)?;
                    }
                }
            }
        }
        Ok((records, report))
    }
}

/// Parses a line of a log; `None` for a blank line.
fn read_record(bytes: &[u8]) -> Result<Option<TuningRecord>, String> {
    if bytes.len() as u64 == MAX_LINE_BYTES && !bytes.ends_with(b"\n") {
        return Err(format!("longer than {MAX_LINE_BYTES} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let record = TuningRecord::from_foreign_line(text).map_err(|e| e.to_string())?;
    Ok(Some(TuningRecord { imported: true, ..record }))
}

/// Returns `Ok` if a stored line can be exported: it is a record, or has the version number of a
/// newer one. Otherwise returns the reason.
pub(crate) fn check_exportable(line: &str) -> Result<(), String> {
    let Err(error) = TuningRecord::from_line(line) else {
        return Ok(());
    };
    let of_newer = matches!(error, RecordError::NewerVersion { .. } | RecordError::Malformed(_));
    let is_versioned = || serde_json::from_str(line).is_ok_and(|value: Value| value["version"].is_u64());
    if of_newer && is_versioned() { Ok(()) } else { Err(error.to_string()) }
}

pub(crate) fn write_line(out: &mut impl Write, line: &str, path: &Path) -> Result<(), DbError> {
    out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(io_error("cannot export", path))
}
