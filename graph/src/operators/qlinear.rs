//! Operators on quantised tensors, imported as float operators between
//! [`Dequantize`](super::Dequantize) and [`Quantize`](super::Quantize).

use super::binary::Binary;
use super::prelude::*;
use super::{binary, concat, conv, map, matmul, pool, softmax};
use crate::onnx::MICROSOFT;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("QLinearConv", convolution).of_bytes(),
    OnnxOperator::one("QLinearMatMul", product_of_matrices).of_bytes(),
    OnnxOperator::one("QLinearAdd", |call| of_two(call, "Add")).of_bytes().in_domain(MICROSOFT),
    OnnxOperator::one("QLinearMul", |call| of_two(call, "Mul")).of_bytes().in_domain(MICROSOFT),
    OnnxOperator::one("QLinearSigmoid", |call| of_one(call, "Sigmoid")).of_bytes().in_domain(MICROSOFT),
    OnnxOperator::one("QLinearLeakyRelu", |call| of_one(call, "LeakyRelu")).of_bytes().in_domain(MICROSOFT),
    OnnxOperator::one("QLinearSoftmax", softmax_of).of_bytes().in_domain(MICROSOFT),
    OnnxOperator::one("QLinearAveragePool", |call| pooled(call, "AveragePool")).of_bytes().in_domain(MICROSOFT),
    OnnxOperator::one("QLinearGlobalAveragePool", |call| pooled(call, "GlobalAveragePool"))
        .of_bytes()
        .in_domain(MICROSOFT),
    OnnxOperator::one("QLinearConcat", concatenation).of_bytes().in_domain(MICROSOFT),
    OnnxOperator::one("QGemm", gemm).of_bytes().in_domain(MICROSOFT),
];

/// Import rules that include the float operators.
const FLOAT: &[&[OnnxOperator]] =
    &[binary::IMPORTS, concat::IMPORTS, conv::IMPORTS, map::IMPORTS, matmul::IMPORTS, pool::IMPORTS, softmax::IMPORTS];

/// Imports the float operator of this name on other operands, with the node's attributes.
fn float(call: &mut Call, operator: &str, operands: Vec<ImportValue>) -> call::Result<ImportValue> {
    let operator = FLOAT.iter().copied().flatten().find(|own| own.is("", operator)).ok_or(NodeError::Operator)?;
    // The float operator's import reads these in place of the node's inputs.
    let given = call.given(operands.into_iter().map(Some).collect());
    let made = operator.outputs(call, 1)?;
    call.given(given);
    made.first().copied().ok_or(NodeError::Output { output: 0 })
}

/// Imports a float operator and quantises its output by the scale and zero point at inputs
/// `output`.
fn between(
    call: &mut Call,
    operator: &str,
    operands: Vec<ImportValue>,
    output: [usize; 2],
    axis: i64,
) -> call::Result<ImportValue> {
    let made = float(call, operator, operands)?;
    call.quantised(made, output, axis)
}

fn of_one(call: &mut Call, operator: &str) -> call::Result<ImportValue> {
    call.check_most(5)?;
    let x = call.dequantised(0, [1, 2], 1)?;
    between(call, operator, vec![x], [3, 4], 1)
}

fn softmax_of(call: &mut Call) -> call::Result<ImportValue> {
    // The attribute is the opset version of the float operator.
    call.version = call.int_or("opset", 13)?;
    of_one(call, "Softmax")
}

fn pooled(call: &mut Call, operator: &str) -> call::Result<ImportValue> {
    if call.flag("channels_last", false)? {
        return Err(attribute("channels_last", "channels-last images are not supported"));
    }
    of_one(call, operator)
}

fn of_two(call: &mut Call, operator: &str) -> call::Result<ImportValue> {
    call.check_most(8)?;
    let (a, b) = (call.dequantised(0, [1, 2], 1)?, call.dequantised(3, [4, 5], 1)?);
    between(call, operator, vec![a, b], [6, 7], 1)
}

fn convolution(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(9)?;
    let (x, weights) = (call.dequantised(0, [1, 2], 1)?, call.dequantised(3, [4, 5], 0)?);
    let bias = bias(call, [1, 4], 8)?;
    let operands = [x, weights].into_iter().chain(bias).collect();
    between(call, "Conv", operands, [6, 7], 1)
}

/// Returns the bias, whose unit is the product of both scales, as f32.
fn bias(call: &mut Call, [x, weights]: [usize; 2], bias: usize) -> call::Result<Option<ImportValue>> {
    let Some(value) = call.optional(bias) else { return Ok(None) };
    let (x, weights) = (call.scale(x)?, call.scale(weights)?);
    let x = call.reshape(&[], x)?;
    let scale = call.binary(Binary::Mul, weights, x)?;
    let axis = call.rank(value).saturating_sub(1);
    call.dequantised_integers(value, scale, None, axis).map(Some)
}

/// Imports a matrix product. The first scale has one element for each row, the second for each
/// column.
fn product_of_matrices(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(8)?;
    let (a, b) = (call.dequantised(0, [1, 2], -2)?, call.dequantised(3, [4, 5], -1)?);
    between(call, "MatMul", vec![a, b], [6, 7], -2)
}

/// Imports a product; without an output scale its result is f32.
fn gemm(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(9)?;
    let columns = if call.flag("transB", false)? { 0 } else { 1 };
    let (a, b) = (call.dequantised(0, [1, 2], 1)?, call.dequantised(3, [4, 5], columns)?);
    let operands = [a, b].into_iter().chain(bias(call, [1, 4], 6)?).collect();
    match call.optional(7) {
        Some(_) => between(call, "Gemm", operands, [7, 8], 1),
        None => float(call, "Gemm", operands),
    }
}

fn concatenation(call: &mut Call) -> call::Result<ImportValue> {
    // Inputs are the output's scale and zero point, then tensor, scale and zero point of each part.
    let parts = call.count().saturating_sub(2) / 3;
    let part = |number: usize| 2 + 3 * number;
    if parts == 0 || part(parts) != call.count() {
        return Err(NodeError::Unfit(format!(
            "{} inputs, expected scale and zero point, then tensor, scale and zero point of each part",
            call.count()
        )));
    }
    let operands: call::Result<Vec<ImportValue>> =
        (0..parts).map(|number| call.dequantised(part(number), [part(number) + 1, part(number) + 2], 1)).collect();
    between(call, "Concat", operands?, [0, 1], 1)
}
