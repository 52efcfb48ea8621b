//! Who has a database open: the lock that decides, and the words that tell.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::DbError;

/// Longest command line that is kept, in characters.
const COMMAND_CHARS: usize = 200;

/// The process that has a database open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id; 0 if it has not been told yet.
    pub pid: u32,
    /// Name of the machine it runs on.
    pub host: String,
    /// Its command line.
    pub command: String,
    /// When it opened the database, in seconds since 1970 (UTC).
    pub since_unix_secs: u64,
}

impl Holder {
    fn this_process() -> Self {
        let words: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            pid: std::process::id(),
            host: host.trim().to_string(),
            command: words.join(" ").chars().take(COMMAND_CHARS).collect(),
            since_unix_secs: unix_secs(),
        }
    }

    fn unknown() -> Self {
        Self { pid: 0, host: String::new(), command: String::new(), since_unix_secs: unix_secs() }
    }
}

/// `pid 1234 on host (autotune resnet18 ...), for 35 s`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == 0 {
            return f.write_str("another process");
        }
        write!(f, "pid {}", self.pid)?;
        if !self.host.is_empty() {
            write!(f, " on {}", self.host)?;
        }
        let held_secs = unix_secs().saturating_sub(self.since_unix_secs);
        write!(f, " ({}), for {held_secs} s", self.command)
    }
}

fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The exclusive hold on a database. The lock on the file decides and ends with the process, however it ends; the
/// file's text only tells who holds it, so text left behind by a killed process is harmless.
#[derive(Debug)]
pub(crate) struct Hold {
    file: File,
}

impl Hold {
    /// Takes the hold on the database at `db_path` through the file `holder_path`.
    pub(crate) fn take(db_path: &Path, holder_path: &Path) -> Result<Self, DbError> {
        let failed = |action| move |cause: io::Error| DbError::Io { action, path: holder_path.to_path_buf(), cause };
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(holder_path)
            .map_err(failed("cannot write"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DbError::Held { path: db_path.to_path_buf(), holder: read_holder(&mut file) });
            }
            Err(TryLockError::Error(e)) => return Err(failed("cannot lock")(e)),
        }
        write_holder(&mut file).map_err(failed("cannot write"))?;
        Ok(Self { file })
    }
}

impl Drop for Hold {
    /// Unlocks expressly: while another thread starts a process, the new one shares the open file until it executes, and
    /// closing the file here would leave the lock with it.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// The holder as the file tells it. The holder may be about to write it, hence the unknown.
fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.take(1 << 16).read_to_string(&mut text);
    read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_else(Holder::unknown)
}

fn write_holder(file: &mut File) -> io::Result<()> {
    let text = serde_json::to_string(&Holder::this_process())?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}
