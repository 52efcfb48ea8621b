//! Graph under construction during an import.

use autotune_ir::DType;

use super::inputs::ImportOptions;
use super::limits::MOST_AXES;
use super::operator::Int8Reading;
use super::tensor::number;
use crate::constant::Constant;
use crate::error::OpError;
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::operators::Cast;
use crate::tensor::{DeclaredType, elements};

/// A tensor of the graph under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImportValue(u32);

/// State of a value.
enum Known {
    /// Result of a node.
    Node(NodeId),
    /// Constant; it gets a node once another node reads it.
    Constant { name: String, constant: Constant, node: Option<NodeId> },
}

/// A graph under construction. Operations on constants are evaluated immediately, so that shapes
/// are known when operators need them, and their nodes are not kept.
pub(crate) struct GraphDraft {
    graph: Graph,
    values: Vec<Known>,
    /// Remaining budget of evaluation steps and constant elements.
    left: usize,
    /// Maximum number of time steps of a layer that become nodes.
    max_unrolled: usize,
}

impl GraphDraft {
    pub(crate) fn new(name: &str, options: &ImportOptions) -> Self {
        let (left, max_unrolled) = (options.max_folded, options.max_unrolled);
        Self { graph: Graph::new(name), values: Vec::new(), left, max_unrolled }
    }

    /// Returns the maximum number of time steps of a layer that become nodes.
    pub(crate) fn max_unrolled(&self) -> usize {
        self.max_unrolled
    }

    pub(crate) fn finish(self) -> Graph {
        self.graph
    }

    pub(crate) fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<ImportValue, OpError> {
        let id = self.graph.input(name, dtype, shape).map_err(|e| e.source)?;
        Ok(self.value(Known::Node(id)))
    }

    pub(crate) fn output(&mut self, name: &str, value: ImportValue, stored: Option<DeclaredType>) {
        let node = self.node(value);
        self.graph.output_as(name, node, stored);
    }

    pub(crate) fn constant(&mut self, name: &str, constant: impl Into<Constant>) -> ImportValue {
        self.value(Known::Constant { name: name.into(), constant: constant.into(), node: None })
    }

    /// Adds the result of an operation on a constant, even if it takes many steps.
    pub(crate) fn computed(
        &mut self,
        name: &str,
        op: impl Into<Op>,
        constant: &Constant,
    ) -> Result<ImportValue, OpError> {
        let op = op.into();
        let (shape, _) = op.infer(&[(constant.shape(), constant.dtype())])?;
        self.spend(elements(&shape)?, &shape)?;
        Ok(self.constant(name, Constant::computed(&op, &[constant])?))
    }

    /// Adds the result of an operation on values.
    pub(crate) fn add(&mut self, name: &str, op: Op, operands: &[ImportValue]) -> Result<ImportValue, OpError> {
        let known: Vec<(&[usize], DType)> =
            operands.iter().map(|&value| (self.shape(value), self.dtype(value))).collect();
        let (shape, _) = op.infer(&known)?;
        if shape.len() > MOST_AXES {
            return Err(OpError::Unfit(format!("{} axes; at most {MOST_AXES} are supported", shape.len())));
        }

        // Some operators stay unfolded until rewrite rules have seen them.
        let constants = if op.keeps_constants() { None } else { Some(operands) };
        let constants: Option<Vec<Constant>> =
            constants.and_then(|operands| operands.iter().map(|&value| self.constant_of(value).cloned()).collect());
        // Beyond the budget the operation stays in the graph.
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

    /// Converts a value to the integer width that an operator reads: 8 bits if the operator
    /// supports it, else 64. `byte_type` is the original type of a value that has 64 bits here and
    /// 8 in the file.
    pub(super) fn read_as(
        &mut self,
        name: &str,
        value: ImportValue,
        byte_type: Option<DType>,
        bytes: Int8Reading,
    ) -> Result<ImportValue, OpError> {
        match (self.dtype(value), byte_type) {
            (DType::I8 | DType::U8, _) if bytes == Int8Reading::Widened => {
                self.add(name, Cast(DType::I64).into(), &[value])
            }
            (DType::I64, Some(dtype)) if bytes == Int8Reading::Wanted => self.add(name, Cast(dtype).into(), &[value]),
            _ => Ok(value),
        }
    }

    pub(crate) fn shape(&self, value: ImportValue) -> &[usize] {
        match &self.values[value.0 as usize] {
            Known::Node(id) => &self.graph.node(*id).shape,
            Known::Constant { constant, .. } => constant.shape(),
        }
    }

    pub(crate) fn dtype(&self, value: ImportValue) -> DType {
        match &self.values[value.0 as usize] {
            Known::Node(id) => self.graph.node(*id).dtype,
            Known::Constant { constant, .. } => constant.dtype(),
        }
    }

    /// Returns the constant, if a value is the same in all runs.
    pub(crate) fn constant_of(&self, value: ImportValue) -> Option<&Constant> {
        match &self.values[value.0 as usize] {
            Known::Node(_) => None,
            Known::Constant { constant, .. } => Some(constant),
        }
    }

    /// Returns the number of a constant with one element.
    pub(crate) fn number(&self, value: ImportValue) -> Option<f32> {
        let constant = self.constant_of(value)?;
        let is_one = constant.shape().iter().product::<usize>() == 1;
        number(is_one.then(|| constant.tensor().ok())??)
    }

    fn value(&mut self, known: Known) -> ImportValue {
        let value = ImportValue(self.values.len() as u32);
        self.values.push(known);
        value
    }

    fn node(&mut self, value: ImportValue) -> NodeId {
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

    /// Takes steps or elements from the budget; fails if they exceed it.
    pub(crate) fn spend(&mut self, steps: usize, shape: &[usize]) -> Result<(), OpError> {
        let left = self.left.checked_sub(steps);
        self.left = left.ok_or_else(|| OpError::TooLarge { shape: shape.to_vec() })?;
        Ok(())
    }
}
