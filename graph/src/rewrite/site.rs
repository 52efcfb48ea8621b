//! View of a node and its graph for rewrite rules.

use autotune_ir::DType;
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Function};

use super::new_graph::{NewGraph, NewNode};
use crate::constant::Constant;
use crate::error::{GraphError, OpError};
use crate::graph::{Graph, GraphNode, NodeId};
use crate::op::Op;
use crate::operators::{Binary, Map};
use crate::tensor::Tensor;

/// Maximum number of factors that a match examines.
const MOST_FACTORS: usize = 8;

/// Largest relative difference between a constant of a graph and the one in a rule's formula.
/// Exporters compute constants in single precision.
const TOLERANCE: f64 = 1e-5;

/// A node that a rule may replace, with its graph and the graph under construction. Ids without
/// further mention are of nodes in the source graph.
pub(super) struct RewriteSite<'a, 'b> {
    /// The source graph, and the node that may be replaced.
    pub(super) from: &'a Graph,
    pub(super) id: NodeId,
    /// Number of readers of each node; an output counts as a reader.
    pub(super) uses: &'a [usize],
    /// Rewritten counterparts of all earlier nodes.
    pub(super) made: &'a [NewNode],
    pub(super) new: &'a mut NewGraph<'b>,
}

/// Result of a rule: the replacement, or `None` if the rule does not match.
pub(super) type Rewritten = Result<Option<NewNode>, GraphError>;

impl<'a> RewriteSite<'a, '_> {
    /// Returns the node that may be replaced.
    pub(super) fn node(&self) -> &'a GraphNode {
        self.from.node(self.id)
    }

    pub(super) fn of(&self, id: NodeId) -> &'a GraphNode {
        self.from.node(id)
    }

    /// Returns the id of an operand of the node.
    pub(super) fn operand(&self, number: usize) -> NodeId {
        self.node().operands[number]
    }

    /// Returns the rewritten counterpart of an earlier node.
    pub(super) fn made(&self, id: NodeId) -> NewNode {
        self.made[id.0 as usize]
    }

    /// Returns the rewritten operands of a node.
    pub(super) fn operands_of(&self, id: NodeId) -> Vec<NewNode> {
        self.of(id).operands.iter().map(|&id| self.made(id)).collect()
    }

    /// Replaces the node by the counterpart of an earlier one.
    pub(super) fn is(&self, id: NodeId) -> Rewritten {
        Ok(Some(self.made(id)))
    }

    /// True if a node has exactly one reader; an output counts as a reader. So if the rule replaces
    /// this reader, the node is not needed any more.
    pub(super) fn is_single(&self, id: NodeId) -> bool {
        self.uses[id.0 as usize] == 1
    }

    /// True if a node has the same shape and type as the replaced one.
    pub(super) fn fits(&self, id: NodeId) -> bool {
        (&self.of(id).shape, self.of(id).dtype) == (&self.node().shape, self.node().dtype)
    }

    /// Adds a node named like the replaced one.
    pub(super) fn add(&mut self, op: impl Into<Op>, operands: &[NewNode]) -> Result<NewNode, GraphError> {
        self.add_as(self.id, op, operands)
    }

    /// Adds a node named like `named`.
    pub(super) fn add_as(
        &mut self,
        named: NodeId,
        op: impl Into<Op>,
        operands: &[NewNode],
    ) -> Result<NewNode, GraphError> {
        self.new.add(&self.from.node(named).name, op.into(), operands)
    }

    pub(super) fn constant(&mut self, tensor: Tensor) -> NewNode {
        self.new.constant(&self.from.node(self.id).name, &tensor.into())
    }

    /// Adds a constant that other graphs may have, too.
    pub(super) fn shared_constant(&mut self, constant: &Constant) -> NewNode {
        self.new.constant(&self.from.node(self.id).name, constant)
    }

    /// Adds an empty constant as the replacement of the node, which must have no elements.
    pub(super) fn nothing(&mut self) -> Option<NewNode> {
        self.new.nothing(self.node())
    }

    pub(super) fn shape_of(&self, made: NewNode) -> Vec<usize> {
        self.new.graph.node(made.0).shape.clone()
    }

    pub(super) fn dtype_of(&self, made: NewNode) -> DType {
        self.new.graph.node(made.0).dtype
    }

    /// Returns a constant's tensor, and loads it into memory.
    pub(super) fn tensor(&self, id: NodeId) -> Option<&'a Tensor> {
        self.from.constant_of(id)?.tensor().ok().map(|tensor| &**tensor)
    }

    pub(super) fn is_constant(&self, id: NodeId) -> bool {
        self.from.constant_of(id).is_some()
    }

    /// Returns the value of a constant with one element.
    pub(super) fn scalar(&self, id: NodeId) -> Option<f32> {
        // Checked first, since `tensor` loads the elements from the file.
        let is_one = self.of(id).shape.iter().product::<usize>() == 1;
        is_one.then(|| self.tensor(id))??.as_f32()?.first().copied()
    }

    /// Matches a binary operation; returns its operands.
    pub(super) fn binary(&self, id: NodeId, op: Binary) -> Option<[NodeId; 2]> {
        match self.of(id).operands[..] {
            [a, b] if self.of(id).op == op => Some([a, b]),
            _ => None,
        }
    }

    /// Matches a binary operation whose second operand is a constant with one element (rules put
    /// constants last).
    pub(super) fn with_scalar(&self, id: NodeId, op: Binary) -> Option<(NodeId, f32)> {
        let [x, scalar] = self.binary(id, op)?;
        Some((x, self.scalar(scalar)?))
    }

    /// Returns the operands of a commutative operation in both orders; empty if the node does not
    /// match.
    pub(super) fn both_orders(&self, id: NodeId, op: Binary) -> Vec<[NodeId; 2]> {
        self.binary(id, op).map_or(Vec::new(), |[a, b]| vec![[a, b], [b, a]])
    }

    /// Matches an elementwise function; returns it and its operand.
    pub(super) fn function(&self, id: NodeId) -> Option<(Function, NodeId)> {
        let &Map(function) = self.of(id).op.of()?;
        Some((function, self.of(id).operands[0]))
    }

    /// Matches a unary operation; returns its operand.
    pub(super) fn unary(&self, id: NodeId, op: UnaryOp) -> Option<NodeId> {
        self.function(id).filter(|(function, _)| *function == Function::Op(op)).map(|(_, x)| x)
    }

    /// Matches an activation; returns it and its operand.
    pub(super) fn activation(&self, id: NodeId) -> Option<(Activation, NodeId)> {
        match self.function(id)? {
            (Function::Activation(activation), x) => Some((activation, x)),
            _ => None,
        }
    }

    /// Splits a product into a number and factors that are not constants of one element. Squares
    /// and cubes are repeated factors.
    pub(super) fn factors(&self, id: NodeId) -> (f64, Vec<NodeId>) {
        let (mut scale, mut open, mut factors) = (1.0, vec![id], Vec::new());
        while let Some(id) = open.pop() {
            // Powers multiply the number of factors, so it is limited.
            let left = MOST_FACTORS.saturating_sub(open.len() + factors.len());
            if let Some(scalar) = self.scalar(id) {
                scale *= f64::from(scalar);
            } else if let Some((x, power)) =
                self.with_scalar(id, Binary::Pow).filter(|(_, by)| [2.0, 3.0].contains(by) && left > 2)
            {
                open.extend(std::iter::repeat_n(x, power as usize));
            } else if let Some([a, b]) = self.binary(id, Binary::Mul).filter(|_| left > 1) {
                open.extend([a, b]);
            } else {
                factors.push(id);
            }
        }
        // Rules compare products whatever the order of their factors.
        factors.sort_unstable();
        (scale, factors)
    }

    /// Matches a product of two factors and a number near `scale`; returns both orders of the
    /// factors.
    pub(super) fn product_of_two(&self, id: NodeId, scale: f64) -> Vec<[NodeId; 2]> {
        // Most nodes are no product, which costs little to see.
        let op = &self.of(id).op;
        if *op != Binary::Mul && *op != Binary::Pow {
            return Vec::new();
        }
        match self.factors(id) {
            (found, factors) if near(found, scale) && factors.len() == 2 => {
                vec![[factors[0], factors[1]], [factors[1], factors[0]]]
            }
            _ => Vec::new(),
        }
    }

    /// Returns an error about the replaced node.
    pub(super) fn wrong(&self, source: OpError) -> GraphError {
        self.node().wrong(source)
    }

    /// Returns a constant's values along one axis of a shape that it broadcasts to, if it does not
    /// vary along the others.
    pub(super) fn per_axis(&self, id: NodeId, shape: &[usize], axis: usize) -> Option<Vec<f32>> {
        // Shapes are checked first, since `tensor` loads the elements from the file.
        self.from.constant_of(id)?;
        let own = &self.of(id).shape;
        let first = shape.len().checked_sub(own.len())?;
        let fits = |at: usize| own[at] == 1 || (at + first == axis && own[at] == shape[axis]);
        if !(0..own.len()).all(fits) || axis >= shape.len() {
            return None;
        }
        let constant = self.tensor(id)?.as_f32()?;
        match constant.len() {
            1 => Some(vec![constant.first().copied()?; shape[axis]]),
            _ => Some(constant.iter().copied().collect()),
        }
    }
}

/// Returns the value of a tensor whose elements are all equal.
pub(super) fn uniform(tensor: &Tensor) -> Option<f64> {
    fn of<T: PartialEq + Copy>(all: &ndarray::ArrayD<T>) -> Option<T> {
        all.first().copied().filter(|first| all.iter().all(|x| x == first))
    }
    match tensor {
        Tensor::F32(all) => of(all).map(f64::from),
        Tensor::I64(all) => of(all).map(|x| x as f64),
        Tensor::Bool(all) => of(all).map(|x| f64::from(u8::from(x))),
        Tensor::I8(all) => of(all).map(f64::from),
        Tensor::U8(all) => of(all).map(f64::from),
    }
}

/// True if a constant of a graph equals the one in a rule's formula, up to rounding.
pub(super) fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= TOLERANCE * wanted.abs()
}
