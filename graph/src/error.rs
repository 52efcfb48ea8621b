//! Errors of graphs and their evaluation.

use std::ops::RangeInclusive;

use autotune_ir::DType;
use thiserror::Error;

use crate::text::{listed, printable};

/// Reason that a node is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpError {
    /// The number of operands is wrong.
    #[error("{found} operands, expected {}", words(wanted))]
    Count {
        /// Number of operands found.
        found: usize,
        /// Permitted numbers of operands.
        wanted: RangeInclusive<usize>,
    },
    /// An operand has the wrong element type.
    #[error("operand {operand} is {found}, expected {wanted}")]
    DType {
        /// Position of the operand, from 0.
        operand: usize,
        /// Element type of the given operand.
        found: DType,
        /// Permitted types, in words.
        wanted: &'static str,
    },
    /// An attribute or a shape does not fit the others.
    #[error("{0}")]
    Unfit(String),
    /// A tensor is too large.
    #[error("tensor of shape {:?} is too large", listed(shape))]
    TooLarge {
        /// Shape of the tensor.
        shape: Vec<usize>,
    },
}

/// Failure to add a node to a graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("node '{}' ({op}): {source}", printable(node))]
pub struct GraphError {
    /// Name of the node.
    pub node: String,
    /// [Name](crate::Operator::name) of its operator.
    pub op: &'static str,
    /// Cause of the failure.
    pub source: OpError,
}

/// Reason that a graph cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvaluateError {
    /// The number of tensors differs from the number of inputs.
    #[error("{found} tensors, expected one for each of {wanted} inputs")]
    Count {
        /// Number of tensors given.
        found: usize,
        /// Number of inputs of the graph.
        wanted: usize,
    },
    /// A tensor does not match the declaration of its input.
    #[error("input '{name}' is {found_dtype}{found:?}, expected {wanted_dtype}{wanted:?}")]
    Input {
        /// Name of the input.
        name: String,
        /// Shape of the tensor.
        found: Vec<usize>,
        /// Element type of the tensor.
        found_dtype: DType,
        /// Shape that the graph declares.
        wanted: Vec<usize>,
        /// Element type that the graph declares.
        wanted_dtype: DType,
    },
    /// A node cannot be evaluated.
    #[error(transparent)]
    Node(#[from] GraphError),
}

/// Returns a range of operand counts in words.
fn words(counts: &RangeInclusive<usize>) -> String {
    match (*counts.start(), *counts.end()) {
        (0, 0) => "none".into(),
        (least, usize::MAX) => format!("at least {least}"),
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} or {most}"),
    }
}
