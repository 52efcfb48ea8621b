//! Records of a task, with its default and its best schedule.

use anyhow::Result;
use autotune::{PredictParams, Task, Timing, predicted};
use autotune_db::{Best, Phase, TimeProvenance, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measure::Ceilings;
use autotune_schedules::{Config, ScheduleSpace};

/// A task with its records, default time and best record.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) task: Task,
    /// Records measured on this machine with the present lowering, in the order of the database; if
    /// there are none, the untrusted ones.
    pub(crate) records: Vec<TuningRecord>,
    /// Number of untrusted records in the database.
    pub(crate) untrusted: usize,
    /// Record that a lookup in the database would return.
    pub(crate) best: Option<Best>,
    pub(crate) default: Option<DefaultTime>,
}

/// Run time of the untuned schedule: the one predicted today if it was measured, else the first one
/// of the search, which was predicted then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DefaultTime {
    pub(crate) config: Config,
    pub(crate) run_secs: f64,
    /// True if this is the schedule predicted today.
    pub(crate) is_current: bool,
    /// Reliability of the time.
    pub(crate) timing: Timing,
    /// True if it was measured in the same race as the best, so that the two times are comparable.
    pub(crate) raced_with_best: bool,
}

impl History {
    /// Builds the history of a task on a target from its records under `key`.
    pub(crate) fn of(
        task: &Task,
        records: Vec<TuningRecord>,
        db: &TuningDb,
        target: &Target,
        key: &str,
    ) -> Result<Self> {
        let space = ScheduleSpace::new(&task.workload, target);
        let (claims, measured): (Vec<_>, Vec<_>) = records.into_iter().partition(TuningRecord::is_untrusted);
        let count = claims.len();
        let records = if measured.is_empty() { claims } else { measured };

        let best = db.best(&task.workload, key, &|config| space.contains(config))?;
        // Only a time from the best schedule's own race is comparable with its time.
        let best_race = best.as_ref().map(|best| best.record.phase).filter(|phase| *phase != Phase::Search);
        let todays = predicted(&space, 1, PredictParams::default());
        let todays = todays.first().map_or_else(|| space.default_config(), |pick| pick.config().clone());
        let of_then = || records.iter().find(|record| record.phase == Phase::Search).map(|first| first.config.clone());
        let default = default_time(&records, &todays, best_race, true)
            .or_else(|| default_time(&records, &of_then()?, best_race, false));
        Ok(Self { task: task.clone(), records, untrusted: count, best, default })
    }

    /// Returns the trials of the searches, without races.
    pub(crate) fn trials(&self) -> impl Iterator<Item = &TuningRecord> {
        self.records.iter().filter(|record| record.phase == Phase::Search)
    }

    /// Returns the run time of the best record in seconds.
    pub(crate) fn best_secs(&self) -> Option<f64> {
        self.best.as_ref()?.record.measurement.run_secs()
    }

    /// Returns the reliability of the best run time.
    pub(crate) fn best_timing(&self) -> Timing {
        let measured = self.best.as_ref().filter(|best| best.standing != TimeProvenance::Claimed);
        measured.map_or(Timing::Once, |best| Timing::of(best.record.phase, best.record.measurement.taken))
    }

    /// Returns the reliability of the ratio between default and best time.
    pub(crate) fn speed_up_timing(&self) -> Timing {
        match &self.default {
            Some(default) if default.raced_with_best => default.timing.max(self.best_timing()),
            _ => Timing::Once,
        }
    }

    /// Returns the run time of the default in seconds.
    pub(crate) fn default_secs(&self) -> Option<f64> {
        Some(self.default.as_ref()?.run_secs)
    }

    /// Returns the default time divided by the best time.
    pub(crate) fn speed_up(&self) -> Option<f64> {
        Some(self.default_secs()? / self.best_secs()?)
    }

    /// Returns two shares of the roofline that the best schedule reaches: by the work of its own
    /// algorithm, and by the work of the direct algorithm.
    pub(crate) fn roofline_shares(&self, ceilings: &Ceilings) -> Option<[f64; 2]> {
        let (best, workload) = (&self.best.as_ref()?.record, &self.task.workload);
        let secs = self.best_secs()?;
        let works = [best.config.work(workload), workload.work()];
        Some(works.map(|work| ceilings.min_secs(work, workload.dtype()) / secs))
    }
}

/// Returns the time of a default configuration: from the race of the best if the best raced, else
/// from the default's last race, else from its last trial.
fn default_time(
    records: &[TuningRecord],
    default: &Config,
    best_race: Option<Phase>,
    is_current: bool,
) -> Option<DefaultTime> {
    let timed = records.iter().filter(|record| record.config == *default);
    let timed: Vec<(Phase, f64, f64)> =
        timed.filter_map(|r| Some((r.phase, r.measurement.run_secs()?, r.measurement.taken))).collect();
    let last = |counts: &dyn Fn(Phase) -> bool| timed.iter().rev().find(|(phase, ..)| counts(*phase));

    let with_best = best_race.and_then(|race| last(&|phase| phase == race));
    let found = with_best.or_else(|| last(&|phase| phase != Phase::Search)).or_else(|| last(&|_| true));
    let &(phase, run_secs, taken) = found?;
    let (timing, raced_with_best) = (Timing::of(phase, taken), with_best.is_some());
    Some(DefaultTime { config: default.clone(), run_secs, is_current, timing, raced_with_best })
}
