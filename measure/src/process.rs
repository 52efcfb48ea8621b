//! Child processes with a time limit.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a child process is polled.
const POLL: Duration = Duration::from_millis(1);

/// Runs a command in its own process group. Returns `None` if it ran longer than `limit` and the
/// group was killed.
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

/// Kills every process of the group led by `leader`, a child process that was not waited for yet.
pub(crate) fn kill_group(leader: u32) {
    if let Ok(leader @ 1..) = libc::pid_t::try_from(leader) {
        // SAFETY: kill only sends a signal. The leader was not waited for yet, so its process id is
        // not reused for another group.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Converts seconds from options to a duration: negative numbers and NaN become 0, too large ones a
/// century.
pub(crate) fn duration(secs: f64) -> Duration {
    const CENTURY_SECS: f64 = 3.15e9;
    Duration::from_secs_f64(if secs.is_nan() { 0.0 } else { secs.clamp(0.0, CENTURY_SECS) })
}

/// Runs `work` and returns its result and the seconds it took.
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
