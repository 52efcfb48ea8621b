//! What a rule is.

use super::site::{Rewritten, Site};

/// One way to put a node in the place of others that computes the same.
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// What is recognised.
    pub before: &'static str,
    /// What stands in its place.
    pub after: &'static str,
    pub(super) apply: fn(&mut Site) -> Rewritten,
}
