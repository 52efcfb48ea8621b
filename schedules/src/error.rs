//! Errors of lowering a config to loop nests.

use autotune_ir::DType;
use autotune_workloads::Workload;
use thiserror::Error;

/// Reason why a config cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LowerError {
    /// The config names a sketch that is not registered for the target.
    #[error("unknown sketch '{0}'")]
    UnknownSketch(String),
    /// The target has no kernels for the element type of one of the workload's tensors.
    #[error("field '{field}': no kernels with {field}={} on {target}", dtype.word())]
    DType {
        /// Key of the target.
        target: String,
        /// Field of the workload text that states the type.
        field: &'static str,
        /// Element type that the target does not support.
        dtype: DType,
    },
    /// An operand has more elements than kernels on the target can index.
    #[error("{elements} elements of the {operand} exceed the limit of {limit} on {target}")]
    TooLarge {
        /// Key of the target.
        target: String,
        /// Name of the tensor in the workload's spec.
        operand: String,
        /// Number of elements of the operand.
        elements: usize,
        /// Largest number of elements that kernels can index.
        limit: usize,
    },
    /// The sketch does not apply to the workload.
    #[error("sketch '{sketch}' does not apply to {workload}")]
    Unfit {
        /// Name of the sketch.
        sketch: String,
        /// Text form of the workload.
        workload: String,
    },
    /// No sketch of the target applies to the workload.
    #[error("no sketch applies to {operator} of these sizes on {target}: register one that does")]
    NoSketch {
        /// Name of the operator.
        operator: &'static str,
        /// Key of the target.
        target: String,
    },
    /// A row has more values than one block of the target can process.
    #[error("field '{field}': a row of {extent} values is too long for one block on {target}")]
    Size {
        /// Axis of the row, named by the operator's field that states its size.
        field: &'static str,
        /// Number of values of a row.
        extent: usize,
        /// Key of the target.
        target: String,
    },
    /// A knob is malformed, does not fit the workload, or breaks a limit of the target.
    #[error("knob '{name}': {reason}")]
    Knob {
        /// Name of the knob.
        name: String,
        /// Reason, as the end of a sentence about the knob.
        reason: String,
    },
}

impl LowerError {
    /// Builds a [`LowerError::Unfit`] of a sketch and a workload.
    pub fn unfit(sketch: &str, workload: &Workload) -> Self {
        Self::Unfit { sketch: sketch.into(), workload: workload.to_string() }
    }

    /// Builds a [`LowerError::Knob`] of a knob's name and the reason.
    pub fn knob(name: &str, reason: impl Into<String>) -> Self {
        Self::Knob { name: name.to_string(), reason: reason.into() }
    }
}
