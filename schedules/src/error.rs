//! Why there are no loop nests.

use autotune_ir::DType;
use autotune_workloads::Workload;
use thiserror::Error;

/// Why a config cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LowerError {
    /// The config belongs to no known sketch of the target.
    #[error("unknown sketch '{0}'")]
    UnknownSketch(String),
    /// The target has no kernels for elements of a type that the workload has.
    #[error("field '{field}': no kernels with {field}={} on {target}", dtype.word())]
    DType {
        /// The target's key.
        target: String,
        /// The field that says the type.
        field: &'static str,
        /// The type.
        dtype: DType,
    },
    /// An operand has more elements than indices of kernels on the target can tell apart.
    #[error("{elements} elements of the {operand} exceed {limit} on {target}")]
    TooLarge {
        /// The target's key.
        target: String,
        /// The operand.
        operand: String,
        /// Its elements.
        elements: usize,
        /// Most elements.
        limit: usize,
    },
    /// The sketch is not for such workloads.
    #[error("no sketch '{sketch}' of {workload}")]
    Unfit {
        /// The sketch.
        sketch: String,
        /// The workload.
        workload: String,
    },
    /// There is no sketch at all for such workloads.
    #[error("no sketch for {operator} of such sizes on {target}: register one that is for it")]
    NoSketch {
        /// The operator's name.
        operator: &'static str,
        /// The target's key.
        target: String,
    },
    /// A row is longer than a block of the target holds.
    #[error("field '{field}': {extent} values of a row are more than a block holds on {target}")]
    Size {
        /// The axis, named as the operator's field for its size.
        field: &'static str,
        /// The size.
        extent: usize,
        /// The target's key.
        target: String,
    },
    /// A knob is malformed, does not fit the workload, or breaks a limit of the target.
    #[error("knob '{name}': {reason}")]
    Knob {
        /// The knob.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

impl LowerError {
    /// [`LowerError::Unfit`].
    pub fn unfit(sketch: &str, workload: &Workload) -> Self {
        Self::Unfit { sketch: sketch.into(), workload: workload.to_string() }
    }

    /// [`LowerError::Knob`].
    pub fn knob(name: &str, reason: impl Into<String>) -> Self {
        Self::Knob { name: name.to_string(), reason: reason.into() }
    }
}
