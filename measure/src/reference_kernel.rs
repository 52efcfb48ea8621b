//! Kernels that tell how fast the machine is at the moment.
//!
//! Other processes, and other guests of a virtual machine's host, slow kernels down by some per
//! cent for tens of milliseconds to seconds, and to half their speed where two virtual cores come
//! to share a real one. No floor of time averages that out, and a loop of arithmetic does not feel
//! all of it. So the best kernel of a workload so far is timed just before and just after each
//! other candidate: by how much it is slower than on a quiet machine, the candidate is taken to be,
//! too.
//!
//! Luck must not decide which kernel is the best: a moment that was faster than nine in ten of
//! those of late is no quiet machine, and kernels differ in what slows them down. So a candidate
//! that seems to beat the reference kernel has to do so in a duel, in turns with it, to take its
//! place.

use std::collections::VecDeque;

use autotune_measurement::CandidateError;

use crate::harness::{quantile, runs_per_repeat};
use crate::loaded::Loaded;
use crate::options::TimingOptions;

/// Repeats of a look, at most, and the seconds after which there are no more.
const LOOK_REPEATS: usize = 3;
const LOOK_SECS: f64 = 0.002;
/// Looks that are remembered, the latest: a hundred trials and more, so that what is quiet does not
/// change within seconds.
pub(crate) const LOOKS: usize = 256;
/// One look in this number was at a quiet machine. The less, the longer a first disturbed look is
/// believed; the more, the longer a lucky one.
const QUIET_ONE_IN: usize = 10;
/// A candidate becomes the reference kernel if it takes less than this part of the present one's
/// time.
pub(crate) const FASTER: f64 = 0.97;
/// Turns of a duel.
const DUEL_TURNS: usize = 7;
/// Beyond this, a moment's hiccup is likelier than a slow machine.
pub(crate) const MAX_SLOWDOWN: f64 = 2.5;
/// A kernel with operands, and its times of late, in seconds a run.
pub(crate) struct ReferenceKernel<L> {
    kernel: L,
    pub(crate) looks: VecDeque<f64>,
}

impl<L: Loaded> ReferenceKernel<L> {
    /// A kernel that took `run_secs` a run.
    pub(crate) fn new(kernel: L, run_secs: f64) -> Self {
        Self { kernel, looks: VecDeque::from([run_secs]) }
    }

    /// One that takes `ratio` times as long takes its place; this one's kernel.
    pub(crate) fn replace(&mut self, kernel: L, ratio: f64) -> L {
        self.looks.iter_mut().for_each(|secs| *secs *= ratio);
        std::mem::replace(&mut self.kernel, kernel)
    }

    pub(crate) fn kernel(&self) -> &L {
        &self.kernel
    }

    pub(crate) fn into_kernel(self) -> L {
        self.kernel
    }

    /// Seconds that the kernel takes on a quiet machine: a low quantile of its looks.
    pub(crate) fn quiet_secs(&self) -> f64 {
        let mut looks = Vec::from_iter(self.looks.iter().copied());
        looks.sort_by(f64::total_cmp);
        looks.get(looks.len() / QUIET_ONE_IN).copied().unwrap_or(f64::NAN)
    }

    /// Seconds of all its runs so far.
    pub(crate) fn kernel_secs(&self) -> f64 {
        self.kernel.kernel_secs()
    }

    /// Times longer that the kernel takes now than on a quiet machine.
    pub(crate) fn slowdown(&mut self, options: &TimingOptions) -> Result<f64, CandidateError> {
        let quiet_secs = self.quiet_secs();
        let now_secs = look(&mut self.kernel, quiet_secs, options)?;
        self.looks.truncate(LOOKS - 1);
        self.looks.push_front(now_secs);
        Ok(credible(now_secs / quiet_secs))
    }

    /// How many times longer than this kernel `rival` takes, which took `run_secs` on a machine
    /// `slowdown` times slower than a quiet one, and that slowdown. If it seems to win, the two are
    /// timed in turns, and the median over the turns tells.
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

/// A slowdown, as far as it is to be believed.
fn credible(slowdown: f64) -> f64 {
    slowdown.clamp(1.0, MAX_SLOWDOWN)
}

/// The fastest of a few repeats of a kernel that takes about `run_secs`, in seconds a run.
fn look(kernel: &mut impl Loaded, run_secs: f64, options: &TimingOptions) -> Result<f64, CandidateError> {
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
