//! What a workload says beside its operator.

use super::{Epilogue, Prologue, Types};

/// What is said of a workload beside its operator.
#[derive(Clone, Copy, Default)]
pub(super) struct Terms {
    /// Whether weights are constant, where that is not as it is with the operator alone.
    pub(super) weights: Option<bool>,
    pub(super) types: Types,
    pub(super) prologue: Prologue,
    pub(super) epilogue: Epilogue,
    pub(super) exact: bool,
    pub(super) cold: bool,
    pub(super) within: Option<u64>,
}
