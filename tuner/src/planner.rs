//! What to measure next: the tasks, the model, and the batches that are proposed.

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
use crate::time::Planned;

/// A candidate that was proposed and has not been measured yet.
pub(crate) struct Proposal {
    pub(crate) task: usize,
    pub(crate) candidate: Candidate,
    pub(crate) planned: Planned,
    /// True if it is measured however late it is.
    pub(crate) is_needed: bool,
}

/// What goes from the planner to whoever measures and back. They may be in different threads.
#[derive(Default)]
pub(crate) struct WorkQueue(Mutex<Work>);

#[derive(Default)]
pub(crate) struct Work {
    /// By their positions among all that were proposed.
    pub(crate) proposals: BTreeMap<usize, Proposal>,
    /// Candidates that were proposed so far.
    proposed: usize,
    /// Task, candidate and what came out, in the order in which that was known.
    pub(crate) results: Vec<(usize, Candidate, Measurement)>,
    /// Tasks that get no more trials, until they are announced.
    pub(crate) retired: Vec<(usize, Retired)>,
}

impl Work {
    /// Adds proposals behind all others.
    fn propose(&mut self, proposals: impl IntoIterator<Item = Proposal>) {
        for proposal in proposals {
            self.proposals.insert(self.proposed, proposal);
            self.proposed += 1;
        }
    }

    /// True if something is measured however late it is.
    pub(crate) fn is_needed(&self) -> bool {
        self.proposals.values().any(|proposal| proposal.is_needed)
    }
}

impl WorkQueue {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Learns from results and proposes batches. What is proposed counts as a trial until the end of
/// the search and is not proposed again, though its result may come later.
pub(crate) struct Planner<'a> {
    pub(crate) tasks: Vec<TaskState>,
    /// Learns if a searcher uses scores.
    pub(crate) learner: Learner,
    /// Why it proposes nothing any more.
    pub(crate) error: Option<ModelError>,
    /// When it planned last, a batch or none.
    pub(crate) last: Option<Planned>,
    uses_scores: bool,
    settings: &'a Settings,
    first_cost: Vec<f64>,
    batch: usize,
    start: Instant,
}

impl<'a> Planner<'a> {
    /// A planner of a run that began at `start`, with batches of that many trials.
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

    /// The limit that ends the search now, if one does; trials in flight count as made.
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

    /// Trials that may still be proposed; `None` if there is no limit.
    fn trials_left(&self) -> Option<usize> {
        let trials = |task: &TaskState| task.trials() + task.progress.in_flight;
        Some(self.settings.trials?.saturating_sub(self.tasks.iter().map(trials).sum()))
    }

    /// Learns from the results in the queue and proposes the next batch; none at the end of the
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
        let planned = Planned { begun, learnt, proposed: Instant::now() };
        self.last = Some(planned);

        let candidates = batch.iter().map(|(_, candidate)| candidate.clone()).collect();
        let proposals = batch.into_iter().map(|(task, candidate)| Proposal { task, candidate, planned, is_needed });
        queue.lock().propose(proposals);
        candidates
    }

    /// Where time is limited, the untuned schedules of tasks of which nothing was tried yet, those
    /// with the most work first: whatever else there is time for, these are needed.
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

    /// Hands the results in the queue to the searchers and the model. A task of which nothing has
    /// run in a whole batch retires.
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

    /// Takes in what is left in the queue when nothing more is measured, and forgets what is still
    /// in flight.
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

    /// The next batch of the task with the most to gain, within the trials that are left. Who gives
    /// trials or time gets them used; without any limit, plateaus end the run.
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
