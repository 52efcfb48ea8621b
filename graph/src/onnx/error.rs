//! Errors of import and export.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::limits::VERSIONS;
use crate::error::OpError;

/// Reason that a file cannot be imported, in one line.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The bytes are not an ONNX model.
    #[error("not an ONNX model: {0}")]
    Malformed(String),
    /// The model's opset version is not supported.
    #[error("opset {found} is not supported (supported: {} to {})", VERSIONS.start(), VERSIONS.end())]
    Version {
        /// Opset version of the model.
        found: i64,
    },
    /// An input has an unsupported type, or is not a tensor of known rank.
    #[error("input '{input}': {reason}")]
    Input {
        /// Name of the input.
        input: String,
        /// Reason, for the user.
        reason: String,
    },
    /// The caller's shape for an input does not fit, or is missing.
    #[error("input '{input}': {reason}")]
    Shape {
        /// Name of the input.
        input: String,
        /// Reason, for the user.
        reason: String,
    },
    /// A tensor of the file cannot be read.
    #[error("tensor '{tensor}': {reason}")]
    Tensor {
        /// Name of the tensor.
        tensor: String,
        /// Reason, for the user.
        reason: String,
    },
    /// A node cannot be imported.
    #[error("node '{node}' ({operator}): {source}")]
    Node {
        /// Name of the node, or of its first output.
        node: String,
        /// Operator of the node.
        operator: String,
        /// Cause of the failure.
        source: NodeError,
    },
    /// An output is not computed, or its name occurs twice.
    #[error("output '{output}': {reason}")]
    Output {
        /// Name of the output.
        output: String,
        /// Reason, for the user.
        reason: String,
    },
}

impl ImportError {
    /// True if the model can run in [phases](super::Model::phase): a node needs the data of a run
    /// to know a shape, or to repeat or choose a graph, or it has too many time steps.
    pub fn needs_phases(&self) -> bool {
        match self {
            Self::Node { source: NodeError::Unknown { .. } | NodeError::TooLong { .. }, .. } => true,
            Self::Node { source: NodeError::Operator, operator, .. } => matches!(&**operator, "Loop" | "Scan"),
            _ => false,
        }
    }
}

/// Reason that a graph cannot be exported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExportError {
    /// An output's name is empty or already in use.
    #[error("output '{output}': the name is empty or already in use")]
    Name {
        /// Name of the output.
        output: String,
    },
    /// A node has no ONNX operator.
    #[error("node '{node}' ({op}): {reason}")]
    Node {
        /// Name of the node.
        node: String,
        /// Operator of the node.
        op: &'static str,
        /// Reason, for the user.
        reason: String,
    },
    /// The protobuf messages cannot be encoded.
    #[error("cannot encode the file: {0}")]
    Encode(String),
}

/// Reason that a node cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NodeError {
    /// The operator is not supported.
    #[error("the operator is not supported")]
    Operator,
    /// An attribute is missing, or has an unsupported type or value.
    #[error("attribute '{attribute}': {reason}")]
    Attribute {
        /// Name of the attribute.
        attribute: String,
        /// Reason, for the user.
        reason: String,
    },
    /// An input is missing or is not known at import.
    #[error("input {input}: {reason}")]
    Input {
        /// Position of the input, from 0.
        input: usize,
        /// Reason, for the user.
        reason: String,
    },
    /// An input is not known at import.
    #[error("input {input}: must be a constant{advice}")]
    Unknown {
        /// Position of the input, from 0.
        input: usize,
        /// Advice for the user, after the reason.
        advice: &'static str,
    },
    /// A recurrent layer has too many time steps for one graph.
    #[error("{steps} time steps; at most {most} are supported here")]
    TooLong {
        /// Number of time steps.
        steps: usize,
        /// Largest number that is unrolled.
        most: usize,
    },
    /// The operator is not supported with this output.
    #[error("output {output} is not supported")]
    Output {
        /// Position of the output, from 0.
        output: usize,
    },
    /// Parts of the node do not fit each other, or are not supported together.
    #[error("{0}")]
    Unfit(String),
    /// An operator that the node becomes is invalid.
    #[error(transparent)]
    Op(#[from] OpError),
}

pub(crate) fn unfit<T>(reason: impl Into<String>) -> Result<T, NodeError> {
    Err(NodeError::Unfit(reason.into()))
}
