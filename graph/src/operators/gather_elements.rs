//! Selection of elements and slices by their coordinates.

use super::indices::{Selection, select};
use super::prelude::*;
use super::sub_nodes::SubNodes;
use crate::onnx::error;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("GatherElements", elementwise), OnnxOperator::one("GatherND", of_tuples)];

/// Elements of the first operand: element `i, j, ..` of the output is at `i, j, ..`, with the index
/// in the second operand as its coordinate along an axis. Negative indices count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherElements {
    /// Axis of the coordinate that indices replace.
    pub axis: usize,
}

/// Slices of the first operand at coordinates that the second has along its last axis. Negative
/// coordinates count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherNd {
    /// Number of leading axes that both operands share.
    pub batch_axes: usize,
}

impl Operator for GatherElements {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        output(Selection::Along(self.axis), operands)
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        compute(Selection::Along(self.axis), operands, shape)
    }

    /// Returns a `Gather` of single elements by their numbers, which are computed from the indices.
    fn parts(&self, node: &NodeView) -> Option<Vec<SubNode>> {
        parts(Selection::Along(self.axis), node)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("GatherElements", vec![int("axis", self.axis)])
    }
}

impl Operator for GatherNd {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        output(Selection::Tuples(self.batch_axes), operands)
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        compute(Selection::Tuples(self.batch_axes), operands, shape)
    }

    /// Returns a `Gather` of slices by their numbers, which are computed from the indices.
    fn parts(&self, node: &NodeView) -> Option<Vec<SubNode>> {
        parts(Selection::Tuples(self.batch_axes), node)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("GatherND", vec![int("batch_dims", self.batch_axes)])
    }
}

fn output(selection: Selection, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
    check_count(operands, 2..=2)?;
    check_dtype(operands, 1, DType::I64)?;
    Ok((selection.selected(operands[0].0, operands[1].0)?, operands[0].1))
}

fn compute(selection: Selection, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    fn of<T: Typed>(places: &[usize], row: usize, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let x = values::<T>(operands, 0)?;
        tensor(shape, places.iter().flat_map(|place| x[place * row..(place + 1) * row].iter().copied()).collect())
    }
    let (data, indices) = (operands[0].shape(), operands[1].shape());
    let places = selection.places(data, indices, &values::<i64>(operands, 1)?)?;
    let row = selection.row(data, indices);
    by_type!(operands[0].dtype(), of(&places, row, operands, shape))
}

fn parts(selection: Selection, node: &NodeView) -> Option<Vec<SubNode>> {
    let (data, indices) = (node.shape(0), node.shape(1));
    let mut parts = SubNodes::new(node);
    let numbers = selection.numbered(&mut parts, data, (1, indices))?;
    select(&mut parts, 0, [product(data)?, selection.row(data, indices)], numbers, node.output().0);
    Some(parts.finish())
}

fn elementwise(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let (x, indices) = (call.operand(0)?, call.operand(1)?);
    let axis = axis(call.int_or("axis", 0)?, call.rank(x))?;
    call.add(GatherElements { axis }, &[x, indices])
}

fn of_tuples(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let (x, indices) = (call.operand(0)?, call.operand(1)?);
    match usize::try_from(call.int_or("batch_dims", 0)?) {
        Ok(batch_axes) => call.add(GatherNd { batch_axes }, &[x, indices]),
        Err(_) => error::unfit("the number of shared axes is negative"),
    }
}
