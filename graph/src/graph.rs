//! A network as a graph of nodes.

use std::collections::{BTreeSet, HashSet};

use autotune_ir::DType;

use crate::constant::Constant;
use crate::error::{GraphError, OpError};
use crate::memory::is_of_bytes;
use crate::op::{Anchor, Facts, NodeView, Op, OperandView, Operator, Read};
use crate::precision::Precision;

pub use crate::op::Input;
use crate::tensor::Stored;
use crate::typed::check_has_tensors;

/// A node of a graph, by its position: its operands have lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A tensor and what computes it of others.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// For people; not always unique.
    pub name: String,
    /// What is computed.
    pub op: Op,
    /// Of what, in the order that its operator says.
    pub operands: Vec<NodeId>,
    /// Extents of the tensor, outermost first.
    pub shape: Vec<usize>,
    /// Type of its elements.
    pub dtype: DType,
}

impl Node {
    /// Returns an error that says what is wrong with the node.
    pub fn wrong(&self, source: OpError) -> GraphError {
        GraphError { node: self.name.clone(), op: self.op.name(), source }
    }
}

/// A tensor that a network gives to its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name, unique among outputs.
    pub name: String,
    /// What computes it.
    pub node: NodeId,
    /// Type in which callers store its elements, where a file says another than that of the node.
    pub stored: Option<Stored>,
}

/// A network: nodes with one tensor each, every one behind its operands. All shapes are known.
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
    nodes: Vec<Node>,
    inputs: Vec<NodeId>,
    input_names: HashSet<String>,
    outputs: Vec<Output>,
    precision: Precision,
    exact: BTreeSet<NodeId>,
}

impl Graph {
    /// A graph without nodes.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Returns the same graph to be computed in another precision; f32 otherwise.
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// Returns how exactly it is to be computed.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Returns the same graph, of which the steps that compute these nodes last are in f32,
    /// whatever its precision. Rewriting forgets them.
    pub fn with_exact(self, exact: BTreeSet<NodeId>) -> Self {
        Self { exact, ..self }
    }

    /// Returns the nodes whose steps are in f32, whatever its precision.
    pub fn exact(&self) -> &BTreeSet<NodeId> {
        &self.exact
    }

    /// True if a tensor on the way is quantised, to integers of 8 bits.
    pub fn is_quantised(&self) -> bool {
        self.nodes.iter().any(|node| is_of_bytes(node.dtype))
    }

    /// What the network is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A tensor that the caller brings to every run; its name is unique among inputs.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<NodeId, GraphError> {
        let wrong = |source| GraphError { node: name.into(), op: Input.name(), source };
        crate::tensor::elements(shape).map_err(wrong)?;
        check_has_tensors(dtype).map_err(wrong)?;
        if !self.input_names.insert(name.into()) {
            return Err(wrong(OpError::Unfit("another input has the name".into())));
        }

        let node = Node { name: name.into(), op: Input.into(), operands: Vec::new(), shape: shape.to_vec(), dtype };
        let id = self.push(node);
        self.inputs.push(id);
        Ok(id)
    }

    /// A tensor that is the same in all runs.
    pub fn constant(&mut self, name: impl Into<String>, constant: impl Into<Constant>) -> NodeId {
        let constant = constant.into();
        let (shape, dtype) = (constant.shape().to_vec(), constant.dtype());
        self.push(Node { name: name.into(), op: constant.into(), operands: Vec::new(), shape, dtype })
    }

    /// What an operation makes of the tensors of other nodes.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        op: impl Into<Op>,
        operands: &[NodeId],
    ) -> Result<NodeId, GraphError> {
        let (name, op) = (name.into(), op.into());
        match op.infer(&self.facts(operands)) {
            Ok((shape, dtype)) => Ok(self.push(Node { name, op, operands: operands.to_vec(), shape, dtype })),
            Err(source) => Err(GraphError { node: name, op: op.name(), source }),
        }
    }

    /// A tensor of a node as one that the network gives to its caller.
    pub fn output(&mut self, name: impl Into<String>, node: NodeId) {
        self.output_as(name, node, None);
    }

    /// The same, with the [type](Output::stored) in which callers store it.
    pub(crate) fn output_as(&mut self, name: impl Into<String>, node: NodeId, stored: Option<Stored>) {
        self.outputs.push(Output { name: name.into(), node, stored });
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// True for a node whose tensor nothing computes: an input or a constant.
    pub fn is_given(&self, id: NodeId) -> bool {
        self.node(id).op.is::<Input>() || self.constant_of(id).is_some()
    }

    /// The tensor of a node that is the same in all runs.
    pub fn constant_of(&self, id: NodeId) -> Option<&Constant> {
        self.node(id).op.of()
    }

    /// Shapes and element types of nodes' tensors.
    pub(crate) fn facts(&self, nodes: &[NodeId]) -> Vec<Facts<'_>> {
        nodes.iter().map(|&id| (&*self.node(id).shape, self.node(id).dtype)).collect()
    }

    /// A node as its operator sees it.
    pub fn view(&self, id: NodeId) -> NodeView<'_> {
        let node = self.node(id);
        let facts = self.facts(&node.operands).into_iter().zip(&node.operands);
        let operands = facts.map(|(facts, &id)| OperandView { facts, op: &self.node(id).op }).collect();
        NodeView { operands, output: (&node.shape, node.dtype) }
    }

    /// Returns the workload of a node, if there is one, and the nodes that it reads, in the order of
    /// the workload's operands; its weights are constant if they are in the graph.
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

    /// True if a node has a workload that computes it.
    pub(crate) fn has_kernel(&self, id: NodeId) -> bool {
        self.anchor(id).is_some()
    }

    /// All nodes, every one behind its operands.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> + ExactSizeIterator {
        self.nodes.iter().enumerate().map(|(id, node)| (NodeId(id as u32), node))
    }

    /// What the caller brings, in the order in which it was declared.
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// What the caller gets.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// How often each node is an operand or an output.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        let operands = self.nodes.iter().flat_map(|node| &node.operands);
        for id in operands.chain(self.outputs.iter().map(|output| &output.node)) {
            uses[id.0 as usize] += 1;
        }
        uses
    }

    fn push(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }
}
