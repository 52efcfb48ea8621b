//! Timing loop: warm-up, adaptive number of repeats, early stop. It is independent of kernels and
//! receives a function that runs one.

use autotune_measurement::{CandidateError, RunSecs};

use crate::options::TimingOptions;

/// Repeats after which a candidate may be stopped early.
const STOP_REPEATS: usize = 3;

/// Factor over the stop factor at which a candidate is stopped after its warm-up alone.
const HOPELESS: f64 = 4.0;

/// Multiple of the time floor after which timing ends however few the repeats are.
const CEILING_FLOORS: f64 = 20.0;

/// Multiple of the time floor after which timing ends although the kernel has not settled.
const UNSETTLED_FLOORS: f64 = 3.0;

/// Largest ratio of the low quantile to the fastest repeat at which a kernel counts as settled.
const SETTLED_RATIO: f64 = 1.02;

/// Quantile of the repeats that [`autotune_measurement::RunSecs::run_secs`] reports.
const LOW_QUANTILE: f64 = 0.1;

/// Most runs in one repeat.
const MAX_RUNS: usize = 10_000;

/// Times of a kernel's repeats, in seconds per run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples {
    secs: Vec<f64>,
    stopped_early: bool,
}

/// Returns the number of runs in one repeat for a kernel that takes `run_secs`.
pub(crate) fn runs_per_repeat(options: &TimingOptions, run_secs: f64) -> usize {
    let runs = (options.repeat_secs / run_secs.max(1e-9)).ceil();
    (runs as usize).clamp(1, MAX_RUNS)
}

/// Warms up and returns the fastest seconds per run. `repeat(n)` runs the kernel `n` times and
/// returns the total seconds. `first_secs` is the time of the first run, which is enough warm-up if
/// it was long.
pub(crate) fn warm_up(options: &TimingOptions, first_secs: f64, repeat: &mut impl FnMut(usize) -> f64) -> f64 {
    let (mut elapsed, mut fastest) = (first_secs, first_secs);
    while elapsed < options.warmup_secs {
        let runs = runs_per_repeat(options, fastest);
        // A clock that does not advance must not make the loop endless.
        let secs = repeat(runs).max(1e-9);
        elapsed += secs;
        fastest = fastest.min(secs / runs as f64);
    }
    fastest
}

/// Runs the kernel for as long as a warm-up takes, but at least once, so that data of other kernels
/// leaves the caches. Returns the fastest seconds per run.
pub(crate) fn settle(options: &TimingOptions, estimate_secs: f64, repeat: &mut impl FnMut(usize) -> f64) -> f64 {
    let runs = runs_per_repeat(options, estimate_secs);
    let first_secs = repeat(runs) / runs as f64;
    warm_up(options, first_secs, repeat)
}

/// Repeats until the floors of time and repeats are reached and the low quantile has settled (on a
/// busy machine for at most three times the time floor), or until the kernel is clearly slower than
/// the incumbent. `estimate_secs` is the fastest run so far and counts as evidence for the
/// candidate.
pub(crate) fn sample(
    options: &TimingOptions,
    estimate_secs: f64,
    incumbent_secs: Option<f64>,
    repeat: &mut impl FnMut(usize) -> f64,
) -> Samples {
    if incumbent_secs.is_some_and(|incumbent| estimate_secs > HOPELESS * options.stop_factor * incumbent) {
        return Samples { secs: vec![estimate_secs], stopped_early: true };
    }

    let runs = runs_per_repeat(options, estimate_secs);
    let mut samples = Samples::default();
    let (mut elapsed, mut fastest) = (0.0f64, estimate_secs);

    while samples.secs.len() < options.max_repeats.max(1) {
        let secs = repeat(runs);
        elapsed += secs;
        samples.secs.push(secs / runs as f64);
        fastest = fastest.min(secs / runs as f64);
        let repeats = samples.secs.len();

        if incumbent_secs.is_some_and(|incumbent| is_clearly_slower(options, repeats, fastest, incumbent)) {
            samples.stopped_early = true;
            break;
        }

        let enough = repeats >= options.min_repeats && elapsed >= options.floor_secs;
        let settled = || samples.has_converged() || elapsed >= UNSETTLED_FLOORS * options.floor_secs;
        if (enough && settled()) || elapsed >= CEILING_FLOORS * options.floor_secs {
            break;
        }
    }
    samples
}

/// Returns true if a kernel is clearly slower than the incumbent: by the stop factor after a few
/// repeats, by twice that after the first. `fastest` includes the warm-up, so that a short
/// disturbance does not decide.
fn is_clearly_slower(options: &TimingOptions, repeats: usize, fastest: f64, incumbent: f64) -> bool {
    let limit = options.stop_factor * incumbent;
    fastest > 2.0 * limit || (repeats >= STOP_REPEATS && fastest > limit)
}

/// Adapter for runs that may fail, for a timing loop that handles seconds only. After a failure
/// it reports a very long time for each repeat, so that the loop ends.
pub(crate) struct Clock<F> {
    run: F,
    failed: Option<CandidateError>,
}

impl<F: FnMut(usize) -> Result<f64, CandidateError>> Clock<F> {
    pub(crate) fn new(run: F) -> Self {
        Self { run, failed: None }
    }

    /// Runs the kernel `runs` times and returns the seconds.
    pub(crate) fn repeat(&mut self, runs: usize) -> f64 {
        if self.failed.is_none() {
            match (self.run)(runs) {
                Ok(secs) => return secs,
                Err(error) => self.failed = Some(error),
            }
        }
        1e9
    }

    /// Returns the error of the first failed run, if any.
    pub(crate) fn outcome(self) -> Result<(), CandidateError> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl Samples {
    /// Adds the repeats of another round.
    pub(crate) fn append(&mut self, mut other: Samples) {
        self.secs.append(&mut other.secs);
    }

    /// Returns true if the low quantile is close to the fastest repeat, so that more repeats would
    /// hardly change it.
    fn has_converged(&self) -> bool {
        let fastest = self.secs.iter().copied().fold(f64::INFINITY, f64::min);
        let near = self.secs.iter().filter(|&&secs| secs <= SETTLED_RATIO * fastest).count();
        // The quantile lies at this rank, interpolated between two samples.
        near as f64 >= 1.0 + (LOW_QUANTILE * (self.secs.len() as f64 - 1.0)).ceil()
    }

    /// Returns the summary of the repeats with the given error. Without repeats its times are NaN.
    pub(crate) fn run_secs(&self, max_rel_error: f64) -> RunSecs {
        let mut sorted = self.secs.clone();
        sorted.sort_by(f64::total_cmp);
        let median_secs = quantile(&sorted, 0.5);
        RunSecs {
            run_secs: quantile(&sorted, LOW_QUANTILE),
            median_secs,
            spread: (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / median_secs,
            repeats: sorted.len(),
            stopped_early: self.stopped_early,
            max_rel_error,
            slowdown: 1.0,
            kernel_secs: 0.0,
            graph_runs: 0,
        }
    }
}

/// Returns a quantile of sorted values by linear interpolation between the closest ranks; NaN
/// without values.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (sorted.get(at.floor() as usize), sorted.get(at.ceil() as usize));
    match (low, high) {
        (Some(low), Some(high)) => low + (high - low) * at.fract(),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Returns a kernel of constant speed that counts its runs.
    fn steady(run_secs: f64, runs: &mut usize) -> impl FnMut(usize) -> f64 {
        move |n| {
            *runs += n;
            n as f64 * run_secs
        }
    }

    #[test]
    fn short_kernels_are_batched_and_the_floor_is_kept() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for _ in 0..500 {
            let options = TimingOptions { max_repeats: 1_000_000, ..TimingOptions::default() };
            let run_secs = 10f64.powf(rng.random_range(-7.0..0.0));
            let mut runs = 0;
            let summary = sample(&options, run_secs, None, &mut steady(run_secs, &mut runs)).run_secs(0.0);
            let elapsed = runs as f64 * run_secs;
            let ceiling = CEILING_FLOORS * options.floor_secs;
            assert!(elapsed >= options.floor_secs * 0.999, "{run_secs}: {elapsed}");
            assert!(summary.repeats >= options.min_repeats || elapsed >= ceiling * 0.999, "{run_secs}: {summary:?}");
            assert!(elapsed <= ceiling + run_secs * 5.0 + 1e-3, "{run_secs}: {elapsed}");
            assert!(run_secs * runs as f64 / summary.repeats as f64 >= options.repeat_secs * 0.999);
            assert!((summary.run_secs / run_secs - 1.0).abs() < 1e-9 && summary.spread < 1e-9);
            assert!(!summary.stopped_early);
        }
    }

    #[test]
    fn clearly_slower_candidates_stop_early_and_others_do_not() {
        let options = TimingOptions { floor_secs: 0.01, ..TimingOptions::default() };
        let stopped = |run_secs: f64| {
            let mut runs = 0;
            let samples = sample(&options, run_secs, Some(1e-3), &mut steady(run_secs, &mut runs));
            (samples.stopped_early, samples.secs.len())
        };
        assert_eq!(stopped(1.4e-3), (false, 8));
        assert_eq!(stopped(1.6e-3), (true, STOP_REPEATS));
        assert_eq!(stopped(3.1e-3), (true, 1));
        let mut repeat = |_| panic!("the warm-up was evidence enough");
        assert!(sample(&options, 6.1e-3, Some(1e-3), &mut repeat).stopped_early);
        assert_eq!(stopped(0.5e-3), (false, 20));
    }

    #[test]
    fn one_disturbed_repeat_stops_no_kernel() {
        let mut calls = 0;
        let mut repeat = |runs: usize| {
            calls += 1;
            runs as f64 * if calls == 1 { 9e-3 } else { 1e-3 }
        };
        let samples = sample(&TimingOptions::default(), 1e-3, Some(1e-3), &mut repeat);
        assert!(!samples.stopped_early);
        assert_eq!(samples.run_secs(0.0).median_secs, 1e-3);
    }

    #[test]
    fn disturbed_kernels_are_timed_longer_but_not_forever() {
        let options = TimingOptions::default();
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut elapsed = 0.0;
        let mut noisy = |runs: usize| {
            let secs = runs as f64 * 1e-3 * rng.random_range(1.0..3.0);
            elapsed += secs;
            secs
        };
        let summary = sample(&options, 1e-3, None, &mut noisy).run_secs(0.0);
        assert!(elapsed > 2.0 * options.floor_secs, "{elapsed}: {summary:?}");
        assert!(elapsed < 3.2 * options.floor_secs, "{elapsed}: {summary:?}");
        assert!(summary.run_secs < 1.5e-3 && summary.spread > 0.1, "{summary:?}");
    }

    #[test]
    fn warm_up_lasts_and_finds_the_speed() {
        let options = TimingOptions::default();
        let mut runs = 0;
        let fastest = warm_up(&options, 1e-4, &mut steady(1e-5, &mut runs));
        assert_eq!(fastest, 1e-5);
        assert!(runs as f64 * 1e-5 >= options.warmup_secs - 1e-4);
        assert_eq!(warm_up(&options, 0.01, &mut |_| panic!("a long first run is warm-up enough")), 0.01);
        assert!(warm_up(&options, 1e-6, &mut |_| 0.0) > 0.0);
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.25), 1.25);
        assert_eq!(quantile(&[4.0], 0.1), 4.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
