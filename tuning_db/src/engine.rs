//! Second copy of the records, in the storage engine sled.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::error::DbError;
use crate::files::io_error;
use crate::flushed::{Count, RecordCounts};
use crate::keys::{self, FiledRecord, RECORD_PREFIX, Records, TaskKey};

/// Bytes of the engine's page cache: it is read only once, when the database is opened.
const CACHE_BYTES: u64 = 16 << 20;
/// Maximum number of records in an atomic batch of [`Engine::fill`].
const FILL: usize = 1024;
/// Time that the engine's background threads may keep its lock after a database was closed.
const CLOSING: Duration = Duration::from_secs(5);

/// Open storage engine of a database.
pub(crate) struct Engine {
    sled: sled::Db,
    /// The engine's own log file, for making it durable.
    log: File,
    path: PathBuf,
}

/// Records found in the engine.
#[derive(Debug, Default)]
pub(crate) struct EngineContents {
    pub(crate) records: Records,
    /// Description of damage, if there is any: records may be missing or unreadable.
    pub(crate) damage: Option<String>,
}

impl Engine {
    /// Opens the engine of the database at `path`, or creates it.
    pub(crate) fn open(path: &Path) -> Result<Self, DbError> {
        let folder = Self::folder(path);
        remove_unfinished_snapshots(&folder)?;
        let sled = open_unlocked(path, &folder)?;
        let log_path = folder.join("db");
        let log = File::open(&log_path).map_err(io_error("cannot open", &log_path))?;
        Ok(Self { sled, log, path: path.to_path_buf() })
    }

    pub(crate) fn folder(path: &Path) -> PathBuf {
        path.join("sled")
    }

    /// Reads every readable record. Damage may end the iteration early; then the records counted in
    /// `wanted` are also read one by one.
    pub(crate) fn read(&self, wanted: &RecordCounts) -> EngineContents {
        let mut contents = EngineContents::default();
        let mut pairs = self.sled.scan_prefix(RECORD_PREFIX);
        loop {
            match self.guarded(|| pairs.next().transpose()) {
                Ok(Some((key, line))) => contents.take(&key, &line),
                Ok(None) => return contents,
                Err(error) => {
                    contents.damage = Some(damage(&error));
                    break;
                }
            }
        }

        let places = wanted.0.iter().flat_map(|(task, count)| (0..count.next).map(move |place| (task, place)));
        for (task, place) in places {
            let key = task.record(place);
            if contents.records.get(task, place).is_none()
                && let Ok(Some(line)) = self.guarded(|| self.sled.get(&key))
            {
                contents.take(&key, &line);
            }
        }
        contents
    }

    /// Returns the record counts from the indexes that an older layout, without a journal, stored
    /// in the engine; `None` if this engine never belonged to a database.
    pub(crate) fn indexed(&self) -> Result<Option<RecordCounts>, DbError> {
        #[derive(Deserialize)]
        struct OldIndex {
            records: u64,
        }
        if self.guarded(|| self.sled.get("meta/format"))?.is_none() {
            return Ok(None);
        }

        let mut counts = BTreeMap::new();
        let mut pairs = self.sled.scan_prefix(b"i\0");
        while let Some((key, value)) = self.guarded(|| pairs.next().transpose())? {
            // An unreadable index is ignored: the counts only serve to detect lost records.
            let task = key.get(2..).and_then(keys::parse_task);
            let index: Option<OldIndex> = serde_json::from_slice(&value).ok();
            if let (Some(task), Some(OldIndex { records })) = (task, index) {
                counts.insert(task, Count { records, next: records });
            }
        }
        Ok(Some(RecordCounts(counts)))
    }

    /// Stores records, either all or none of them.
    pub(crate) fn insert<'a>(
        &self,
        records: impl IntoIterator<Item = (&'a TaskKey, u64, &'a str)>,
    ) -> Result<(), DbError> {
        let mut batch = sled::Batch::default();
        for (task, place, line) in records {
            batch.insert(task.record(place), line.as_bytes());
        }
        self.guarded(|| self.sled.apply_batch(batch))
    }

    /// Stores records in several batches.
    pub(crate) fn fill(&self, records: &Records) -> Result<(), DbError> {
        let all: Vec<_> = records.iter().collect();
        all.chunks(FILL).try_for_each(|some| self.insert(some.iter().copied()))
    }

    /// Writes everything stored so far to the operating system.
    pub(crate) fn flush_to_system(&self) -> Result<(), DbError> {
        self.guarded(|| self.sled.flush()).map(drop)
    }

    /// Makes everything stored so far durable.
    pub(crate) fn sync(&self) -> Result<(), DbError> {
        self.flush_to_system()?;
        self.log.sync_data().map_err(io_error("cannot flush", &self.path))
    }

    fn guarded<T>(&self, run: impl FnOnce() -> sled::Result<T>) -> Result<T, DbError> {
        guarded(&self.path, run)
    }
}

impl EngineContents {
    fn take(&mut self, key: &[u8], line: &[u8]) {
        let text = std::str::from_utf8(line).ok().filter(|text| !text.contains('\n'));
        match (keys::parse_record(key), text) {
            (Some((task, place)), Some(text)) => {
                self.records.insert(FiledRecord { task, place, line: text.to_string() })
            }
            _ => self.damage = Some(format!("entry '{}' is invalid", key.escape_ascii())),
        }
    }
}

/// Describes the damage that an error reports.
pub(crate) fn damage(error: &DbError) -> String {
    match error {
        DbError::Corrupt { detail, .. } => detail.clone(),
        other => other.to_string(),
    }
}

/// Returns true if the error means that the engine's files are damaged, and not only that they are
/// unavailable at the moment.
pub(crate) fn is_damage(error: &DbError) -> bool {
    match error {
        DbError::Corrupt { .. } => true,
        DbError::Io { cause, .. } => {
            use ErrorKind::{InvalidData, InvalidInput, NotFound, Other, UnexpectedEof};
            matches!(cause.kind(), InvalidData | InvalidInput | NotFound | Other | UnexpectedEof) && !is_locked(cause)
        }
        _ => false,
    }
}

fn is_locked(cause: &std::io::Error) -> bool {
    cause.to_string().contains("could not acquire lock")
}

/// Opens the engine. This process has the database's lock, so if the engine's own lock is taken, a
/// closed handle is still being cleaned up: wait for it.
fn open_unlocked(path: &Path, folder: &Path) -> Result<sled::Db, DbError> {
    let config = sled::Config::new().cache_capacity(CACHE_BYTES).flush_every_ms(None).path(folder);
    let start = Instant::now();
    loop {
        match guarded(path, || config.open()) {
            Err(DbError::Io { cause, .. }) if is_locked(&cause) && start.elapsed() < CLOSING => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// Removes unfinished engine snapshots of a process that was killed while it opened the database.
/// The engine writes `snap.X.generating` and renames it when complete; otherwise it would take an
/// unfinished one for the newest snapshot and refuse the database.
fn remove_unfinished_snapshots(folder: &Path) -> Result<(), DbError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_error("cannot list", folder)(e)),
    };
    for entry in entries {
        let path = entry.map_err(io_error("cannot list", folder))?.path();
        if path.extension().is_some_and(|e| e == "generating") {
            fs::remove_file(&path).map_err(io_error("cannot remove", &path))?;
        }
    }
    Ok(())
}

thread_local! {
    /// True while this thread executes an operation of the engine.
    static IN_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Runs an operation of the engine and converts its panics, which some damage of its files causes,
/// to errors. The panic message is not printed.
fn guarded<T>(path: &Path, run: impl FnOnce() -> sled::Result<T>) -> Result<T, DbError> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IN_ENGINE.get() {
                print(info);
            }
        }));
    });

    IN_ENGINE.set(true);
    let ended = catch_unwind(AssertUnwindSafe(run));
    IN_ENGINE.set(false);

    let corrupt = |detail| DbError::Corrupt { path: path.to_path_buf(), detail };
    match ended {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(cause))) => Err(io_error("cannot use", path)(cause)),
        Ok(Err(sled::Error::Corruption { .. })) => Err(corrupt("a checksum does not match".to_string())),
        Ok(Err(e)) => Err(corrupt(e.to_string())),
        Err(panic) => Err(corrupt(panic_text(panic.as_ref()))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("the storage engine failed").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_engine_is_an_error() {
        let error = guarded::<()>(Path::new("some.db"), || panic!("slot {} is gone", 3)).unwrap_err();
        assert!(error.to_string().starts_with("some.db is corrupt: slot 3 is gone"), "{error}");
        assert!(is_damage(&error));
    }
}
