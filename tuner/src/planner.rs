//! Planning of a run: state of the tasks, the model, and the batches to measure next.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use autotune_cost_model::ModelError;
use autotune_measurement::Measurement;
use autotune_schedules::Candidate;

use crate::learner::Learner;
use crate::report::{Retired, Stop};
use crate::scheduler::next_task;
use crate::settings::Settings;
use crate::task::TaskState;
use crate::time::BatchTimes;

/// Candidate that was proposed and has not been measured yet.
pub(crate) struct Proposal {
    pub(crate) task: usize,
    pub(crate) candidate: Candidate,
    pub(crate) planned: BatchTimes,
    /// True if it is to be measured even after the time budget.
    pub(crate) is_needed: bool,
}

/// Queue between the planner and the measurer, which may run in different threads.
#[derive(Default)]
pub(crate) struct WorkQueue(Mutex<QueuedWork>);

#[derive(Default)]
pub(crate) struct QueuedWork {
    /// Proposals by their positions among all candidates proposed so far.
    pub(crate) proposals: BTreeMap<usize, Proposal>,
    /// Number of candidates proposed so far.
    proposed: usize,
    /// Task, candidate and measurement, in order of arrival.
    pub(crate) results: Vec<(usize, Candidate, Measurement)>,
    /// Tasks that get no more trials and were not announced yet.
    pub(crate) retired: Vec<(usize, Retired)>,
}

impl QueuedWork {
    /// Appends proposals to the queue.
    fn propose(&mut self, proposals: impl IntoIterator<Item = Proposal>) {
        for proposal in proposals {
            self.proposals.insert(self.proposed, proposal);
            self.proposed += 1;
        }
    }

    /// Returns true if a proposal is to be measured even after the time budget.
    pub(crate) fn is_needed(&self) -> bool {
        self.proposals.values().any(|proposal| proposal.is_needed)
    }
}

impl WorkQueue {
    pub(crate) fn lock(&self) -> MutexGuard<'_, QueuedWork> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Learns from results and proposes batches. A proposed candidate counts as a trial until the end
/// of the search and is not proposed again, even while its result is pending.
pub(crate) struct Planner<'a> {
    pub(crate) tasks: Vec<TaskState>,
    /// Model; it is trained only if a searcher uses scores.
    pub(crate) learner: Learner,
    /// Error that ended the proposing of batches.
    pub(crate) error: Option<ModelError>,
    /// Times of the last planning, even if it gave no batch.
    pub(crate) last: Option<BatchTimes>,
    uses_scores: bool,
    settings: &'a Settings,
    /// Weight times operations of each task: the order of first batches.
    first_cost: Vec<f64>,
    batch: usize,
    start: Instant,
}

impl<'a> Planner<'a> {
    /// Returns a planner of a run that began at `start`, with batches of `batch` trials.
    pub(crate) fn new(
        settings: &'a Settings,
        tasks: Vec<TaskState>,
        learner: Learner,
        batch: usize,
        start: Instant,
    ) -> Self {
        let first_cost = tasks.iter().map(|t| t.task.weight() * t.task.workload.flops()).collect();
        let uses_scores = tasks.iter().any(TaskState::uses_scores);
        Self { tasks, learner, uses_scores, error: None, last: None, settings, first_cost, batch, start }
    }

    /// Returns the limit that ends the search now, if any; pending trials count as made.
    pub(crate) fn limit_reached(&self) -> Option<Stop> {
        if self.settings.cancel.is_cancelled() {
            Some(Stop::Cancelled)
        } else if self.trials_left() == Some(0) {
            Some(Stop::Trials)
        } else if self.settings.is_late(self.start) {
            Some(Stop::TimeBudget)
        } else {
            None
        }
    }

    /// Returns the number of trials that may still be proposed; `None` if there is no limit.
    fn trials_left(&self) -> Option<usize> {
        let trials = |task: &TaskState| task.trials() + task.progress.in_flight;
        Some(self.settings.trials?.saturating_sub(self.tasks.iter().map(trials).sum()))
    }

    /// Learns from the results in the queue and proposes the next batch; empty at the end of the
    /// search.
    pub(crate) fn next_batch(&mut self, queue: &WorkQueue) -> Vec<Candidate> {
        let begun = Instant::now();
        if let Err(error) = self.learn(queue) {
            self.error = Some(error);
            return Vec::new();
        }

        let learnt = Instant::now();
        let needed = self.needed();
        let is_needed = !needed.is_empty();
        let batch = if is_needed { needed } else { self.propose(queue) };
        let planned = BatchTimes { begun, learnt, proposed: Instant::now() };
        self.last = Some(planned);

        let candidates = batch.iter().map(|(_, candidate)| candidate.clone()).collect();
        let proposals = batch.into_iter().map(|(task, candidate)| Proposal { task, candidate, planned, is_needed });
        queue.lock().propose(proposals);
        candidates
    }

    /// Returns, under a time budget, the default schedules of tasks without any trial, those with
    /// the most work first. They are measured even if there is no time for anything else.
    fn needed(&mut self) -> Vec<(usize, Candidate)> {
        if self.settings.time_budget.is_none() || self.settings.cancel.is_cancelled() {
            return Vec::new();
        }
        let is_fresh = |&task: &usize| self.tasks[task].trials() == 0 && self.tasks[task].progress.in_flight == 0;
        let mut fresh: Vec<usize> = (0..self.tasks.len()).filter(is_fresh).collect();
        fresh.sort_by(|&a, &b| self.first_cost[b].total_cmp(&self.first_cost[a]));
        fresh.truncate(self.trials_left().unwrap_or(usize::MAX));
        fresh.into_iter().filter_map(|task| Some((task, self.tasks[task].ask_untuned()?))).collect()
    }

    /// Passes the results in the queue to the searchers and the model. A task is retired if none of
    /// its candidates has ever run, though its first batch was measured.
    fn learn(&mut self, queue: &WorkQueue) -> Result<(), ModelError> {
        let results = std::mem::take(&mut queue.lock().results);
        for of_task in results.chunk_by(|a, b| a.0 == b.0) {
            let task = of_task[0].0;
            let results: Vec<_> = of_task.iter().map(|(_, candidate, m)| (candidate.clone(), m.clone())).collect();
            let state = &mut self.tasks[task];
            state.progress.in_flight -= results.len();
            state.tell(&results);
            if self.uses_scores {
                self.learner.tell(&results);
            }
            if state.has_failed() {
                self.retire_failing(task, queue);
            }
        }
        if self.uses_scores { self.learner.refit() } else { Ok(()) }
    }

    /// Learns from the remaining results when measuring has ended, and drops pending proposals.
    pub(crate) fn conclude(&mut self, queue: &WorkQueue) -> Result<(), ModelError> {
        self.learn(queue)?;
        queue.lock().proposals.clear();
        for task in 0..self.tasks.len() {
            let state = &mut self.tasks[task];
            state.progress.in_flight = 0;
            if state.retired.is_none() && state.new_trials() > 0 && !state.progress.best_secs().is_finite() {
                self.retire_failing(task, queue);
            }
        }
        self.error.take().map_or(Ok(()), Err)
    }

    /// Proposes the next batch of the task with the largest expected gain, within the trial limit.
    /// With a limit on trials or time the search uses it up; without, it ends when all tasks are on
    /// a plateau.
    fn propose(&mut self, queue: &WorkQueue) -> Vec<(usize, Candidate)> {
        let limited = self.settings.trials.is_some() || self.settings.time_budget.is_some();
        while self.limit_reached().is_none() {
            let progress: Vec<_> = self.tasks.iter().map(|t| &t.progress).collect();
            let scheduling = &self.settings.params.scheduling;
            let next = next_task(&progress, &self.first_cost, self.batch, limited, scheduling);
            let Some(task) = next else { break };

            let most = self.batch.min(self.learner.most_trials());
            let n = self.trials_left().map_or(most, |left| left.min(most));
            let state = &mut self.tasks[task];
            let learner = &mut self.learner;
            let explore = learner.explore_share();
            let batch = state.ask(n, &mut |candidates: &[Candidate]| learner.score(candidates), explore);
            if !batch.is_empty() {
                return batch.into_iter().map(|candidate| (task, candidate)).collect();
            }
            self.retire(task, Retired::Exhausted, queue);
        }
        Vec::new()
    }

    fn retire_failing(&mut self, task: usize, queue: &WorkQueue) {
        let causes = self.tasks[task].failures();
        self.retire(task, Retired::Failing(causes), queue);
    }

    fn retire(&mut self, task: usize, why: Retired, queue: &WorkQueue) {
        self.tasks[task].retire(why.clone());
        queue.lock().retired.push((task, why));
    }
}
