//! Keys of records: their task and their position in it.
//!
//! Tasks are texts and not [`Workload`]s, because a newer version may have stored records of
//! operators that this version does not know.

use std::collections::BTreeMap;
use std::fmt;

use autotune_workloads::Workload;

/// Prefix of the storage engine's keys of records: `r NUL TARGET NUL WORKLOAD NUL place`, with the
/// position (place) in 8 bytes, big-endian. Texts contain no NUL. An earlier layout stored indexes
/// under other letters.
pub(crate) const RECORD_PREFIX: &[u8] = b"r\0";

/// Key of a task: a target and a workload's text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskKey {
    pub(crate) target: String,
    pub(crate) workload: String,
}

impl TaskKey {
    pub(crate) fn new(target: &str, workload: &Workload) -> Self {
        Self { target: target.to_string(), workload: workload.to_string() }
    }

    /// Returns the storage engine's key of the record at a position.
    pub(crate) fn record(&self, place: u64) -> Vec<u8> {
        [RECORD_PREFIX, self.target.as_bytes(), b"\0", self.workload.as_bytes(), b"\0", &place.to_be_bytes()].concat()
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.workload, self.target)
    }
}

/// Parses the task and position from a storage engine's key.
pub(crate) fn parse_record(key: &[u8]) -> Option<(TaskKey, u64)> {
    let (texts, place) = key.strip_prefix(RECORD_PREFIX)?.split_last_chunk::<8>()?;
    Some((parse_task(texts)?, u64::from_be_bytes(*place)))
}

/// Parses the task from `TARGET NUL WORKLOAD NUL`.
pub(crate) fn parse_task(texts: &[u8]) -> Option<TaskKey> {
    let (target, workload) = std::str::from_utf8(texts).ok()?.strip_suffix('\0')?.split_once('\0')?;
    Some(TaskKey { target: target.to_string(), workload: workload.to_string() })
}

/// Stored record: its task, its position there (from 0), and its line of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FiledRecord {
    pub(crate) task: TaskKey,
    pub(crate) place: u64,
    pub(crate) line: String,
}

/// Lines of records by task and position.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Records(pub(crate) BTreeMap<TaskKey, BTreeMap<u64, String>>);

impl Records {
    pub(crate) fn get(&self, task: &TaskKey, place: u64) -> Option<&str> {
        self.0.get(task)?.get(&place).map(String::as_str)
    }

    /// Inserts a record unless there is one at its position.
    pub(crate) fn insert(&mut self, entry: FiledRecord) {
        self.0.entry(entry.task).or_default().entry(entry.place).or_insert(entry.line);
    }

    /// Iterates over all records, ordered by target, workload text and position.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TaskKey, u64, &str)> {
        self.0.iter().flat_map(|(task, lines)| lines.iter().map(move |(place, line)| (task, *place, line.as_str())))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        let task = TaskKey { target: "cpu:x".into(), workload: "pool9d:m=1".into() };
        for place in [0, 7, 0x0a09_0000_0000_0100, u64::MAX] {
            assert_eq!(parse_record(&task.record(place)), Some((task.clone(), place)));
        }
        for bad in [&b"r\0"[..], b"i\0cpu\0m\0", b"r\0cpu\0m\0\0\0\0", b"r\0\xff\0m\0\0\0\0\0\0\0\0\0"] {
            assert_eq!(parse_record(bad), None);
        }
    }
}
