//! Database handle: opening and appending records.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use autotune_workloads::Workload;

use crate::check::tidy;
use crate::error::DbError;
use crate::flushed::{Count, RecordCounts};
use crate::index::TaskIndex;
use crate::keys::{FiledRecord, Records, TaskKey};
use crate::mend;
use crate::reading::Reading;
use crate::record::TuningRecord;
use crate::warning::Warning;
use crate::writer::DbWriter;

/// Tuning records, on disk and, while a handle is open, in memory.
///
/// One process at a time may open a database for writing; meanwhile any number of processes may
/// open it [for reading](Self::open_reading). Threads may share a handle.
///
/// Once [`append`](Self::append) has returned, a record is visible to readers that open later, and
/// survives the end of the process, even by a kill. Once [`flush`](Self::flush) has returned, it
/// survives a loss of power, too. Dropping the handle flushes.
pub struct TuningDb {
    path: PathBuf,
    tasks: RwLock<BTreeMap<TaskKey, TaskLog>>,
    storage: Storage,
    warnings: Mutex<Warnings>,
}

/// Destination of appended records.
enum Storage {
    /// In memory only, without files.
    Temporary,
    /// None: appends are refused.
    Reading,
    /// To the files on disk.
    Writing(Mutex<DbWriter>),
}

/// Warnings that were not returned yet.
#[derive(Default)]
struct Warnings {
    pending: Vec<Warning>,
    /// Unreadable records that a warning was already issued for.
    skipped: BTreeSet<(TaskKey, u64)>,
}

/// Records of a task.
#[derive(Default)]
pub(crate) struct TaskLog {
    /// Lines by position. Positions of lost records are missing.
    pub(crate) lines: BTreeMap<u64, String>,
    index: OnceLock<TaskIndex>,
    /// Parsed workload, cached; `None` if this version does not know it.
    workload: OnceLock<Option<Workload>>,
}

impl TaskLog {
    fn of(lines: BTreeMap<u64, String>) -> Self {
        Self { lines, ..Self::default() }
    }

    /// Returns the workload of `task`, to which this log belongs; `None` if this version does not
    /// know it.
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
    /// Returns the path of the user's database: `$AUTOTUNE_DB`, `$XDG_DATA_HOME/autotune/db` or
    /// `~/.local/share/autotune/db`. `None` if none of the variables nor `$HOME` is set.
    pub fn default_path() -> Option<PathBuf> {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let data_home = || var("XDG_DATA_HOME").or_else(|| Some(var("HOME")?.join(".local/share")));
        var("AUTOTUNE_DB").or_else(|| Some(data_home()?.join("autotune/db")))
    }

    /// Opens the database at `path` for writing; creates it if nothing or an empty directory exists
    /// there.
    ///
    /// Compares the two copies of the records and repairs each from the other, which
    /// [`warnings`](Self::warnings) report.
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

    /// Opens the existing database at `path` for reading, without a lock and without writing
    /// anything. Any number of processes may do so while another process writes.
    ///
    /// The handle has all records whose append had returned before, and none appended later.
    /// [`warnings`](Self::warnings) report records that are missing in the copy that is read. A
    /// database of an earlier version lacks that copy and is opened for writing once to make it. A
    /// database that its first writer is still creating counts as not found.
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

    /// Returns an empty database in memory.
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

    /// Stores one record, see [`append_all`](Self::append_all).
    pub fn append(&self, record: &TuningRecord) -> Result<(), DbError> {
        self.append_all(std::slice::from_ref(record)).map(|_| ())
    }

    /// Stores records atomically, and returns the number of new ones. A record that equals a stored
    /// one in every field is not stored again; measuring the same config again gives another
    /// record. A record that was both measured here and [`imported`](TuningRecord::imported) is
    /// stored once, as it came first.
    ///
    /// In messages of compilers and drivers (failures, provenance), control characters are replaced
    /// and long texts truncated.
    ///
    /// # Errors
    /// [`Refused`](DbError::Refused) for a record that no measurement can produce: a time that is
    /// not positive, a number that is not finite, an error beyond the tolerance, an invalid
    /// workload, a text that is too long. [`ReadOnly`](DbError::ReadOnly) if the database is open
    /// for reading. [`Io`](DbError::Io), for example on a full disk: then nothing of this append is
    /// stored, and everything of earlier ones.
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

    /// Determines the records that are new, and their positions.
    fn place<'a>(
        &self,
        tasks: &BTreeMap<TaskKey, TaskLog>,
        records: &'a [(TuningRecord, String)],
    ) -> Result<(Vec<FiledRecord>, Vec<&'a TuningRecord>), DbError> {
        let (mut entries, mut new) = (Vec::new(), Vec::new());
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut added: BTreeMap<TaskKey, u64> = BTreeMap::new();
        for (record, line) in records {
            let task = TaskKey::new(&record.target, &record.workload);
            let log = tasks.get(&task);
            if !seen.insert(line) || log.map_or(Ok(false), |log| self.is_known(&task, log, record, line))? {
                continue;
            }
            let added = added.entry(task.clone()).or_default();
            let place = log.map_or(0, TaskLog::next_place).saturating_add(*added);
            *added += 1;
            entries.push(FiledRecord { task, place, line: line.clone() });
            new.push(record);
        }
        Ok((entries, new))
    }

    /// Returns true if the record is stored, or, for an imported one, the same record measured
    /// here.
    fn is_known(&self, task: &TaskKey, log: &TaskLog, record: &TuningRecord, line: &str) -> Result<bool, DbError> {
        let index = self.index(task, log);
        if log.has_line(index, line) {
            return Ok(true);
        }
        let measured = TuningRecord { imported: false, ..record.clone() };
        Ok(record.imported && log.has_line(index, &measured.to_line().map_err(DbError::Refused)?))
    }

    /// Copies the records of the target `from` as [untrusted records](TuningRecord::is_untrusted)
    /// of the target `to`, unless they are already there. Returns the number of new ones. Used when
    /// the key of a target has changed: the records may be of another machine that had the same old
    /// key.
    pub fn adopt(&self, from: &str, to: &str) -> Result<usize, DbError> {
        let mut records = self.query_target(from)?;
        for record in &mut records {
            record.target = to.to_string();
            record.imported = true;
        }
        self.append_all(&records)
    }

    /// Makes everything appended so far durable, so that it survives a loss of power.
    pub fn flush(&self) -> Result<(), DbError> {
        let Storage::Writing(writer) = &self.storage else {
            return Ok(());
        };
        let tasks = self.logs();
        lock(writer).flush(&self.path, counts(&tasks))
    }

    /// Returns warnings for the user: about repaired damage, and about unreadable records that were
    /// skipped. Each warning is returned once.
    pub fn warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut lock(&self.warnings).pending)
    }

    /// Returns the path of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn logs(&self) -> RwLockReadGuard<'_, BTreeMap<TaskKey, TaskLog>> {
        self.tasks.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn logs_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<TaskKey, TaskLog>> {
        self.tasks.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of the task's records, building it when first needed.
    pub(crate) fn index<'a>(&self, task: &TaskKey, log: &'a TaskLog) -> &'a TaskIndex {
        log.index.get_or_init(|| {
            let (index, skipped) = TaskIndex::of(&log.lines);
            skipped.into_iter().for_each(|(place, reason)| self.skip(task, place, reason));
            index
        })
    }

    /// Adds a warning about an unreadable record, once per record.
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
            // Errors are ignored here; call `flush` to see them.
            let _ = lock(writer).close(&self.path, counts);
        }
    }
}

fn counts(tasks: &BTreeMap<TaskKey, TaskLog>) -> RecordCounts {
    RecordCounts(tasks.iter().map(|(task, log)| (task.clone(), log.count())).collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
