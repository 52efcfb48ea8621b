//! Memory use of this process and limits on it.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// Memory use of the worker before a kernel ran, to recognise a crash caused by a failed
/// allocation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MemoryAtStart {
    /// Bytes of private writable memory.
    pub(crate) data_bytes: usize,
    /// Bytes that the worker may allocate in addition.
    pub(crate) allowance_bytes: usize,
}

impl MemoryAtStart {
    /// Value for a worker without a memory limit.
    pub(crate) const UNLIMITED: Self = Self { data_bytes: 0, allowance_bytes: usize::MAX };
}

/// Limits what this process may allocate in addition to what it has, until [`restore_limit`] or the
/// next call. Returns the current use.
///
/// On Linux the limit is on private writable memory (`RLIMIT_DATA`); other systems may not enforce
/// it.
pub(crate) fn limit_growth(allowance_bytes: usize) -> MemoryAtStart {
    let data_bytes = data_bytes();
    let wanted = data_bytes.saturating_add(allowance_bytes);
    set_soft_limit(libc::RLIMIT_DATA, given_data_limit().map_or(wanted, |given| given.min(wanted)));
    MemoryAtStart { data_bytes, allowance_bytes }
}

/// Restores the limit that [`limit_growth`] changed.
pub(crate) fn restore_limit() {
    set_soft_limit(libc::RLIMIT_DATA, given_data_limit().unwrap_or(usize::MAX));
}

/// Returns the limit on private writable memory with which this process was started.
fn given_data_limit() -> Option<usize> {
    static GIVEN: OnceLock<Option<usize>> = OnceLock::new();
    *GIVEN.get_or_init(|| soft_limit(libc::RLIMIT_DATA))
}

/// Disables core files: kernels are expected to crash, and writing their memory to disk is slow.
pub(crate) fn forbid_core_files() {
    set_soft_limit(libc::RLIMIT_CORE, 0);
}

/// Sets the soft limit to `bytes`, or to the hard limit if that is lower. On failure the limit
/// stays as it was.
fn set_soft_limit(resource: libc::__rlimit_resource_t, bytes: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    if unsafe { libc::getrlimit(resource, &mut limit) } == 0 {
        limit.rlim_cur = if bytes == usize::MAX { limit.rlim_max } else { limit.rlim_max.min(bytes as libc::rlim_t) };
        // SAFETY: `limit` is a valid rlimit.
        unsafe { libc::setrlimit(resource, &limit) };
    }
}

/// Returns the soft limit; `None` if there is none.
pub(crate) fn soft_limit(resource: libc::__rlimit_resource_t) -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    let status = unsafe { libc::getrlimit(resource, &mut limit) };
    (status == 0 && limit.rlim_cur != libc::RLIM_INFINITY)
        .then(|| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Returns the bytes of private writable memory, 0 if the system does not report them.
fn data_bytes() -> usize {
    own_bytes(DATA)
}

/// Returns one of this process's memory sizes in bytes, 0 if the system does not report it.
pub(crate) fn own_bytes(size: usize) -> usize {
    statm_bytes(&std::fs::read_to_string("/proc/self/statm").unwrap_or_default(), size).unwrap_or(0)
}

/// Positions of sizes in `/proc/*/statm`, which has "size resident shared text lib data dt":
/// address space, and private writable memory.
pub(crate) const ADDRESS_SPACE: usize = 0;
pub(crate) const DATA: usize = 5;

/// Reads a size from `/proc/*/statm`, which counts in pages, and returns bytes.
fn statm_bytes(text: &str, size: usize) -> Option<usize> {
    // SAFETY: sysconf only reads a system constant.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let pages: usize = text.split_whitespace().nth(size)?.parse().ok()?;
    pages.checked_mul(page_bytes)
}

/// Prefix of the line in which a dying worker reports its memory use.
const REPORT: &str = "autotune-worker-memory: ";

/// Installs signal handlers that write this process's memory use to standard error when it dies.
/// The signals are those that an unchecked failed allocation leads to.
pub(crate) fn report_when_dying() {
    let handler: extern "C" fn(libc::c_int) = write_report;
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT] {
        // SAFETY: an all-zero sigaction is valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        // The handler runs once; then the signal has its default effect.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_ONSTACK;
        // SAFETY: the handler calls only async-signal-safe functions, and `action` is initialised.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

extern "C" fn write_report(_signal: libc::c_int) {
    let mut text = [b' '; REPORT.len() + 200];
    let (start, rest) = text.split_at_mut(REPORT.len());
    start.copy_from_slice(REPORT.as_bytes());
    // SAFETY: open, read and write are async-signal-safe, and the lengths stay within the buffer.
    unsafe {
        let file = libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY);
        let len = libc::read(file, rest.as_mut_ptr().cast(), rest.len());
        if let Ok(len) = usize::try_from(len) {
            libc::write(2, text.as_ptr().cast(), REPORT.len() + len);
        }
    }
}

/// Returns the bytes of private writable memory in a line that [`report_when_dying`] wrote; `None`
/// for any other line.
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
        // Untouched pages count for `RLIMIT_DATA`. The size exceeds what other tests free
        // meanwhile.
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
