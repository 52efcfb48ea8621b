//! Conversion to another element type.

use autotune_workloads::PointwiseOp;

use super::pointwise::pointwise;
use super::prelude::*;
use crate::onnx::attribute::{data_type, typed};
use crate::onnx::tensor;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("Cast", import), OnnxOperator::one("CastLike", cast_like)];

/// The same values as elements of another type: fractions are cut off, whatever is not 0 is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast(pub Element);

impl Operator for Cast {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, Element), OpError> {
        check_count(operands, 1..=1)?;
        Ok((operands[0].0.to_vec(), self.0))
    }

    fn compute(&self, operands: &[&Tensor], _: &[usize]) -> Result<Tensor, OpError> {
        let to = self.0;
        let from = operands[0];
        match from {
            Tensor::F32(x) => match to {
                Element::F32 => Ok(from.clone()),
                Element::I64 => Ok(Tensor::I64(x.mapv(|x| x as i64))),
                Element::Bool => Ok(Tensor::Bool(x.mapv(|x| x != 0.0))),
            },
            Tensor::I64(x) => match to {
                Element::F32 => Ok(Tensor::F32(x.mapv(|x| x as f32))),
                Element::I64 => Ok(from.clone()),
                Element::Bool => Ok(Tensor::Bool(x.mapv(|x| x != 0))),
            },
            Tensor::Bool(x) => match to {
                Element::F32 => Ok(Tensor::F32(x.mapv(|x| f32::from(u8::from(x))))),
                Element::I64 => Ok(Tensor::I64(x.mapv(i64::from))),
                Element::Bool => Ok(from.clone()),
            },
        }
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        match (node.element(0), self.0) {
            (Element::F32 | Element::I64, Element::Bool) => pointwise(node, PointwiseOp::Bool),
            (Element::F32, Element::I64) => pointwise(node, PointwiseOp::Trunc),
            _ => None,
        }
    }

    /// Elements of every type are numbers in memory.
    fn movement(&self, node: &NodeView) -> Option<Movement> {
        let from = node.element(0);
        let is_same = from == self.0 || from != Element::F32 && self.0 != Element::Bool;
        is_same.then_some(Movement::Piece(0))
    }

    fn export(&self, to: &mut Writer) -> Result<(), ExportError> {
        to.operator("Cast", vec![typed("to", data_type(self.0))])
    }
}

impl Call<'_> {
    pub(crate) fn cast(&mut self, element: Element, x: Value) -> call::Result<Value> {
        match self.element(x) == element {
            true => Ok(x),
            false => self.add(Cast(element), &[x]),
        }
    }
}

/// Between types that are one here nothing is cast: what f16 would round is not rounded.
fn import(call: &mut Call) -> call::Result<Value> {
    let x = call.only()?;
    call.ignore(&["saturate", "round_mode"]);
    let to = call.int("to")?.ok_or_else(|| attribute("to", "it is missing"))?;
    let to = i32::try_from(to).map_err(|_| attribute("to", "it is no type"))?;
    let element = tensor::element(Some(rten_onnx::onnx::DataType(to)));
    let element = element.map_err(|reason| attribute("to", reason))?;
    call.cast(element, x)
}

fn cast_like(call: &mut Call) -> call::Result<Value> {
    call.check_most(2)?;
    call.ignore(&["saturate", "round_mode"]);
    let (x, like) = (call.operand(0)?, call.operand(1)?);
    call.cast(call.element(like), x)
}
