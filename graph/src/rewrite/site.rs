//! A node in its graph, as rules see it.

use autotune_ir::DType;
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Function};

use super::new_graph::{Made, NewGraph};
use crate::error::{GraphError, OpError};
use crate::graph::{Graph, Node, NodeId};
use crate::op::Op;
use crate::operators::{Binary, Map};
use crate::tensor::Tensor;

/// Factors of a product that are looked at.
const MOST_FACTORS: usize = 8;

/// How far a constant may be from what a formula has: what single precision leaves of it.
const TOLERANCE: f64 = 1e-5;

/// A node that a rule may put another in the place of, the graph that it is of, and the graph that
/// is being made.
pub(super) struct Site<'a, 'b> {
    pub(super) from: &'a Graph,
    pub(super) id: NodeId,
    pub(super) uses: &'a [usize],
    pub(super) made: &'a [Made],
    pub(super) new: &'a mut NewGraph<'b>,
}

/// What a rule makes of a site, if anything.
pub(super) type Rewritten = Result<Option<Made>, GraphError>;

impl<'a> Site<'a, '_> {
    /// The node itself.
    pub(super) fn node(&self) -> &'a Node {
        self.from.node(self.id)
    }

    pub(super) fn of(&self, id: NodeId) -> &'a Node {
        self.from.node(id)
    }

    /// An operand of the node itself.
    pub(super) fn operand(&self, number: usize) -> NodeId {
        self.node().operands[number]
    }

    /// What was made of a node that the site's is computed of.
    pub(super) fn made(&self, id: NodeId) -> Made {
        self.made[id.0 as usize]
    }

    /// The same for all operands of a node.
    pub(super) fn operands_of(&self, id: NodeId) -> Vec<Made> {
        self.of(id).operands.iter().map(|&id| self.made(id)).collect()
    }

    /// A node that was made already in place of this one.
    pub(super) fn is(&self, id: NodeId) -> Rewritten {
        Ok(Some(self.made(id)))
    }

    /// True if one node only reads it, and no output is it.
    pub(super) fn is_single(&self, id: NodeId) -> bool {
        self.uses[id.0 as usize] == 1
    }

    /// True if a node has shape and type of this one.
    pub(super) fn fits(&self, id: NodeId) -> bool {
        (&self.of(id).shape, self.of(id).dtype) == (&self.node().shape, self.node().dtype)
    }

    /// A node that is called as this one.
    pub(super) fn add(&mut self, op: impl Into<Op>, operands: &[Made]) -> Result<Made, GraphError> {
        self.add_as(self.id, op, operands)
    }

    /// A node that is called as another.
    pub(super) fn add_as(&mut self, named: NodeId, op: impl Into<Op>, operands: &[Made]) -> Result<Made, GraphError> {
        self.new.add(&self.from.node(named).name, op.into(), operands)
    }

    pub(super) fn constant(&mut self, tensor: Tensor) -> Made {
        self.new.constant(&self.from.node(self.id).name, &tensor.into())
    }

    /// The node's tensor, which has no elements.
    pub(super) fn nothing(&mut self) -> Option<Made> {
        self.new.nothing(self.node())
    }

    pub(super) fn shape_of(&self, made: Made) -> Vec<usize> {
        self.new.graph.node(made.0).shape.clone()
    }

    pub(super) fn dtype_of(&self, made: Made) -> DType {
        self.new.graph.node(made.0).dtype
    }

    /// The tensor of a constant, which is in memory from here on.
    pub(super) fn tensor(&self, id: NodeId) -> Option<&'a Tensor> {
        self.from.constant_of(id)?.tensor().ok().map(|tensor| &**tensor)
    }

    pub(super) fn is_constant(&self, id: NodeId) -> bool {
        self.from.constant_of(id).is_some()
    }

    /// The number of a constant with one element.
    pub(super) fn scalar(&self, id: NodeId) -> Option<f32> {
        let is_one = self.of(id).shape.iter().product::<usize>() == 1;
        is_one.then(|| self.tensor(id))??.as_f32()?.first().copied()
    }

    /// Operands of an operation on two tensors.
    pub(super) fn binary(&self, id: NodeId, op: Binary) -> Option<[NodeId; 2]> {
        match self.of(id).operands[..] {
            [a, b] if self.of(id).op == op => Some([a, b]),
            _ => None,
        }
    }

    /// What an operation is computed of beside a constant with one element: these are second
    /// operands.
    pub(super) fn with_scalar(&self, id: NodeId, op: Binary) -> Option<(NodeId, f32)> {
        let [x, scalar] = self.binary(id, op)?;
        Some((x, self.scalar(scalar)?))
    }

    /// Operands of a sum of two, both ways round.
    pub(super) fn either_way(&self, id: NodeId, op: Binary) -> Vec<[NodeId; 2]> {
        self.binary(id, op).map_or(Vec::new(), |[a, b]| vec![[a, b], [b, a]])
    }

    /// What a function is computed of.
    pub(super) fn function(&self, id: NodeId) -> Option<(Function, NodeId)> {
        let &Map(function) = self.of(id).op.of()?;
        Some((function, self.of(id).operands[0]))
    }

    /// What an operation on one value is computed of.
    pub(super) fn unary(&self, id: NodeId, op: UnaryOp) -> Option<NodeId> {
        self.function(id).filter(|(function, _)| *function == Function::Op(op)).map(|(_, x)| x)
    }

    /// What an activation is computed of.
    pub(super) fn activation(&self, id: NodeId) -> Option<(Activation, NodeId)> {
        match self.function(id)? {
            (Function::Activation(activation), x) => Some((activation, x)),
            _ => None,
        }
    }

    /// A product as a number and what is no constant of one element, small whole powers as often as
    /// they say.
    pub(super) fn factors(&self, id: NodeId) -> (f64, Vec<NodeId>) {
        let (mut scale, mut open, mut factors) = (1.0, vec![id], Vec::new());
        while let Some(id) = open.pop() {
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
        factors.sort_unstable();
        (scale, factors)
    }

    /// A product of two factors and a number near `scale`, both ways round.
    pub(super) fn product_of_two(&self, id: NodeId, scale: f64) -> Vec<[NodeId; 2]> {
        match self.factors(id) {
            (found, factors) if near(found, scale) && factors.len() == 2 => {
                vec![[factors[0], factors[1]], [factors[1], factors[0]]]
            }
            _ => Vec::new(),
        }
    }

    /// That something is wrong with what the node is made to.
    pub(super) fn wrong(&self, source: OpError) -> GraphError {
        self.node().wrong(source)
    }

    /// What is read of a constant along an axis of a tensor that it is broadcast to, if it is the
    /// same along all others.
    pub(super) fn per_axis(&self, id: NodeId, shape: &[usize], axis: usize) -> Option<Vec<f32>> {
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

/// The element of all of a constant's, if they are the same.
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

/// True if a constant is what a formula has.
pub(super) fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= TOLERANCE * wanted.abs()
}
