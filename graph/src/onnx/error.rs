//! What can be wrong with a file.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::limits::VERSIONS;
use crate::error::OpError;

/// Why a file does not become a graph, in one line.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The bytes are no model.
    #[error("no ONNX model: {0}")]
    Malformed(String),
    /// The model is of a version of the operators that is not known.
    #[error("operators of version {found}, where {} to {} are known", VERSIONS.start(), VERSIONS.end())]
    Version {
        /// The version.
        found: i64,
    },
    /// An input is of a type that cannot be had, or no tensor of known axes.
    #[error("input '{input}': {reason}")]
    Input {
        /// Its name.
        input: String,
        /// What is wrong.
        reason: String,
    },
    /// The shape that the caller gives for an input does not fit, or is missing.
    #[error("input '{input}': {reason}")]
    Shape {
        /// Its name.
        input: String,
        /// What is wrong.
        reason: String,
    },
    /// A tensor of the file cannot be had.
    #[error("tensor '{tensor}': {reason}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// A node cannot be had.
    #[error("node '{node}' ({operator}): {source}")]
    Node {
        /// Its name, or that of its first output.
        node: String,
        /// Its operator.
        operator: String,
        /// What is wrong.
        source: NodeError,
    },
    /// An output is computed by nothing, or there are two of its name.
    #[error("output '{output}': {reason}")]
    Output {
        /// Its name.
        output: String,
        /// What is wrong.
        reason: String,
    },
}

/// Why a graph does not become a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExportError {
    /// The name of an output is empty or that of another tensor.
    #[error("output '{output}': the name is empty or that of another tensor")]
    Name {
        /// The name.
        output: String,
    },
    /// There is no operator for a node.
    #[error("node '{node}' ({op}): {reason}")]
    Node {
        /// Its name.
        node: String,
        /// Its operation.
        op: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The messages cannot be written one into the other.
    #[error("the file cannot be written: {0}")]
    Encode(String),
}

/// Why a node of a file does not become one of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NodeError {
    /// Nothing is known of the operator.
    #[error("the operator is not supported")]
    Operator,
    /// An attribute is missing, of another type or of a value that is not supported.
    #[error("attribute '{attribute}': {reason}")]
    Attribute {
        /// Its name.
        attribute: String,
        /// What is wrong.
        reason: String,
    },
    /// An input of the node is missing, or not known before the network runs.
    #[error("input {input}: {reason}")]
    Input {
        /// Its number, from 0 on.
        input: usize,
        /// What is wrong.
        reason: String,
    },
    /// An output is none that the operator is supported with.
    #[error("output {output} is not supported")]
    Output {
        /// Its number, from 0 on.
        output: usize,
    },
    /// The parts of the node do not fit each other, or are not supported together.
    #[error("{0}")]
    Unfit(String),
    /// What the node becomes makes no sense.
    #[error(transparent)]
    Op(#[from] OpError),
}

pub(crate) fn unfit<T>(reason: impl Into<String>) -> Result<T, NodeError> {
    Err(NodeError::Unfit(reason.into()))
}
