//! Interruption of measuring by the caller.

use std::sync::Arc;

/// Callback that returns true if the caller wants to stop, for example because it was interrupted
/// or has run out of time. Without a callback measuring is never interrupted.
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
