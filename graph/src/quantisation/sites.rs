//! Layers of a float graph that can compute with integers, and the tensors that they read.

use std::collections::{BTreeMap, BTreeSet};

use autotune_ir::DType;
use autotune_workloads::{Activation, Function, ReduceOp};

use crate::graph::{Graph, GraphNode, NodeId};
use crate::operators::{Binary, Conv, Map, MatMul, Pool, Reduce};
use crate::rewrite::moves;

/// Layers that can compute with integers, and the tensors that are then rounded to 8 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantisationSites {
    layers: Vec<NodeId>,
    /// Number of the scale of each tensor that may be rounded.
    scales: BTreeMap<NodeId, usize>,
    count: usize,
}

/// Part of a node in a quantised network.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QuantisedRole {
    /// Sums of products with constant weights.
    Layer,
    /// Mean over windows or images, which reads bytes behind a layer.
    Mean,
    /// Sum of two tensors of the run, which reads bytes if it is rounded.
    Sum,
    /// Scale or shift by constants that is not the bias of a layer; a chain of them reads bytes if
    /// it is rounded.
    Rescaling,
    /// Movement or selection of elements, which preserves the scale.
    Movement,
    /// Bounds that saturation replaces.
    Bound,
    /// Computation in floating point.
    Float,
}

/// Tensors that are rounded if some layers compute with integers.
pub(super) struct Demands {
    /// For each node, true if it reads its data rounded.
    pub(super) reads: Vec<bool>,
    /// For each node, true if its tensor is rounded for a reader.
    pub(super) rounded: Vec<bool>,
}

impl QuantisationSites {
    /// Finds the layers of a [rewritten](crate::rewrite()) graph.
    pub fn of(graph: &Graph) -> Self {
        let layers: Vec<NodeId> = graph.nodes().map(|(id, _)| id).filter(|&id| is_layer(graph, id)).collect();
        let demands = Demands::of(graph, &BTreeSet::new());
        let mut sets = DisjointSets::new(graph.nodes().len());
        for (id, _) in graph.nodes().filter(|&(id, _)| demands.reads(id) && role(graph, id) == QuantisedRole::Movement)
        {
            // Bytes are moved as they are, so both sides have one scale.
            data_operands(graph, id).for_each(|operand| sets.join(id, operand));
        }

        let mut numbers = BTreeMap::new();
        let rounded = graph.nodes().map(|(id, _)| id).filter(|&id| demands.is_rounded(id));
        let numbered = |id| {
            let next = numbers.len();
            (id, *numbers.entry(sets.first(id)).or_insert(next))
        };
        let scales = rounded.map(numbered).collect();
        Self { layers, scales, count: numbers.len() }
    }

    /// Returns the layers in topological order.
    pub fn layers(&self) -> &[NodeId] {
        &self.layers
    }

    /// Returns the tensors that may be rounded, each with the number of its scale. Tensors between
    /// which elements are only moved share a scale.
    pub fn tensors(&self) -> impl Iterator<Item = (NodeId, usize)> {
        self.scales.iter().map(|(&id, &scale)| (id, scale))
    }

    /// Returns the number of scales.
    pub fn scales(&self) -> usize {
        self.count
    }

    /// Returns the number of a tensor's scale.
    pub(super) fn scale_of(&self, id: NodeId) -> Option<usize> {
        self.scales.get(&id).copied()
    }
}

impl Demands {
    /// Finds the tensors that are rounded if all layers but the kept ones compute with integers.
    pub(super) fn of(graph: &Graph, kept: &BTreeSet<NodeId>) -> Self {
        let (uses, behind) = (graph.uses(), behind_layers(graph, kept));
        let count = uses.len();
        let mut demands = Self { reads: vec![false; count], rounded: vec![false; count] };
        // Tensors that are rounded only behind a bound or a rescaling.
        let mut ahead = vec![false; count];

        for (id, node) in graph.nodes().rev() {
            let is_rounded = demands.is_rounded(id);
            let reads = match role(graph, id) {
                QuantisedRole::Layer => !kept.contains(&id),
                QuantisedRole::Mean => is_rounded || behind[node.operands[0].0 as usize],
                QuantisedRole::Sum => is_rounded || ahead[id.0 as usize],
                QuantisedRole::Movement => is_rounded,
                QuantisedRole::Bound => {
                    let before = node.operands[0].0 as usize;
                    ahead[before] |= is_rounded && uses[before] == 1;
                    false
                }
                QuantisedRole::Rescaling => {
                    let is_rounded = is_rounded || ahead[id.0 as usize];
                    let before = data_operands(graph, id).find(|&before| is_single_rescaling(graph, &uses, before));
                    match before.filter(|_| is_rounded) {
                        Some(before) => {
                            ahead[before.0 as usize] = true;
                            false
                        }
                        None => is_rounded,
                    }
                }
                QuantisedRole::Float => false,
            };
            if reads {
                data_operands(graph, id).for_each(|operand| demands.rounded[operand.0 as usize] = true);
            }
            demands.reads[id.0 as usize] = reads;
        }
        demands
    }

    pub(super) fn reads(&self, id: NodeId) -> bool {
        self.reads[id.0 as usize]
    }

    pub(super) fn is_rounded(&self, id: NodeId) -> bool {
        self.rounded[id.0 as usize]
    }
}

fn is_single_rescaling(graph: &Graph, uses: &[usize], id: NodeId) -> bool {
    uses[id.0 as usize] == 1 && role(graph, id) == QuantisedRole::Rescaling
}

/// Returns for each node whether an integer layer computes its tensor, apart from operators that
/// can read and write bytes.
fn behind_layers(graph: &Graph, kept: &BTreeSet<NodeId>) -> Vec<bool> {
    let mut behind: Vec<bool> = Vec::new();
    for (id, node) in graph.nodes() {
        let is_behind = match role(graph, id) {
            QuantisedRole::Layer => !kept.contains(&id),
            QuantisedRole::Float => false,
            _ => node.operands.iter().any(|operand| behind[operand.0 as usize]),
        };
        behind.push(is_behind);
    }
    behind
}

/// Returns the operands that runs compute; for a layer without its weights.
fn data_operands(graph: &Graph, id: NodeId) -> impl Iterator<Item = NodeId> {
    graph.node(id).operands.iter().copied().filter(|&operand| graph.constant_of(operand).is_none())
}

fn is_layer(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let [data, constants @ ..] = &node.operands[..] else { return false };
    let is_constant = |&id: &NodeId| graph.constant_of(id).is_some_and(|constant| constant.dtype() == DType::F32);
    let rank = |id: NodeId| graph.node(id).shape.len();
    let fits = node.op.is::<Conv>() || node.op.is::<MatMul>() && rank(*data) > 1 && rank(node.operands[1]) == 2;
    fits && graph.constant_of(*data).is_none() && constants.iter().all(is_constant)
}

fn role(graph: &Graph, id: NodeId) -> QuantisedRole {
    let node = graph.node(id);
    let (op, dtype) = (&node.op, node.dtype);
    let is_of_data = data_operands(graph, id).count() == node.operands.len();
    if dtype != DType::F32 || node.operands.is_empty() || node.shape.contains(&0) {
        return QuantisedRole::Float;
    }
    if is_layer(graph, id) {
        return QuantisedRole::Layer;
    }

    let is_sum = *op == Binary::Add && node.operands.iter().all(|&id| graph.node(id).shape == node.shape);
    let bound =
        |Map(function): &Map| matches!(function, Function::Activation(Activation::Relu | Activation::Clip { .. }));
    let over_images = |reduce: &Reduce| {
        let rank = graph.node(node.operands[0]).shape.len();
        reduce.op == ReduceOp::Mean && rank > 2 && reduce.axes.iter().copied().eq(2..rank)
    };
    match op {
        _ if is_rescaling(graph, node) => QuantisedRole::Rescaling,
        _ if !is_of_data => QuantisedRole::Float,
        _ if moves(op) => QuantisedRole::Movement,
        _ if is_sum => QuantisedRole::Sum,
        _ if op.of().is_some_and(bound) => QuantisedRole::Bound,
        _ if op.is::<Pool>() || op.of().is_some_and(over_images) => QuantisedRole::Mean,
        _ => QuantisedRole::Float,
    }
}

/// True for a product or a sum with constants, one for each channel or a single one.
fn is_rescaling(graph: &Graph, node: &GraphNode) -> bool {
    let [x, constant] = node.operands[..] else { return false };
    let vector = |id: NodeId| {
        let shape = &graph.node(id).shape;
        shape.iter().product::<usize>() == shape.iter().copied().max().unwrap_or(1)
    };
    let is_constant = graph.constant_of(constant).is_some() && graph.constant_of(x).is_none();
    let fits = [Binary::Mul, Binary::Add].iter().any(|op| node.op == *op) && graph.node(x).shape == node.shape;
    fits && is_constant && vector(constant) && !is_layer(graph, x)
}

/// Sets of nodes that are joined step by step.
struct DisjointSets(Vec<NodeId>);

impl DisjointSets {
    fn new(count: usize) -> Self {
        Self((0..count as u32).map(NodeId).collect())
    }

    /// Returns the lowest node of a node's set.
    fn first(&self, mut id: NodeId) -> NodeId {
        while self.0[id.0 as usize] != id {
            id = self.0[id.0 as usize];
        }
        id
    }

    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b).0 as usize] = a.min(b);
    }
}
