//! Normalisations.

use autotune_ir::program::UnaryOp;
use autotune_workloads::ReduceOp;

use super::Convert::{self, One};
use crate::onnx::call::{Call, Result, attribute, axis};
use crate::onnx::draft::Value;
use crate::onnx::error::unfit;
use crate::op::{Binary, Op};
use crate::tensor::{Tensor, elements};

pub(super) const OPERATORS: &[(&str, Convert)] = &[
    ("BatchNormalization", One(batch_norm)),
    ("InstanceNormalization", One(instance_norm)),
    ("GroupNormalization", One(group_norm)),
    ("LayerNormalization", One(layer_norm)),
    ("RMSNormalization", One(rms_norm)),
    ("LpNormalization", One(lp_norm)),
    ("LRN", One(local_response_norm)),
    ("Softmax", One(|call| softmax(call, false))),
    ("LogSoftmax", One(|call| softmax(call, true))),
];

const EPS: f32 = 1e-5;

/// Numbers of channels, as they are broadcast to images of some axes.
fn of_channels(call: &mut Call, numbers: Value, rank: usize) -> Result<Value> {
    let shape = call.shape(numbers);
    match shape.len() == 1 && rank > 1 {
        true => call.reshape(&[shape, vec![1; rank - 2]].concat(), numbers),
        false => unfit(format!("numbers of channels of shape {shape:?} for a tensor of {rank} axes")),
    }
}

/// `x * a + b` with `a = scale / sqrt(variance + eps)` and `b = bias - mean * a`, which are constants where the statistics are.
fn batch_norm(call: &mut Call) -> Result<Value> {
    call.check_most(5)?;
    call.ignore(&["momentum", "is_test"]);
    let eps = call.float_or("epsilon", EPS)?;
    if call.flag("training_mode", false)? || !call.flag("spatial", true)? {
        return unfit("it is supported with the statistics of channels only, not for training");
    }
    let [x, scale, bias, mean, variance] =
        [call.operand(0)?, call.operand(1)?, call.operand(2)?, call.operand(3)?, call.operand(4)?];

    let shifted = call.with(Binary::Add, variance, eps)?;
    let reciprocal = call.unary(UnaryOp::Rsqrt, shifted)?;
    let a = call.binary(Binary::Mul, scale, reciprocal)?;
    let moved = call.binary(Binary::Mul, mean, a)?;
    let b = call.binary(Binary::Sub, bias, moved)?;

    let rank = call.rank(x);
    let (a, b) = (of_channels(call, a, rank)?, of_channels(call, b, rank)?);
    let scaled = call.binary(Binary::Mul, x, a)?;
    call.binary(Binary::Add, scaled, b)
}

fn instance_norm(call: &mut Call) -> Result<Value> {
    call.check_most(3)?;
    let eps = call.float_or("epsilon", EPS)?;
    let operands = [call.operand(0)?, call.operand(1)?, call.operand(2)?];
    let &[_, groups, ..] = &call.shape(operands[0])[..] else { return unfit("an image has at least two axes") };
    call.add(Op::GroupNorm { groups, eps }, &operands)
}

fn group_norm(call: &mut Call) -> Result<Value> {
    call.check_most(3)?;
    call.ignore(&["stash_type"]);
    let eps = call.float_or("epsilon", EPS)?;
    let groups = call.int("num_groups")?.and_then(|groups| usize::try_from(groups).ok()).filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| attribute("num_groups", "it is missing or not positive"))?;
    let x = call.operand(0)?;
    let &[_, channels, ..] = &call.shape(x)[..] else { return unfit("an image has at least two axes") };

    let (mut scale, mut bias) = (call.operand(1)?, call.operand(2)?);
    // Before version 21 there is one number for each group.
    if call.version < 21 {
        let of_channels = |call: &mut Call, numbers| {
            let numbers = call.reshape(&[groups, 1], numbers)?;
            let numbers = call.expand(&[groups, channels / groups], numbers)?;
            call.reshape(&[channels], numbers)
        };
        (scale, bias) = (of_channels(call, scale)?, of_channels(call, bias)?);
    }
    call.add(Op::GroupNorm { groups, eps }, &[x, scale, bias])
}

fn layer_norm(call: &mut Call) -> Result<Value> {
    call.check_most(3)?;
    call.ignore(&["stash_type"]);
    let eps = call.float_or("epsilon", EPS)?;
    let x = call.operand(0)?;
    let axis = axis(call.int_or("axis", -1)?, call.rank(x))?;
    let rows = call.shape(x)[axis..].to_vec();
    let mut operands = vec![x];
    for numbers in [Some(call.operand(1)?), call.optional(2)].into_iter().flatten() {
        operands.push(call.expand(&rows, numbers)?);
    }
    call.add(Op::LayerNorm { axis, eps }, &operands)
}

/// `x / sqrt(mean of squares + eps) * scale`.
fn rms_norm(call: &mut Call) -> Result<Value> {
    call.check_most(2)?;
    call.ignore(&["stash_type"]);
    let eps = call.float_or("epsilon", EPS)?;
    let (x, scale) = (call.operand(0)?, call.operand(1)?);
    let axis = axis(call.int_or("axis", -1)?, call.rank(x))?;
    let axes: Vec<usize> = (axis..call.rank(x)).collect();

    let squares = call.binary(Binary::Mul, x, x)?;
    let mean = call.reduce(ReduceOp::Mean, &axes, true, squares)?;
    let shifted = call.with(Binary::Add, mean, eps)?;
    let reciprocal = call.unary(UnaryOp::Rsqrt, shifted)?;
    let normal = call.binary(Binary::Mul, x, reciprocal)?;
    call.binary(Binary::Mul, normal, scale)
}

/// `x` by the sum of sizes along an axis, or by the root of the sum of squares; what has no size in
/// f32 becomes zeros.
fn lp_norm(call: &mut Call) -> Result<Value> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let axis = axis(call.int_or("axis", -1)?, call.rank(x))?;
    let norm = match call.int_or("p", 2)? {
        1 => {
            let sizes = call.unary(UnaryOp::Abs, x)?;
            call.reduce(ReduceOp::Sum, &[axis], true, sizes)?
        }
        2 => {
            let squares = call.binary(Binary::Mul, x, x)?;
            let sum = call.reduce(ReduceOp::Sum, &[axis], true, squares)?;
            call.unary(UnaryOp::Sqrt, sum)?
        }
        _ => return Err(attribute("p", "it is neither 1 nor 2")),
    };
    let (zero, infinity) = (call.number(0.0, x)?, call.number(f32::INFINITY, x)?);
    let is_zero = call.binary(Binary::Equal, norm, zero)?;
    let divisor = call.add(Op::Where, &[is_zero, infinity, norm])?;
    call.binary(Binary::Div, x, divisor)
}

fn local_response_norm(call: &mut Call) -> Result<Value> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let size = call.int("size")?.and_then(|size| usize::try_from(size).ok());
    let size = size.ok_or_else(|| attribute("size", "it is missing or negative"))?;
    let op = Op::LocalResponseNorm {
        size,
        alpha: call.float_or("alpha", 1e-4)?,
        beta: call.float_or("beta", 0.75)?,
        bias: call.float_or("bias", 1.0)?,
    };
    call.add(op, &[x])
}

/// Before version 13 rows are made of all axes from one on.
fn softmax(call: &mut Call, log: bool) -> Result<Value> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    // A number without axes is a row of one.
    if shape.is_empty() {
        let zero_or_one = Tensor::scalar(if log { 0.0 } else { 1.0 });
        return Ok(call.constant(zero_or_one));
    }
    if call.version >= 13 {
        let axis = axis(call.int_or("axis", -1)?, shape.len())?;
        return call.add(Op::Softmax { axis, log }, &[x]);
    }

    let axis = axis(call.int_or("axis", if shape.len() > 1 { 1 } else { 0 })?, shape.len())?;
    if shape[axis + 1..].iter().all(|&extent| extent == 1) {
        return call.add(Op::Softmax { axis, log }, &[x]);
    }
    let rows = call.reshape(&[elements(&shape[..axis])?, elements(&shape[axis..])?], x)?;
    let rows = call.add(Op::Softmax { axis: 1, log }, &[rows])?;
    call.reshape(&shape, rows)
}
