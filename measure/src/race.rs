//! Race: interleaved timing of kernels. In each round every kernel runs for a short while, so that
//! a disturbance of the machine affects all of them equally.
//!
//! A race starts with more racers than are worth timing to the end; after some rounds the slower
//! half is dropped (successive halving, Jamieson and Talwalkar, 2016). The number of rounds follows
//! from the budget in seconds, so that a race of kernels that take a second each ends, too.

use autotune_measurement::{CandidateError, RunSecs};

use crate::harness::{self, Clock, Samples};
use crate::loaded::LoadedKernel;
use crate::options::TimingOptions;
use crate::timing::SLOW_SECS;

/// Most rounds, and fewest rounds for kernels that are not slow.
const ROUNDS: usize = 20;
const MIN_ROUNDS: usize = 3;

/// Points at which the slower half is dropped: after a fraction of the rounds, but not before this
/// number of rounds.
const HALVINGS: [(f64, usize); 2] = [(0.15, 1), (0.3, 2)];

/// Number of racers, in addition to the first, that are never dropped.
const FINALISTS: usize = 4;

/// Fraction of the time floor that a racer runs in each round.
const ROUND_FLOOR: f64 = 0.3;

/// Seconds per run from which on a kernel is timed in a round without an untimed run before:
/// refilling the caches is then a small part of a run.
const LONG_SECS: f64 = 0.02;

/// A kernel in the race, with its fastest run so far and its times.
struct Lane<R> {
    racer: R,
    estimate_secs: f64,
    samples: Samples,
}

/// Races kernels in rounds that together take at most `budget_secs`, but in at least a few rounds.
/// Checks each kernel before and after. Returns one outcome per racer; a racer that cannot be
/// loaded or fails during the race fails alone.
pub(crate) fn race<R: LoadedKernel>(
    racers: Vec<Result<R, CandidateError>>,
    options: &TimingOptions,
    budget_secs: f64,
) -> Vec<Result<RunSecs, CandidateError>> {
    let mut lanes: Vec<Result<Lane<R>, CandidateError>> =
        racers.into_iter().map(|racer| start(racer?, options)).collect();

    let estimates: Vec<f64> = lanes.iter().flatten().map(|lane| lane.estimate_secs).collect();
    let mut rounds = Rounds::new(lanes.len(), rounds(options, &estimates, budget_secs));
    while let Some(order) = rounds.next(|i| best_secs(&lanes[i])) {
        for index in order {
            let turned = match &mut lanes[index] {
                Ok(lane) => turn(lane, options),
                Err(_) => continue,
            };
            if let Err(error) = turned {
                lanes[index] = Err(error);
            }
        }
    }
    lanes.into_iter().map(|lane| finish(lane?)).collect()
}

fn start<R: LoadedKernel>(mut racer: R, options: &TimingOptions) -> Result<Lane<R>, CandidateError> {
    let first_secs = racer.check()?;
    let mut clock = Clock::new(|runs| racer.repeat(runs));
    let estimate_secs = harness::warm_up(options, first_secs, &mut |runs| clock.repeat(runs));
    clock.outcome()?;
    Ok(Lane { racer, estimate_secs, samples: Samples::default() })
}

/// Times one racer in one round.
fn turn<R: LoadedKernel>(lane: &mut Lane<R>, options: &TimingOptions) -> Result<(), CandidateError> {
    let round = TimingOptions { floor_secs: ROUND_FLOOR * options.floor_secs, min_repeats: 1, ..options.clone() };
    let mut clock = Clock::new(|runs| lane.racer.repeat(runs));
    let mut repeat = |runs| clock.repeat(runs);

    // The kernel before this one left its own data in the caches, so run once before timing.
    if lane.estimate_secs < LONG_SECS {
        lane.estimate_secs = lane.estimate_secs.min(harness::settle(&round, lane.estimate_secs, &mut repeat));
    }
    lane.samples.append(harness::sample(&round, lane.estimate_secs, None, &mut repeat));
    clock.outcome()
}

fn finish<R: LoadedKernel>(mut lane: Lane<R>) -> Result<RunSecs, CandidateError> {
    lane.racer.recheck(lane.estimate_secs >= SLOW_SECS)?;
    let run = lane.samples.run_secs(lane.racer.max_rel_error());
    Ok(RunSecs { kernel_secs: lane.racer.kernel_secs(), graph_runs: lane.racer.graph_runs(), ..run })
}

/// Returns a racer's time so far in seconds per run; infinite if it failed.
fn best_secs<R>(lane: &Result<Lane<R>, CandidateError>) -> f64 {
    lane.as_ref().map_or(f64::INFINITY, |lane| lane.samples.run_secs(0.0).run_secs)
}

/// Returns the number of rounds that fit the budget, within bounds, given the racers dropped on the
/// way. `estimates` are the racers' seconds per run.
fn rounds(options: &TimingOptions, estimates: &[f64], budget_secs: f64) -> usize {
    let turn_secs =
        |&secs: &f64| if secs < LONG_SECS { (2.0 * secs).max(ROUND_FLOOR * options.floor_secs) } else { secs };

    let mut turns_secs: Vec<f64> = estimates.iter().map(turn_secs).collect();
    turns_secs.sort_by(f64::total_cmp);
    let (stay, go) = turns_secs.split_at(turns_secs.len().min(FINALISTS + 1));
    let round_secs = stay.iter().sum::<f64>() + HALVINGS[1].0 * go.iter().sum::<f64>();

    let slowest_secs = estimates.iter().copied().fold(SLOW_SECS, f64::max);
    let least = ((MIN_ROUNDS as f64 * SLOW_SECS / slowest_secs) as usize).max(1);
    ((budget_secs / round_secs) as usize).clamp(least, ROUNDS)
}

/// State of a race's rounds: the racers still in the race.
struct Rounds {
    racing: Vec<usize>,
    rounds: usize,
    next: usize,
}

impl Rounds {
    fn new(racers: usize, rounds: usize) -> Self {
        Self { racing: (0..racers).collect(), rounds, next: 0 }
    }

    /// Returns the racers of the next round in order, or `None` after the last round. Each round
    /// begins with another racer. The slower half is dropped on the way, except the first racer,
    /// with which the others are compared.
    fn next(&mut self, run_secs: impl Fn(usize) -> f64) -> Option<Vec<usize>> {
        let round = self.next;
        if round == self.rounds {
            return None;
        }
        self.next += 1;
        if HALVINGS.iter().any(|&(part, least)| round == ((part * self.rounds as f64) as usize).max(least)) {
            self.drop_slower_half(run_secs);
        }
        let mut order = self.racing.clone();
        order.rotate_left(round % self.racing.len().max(1));
        Some(order)
    }

    fn drop_slower_half(&mut self, run_secs: impl Fn(usize) -> f64) {
        let mut others: Vec<(f64, usize)> = self.racing.iter().filter(|&&i| i > 0).map(|&i| (run_secs(i), i)).collect();
        others.sort_by(|a, b| a.0.total_cmp(&b.0));
        others.truncate((others.len() / 2).max(FINALISTS));
        self.racing.retain(|&i| i == 0 || others.iter().any(|&(_, fast)| fast == i));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Kernel of constant speed that fails from its `fails_at`-th call on.
    struct Steady<'a> {
        run_secs: f64,
        calls: usize,
        fails_at: usize,
        elapsed: &'a Cell<f64>,
    }

    impl Steady<'_> {
        fn call(&mut self, runs: usize) -> Result<f64, CandidateError> {
            self.calls += 1;
            if self.calls >= self.fails_at {
                return Err(CandidateError::Crash { message: "it broke".into() });
            }
            let secs = runs as f64 * self.run_secs;
            self.elapsed.set(self.elapsed.get() + secs);
            Ok(secs)
        }
    }

    impl LoadedKernel for Steady<'_> {
        fn check(&mut self) -> Result<f64, CandidateError> {
            self.call(1)
        }

        fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError> {
            self.call(runs)
        }

        fn recheck(&mut self, briefly: bool) -> Result<(), CandidateError> {
            if briefly { Ok(()) } else { self.call(1).map(drop) }
        }

        fn kernel_secs(&self) -> f64 {
            0.0
        }

        fn max_rel_error(&self) -> f64 {
            0.0
        }

        fn graph_runs(&self) -> usize {
            0
        }

        fn bytes(&self) -> usize {
            0
        }

        fn idle_secs(&self) -> f64 {
            0.0
        }
    }

    fn steady(run_secs: f64, fails_at: usize, elapsed: &Cell<f64>) -> Result<Steady<'_>, CandidateError> {
        Ok(Steady { run_secs, calls: 0, fails_at, elapsed })
    }

    #[test]
    fn a_racer_that_fails_fails_alone_whenever_it_does() {
        let unloaded = CandidateError::OutOfMemory { message: "too large".into() };
        let elapsed = Cell::new(0.0);
        for fails_at in 1..30 {
            let racers =
                vec![steady(1e-3, usize::MAX, &elapsed), steady(2e-3, fails_at, &elapsed), Err(unloaded.clone())];
            let outcomes = race(racers, &TimingOptions::default(), 10.0);
            assert!(outcomes[0].as_ref().is_ok_and(|run| (run.run_secs - 1e-3).abs() < 1e-12), "{outcomes:?}");
            assert!(matches!(outcomes[1], Err(CandidateError::Crash { .. })), "{fails_at}: {outcomes:?}");
            assert_eq!(outcomes[2], Err(unloaded.clone()));
        }
    }

    #[test]
    fn races_of_slow_kernels_keep_to_their_budget_and_to_a_few_rounds() {
        let options = TimingOptions::default();
        for (run_secs, racers, budget_secs) in [(1e-4, 14, 10.0), (0.03, 14, 10.0), (0.7, 3, 10.0), (5.0, 3, 1.0)] {
            let elapsed = Cell::new(0.0);
            let lanes = (0..racers).map(|_| steady(run_secs, usize::MAX, &elapsed)).collect();
            let outcomes = race(lanes, &options, budget_secs);
            let elapsed = elapsed.get();
            assert!(outcomes.iter().all(|run| run.as_ref().is_ok_and(|run| run.repeats >= 1)), "{outcomes:?}");
            let checks_secs = racers as f64 * (2.0 * run_secs + 2.0 * options.warmup_secs);
            let least_rounds = if run_secs > SLOW_SECS { 1 } else { MIN_ROUNDS };
            let least_secs = (least_rounds * racers) as f64 * run_secs;
            let limit_secs = 2.0 * budget_secs.max(least_secs) + checks_secs;
            assert!(elapsed <= limit_secs, "{run_secs}: {elapsed} s of {limit_secs} s");
        }
    }

    /// Returns the racers of each round, sorted.
    fn sorted_rounds(racers: usize, rounds: usize, secs: impl Fn(usize) -> f64) -> Vec<Vec<usize>> {
        let mut rounds = Rounds::new(racers, rounds);
        let mut all = Vec::new();
        while let Some(mut order) = rounds.next(&secs) {
            order.sort();
            all.push(order);
        }
        all
    }

    #[test]
    fn the_slower_half_is_dropped_except_the_first() {
        let secs = |i: usize| if i == 0 { 100.0 } else { 20.0 - i as f64 };
        for (rounds, halvings) in [(20, [3, 6]), (10, [1, 3]), (3, [1, 2])] {
            for (round, order) in sorted_rounds(17, rounds, secs).into_iter().enumerate() {
                let fastest = if round < halvings[0] {
                    1
                } else if round < halvings[1] {
                    9
                } else {
                    13
                };
                assert_eq!(order, [0].into_iter().chain(fastest..17).collect::<Vec<_>>(), "round {round} of {rounds}");
            }
        }
    }

    #[test]
    fn few_racers_all_stay_and_take_turns_to_begin() {
        for racers in 0..=FINALISTS + 1 {
            let mut rounds = Rounds::new(racers, 12);
            let mut round = 0;
            while let Some(order) = rounds.next(|i| i as f64) {
                assert_eq!(order.len(), racers);
                assert!(order.first().is_none_or(|&first| first == round % racers));
                round += 1;
            }
            assert_eq!(round, 12);
        }
    }
}
