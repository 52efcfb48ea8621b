//! What a tuning run is asked to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use autotune_measure::Ceilings;

use crate::search::SearchKind;

/// Share of the time budget that the search may use; the rest is for the final race. Where that is not enough, only the best
/// of a task races against its default.
const SEARCH_SHARE: f64 = 0.9;

/// How long, how and from which seed to tune.
///
/// ```
/// use autotune::TuneOptions;
/// let options = TuneOptions { trials: Some(256), ..TuneOptions::default() };
/// assert_eq!(options.seed, 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct TuneOptions {
    /// Measurements in total over all tasks, those of earlier runs in the database included. `None` is no limit: the run ends
    /// with the time budget, or without one when no task gains any more.
    pub trials: Option<usize>,
    /// Wall-clock time after which the run ends, the final race included.
    pub time_budget: Option<Duration>,
    /// How configs are proposed.
    pub search: SearchKind,
    /// Seed of every random choice.
    pub seed: u64,
    /// Stops the run from outside.
    pub cancel: Cancel,
    /// What the device can do at most: the floor under run times, and what the report compares with.
    pub ceilings: Option<Ceilings>,
    /// What the records tell of the circumstances.
    pub setup: Setup,
}

impl TuneOptions {
    /// True if a search that began at `start` has had its share of the time budget.
    pub(crate) fn is_late(&self, start: Instant) -> bool {
        self.time_budget.is_some_and(|budget| start.elapsed() > budget.mul_f64(SEARCH_SHARE))
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

/// A switch that ends a run after the measurement in progress. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Turns it; says whether it had been turned before.
    pub fn cancel(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// True once turned.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
