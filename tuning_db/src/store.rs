//! The database: opening it, and appending records.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use autotune_workloads::Workload;

use crate::check::tidy;
use crate::error::DbError;
use crate::flushed::{Count, Counts};
use crate::index::TaskIndex;
use crate::keys::{Entry, Records, TaskKey};
use crate::mend;
use crate::reading::Reading;
use crate::record::TuningRecord;
use crate::warning::Warning;
use crate::writer::Writer;

/// Tuning records: on disk, and in memory while a handle is open.
///
/// One process at a time has a database open for writing; beside it any number may have it [open
/// for reading](Self::open_reading). A handle may be shared by threads.
///
/// Once [`append`](Self::append) has returned, a record is visible, to readers that open from then
/// on, too, and outlives the process, killed or not; once [`flush`](Self::flush) has returned, it
/// outlives a loss of power too. Dropping the handle flushes.
pub struct TuningDb {
    path: PathBuf,
    tasks: RwLock<BTreeMap<TaskKey, TaskLog>>,
    storage: Storage,
    warnings: Mutex<Warnings>,
}

/// Where appended records go.
enum Storage {
    /// Nowhere but into memory.
    Temporary,
    /// Nowhere: they are refused.
    Reading,
    /// Onto the disk.
    Writing(Mutex<Writer>),
}

/// Warnings that were not told yet.
#[derive(Default)]
struct Warnings {
    pending: Vec<Warning>,
    /// Records that were warned of.
    skipped: BTreeSet<(TaskKey, u64)>,
}

/// Records of a task.
#[derive(Default)]
pub(crate) struct TaskLog {
    /// Lines by place. Places are missing where records were lost.
    pub(crate) lines: BTreeMap<u64, String>,
    index: OnceLock<TaskIndex>,
    /// The workload, read when it is first asked for; `None` if this version does not know it.
    workload: OnceLock<Option<Workload>>,
}

impl TaskLog {
    fn of(lines: BTreeMap<u64, String>) -> Self {
        Self { lines, ..Self::default() }
    }

    /// The workload of the task whose log it is.
    pub(crate) fn workload(&self, task: &TaskKey) -> Option<&Workload> {
        self.workload.get_or_init(|| task.workload.parse().ok()).as_ref()
    }

    fn count(&self) -> Count {
        Count { records: self.lines.len() as u64, next: self.next_place() }
    }

    fn next_place(&self) -> u64 {
        self.lines.last_key_value().map_or(0, |(place, _)| place.saturating_add(1))
    }

    fn has_line(&self, index: &TaskIndex, line: &str) -> bool {
        index.place_of(line).is_some_and(|place| self.lines.get(&place).is_some_and(|there| there == line))
    }
}

impl fmt::Debug for TuningDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TuningDb").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TuningDb {
    /// Opens the database at `path` for writing; makes one if nothing or an empty directory is
    /// there.
    ///
    /// The two copies of the records are compared, and each is mended from the other:
    /// [`warnings`](Self::warnings) tell of it.
    ///
    /// # Errors
    /// [`Held`](DbError::Held) if it is open for writing elsewhere,
    /// [`NewerFormat`](DbError::NewerFormat), [`NotADatabase`](DbError::NotADatabase),
    /// [`NotADirectory`](DbError::NotADirectory), [`Corrupt`](DbError::Corrupt),
    /// [`Io`](DbError::Io); [`Lost`](DbError::Lost) if records that were durable are in neither
    /// copy.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DbError> {
        let path = path.as_ref();
        let mend::Opened { records, writer, warnings } = mend::open(path)?;
        Ok(Self::with(path, records, Storage::Writing(Mutex::new(writer)), warnings))
    }

    /// Opens the database at `path`, which must exist, for reading: beside a process that writes
    /// it, from any number of processes, without a lock and without writing anything.
    ///
    /// The handle knows all records whose append had returned before, and none that is appended
    /// later. Records that are missing in the copy that is read are told in the
    /// [`warnings`](Self::warnings). A database of an earlier version, which has no such copy, is
    /// opened for writing once to make it; one that its first writer is still making is not there
    /// yet.
    ///
    /// # Errors
    /// [`NotFound`](DbError::NotFound), [`NoJournal`](DbError::NoJournal) and those of
    /// [`open`](Self::open) but for `Held` and `Lost`.
    pub fn open_reading(path: impl AsRef<Path>) -> Result<Self, DbError> {
        let path = path.as_ref();
        let mut found = Reading::of(path)?;
        if !found.has_journal {
            let mended = match Self::open(path) {
                Ok(db) => db.warnings(),
                Err(DbError::Held { .. }) if found.is_unmade => {
                    return Err(DbError::NotFound { path: path.to_path_buf() });
                }
                Err(error) => {
                    return Err(DbError::NoJournal { path: path.to_path_buf(), reason: error.to_string() });
                }
            };
            found = Reading::of(path)?;
            found.warnings.splice(0..0, mended);
        }
        Ok(Self::with(path, found.records, Storage::Reading, found.warnings))
    }

    /// An empty database in memory.
    pub fn temporary() -> Result<Self, DbError> {
        Ok(Self::with(Path::new("(temporary)"), Records::default(), Storage::Temporary, Vec::new()))
    }

    fn with(path: &Path, records: Records, storage: Storage, warnings: Vec<Warning>) -> Self {
        let logs = records.0.into_iter().map(|(task, lines)| (task, TaskLog::of(lines)));
        Self {
            path: path.to_path_buf(),
            tasks: RwLock::new(logs.collect()),
            storage,
            warnings: Mutex::new(Warnings { pending: warnings, skipped: BTreeSet::new() }),
        }
    }

    /// Stores one record. See [`append_all`](Self::append_all).
    pub fn append(&self, record: &TuningRecord) -> Result<(), DbError> {
        self.append_all(std::slice::from_ref(record)).map(|_| ())
    }

    /// Stores records, all or none of them, and returns how many were new. A record that is there
    /// already, equal in every field, changes nothing; measuring the same config again yields
    /// another record. The same record measured here and [`imported`](TuningRecord::imported) is
    /// stored once, as it came first.
    ///
    /// In the words of compilers and drivers (messages of failures, provenance) control characters
    /// are replaced, and the ends of long ones are cut off.
    ///
    /// # Errors
    /// [`Refused`](DbError::Refused) for a record that no measurement can yield: a time that is not
    /// positive, a number that is not finite, an error beyond the tolerance, a workload that makes
    /// no sense, a text that is absurdly long. [`ReadOnly`](DbError::ReadOnly) if the database is
    /// open for reading. [`Io`](DbError::Io), such as on a full disk: nothing of this append is
    /// there then, and everything of earlier ones.
    pub fn append_all(&self, records: &[TuningRecord]) -> Result<usize, DbError> {
        if matches!(self.storage, Storage::Reading) {
            return Err(DbError::ReadOnly { path: self.path.clone() });
        }
        let lined = |record: &TuningRecord| {
            let mut record = record.clone();
            tidy(&mut record);
            let line = record.to_line().map_err(DbError::Refused)?;
            Ok((record, line))
        };
        let lined = records.iter().map(lined).collect::<Result<Vec<_>, DbError>>()?;

        let mut tasks = self.logs_mut();
        let (entries, new) = self.place(&tasks, &lined)?;
        if let Storage::Writing(writer) = &self.storage
            && !entries.is_empty()
        {
            lock(writer).append(&self.path, &entries)?;
        }

        for (entry, record) in entries.into_iter().zip(&new) {
            let log = tasks.entry(entry.task).or_default();
            log.index.get_or_init(TaskIndex::default);
            if let Some(index) = log.index.get_mut() {
                index.append(entry.place, &entry.line, record);
            }
            log.lines.insert(entry.place, entry.line);
        }
        Ok(new.len())
    }

    /// The records that are new, and where they are filed.
    fn place<'a>(
        &self,
        tasks: &BTreeMap<TaskKey, TaskLog>,
        lined: &'a [(TuningRecord, String)],
    ) -> Result<(Vec<Entry>, Vec<&'a TuningRecord>), DbError> {
        let (mut entries, mut new) = (Vec::new(), Vec::new());
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut added: BTreeMap<TaskKey, u64> = BTreeMap::new();
        for (record, line) in lined {
            let task = TaskKey::new(&record.target, &record.workload);
            let log = tasks.get(&task);
            if !seen.insert(line) || log.map_or(Ok(false), |log| self.is_known(&task, log, record, line))? {
                continue;
            }
            let added = added.entry(task.clone()).or_default();
            let place = log.map_or(0, TaskLog::next_place).saturating_add(*added);
            *added += 1;
            entries.push(Entry { task, place, line: line.clone() });
            new.push(record);
        }
        Ok((entries, new))
    }

    /// True if the record is there, be it with the other mark.
    fn is_known(&self, task: &TaskKey, log: &TaskLog, record: &TuningRecord, line: &str) -> Result<bool, DbError> {
        let index = self.index(task, log);
        if log.has_line(index, line) {
            return Ok(true);
        }
        let measured = TuningRecord { imported: false, ..record.clone() };
        Ok(record.imported && log.has_line(index, &measured.to_line().map_err(DbError::Refused)?))
    }

    /// Copies the records kept under the target `from` as [claims](TuningRecord::is_claim) of the
    /// target `to`, if they are not there yet; returns how many were new. For targets whose key has
    /// changed: such records may be of another machine that had the same key.
    pub fn adopt(&self, from: &str, to: &str) -> Result<usize, DbError> {
        let mut records = self.query_target(from)?;
        for record in &mut records {
            record.target = to.to_string();
            record.imported = true;
        }
        self.append_all(&records)
    }

    /// Makes everything appended so far durable, against loss of power too.
    pub fn flush(&self) -> Result<(), DbError> {
        let Storage::Writing(writer) = &self.storage else {
            return Ok(());
        };
        let tasks = self.logs();
        lock(writer).flush(&self.path, counts(&tasks))
    }

    /// What the user should be told: of damage that was found and mended, and of records that were
    /// passed over since they cannot be read. Each warning is told once.
    pub fn warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut lock(&self.warnings).pending)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn logs(&self) -> RwLockReadGuard<'_, BTreeMap<TaskKey, TaskLog>> {
        self.tasks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn logs_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<TaskKey, TaskLog>> {
        self.tasks.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the task's records.
    pub(crate) fn index<'a>(&self, task: &TaskKey, log: &'a TaskLog) -> &'a TaskIndex {
        log.index.get_or_init(|| {
            let (index, skipped) = TaskIndex::of(&log.lines);
            skipped.into_iter().for_each(|(place, reason)| self.skip(task, place, reason));
            index
        })
    }

    /// Warns of a record that cannot be read.
    pub(crate) fn skip(&self, task: &TaskKey, place: u64, reason: String) {
        let mut warnings = lock(&self.warnings);
        if warnings.skipped.insert((task.clone(), place)) {
            let (path, task) = (self.path.clone(), task.to_string());
            warnings.pending.push(Warning::Skipped { path, task, place, reason });
        }
    }

    pub(crate) fn warn(&self, warning: Warning) {
        let mut warnings = lock(&self.warnings);
        if !warnings.pending.contains(&warning) {
            warnings.pending.push(warning);
        }
    }
}

impl Drop for TuningDb {
    fn drop(&mut self) {
        let counts = counts(&self.logs());
        if let Storage::Writing(writer) = &self.storage {
            // Whoever wants to know whether it worked flushes.
            let _ = lock(writer).close(&self.path, counts);
        }
    }
}

fn counts(tasks: &BTreeMap<TaskKey, TaskLog>) -> Counts {
    Counts(tasks.iter().map(|(task, log)| (task.clone(), log.count())).collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
