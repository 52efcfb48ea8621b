//! Settings of a run.

use std::time::{Duration, Instant};

use autotune_measure::Ceilings;

use crate::cancel::Cancel;
use crate::params::TuneParams;

/// Limits, policy, seed and circumstances of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Limit on the number of trials over all tasks, including those of earlier runs.
    pub(crate) trials: Option<usize>,
    pub(crate) time_budget: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) cancel: Cancel,
    pub(crate) ceilings: Option<Ceilings>,
    pub(crate) setup: Setup,
    pub(crate) params: TuneParams,
    /// Number of tasks in the run.
    pub(crate) tasks: usize,
    /// True if measurements state the load themselves, see
    /// [`autotune_measure::Measurer::reports_load`].
    pub(crate) reports_load: bool,
}

impl Settings {
    /// Returns true if a run that began at `start` has used up the share of its time budget for
    /// starting, or is cancelled.
    pub(crate) fn is_in_a_hurry(&self, start: Instant) -> bool {
        let most = self.time_budget.map(|budget| budget.mul_f64(self.params.start_share));
        self.cancel.is_cancelled() || most.is_some_and(|most| start.elapsed() > most)
    }

    /// Returns the time at which a search that began at `start` is interrupted: its share of the
    /// time budget plus a grace period for the current measurement.
    pub(crate) fn search_deadline(&self, start: Instant) -> Option<Instant> {
        start.checked_add(self.search_budget()? + self.params.grace)
    }

    /// Returns true if a search that began at `start` has used up its share of the time budget.
    pub(crate) fn is_late(&self, start: Instant) -> bool {
        self.search_budget().is_some_and(|budget| start.elapsed() > budget)
    }

    /// Returns true if the time budget of a run that began at `start` ended so long ago that not
    /// even default schedules are measured any more.
    pub(crate) fn is_far_over(&self, start: Instant) -> bool {
        self.time_budget.is_some_and(|budget| start.elapsed() > budget.saturating_add(self.params.needed_overrun))
    }

    fn search_budget(&self) -> Option<Duration> {
        let budget = self.time_budget?.as_secs_f64();
        let races_secs = self.tasks as f64 * self.params.race.task_secs;
        let share = self.params.search_share.clamp(0.0, 1.0).min(1.0 - races_secs / budget);
        Some(Duration::from_secs_f64(budget * share.max(self.params.least_search_share)))
    }
}

/// Circumstances of a run's measurements, stored in its records; empty if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Name of the device.
    pub device: String,
    /// Timing options: warm-up, repeats, time floor, cache state.
    pub harness: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(secs: u64, tasks: usize) -> Settings {
        Settings { time_budget: Some(Duration::from_secs(secs)), tasks, ..Settings::default() }
    }

    #[test]
    fn races_have_their_part_of_the_time() {
        let search = |secs, tasks| settings(secs, tasks).search_budget().map(|budget| budget.as_secs_f64().round());
        assert_eq!(search(100, 1), Some(90.0));
        assert_eq!(search(100, 200), Some(70.0), "each takes a while");
        assert_eq!(search(10, 1000), Some(5.0), "the search has some, too");
        assert_eq!(search(0, 0), Some(0.0));
        assert_eq!(Settings::default().search_budget(), None);
    }

    #[test]
    fn a_run_that_is_late_or_cancelled_is_in_a_hurry() {
        let start = Instant::now();
        assert!(!settings(1000, 1).is_in_a_hurry(start) && !Settings::default().is_in_a_hurry(start));
        assert!(settings(0, 1).is_in_a_hurry(start));
        let cancelled = settings(1000, 1);
        cancelled.cancel.cancel();
        assert!(cancelled.is_in_a_hurry(start));
    }
}
