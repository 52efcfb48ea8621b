//! Runs the contract tests on the operators of this crate.

use autotune_workloads::{contract, operators};

#[test]
fn operators_keep_theirs() {
    let operators = operators();
    assert!(operators.len() >= 2);
    operators.iter().for_each(|kind| contract::operator(kind.name));
}
