//! Warnings for the user about problems that do not stop the work.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::keys::TaskKey;

/// Most tasks that a message names.
const NAMED: usize = 4;

/// Problem of a database that was repaired or does not prevent using it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Warning {
    /// One copy of the records lacked some that the other had.
    #[error("{path} was damaged: {copy} was missing {records}; they were restored")]
    Restored {
        /// Path of the database.
        path: PathBuf,
        /// Name of the incomplete copy.
        copy: &'static str,
        /// Number of restored records per task.
        records: TaskCounts,
    },
    /// A damaged copy was rebuilt from the readable records of both.
    #[error("{copy} of {path} was damaged ({reason}) and was rebuilt; the damaged files are at {aside}")]
    Remade {
        /// Path of the database.
        path: PathBuf,
        /// Name of the damaged copy.
        copy: &'static str,
        /// Damage that was found.
        reason: String,
        /// Path to which the damaged files were moved.
        aside: PathBuf,
    },
    /// Some records are lost.
    #[error("{path} has lost {records}: {reason}")]
    Lost {
        /// Path of the database.
        path: PathBuf,
        /// Number of lost records per task.
        records: TaskCounts,
        /// Reason that this is not an error, or advice.
        reason: &'static str,
    },
    /// A file with information about the database was missing or damaged.
    #[error("cannot use the file {file} of {path} ({reason}): {consequence}")]
    Marker {
        /// Path of the database.
        path: PathBuf,
        /// Name of the file.
        file: &'static str,
        /// Damage of the file.
        reason: String,
        /// Consequence of the damage.
        consequence: &'static str,
    },
    /// Some lines of the journal are unreadable.
    #[error("skipped {lines} unreadable line(s) of {path}/journal, the first of them line {first}")]
    Unreadable {
        /// Path of the database.
        path: PathBuf,
        /// Number of unreadable lines.
        lines: usize,
        /// Number of the first one, from 1.
        first: u64,
    },
    /// A record is damaged or was written by a newer version.
    #[error("skipped record {place} of {task} in {path}: {reason}")]
    Skipped {
        /// Path of the database.
        path: PathBuf,
        /// Workload and target of the record.
        task: String,
        /// Position of the record in the task, from 0.
        place: u64,
        /// Reason that it is unreadable.
        reason: String,
    },
    /// A task has an operator that this version does not know.
    #[error("skipped record(s): {records} in {path}: {reason}")]
    SkippedTask {
        /// Path of the database.
        path: PathBuf,
        /// Task and its number of records.
        records: TaskCount,
        /// Reason that it is unknown.
        reason: String,
    },
}

impl Warning {
    /// Returns the warning that the durable record counts are unknown.
    pub(crate) fn flushed(path: &Path, reason: &str) -> Self {
        let consequence = "cannot detect lost records at the end of tasks";
        Self::Marker { path: path.to_path_buf(), file: "flushed", reason: reason.to_string(), consequence }
    }

    /// Returns the warning that the FORMAT file is missing although there are records.
    pub(crate) fn format(path: &Path) -> Self {
        let (reason, consequence) = ("it is missing".to_string(), "the current format is assumed");
        Self::Marker { path: path.to_path_buf(), file: "FORMAT", reason, consequence }
    }
}

/// Number of records of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCount {
    /// Key of the machine.
    pub target: String,
    /// Text of the workload.
    pub workload: String,
    /// Number of records of the task.
    pub records: u64,
}

impl TaskCount {
    pub(crate) fn new(task: &TaskKey, records: u64) -> Self {
        Self { target: task.target.clone(), workload: task.workload.clone(), records }
    }
}

impl fmt::Display for TaskCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} on {}", self.records, self.workload, self.target)
    }
}

/// Numbers of records by task, all greater than 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts(Vec<TaskCount>);

impl TaskCounts {
    pub(crate) fn new(counts: impl IntoIterator<Item = TaskCount>) -> Self {
        Self(counts.into_iter().filter(|count| count.records > 0).collect())
    }

    /// Returns the counts of the individual tasks.
    pub fn tasks(&self) -> &[TaskCount] {
        &self.0
    }

    /// Returns the number of records of all tasks.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|count| count.records).sum()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Formats as `7 record(s): 5 of matmul:m=1,n=1,k=1 on cpu:x, 2 of ...`.
impl fmt::Display for TaskCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} record(s)", self.total())?;
        for (i, count) in self.0.iter().take(NAMED).enumerate() {
            write!(f, "{} {count}", if i == 0 { ":" } else { "," })?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more task(s)"),
        }
    }
}
