//! The graph that a pass makes: equal nodes are one node, what depends on constants only is a
//! constant.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

use ndarray::ArrayD;

use crate::constant::{Constant, Identity};
use crate::error::GraphError;
use crate::graph::{Graph, Node, NodeId};
use crate::op::Op;
use crate::operators::{Binary, Expand, Reshape, Slice, Transpose};
use crate::tensor::{Tensor, elements};

/// Elements of all constants together that one rewriting makes: 1 GiB of them.
const MOST_FOLDED: usize = 1 << 28;

/// Elements of a constant that its hash is made of.
const HASHED: usize = 1024;

/// A node of the graph that is being made; those of the graph that it is made from are plain
/// [`NodeId`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made(pub(super) NodeId);

impl Made {
    /// What stands for a node that no output needs: nothing reads it.
    pub(super) const NOTHING: Self = Self(NodeId(u32::MAX));
}

/// What the passes of a rewriting share.
pub(super) struct Constants {
    /// Constants in memory by a hash of their elements; none is there twice.
    known: HashMap<u64, Vec<Identity>>,
    /// Which of them a constant is, by its address, and what keeps others from having that.
    same: HashMap<usize, (Identity, Identity)>,
    /// By the address of a constant that was added up the largest on the way to it, if that is
    /// larger than all of its elements.
    reached: HashMap<usize, (Identity, f32)>,
    /// How many elements may still be made.
    left: usize,
}

/// A graph, and where in it each operation on known operands is.
pub(super) struct NewGraph<'a> {
    pub(super) graph: Graph,
    constants: &'a mut Constants,
    /// By their hash operations with their operands, and what they make.
    nodes: HashMap<u64, Vec<(Op, Vec<NodeId>, NodeId)>>,
    /// By their address.
    of_constants: HashMap<usize, NodeId>,
}

impl Default for Constants {
    fn default() -> Self {
        Self { known: HashMap::new(), same: HashMap::new(), reached: HashMap::new(), left: MOST_FOLDED }
    }
}

impl Constants {
    /// The one that stands for all with the same bits; what is not in memory stands for itself.
    fn one_of(&mut self, constant: &Constant) -> Constant {
        let known = self.same.get(&constant.address()).and_then(|(_, one)| one.constant());
        if let Some(one) = known {
            return one;
        }
        let Some(tensor) = constant.in_memory() else { return constant.clone() };

        let alike = self.known.entry(hash_of(tensor)).or_default();
        let same = |other: &Constant| other.in_memory().is_some_and(|other| have_same_bits(other, tensor));
        let one = match alike.iter().filter_map(Identity::constant).find(same) {
            Some(one) => one,
            None => {
                alike.push(constant.identity());
                constant.clone()
            }
        };
        self.same.insert(constant.address(), (constant.identity(), one.identity()));
        one
    }
}

impl<'a> NewGraph<'a> {
    /// A graph without nodes that is called like another, and computed as exactly.
    pub(super) fn new(like: &Graph, constants: &'a mut Constants) -> Self {
        let graph = Graph::new(like.name()).with_precision(like.precision());
        Self { graph, constants, nodes: HashMap::new(), of_constants: HashMap::new() }
    }

    /// A node without operands again.
    pub(super) fn input(&mut self, node: &Node) -> Result<Made, GraphError> {
        self.graph.input(&node.name, node.dtype, &node.shape).map(Made)
    }

    pub(super) fn constant(&mut self, name: &str, constant: &Constant) -> Made {
        let constant = self.constants.one_of(constant);
        let graph = &mut self.graph;
        Made(*self.of_constants.entry(constant.address()).or_insert_with(|| graph.constant(name, constant)))
    }

    /// The tensor of a node without elements, whatever computes it.
    pub(super) fn nothing(&mut self, node: &Node) -> Option<Made> {
        let empty = Tensor::of_numbers(&node.shape, node.dtype, &[]);
        Some(self.constant(&node.name, &empty.ok()?.into()))
    }

    /// What an operation makes of nodes: one that is there already, a constant, or a new node.
    pub(super) fn add(&mut self, name: &str, op: Op, made_of: &[Made]) -> Result<Made, GraphError> {
        let operands: Vec<NodeId> = made_of.iter().map(|made| made.0).collect();
        let hash = node_hash(&op, &operands);
        let mut known = self.nodes.get(&hash).into_iter().flatten();
        if let Some(&(_, _, made)) = known.find(|(other, of, _)| *other == op && *of == operands) {
            return Ok(Made(made));
        }

        let made = match self.folded(&op, &operands) {
            Some(constant) => {
                let most = self.passed_on(&op, made_of);
                let made = self.constant(name, &constant);
                most.into_iter().for_each(|most| self.reached(made, most));
                made.0
            }
            None => self.graph.add(name, op.clone(), &operands)?,
        };
        self.nodes.entry(hash).or_default().push((op, operands, made));
        Ok(Made(made))
    }

    /// The tensors of nodes, if all are constants.
    pub(super) fn constants<const N: usize>(&self, nodes: [Made; N]) -> Option<[&Tensor; N]> {
        let tensors = nodes.iter().map(|made| Some(&**self.graph.constant_of(made.0)?.tensor().ok()?));
        tensors.collect::<Option<Vec<_>>>()?.try_into().ok()
    }

    /// The largest magnitude on the way to a constant that was added up, if that is larger than its
    /// own ([`bounds`](super::bounds)).
    pub(super) fn reach(&self, made: Made) -> Option<f32> {
        self.constants.reached.get(&self.graph.constant_of(made.0)?.address()).map(|(_, most)| *most)
    }

    /// Says what the largest magnitude on the way to a constant was.
    pub(super) fn reached(&mut self, made: Made, most: f32) {
        let is_less = |tensor: &Tensor| tensor.as_f32().is_some_and(|own| largest(own) < most);
        if let Some(constant) =
            self.graph.constant_of(made.0).filter(|_| self.constants([made]).is_some_and(|[own]| is_less(own)))
        {
            self.constants.reached.insert(constant.address(), (constant.identity(), most));
        }
    }

    /// The same of what an operation makes of a constant that was added up.
    fn passed_on(&self, op: &Op, operands: &[Made]) -> Option<f32> {
        let added_up = operands.iter().position(|&made| self.reach(made).is_some())?;
        let own = |&made: &Made| {
            let tensor = self.constants([made]).and_then(|[tensor]| tensor.as_f32());
            self.reach(made).or_else(|| tensor.map(largest)).unwrap_or(f32::INFINITY)
        };
        let is_moved = op.is::<Reshape>() || op.is::<Expand>() || op.is::<Transpose>() || op.is::<Slice>();
        Some(match *op == Binary::Mul {
            true => operands.iter().map(own).product(),
            false if is_moved => own(&operands[added_up]),
            false => f32::INFINITY,
        })
    }

    /// The constant that a node is all of whose operands are, unless it is too large. One that
    /// cannot be computed stays a node: it fails when it runs.
    fn folded(&mut self, op: &Op, operands: &[NodeId]) -> Option<Constant> {
        let constants: Vec<&Constant> = operands.iter().map(|&id| self.graph.constant_of(id)).collect::<Option<_>>()?;
        let known: Vec<_> = constants.iter().map(|constant| (constant.shape(), constant.dtype())).collect();
        let count = elements(&op.infer(&known).ok()?.0).ok()?;
        if constants.is_empty() || op.keeps_constants() || count > self.constants.left {
            return None;
        }
        let folded = Constant::computed(op, &constants).ok()?;
        self.constants.left -= count;
        Some(folded)
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
        Tensor::I8(x) => x.iter().step_by(every).for_each(|x| x.hash(&mut hasher)),
        Tensor::U8(x) => x.iter().step_by(every).for_each(|x| x.hash(&mut hasher)),
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

/// The largest magnitude; infinite if an element is, or is no number.
pub(super) fn largest(all: &ArrayD<f32>) -> f32 {
    of_bits(all.iter().fold(0, |most, x| most.max(magnitude(*x))))
}

/// Magnitudes in order; those of infinities and of what is not a number are the last.
#[inline]
pub(super) fn magnitude(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

#[inline]
pub(super) fn of_bits(magnitude: u32) -> f32 {
    let x = f32::from_bits(magnitude);
    if x.is_nan() { f32::INFINITY } else { x }
}
