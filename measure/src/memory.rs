//! How much memory this process has, and limits on it.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// Memory of the worker before a kernel ran, to tell a death for want of memory from others.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MemoryAtStart {
    /// Private writable memory.
    pub(crate) data_bytes: usize,
    /// What the worker may allocate on top of what it has.
    pub(crate) allowance_bytes: usize,
}

impl MemoryAtStart {
    /// Where a worker may allocate what it likes.
    pub(crate) const UNLIMITED: Self = Self { data_bytes: 0, allowance_bytes: usize::MAX };
}

/// Limits what this process may allocate on top of what it has, until [`lift`] or the next call;
/// what it has now.
///
/// On Linux the limit is on private writable memory (`RLIMIT_DATA`); elsewhere it may not be
/// enforced.
pub(crate) fn limit_growth(allowance_bytes: usize) -> MemoryAtStart {
    let data_bytes = data_bytes();
    let wanted = data_bytes.saturating_add(allowance_bytes);
    set_soft_limit(libc::RLIMIT_DATA, given_data_limit().map_or(wanted, |given| given.min(wanted)));
    MemoryAtStart { data_bytes, allowance_bytes }
}

/// Undoes [`limit_growth`].
pub(crate) fn lift() {
    set_soft_limit(libc::RLIMIT_DATA, given_data_limit().unwrap_or(usize::MAX));
}

/// The limit on private writable memory that this process was started with.
fn given_data_limit() -> Option<usize> {
    static GIVEN: OnceLock<Option<usize>> = OnceLock::new();
    *GIVEN.get_or_init(|| soft_limit(libc::RLIMIT_DATA))
}

/// No core files: a kernel that crashes is expected, and writing its memory to disk is slow.
pub(crate) fn forbid_core_files() {
    set_soft_limit(libc::RLIMIT_CORE, 0);
}

/// Sets the soft limit, to the hard one if that is lower. Failure leaves it as it was.
fn set_soft_limit(resource: libc::__rlimit_resource_t, bytes: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    if unsafe { libc::getrlimit(resource, &mut limit) } == 0 {
        limit.rlim_cur = if bytes == usize::MAX { limit.rlim_max } else { limit.rlim_max.min(bytes as libc::rlim_t) };
        // SAFETY: `limit` is a valid rlimit.
        unsafe { libc::setrlimit(resource, &limit) };
    }
}

/// The soft limit; `None` if there is none.
pub(crate) fn soft_limit(resource: libc::__rlimit_resource_t) -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    let status = unsafe { libc::getrlimit(resource, &mut limit) };
    (status == 0 && limit.rlim_cur != libc::RLIM_INFINITY)
        .then(|| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Bytes of private writable memory, 0 where the system does not tell.
fn data_bytes() -> usize {
    own_bytes(DATA)
}

/// Bytes of one of the sizes of this process, 0 where the system does not tell.
pub(crate) fn own_bytes(size: usize) -> usize {
    statm_bytes(&std::fs::read_to_string("/proc/self/statm").unwrap_or_default(), size).unwrap_or(0)
}

/// Positions of sizes in a `/proc/*/statm`, "size resident shared text lib data dt": address space,
/// and private writable memory.
pub(crate) const ADDRESS_SPACE: usize = 0;
pub(crate) const DATA: usize = 5;

/// A size in a `/proc/*/statm`, which has them in pages.
fn statm_bytes(text: &str, size: usize) -> Option<usize> {
    // SAFETY: sysconf only reads a number of the system.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let pages: usize = text.split_whitespace().nth(size)?.parse().ok()?;
    pages.checked_mul(page_bytes)
}

/// What the dying worker's report of its memory starts with.
const REPORT: &str = "autotune-worker-memory: ";

/// Makes this process write its memory use to standard error when it dies of a signal that an
/// allocation which failed and was not checked leads to.
pub(crate) fn report_when_dying() {
    let handler: extern "C" fn(libc::c_int) = write_report;
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT] {
        // SAFETY: an all-zero sigaction is valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        // The handler runs once; then the signal does what it does without one.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_ONSTACK;
        // SAFETY: the handler calls only functions that are safe in a signal handler.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

extern "C" fn write_report(_signal: libc::c_int) {
    let mut text = [b' '; REPORT.len() + 200];
    let (start, rest) = text.split_at_mut(REPORT.len());
    start.copy_from_slice(REPORT.as_bytes());
    // SAFETY: open, read and write are safe in a signal handler; the buffer is as long as said.
    unsafe {
        let file = libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY);
        let len = libc::read(file, rest.as_mut_ptr().cast(), rest.len());
        if let Ok(len) = usize::try_from(len) {
            libc::write(2, text.as_ptr().cast(), REPORT.len() + len);
        }
    }
}

/// The data bytes in a line that [`report_when_dying`] wrote; `None` if it is another line.
pub(crate) fn reported_bytes(line: &str) -> Option<usize> {
    statm_bytes(line.strip_prefix(REPORT)?, DATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_use_is_read() {
        let before = data_bytes();
        // Never touched, and more than what the other tests give back meanwhile.
        let memory: Vec<u8> = Vec::with_capacity(2 << 30);
        assert!(data_bytes() >= before + (1 << 30), "{} bytes more", memory.capacity());
    }

    #[test]
    fn only_reports_are_reports() {
        assert!(reported_bytes("autotune-worker-memory: 9 8 7 6 0 3 0").is_some_and(|b| b > 0 && b % 3 == 0));
        assert_eq!(reported_bytes("autotune-worker-memory: 9 8"), None);
        assert_eq!(reported_bytes("9 8 7 6 0 3 0"), None);
    }
}
