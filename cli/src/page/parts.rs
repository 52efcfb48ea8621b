//! The data of a page.

use autotune_ir::Target;
use autotune_measure::Ceilings;

use super::history::History;

/// What a page is made of.
pub(crate) struct Page<'a> {
    /// What it is about, as the command line had it.
    pub(crate) subject: &'a str,
    pub(crate) target: &'a Target,
    /// The key under which the records are kept.
    pub(crate) key: &'a str,
    /// What the device can do at most, or why that is not known.
    pub(crate) ceilings: Result<Ceilings, String>,
    /// One for each task.
    pub(crate) histories: &'a [History],
}
