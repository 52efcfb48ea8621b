//! Default name of a worker or collector.

use std::{fs, process};

/// Returns the host's name and the process id.
pub(super) fn own_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}-{}", if host.is_empty() { "worker" } else { host }, process::id())
}
