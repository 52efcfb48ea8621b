//! Memory copy, the reference for operators that mainly move memory.

use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use autotune_runtime::{HostMemory, Team, pin_to_core};
use autotune_workloads::Workload;

use crate::contender::repeats;

/// Name of the copy among the contenders.
pub(crate) const NAME: &str = "copy";

/// Unit of copying, in bytes: each thread's part begins at a cache line.
const LINE_BYTES: usize = 64;

/// A `memcpy` that moves as many bytes as a workload must, half of them read and half written, with
/// as many threads. The memory is aligned like that of this library's kernels.
pub(crate) struct Copying {
    from: HostMemory,
    to: HostMemory,
    lines: usize,
    team: Team,
}

impl Copying {
    /// Prepares and checks a copy; `None` for workloads that multiply tensors, as their time is not
    /// determined by memory alone.
    pub(crate) fn new(workload: &Workload, threads: usize) -> Result<Option<Self>> {
        if workload.spec().multiplies_tensors() {
            return Ok(None);
        }
        let lines = (workload.work().bytes / 2.0 / LINE_BYTES as f64).ceil() as usize;
        let memory = || HostMemory::new(lines * LINE_BYTES);
        let mut copying = Self { from: memory()?, to: memory()?, lines, team: Team::pinned(threads) };
        for (number, word) in copying.from.elements_mut::<u32>().iter_mut().enumerate() {
            *word = number as u32;
        }
        copying.repeat(1);
        let copied = |memory: &HostMemory| memory.elements::<u8>()[..lines * LINE_BYTES].to_vec();
        ensure!(copied(&copying.from) == copied(&copying.to), "the copy is not complete");
        Ok(Some(copying))
    }

    /// Runs for at least `floor_secs` and returns the seconds per run of each repeat.
    pub(crate) fn turn(&mut self, floor_secs: f64) -> Vec<f64> {
        // A thread of its own is pinned, so that the rest of the program may run on any core.
        let pinned = move || {
            pin_to_core(0);
            repeats(floor_secs, |runs| self.repeat(runs))
        };
        thread::scope(|scope| scope.spawn(pinned).join()).unwrap_or_default()
    }

    fn repeat(&mut self, runs: usize) -> f64 {
        let Self { from, to, lines, team } = self;
        let (from, to) = (from.start() as usize, to.start() as usize);
        let start = Instant::now();
        for _ in 0..runs {
            team.divide(*lines, |part| {
                let (begin, bytes) = (part.start * LINE_BYTES, part.len() * LINE_BYTES);
                let (from, to) = ((from + begin) as *const u8, (to + begin) as *mut u8);
                // SAFETY: both memories have `lines` lines and do not overlap. The threads' parts
                // are disjoint, and `divide` returns after all of them are copied.
                unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            });
        }
        start.elapsed().as_secs_f64()
    }
}
