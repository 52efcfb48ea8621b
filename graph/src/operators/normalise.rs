//! Normalisations that become several operators.

use autotune_ir::program::UnaryOp;
use autotune_workloads::ReduceOp;

use super::binary::Binary;
use super::choose::Where;
use super::layer_norm::EPS;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("BatchNormalization", batch_norm),
    OnnxOperator::one("LpNormalization", lp_norm),
    OnnxOperator::one("MeanVarianceNormalization", mean_variance),
];

/// Reshapes a vector of channels so that it broadcasts to images of `rank` axes.
fn of_channels(call: &mut Call, numbers: ImportValue, rank: usize) -> Result<ImportValue> {
    let shape = call.shape(numbers);
    match shape.len() == 1 && rank > 1 {
        true => call.reshape(&[shape, vec![1; rank - 2]].concat(), numbers),
        false => unfit(format!("parameters of shape {shape:?} do not match the channels of a tensor of {rank} axes")),
    }
}

/// Imports `x * a + b` with `a = scale / sqrt(variance + eps)` and `b = bias - mean * a`; both are
/// constants if the statistics are.
fn batch_norm(call: &mut Call) -> Result<ImportValue> {
    call.check_most(5)?;
    call.ignore(&["momentum", "is_test"]);
    let eps = call.float_or("epsilon", EPS)?;
    if call.flag("training_mode", false)? || !call.flag("spatial", true)? {
        return unfit("training mode is not supported");
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

/// Imports `x` divided by its L1 or L2 norm along an axis; where the norm is 0 in f32, the output
/// is zero.
fn lp_norm(call: &mut Call) -> Result<ImportValue> {
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
        _ => return Err(attribute("p", "expected 1 or 2")),
    };
    // Dividing by infinity yields the zeros.
    let (zero, infinity) = (call.number(0.0, x)?, call.number(f32::INFINITY, x)?);
    let is_zero = call.binary(Binary::Equal, norm, zero)?;
    let divisor = call.add(Where, &[is_zero, infinity, norm])?;
    call.binary(Binary::Div, x, divisor)
}

/// Imports `(x - mean) / (deviation + 1e-9)` with statistics along axes, by default all but the
/// channels.
fn mean_variance(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let along = axes(call.ints("axes")?.unwrap_or(&[0, 2, 3]), call.rank(x))?;
    let mean = call.reduce(ReduceOp::Mean, &along, true, x)?;
    let centred = call.binary(Binary::Sub, x, mean)?;
    let squares = call.binary(Binary::Mul, centred, centred)?;
    let variance = call.reduce(ReduceOp::Mean, &along, true, squares)?;
    let deviation = call.unary(UnaryOp::Sqrt, variance)?;
    let divisor = call.with(Binary::Add, deviation, 1e-9)?;
    call.binary(Binary::Div, centred, divisor)
}
