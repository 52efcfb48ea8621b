//! Where a task stands by what a run has measured.

use autotune_db::Phase;
use autotune_measure::{Measurement, RunSecs};
use autotune_schedules::Config;

/// The default and the best of a task by this run's own measurements. Once the task raced, both are of its last race, so that they
/// compare; nothing that was only read from a database counts.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    default_config: Config,
    race: Option<u64>,
    pub(crate) default_secs: Option<f64>,
    pub(crate) best: Option<(Config, RunSecs)>,
}

impl Standing {
    pub(crate) fn new(default_config: Config) -> Self {
        Self { default_config, race: None, default_secs: None, best: None }
    }

    /// Takes a measurement in. That of another race than the last one replaces all that was known.
    pub(crate) fn take_in(&mut self, config: &Config, measurement: &Measurement, phase: Phase) {
        match phase {
            Phase::Race { id } if self.race != Some(id) => {
                *self = Self { race: Some(id), ..Self::new(self.default_config.clone()) };
            }
            Phase::Search if self.race.is_some() => return,
            Phase::Search | Phase::Race { .. } => {}
        }

        let Ok(run) = measurement.outcome else { return };
        if *config == self.default_config {
            self.default_secs = Some(run.run_secs);
        }
        if self.best.as_ref().is_none_or(|(_, best)| run.run_secs < best.run_secs) {
            self.best = Some((config.clone(), run));
        }
    }
}
