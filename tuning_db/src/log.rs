//! Export to and import from JSON Lines: one record a line.

use std::io::{BufRead, Read, Write};
use std::path::Path;

use serde_json::Value;

use crate::error::{DbError, RecordError};
use crate::files::io_error;
use crate::keys::TaskKey;
use crate::record::TuningRecord;
use crate::store::TuningDb;

/// Longest line that is taken for a record.
const MAX_LINE_BYTES: u64 = 128 << 10;
/// Records stored together on import.
const BATCH: usize = 256;
/// Lines passed over that a report names, at most.
const NAMED: usize = 3;

/// What an import does about lines that are no records, or records that no measurement yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInvalid {
    /// The first is an error, and nothing is imported.
    Refuse,
    /// They are passed over and counted.
    Skip,
}

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Records that were new.
    pub added: usize,
    /// Records that were there already.
    pub skipped_duplicates: usize,
    /// Lines that were passed over.
    pub invalid_lines: usize,
    /// The first few of them: the line, counted from 1, and what is wrong with it.
    pub first_invalid: Vec<(usize, String)>,
}

impl TuningDb {
    /// Writes every record as one line of JSON, ordered by target, workload text, and place in the
    /// task; returns how many. Records of newer versions are passed on as they are;
    /// [`warnings`](Self::warnings) tell of others that cannot be read.
    ///
    /// Importing the lines into an empty database yields the same records as claims.
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

    /// Writes one record; false if it is not one.
    fn export_line(&self, out: &mut impl Write, task: &TaskKey, place: u64, line: &str) -> Result<bool, DbError> {
        match passable(line) {
            Ok(()) => write_line(out, line, self.path()).map(|()| true),
            Err(reason) => {
                self.skip(task, place, reason);
                Ok(false)
            }
        }
    }

    /// Stores every record of an exported log that is not there yet, durably, as a
    /// [claim](TuningRecord::is_claim): whether its time holds here is not known. Blank lines are
    /// passed over.
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

/// The record of a line of a log; `None` for a blank line.
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

/// Whether a stored line can be passed on: a record, or what a newer version calls one. Else why
/// not.
pub(crate) fn passable(line: &str) -> Result<(), String> {
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
