//! Whether a caller wants no more.

use std::sync::Arc;

/// Asks the caller, who may have been interrupted or have run out of time; without one, nobody
/// wants to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Interrupt {
    pub(crate) fn new(is_wanted: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self(Some(is_wanted))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|is_wanted| is_wanted())
    }
}
