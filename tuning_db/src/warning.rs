//! What a database's caller should tell its user, though the work goes on.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::keys::TaskKey;

/// Tasks that a message names, at most.
const NAMED: usize = 4;

/// Something is wrong with a database, or was until it was mended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Warning {
    /// One copy of the records lacked some that the other had.
    #[error("{path} was damaged: {copy} lacked {records}; restored")]
    Restored {
        /// The database.
        path: PathBuf,
        /// The copy.
        copy: &'static str,
        /// What was restored.
        records: TaskCounts,
    },
    /// A damaged copy was made anew from what could be read of both.
    #[error("{copy} of {path} was damaged ({reason}) and has been made anew; the damaged one is kept at {aside}")]
    Remade {
        /// The database.
        path: PathBuf,
        /// The copy.
        copy: &'static str,
        /// What was wrong with it.
        reason: String,
        /// Where it is kept.
        aside: PathBuf,
    },
    /// Records are gone.
    #[error("{path} has lost {records}: {reason}")]
    Lost {
        /// The database.
        path: PathBuf,
        /// What is gone.
        records: TaskCounts,
        /// Why that is no error, or what to do.
        reason: &'static str,
    },
    /// A file that tells about the database was missing or damaged.
    #[error("{file} of {path} tells nothing, {reason}: {consequence}")]
    Marker {
        /// The database.
        path: PathBuf,
        /// The file.
        file: &'static str,
        /// What is wrong with it.
        reason: String,
        /// What follows.
        consequence: &'static str,
    },
    /// Some of the journal cannot be read.
    #[error("{lines} line(s) of {path}/journal, the first of them line {first}, cannot be read; they were passed over")]
    Unreadable {
        /// The database.
        path: PathBuf,
        /// How many.
        lines: usize,
        /// Number of the first, from 1.
        first: u64,
    },
    /// A record is damaged or was written by a newer version.
    #[error("record {place} of {task} in {path} was passed over: {reason}")]
    Skipped {
        /// The database.
        path: PathBuf,
        /// Workload and target.
        task: String,
        /// Its place in the task, from 0.
        place: u64,
        /// Why.
        reason: String,
    },
    /// A task is of an operator that this version does not know.
    #[error("{records} in {path} was passed over: {reason}")]
    SkippedTask {
        /// The database.
        path: PathBuf,
        /// The task and how many records it has.
        records: TaskCount,
        /// Why.
        reason: String,
    },
}

impl Warning {
    /// It is not known what was durable.
    pub(crate) fn flushed(path: &Path, reason: &str) -> Self {
        let consequence = "whether records are gone from the end of tasks is not known";
        Self::Marker { path: path.to_path_buf(), file: "flushed", reason: reason.to_string(), consequence }
    }

    /// There are records without a word about their format.
    pub(crate) fn format(path: &Path) -> Self {
        let (reason, consequence) =
            ("it is missing".to_string(), "the files are taken for those of the present format");
        Self::Marker { path: path.to_path_buf(), file: "FORMAT", reason, consequence }
    }
}

/// So many records of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCount {
    /// Key of the machine.
    pub target: String,
    /// The workload's text.
    pub workload: String,
    /// How many records.
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

/// Numbers of records by task, none of them 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts(Vec<TaskCount>);

impl TaskCounts {
    pub(crate) fn new(counts: impl IntoIterator<Item = TaskCount>) -> Self {
        Self(counts.into_iter().filter(|count| count.records > 0).collect())
    }

    /// The tasks.
    pub fn tasks(&self) -> &[TaskCount] {
        &self.0
    }

    /// Records of all tasks.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|count| count.records).sum()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `7 record(s): 5 of matmul:m=1,n=1,k=1 on cpu:x, 2 of ...`.
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
