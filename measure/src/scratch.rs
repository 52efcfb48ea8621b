//! Private temporary directories, and the removal of those that killed processes left behind.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::measurement::MeasureError;

/// What the names of scratch directories start with; the process number and a random part follow.
const PREFIX: &str = "autotune-";

/// A directory that goes with the value. Those of processes that no longer live are removed on the way.
pub(crate) fn scratch_dir() -> Result<TempDir, MeasureError> {
    let parent = std::env::temp_dir();
    remove_stale(&parent);
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let io = |source| MeasureError::Io { what: "making a temporary directory".into(), source };
    tempfile::Builder::new().prefix(&prefix).tempdir_in(parent).map_err(io)
}

/// Removes the scratch directories of dead processes. What cannot be read or removed, such as another user's, stays.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if owner(&entry.file_name().to_string_lossy()).is_some_and(|pid| !lives(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process that a scratch directory belongs to, by its name; `None` if the name is of something else.
fn owner(name: &str) -> Option<libc::pid_t> {
    let (pid, random) = name.strip_prefix(PREFIX)?.split_once('-')?;
    pid.parse().ok().filter(|&pid| pid > 0 && !random.is_empty())
}

fn lives(pid: libc::pid_t) -> bool {
    // SAFETY: signal 0 is not sent; the call only says whether it might be.
    let status = unsafe { libc::kill(pid, 0) };
    status == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_the_directories_of_the_dead_are_removed() {
        let mut child = Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let parent = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let kept = [
            format!("autotune-{own}-abc"),
            format!("autotune-{dead}"),
            format!("other-{dead}-abc"),
            "autotune-x-y".into(),
        ];
        let stale = format!("autotune-{dead}-abc");
        for name in kept.iter().chain([&stale]) {
            fs::create_dir(parent.path().join(name)).unwrap();
            fs::write(parent.path().join(name).join("file"), "text").unwrap();
        }
        remove_stale(parent.path());
        assert!(!parent.path().join(stale).exists());
        assert!(kept.iter().all(|name| parent.path().join(name).join("file").exists()));
    }
}
