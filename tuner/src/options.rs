//! What a tuning run is asked to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use autotune_measure::Ceilings;

use crate::search::SearchKind;

/// Share of the time budget that the search may use; the rest is for the final race. Where that is not enough, only the best
/// of a task races against its default.
const SEARCH_SHARE: f64 = 0.9;

/// How much longer than its share of the time budget a search may wait for the measurement in progress.
const GRACE: Duration = Duration::from_secs(1);

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
    /// When a search that began at `start` is interrupted: a moment after its share of the time budget, for what is being measured
    /// then to end.
    pub(crate) fn search_deadline(&self, start: Instant) -> Option<Instant> {
        let budget = self.time_budget?;
        start.checked_add(budget.mul_f64(SEARCH_SHARE) + GRACE)
    }

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

/// A switch that ends a run after the measurement in progress, or at once where the measurer asks [`Cancel::is_due`]. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<CancelState>);

#[derive(Debug, Default)]
struct CancelState {
    is_cancelled: AtomicBool,
    /// When what is being measured is no longer worth waiting for.
    deadline: Mutex<Option<Instant>>,
}

impl Cancel {
    /// Turns it; says whether it had been turned before.
    pub fn cancel(&self) -> bool {
        self.0.is_cancelled.swap(true, Ordering::SeqCst)
    }

    /// True once turned.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    /// True once turned, or when the time of what is being measured is over: for a measurer's interrupt.
    pub fn is_due(&self) -> bool {
        let deadline = *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_cancelled() || deadline.is_some_and(|deadline| Instant::now() > deadline)
    }

    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}
