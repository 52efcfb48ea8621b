//! Copying, the measure of operators that do little else than move memory.

use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use autotune_runtime::{HostMemory, Team, pin_to_core};
use autotune_workloads::Workload;

use crate::contender::repeats;

/// Its name among the contenders.
pub(crate) const NAME: &str = "copy";

/// What is copied in one go: a part of a thread begins with a cache line.
const LINE_BYTES: usize = 64;

/// A `memcpy` that moves as many bytes as a workload must, half of them read and half of them
/// written, by as many threads. The memory is aligned like that of our kernels.
pub(crate) struct Copying {
    from: HostMemory,
    to: HostMemory,
    lines: usize,
    team: Team,
}

impl Copying {
    /// `None` for what multiplies tensors with each other, which computes more than it moves.
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

    /// Runs for at least `floor_secs`; seconds a run of each repeat.
    pub(crate) fn turn(&mut self, floor_secs: f64) -> Vec<f64> {
        // The rest of this program stays free to run anywhere.
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
                // SAFETY: both memories have `lines` lines and are apart; the parts are, too, and
                // this thread waits for all.
                unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            });
        }
        start.elapsed().as_secs_f64()
    }
}
