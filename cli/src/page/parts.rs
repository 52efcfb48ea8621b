//! Data from which a page is made.

use autotune_ir::Target;
use autotune_measure::Ceilings;

use super::history::History;

/// Data of a page.
pub(crate) struct Page<'a> {
    /// Networks and workloads as the command line names them.
    pub(crate) subject: &'a str,
    pub(crate) target: &'a Target,
    /// Key of the records in the database.
    pub(crate) key: &'a str,
    /// Peak rates of the device, or the reason for their absence.
    pub(crate) ceilings: Result<Ceilings, String>,
    /// Histories of the tasks, one each.
    pub(crate) histories: &'a [History],
}
