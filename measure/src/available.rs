//! Memory that this process can still allocate.

use std::fs;
use std::path::{Path, PathBuf};

use autotune_workloads::Workload;

use crate::error::MeasureError;
use crate::memory::{self, ADDRESS_SPACE, DATA};
use crate::problem;

/// Returns the bytes that this process can still allocate: the least of the system's available
/// memory, of what its control groups leave (versions 1 and 2, up to the root), and of what its
/// limits on address space and data leave. `usize::MAX` if none of these is known.
pub(crate) fn available_bytes() -> usize {
    let left = |resource, size| memory::soft_limit(resource).map(|limit| limit.saturating_sub(memory::own_bytes(size)));
    let limits = [left(libc::RLIMIT_AS, ADDRESS_SPACE), left(libc::RLIMIT_DATA, DATA)];
    limits.into_iter().flatten().fold(system_bytes(Path::new("/")), usize::min)
}

/// Fails if measuring a workload needs more memory than is available.
pub(crate) fn check_available(workload: &Workload, available_bytes: usize) -> Result<(), MeasureError> {
    let needed_bytes = problem::needed_bytes(workload);
    if needed_bytes <= available_bytes {
        return Ok(());
    }
    Err(MeasureError::Memory { workload: Box::new(workload.clone()), needed_bytes, available_bytes })
}

/// Returns the bytes left to this process according to the files in `proc` and `sys` under `root`.
fn system_bytes(root: &Path) -> usize {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let system = meminfo_available(&read("proc/meminfo"));
    let groups = groups(root, &read("proc/self/cgroup"));
    let left =
        groups.iter().flat_map(|(folder, files)| folder.ancestors().filter_map(|folder| files.left_bytes(folder)));
    system.into_iter().chain(left).min().unwrap_or(usize::MAX)
}

/// Parses `MemAvailable` of `/proc/meminfo` and returns bytes.
fn meminfo_available(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Names of a memory control group's files.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// Field of `memory.stat`: file cache that the system drops when memory is short.
    droppable: &'static str,
}

const VERSION_1: Files =
    Files { limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes", droppable: "total_inactive_file" };
const VERSION_2: Files = Files { limit: "memory.max", used: "memory.current", droppable: "inactive_file" };

impl Files {
    /// Returns the bytes that a group leaves; `None` if it has no limit, or if the folder is not a
    /// control group's.
    fn left_bytes(&self, folder: &Path) -> Option<usize> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<usize>().ok();
        let limit = number(self.limit)?;
        let stat = read("memory.stat").unwrap_or_default();
        let droppable = stat.lines().find_map(|line| line.strip_prefix(self.droppable)?.trim().parse().ok());
        let used = number(self.used)?.saturating_sub(droppable.unwrap_or(0));
        Some(limit.saturating_sub(used))
    }
}

/// Returns the folders of the groups in `/proc/self/cgroup`, whose lines are
/// "number:controllers:path". In a container the path may exist only on the host; then only those
/// of its ancestors that exist count.
fn groups(root: &Path, text: &str) -> Vec<(PathBuf, &'static Files)> {
    let folder = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        match controllers {
            "" => Some((root.join("sys/fs/cgroup").join(path), &VERSION_2)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((root.join("sys/fs/cgroup/memory").join(path), &VERSION_1))
            }
            _ => None,
        }
    };
    text.lines().filter_map(folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 100 kB\nMemFree: 9 kB\nMemAvailable:   50 kB\n");

    #[test]
    fn the_tightest_group_up_to_the_root_counts() {
        let groups = [
            MEMINFO,
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "max\n"),
            ("sys/fs/cgroup/outer/inner/memory.current", "1\n"),
            ("sys/fs/cgroup/outer/memory.max", "20000\n"),
            ("sys/fs/cgroup/outer/memory.current", "9000\n"),
        ];
        assert_eq!(system_bytes(root(&groups).path()), 11_000);
        let droppable = ("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 4000\nactive_file 7\n");
        assert_eq!(system_bytes(root(&[&groups[..], &[droppable]].concat()).path()), 15_000);
        let full = ("sys/fs/cgroup/outer/memory.max", "8000");
        assert_eq!(system_bytes(root(&[&groups[..], &[full]].concat()).path()), 0);
    }

    #[test]
    fn groups_of_version_1_count_too() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "12:cpu,cpuacct:/a\n5:memory:/docker/unknown\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "30000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "20000"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n"),
        ];
        assert_eq!(system_bytes(root(&files).path()), 10_500);
    }

    #[test]
    fn without_groups_the_system_tells_and_without_that_nothing_does() {
        assert_eq!(system_bytes(root(&[MEMINFO]).path()), 50 << 10);
        assert_eq!(system_bytes(root(&[]).path()), usize::MAX);
        let damaged = [("proc/meminfo", "MemAvailable: many kB"), ("proc/self/cgroup", "nonsense\n:\n0:memory\n")];
        assert_eq!(system_bytes(root(&damaged).path()), usize::MAX);
        let endless = [
            MEMINFO,
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "99999999999999999999999999"),
            ("sys/fs/cgroup/memory.current", "7"),
        ];
        assert_eq!(system_bytes(root(&endless).path()), 50 << 10);
    }

    #[test]
    fn a_workload_that_no_memory_holds_is_named() {
        let large: Workload = "conv2d:c=4096,h=512,w=512,o=64,k=3,p=1".parse().unwrap();
        let error = check_available(&large, 6_000_000_000).unwrap_err().to_string();
        assert!(error.starts_with("conv2d:") && error.ends_with(" GB, 6.0 GB available"), "{error}");
        assert!(check_available(&large, 100 << 30).is_ok());
        assert!(check_available(&"matmul:m=8,n=8,k=8".parse().unwrap(), available_bytes()).is_ok());
    }
}
