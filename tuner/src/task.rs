//! State of one task during tuning.

use std::collections::HashSet;

use autotune_db::{Phase, TuningRecord};
use autotune_measure::failure_summary;
use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, ScheduleSpace};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::network::Task;
use crate::report::Retired;
use crate::scheduler::TaskProgress;
use crate::search::{Ask, ScoreFn, Searcher};

/// Task with its space, its searcher and the results so far.
pub(crate) struct TaskState {
    pub(crate) task: Task,
    pub(crate) space: ScheduleSpace,
    pub(crate) progress: TaskProgress,
    pub(crate) retired: Option<Retired>,
    /// Number of trials without a run time.
    pub(crate) failed: usize,
    /// Number of trials made by earlier runs.
    pub(crate) resumed: usize,
    /// Number of trials of this run up to the end of its first batch.
    first_batch: Option<usize>,
    /// Results of this run while no candidate has run.
    failures: Vec<Measurement>,
    searcher: Box<dyn Searcher>,
    /// Candidates of untrusted records, fastest last, which are measured first.
    claimed: Vec<Candidate>,
    /// Hashes of the candidates that were proposed.
    seen: HashSet<u64>,
    rng: ChaCha8Rng,
}

impl TaskState {
    /// Returns the state of a task with the `records` of earlier runs. Records measured on this
    /// machine count as trials. The candidates `claimed` to be fast by untrusted records, fastest
    /// first, are proposed first.
    ///
    /// The random numbers follow from the seed, the workload and the number of trials so far. A
    /// resumed search therefore does not repeat itself, and a rerun from the same state gives the
    /// same result.
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
        let measured = || records.iter().filter(|r| !r.is_untrusted());
        let searched = || measured().filter(|r| r.phase == Phase::Search);
        let resumed = searched().count();
        let mix = format!("{seed} {} {resumed}", task.workload);
        let weight = task.weight();

        let mut state = Self {
            task,
            progress: TaskProgress { weight, floor_secs, best_after: Vec::new(), in_flight: 0, retired: false },
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

        // Failures in earlier runs are no reason to retire the task in this run.
        let results: Vec<_> = searched().map(|r| (state.space.candidate(&r.config), r.measurement.clone())).collect();
        state.tell(&results);
        state.failures.clear();
        state
    }

    /// Passes schedules transferred from other workloads to the searcher. Returns those that may
    /// become the default schedule.
    pub(crate) fn begin_with(&mut self, carried: Vec<Candidate>) -> Vec<Candidate> {
        self.searcher.begin_with(carried)
    }

    /// Returns true if the task's searcher uses the cost model's scores.
    pub(crate) fn uses_scores(&self) -> bool {
        self.searcher.uses_scores()
    }

    /// Returns the number of trials so far, including those of earlier runs.
    pub(crate) fn trials(&self) -> usize {
        self.progress.best_after.len()
    }

    /// Returns the number of trials of this run.
    pub(crate) fn new_trials(&self) -> usize {
        self.trials() - self.resumed
    }

    /// Returns up to `n` new candidates to measure next, which are pending from now on. A task's
    /// first candidates are its default and those claimed to be fast by untrusted records.
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

    /// Returns the default schedule unless it was proposed before; it is pending from now on.
    pub(crate) fn ask_untuned(&mut self) -> Option<Candidate> {
        let default = self.space.default_candidate().clone();
        let is_new = self.seen.insert(default.stable_hash());
        self.progress.in_flight += usize::from(is_new);
        is_new.then_some(default)
    }

    /// Passes results to the searcher and updates the progress.
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
            // A pending candidate has run after all.
            self.retired = None;
            self.progress.retired = false;
        }
    }

    /// Returns true if no candidate has ever run, although this run's first batch was measured.
    pub(crate) fn has_failed(&self) -> bool {
        let first_batch = self.first_batch.unwrap_or(usize::MAX);
        self.retired.is_none() && !self.progress.best_secs().is_finite() && self.new_trials() >= first_batch
    }

    /// Returns the most frequent causes of failure, one per line.
    pub(crate) fn failures(&self) -> String {
        failure_summary(&self.failures)
    }

    /// Marks the task as getting no more trials.
    pub(crate) fn retire(&mut self, why: Retired) {
        self.progress.retired = true;
        self.retired = Some(why);
    }
}
