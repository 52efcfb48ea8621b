//! Tests of elements, and tensors that choose elements by position.

use autotune_ir::program::UnaryOp;
use autotune_workloads::ReduceOp;

use super::binary::Binary;
use super::choose::Where;
use super::not::Not;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;
use crate::onnx::tensor;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("IsNaN", is_nan),
    OnnxOperator::one("IsInf", is_infinite),
    OnnxOperator::one("Trilu", triangle),
    OnnxOperator::one("EyeLike", eye),
    OnnxOperator::one("OneHot", one_hot),
    OnnxOperator::one("Hardmax", hardmax),
];

fn is_nan(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    // NaN is the only number that differs from itself.
    let is_number = call.binary(Binary::Equal, x, x)?;
    call.add(Not, &[is_number])
}

fn is_infinite(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let signs = (call.flag("detect_negative", true)?, call.flag("detect_positive", true)?);
    let (compared, number) = match signs {
        (true, true) => (call.unary(UnaryOp::Abs, x)?, f32::INFINITY),
        (true, false) => (x, f32::NEG_INFINITY),
        (false, true) => (x, f32::INFINITY),
        // No number is less than minus infinity.
        (false, false) => {
            let least = call.number(f32::NEG_INFINITY, x)?;
            return call.binary(Binary::Less, x, least);
        }
    };
    call.with(Binary::Equal, compared, number)
}

impl Call<'_> {
    /// Adds the integers from `first` on along one axis of `rank`, the axis with this number.
    /// Kernels compare at most 2^24 of them exactly.
    pub(super) fn positions(&mut self, first: i64, count: usize, [axis, rank]: [usize; 2]) -> Result<ImportValue> {
        if count > 1 << 24 {
            return unfit(format!("an axis of {count} positions; at most 2^24 are supported"));
        }
        let mut shape = vec![1; rank];
        shape[axis] = count;
        let numbers = (0..count as i64).map(|at| first.saturating_add(at)).collect();
        Ok(self.constant(Tensor::i64(&shape, numbers)?))
    }

    /// Adds the position of each row's first element, `k` columns ahead, and of each column, of
    /// matrices.
    fn diagonal(&mut self, shape: &[usize], k: i64) -> Result<[ImportValue; 2]> {
        let &[.., rows, columns] = shape else { return unfit(format!("shape {shape:?} has no rows and columns")) };
        Ok([self.positions(k, rows, [0, 2])?, self.positions(0, columns, [1, 2])?])
    }
}

/// Imports the upper or lower triangle of matrices; other elements become zero.
fn triangle(call: &mut Call) -> Result<ImportValue> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let k = call.known_integers(1)?.and_then(|k| k.first().copied()).unwrap_or(0);
    let is_upper = call.flag("upper", true)?;
    let [row, column] = call.diagonal(&call.shape(x), k)?;
    let order = if is_upper { [column, row] } else { [row, column] };
    let is_zero = call.add(Binary::Less, &order)?;
    let zero = call.constant(Tensor::of_numbers(&[], call.dtype(x), &[0.0])?);
    call.add(Where, &[is_zero, zero, x])
}

/// Imports a matrix with ones along a diagonal, of the attribute's type or of the input's.
fn eye(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let to = call.element_type("dtype")?.unwrap_or(call.dtype(x));
    let k = call.int_or("k", 0)?;
    let [row, column] = call.diagonal(&call.shape(x), k)?;
    let is_one = call.binary(Binary::Equal, row, column)?;
    call.cast(to, is_one)
}

/// Imports a new axis of `depth` positions: one value at the index, another elsewhere. A negative
/// index counts from the end.
fn one_hot(call: &mut Call) -> Result<ImportValue> {
    call.check_most(3)?;
    let (x, values) = (call.operand(0)?, call.operand(2)?);
    let depth = call.known_number(1)?.ok_or_else(|| missing(1))?;
    let depth = tensor::extents(&[depth as i64]).map_err(NodeError::Unfit)?[0];
    if call.shape(values) != [2] {
        return unfit(format!("expected two values, found shape {:?}", call.shape(values)));
    }
    let mut shape = call.shape(x);
    let axis = axis(call.int_or("axis", -1)?, shape.len() + 1)?;
    shape.insert(axis, 1);

    let index = call.cast(DType::I64, x)?;
    let index = call.reshape(&shape, index)?;
    let zero = call.number(0.0, index)?;
    let from_end = call.binary(Binary::Less, index, zero)?;
    let extent = call.constant(Tensor::i64(&[], vec![depth as i64])?);
    let counted = call.binary(Binary::Add, index, extent)?;
    let index = call.add(Where, &[from_end, counted, index])?;
    let positions = call.positions(0, depth, [axis, shape.len()])?;
    let is_there = call.binary(Binary::Equal, positions, index)?;

    let [off, on] = [0, 1].map(|at| call.part(values, 0, [at, 1]).and_then(|value| call.reshape(&[], value)));
    call.add(Where, &[is_there, on?, off?])
}

/// Imports ones at the first maximum along an axis, and zeros elsewhere. Before opset 13 all axes
/// from `axis` on form one row.
fn hardmax(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let shape = call.shape(x);
    let is_row = call.version < 13;
    let axis = axis(call.int_or("axis", if is_row { 1 } else { -1 })?, shape.len())?;
    let (rows, axis) = match is_row {
        true => (call.reshape(&[elements(&shape[..axis])?, elements(&shape[axis..])?], x)?, 1),
        false => (x, axis),
    };
    let found = call.place_along(ReduceOp::Max, rows, axis, [true, false])?;
    let extents = call.shape(rows);
    let positions = call.positions(0, extents[axis], [axis, extents.len()])?;
    let is_there = call.binary(Binary::Equal, positions, found)?;
    let ones = call.cast(DType::F32, is_there)?;
    call.reshape(&shape, ones)
}
