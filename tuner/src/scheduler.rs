//! Choice of the task that gets the next batch of trials, and detection of plateaus.

use crate::params::SchedulingParams;

/// State of one task for the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskProgress {
    /// Factor of the task's time in the objective.
    pub(crate) weight: f64,
    /// Lower bound of the seconds per run, for instance from the device's ceilings; 0 if unknown.
    pub(crate) floor_secs: f64,
    /// Best seconds per run after each trial; infinite before the first that ran.
    pub(crate) best_after: Vec<f64>,
    /// Number of proposed trials without a result yet.
    pub(crate) in_flight: usize,
    /// True if the task gets no more trials, because its space is exhausted or all candidates fail.
    pub(crate) retired: bool,
}

impl TaskProgress {
    /// Returns the best seconds per run so far; infinite if there are none.
    pub(crate) fn best_secs(&self) -> f64 {
        self.best_after.last().copied().unwrap_or(f64::INFINITY)
    }

    /// Returns true if the last [`SchedulingParams::patience`] trials gave almost no gain.
    fn on_plateau(&self, params: &SchedulingParams) -> bool {
        let Some(before) = self.best_after.len().checked_sub(params.patience + 1) else {
            return false;
        };
        self.best_secs() > self.best_after[before] * (1.0 - params.plateau_gain)
    }

    /// Returns the number of trials since the best time was more than `plateau_gain` above its
    /// present value.
    fn idle_trials(&self, params: &SchedulingParams) -> usize {
        let flat = self.best_secs() / (1.0 - params.plateau_gain);
        self.best_after.iter().rev().skip(1).take_while(|&&secs| secs < flat).count()
    }

    /// Returns the expected gain of one more trial, in seconds of weighted time per run. It blends
    /// the recent gain per trial with an optimistic guess: doubling the number of trials, pending
    /// ones included, would reach the floor. The longer nothing was gained, the more the guess is
    /// discounted. This is the gradient of Ansor's task scheduler (Zheng et al., 2020, section 6)
    /// with a known floor instead of the speeds of similar tasks.
    fn gain_per_trial(&self, batch: usize, params: &SchedulingParams) -> f64 {
        let (trials, best) = ((self.best_after.len() + self.in_flight) as f64, self.best_secs());
        if !best.is_finite() {
            // Wait for the pending trials before more are spent on an unknown task.
            return if self.in_flight > 0 { 0.0 } else { f64::INFINITY };
        }

        let window = (params.window_batches * batch).min(self.best_after.len() - 1);
        let before = self.best_after[self.best_after.len() - 1 - window];
        let recent = if before.is_finite() && window > 0 { (before - best) / window as f64 } else { 0.0 };

        let belief = 0.5f64.powf(self.idle_trials(params) as f64 / params.patience.max(1) as f64);
        let expected = belief * (best - self.floor_secs).max(params.optimism * best) / trials;
        self.weight * (params.recent_weight * recent + (1.0 - params.recent_weight) * expected)
    }
}

/// Returns the number of trials per batch if `tasks` tasks share `trials` trials. Small enough that
/// every task is refined several times, large enough for parallel builds and few model updates, and
/// never so large that the trials end before every task had its first batch.
pub(crate) fn batch_size(trials: usize, tasks: usize, params: &SchedulingParams) -> usize {
    let [least, most] = params.batch_trials;
    let share = trials / tasks.max(1);
    (share / 4).clamp(least, most.max(least)).min(share.max(1))
}

/// Chooses the task that gets the next `batch` trials; `None` if all have retired or, unless
/// `beyond_plateaus`, are on a plateau.
///
/// Every task gets a first batch, the one with the largest `first_cost` first. Then the task with
/// the largest expected gain is chosen.
pub(crate) fn next_task(
    tasks: &[&TaskProgress],
    first_cost: &[f64],
    batch: usize,
    beyond_plateaus: bool,
    params: &SchedulingParams,
) -> Option<usize> {
    let is_open = |task: &TaskProgress| !task.retired && (beyond_plateaus || !task.on_plateau(params));
    let open = || tasks.iter().enumerate().filter(|(_, task)| is_open(task));
    let first_of = |best: Option<(usize, f64)>, (i, value): (usize, f64)| match best {
        Some((_, most)) if most >= value => best,
        _ => Some((i, value)),
    };

    let fresh = open().filter(|(_, task)| task.best_after.is_empty() && task.in_flight == 0);
    let heaviest = fresh.map(|(i, _)| (i, first_cost.get(i).copied().unwrap_or(0.0))).fold(None, first_of);
    let most_gain = || open().map(|(i, task)| (i, task.gain_per_trial(batch, params))).fold(None, first_of);
    heaviest.or_else(most_gain).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: usize = 128;

    fn params() -> SchedulingParams {
        SchedulingParams { patience: PATIENCE, ..SchedulingParams::default() }
    }

    /// Simulates scheduling and returns the order of tasks. Each task has a weight and a first
    /// time, and its time after `t` trials is 0.2 + 0.8 / `t` of the first.
    fn simulate(tasks: &[(f64, f64)], trials: usize, batch: usize) -> Vec<usize> {
        let mut progress: Vec<TaskProgress> = tasks
            .iter()
            .map(|&(weight, _)| TaskProgress {
                weight,
                floor_secs: 0.0,
                best_after: Vec::new(),
                in_flight: 0,
                retired: false,
            })
            .collect();
        let cost: Vec<f64> = tasks.iter().map(|(weight, secs)| weight * secs).collect();
        let mut order = Vec::new();
        while order.len() * batch < trials {
            let Some(i) = next_task(&progress.iter().collect::<Vec<_>>(), &cost, batch, false, &params()) else {
                break;
            };
            for _ in 0..batch {
                let t = progress[i].best_after.len() as f64 + 1.0;
                progress[i].best_after.push(tasks[i].1 * (0.2 + 0.8 / t));
            }
            order.push(i);
        }
        order
    }

    #[test]
    fn every_task_gets_a_first_batch_heaviest_first() {
        let order = simulate(&[(1.0, 1e-3), (4.0, 2e-3), (1.0, 5e-3)], 24, 8);
        assert_eq!(order, [1, 2, 0]);
    }

    #[test]
    fn heavy_tasks_get_more_trials() {
        let order = simulate(&[(1.0, 1e-4), (4.0, 2e-3), (1.0, 2e-3)], 400, 8);
        let share = |i| order.iter().filter(|&&j| j == i).count();
        assert!(share(1) > share(2) && share(2) > share(0), "{order:?}");
        assert!(share(0) >= 1);
        assert!(share(1) <= 5 * share(2), "no task starves another of its size: {order:?}");
    }

    #[test]
    fn retired_and_plateaued_tasks_get_nothing() {
        let open =
            TaskProgress { weight: 1.0, floor_secs: 0.0, best_after: vec![1.0; 4], in_flight: 0, retired: false };
        let retired = TaskProgress { weight: 100.0, retired: true, ..open.clone() };
        let plateau = TaskProgress { weight: 100.0, best_after: vec![1.0; PATIENCE + 1], ..open.clone() };
        let cost = [1.0; 3];
        assert_eq!(next_task(&[&retired, &open, &plateau], &cost, 8, false, &params()), Some(1));
        assert_eq!(next_task(&[&retired, &plateau], &cost, 8, false, &params()), None);
        assert_eq!(next_task(&[&retired, &plateau], &cost, 8, true, &params()), Some(1));
    }

    #[test]
    fn less_is_expected_of_a_task_the_longer_it_gained_nothing() {
        let task = |idle: usize, fallen_to: f64| {
            let best_after = [vec![1.0; 300 - idle], vec![fallen_to; idle + 1]].concat();
            TaskProgress { weight: 1.0, floor_secs: 0.1, best_after, in_flight: 0, retired: false }
        };
        let next = |tasks: [TaskProgress; 2]| next_task(&tasks.each_ref(), &[1.0; 2], 8, true, &params());
        assert_eq!(next([task(290, 0.5), task(100, 0.5)]), Some(1));
        assert_eq!(next([task(100, 0.5), task(290, 0.5)]), Some(0));
        assert_eq!(
            (task(290, 0.5).idle_trials(&params()), task(100, 0.995).idle_trials(&params())),
            (290, 300),
            "half a per cent is no gain"
        );
    }

    #[test]
    fn trials_in_flight_count() {
        let task = |trials, in_flight| TaskProgress {
            weight: 1.0,
            floor_secs: 0.0,
            best_after: vec![1.0; trials],
            in_flight,
            retired: false,
        };
        let next = |tasks: &[TaskProgress]| next_task(&tasks.iter().collect::<Vec<_>>(), &[1.0; 3], 8, true, &params());
        assert_eq!(next(&[task(0, 8), task(0, 0), task(4, 0)]), Some(1), "no first batch twice");
        assert_eq!(next(&[task(0, 8), task(8, 0), task(4, 0)]), Some(2), "the unknown waits for its results");
        assert_eq!(next(&[task(0, 8), task(8, 0), task(4, 8)]), Some(1), "trials in flight lower what more would gain");
        assert_eq!(next(&[task(0, 8)]), Some(0), "unless there is nothing else");
    }

    #[test]
    fn a_plateau_needs_patience_and_small_gain() {
        let task = |best_after| TaskProgress { weight: 1.0, floor_secs: 0.0, best_after, in_flight: 0, retired: false };
        assert!(!task(vec![1.0; PATIENCE]).on_plateau(&params()));
        assert!(task(vec![1.0; PATIENCE + 1]).on_plateau(&params()));
        let mut gained = vec![1.0; PATIENCE];
        gained.push(0.9);
        assert!(!task(gained).on_plateau(&params()));
        assert!(!task(vec![f64::INFINITY; 3]).on_plateau(&params()));
    }

    #[test]
    fn batches_follow_the_trials_per_task() {
        assert_eq!(batch_size(256, 13, &params()), 8);
        assert_eq!(batch_size(64, 1, &params()), 16);
        assert_eq!(batch_size(1000, 1, &params()), 32);
        assert_eq!(batch_size(60, 13, &params()), 4);
        assert_eq!(batch_size(5, 13, &params()), 1);
    }
}
