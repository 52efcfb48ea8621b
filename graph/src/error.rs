//! What can be wrong with a graph.

use std::ops::RangeInclusive;

use autotune_ir::DType;
use thiserror::Error;

use crate::text::{listed, printable};

/// Why a node makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpError {
    /// It has too many operands or too few.
    #[error("{found} operands, where {} are wanted", words(wanted))]
    Count {
        /// How many it has.
        found: usize,
        /// How many it may have.
        wanted: RangeInclusive<usize>,
    },
    /// An operand is of another element type than is wanted.
    #[error("operand {operand} is of {found}, where {wanted} is wanted")]
    DType {
        /// Its number, from 0 on.
        operand: usize,
        /// Its type.
        found: DType,
        /// What would have been right, in words.
        wanted: &'static str,
    },
    /// An attribute or a shape does not fit the others.
    #[error("{0}")]
    Unfit(String),
    /// A tensor is too large.
    #[error("a tensor of shape {:?} is too large", listed(shape))]
    TooLarge {
        /// Its shape.
        shape: Vec<usize>,
    },
}

/// A node that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("node '{}' ({op}): {source}", printable(node))]
pub struct GraphError {
    /// Its name.
    pub node: String,
    /// What it computes, by its [name](crate::Operator::name).
    pub op: &'static str,
    /// What is wrong.
    pub source: OpError,
}

/// Why a graph was not evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvaluateError {
    /// There are more or fewer tensors than the graph has inputs.
    #[error("{found} tensors for {wanted} inputs")]
    Count {
        /// How many were brought.
        found: usize,
        /// How many the graph has.
        wanted: usize,
    },
    /// A tensor is not what its input is declared as.
    #[error("input '{name}' is {found_dtype}{found:?}, where {wanted_dtype}{wanted:?} is declared")]
    Input {
        /// The input's name.
        name: String,
        /// Shape of the tensor.
        found: Vec<usize>,
        /// Type of its elements.
        found_dtype: DType,
        /// Shape that was declared.
        wanted: Vec<usize>,
        /// Type that was declared.
        wanted_dtype: DType,
    },
    /// A node's tensor cannot be computed.
    #[error(transparent)]
    Node(#[from] GraphError),
}

/// A number of operands in words.
fn words(counts: &RangeInclusive<usize>) -> String {
    match (*counts.start(), *counts.end()) {
        (0, 0) => "none".into(),
        (least, usize::MAX) => format!("at least {least}"),
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} or {most}"),
    }
}
