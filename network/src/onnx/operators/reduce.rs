//! Reductions along axes.

use autotune_ir::program::UnaryOp;
use autotune_workloads::ReduceOp;

use super::Convert::{self, One};
use crate::onnx::call::{Call, Result, axes, axis};
use crate::onnx::draft::Value;
use crate::op::{Binary, Op};
use crate::tensor::{Element, Tensor};

pub(super) const OPERATORS: &[(&str, Convert)] = &[
    ("ReduceSum", One(|call| plain(call, ReduceOp::Sum))),
    ("ReduceMean", One(|call| plain(call, ReduceOp::Mean))),
    ("ReduceMax", One(|call| plain(call, ReduceOp::Max))),
    ("ReduceMin", One(|call| plain(call, ReduceOp::Min))),
    ("ReduceProd", One(|call| plain(call, ReduceOp::Prod))),
    ("ReduceL1", One(l1)),
    ("ReduceL2", One(l2)),
    ("ReduceSumSquare", One(sum_square)),
    ("ReduceLogSum", One(log_sum)),
    ("ReduceLogSumExp", One(log_sum_exp)),
    ("ArgMax", One(|call| place_of(call, ReduceOp::Max))),
    ("ArgMin", One(|call| place_of(call, ReduceOp::Min))),
];

/// What is reduced: a tensor and its axes.
struct Reduction {
    x: Value,
    axes: Vec<usize>,
    keep_axes: bool,
}

impl Reduction {
    /// Axes are an attribute before version 18, and before 13 that of sums; without any all are meant, unless nothing is.
    fn of(call: &Call) -> Result<Self> {
        let since = if call.is("ReduceSum") { 13 } else { 18 };
        call.check_most(if call.version < since { 1 } else { 2 })?;
        let x = call.operand(0)?;
        let rank = call.rank(x);
        let said = call.integers("axes", 1, since)?.filter(|said| !said.is_empty());
        let none_if_empty = call.flag("noop_with_empty_axes", false)?;
        let axes = match said {
            Some(said) => axes(&said, rank)?,
            None if none_if_empty => Vec::new(),
            None => (0..rank).collect(),
        };
        Ok(Self { x, axes, keep_axes: call.flag("keepdims", true)? })
    }

    fn reduced(&self, call: &mut Call, op: ReduceOp, x: Value) -> Result<Value> {
        match self.axes.is_empty() {
            true => Ok(x),
            false => call.reduce(op, &self.axes, self.keep_axes, x),
        }
    }
}

fn plain(call: &mut Call, op: ReduceOp) -> Result<Value> {
    let reduction = Reduction::of(call)?;
    reduction.reduced(call, op, reduction.x)
}

fn l1(call: &mut Call) -> Result<Value> {
    let reduction = Reduction::of(call)?;
    let sizes = call.unary(UnaryOp::Abs, reduction.x)?;
    reduction.reduced(call, ReduceOp::Sum, sizes)
}

fn sum_square(call: &mut Call) -> Result<Value> {
    let reduction = Reduction::of(call)?;
    let squares = call.binary(Binary::Mul, reduction.x, reduction.x)?;
    reduction.reduced(call, ReduceOp::Sum, squares)
}

fn l2(call: &mut Call) -> Result<Value> {
    let sum = sum_square(call)?;
    call.unary(UnaryOp::Sqrt, sum)
}

fn log_sum(call: &mut Call) -> Result<Value> {
    let reduction = Reduction::of(call)?;
    let sum = reduction.reduced(call, ReduceOp::Sum, reduction.x)?;
    call.unary(UnaryOp::Log, sum)
}

/// The largest, or the finite number next to it, comes out of the sum, so that nothing overflows
/// but what is infinite itself.
fn log_sum_exp(call: &mut Call) -> Result<Value> {
    let mut reduction = Reduction::of(call)?;
    let keep_axes = std::mem::replace(&mut reduction.keep_axes, true);
    let largest = reduction.reduced(call, ReduceOp::Max, reduction.x)?;
    let largest = call.with(Binary::Max, largest, f32::MIN)?;
    let largest = call.with(Binary::Min, largest, f32::MAX)?;
    let shifted = call.binary(Binary::Sub, reduction.x, largest)?;
    let powers = call.unary(UnaryOp::Exp, shifted)?;
    let sum = reduction.reduced(call, ReduceOp::Sum, powers)?;
    let log = call.unary(UnaryOp::Log, sum)?;
    let whole = call.binary(Binary::Add, log, largest)?;

    let shape = call.shape(whole).into_iter().enumerate();
    let shape: Vec<usize> =
        shape.filter(|(axis, _)| keep_axes || !reduction.axes.contains(axis)).map(|axis| axis.1).collect();
    call.reshape(&shape, whole)
}

/// Where the largest or smallest element is along an axis: of several the first, or the last. What
/// is not a number counts as either, as in NumPy.
fn place_of(call: &mut Call, op: ReduceOp) -> Result<Value> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let mut shape = vec![1; call.rank(x)];
    let axis = axis(call.int_or("axis", 0)?, shape.len())?;
    let (keep_axes, is_last) = (call.flag("keepdims", true)?, call.flag("select_last_index", false)?);

    let best = call.reduce(op, &[axis], true, x)?;
    let is_best = call.binary(Binary::Equal, x, best)?;
    let extent = call.shape(x)[axis] as i64;
    shape[axis] = call.shape(x)[axis];
    let places = call.constant(Tensor::i64(&shape, (0..extent).collect())?);
    // Others count as the place that is chosen last.
    let (other, op) = if is_last { (0, ReduceOp::Max) } else { (extent - 1, ReduceOp::Min) };
    let other = call.constant(Tensor::i64(&[], vec![other])?);
    let mut found = call.add(Op::Where, &[is_best, places, other])?;
    if call.element(x) == Element::F32 {
        let is_number = call.binary(Binary::Equal, x, x)?;
        found = call.add(Op::Where, &[is_number, found, places])?;
    }
    call.reduce(op, &[axis], keep_axes, found)
}
