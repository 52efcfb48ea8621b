//! Construction of the graph that a pass produces, with common-subexpression elimination and
//! constant folding.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::mem::take;
use std::sync::Arc;

use ndarray::ArrayD;
use rustc_hash::{FxHashMap, FxHasher};

use crate::constant::{Constant, Identity};
use crate::error::{GraphError, OpError};
use crate::graph::{Graph, GraphNode, NodeId};
use crate::op::Op;
use crate::operators::{Binary, Expand, Gather, Reshape, Slice, Transpose};
use crate::tensor::{Tensor, elements};

/// Maximum number of elements in all constants that a rewriting folds: 1 GiB as f32.
const MOST_FOLDED: usize = 1 << 28;

/// Maximum number of elements of an intermediate constant that the next rewriting still finds.
const REMEMBERED: usize = 1 << 18;

/// Maximum number of elements of all intermediate constants in memory that the next rewriting still
/// finds: 16 MB as f32.
const ALL_REMEMBERED: usize = 1 << 22;

/// Maximum number of a constant's elements that are hashed.
const HASHED: usize = 1024;

/// A node of the graph under construction; nodes of the source graph are plain [`NodeId`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewNode(pub(super) NodeId);

impl NewNode {
    /// Placeholder for a node that no output needs and nothing reads.
    pub(super) const NOTHING: Self = Self(NodeId(u32::MAX));
}

/// State of constants, shared by all passes of a rewriting.
pub(super) struct ConstantPool {
    /// Distinct constants in memory, by a hash of their elements.
    known: FxHashMap<u64, Vec<Identity>>,
    /// Canonical constant (second) for a constant's address. The constant's own identity (first) is
    /// stored so that its address is not reused for another.
    canonical: FxHashMap<usize, (Identity, Identity)>,
    /// For constants that are sums of others, by address: the largest magnitude of a partial sum,
    /// if it exceeds the constant's elements ([`bounds`](super::bounds)).
    partial_sums: FxHashMap<usize, (Identity, f32)>,
    /// Small constants of this rewriting and of the one before, by address. Intermediate ones exist
    /// only here; while they do, what is computed of them is known.
    recent: FxHashMap<usize, Constant>,
    before: FxHashMap<usize, Constant>,
    /// Number of elements that may still be added to `recent`.
    may_remember: usize,
    /// Results of [`NewGraph::largest_terms`], by operands.
    terms: FxHashMap<Vec<Identity>, Vec<(Op, f32)>>,
    /// Results of [`NewGraph::largest_product`], by the constant and the bits of the factors.
    products: RefCell<LargestProducts>,
    /// Results of [`NewGraph::centred`], by weights, zero points and axis.
    centred: RefCell<CentredWeights>,
    /// Number of elements that may still be folded.
    left: usize,
}

/// Weights less their zero points, and the sum of each channel.
pub(super) type Centred<C = Constant> = (C, Arc<[f64]>);

/// Results of [`NewGraph::centred`]; `None` where a difference does not fit 8 bits.
type CentredWeights = FxHashMap<(Identity, Identity, usize), Option<Centred<Identity>>>;

/// Largest products of constants and factors, by constant and by the factors' shape and bits.
type LargestProducts = FxHashMap<(Identity, Vec<u32>), Option<f64>>;

/// A graph under construction, with an index of its operations.
pub(super) struct NewGraph<'a> {
    pub(super) graph: Graph,
    constants: &'a mut ConstantPool,
    /// Operations with their operands and results, by hash.
    nodes: FxHashMap<u64, Vec<(Op, Vec<NodeId>, NodeId)>>,
    /// Nodes of constants, by the constant's address.
    of_constants: FxHashMap<usize, NodeId>,
    /// Behaviour where all operands of a node are constants.
    folding: Folding,
}

/// Folding of nodes of constants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folding {
    Computed,
    /// Nodes are added instead.
    LeftOut,
    /// A node was added that would have been folded.
    Missed,
}

impl Default for ConstantPool {
    fn default() -> Self {
        Self {
            known: FxHashMap::default(),
            canonical: FxHashMap::default(),
            partial_sums: FxHashMap::default(),
            recent: FxHashMap::default(),
            before: FxHashMap::default(),
            may_remember: ALL_REMEMBERED,
            terms: FxHashMap::default(),
            products: RefCell::default(),
            centred: RefCell::default(),
            left: MOST_FOLDED,
        }
    }
}

impl ConstantPool {
    /// Prepares for another graph: the constants that still exist remain canonical.
    pub(super) fn for_next_graph(&mut self) {
        for alike in self.known.values_mut() {
            alike.retain(Identity::exists);
        }
        self.known.retain(|_, alike| !alike.is_empty());
        self.canonical.retain(|_, (constant, one)| constant.exists() && one.exists());
        self.terms.retain(|operands, _| operands.iter().all(Identity::exists));
        self.products.get_mut().retain(|(constant, _), _| constant.exists());
        let is_known = |(made, _): &Centred<Identity>| made.exists();
        self.centred.get_mut().retain(|(weights, ..), made| weights.exists() && made.as_ref().is_none_or(is_known));
        // The rest is about one graph.
        self.before = take(&mut self.recent);
        self.may_remember = ALL_REMEMBERED;
        self.partial_sums.clear();
        self.left = MOST_FOLDED;
    }

    /// Keeps a constant that needs little memory until the end of the next rewriting.
    fn remember(&mut self, constant: &Constant) {
        let elements = constant.in_memory().map_or(0, |tensor| tensor.shape().iter().product());
        if elements <= REMEMBERED.min(self.may_remember)
            && let Entry::Vacant(open) = self.recent.entry(constant.address())
        {
            open.insert(constant.clone());
            self.may_remember -= elements;
        }
    }

    /// Returns the canonical constant with the same bits. A constant that is not in memory is
    /// canonical itself.
    fn one_of(&mut self, constant: &Constant) -> Constant {
        let known = self.canonical.get(&constant.address()).and_then(|(_, one)| one.constant());
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
        self.canonical.insert(constant.address(), (constant.identity(), one.identity()));
        one
    }
}

impl<'a> NewGraph<'a> {
    /// Creates an empty graph with the name and the precision of another.
    pub(super) fn new(like: &Graph, constants: &'a mut ConstantPool) -> Self {
        let graph = Graph::new(like.name()).with_precision(like.precision());
        let (nodes, of_constants) = (FxHashMap::default(), FxHashMap::default());
        Self { graph, constants, nodes, of_constants, folding: Folding::Computed }
    }

    /// Creates a copy of a graph to try rules on: no node is found again, and none is folded, which
    /// could take long.
    pub(super) fn for_trial(graph: &Graph, constants: &'a mut ConstantPool) -> Self {
        Self { graph: graph.clone(), folding: Folding::LeftOut, ..Self::new(graph, constants) }
    }

    /// True if a node was added that would have been folded outside of a trial.
    pub(super) fn has_missed_folding(&self) -> bool {
        self.folding == Folding::Missed
    }

    /// Copies a graph input.
    pub(super) fn input(&mut self, node: &GraphNode) -> Result<NewNode, GraphError> {
        self.graph.input(&node.name, node.dtype, &node.shape).map(NewNode)
    }

    pub(super) fn constant(&mut self, name: &str, constant: &Constant) -> NewNode {
        let one = self.constants.one_of(constant);
        self.node_of(one, |graph, one| graph.constant(name, one))
    }

    /// Copies a constant of the source graph.
    pub(super) fn copy_constant(&mut self, node: &Arc<GraphNode>, constant: &Constant) -> NewNode {
        let one = self.constants.one_of(constant);
        let is_own = one.address() == constant.address();
        self.node_of(one, |graph, one| match is_own {
            true => graph.push(Arc::clone(node)),
            false => graph.constant(&*node.name, one),
        })
    }

    /// Returns the node of a canonical constant; `add` adds it if it is new.
    fn node_of(&mut self, one: Constant, add: impl FnOnce(&mut Graph, Constant) -> NodeId) -> NewNode {
        self.constants.remember(&one);
        let graph = &mut self.graph;
        NewNode(*self.of_constants.entry(one.address()).or_insert_with(|| add(graph, one)))
    }

    /// Adds the constant for a node without elements.
    pub(super) fn nothing(&mut self, node: &GraphNode) -> Option<NewNode> {
        let empty = Tensor::of_numbers(&node.shape, node.dtype, &[]);
        Some(self.constant(&node.name, &empty.ok()?.into()))
    }

    /// Adds an operation: returns an equal existing node, a folded constant, or a new node.
    pub(super) fn add(&mut self, name: &str, op: Op, made_of: &[NewNode]) -> Result<NewNode, GraphError> {
        let added_op = op.clone();
        self.add_once(op, made_of, |graph, operands| graph.add(name, added_op, operands), name)
    }

    /// Adds a node of the source graph on rewritten operands, whose shapes and types are the same.
    pub(super) fn copy(&mut self, node: &Arc<GraphNode>, made_of: &[NewNode]) -> Result<NewNode, GraphError> {
        let copied = |graph: &mut Graph, operands: &[NodeId]| {
            Ok(match operands == node.operands {
                true => graph.push(Arc::clone(node)),
                false => graph.push(GraphNode { operands: operands.to_vec(), ..GraphNode::clone(node) }),
            })
        };
        self.add_once(node.op.clone(), made_of, copied, &node.name)
    }

    fn add_once(
        &mut self,
        op: Op,
        made_of: &[NewNode],
        add: impl FnOnce(&mut Graph, &[NodeId]) -> Result<NodeId, GraphError>,
        name: &str,
    ) -> Result<NewNode, GraphError> {
        let operands: Vec<NodeId> = made_of.iter().map(|made| made.0).collect();
        let hash = node_hash(&op, &operands);
        let mut known = self.nodes.get(&hash).into_iter().flatten();
        if let Some(&(_, _, made)) = known.find(|(other, of, _)| *other == op && *of == operands) {
            return Ok(NewNode(made));
        }

        let made = match self.folded(&op, &operands) {
            Some(constant) => {
                // The bound on partial sums survives operations that only move or scale elements.
                let most = self.largest_partial_sum(&op, made_of);
                let made = self.constant(name, &constant);
                most.into_iter().for_each(|most| self.record_partial_sum(made, most));
                made.0
            }
            None => add(&mut self.graph, &operands)?,
        };
        self.nodes.entry(hash).or_default().push((op, operands, made));
        Ok(NewNode(made))
    }

    /// Returns the tensors of nodes, if all are constants.
    pub(super) fn constants<const N: usize>(&self, nodes: [NewNode; N]) -> Option<[&Tensor; N]> {
        let tensors = nodes.iter().map(|made| Some(&**self.graph.constant_of(made.0)?.tensor().ok()?));
        tensors.collect::<Option<Vec<_>>>()?.try_into().ok()
    }

    /// Returns the largest partial sum of a merged constant, if it exceeds the constant's elements
    /// ([`bounds`](super::bounds)).
    pub(super) fn reach(&self, made: NewNode) -> Option<f32> {
        self.constants.partial_sums.get(&self.graph.constant_of(made.0)?.address()).map(|(_, most)| *most)
    }

    /// Records the largest partial sum of a merged constant.
    pub(super) fn record_partial_sum(&mut self, made: NewNode, most: f32) {
        let is_less = |tensor: &Tensor| tensor.as_f32().is_some_and(|own| largest(own) < most);
        if let Some(constant) =
            self.graph.constant_of(made.0).filter(|_| self.constants([made]).is_some_and(|[own]| is_less(own)))
        {
            self.constants.partial_sums.insert(constant.address(), (constant.identity(), most));
        }
    }

    /// Returns the largest partial sum of an operation's result, derived from its operands'.
    fn largest_partial_sum(&self, op: &Op, operands: &[NewNode]) -> Option<f32> {
        let sum = operands.iter().position(|&made| self.reach(made).is_some())?;
        let own = |&made: &NewNode| {
            let tensor = self.constants([made]).and_then(|[tensor]| tensor.as_f32());
            self.reach(made).or_else(|| tensor.map(largest)).unwrap_or(f32::INFINITY)
        };
        let is_moved =
            op.is::<Reshape>() || op.is::<Expand>() || op.is::<Transpose>() || op.is::<Slice>() || op.is::<Gather>();
        Some(match *op == Binary::Mul {
            true => operands.iter().map(own).product(),
            false if is_moved => own(&operands[sum]),
            // For other operations the bound is unknown.
            false => f32::INFINITY,
        })
    }

    /// Returns the constant result of a node with constant operands, unless it is too large. A node
    /// that fails to evaluate stays, and fails at run time.
    fn folded(&mut self, op: &Op, operands: &[NodeId]) -> Option<Constant> {
        let constants: Vec<&Constant> = operands.iter().map(|&id| self.graph.constant_of(id)).collect::<Option<_>>()?;
        let known: Vec<_> = constants.iter().map(|constant| (constant.shape(), constant.dtype())).collect();
        let count = elements(&op.infer(&known).ok()?.0).ok()?;
        // An operator without operands is a source, not a computation on constants.
        if constants.is_empty() || op.keeps_constants() || count > self.constants.left {
            return None;
        }
        if self.folding != Folding::Computed {
            self.folding = Folding::Missed;
            return None;
        }
        let folded = Constant::computed(op, &constants).ok()?;
        // An equal constant may replace it in the graph; the next rewriting then still finds it.
        self.constants.remember(&folded);
        self.constants.left -= count;
        Some(folded)
    }

    /// Returns the largest product of a constant and factors; `compute` is called the first time.
    pub(super) fn largest_product(
        &self,
        constant: &Constant,
        factors: &ArrayD<f32>,
        compute: fn(&Constant, &ArrayD<f32>) -> Option<f64>,
    ) -> Option<f64> {
        let extents = factors.shape().iter().map(|&extent| extent as u32);
        let of = (constant.identity(), extents.chain(factors.iter().map(|factor| factor.to_bits())).collect());
        *self.constants.products.borrow_mut().entry(of).or_insert_with(|| compute(constant, factors))
    }

    /// Returns weights less their zero points along an axis, if they have a type of 8 bits, and the
    /// sum of each channel; `compute` is called the first time.
    pub(super) fn centred(
        &self,
        weights: &Constant,
        zeros: &Constant,
        axis: usize,
        compute: fn(&Constant, &Constant, usize) -> Option<Centred>,
    ) -> Option<Centred> {
        let of = (weights.identity(), zeros.identity(), axis);
        match self.constants.centred.borrow().get(&of) {
            Some(None) => return None,
            Some(Some((made, sums))) => {
                if let Some(made) = made.constant() {
                    return Some((made, Arc::clone(sums)));
                }
            }
            None => {}
        }
        let made = compute(weights, zeros, axis);
        let known = made.as_ref().map(|(made, sums)| (made.identity(), Arc::clone(sums)));
        self.constants.centred.borrow_mut().insert(of, known);
        made
    }

    /// Returns the largest element of a linear operation on the magnitudes of constants. It bounds
    /// every partial sum of the operation on the constants.
    pub(super) fn largest_terms(&mut self, op: &Op, constants: &[Constant]) -> Result<f32, OpError> {
        let operands: Vec<Identity> = constants.iter().map(Constant::identity).collect();
        let known = self.constants.terms.get(&operands).into_iter().flatten();
        if let Some(&(_, terms)) = known.into_iter().find(|(known, _)| known == op) {
            return Ok(terms);
        }

        let magnitude =
            |constant: &Constant| Ok(constant.read()?.as_f32().map(|numbers| Tensor::F32(numbers.mapv(f32::abs))));
        let magnitudes: Option<Vec<Tensor>> = constants.iter().map(magnitude).collect::<Result<_, OpError>>()?;
        let Some(magnitudes) = magnitudes else { return Ok(f32::INFINITY) };
        let terms = op.evaluate(&magnitudes.iter().collect::<Vec<_>>())?;
        let terms = terms.as_f32().map_or(f32::INFINITY, largest);
        self.constants.terms.entry(operands).or_default().push((op.clone(), terms));
        Ok(terms)
    }
}

/// Hashes the shape and a sample of evenly spaced elements.
fn hash_of(tensor: &Tensor) -> u64 {
    let mut hasher = FxHasher::default();
    tensor.shape().hash(&mut hasher);
    // A sample keeps hashing cheap; equality is checked bit by bit.
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

/// True if two tensors are bitwise equal; zeros of different sign differ.
fn have_same_bits(a: &Tensor, b: &Tensor) -> bool {
    match (a, b) {
        (Tensor::F32(a), Tensor::F32(b)) => {
            a.shape() == b.shape() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
        }
        _ => a == b,
    }
}

/// Hashes an operation and its operands.
fn node_hash(op: &Op, operands: &[NodeId]) -> u64 {
    let mut hasher = FxHasher::default();
    (op.text_hash(), operands).hash(&mut hasher);
    hasher.finish()
}

/// Returns the largest magnitude; infinite if an element is infinite or NaN.
pub(super) fn largest(all: &ArrayD<f32>) -> f32 {
    of_bits(all.iter().fold(0, |most, x| most.max(magnitude(*x))))
}

/// Returns a key that orders numbers by magnitude; infinities and NaN come last.
#[inline]
pub(super) fn magnitude(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

#[inline]
pub(super) fn of_bits(magnitude: u32) -> f32 {
    let x = f32::from_bits(magnitude);
    if x.is_nan() { f32::INFINITY } else { x }
}
