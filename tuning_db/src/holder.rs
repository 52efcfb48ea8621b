//! Description of the process that has a database open.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Most characters of a command line that are stored.
const COMMAND_CHARS: usize = 200;

/// Process that has a database open for writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id; 0 if it is not known yet.
    pub pid: u32,
    /// Name of the machine on which it runs.
    pub host: String,
    /// Command line with which it was started.
    pub command: String,
    /// Time at which it opened the database, in seconds since 1970 (UTC).
    pub since_unix_secs: u64,
}

impl Holder {
    pub(crate) fn this_process() -> Self {
        let words: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            pid: std::process::id(),
            host: host.trim().to_string(),
            command: words.join(" ").chars().take(COMMAND_CHARS).collect(),
            since_unix_secs: unix_secs(),
        }
    }

    pub(crate) fn unknown() -> Self {
        Self { pid: 0, host: String::new(), command: String::new(), since_unix_secs: unix_secs() }
    }
}

/// Formats as `pid 1234 on host (autotune resnet18 ...), for 35 s`.
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
