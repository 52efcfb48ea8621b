//! The state of one task while it is tuned.

use std::collections::HashSet;

use autotune_db::{Phase, TuningRecord};
use autotune_measure::failure_summary;
use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, ScheduleSpace};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::network::Task;
use crate::report::Retired;
use crate::scheduler::Progress;
use crate::search::{Ask, ScoreFn, Searcher};

/// A task, its space, its searcher and what was measured so far.
pub(crate) struct TaskState {
    pub(crate) task: Task,
    pub(crate) space: ScheduleSpace,
    pub(crate) progress: Progress,
    pub(crate) retired: Option<Retired>,
    /// Trials without a run time.
    pub(crate) failed: usize,
    /// Trials that earlier runs made.
    pub(crate) resumed: usize,
    /// Trials of this run up to the end of its first batch.
    first_batch: Option<usize>,
    /// Results of this run, as long as nothing has run.
    failures: Vec<Measurement>,
    searcher: Box<dyn Searcher>,
    /// Candidates that are said to be fast, the fastest last, to be measured before they count.
    claimed: Vec<Candidate>,
    /// Hashes of the candidates that were proposed.
    seen: HashSet<u64>,
    rng: ChaCha8Rng,
}

impl TaskState {
    /// A task with the `records` of earlier runs taken in. Those that were measured here count as
    /// trials; what is `claimed` to be fast, the fastest first, is proposed first.
    ///
    /// Its random numbers follow from the seed, the workload and the number of those records, so
    /// that a resumed search does not repeat itself and a rerun from the same state is the same.
    pub(crate) fn new(
        task: Task,
        space: ScheduleSpace,
        searcher: Box<dyn Searcher>,
        seed: u64,
        floor_secs: f64,
        records: &[TuningRecord],
        mut claimed: Vec<Candidate>,
    ) -> Self {
        claimed.reverse();
        let measured = || records.iter().filter(|r| !r.is_claim());
        let searched = || measured().filter(|r| r.phase == Phase::Search);
        let resumed = searched().count();
        let mix = format!("{seed} {} {resumed}", task.workload);
        let weight = task.weight();

        let mut state = Self {
            task,
            progress: Progress { weight, floor_secs, best_after: Vec::new(), in_flight: 0, retired: false },
            retired: None,
            failed: 0,
            resumed,
            first_batch: None,
            failures: Vec::new(),
            searcher,
            seen: measured().map(|r| r.config.stable_hash()).collect(),
            claimed,
            rng: ChaCha8Rng::seed_from_u64(autotune_schedules::config::fnv1a(mix.as_bytes())),
            space,
        };

        // What failed in earlier runs is no reason to retire in this one.
        let results: Vec<_> = searched().map(|r| (state.space.candidate(&r.config), r.measurement.clone())).collect();
        state.tell(&results);
        state.failures.clear();
        state
    }

    /// Has the searcher begin with what was carried over from other workloads; returns what may be
    /// the default schedule.
    pub(crate) fn begin_with(&mut self, carried: Vec<Candidate>) -> Vec<Candidate> {
        self.searcher.begin_with(carried)
    }

    /// True if its searcher wants to know what a cost model predicts.
    pub(crate) fn uses_scores(&self) -> bool {
        self.searcher.uses_scores()
    }

    /// Number of trials so far, those of earlier runs included.
    pub(crate) fn trials(&self) -> usize {
        self.progress.best_after.len()
    }

    /// Trials of this run.
    pub(crate) fn new_trials(&self) -> usize {
        self.trials() - self.resumed
    }

    /// Up to `n` candidates to measure next, none of them proposed before; they are in flight from
    /// now on. The first of a task are its default and those that are claimed to be fast.
    pub(crate) fn ask<'a>(&'a mut self, n: usize, score: &'a mut ScoreFn<'a>, explore: f64) -> Vec<Candidate> {
        let default = self.space.default_candidate().clone();
        let mut batch = Vec::new();
        if self.seen.insert(default.stable_hash()) {
            batch.push(default);
        }

        while batch.len() < n
            && let Some(candidate) = self.claimed.pop()
        {
            if self.seen.insert(candidate.stable_hash()) {
                batch.push(candidate);
            }
        }

        let n = n.saturating_sub(batch.len());
        let (space, seen, rng) = (&self.space, &self.seen, &mut self.rng);
        batch.extend(self.searcher.ask(Ask { space, score, explore, seen, n, rng }));

        self.seen.extend(batch.iter().map(Candidate::stable_hash));
        self.progress.in_flight += batch.len();
        let trials = self.new_trials() + self.progress.in_flight;
        self.first_batch.get_or_insert(trials);
        batch
    }

    /// The default schedule, unless it was proposed before; it is in flight from now on.
    pub(crate) fn ask_untuned(&mut self) -> Option<Candidate> {
        let default = self.space.default_candidate().clone();
        let is_new = self.seen.insert(default.stable_hash());
        self.progress.in_flight += usize::from(is_new);
        is_new.then_some(default)
    }

    /// Takes results in.
    pub(crate) fn tell(&mut self, results: &[(Candidate, Measurement)]) {
        for (_, measurement) in results {
            let secs = measurement.run_secs();
            self.failed += usize::from(secs.is_none());
            self.progress.best_after.push(self.progress.best_secs().min(secs.unwrap_or(f64::INFINITY)));
        }
        self.searcher.tell(results);
        if !self.progress.best_secs().is_finite() {
            self.failures.extend(results.iter().map(|(_, measurement)| measurement.clone()));
        } else if matches!(self.retired, Some(Retired::Failing(_))) {
            // One that was in flight has run after all.
            self.retired = None;
            self.progress.retired = false;
        }
    }

    /// True if nothing has ever run, though this run's first batch was measured.
    pub(crate) fn has_failed(&self) -> bool {
        let first_batch = self.first_batch.unwrap_or(usize::MAX);
        self.retired.is_none() && !self.progress.best_secs().is_finite() && self.new_trials() >= first_batch
    }

    /// Why nothing has run: the most frequent causes, one a line.
    pub(crate) fn failures(&self) -> String {
        failure_summary(&self.failures)
    }

    /// Ends the task's trials.
    pub(crate) fn retire(&mut self, why: Retired) {
        self.progress.retired = true;
        self.retired = Some(why);
    }
}
