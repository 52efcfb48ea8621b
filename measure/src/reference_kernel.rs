//! Reference kernels, which show how fast the machine is at the moment.
//!
//! Other processes, and other guests of a virtual machine's host, slow kernels down by some per
//! cent for tens of milliseconds to seconds. They halve the speed when two virtual cores share a
//! physical one. No affordable time floor averages this out, and an arithmetic loop does not show
//! all of it. Therefore the best kernel of a workload so far is timed just before and just after
//! each other candidate. The candidate's slowdown is assumed to be the same as that kernel's
//! slowdown relative to a quiet machine.
//!
//! Luck must not decide which kernel is the best. A moment that was faster than nine in ten recent
//! ones may be a lucky outlier, and kernels differ in what slows them down. A candidate that seems
//! to beat the reference kernel therefore has to beat it again in a comparison with interleaved
//! timing before it replaces it.

use std::collections::VecDeque;

use autotune_measurement::CandidateError;

use crate::harness::{quantile, runs_per_repeat};
use crate::loaded::LoadedKernel;
use crate::options::TimingOptions;

/// Most repeats of a look (one short timing of the reference kernel), and the seconds after which
/// it ends.
const LOOK_REPEATS: usize = 3;
const LOOK_SECS: f64 = 0.002;
/// Number of recent looks that are remembered: at two per trial more than a hundred trials, so that
/// the estimate of the quiet machine does not change within seconds.
pub(crate) const LOOKS: usize = 256;
/// Fraction of looks assumed to be on a quiet machine, as one in this number. A larger fraction
/// trusts a disturbed first look for longer, a smaller one trusts a lucky look for longer.
const QUIET_ONE_IN: usize = 10;
/// A candidate replaces the reference kernel if it takes less than this fraction of its time.
pub(crate) const FASTER: f64 = 0.97;
/// Number of rounds of interleaved timing in a comparison with a candidate.
const DUEL_TURNS: usize = 7;
/// Largest credible slowdown: above it, a short hiccup is more likely than a slow machine.
pub(crate) const MAX_SLOWDOWN: f64 = 2.5;
/// Kernel with operands, and its recent times in seconds per run, latest first.
pub(crate) struct ReferenceKernel<L> {
    kernel: L,
    pub(crate) times: VecDeque<f64>,
}

impl<L: LoadedKernel> ReferenceKernel<L> {
    /// Makes a reference kernel from a kernel that took `run_secs` per run.
    pub(crate) fn new(kernel: L, run_secs: f64) -> Self {
        Self { kernel, times: VecDeque::from([run_secs]) }
    }

    /// Replaces the kernel by one that takes `ratio` times as long, and returns the old one. The
    /// recorded times are scaled by `ratio`.
    pub(crate) fn replace(&mut self, kernel: L, ratio: f64) -> L {
        self.times.iter_mut().for_each(|secs| *secs *= ratio);
        std::mem::replace(&mut self.kernel, kernel)
    }

    pub(crate) fn kernel(&self) -> &L {
        &self.kernel
    }

    pub(crate) fn into_kernel(self) -> L {
        self.kernel
    }

    /// Returns the seconds per run on a quiet machine: a low quantile of the recent times.
    pub(crate) fn quiet_secs(&self) -> f64 {
        let mut looks = Vec::from_iter(self.times.iter().copied());
        looks.sort_by(f64::total_cmp);
        looks.get(looks.len() / QUIET_ONE_IN).copied().unwrap_or(f64::NAN)
    }

    /// Returns the seconds of all runs so far.
    pub(crate) fn kernel_secs(&self) -> f64 {
        self.kernel.kernel_secs()
    }

    /// Times the kernel and returns the slowdown relative to a quiet machine.
    pub(crate) fn slowdown(&mut self, options: &TimingOptions) -> Result<f64, CandidateError> {
        let quiet_secs = self.quiet_secs();
        let now_secs = look(&mut self.kernel, quiet_secs, options)?;
        self.times.truncate(LOOKS - 1);
        self.times.push_front(now_secs);
        Ok(credible(now_secs / quiet_secs))
    }

    /// Returns how many times as long as this kernel `rival` takes, and the slowdown of the machine
    /// while the rival was timed. The rival took `run_secs` when the machine was `slowdown` times
    /// slower than a quiet one. If the rival seems to win, the two are timed interleaved, and the
    /// median ratio decides.
    pub(crate) fn compare(
        &mut self,
        rival: &mut L,
        run_secs: f64,
        slowdown: f64,
        options: &TimingOptions,
    ) -> Result<(f64, f64), CandidateError> {
        let quiet_secs = self.quiet_secs();
        let ratio = run_secs / slowdown / quiet_secs;
        if ratio >= FASTER {
            return Ok((ratio, slowdown));
        }
        let mut turn = || Ok(look(rival, run_secs, options)? / look(&mut self.kernel, quiet_secs, options)?);
        let mut ratios = (0..DUEL_TURNS).map(|_| turn()).collect::<Result<Vec<f64>, CandidateError>>()?;
        ratios.sort_by(f64::total_cmp);
        let ratio = quantile(&ratios, 0.5);
        Ok((ratio, credible(run_secs / (ratio * quiet_secs))))
    }
}

/// Clamps a slowdown to the credible range.
fn credible(slowdown: f64) -> f64 {
    slowdown.clamp(1.0, MAX_SLOWDOWN)
}

/// Returns the fastest of a few repeats of a kernel that takes about `run_secs`, in seconds per
/// run.
fn look(kernel: &mut impl LoadedKernel, run_secs: f64, options: &TimingOptions) -> Result<f64, CandidateError> {
    let runs = runs_per_repeat(options, run_secs);
    let (mut elapsed, mut fastest) = (0.0, f64::INFINITY);
    for _ in 0..LOOK_REPEATS {
        let secs = kernel.repeat(runs)?;
        fastest = (secs / runs as f64).min(fastest);
        elapsed += secs;
        if elapsed >= LOOK_SECS {
            break;
        }
    }
    Ok(fastest)
}
