//! How much memory this process has and may have.

use crate::protocol::MemoryAtStart;

/// Limits what this process may allocate on top of what it has, until [`lift`] or the next call; what it has now.
///
/// On Linux the limit is on private writable memory (`RLIMIT_DATA`); elsewhere it may not be enforced.
pub(crate) fn limit_growth(allowance_bytes: usize) -> MemoryAtStart {
    let data_bytes = data_bytes();
    set_soft_limit(libc::RLIMIT_DATA, Some(data_bytes.saturating_add(allowance_bytes)));
    MemoryAtStart { data_bytes, allowance_bytes }
}

/// Undoes [`limit_growth`].
pub(crate) fn lift() {
    set_soft_limit(libc::RLIMIT_DATA, None);
}

/// No core files: a kernel that crashes is expected, and writing its memory to disk is slow.
pub(crate) fn forbid_core_files() {
    set_soft_limit(libc::RLIMIT_CORE, Some(0));
}

/// Sets the soft limit, to the hard one if `None`. Failure leaves it as it was.
fn set_soft_limit(resource: libc::__rlimit_resource_t, bytes: Option<usize>) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    if unsafe { libc::getrlimit(resource, &mut limit) } == 0 {
        limit.rlim_cur = bytes.map_or(limit.rlim_max, |b| (b as libc::rlim_t).min(limit.rlim_max));
        // SAFETY: `limit` is a valid rlimit.
        unsafe { libc::setrlimit(resource, &limit) };
    }
}

/// Physical memory of the machine.
pub(crate) fn physical_bytes() -> usize {
    // SAFETY: sysconf only reads a number of the system.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (usize::try_from(pages), usize::try_from(page_bytes)) {
        (Ok(pages), Ok(page_bytes)) => pages.saturating_mul(page_bytes),
        _ => usize::MAX,
    }
}

/// Bytes of private writable memory, 0 where the system does not tell.
fn data_bytes() -> usize {
    statm_data_bytes(&std::fs::read_to_string("/proc/self/statm").unwrap_or_default()).unwrap_or(0)
}

/// The data size in a `/proc/*/statm`: "size resident shared text lib data dt" in pages.
fn statm_data_bytes(text: &str) -> Option<usize> {
    // SAFETY: sysconf only reads a number of the system.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let pages: usize = text.split_whitespace().nth(5)?.parse().ok()?;
    pages.checked_mul(page_bytes)
}

/// What the dying worker's report of its memory starts with.
const REPORT: &str = "autotune-worker-memory: ";

/// Makes this process write its memory use to standard error when it dies of a signal that an allocation which failed
/// and was not checked leads to.
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
    statm_data_bytes(line.strip_prefix(REPORT)?)
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
        assert!(physical_bytes() > 64 << 20);
    }

    #[test]
    fn only_reports_are_reports() {
        assert!(reported_bytes("autotune-worker-memory: 9 8 7 6 0 3 0").is_some_and(|b| b > 0 && b % 3 == 0));
        assert_eq!(reported_bytes("autotune-worker-memory: 9 8"), None);
        assert_eq!(reported_bytes("9 8 7 6 0 3 0"), None);
    }
}
