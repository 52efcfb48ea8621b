//! Cancellation of a run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Switch that ends a run after the current measurement, or at once if the measurer polls
/// [`Cancel::is_due`]. Clones share the switch.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<CancelState>);

#[derive(Debug, Default)]
struct CancelState {
    is_cancelled: AtomicBool,
    /// Time after which the current measurement is no longer worth waiting for.
    deadline: Mutex<Option<Instant>>,
}

impl Cancel {
    /// Cancels the run. Returns true if it had been cancelled before.
    pub fn cancel(&self) -> bool {
        self.0.is_cancelled.swap(true, Ordering::SeqCst)
    }

    /// Returns true once the run is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    /// Returns true once the run is cancelled or the deadline of the current measurement has
    /// passed. A measurer polls this to interrupt its work.
    pub fn is_due(&self) -> bool {
        let deadline = *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_cancelled() || deadline.is_some_and(|deadline| Instant::now() > deadline)
    }

    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}
