//! Queries of a database's records.

use std::cmp::Ordering;
use std::collections::HashMap;

use autotune_ir::KeyParts;
use autotune_schedules::Config;
use autotune_workloads::Workload;
use serde::Serialize;

use crate::error::DbError;
use crate::index::{IndexRow, TaskIndex, best, ranking};
use crate::keys::TaskKey;
use crate::record::{Phase, TuningRecord};
use crate::store::{TaskLog, TuningDb};
use crate::warning::{TaskCount, Warning};

/// Task with its number of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSummary {
    /// Key of the machine.
    pub target: String,
    /// Workload that is computed.
    pub workload: Workload,
    /// Number of records, failed candidates included.
    pub records: u64,
}

/// Record to deploy for a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// Record with the schedule and its time.
    #[serde(flatten)]
    pub record: TuningRecord,
    /// Provenance of the record's time.
    pub standing: TimeProvenance,
}

/// Provenance of a record's time, which tells how reliable it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeProvenance {
    /// Measured on this machine in a race against other winners.
    Raced,
    /// Measured on this machine once, by a search. The fastest of many such times is biased by
    /// luck.
    Searched,
    /// [Untrusted](TuningRecord::is_untrusted): not measured on this machine with the present
    /// lowering.
    Claimed,
}

impl Best {
    fn of(record: TuningRecord) -> Self {
        let standing = match record.phase {
            _ if record.is_untrusted() => TimeProvenance::Claimed,
            Phase::Race { .. } => TimeProvenance::Raced,
            Phase::Search => TimeProvenance::Searched,
        };
        Self { record, standing }
    }

    /// Orders records by preference: the lesser is deployed. Measured records come before untrusted
    /// ones, then the fastest.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let is_untrusted = |best: &Self| best.standing == TimeProvenance::Claimed;
        let secs = |best: &Self| best.record.measurement.run_secs().unwrap_or(f64::INFINITY);
        is_untrusted(self).cmp(&is_untrusted(other)).then(secs(self).total_cmp(&secs(other)))
    }
}

/// Records of a task together with the predicate that tells which configs fit.
struct Fitting<'a> {
    db: &'a TuningDb,
    task: &'a TaskKey,
    log: &'a TaskLog,
    fits: &'a dyn Fn(&Config) -> bool,
    /// Cached results of the predicate, by config hash.
    known: HashMap<u64, bool>,
}

impl Fitting<'_> {
    fn fits(&mut self, row: IndexRow) -> bool {
        if let Some(fits) = self.known.get(&row.config_hash) {
            return *fits;
        }
        let fits = self.record(row).is_some_and(|record| (self.fits)(&record.config));
        self.known.insert(row.config_hash, fits);
        fits
    }

    fn record(&self, row: IndexRow) -> Option<TuningRecord> {
        let line = self.log.lines.get(&row.place)?;
        self.db.decode(self.task, row.place, line)
    }

    /// Returns the first `k` records that fit.
    fn first(&mut self, rows: Vec<IndexRow>, k: usize) -> Vec<TuningRecord> {
        let mut records = Vec::new();
        let mut rows = rows.into_iter();
        while records.len() < k
            && let Some(row) = rows.next()
        {
            if self.fits(row) {
                records.extend(self.record(row));
            }
        }
        records
    }
}

impl TuningDb {
    /// Returns the record to deploy for a task, or `None` if no config is known to run. `fits`
    /// tells whether a config is in the present schedule space of the task; other configs are
    /// ignored.
    ///
    /// The result follows from the records of the task that were measured on this machine with the
    /// present lowering, in the order of appending. A record of a search becomes the best if it is
    /// faster than the best so far. The minimum of many single measurements is biased, which races
    /// correct (adjacent records of the task with the same [`Phase::Race`] id). If the best so far
    /// took part in a race, the fastest racer replaces it, however slow it is, and if no racer ran
    /// there is no best any more. If the best so far did not take part, the fastest racer has to be
    /// faster. Ties are resolved in favour of the earlier record.
    ///
    /// Only if there is no such record, the same rule is applied to the [untrusted
    /// records](TuningRecord::is_untrusted) of configs that were not measured on this machine.
    pub fn best(
        &self,
        workload: &Workload,
        target: &str,
        fits: &dyn Fn(&Config) -> bool,
    ) -> Result<Option<Best>, DbError> {
        Ok(self.of_task(workload, target, fits, |index, fitting| {
            let mut fits = |row| fitting.fits(row);
            let row = best(index.measured(), &mut fits).or_else(|| best(index.untrusted(), &mut fits))?;
            fitting.record(row).map(Best::of)
        }))
    }

    /// Returns the records of a task in the order of appending. Decodes only that task's records.
    pub fn query(&self, workload: &Workload, target: &str) -> Result<Vec<TuningRecord>, DbError> {
        let task = TaskKey::new(target, workload);
        Ok(self.logs().get(&task).map(|log| self.decode_all(&task, log)).unwrap_or_default())
    }

    /// Returns all records of a target, ordered by workload text, then as appended.
    pub fn query_target(&self, target: &str) -> Result<Vec<TuningRecord>, DbError> {
        let tasks = self.logs();
        let first = TaskKey { target: target.to_string(), workload: String::new() };
        let of_target = tasks.range(first..).take_while(|(task, _)| task.target == target);
        Ok(of_target.flat_map(|(task, log)| self.decode_all(task, log)).collect())
    }

    /// Returns the `k` records of a task that are most worth racing, fastest first, one per config.
    /// Only records that fit and were measured on this machine with the present lowering count.
    /// Decodes only that task's records.
    ///
    /// A config is ranked by its fastest record in the last race it took part in, and omitted if it
    /// failed there. Without a race it is ranked by its fastest record of the search. Times of the
    /// search are biased by luck, so the first need not be [`best`](Self::best).
    pub fn top(
        &self,
        workload: &Workload,
        target: &str,
        k: usize,
        fits: &dyn Fn(&Config) -> bool,
    ) -> Result<Vec<TuningRecord>, DbError> {
        Ok(self.ranked(workload, target, k, fits, |index| ranking(index.measured())))
    }

    /// Returns the `k` [untrusted records](TuningRecord::is_untrusted) of a task that are most
    /// worth measuring, ranked as by [`top`](Self::top). Only configs that fit and were not
    /// measured on this machine with the present lowering count.
    pub fn untrusted(
        &self,
        workload: &Workload,
        target: &str,
        k: usize,
        fits: &dyn Fn(&Config) -> bool,
    ) -> Result<Vec<TuningRecord>, DbError> {
        Ok(self.ranked(workload, target, k, fits, |index| ranking(index.untrusted())))
    }

    /// Returns true if there is a record of the config for the task, even a failed one.
    pub fn contains(&self, workload: &Workload, target: &str, config: &Config) -> Result<bool, DbError> {
        let is_there = |index: &TaskIndex, _: &mut Fitting<'_>| Some(index.contains(config.stable_hash()));
        Ok(self.of_task(workload, target, &|_| true, is_there).unwrap_or_default())
    }

    /// Returns all tasks with records, ordered by target, then by workload text. Decodes no record.
    pub fn tasks(&self) -> Result<Vec<TaskSummary>, DbError> {
        let mut summaries = Vec::new();
        for (task, log) in self.logs().iter() {
            let records = log.lines.len() as u64;
            match task.workload.parse() {
                Ok(workload) => summaries.push(TaskSummary { target: task.target.clone(), workload, records }),
                Err(error) => self.warn(Warning::SkippedTask {
                    path: self.path().to_path_buf(),
                    records: TaskCount::new(task, records),
                    reason: error.to_string(),
                }),
            }
        }
        Ok(summaries)
    }

    /// Returns the keys of the targets that have records of a workload. Decodes no record.
    pub fn targets_of(&self, workload: &Workload) -> Vec<String> {
        let (text, logs) = (workload.to_string(), self.logs());
        let tasks = logs.keys().filter(|task| task.workload == text);
        tasks.map(|task| task.target.clone()).collect()
    }

    /// Returns the tasks with a workload's operator and element type whose targets share a key with
    /// `target`: narrowest shared key first, then nearest shape. Decodes no record, and parses each
    /// workload's text once.
    pub(crate) fn nearest_tasks(&self, workload: &Workload, target: &str) -> Vec<(Workload, String)> {
        let own = KeyParts::of(target);
        let logs = self.logs();
        let near = |(task, log): (&TaskKey, &TaskLog)| {
            let reach = own.narrowest_shared(&KeyParts::of(&task.target))?;
            let of_task = log.workload(task)?;
            let distance = workload.distance(of_task);
            distance.is_finite().then(|| (reach, distance, of_task.clone(), task.target.clone()))
        };
        let mut tasks: Vec<_> = logs.iter().filter_map(near).collect();
        tasks.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then_with(|| (&a.2, &a.3).cmp(&(&b.2, &b.3))));
        tasks.into_iter().map(|(_, _, workload, target)| (workload, target)).collect()
    }

    /// Returns the number of records, including those that this version cannot read.
    pub fn len(&self) -> u64 {
        self.logs().values().map(|log| log.lines.len() as u64).sum()
    }

    /// Returns true if there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first `k` records that fit, in the order of `rows`.
    fn ranked(
        &self,
        workload: &Workload,
        target: &str,
        k: usize,
        fits: &dyn Fn(&Config) -> bool,
        rows: impl FnOnce(&TaskIndex) -> Vec<IndexRow>,
    ) -> Vec<TuningRecord> {
        let first = |index: &TaskIndex, fitting: &mut Fitting<'_>| Some(fitting.first(rows(index), k));
        self.of_task(workload, target, fits, first).unwrap_or_default()
    }

    /// Calls `ask` with a task's index; `None` if the task has no records.
    fn of_task<T>(
        &self,
        workload: &Workload,
        target: &str,
        fits: &dyn Fn(&Config) -> bool,
        ask: impl FnOnce(&TaskIndex, &mut Fitting<'_>) -> Option<T>,
    ) -> Option<T> {
        let task = TaskKey::new(target, workload);
        let logs = self.logs();
        let log = logs.get(&task)?;
        let mut fitting = Fitting { db: self, task: &task, log, fits, known: HashMap::new() };
        ask(self.index(&task, log), &mut fitting)
    }

    fn decode_all(&self, task: &TaskKey, log: &TaskLog) -> Vec<TuningRecord> {
        log.lines.iter().filter_map(|(place, line)| self.decode(task, *place, line)).collect()
    }

    /// Parses the record of a line; warns if it cannot be read.
    fn decode(&self, task: &TaskKey, place: u64, line: &str) -> Option<TuningRecord> {
        TuningRecord::from_line(line).map_err(|error| self.skip(task, place, error.to_string())).ok()
    }
}
