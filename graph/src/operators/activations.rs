//! Imports of elementwise functions that become one operator or a short chain of several.

use autotune_ir::program::UnaryOp;
use autotune_workloads::Activation;

use super::binary::Binary;
use super::choose::Where;
use super::prelude::*;
use crate::onnx::call::Result;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Ceil", ceil),
    OnnxOperator::one("Reciprocal", reciprocal),
    OnnxOperator::one("Relu", relu),
    OnnxOperator::one("HardSigmoid", hard_sigmoid),
    OnnxOperator::one("Swish", swish),
    OnnxOperator::one("Clip", clip),
    OnnxOperator::one("Round", round),
    OnnxOperator::one("Celu", celu),
    OnnxOperator::one("Selu", selu),
    OnnxOperator::one("Softsign", softsign),
    OnnxOperator::one("ThresholdedRelu", thresholded_relu),
    OnnxOperator::one("Shrink", shrink),
];

fn ceil(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    // Kernels have a floor only: ceil(x) = -floor(-x).
    let opposite = call.unary(UnaryOp::Neg, x)?;
    let floor = call.unary(UnaryOp::Floor, opposite)?;
    call.unary(UnaryOp::Neg, floor)
}

fn reciprocal(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let one = call.number(1.0, x)?;
    call.binary(Binary::Div, one, x)
}

fn relu(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    match call.dtype(x) {
        DType::I64 => call.with(Binary::Max, x, 0.0),
        _ => call.activation(Activation::Relu, x),
    }
}

/// Imports rounding to the nearest integer, ties to even.
fn round(call: &mut Call) -> Result<ImportValue> {
    // From 2^23 on, all numbers are integers.
    const END: f32 = 8_388_608.0;
    let x = call.only()?;
    let rounded = call.with_parameters("round", &[-END, END], x)?;
    let magnitude = call.unary(UnaryOp::Abs, x)?;
    let end = call.number(END, x)?;
    let has_fraction = call.binary(Binary::Less, magnitude, end)?;
    call.add(Where, &[has_fraction, rounded, x])
}

fn hard_sigmoid(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let (alpha, beta) = (call.float_or("alpha", 0.2)?, call.float_or("beta", 0.5)?);
    // As an activation it can be fused into an epilogue; parameters outside the activation's range
    // cannot.
    if let Ok(activation) = Activation::new("hard_sigmoid", &[alpha, beta]) {
        return call.activation(activation, x);
    }
    let scaled = call.with(Binary::Mul, x, alpha)?;
    let shifted = call.with(Binary::Add, scaled, beta)?;
    call.with_parameters("clip", &[0.0, 1.0], shifted)
}

/// Imports `x * sigmoid(alpha * x)`.
fn swish(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let alpha = call.float_or("alpha", 1.0)?;
    of_sigmoid(call, x, alpha)
}

/// Adds `x * sigmoid(alpha * x)`.
pub(super) fn of_sigmoid(call: &mut Call, x: ImportValue, alpha: f32) -> Result<ImportValue> {
    if alpha == 1.0 {
        return call.activation(Activation::Silu, x);
    }
    let scaled = call.with(Binary::Mul, x, alpha)?;
    let sigmoid = call.activation(Activation::Sigmoid, scaled)?;
    call.binary(Binary::Mul, x, sigmoid)
}

/// Imports a clamp. Bounds are attributes before opset 11 and inputs since; a missing bound is
/// infinite.
fn clip(call: &mut Call) -> Result<ImportValue> {
    call.check_most(if call.version < 11 { 1 } else { 3 })?;
    let x = call.operand(0)?;
    let bounds = match call.version < 11 {
        true => {
            let (lo, hi) = (call.float("min")?, call.float("max")?);
            let mut value = |bound: Option<f32>| bound.map(|bound| call.number(bound, x)).transpose();
            [value(lo)?, value(hi)?]
        }
        false => [call.optional(1), call.optional(2)],
    };

    let known = |bound: Option<ImportValue>, none: f32| match bound {
        Some(bound) => call.number_of(bound),
        None => Some(none),
    };
    // With constant bounds the clamp is an activation, which can be fused into an epilogue.
    let numbers = known(bounds[0], f32::NEG_INFINITY).zip(known(bounds[1], f32::INFINITY));
    match numbers {
        _ if bounds == [None, None] => Ok(x),
        Some((0.0, f32::INFINITY)) if call.dtype(x) == DType::F32 => call.activation(Activation::Relu, x),
        Some((lo, hi)) if call.dtype(x) == DType::F32 && Activation::new("clip", &[lo, hi]).is_ok() => {
            call.with_parameters("clip", &[lo, hi], x)
        }
        _ => {
            let above = bounds[0].map_or(Ok(x), |lo| call.binary(Binary::Max, x, lo))?;
            bounds[1].map_or(Ok(above), |hi| call.binary(Binary::Min, above, hi))
        }
    }
}

/// Imports `max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1)`.
fn celu(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let alpha = call.float_or("alpha", 1.0)?;
    if alpha == 1.0 {
        return call.with_parameters("elu", &[alpha], x);
    }
    let above = call.activation(Activation::Relu, x)?;
    let below = call.with(Binary::Min, x, 0.0)?;
    let below = call.with(Binary::Div, below, alpha)?;
    let below = call.with_parameters("elu", &[1.0], below)?;
    let below = call.with(Binary::Mul, below, alpha)?;
    call.binary(Binary::Add, above, below)
}

fn selu(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let (alpha, gamma) = (call.float_or("alpha", 1.673_263_2)?, call.float_or("gamma", 1.050_701)?);
    let elu = call.with_parameters("elu", &[alpha], x)?;
    call.with(Binary::Mul, elu, gamma)
}

fn softsign(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let size = call.unary(UnaryOp::Abs, x)?;
    let divisor = call.with(Binary::Add, size, 1.0)?;
    call.binary(Binary::Div, x, divisor)
}

fn thresholded_relu(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let alpha = call.float_or("alpha", 1.0)?;
    let (alpha, zero) = (call.number(alpha, x)?, call.number(0.0, x)?);
    let is_above = call.binary(Binary::Less, alpha, x)?;
    call.add(Where, &[is_above, x, zero])
}

/// Imports soft shrinkage: values in `[-lambd, lambd]` become zero, others move towards zero by
/// `bias`.
fn shrink(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let (lambd, bias) = (call.float_or("lambd", 0.5)?, call.float_or("bias", 0.0)?);
    let (hi, lo, zero) = (call.number(lambd, x)?, call.number(-lambd, x)?, call.number(0.0, x)?);
    let is_above = call.binary(Binary::Less, hi, x)?;
    let is_below = call.binary(Binary::Less, x, lo)?;
    let above = call.with(Binary::Sub, x, bias)?;
    let below = call.with(Binary::Add, x, bias)?;
    let rest = call.add(Where, &[is_above, above, zero])?;
    call.add(Where, &[is_below, below, rest])
}
