//! How much of the machine other programs take while something is timed.

use std::collections::HashMap;
use std::fs;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use autotune_runtime::allowed_cores;
use serde::Serialize;

/// Share of the threads' time from which on, if others take it, times are not believed to a tenth.
pub const DISTURBED: f64 = 0.1;

/// The system counts in ticks of a hundredth of a second: what is watched for a shorter time than
/// this is a matter of a few of them.
const LEAST_SECS: f64 = 0.2;

/// What others had of the cores that this process may use, on average over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// Cores that this process may use.
    pub cores: usize,
    /// Cores that programs other than this process and those it started kept busy.
    pub other_cores: f64,
    /// Share of the time in which the cores had work that the hypervisor gave to other guests.
    pub stolen: f64,
    /// Share of the time of the threads in question that both took: there is none where enough
    /// cores are free.
    pub taken: f64,
}

impl Load {
    /// True if times measured meanwhile may be off by more than a tenth.
    pub fn is_disturbing(&self) -> bool {
        self.taken > DISTURBED
    }
}

/// Watches the machine from a moment on.
#[derive(Clone, Debug)]
pub struct LoadWatch {
    threads: usize,
    start: Instant,
    before: Option<Counts>,
}

/// Ticks so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    /// All that the cores did, for whomever.
    busy: u64,
    /// Cores had work, and the hypervisor ran another guest.
    stolen: u64,
    /// All that the cores had time for.
    total: u64,
    /// This process and its descendants, on whatever core.
    own: u64,
}

impl LoadWatch {
    /// Watches from now on what threads that run all the time lose, as many as `threads`.
    pub fn start(threads: usize) -> Self {
        Self { threads, start: Instant::now(), before: Counts::now() }
    }

    /// What others had since then; `None` where the system does not tell, or too little time has
    /// passed for it to.
    pub fn load(&self) -> Option<Load> {
        if self.start.elapsed().as_secs_f64() < LEAST_SECS {
            return None;
        }
        Load::between(self.before?, Counts::now()?, allowed_cores().len(), self.threads)
    }

    /// The same; waits where too little time has passed for the system to tell.
    pub fn awaited_load(&self) -> Option<Load> {
        let rest = Duration::from_secs_f64(LEAST_SECS).checked_sub(self.start.elapsed());
        rest.into_iter().for_each(thread::sleep);
        self.load()
    }
}

impl Load {
    fn between(before: Counts, now: Counts, cores: usize, threads: usize) -> Option<Self> {
        let since = |count: fn(&Counts) -> u64| count(&now).saturating_sub(count(&before)) as f64;
        let (busy, stolen) = (since(|counts| counts.busy), since(|counts| counts.stolen));
        // Of each core as many ticks passed.
        let ticks = since(|counts| counts.total) / cores as f64;
        if !(ticks > 0.0 && threads > 0) {
            return None;
        }

        let other_cores = (busy - since(|counts| counts.own)).max(0.0) / ticks;
        let stolen = stolen / (busy + stolen).max(1.0);
        let wanted = other_cores + threads as f64;
        let lost = (wanted - cores as f64).max(0.0) / threads as f64;
        Some(Self { cores, other_cores, stolen, taken: (lost + stolen).min(1.0) })
    }
}

impl Counts {
    fn now() -> Option<Self> {
        let cores = Self::of_cores(&fs::read_to_string("/proc/stat").ok()?, allowed_cores())?;
        Some(Self { own: own_ticks()?, ..cores })
    }

    /// What `/proc/stat` has of some cores.
    fn of_cores(stat: &str, cores: &[usize]) -> Option<Self> {
        let mut counts = Self::default();
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            let core = words.next().and_then(|word| word.strip_prefix("cpu")?.parse::<usize>().ok());
            if !core.is_some_and(|core| cores.contains(&core)) {
                continue;
            }

            // Time of guests of this machine's own counts as user time already.
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

/// Ticks of this process and of those that it started, however indirectly, ended ones included that
/// were waited for.
fn own_ticks() -> Option<u64> {
    let stats = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, ProcessTicks::of(&stat)?))
    });
    let stats: HashMap<u32, ProcessTicks> = stats.collect();
    let own = process::id();
    stats.contains_key(&own).then(|| {
        let is_own = |pid: &u32| descends(*pid, own, &stats);
        stats.iter().filter(|(pid, _)| is_own(pid)).map(|(_, process)| process.ticks).sum()
    })
}

/// What `/proc/PID/stat` has of a process.
struct ProcessTicks {
    parent: u32,
    ticks: u64,
}

impl ProcessTicks {
    fn of(stat: &str) -> Option<Self> {
        // The name, in brackets, may hold anything.
        let words: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let ticks = words.get(11..15)?.iter().map(|word| word.parse::<u64>().ok()).sum::<Option<u64>>()?;
        Some(Self { parent: words.get(1)?.parse().ok()?, ticks })
    }
}

/// True if a process is another or was started by it, however indirectly.
fn descends(mut pid: u32, from: u32, stats: &HashMap<u32, ProcessTicks>) -> bool {
    // No chain is longer; processes that began meanwhile may make one that leads nowhere.
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
        let counts = Counts::of_cores(STAT, &[0]).unwrap();
        assert_eq!(counts, Counts { busy: 153, stolen: 7, total: 1010, own: 0 });
        assert_eq!(Counts::of_cores(STAT, &[0, 1]).unwrap().busy, 158);
        assert_eq!(Counts::of_cores(STAT, &[3]), None, "there is none of the number");
        assert_eq!(Counts::of_cores(STAT, &[10]), None, "it is cut off");
        assert_eq!(Counts::of_cores("", &[0]), None);
    }

    /// What others have on two cores, over 1000 ticks.
    fn load(threads: usize, others: u64, own: u64, stolen: u64) -> Load {
        let now = Counts { busy: others + own, stolen, total: 2000, own };
        Load::between(Counts::default(), now, 2, threads).unwrap()
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
        assert_eq!(Load::between(Counts::default(), Counts::default(), 2, 2), None);
    }

    #[test]
    fn processes_are_told_by_what_started_them() {
        let stat = |parent: u32| format!("7 (a) b) S {parent} 1 1 0 -1 4194304 2 3 4 5 10 20 30 40 20 0 1 0 9 9");
        assert_eq!(ProcessTicks::of(&stat(3)).map(|process| (process.parent, process.ticks)), Some((3, 100)));
        assert!(ProcessTicks::of("7 (a").is_none() && ProcessTicks::of("7 (a) S 1").is_none());
        let parents = [(1, 0), (3, 1), (7, 3), (8, 1), (9, 10), (10, 9)];
        let stats = parents.map(|(pid, parent)| (pid, ProcessTicks { parent, ticks: 1 })).into();
        let own: Vec<u32> = parents.iter().map(|(pid, _)| *pid).filter(|pid| descends(*pid, 3, &stats)).collect();
        assert_eq!(own, [3, 7]);
    }

    /// What this process does itself takes nothing from it.
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
