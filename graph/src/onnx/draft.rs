//! A graph while it is made of a file.

use autotune_ir::DType;

use super::limits::MOST_AXES;
use super::operator::Bytes;
use super::tensor::number;
use crate::constant::Constant;
use crate::error::OpError;
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::operators::Cast;
use crate::tensor::{Stored, elements};

/// A tensor of a graph that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(u32);

/// What is known of a value.
enum Known {
    /// What a node computes.
    Node(NodeId),
    /// The same in all runs; a node once another has it for an operand.
    Constant { name: String, constant: Constant, node: Option<NodeId> },
}

/// A graph under construction. What only constants go into is evaluated at once, so that shapes are
/// numbers when operators ask for them, and what computed them leaves no nodes.
pub(crate) struct Draft {
    graph: Graph,
    values: Vec<Known>,
    /// Steps that may still be evaluated, and elements that may still be made.
    left: usize,
}

impl Draft {
    pub(crate) fn new(name: &str, most_folded: usize) -> Self {
        Self { graph: Graph::new(name), values: Vec::new(), left: most_folded }
    }

    pub(crate) fn finish(self) -> Graph {
        self.graph
    }

    pub(crate) fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<Value, OpError> {
        let id = self.graph.input(name, dtype, shape).map_err(|e| e.source)?;
        Ok(self.value(Known::Node(id)))
    }

    pub(crate) fn output(&mut self, name: &str, value: Value, stored: Option<Stored>) {
        let node = self.node(value);
        self.graph.output_as(name, node, stored);
    }

    pub(crate) fn constant(&mut self, name: &str, constant: impl Into<Constant>) -> Value {
        self.value(Known::Constant { name: name.into(), constant: constant.into(), node: None })
    }

    /// What an operation makes of a constant, whether or not it is large.
    pub(crate) fn computed(&mut self, name: &str, op: impl Into<Op>, constant: &Constant) -> Result<Value, OpError> {
        let op = op.into();
        let (shape, _) = op.infer(&[(constant.shape(), constant.dtype())])?;
        self.spend(elements(&shape)?, &shape)?;
        Ok(self.constant(name, Constant::computed(&op, &[constant])?))
    }

    /// What an operation makes of some values.
    pub(crate) fn add(&mut self, name: &str, op: Op, operands: &[Value]) -> Result<Value, OpError> {
        let known: Vec<(&[usize], DType)> =
            operands.iter().map(|&value| (self.shape(value), self.dtype(value))).collect();
        let (shape, _) = op.infer(&known)?;
        if shape.len() > MOST_AXES {
            return Err(OpError::Unfit(format!("{} axes, where {MOST_AXES} at most are supported", shape.len())));
        }

        let constants = if op.keeps_constants() { None } else { Some(operands) };
        let constants: Option<Vec<Constant>> =
            constants.and_then(|operands| operands.iter().map(|&value| self.constant_of(value).cloned()).collect());
        let steps = op.steps(&known, &shape);
        if let (Some(constants), Some(steps)) = (constants, steps)
            && self.spend(steps, &shape).is_ok()
        {
            let folded = Constant::computed(&op, &constants.iter().collect::<Vec<_>>())?;
            return Ok(self.constant(name, folded));
        }

        let operands: Vec<NodeId> = operands.iter().map(|&value| self.node(value)).collect();
        let id = self.graph.add(name, op, &operands).map_err(|e| e.source)?;
        Ok(self.value(Known::Node(id)))
    }

    /// A value as an operator reads it: integers of 8 bits as they are, if it has those, else as
    /// of 64. `of_bytes` is the type of those that are of 64 here and of 8 in the file.
    pub(super) fn read_as(
        &mut self,
        name: &str,
        value: Value,
        of_bytes: Option<DType>,
        bytes: Bytes,
    ) -> Result<Value, OpError> {
        match (self.dtype(value), of_bytes) {
            (DType::I8 | DType::U8, _) if bytes == Bytes::Widened => self.add(name, Cast(DType::I64).into(), &[value]),
            (DType::I64, Some(dtype)) if bytes == Bytes::Wanted => self.add(name, Cast(dtype).into(), &[value]),
            _ => Ok(value),
        }
    }

    pub(crate) fn shape(&self, value: Value) -> &[usize] {
        match &self.values[value.0 as usize] {
            Known::Node(id) => &self.graph.node(*id).shape,
            Known::Constant { constant, .. } => constant.shape(),
        }
    }

    pub(crate) fn dtype(&self, value: Value) -> DType {
        match &self.values[value.0 as usize] {
            Known::Node(id) => self.graph.node(*id).dtype,
            Known::Constant { constant, .. } => constant.dtype(),
        }
    }

    /// The constant, if the tensor is the same in all runs.
    pub(crate) fn constant_of(&self, value: Value) -> Option<&Constant> {
        match &self.values[value.0 as usize] {
            Known::Node(_) => None,
            Known::Constant { constant, .. } => Some(constant),
        }
    }

    /// The number of a constant of one element.
    pub(crate) fn number(&self, value: Value) -> Option<f32> {
        let constant = self.constant_of(value)?;
        let is_one = constant.shape().iter().product::<usize>() == 1;
        number(is_one.then(|| constant.tensor().ok())??)
    }

    fn value(&mut self, known: Known) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(known);
        value
    }

    fn node(&mut self, value: Value) -> NodeId {
        match &mut self.values[value.0 as usize] {
            Known::Node(id) => *id,
            Known::Constant { node: Some(id), .. } => *id,
            Known::Constant { name, constant, node } => {
                let id = self.graph.constant(name.clone(), constant.clone());
                *node = Some(id);
                id
            }
        }
    }

    fn spend(&mut self, steps: usize, shape: &[usize]) -> Result<(), OpError> {
        let left = self.left.checked_sub(steps);
        self.left = left.ok_or_else(|| OpError::TooLarge { shape: shape.to_vec() })?;
        Ok(())
    }
}
