//! Ending a run from outside.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A switch that ends a run after the measurement in progress, or at once where the measurer asks
/// [`Cancel::is_due`]. Clones share it.
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

    /// True once turned, or when the time of what is being measured is over: for a measurer's
    /// interrupt.
    pub fn is_due(&self) -> bool {
        let deadline = *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_cancelled() || deadline.is_some_and(|deadline| Instant::now() > deadline)
    }

    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}
