//! Parts of a graph that the last pass has changed: only there, rules have to be tried again.
//!
//! A rule examines a node, nodes that it depends on, and their numbers of readers. Where none of
//! these has changed since the rule was tried, it does not match now either.

use std::borrow::Cow;

use super::new_graph::NewNode;
use crate::graph::{Graph, Input, NodeId};

/// Maximum number of steps from a node to its operands that a pattern has. The longest patterns,
/// those of attention, have about twenty.
const REACH: u32 = 24;

/// A graph, and the nodes in it that the last pass has only copied.
pub(super) struct Examined<'a> {
    pub(super) graph: Cow<'a, Graph>,
    /// For copies of nodes with the same operands: number of readers before.
    copies: Vec<Option<usize>>,
}

/// Number of steps from each node to the nearest change among the nodes that it depends on.
pub(super) struct Changes(Vec<u32>);

impl<'a> Examined<'a> {
    /// Creates the state in which no rule has been tried.
    pub(super) fn nothing(graph: &'a Graph) -> Self {
        let copies = vec![None; graph.nodes().len()];
        Self { graph: Cow::Borrowed(graph), copies }
    }

    /// Creates the state after a pass over the graph `from`, whose nodes became the nodes `made`.
    /// `is_replaced` tells which ones rules have replaced, and `readers` how many readers they had.
    pub(super) fn after(from: &Graph, graph: Graph, made: &[NewNode], is_replaced: &[bool], readers: &[usize]) -> Self {
        let mut copies = vec![None; graph.nodes().len()];
        let at = |id: NodeId| id.0 as usize;
        for (id, node) in from.nodes().filter(|(id, _)| made[at(*id)] != NewNode::NOTHING) {
            let is_copy = !is_replaced[at(id)] && !node.operands.iter().any(|&operand| is_replaced[at(operand)]);
            copies[at(made[at(id)].0)] = is_copy.then_some(readers[at(id)]);
        }
        Self { graph: Cow::Owned(graph), copies }
    }

    /// True if a pass has made the graph: equal nodes are one, and nodes of constants are folded.
    pub(super) fn is_of_pass(&self) -> bool {
        matches!(self.graph, Cow::Owned(_))
    }

    /// Returns the state after a pass in which no rule applied. `readers` are the present numbers.
    pub(super) fn unchanged(self, readers: Vec<usize>) -> Examined<'static> {
        Examined { graph: Cow::Owned(self.graph.into_owned()), copies: readers.into_iter().map(Some).collect() }
    }

    /// True if no output needs a node other than an input.
    pub(super) fn has_unused(&self) -> bool {
        let uses = self.graph.live_uses();
        self.graph.nodes().any(|(id, node)| uses[id.0 as usize] == 0 && !node.op.is::<Input>())
    }

    /// Returns the changes, from the present numbers of readers.
    pub(super) fn changes(&self, readers: &[usize]) -> Changes {
        let mut steps: Vec<u32> = Vec::with_capacity(readers.len());
        for (id, node) in self.graph.nodes() {
            let is_same = self.copies[id.0 as usize] == Some(readers[id.0 as usize]);
            let of_operands = node.operands.iter().map(|operand| steps[operand.0 as usize]);
            let nearest = of_operands.min().map_or(u32::MAX, |steps| steps.saturating_add(1));
            steps.push(if is_same { nearest } else { 0 });
        }
        Changes(steps)
    }
}

impl Changes {
    /// True if a pattern at a node may contain a change.
    pub(super) fn are_near(&self, id: NodeId) -> bool {
        self.0[id.0 as usize] <= REACH
    }
}
