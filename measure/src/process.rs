//! Child processes that must not outlive their time.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// How often a child is looked at.
const POLL: Duration = Duration::from_millis(1);

/// Runs a command in a process group of its own; `None` if it ran longer than `limit` and the group
/// was killed.
pub(crate) fn run_with_limit(command: &mut Command, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let mut child = command.process_group(0).spawn()?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            kill_group(child.id());
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// Kills every process of the group led by `leader`, a child that was not waited for yet.
pub(crate) fn kill_group(leader: u32) {
    if let Ok(leader @ 1..) = libc::pid_t::try_from(leader) {
        // SAFETY: kill only sends a signal. The leader is still ours to wait for, so that its
        // number names no other group.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// A duration from seconds that came from options: negative or not a number counts as 0, too large
/// as a century.
pub(crate) fn duration(secs: f64) -> Duration {
    const CENTURY_SECS: f64 = 3.15e9;
    Duration::from_secs_f64(if secs.is_nan() { 0.0 } else { secs.clamp(0.0, CENTURY_SECS) })
}

/// What `work` yields, and the seconds that it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_and_its_children_are_killed_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let late = dir.path().join("late");
        let script = format!("(sleep 1; touch {}) & wait", late.display());
        let result = run_with_limit(Command::new("sh").args(["-c", &script]), Duration::from_millis(50)).unwrap();
        assert!(result.is_none());
        thread::sleep(Duration::from_millis(1300));
        assert!(!late.exists(), "the grandchild survived");
    }

    #[test]
    fn odd_seconds_are_durations() {
        assert_eq!(duration(f64::NAN), Duration::ZERO);
        assert_eq!(duration(-1.0), Duration::ZERO);
        assert_eq!(duration(0.25), Duration::from_millis(250));
        assert!(duration(f64::INFINITY) > Duration::from_secs(1 << 30));
    }
}
