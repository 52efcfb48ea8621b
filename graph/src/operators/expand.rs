//! Broadcast to a shape.

use super::prelude::*;
use crate::constant::Constant;
use crate::onnx::error::unfit;
use crate::onnx::tensor::extents;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("Expand", import), OnnxOperator::one("Tile", tile)];

/// Broadcast of a tensor to a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expand(pub Vec<usize>);

impl Operator for Expand {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        Ok((fixed(&self.0, operands[0].0)?, operands[0].1))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let steps = broadcast_strides(operands[0].shape(), shape);
        by_type!(operands[0].dtype(), along(operands, steps, shape))
    }

    fn movement(&self, node: &NodeView) -> Option<Movement> {
        let steps = broadcast_strides(node.shape(0), node.output().0).into_iter().map(|step| step as isize);
        Some(Movement::Strided { from: 0, steps: steps.collect() })
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let shape = to.integers(self.0.iter().map(|&extent| extent as i64))?;
        to.node("Expand", &[&to.input(0), &shape], vec![])
    }
}

impl Call<'_> {
    pub(crate) fn expand(&mut self, shape: &[usize], x: ImportValue) -> call::Result<ImportValue> {
        match self.draft.shape(x) == shape {
            true => Ok(x),
            false => self.add(Expand(shape.to_vec()), &[x]),
        }
    }

    /// Adds a constant that repeats one value.
    pub(crate) fn filled(&mut self, value: &Constant, shape: &[usize]) -> call::Result<ImportValue> {
        Ok(self.draft.computed(self.name, Expand(shape.to_vec()), value)?)
    }
}

/// Imports a broadcast; the target shape and the input's broadcast to each other.
fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let shape = call.known_integers(1)?.ok_or_else(|| missing(1))?;
    let shape = extents(&shape).map_err(NodeError::Unfit)?;
    let shape = broadcast(&call.shape(x), &shape)?;
    call.expand(&shape, x)
}

/// Imports repetition. Each repeated axis becomes two: a new outer axis, which is broadcast, and
/// the original.
fn tile(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let repeats = call.known_integers(1)?.ok_or_else(|| missing(1))?;
    let repeats: Option<Vec<usize>> = repeats.iter().map(|&times| usize::try_from(times).ok()).collect();
    let Some(repeats) = repeats.filter(|repeats| repeats.len() == shape.len()) else {
        return unfit(format!("the repeats do not match a tensor of shape {shape:?}"));
    };

    let mut tiled = x;
    for axis in (0..shape.len()).filter(|&axis| repeats[axis] != 1) {
        let mut split = call.shape(tiled);
        split.insert(axis, 1);
        tiled = call.reshape(&split, tiled)?;
        split[axis] = repeats[axis];
        tiled = call.expand(&split, tiled)?;
        let whole = repeats[axis].checked_mul(shape[axis]).ok_or_else(|| OpError::TooLarge { shape: split.clone() })?;
        split.splice(axis..axis + 2, [whole]);
        tiled = call.reshape(&split, tiled)?;
    }
    Ok(tiled)
}
