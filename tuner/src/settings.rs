//! What a run is asked to do.

use std::time::{Duration, Instant};

use autotune_measure::Ceilings;

use crate::cancel::Cancel;
use crate::params::TuneParams;

/// How long, by what policy and from which seed to tune, and what the records tell of the circumstances.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Measurements in total over all tasks, those of earlier runs included.
    pub(crate) trials: Option<usize>,
    pub(crate) time_budget: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) cancel: Cancel,
    pub(crate) ceilings: Option<Ceilings>,
    pub(crate) setup: Setup,
    pub(crate) params: TuneParams,
}

impl Settings {
    /// When a search that began at `start` is interrupted: a moment after its share of the time budget, for what is being measured
    /// then to end.
    pub(crate) fn search_deadline(&self, start: Instant) -> Option<Instant> {
        start.checked_add(self.search_budget()? + self.params.grace)
    }

    /// True if a search that began at `start` has had its share of the time budget.
    pub(crate) fn is_late(&self, start: Instant) -> bool {
        self.search_budget().is_some_and(|budget| start.elapsed() > budget)
    }

    fn search_budget(&self) -> Option<Duration> {
        Some(self.time_budget?.mul_f64(self.params.search_share.clamp(0.0, 1.0)))
    }
}

/// The circumstances of a run's measurements, as its records tell them; empty where unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Name of the device.
    pub device: String,
    /// Timing options: warm-up, repeats, time floor, cache state.
    pub harness: String,
}
