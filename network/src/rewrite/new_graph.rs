//! The graph that a pass makes: equal nodes are one node, what depends on constants only is a constant.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::error::GraphError;
use crate::graph::{Graph, Node, NodeId};
use crate::op::Op;
use crate::tensor::{Element, Tensor, array, elements};

/// Elements of all constants together that one rewriting makes: 1 GiB of them.
const MOST_FOLDED: usize = 1 << 28;

/// Elements of a constant that its hash is made of.
const HASHED: usize = 1024;

/// A node of the graph that is being made; those of the graph that it is made from are plain [`NodeId`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made(pub(super) NodeId);

impl Made {
    /// What stands for a node that no output needs: nothing reads it.
    pub(super) const NOTHING: Self = Self(NodeId(u32::MAX));
}

/// What the passes of a rewriting share.
pub(super) struct Constants {
    /// Constants by a hash of their elements; none is there twice.
    known: HashMap<u64, Vec<Arc<Tensor>>>,
    /// Which of them a constant is, by its address: the tensor is held here, so that no other gets it.
    same: HashMap<*const Tensor, (Arc<Tensor>, Arc<Tensor>)>,
    /// How many elements may still be made.
    left: usize,
}

/// A graph, and where in it each operation on known operands is.
pub(super) struct NewGraph<'a> {
    pub(super) graph: Graph,
    constants: &'a mut Constants,
    nodes: HashMap<u64, Vec<NodeId>>,
    tensors: HashMap<*const Tensor, NodeId>,
}

impl Default for Constants {
    fn default() -> Self {
        Self { known: HashMap::new(), same: HashMap::new(), left: MOST_FOLDED }
    }
}

impl Constants {
    /// The one tensor that stands for all with the same bits.
    fn one_of(&mut self, tensor: &Arc<Tensor>) -> Arc<Tensor> {
        let address = Arc::as_ptr(tensor);
        if let Some((_, one)) = self.same.get(&address) {
            return one.clone();
        }

        let alike = self.known.entry(hash_of(tensor)).or_default();
        let one = match alike.iter().find(|other| have_same_bits(other, tensor)) {
            Some(one) => one.clone(),
            None => {
                alike.push(tensor.clone());
                tensor.clone()
            }
        };
        self.same.insert(address, (tensor.clone(), one.clone()));
        one
    }
}

impl<'a> NewGraph<'a> {
    pub(super) fn new(name: &str, constants: &'a mut Constants) -> Self {
        Self { graph: Graph::new(name), constants, nodes: HashMap::new(), tensors: HashMap::new() }
    }

    /// A node without operands again.
    pub(super) fn input(&mut self, node: &Node) -> Result<Made, GraphError> {
        self.graph.input(&node.name, node.element, &node.shape).map(Made)
    }

    pub(super) fn constant(&mut self, name: &str, tensor: &Arc<Tensor>) -> Made {
        let tensor = self.constants.one_of(tensor);
        let graph = &mut self.graph;
        Made(*self.tensors.entry(Arc::as_ptr(&tensor)).or_insert_with(|| graph.constant(name, tensor)))
    }

    /// The tensor of a node without elements, whatever computes it.
    pub(super) fn nothing(&mut self, node: &Node) -> Option<Made> {
        let shape = &*node.shape;
        let empty = match node.element {
            Element::F32 => array(shape, Vec::new()).map(Tensor::F32),
            Element::I64 => array(shape, Vec::new()).map(Tensor::I64),
            Element::Bool => array(shape, Vec::new()).map(Tensor::Bool),
        };
        Some(self.constant(&node.name, &Arc::new(empty.ok()?)))
    }

    /// What an operation makes of nodes: one that is there already, a constant, or a new node.
    pub(super) fn add(&mut self, name: &str, op: Op, operands: &[Made]) -> Result<Made, GraphError> {
        let operands: Vec<NodeId> = operands.iter().map(|made| made.0).collect();
        let hash = node_hash(&op, &operands);
        let known = self.nodes.get(&hash).into_iter().flatten();
        for &id in known {
            let node = self.graph.node(id);
            if node.op == op && node.operands == operands {
                return Ok(Made(id));
            }
        }

        if let Some(tensor) = self.folded(&op, &operands) {
            return Ok(self.constant(name, &Arc::new(tensor)));
        }
        let id = self.graph.add(name, op, &operands)?;
        self.nodes.entry(hash).or_default().push(id);
        Ok(Made(id))
    }

    /// The tensor of a node all of whose operands are constants, unless it is too large. One that cannot be computed stays a node: it fails
    /// when it runs.
    fn folded(&mut self, op: &Op, operands: &[NodeId]) -> Option<Tensor> {
        let tensors: Vec<&Tensor> =
            operands.iter().map(|&id| self.graph.constant_of(id).map(|tensor| &**tensor)).collect::<Option<_>>()?;
        let known: Vec<_> = tensors.iter().map(|tensor| (tensor.shape(), tensor.element())).collect();
        let count = elements(&op.infer(&known).ok()?.0).ok()?;
        if tensors.is_empty() || count > self.constants.left {
            return None;
        }
        let tensor = op.evaluate(&tensors).ok()?;
        self.constants.left -= count;
        Some(tensor)
    }
}

/// Some of the elements, evenly spread, and the shape.
fn hash_of(tensor: &Tensor) -> u64 {
    let mut hasher = DefaultHasher::new();
    tensor.shape().hash(&mut hasher);
    let every = tensor.shape().iter().product::<usize>().div_ceil(HASHED).max(1);
    match tensor {
        Tensor::F32(x) => x.iter().step_by(every).for_each(|x| x.to_bits().hash(&mut hasher)),
        Tensor::I64(x) => x.iter().step_by(every).for_each(|x| x.hash(&mut hasher)),
        Tensor::Bool(x) => x.iter().step_by(every).for_each(|x| x.hash(&mut hasher)),
    }
    hasher.finish()
}

/// True if two tensors are the same to whatever reads them: zeros have their signs.
fn have_same_bits(a: &Tensor, b: &Tensor) -> bool {
    match (a, b) {
        (Tensor::F32(a), Tensor::F32(b)) => {
            a.shape() == b.shape() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
        }
        _ => a == b,
    }
}

/// Of an operation's text, which has all there is about it.
fn node_hash(op: &Op, operands: &[NodeId]) -> u64 {
    struct Text(DefaultHasher);
    impl Write for Text {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }

    let mut text = Text(DefaultHasher::new());
    operands.hash(&mut text.0);
    // Hashing does not fail.
    let _ = write!(text, "{op:?}");
    text.0.finish()
}
