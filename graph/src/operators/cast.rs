//! Conversion to another element type.

use autotune_workloads::{Pointwise, PointwiseOp, Types, Workload};

use super::pointwise::{pointwise, rows_and_columns};
use super::prelude::*;
use crate::memory::is_of_bytes;
use crate::onnx::attribute::{data_type, typed};
use crate::onnx::tensor;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("Cast", import).keeps_bytes(), OnnxOperator::one("CastLike", cast_like).keeps_bytes()];

/// Conversion to another element type. Fractions are truncated; a nonzero number is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast(pub DType);

impl Operator for Cast {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        Ok((operands[0].0.to_vec(), self.0))
    }

    fn compute(&self, operands: &[&Tensor], _: &[usize]) -> Result<Tensor, OpError> {
        let from = operands[0];
        Ok(match (from, self.0) {
            (from, to) if from.dtype() == to => from.clone(),
            (Tensor::F32(x), DType::I64) => Tensor::I64(x.mapv(|x| x as i64)),
            (Tensor::F32(x), DType::Bool) => Tensor::Bool(x.mapv(|x| x != 0.0)),
            (Tensor::I64(x), DType::F32) => Tensor::F32(x.mapv(|x| x as f32)),
            (Tensor::I64(x), DType::Bool) => Tensor::Bool(x.mapv(|x| x != 0)),
            (Tensor::Bool(x), DType::F32) => Tensor::F32(x.mapv(|x| f32::from(u8::from(x)))),
            (Tensor::Bool(x), DType::I64) => Tensor::I64(x.mapv(i64::from)),
            (Tensor::I64(x), DType::I8) => Tensor::I8(x.mapv(|x| x as i8)),
            (Tensor::I64(x), DType::U8) => Tensor::U8(x.mapv(|x| x as u8)),
            (Tensor::I8(x), DType::I64) => Tensor::I64(x.mapv(i64::from)),
            (Tensor::U8(x), DType::I64) => Tensor::I64(x.mapv(i64::from)),
            (Tensor::I8(x), DType::F32) => Tensor::F32(x.mapv(f32::from)),
            (Tensor::U8(x), DType::F32) => Tensor::F32(x.mapv(f32::from)),
            (_, to) => return Err(no_tensor(to)),
        })
    }

    fn is_cheap(&self) -> bool {
        true
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        match (node.dtype(0), self.0) {
            (DType::F32 | DType::I64, DType::Bool) => pointwise(node, PointwiseOp::Bool),
            (DType::F32, DType::I64) => pointwise(node, PointwiseOp::Trunc),
            (DType::I8 | DType::U8, DType::F32 | DType::I64) => copied_as(node, node.dtype(0), DType::F32),
            (DType::I64, DType::I8 | DType::U8) => copied_as(node, DType::F32, self.0),
            _ => None,
        }
    }

    /// Returns the whole operand as a piece if the cast changes no bits: all types except the 8-bit
    /// ones share one type in memory.
    fn movement(&self, node: &NodeView) -> Option<Movement> {
        let from = node.dtype(0);
        let of_bytes = is_of_bytes(from) || is_of_bytes(self.0);
        let is_same = from == self.0 || from != DType::F32 && self.0 != DType::Bool && !of_bytes;
        is_same.then_some(Movement::Piece(0))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("Cast", vec![typed("to", data_type(self.0))])
    }
}

/// Returns a copy that reads elements of one memory type and writes another.
fn copied_as(node: &NodeView, data: DType, out: DType) -> Option<Anchor> {
    let copy = Workload::new(Pointwise::copy(rows_and_columns(node.output().0))).ok()?;
    let types = Types { out, ..Types::of_sums(data, data) };
    Some(Anchor::new(copy.with_types(types).ok()?, node))
}

impl Call<'_> {
    pub(crate) fn cast(&mut self, dtype: DType, x: ImportValue) -> call::Result<ImportValue> {
        match self.dtype(x) == dtype {
            true => Ok(x),
            false => self.add(Cast(dtype), &[x]),
        }
    }

    /// Returns an attribute that is an element type of the file.
    pub(super) fn element_type(&self, name: &'static str) -> call::Result<Option<DType>> {
        let Some(number) = self.int(name)? else { return Ok(None) };
        let number = i32::try_from(number).map_err(|_| attribute(name, "unknown element type"))?;
        let dtype = tensor::dtype(Some(rten_onnx::onnx::DataType(number)));
        dtype.map(Some).map_err(|reason| attribute(name, reason))
    }
}

/// Imports a cast. Types that are one [`DType`] here are not told apart, so a cast to f16 does not
/// round.
fn import(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.only()?;
    // These apply to casts to 8-bit floating point only.
    call.ignore(&["saturate", "round_mode"]);
    let to = call.element_type("to")?.ok_or_else(|| attribute("to", "is missing"))?;
    converted(call, to, x)
}

/// Adds a conversion of a node. An operand of 8 bits is widened first unless it becomes a number of
/// 32 or 64 bits.
fn converted(call: &mut Call, to: DType, x: ImportValue) -> call::Result<ImportValue> {
    let is_direct = !is_of_bytes(call.dtype(x)) || matches!(to, DType::F32 | DType::I64);
    let x = if is_direct { x } else { call.cast(DType::I64, x)? };
    call.cast(to, x)
}

fn cast_like(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    // These apply to casts to 8-bit floating point only.
    call.ignore(&["saturate", "round_mode"]);
    let (x, like) = (call.operand(0)?, call.operand(1)?);
    // Integers of 8 bits are one type with others in a graph, except where they stay 8-bit.
    let to = call.dtype(like);
    converted(call, if is_of_bytes(to) { DType::I64 } else { to }, x)
}
