//! How much memory this process has and may have.

use crate::protocol::MemoryAtStart;

/// Limits what this process may allocate on top of what it has, until [`lift`] or the next call; what it has now.
///
/// On Linux the limit is on private writable memory (`RLIMIT_DATA`); elsewhere it may not be enforced.
pub(crate) fn limit_growth(allowance_bytes: usize) -> MemoryAtStart {
    let (resident_bytes, data_bytes) = current_bytes();
    set_soft_limit(libc::RLIMIT_DATA, Some(data_bytes.saturating_add(allowance_bytes)));
    MemoryAtStart { resident_bytes, peak_bytes: peak_bytes(), allowance_bytes }
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

/// Largest resident size so far.
fn peak_bytes() -> usize {
    // SAFETY: an all-zero rusage is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage to write to.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    max_resident_bytes(&usage)
}

/// The largest resident size in a report of the system.
pub(crate) fn max_resident_bytes(usage: &libc::rusage) -> usize {
    // Linux counts in KiB, macOS in bytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    usize::try_from(usage.ru_maxrss).unwrap_or(0) * unit
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

/// Resident bytes and bytes of private writable memory, 0 where the system does not tell.
fn current_bytes() -> (usize, usize) {
    // "size resident shared text lib data dt" in pages.
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    // SAFETY: sysconf only reads a number of the system.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let field = |i| text.split_whitespace().nth(i).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0) * page_bytes;
    (field(1), field(5))
}
