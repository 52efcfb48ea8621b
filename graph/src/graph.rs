//! Networks as graphs of nodes.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use autotune_ir::DType;

use crate::constant::Constant;
use crate::error::{GraphError, OpError};
use crate::memory::is_of_bytes;
use crate::op::{Anchor, Facts, NodeView, Op, OperandView, Operator, Read};
use crate::precision::Precision;

pub use crate::op::Input;
use crate::tensor::DeclaredType;
use crate::typed::check_has_tensors;

/// Position of a node in its graph; operands have lower positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A node: a tensor and the operator that computes it.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphNode {
    /// Name for messages; not necessarily unique.
    pub name: String,
    /// Operator of the node.
    pub op: Op,
    /// Operands, in the order of the operator.
    pub operands: Vec<NodeId>,
    /// Extents of the tensor, outermost first.
    pub shape: Vec<usize>,
    /// Element type of the tensor.
    pub dtype: DType,
}

impl GraphNode {
    /// Returns an error about the node.
    pub fn wrong(&self, source: OpError) -> GraphError {
        GraphError { node: self.name.clone(), op: self.op.name(), source }
    }
}

/// An output of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Name, unique among outputs.
    pub name: String,
    /// Node that computes the output.
    pub node: NodeId,
    /// Element type that callers store, if a file declares another than the node's.
    pub stored: Option<DeclaredType>,
}

/// A network as nodes in topological order, each with one tensor. All shapes are known.
///
/// ```
/// use autotune_graph::{DType, Graph, Tensor, operators::{Map, MatMul}};
/// use autotune_workloads::{Activation, Function};
///
/// let mut graph = Graph::new("perceptron");
/// let x = graph.input("x", DType::F32, &[1, 4])?;
/// let w = graph.constant("w", Tensor::f32(&[4, 2], vec![0.5; 8])?);
/// let sums = graph.add("fc", MatMul, &[x, w])?;
/// let y = graph.add("relu", Map(Function::Activation(Activation::Relu)), &[sums])?;
/// graph.output("y", y);
/// assert_eq!(graph.node(y).shape, [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    name: String,
    /// Nodes in topological order. Graphs that are made of each other share them.
    nodes: Vec<Arc<GraphNode>>,
    inputs: Vec<NodeId>,
    input_names: HashSet<String>,
    outputs: Vec<Output>,
    precision: Precision,
    exact: BTreeSet<NodeId>,
}

impl Graph {
    /// Creates a graph without nodes.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the precision of the computation; the default is f32.
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// Returns the precision of the computation.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Sets the nodes whose steps compute in f32 in any precision; a node stands for the step that
    /// it is the last of. Rewriting drops this.
    pub fn with_exact(self, exact: BTreeSet<NodeId>) -> Self {
        Self { exact, ..self }
    }

    /// Returns the nodes whose steps compute in f32 in any precision.
    pub fn exact(&self) -> &BTreeSet<NodeId> {
        &self.exact
    }

    /// True if any tensor is quantised to 8-bit integers.
    pub fn is_quantised(&self) -> bool {
        self.nodes.iter().any(|node| is_of_bytes(node.dtype))
    }

    /// Returns the name of the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds an input; fails if its name is not unique among inputs.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<NodeId, GraphError> {
        let wrong = |source| GraphError { node: name.into(), op: Input.name(), source };
        // Checked before the name is recorded, so that a failure leaves the graph unchanged.
        crate::tensor::elements(shape).map_err(wrong)?;
        check_has_tensors(dtype).map_err(wrong)?;
        if !self.input_names.insert(name.into()) {
            return Err(wrong(OpError::Unfit("duplicate input name".into())));
        }

        let node =
            GraphNode { name: name.into(), op: Input.into(), operands: Vec::new(), shape: shape.to_vec(), dtype };
        let id = self.push(node);
        self.inputs.push(id);
        Ok(id)
    }

    /// Adds a node whose tensor is a constant.
    pub fn constant(&mut self, name: impl Into<String>, constant: impl Into<Constant>) -> NodeId {
        let constant = constant.into();
        let (shape, dtype) = (constant.shape().to_vec(), constant.dtype());
        self.push(GraphNode { name: name.into(), op: constant.into(), operands: Vec::new(), shape, dtype })
    }

    /// Adds a node that applies an operator to other nodes; fails if the operands do not fit.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        op: impl Into<Op>,
        operands: &[NodeId],
    ) -> Result<NodeId, GraphError> {
        let (name, op) = (name.into(), op.into());
        match op.infer(&self.facts(operands)) {
            Ok((shape, dtype)) => Ok(self.push(GraphNode { name, op, operands: operands.to_vec(), shape, dtype })),
            Err(source) => Err(GraphError { node: name, op: op.name(), source }),
        }
    }

    /// Marks a node's tensor as an output of the network.
    pub fn output(&mut self, name: impl Into<String>, node: NodeId) {
        self.output_as(name, node, None);
    }

    /// Marks a node's tensor as an output that callers store in another [type](Output::stored).
    pub(crate) fn output_as(&mut self, name: impl Into<String>, node: NodeId, stored: Option<DeclaredType>) {
        self.outputs.push(Output { name: name.into(), node, stored });
    }

    /// Returns a node. Panics for an id of another, larger graph.
    pub fn node(&self, id: NodeId) -> &GraphNode {
        &self.nodes[id.0 as usize]
    }

    /// True for an input or a constant.
    pub fn is_given(&self, id: NodeId) -> bool {
        self.node(id).op.is::<Input>() || self.constant_of(id).is_some()
    }

    /// Returns the constant of a node, if it is one.
    pub fn constant_of(&self, id: NodeId) -> Option<&Constant> {
        self.node(id).op.of()
    }

    /// Returns shapes and element types of nodes.
    pub(crate) fn facts(&self, nodes: &[NodeId]) -> Vec<Facts<'_>> {
        nodes.iter().map(|&id| (&*self.node(id).shape, self.node(id).dtype)).collect()
    }

    /// Returns a node's view for its operator.
    pub fn view(&self, id: NodeId) -> NodeView<'_> {
        let node = self.node(id);
        let facts = self.facts(&node.operands).into_iter().zip(&node.operands);
        let operands = facts.map(|(facts, &id)| OperandView { facts, op: &self.node(id).op }).collect();
        NodeView { operands, output: (&node.shape, node.dtype) }
    }

    /// Returns the workload of a node and the nodes that it reads, in the order of the workload's
    /// operands; `None` if no workload computes it. Weights are marked constant if the graph has
    /// them as constants.
    pub fn anchor(&self, id: NodeId) -> Option<(Anchor, Vec<NodeId>)> {
        let node = self.node(id);
        let anchor = node.op.workload(&self.view(id))?;
        let read = |read: &Read| match *read {
            Read::Operand(operand) => node.operands[operand],
            Read::Behind(operand) => self.node(node.operands[operand]).operands[0],
        };
        let operands: Vec<NodeId> = anchor.reads.iter().map(read).collect();

        let weights = anchor.workload.weights();
        if weights.is_empty() {
            return Some((anchor, operands));
        }
        let is_constant = weights.iter().all(|&number| self.constant_of(operands[number]).is_some());
        let workload = anchor.workload.with_constant_weights(is_constant).ok()?;
        Some((Anchor { workload, ..anchor }, operands))
    }

    /// True if a workload computes a node.
    pub(crate) fn has_kernel(&self, id: NodeId) -> bool {
        self.anchor(id).is_some()
    }

    /// Returns all nodes in topological order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &GraphNode)> + ExactSizeIterator {
        self.nodes.iter().enumerate().map(|(id, node)| (NodeId(id as u32), &**node))
    }

    /// Returns the inputs in the order of their declaration.
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// Returns the outputs in the order of their declaration.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Returns for each node how often it is an operand or an output.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        let operands = self.nodes.iter().flat_map(|node| &node.operands);
        for id in operands.chain(self.outputs.iter().map(|output| &output.node)) {
            uses[id.0 as usize] += 1;
        }
        uses
    }

    /// Returns for each node the number of live nodes and outputs that read it. Nodes without a use
    /// are not live.
    pub(crate) fn live_uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        self.outputs.iter().for_each(|output| uses[output.node.0 as usize] += 1);
        for (id, node) in self.nodes().rev() {
            if uses[id.0 as usize] > 0 {
                node.operands.iter().for_each(|operand| uses[operand.0 as usize] += 1);
            }
        }
        uses
    }

    /// Returns the graph without the nodes and inputs that no output needs.
    pub(crate) fn pruned(&self) -> Self {
        let uses = self.live_uses();
        let mut pruned = Self { precision: self.precision, ..Self::new(&*self.name) };
        let mut places = vec![NodeId(0); self.nodes.len()];
        for (id, node) in self.nodes().filter(|(id, _)| uses[id.0 as usize] > 0) {
            let operands = node.operands.iter().map(|operand| places[operand.0 as usize]).collect();
            let place = pruned.push(GraphNode { operands, ..node.clone() });
            places[id.0 as usize] = place;
            if node.op.is::<Input>() {
                pruned.inputs.push(place);
                pruned.input_names.insert(node.name.clone());
            }
        }
        let place = |output: &Output| Output { node: places[output.node.0 as usize], ..output.clone() };
        pruned.outputs = self.outputs.iter().map(place).collect();
        pruned
    }

    /// Adds a node whose shape and type are known to be right.
    pub(crate) fn push(&mut self, node: impl Into<Arc<GraphNode>>) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node.into());
        id
    }

    /// Returns a shared handle to a node.
    pub(crate) fn shared(&self, id: NodeId) -> &Arc<GraphNode> {
        &self.nodes[id.0 as usize]
    }
}
