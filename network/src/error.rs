//! What can be wrong with a graph.

use thiserror::Error;

use crate::tensor::Element;

/// Why a node makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpError {
    /// It has too many operands or too few.
    #[error("{found} operands, where {wanted} are wanted")]
    Count {
        /// How many it has.
        found: usize,
        /// How many it may have, in words.
        wanted: &'static str,
    },
    /// An operand is of another element type than is wanted.
    #[error("operand {operand} is of {found}, where {wanted} is wanted")]
    Element {
        /// Its number, from 0 on.
        operand: usize,
        /// Its type.
        found: Element,
        /// What would have been right, in words.
        wanted: &'static str,
    },
    /// An attribute or a shape does not fit the others.
    #[error("{0}")]
    Unfit(String),
    /// A tensor is too large.
    #[error("a tensor of shape {shape:?} is too large")]
    TooLarge {
        /// Its shape.
        shape: Vec<usize>,
    },
}

/// A node that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("node '{node}' ({op}): {source}")]
pub struct GraphError {
    /// Its name.
    pub node: String,
    /// What it computes, by its [name](crate::Op::name).
    pub op: &'static str,
    /// What is wrong.
    pub source: OpError,
}
