//! CPU time that other programs use while something is timed.

use std::collections::HashMap;
use std::fs;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use autotune_runtime::allowed_cores;
use serde::Serialize;

/// Share of the threads' time used by others above which times may be off by more than a tenth.
pub const DISTURBED: f64 = 0.1;

/// Shortest time over which the load is computed. The system counts in ticks of 10 ms, so a shorter
/// time would cover only a few ticks.
const LEAST_SECS: f64 = 0.2;

/// Average use, over some time, of this process's allowed cores by others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Average number of cores that other programs kept busy. This process and its descendants do
    /// not count.
    pub other_cores: f64,
    /// Share of the cores' runnable time that the hypervisor gave to other guests.
    pub stolen: f64,
    /// Share of the watched threads' time lost to other programs and other guests. Programs cost
    /// the threads nothing if enough cores are free.
    pub taken: f64,
}

impl Load {
    /// Returns true if times measured meanwhile may be off by more than a tenth.
    pub fn is_disturbing(&self) -> bool {
        self.taken > DISTURBED
    }
}

/// Measures the load from a start time on.
#[derive(Clone, Debug)]
pub struct LoadWatch {
    threads: usize,
    start: Instant,
    before: Option<LoadTicks>,
}

/// Counts of clock ticks since the system started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LoadTicks {
    /// Ticks in which the cores executed any program.
    busy: u64,
    /// Ticks in which the cores had work but the hypervisor ran another guest.
    stolen: u64,
    /// All ticks of the cores, idle ones included.
    total: u64,
    /// Ticks of this process and its descendants, on any core.
    own: u64,
}

impl LoadWatch {
    /// Starts watching. `threads` is the number of threads, running all the time, for which losses
    /// are computed.
    pub fn start(threads: usize) -> Self {
        Self { threads, start: Instant::now(), before: LoadTicks::now() }
    }

    /// Returns the load since the start; `None` if the system does not report it, or if too little
    /// time has passed.
    pub fn load(&self) -> Option<Load> {
        if self.start.elapsed().as_secs_f64() < LEAST_SECS {
            return None;
        }
        Load::between(self.before?, LoadTicks::now()?, allowed_cores().len(), self.threads)
    }

    /// Returns the load since the start, after waiting until enough time has passed.
    pub fn awaited_load(&self) -> Option<Load> {
        let rest = Duration::from_secs_f64(LEAST_SECS).checked_sub(self.start.elapsed());
        rest.into_iter().for_each(thread::sleep);
        self.load()
    }
}

impl Load {
    fn between(before: LoadTicks, now: LoadTicks, cores: usize, threads: usize) -> Option<Self> {
        let since = |count: fn(&LoadTicks) -> u64| count(&now).saturating_sub(count(&before)) as f64;
        let (busy, stolen) = (since(|counts| counts.busy), since(|counts| counts.stolen));
        // Every core counts the same number of ticks, so this is the elapsed time.
        let ticks = since(|counts| counts.total) / cores as f64;
        if !(ticks > 0.0 && threads > 0) {
            return None;
        }

        // Threads lose time only if they and the others want more cores than there are.
        let other_cores = (busy - since(|counts| counts.own)).max(0.0) / ticks;
        let stolen = stolen / (busy + stolen).max(1.0);
        let wanted = other_cores + threads as f64;
        let lost = (wanted - cores as f64).max(0.0) / threads as f64;
        Some(Self { cores, other_cores, stolen, taken: (lost + stolen).min(1.0) })
    }
}

impl LoadTicks {
    fn now() -> Option<Self> {
        let cores = Self::of_cores(&fs::read_to_string("/proc/stat").ok()?, allowed_cores())?;
        Some(Self { own: own_ticks()?, ..cores })
    }

    /// Sums the counts of some cores in `/proc/stat`.
    fn of_cores(stat: &str, cores: &[usize]) -> Option<Self> {
        let mut counts = Self::default();
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            let core = words.next().and_then(|word| word.strip_prefix("cpu")?.parse::<usize>().ok());
            if !core.is_some_and(|core| cores.contains(&core)) {
                continue;
            }

            // The first eight columns only: guest time is already counted as user time.
            let ticks: Vec<u64> = words.take(8).map(|word| word.parse().ok()).collect::<Option<_>>()?;
            let [user, nice, system, idle, waiting, interrupts @ ..] = &ticks[..] else { return None };
            let [interrupts @ .., stolen] = interrupts else { return None };
            let busy = user + nice + system + interrupts.iter().sum::<u64>();
            counts.busy += busy;
            counts.stolen += stolen;
            counts.total += busy + stolen + idle + waiting;
        }
        (counts.total > 0).then_some(counts)
    }
}

/// Returns the ticks of this process and its descendants, including those that ended and were
/// waited for.
fn own_ticks() -> Option<u64> {
    let stats = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, ProcessTicks::of(&stat)?))
    });
    let stats: HashMap<u32, ProcessTicks> = stats.collect();
    let own = process::id();
    stats.contains_key(&own).then(|| {
        let is_own = |pid: &u32| is_descendant(*pid, own, &stats);
        stats.iter().filter(|(pid, _)| is_own(pid)).map(|(_, process)| process.ticks).sum()
    })
}

/// Parent and ticks of a process, from `/proc/PID/stat`.
struct ProcessTicks {
    parent: u32,
    ticks: u64,
}

impl ProcessTicks {
    fn of(stat: &str) -> Option<Self> {
        // Split after the last bracket: the name, in brackets, may contain spaces and brackets.
        let words: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let ticks = words.get(11..15)?.iter().map(|word| word.parse::<u64>().ok()).sum::<Option<u64>>()?;
        Some(Self { parent: words.get(1)?.parse().ok()?, ticks })
    }
}

/// Returns true if process `pid` is `from` or one of its descendants.
fn is_descendant(mut pid: u32, from: u32, stats: &HashMap<u32, ProcessTicks>) -> bool {
    // No chain is longer. The bound is needed because processes that start during the scan can make
    // the parent links inconsistent, even cyclic.
    for _ in 0..stats.len() {
        if pid == from {
            return true;
        }
        match stats.get(&pid) {
            Some(process) => pid = process.parent,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 100 20 30 800 50 1 2 7 5 0\ncpu1 1 1 1 1 1 1 1 1 0 0\ncpu10 9 9\nintr 5\n";

    #[test]
    fn cores_that_may_be_used_count() {
        let counts = LoadTicks::of_cores(STAT, &[0]).unwrap();
        assert_eq!(counts, LoadTicks { busy: 153, stolen: 7, total: 1010, own: 0 });
        assert_eq!(LoadTicks::of_cores(STAT, &[0, 1]).unwrap().busy, 158);
        assert_eq!(LoadTicks::of_cores(STAT, &[3]), None, "there is none of the number");
        assert_eq!(LoadTicks::of_cores(STAT, &[10]), None, "it is cut off");
        assert_eq!(LoadTicks::of_cores("", &[0]), None);
    }

    /// Returns the load of two cores over 1000 ticks.
    fn load(threads: usize, others: u64, own: u64, stolen: u64) -> Load {
        let now = LoadTicks { busy: others + own, stolen, total: 2000, own };
        Load::between(LoadTicks::default(), now, 2, threads).unwrap()
    }

    #[test]
    fn threads_lose_what_others_take_beyond_free_cores() {
        assert_eq!(load(2, 0, 2000, 0), Load { cores: 2, other_cores: 0.0, stolen: 0.0, taken: 0.0 });
        assert_eq!(load(2, 1000, 1000, 0).taken, 0.5, "two busy programs beside two threads");
        assert_eq!(load(1, 1000, 1000, 0).taken, 0.0, "one core is free of them");
        assert_eq!(load(1, 1500, 500, 0).taken, 0.5);
        assert!(!load(2, 100, 1900, 0).is_disturbing() && load(2, 300, 1700, 0).is_disturbing());
        assert_eq!(load(2, 0, 1500, 500).taken, 0.25, "other guests");
        assert_eq!(load(2, 0, 2100, 0).other_cores, 0.0, "ticks of processes are counted otherwise");
        assert_eq!(Load::between(LoadTicks::default(), LoadTicks::default(), 2, 2), None);
    }

    #[test]
    fn processes_are_told_by_what_started_them() {
        let stat = |parent: u32| format!("7 (a) b) S {parent} 1 1 0 -1 4194304 2 3 4 5 10 20 30 40 20 0 1 0 9 9");
        assert_eq!(ProcessTicks::of(&stat(3)).map(|process| (process.parent, process.ticks)), Some((3, 100)));
        assert!(ProcessTicks::of("7 (a").is_none() && ProcessTicks::of("7 (a) S 1").is_none());
        let parents = [(1, 0), (3, 1), (7, 3), (8, 1), (9, 10), (10, 9)];
        let stats = parents.map(|(pid, parent)| (pid, ProcessTicks { parent, ticks: 1 })).into();
        let own: Vec<u32> = parents.iter().map(|(pid, _)| *pid).filter(|pid| is_descendant(*pid, 3, &stats)).collect();
        assert_eq!(own, [3, 7]);
    }

    /// Work of the current process does not count as load.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_of_this_process() {
        let watch = LoadWatch::start(1);
        assert_eq!(watch.load(), None, "too little time has passed");
        let load = watch.awaited_load().unwrap();
        assert!(
            load.cores > 0 && load.other_cores <= load.cores as f64 && (0.0..=1.0).contains(&load.taken),
            "{load:?}"
        );
    }
}
