//! Parts of a workload besides its operator.

use super::{Epilogue, Prologue, Types};

/// Parts of a workload besides its operator.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Terms {
    /// True if weights are constant, if that differs from the operator's default.
    pub(super) weights: Option<bool>,
    pub(super) types: Types,
    pub(super) prologue: Prologue,
    pub(super) epilogue: Epilogue,
    pub(super) exact: bool,
    pub(super) cold: bool,
    pub(super) within: Option<u64>,
}
