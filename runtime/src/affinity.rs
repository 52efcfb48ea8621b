//! Pins threads to cores.

use std::sync::OnceLock;

/// Pins the calling thread to the `index`-th core that this process may use, counting different
/// physical cores first. Does nothing if pinning is unavailable (systems other than Linux, fewer
/// cores).
pub fn pin_to_core(index: usize) {
    if let Some(&core) = allowed_cores().get(index) {
        set_affinity(&[core]);
    }
}

/// Runs `work` with the calling thread pinned to the `index`-th core, then restores the thread's
/// previous affinity.
pub fn pinned_to_core<T>(index: usize, work: impl FnOnce() -> T) -> T {
    struct Restore(Vec<usize>);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_affinity(&self.0);
        }
    }
    // The list must be computed before this thread is pinned.
    allowed_cores();
    let _restore = Restore(affinity_mask());
    pin_to_core(index);
    work()
}

/// Restricts the calling thread, and all threads and processes that it starts, to these logical
/// processors. Call it first in a program, before [`allowed_cores`].
///
/// # Errors
/// With the first processor that this process may not use. Nothing is changed then.
pub fn restrict_to_cores(cores: &[usize]) -> Result<(), usize> {
    let allowed = affinity_mask();
    match cores.iter().find(|core| !allowed.contains(core)) {
        Some(core) => Err(*core),
        None => {
            set_affinity(cores);
            Ok(())
        }
    }
}

/// Returns the logical processors that this process could use at the first call, the first hardware
/// thread of each core first. Call it before any thread is pinned, since a pinned thread's mask
/// contains only its own core.
pub fn allowed_cores() -> &'static [usize] {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    CORES.get_or_init(|| {
        let mut cores = affinity_mask();
        cores.sort_by_key(|&core| (rank_among_siblings(core), core));
        cores
    })
}

/// Returns 0 for the first hardware thread of a physical core, 1 for the second, and so on.
fn rank_among_siblings(core: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    rank_in_list(text.trim(), core)
}

/// Returns the position of `core` in a list such as `0,64` or `0-1`; 0 if it is absent.
fn rank_in_list(list: &str, core: usize) -> usize {
    let mut rank = 0;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else {
            return 0;
        };
        if (first..=last).contains(&core) {
            return rank + core - first;
        }
        rank += (last + 1).saturating_sub(first);
    }
    0
}

#[cfg(target_os = "linux")]
fn affinity_mask() -> Vec<usize> {
    // SAFETY: an all-zero `cpu_set_t` is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid `cpu_set_t` of the size passed; 0 is the calling thread.
    let status = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if status != 0 {
        return Vec::new();
    }
    let possible = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: every index is below `CPU_SETSIZE`.
    possible.filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Restricts the calling thread to these cores; does nothing if there are none.
#[cfg(target_os = "linux")]
fn set_affinity(cores: &[usize]) {
    if cores.is_empty() {
        return;
    }
    // SAFETY: an all-zero `cpu_set_t` is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores {
        // SAFETY: `core` came from a `cpu_set_t`, so it is below `CPU_SETSIZE`.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: `set` is a valid `cpu_set_t` of the size passed; 0 is the calling thread. On failure
    // the affinity stays unchanged.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}

#[cfg(not(target_os = "linux"))]
fn affinity_mask() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn set_affinity(_cores: &[usize]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_hardware_threads_come_after_the_first() {
        assert_eq!(rank_in_list("0,64", 0), 0);
        assert_eq!(rank_in_list("0,64", 64), 1);
        assert_eq!(rank_in_list("2-3", 3), 1);
        assert_eq!(rank_in_list("0-1,8-9", 9), 3);
        assert_eq!(rank_in_list("", 5), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_restricted_thread_has_the_stated_cores_only() {
        let restricted = std::thread::spawn(|| {
            let before = affinity_mask();
            assert_eq!(restrict_to_cores(&[before[0], 5000]), Err(5000));
            assert_eq!(affinity_mask(), before);
            assert_eq!(restrict_to_cores(&before[..1]), Ok(()));
            (affinity_mask(), before)
        });
        let (after, before) = restricted.join().unwrap();
        assert_eq!(after, before[..1]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_pinned_thread_stays_on_its_core() {
        let cores = allowed_cores();
        assert!(!cores.is_empty());
        let last = cores.len() - 1;
        let masks = std::thread::spawn(move || {
            let before = affinity_mask();
            let within = pinned_to_core(last, affinity_mask);
            let after = affinity_mask();
            pin_to_core(last);
            (before == after, within, affinity_mask())
        });
        assert_eq!(masks.join().unwrap(), (true, vec![cores[last]], vec![cores[last]]));
    }
}
