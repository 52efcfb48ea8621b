//! The directory of a database, and opening it.
//!
//! ```text
//! PATH/FORMAT    "autotune-db 1": what this is, and which version; written last when a database is made
//! PATH/flushed   how many records were durable after the last flush, so that losing some is noticed
//! PATH/holder    lock file; its text names the process that has the database open
//! PATH/sled/     the records
//! ```

use std::any::Any;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::DbError;
use crate::holder::Hold;

/// Format of the database. It grows when an older version of this library would misread the files.
pub(crate) const FORMAT: u32 = 1;

const FORMAT_WORD: &str = "autotune-db";
/// Entry that says that the storage engine still has what was put into it.
const MARKER_KEY: &[u8] = b"meta/format";
const CACHE_BYTES: u64 = 64 << 20;
/// How long the storage engine's threads may keep its own lock after a database was closed.
const CLOSING: Duration = Duration::from_secs(5);

/// An open directory. Dropping it closes the storage engine first and lets go of the hold last.
pub(crate) struct Files {
    pub(crate) sled: sled::Db,
    /// The engine's log, for making it durable. `None` for a temporary database.
    log: Option<File>,
    _hold: Option<Hold>,
}

impl Files {
    /// A database that lives as long as the handle.
    pub(crate) fn temporary() -> Result<Self, DbError> {
        let path = Path::new("(temporary)");
        let sled = guarded(path, || engine().temporary(true).open())?;
        Ok(Self { sled, log: None, _hold: None })
    }

    /// Opens the database at `path`, or makes one if nothing or an empty directory is there.
    pub(crate) fn open(path: &Path) -> Result<Self, DbError> {
        fs::create_dir_all(path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => DbError::NotADirectory { path: path.to_path_buf() },
            _ => io_error("cannot create", path)(e),
        })?;
        check_format(path)?;
        let hold = Hold::take(path, &path.join("holder"))?;
        // Another process may have made the database since.
        let made = check_format(path)?;
        let dir = path.join("sled");
        remove_unfinished_snapshots(&dir)?;
        let sled = open_engine(path, &dir)?;
        let log_path = dir.join("db");
        let log = File::open(&log_path).map_err(io_error("cannot open", &log_path))?;
        let files = Self { sled, log: Some(log), _hold: Some(hold) };
        let marked = guarded(path, || files.sled.get(MARKER_KEY))?.is_some();
        match (made, marked) {
            (true, true) => {}
            (true, false) => {
                let detail = "its records are gone".to_string();
                return Err(DbError::Corrupt { path: path.to_path_buf(), detail });
            }
            (false, _) => {
                guarded(path, || files.sled.insert(MARKER_KEY, &FORMAT.to_be_bytes()))?;
                files.flush(path)?;
                write_format(path)?;
            }
        }
        Ok(files)
    }

    /// Hands everything stored so far to the operating system: it outlives the process, but not a loss of power.
    pub(crate) fn write_out(&self, path: &Path) -> Result<(), DbError> {
        guarded(path, || self.sled.flush()).map(drop)
    }

    /// Makes everything stored so far durable.
    pub(crate) fn flush(&self, path: &Path) -> Result<(), DbError> {
        self.write_out(path)?;
        match &self.log {
            Some(log) => log.sync_data().map_err(io_error("cannot flush", path)),
            None => Ok(()),
        }
    }

    /// Remembers that so many records are durable.
    pub(crate) fn remember_flushed(&self, path: &Path, records: u64) -> Result<(), DbError> {
        if self.log.is_none() {
            return Ok(());
        }
        let count_path = path.join("flushed");
        fs::write(&count_path, format!("{records}\n")).map_err(io_error("cannot write", &count_path))
    }
}

/// How many records were durable after the last flush; 0 if that is not known.
pub(crate) fn flushed(path: &Path) -> u64 {
    let text = fs::read_to_string(path.join("flushed")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn engine() -> sled::Config {
    sled::Config::new().cache_capacity(CACHE_BYTES).flush_every_ms(None)
}

/// Opens the storage engine. The hold is ours, so if the engine's own lock is taken, a closed handle is still being
/// cleaned up.
fn open_engine(path: &Path, dir: &Path) -> Result<sled::Db, DbError> {
    let start = Instant::now();
    loop {
        match guarded(path, || engine().path(dir).open()) {
            Err(DbError::Io { source, .. })
                if source.to_string().contains("could not acquire lock") && start.elapsed() < CLOSING =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// True if the directory is a finished database, false if it is empty or was left while being made.
fn check_format(path: &Path) -> Result<bool, DbError> {
    let format_path = path.join("FORMAT");
    let text = match fs::read(&format_path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == ErrorKind::NotFound => return check_unmade(path).map(|()| false),
        Err(e) => return Err(io_error("cannot read", &format_path)(e)),
    };
    let version = text.trim_end().strip_prefix(FORMAT_WORD).and_then(|rest| rest.trim_start().parse::<u32>().ok());
    match version {
        Some(found) if found > FORMAT => {
            Err(DbError::NewerFormat { path: path.to_path_buf(), found, supported: FORMAT })
        }
        Some(FORMAT) => Ok(true),
        _ => {
            let word: String = text.chars().take(40).collect();
            let detail = format!("its FORMAT file says {word:?} instead of \"{FORMAT_WORD} {FORMAT}\"");
            Err(DbError::Corrupt { path: path.to_path_buf(), detail })
        }
    }
}

fn check_unmade(path: &Path) -> Result<(), DbError> {
    let failed = io_error("cannot list", path);
    for entry in fs::read_dir(path).map_err(&failed)? {
        let name = entry.map_err(&failed)?.file_name().to_string_lossy().into_owned();
        if !["flushed", "holder", "sled", "FORMAT.new"].contains(&name.as_str()) {
            return Err(DbError::NotADatabase { path: path.to_path_buf(), found: name });
        }
    }
    Ok(())
}

fn write_format(path: &Path) -> Result<(), DbError> {
    let write = || {
        let new = path.join("FORMAT.new");
        let mut file = File::create(&new)?;
        writeln!(file, "{FORMAT_WORD} {FORMAT}")?;
        file.sync_all()?;
        fs::rename(&new, path.join("FORMAT"))?;
        File::open(path)?.sync_all()
    };
    write().map_err(io_error("cannot write", &path.join("FORMAT")))
}

/// Removes what a process killed while opening the database left behind. The engine writes `snap.X.generating` and renames
/// it once it is whole; it would take an unfinished one for the newest snapshot and refuse the database.
fn remove_unfinished_snapshots(dir: &Path) -> Result<(), DbError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_error("cannot list", dir)(e)),
    };
    for entry in entries {
        let path = entry.map_err(io_error("cannot list", dir))?.path();
        if path.extension().is_some_and(|e| e == "generating") {
            fs::remove_file(&path).map_err(io_error("cannot remove", &path))?;
        }
    }
    Ok(())
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DbError + use<> {
    let path: PathBuf = path.to_path_buf();
    move |source| DbError::Io { action, path: path.clone(), source }
}

/// Runs an operation of the storage engine. The engine panics on some damage to its files; that is an error here.
pub(crate) fn guarded<T>(path: &Path, run: impl FnOnce() -> sled::Result<T>) -> Result<T, DbError> {
    let corrupt = |detail| DbError::Corrupt { path: path.to_path_buf(), detail };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(source))) => Err(io_error("cannot use", path)(source)),
        Ok(Err(sled::Error::Corruption { .. })) => Err(corrupt("a checksum does not match".to_string())),
        Ok(Err(e)) => Err(corrupt(e.to_string())),
        Err(panic) => Err(corrupt(panic_text(panic.as_ref()))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("the storage engine failed").to_string()
}
