//! Durable record counts per task, with which the copies are compared to detect lost records.
//!
//! The file `flushed` has one line with the checksum of the others, then per task `RECORDS TAB NEXT
//! TAB TARGET TAB WORKLOAD`. NEXT is the position of the task's next record. The layout without a
//! journal stored the total only.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::checksum::{checksum, is_checksum};
use crate::error::DbError;
use crate::files::write_whole;
use crate::keys::{Records, TaskKey};
use crate::warning::{TaskCount, TaskCounts};

/// Number of a task's records, and the position of the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) records: u64,
    pub(crate) next: u64,
}

/// Record counts of all tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordCounts(pub(crate) BTreeMap<TaskKey, Count>);

/// Content of the file `flushed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Record counts of each task.
    Counts(RecordCounts),
    /// Total number of records, from the layout without a journal.
    Total(u64),
    /// The file is missing or unreadable, for this reason.
    Unknown(&'static str),
}

impl RecordCounts {
    pub(crate) fn of(records: &Records) -> Self {
        let count = |lines: &BTreeMap<u64, String>| Count {
            records: lines.len() as u64,
            next: lines.last_key_value().map_or(0, |(place, _)| place.saturating_add(1)),
        };
        Self(records.0.iter().map(|(task, lines)| (task.clone(), count(lines))).collect())
    }

    /// Returns true if the record at this position was durable.
    pub(crate) fn covers(&self, task: &TaskKey, place: u64) -> bool {
        self.0.get(task).is_some_and(|count| place < count.next)
    }

    /// Returns how many durable records of each task are missing in `found`.
    pub(crate) fn lost(&self, found: &Records) -> TaskCounts {
        let lost = |(task, count): (&TaskKey, &Count)| {
            let there = found.0.get(task).map_or(0, |lines| lines.range(..count.next).count() as u64);
            TaskCount::new(task, count.records.saturating_sub(there))
        };
        TaskCounts::new(self.0.iter().map(lost))
    }

    /// Returns how many records of each task are missing before later ones, not counting durable
    /// records.
    pub(crate) fn gaps(&self, found: &Records) -> TaskCounts {
        let gap = |(task, lines): (&TaskKey, &BTreeMap<u64, String>)| {
            let next = self.0.get(task).map_or(0, |count| count.next);
            let behind = lines.range(next..);
            let wanted = lines.last_key_value().map_or(0, |(last, _)| last.saturating_add(1).saturating_sub(next));
            TaskCount::new(task, wanted - behind.count() as u64)
        };
        TaskCounts::new(found.0.iter().map(gap))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), DbError> {
        let line = |(task, count): (&TaskKey, &Count)| {
            format!("{}\t{}\t{}\t{}\n", count.records, count.next, task.target, task.workload)
        };
        let text: String = self.0.iter().map(line).collect();
        write_whole(&path.join("flushed"), &format!("{}\n{text}", checksum(&text)))
    }

    fn parse(text: &str) -> Option<Self> {
        let (digits, lines) = text.split_once('\n')?;
        if !is_checksum(digits, lines.as_bytes()) {
            return None;
        }
        let count = |line: &str| {
            let mut fields = line.splitn(4, '\t');
            let mut field = || fields.next();
            let count = Count { records: field()?.parse().ok()?, next: field()?.parse().ok()? };
            Some((TaskKey { target: field()?.to_string(), workload: field()?.to_string() }, count))
        };
        lines.lines().map(count).collect::<Option<_>>().map(Self)
    }
}

impl Flushed {
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = match fs::read(path.join("flushed")) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Self::Unknown("it is missing"),
            Err(_) => return Self::Unknown("it cannot be read"),
        };
        let text = String::from_utf8_lossy(&bytes);
        match (RecordCounts::parse(&text), text.trim_end().parse()) {
            (Some(counts), _) => Self::Counts(counts),
            // A checksum line is longer than any total.
            (None, Ok(total)) if text.len() < 16 => Self::Total(total),
            _ => Self::Unknown("it is damaged"),
        }
    }
}
