//! What a database knows of a task.

use anyhow::Result;
use autotune::{PredictParams, Task, Timing, predicted};
use autotune_db::{Best, Phase, Standing, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measure::Ceilings;
use autotune_schedules::{Config, ScheduleSpace};

/// A task with its records, its default and its best.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) task: Task,
    /// What was measured here, by the present lowering, as it was appended; where there is nothing,
    /// the claims.
    pub(crate) records: Vec<TuningRecord>,
    /// Number of claims in the database.
    pub(crate) claims: usize,
    /// What the database would have deployed.
    pub(crate) best: Option<Best>,
    pub(crate) default: Option<DefaultTime>,
}

/// The run time of the schedule that is chosen without measuring: today's choice if it was
/// measured, else the one that the search began with, which was chosen then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DefaultTime {
    pub(crate) config: Config,
    pub(crate) run_secs: f64,
    /// True if it is what is chosen today.
    pub(crate) is_todays: bool,
    /// What the time is worth.
    pub(crate) timing: Timing,
    /// True if it raced against the best: they compare.
    pub(crate) raced_with_best: bool,
}

impl History {
    /// Of a task of a target, of which the database keeps these records under `key`.
    pub(crate) fn of(
        task: &Task,
        records: Vec<TuningRecord>,
        db: &TuningDb,
        target: &Target,
        key: &str,
    ) -> Result<Self> {
        let space = ScheduleSpace::new(&task.workload, target);
        let (claims, measured): (Vec<_>, Vec<_>) = records.into_iter().partition(TuningRecord::is_claim);
        let count = claims.len();
        let records = if measured.is_empty() { claims } else { measured };

        let best = db.best(&task.workload, key, &|config| space.contains(config))?;
        let best_race = best.as_ref().map(|best| best.record.phase).filter(|phase| *phase != Phase::Search);
        let todays = predicted(&space, 1, PredictParams::default());
        let todays = todays.first().map_or_else(|| space.default_config(), |pick| pick.config().clone());
        let of_then = || records.iter().find(|record| record.phase == Phase::Search).map(|first| first.config.clone());
        let default = default_time(&records, &todays, best_race, true)
            .or_else(|| default_time(&records, &of_then()?, best_race, false));
        Ok(Self { task: task.clone(), records, claims: count, best, default })
    }

    /// The trials: what searchers proposed, races not.
    pub(crate) fn trials(&self) -> impl Iterator<Item = &TuningRecord> {
        self.records.iter().filter(|record| record.phase == Phase::Search)
    }

    /// Run time of the best.
    pub(crate) fn best_secs(&self) -> Option<f64> {
        self.best.as_ref()?.record.measurement.run_secs()
    }

    /// What the best's run time is worth.
    pub(crate) fn best_timing(&self) -> Timing {
        let measured = self.best.as_ref().filter(|best| best.standing != Standing::Claimed);
        measured.map_or(Timing::Once, |best| Timing::of(best.record.phase, best.record.measurement.taken))
    }

    /// What the quotient of both run times is worth.
    pub(crate) fn speed_up_timing(&self) -> Timing {
        match &self.default {
            Some(default) if default.raced_with_best => default.timing.max(self.best_timing()),
            _ => Timing::Once,
        }
    }

    /// Run time of the default.
    pub(crate) fn default_secs(&self) -> Option<f64> {
        Some(self.default.as_ref()?.run_secs)
    }

    /// How many times longer the default takes than the best.
    pub(crate) fn speed_up(&self) -> Option<f64> {
        Some(self.default_secs()? / self.best_secs()?)
    }

    /// Shares of the roofline: by the work of the algorithm that the best uses, and by that of the
    /// direct one.
    pub(crate) fn roofline_shares(&self, ceilings: &Ceilings) -> Option<[f64; 2]> {
        let (best, workload) = (&self.best.as_ref()?.record, &self.task.workload);
        let secs = self.best_secs()?;
        let works = [best.config.work(workload), workload.work()];
        Some(works.map(|work| ceilings.min_secs(work, workload.dtype()) / secs))
    }
}

/// The time of a default: that of the best's race if the best raced; else of its last race, else of
/// its last trial.
fn default_time(
    records: &[TuningRecord],
    default: &Config,
    best_race: Option<Phase>,
    is_todays: bool,
) -> Option<DefaultTime> {
    let timed = records.iter().filter(|record| record.config == *default);
    let timed: Vec<(Phase, f64, f64)> =
        timed.filter_map(|r| Some((r.phase, r.measurement.run_secs()?, r.measurement.taken))).collect();
    let last = |counts: &dyn Fn(Phase) -> bool| timed.iter().rev().find(|(phase, ..)| counts(*phase));

    let with_best = best_race.and_then(|race| last(&|phase| phase == race));
    let found = with_best.or_else(|| last(&|phase| phase != Phase::Search)).or_else(|| last(&|_| true));
    let &(phase, run_secs, taken) = found?;
    let (timing, raced_with_best) = (Timing::of(phase, taken), with_best.is_some());
    Some(DefaultTime { config: default.clone(), run_secs, is_todays, timing, raced_with_best })
}
