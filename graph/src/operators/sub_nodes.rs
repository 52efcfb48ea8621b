//! Construction of an operator's decomposition.

use super::binary::Binary;
use super::choose::Where;
use super::prelude::*;
use crate::constant::Constant;

/// A decomposition under construction. Tensors are numbers: first the decomposed node's operands,
/// then the results of the parts.
pub(super) struct SubNodes {
    operands: usize,
    nodes: Vec<SubNode>,
}

impl SubNodes {
    pub(super) fn new(node: &NodeView) -> Self {
        Self { operands: node.count(), nodes: Vec::new() }
    }

    /// Adds a part and returns the number of its result.
    pub(super) fn add(&mut self, op: impl Into<Op>, operands: &[usize]) -> usize {
        self.nodes.push(SubNode::new(op, operands.to_vec()));
        self.operands + self.nodes.len() - 1
    }

    pub(super) fn constant(&mut self, tensor: Tensor) -> usize {
        self.add(Constant::from(tensor), &[])
    }

    /// Adds `x op number`.
    pub(super) fn with(&mut self, op: Binary, x: usize, number: f32) -> usize {
        let number = self.constant(Tensor::scalar(number));
        self.add(op, &[x, number])
    }

    /// Adds a choice: `yes` where `truth` is true, else `no`.
    pub(super) fn choose(&mut self, truth: usize, yes: usize, no: usize) -> usize {
        self.add(Where, &[truth, yes, no])
    }

    pub(super) fn finish(self) -> Vec<SubNode> {
        self.nodes
    }
}
