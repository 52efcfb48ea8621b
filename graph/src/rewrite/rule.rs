//! Definition of a rewrite rule.

use super::site::{RewriteSite, Rewritten};

/// A rewrite rule: replaces a node by an equivalent expression.
pub struct Rule {
    /// Unique name, for messages and tests.
    pub name: &'static str,
    /// Pattern that the rule matches, as text.
    pub before: &'static str,
    /// Expression that replaces the match, as text with the same variables.
    pub after: &'static str,
    pub(super) apply: fn(&mut RewriteSite) -> Rewritten,
}
