//! The database: appending records, and finding them again.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use autotune_schedules::config::fnv1a;
use autotune_schedules::{Config, Workload};

use crate::error::DbError;
use crate::files::{self, Files, guarded};
use crate::index::{TaskIndex, ranking};
use crate::keys::{self, Space};
use crate::record::TuningRecord;

/// How often [`TuningDb::open_waiting`] asks again.
const POLL: Duration = Duration::from_millis(50);

/// A task and how much is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSummary {
    /// Key of the machine.
    pub target: String,
    /// What is computed.
    pub workload: Workload,
    /// Number of records, failed candidates included.
    pub records: u64,
}

/// Tuning records on disk. One process at a time has a database open; within it the handle may be shared by threads.
///
/// Once [`append`](Self::append) has returned, a record is visible and outlives the process, killed or not; once
/// [`flush`](Self::flush) has returned, it outlives a loss of power too. Dropping the handle flushes.
pub struct TuningDb {
    path: PathBuf,
    files: Files,
    appending: Mutex<()>,
    records: AtomicU64,
}

impl fmt::Debug for TuningDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TuningDb").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TuningDb {
    /// Opens the database at `path`; makes one if nothing or an empty directory is there.
    ///
    /// # Errors
    /// [`Held`](DbError::Held) if it is open elsewhere, [`NewerFormat`](DbError::NewerFormat),
    /// [`NotADatabase`](DbError::NotADatabase), [`NotADirectory`](DbError::NotADirectory),
    /// [`Corrupt`](DbError::Corrupt), [`Io`](DbError::Io).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DbError> {
        let path = path.as_ref();
        let mut db = Self::with_files(path, Files::open(path)?)?;
        let (found, flushed) = (*db.records.get_mut(), files::flushed(path));
        if found < flushed {
            return Err(DbError::Lost { path: path.to_path_buf(), flushed, found });
        }
        Ok(db)
    }

    fn with_files(path: &Path, files: Files) -> Result<Self, DbError> {
        let mut db = Self { path: path.to_path_buf(), files, appending: Mutex::new(()), records: AtomicU64::new(0) };
        *db.records.get_mut() = db.tasks()?.iter().map(|t| t.records).sum();
        Ok(db)
    }

    /// Opens the database at `path`, which must exist: [`NotFound`](DbError::NotFound) otherwise. For looking up, where a
    /// mistyped path should not make a database.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, DbError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(DbError::NotFound { path: path.to_path_buf() });
        }
        Self::open(path)
    }

    /// [`open`](Self::open), but waits up to `timeout` for another holder to let go.
    pub fn open_waiting(path: impl AsRef<Path>, timeout: Duration) -> Result<Self, DbError> {
        let start = Instant::now();
        loop {
            match Self::open(path.as_ref()) {
                Err(DbError::Held { .. }) if start.elapsed() < timeout => std::thread::sleep(POLL),
                other => return other,
            }
        }
    }

    /// An empty database that is gone once the handle is dropped.
    pub fn temporary() -> Result<Self, DbError> {
        Self::with_files(Path::new("(temporary)"), Files::temporary()?)
    }

    /// Stores one record. See [`append_all`](Self::append_all).
    pub fn append(&self, record: &TuningRecord) -> Result<(), DbError> {
        self.append_all(std::slice::from_ref(record)).map(|_| ())
    }

    /// Stores records, all or none of them, and returns how many were new. A record that is there already, equal in every
    /// field, changes nothing; measuring the same config again yields another record.
    ///
    /// # Errors
    /// [`Refused`](DbError::Refused) for a record that no measurement can yield (a time that is not positive, a number
    /// that is not finite, a workload that makes no sense).
    pub fn append_all(&self, records: &[TuningRecord]) -> Result<usize, DbError> {
        let lines = records.iter().map(TuningRecord::to_line).collect::<Result<Vec<_>, _>>()?;
        let _appending = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = sled::Batch::default();
        let mut tasks: BTreeMap<Vec<u8>, TaskIndex> = BTreeMap::new();
        let mut new_lines: HashSet<&str> = HashSet::new();
        for (record, line) in records.iter().zip(&lines) {
            let line_key = keys::line(fnv1a(line.as_bytes()));
            if new_lines.contains(line.as_str()) || self.has_line(&line_key, line)? {
                continue;
            }
            new_lines.insert(line);
            let task_key = keys::task(Space::Index, &record.target, &record.workload);
            let task = match tasks.entry(task_key) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    let index = self.index_at(entry.key())?;
                    entry.insert(index)
                }
            };
            let record_key = keys::member(Space::Record, &record.target, &record.workload, task.records);
            let config_hash = record.config.stable_hash();
            batch.insert(keys::member(Space::Config, &record.target, &record.workload, config_hash), &[]);
            batch.insert(line_key, record_key.as_slice());
            batch.insert(record_key, line.as_bytes());
            task.push(record);
        }
        for (key, index) in tasks {
            let value = serde_json::to_vec(&index).map_err(|e| self.bad_entry(&key, e))?;
            batch.insert(key, value);
        }
        if !new_lines.is_empty() {
            guarded(&self.path, || self.files.sled.apply_batch(batch))?;
            self.files.write_out(&self.path)?;
            self.records.fetch_add(new_lines.len() as u64, Ordering::Release);
        }
        Ok(new_lines.len())
    }

    /// Makes everything appended so far durable, against loss of power too.
    pub fn flush(&self) -> Result<(), DbError> {
        let records = self.records.load(Ordering::Acquire);
        self.files.flush(&self.path)?;
        self.files.remember_flushed(&self.path, records)
    }

    /// The record to deploy for a task, found through an index, or `None` if nothing is known to run.
    ///
    /// It follows from the task's records in the order they were appended. A record of the search becomes the best if it is
    /// faster than the best so far. A race (adjacent records of the task with one [`Phase::Race`](crate::Phase::Race) id)
    /// corrects the optimism of picking the minimum of many single measurements: if the best so far took part,
    /// the race's fastest takes its place however slow it is, and if none of the racers ran there is no best any more. If the
    /// best so far did not take part, the race's fastest has to be faster. Ties leave the earlier one.
    ///
    /// Whether the config still fits today's schedule space is for the caller to check.
    pub fn best(&self, workload: &Workload, target: &str) -> Result<Option<TuningRecord>, DbError> {
        let index = self.index_at(&keys::task(Space::Index, target, workload))?;
        let Some(best) = index.best else {
            return Ok(None);
        };
        let key = keys::member(Space::Record, target, workload, best.seq);
        match guarded(&self.path, || self.files.sled.get(&key))? {
            Some(line) => self.decode(&key, &line).map(Some),
            None => Err(self.bad_entry(&key, "the index names it but it is gone")),
        }
    }

    /// The records of a task in the order they were appended. Reads that task's records only.
    pub fn query(&self, workload: &Workload, target: &str) -> Result<Vec<TuningRecord>, DbError> {
        self.scan(&keys::task(Space::Record, target, workload))
    }

    /// Every record of a target, ordered by workload text, then as appended.
    pub fn query_target(&self, target: &str) -> Result<Vec<TuningRecord>, DbError> {
        self.scan(&keys::target(Space::Record, target))
    }

    /// The `k` records of a task that are most worth racing, fastest first, one per config. Reads that task's records only.
    ///
    /// A config stands with its fastest record of the last race it took part in, and is left out if it failed there;
    /// without a race it stands with its fastest record of the search. Times of the search are optimistic, so the first
    /// need not be [`best`](Self::best).
    pub fn top(&self, workload: &Workload, target: &str, k: usize) -> Result<Vec<TuningRecord>, DbError> {
        let log = self.query(workload, target)?;
        Ok(ranking(&log, k).into_iter().filter_map(|place| log.get(place).cloned()).collect())
    }

    /// True if the config was measured for the task, whatever came of it. Found through an index.
    pub fn contains(&self, workload: &Workload, target: &str, config: &Config) -> Result<bool, DbError> {
        let key = keys::member(Space::Config, target, workload, config.stable_hash());
        guarded(&self.path, || self.files.sled.contains_key(&key))
    }

    /// Every task there are records of, ordered by target, then by workload text. Reads no record.
    pub fn tasks(&self) -> Result<Vec<TaskSummary>, DbError> {
        let mut summaries = Vec::new();
        for (key, value) in self.pairs(&keys::space(Space::Index))? {
            let (target, workload) =
                keys::parse_task(&key).ok_or_else(|| self.bad_entry(&key, "its key names no task"))?;
            let TaskIndex { records, .. } = self.decode_index(&key, &value)?;
            summaries.push(TaskSummary { target, workload, records });
        }
        Ok(summaries)
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.records.load(Ordering::Acquire)
    }

    /// True if there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every record's key and line, ordered by target, workload text and place.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Result<(sled::IVec, sled::IVec), DbError>> {
        self.iterate(keys::space(Space::Record))
    }

    pub(crate) fn decode(&self, key: &[u8], line: &[u8]) -> Result<TuningRecord, DbError> {
        let text = std::str::from_utf8(line).map_err(|e| self.bad_entry(key, e))?;
        TuningRecord::from_line(text).map_err(|e| self.bad_entry(key, e))
    }

    fn scan(&self, prefix: &[u8]) -> Result<Vec<TuningRecord>, DbError> {
        self.pairs(prefix)?.iter().map(|(key, line)| self.decode(key, line)).collect()
    }

    fn pairs(&self, prefix: &[u8]) -> Result<Vec<(sled::IVec, sled::IVec)>, DbError> {
        self.iterate(prefix.to_vec()).collect()
    }

    fn iterate(&self, prefix: Vec<u8>) -> impl Iterator<Item = Result<(sled::IVec, sled::IVec), DbError>> {
        let mut pairs = self.files.sled.scan_prefix(prefix);
        std::iter::from_fn(move || guarded(&self.path, || pairs.next().transpose()).transpose())
    }

    fn has_line(&self, line_key: &[u8], line: &str) -> Result<bool, DbError> {
        guarded(&self.path, || {
            let Some(record_key) = self.files.sled.get(line_key)? else {
                return Ok(false);
            };
            Ok(self.files.sled.get(record_key)?.is_some_and(|stored| stored == line.as_bytes()))
        })
    }

    fn index_at(&self, key: &[u8]) -> Result<TaskIndex, DbError> {
        match guarded(&self.path, || self.files.sled.get(key))? {
            Some(value) => self.decode_index(key, &value),
            None => Ok(TaskIndex::default()),
        }
    }

    fn decode_index(&self, key: &[u8], value: &[u8]) -> Result<TaskIndex, DbError> {
        serde_json::from_slice(value).map_err(|e| self.bad_entry(key, e))
    }

    fn bad_entry(&self, key: &[u8], reason: impl ToString) -> DbError {
        DbError::BadEntry { path: self.path.clone(), key: keys::readable(key), reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_cannot_be_read_are_named() {
        let db = TuningDb::temporary().unwrap();
        let (target, workload): (_, Workload) = ("cpu:x", "matmul:m=1,n=2,k=3".parse().unwrap());
        db.files.sled.insert(keys::member(Space::Record, target, &workload, 7), b"{}").unwrap();
        let said =
            "entry 'r cpu:x matmul:m=1,n=2,k=3 #7' of (temporary) cannot be read: not a tuning record: missing field";
        for error in [
            db.query(&workload, target).unwrap_err(),
            db.query_target(target).unwrap_err(),
            db.top(&workload, target, 1).unwrap_err(),
            db.export(std::io::sink()).unwrap_err(),
        ] {
            assert!(matches!(error, DbError::BadEntry { .. }));
            assert!(error.to_string().starts_with(said), "{error}");
        }
        assert_eq!(db.best(&workload, target).unwrap(), None);

        let index = keys::task(Space::Index, target, &workload);
        let best = r#"{"records":9,"best":{"seq":8,"run_secs":1.0,"config_hash":1},"race":null}"#;
        db.files.sled.insert(&index, best).unwrap();
        let error = db.best(&workload, target).unwrap_err().to_string();
        assert!(error.contains("#8") && error.contains("the index names it but it is gone"), "{error}");

        db.files.sled.insert(&index, b"\xff").unwrap();
        for error in [db.best(&workload, target).unwrap_err(), db.tasks().unwrap_err()] {
            assert!(error.to_string().starts_with("entry 'i cpu:x matmul:m=1,n=2,k=3' of"), "{error}");
        }
    }

    #[test]
    fn a_panic_of_the_engine_is_an_error() {
        let error = guarded::<()>(Path::new("some.db"), || panic!("slot {} is gone", 3)).unwrap_err();
        assert!(error.to_string().starts_with("some.db is corrupt: slot 3 is gone"), "{error}");
    }
}
