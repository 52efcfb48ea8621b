//! Imports of ONNX Runtime's operators that are several of the standard's in one.

use autotune_workloads::Activation;

use super::activations::of_sigmoid;
use super::binary::Binary;
use super::conv::convolution;
use super::layer_norm::EPS;
use super::matmul::MatMul;
use super::prelude::*;
use crate::onnx::MICROSOFT;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Gelu", |call| biased(call, 1, Activation::Gelu)).in_domain(MICROSOFT),
    OnnxOperator::one("BiasGelu", |call| biased(call, 2, Activation::Gelu)).in_domain(MICROSOFT),
    OnnxOperator::one("FastGelu", |call| biased(call, 2, Activation::GeluTanh)).in_domain(MICROSOFT),
    OnnxOperator::one("QuickGelu", quick_gelu).in_domain(MICROSOFT),
    OnnxOperator::many("SkipLayerNormalization", skip_layer_norm).in_domain(MICROSOFT),
    // ONNX Runtime has it in ONNX's domain, though ONNX does not.
    OnnxOperator::many("SimplifiedLayerNormalization", simplified_layer_norm),
    OnnxOperator::many("SimplifiedLayerNormalization", simplified_layer_norm).in_domain(MICROSOFT),
    OnnxOperator::many("SkipSimplifiedLayerNormalization", skip_simplified_layer_norm).in_domain(MICROSOFT),
    OnnxOperator::one("FusedMatMul", product).in_domain(MICROSOFT),
    OnnxOperator::one("FusedConv", conv).in_domain(MICROSOFT),
];

/// Default constant added to a variance in operators with a skip connection.
const SKIP_EPS: f32 = 1e-12;

/// Imports an activation of a sum with an optional bias.
fn biased(call: &mut Call, most: usize, activation: Activation) -> Result<ImportValue> {
    call.check_most(most)?;
    let mut x = call.operand(0)?;
    if let Some(bias) = call.optional(1) {
        x = call.binary(Binary::Add, x, bias)?;
    }
    call.activation(activation, x)
}

/// Imports `x * sigmoid(alpha * x)`.
fn quick_gelu(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let alpha = call.float_or("alpha", 1.702)?;
    of_sigmoid(call, x, alpha)
}

/// Adds the sum of the first two inputs and an optional bias.
fn skip_sum(call: &mut Call, bias: usize) -> Result<ImportValue> {
    let (x, skip) = (call.operand(0)?, call.operand(1)?);
    let sum = call.binary(Binary::Add, x, skip)?;
    call.optional(bias).map_or(Ok(sum), |bias| call.binary(Binary::Add, sum, bias))
}

fn last_axis(call: &Call, x: ImportValue) -> Result<usize> {
    call.rank(x).checked_sub(1).ok_or_else(|| NodeError::Unfit("a tensor without axes".into()))
}

/// Imports normalised sums, their means and inverse deviations, and the sums.
fn skip_layer_norm(call: &mut Call, outputs: usize) -> Result<Vec<ImportValue>> {
    call.check_most(5)?;
    let eps = call.float_or("epsilon", SKIP_EPS)?;
    let sum = skip_sum(call, 4)?;
    let axis = last_axis(call, sum)?;
    let normal = call.layer_norm(axis, eps, [sum, call.operand(2)?], call.optional(3))?;
    // Outputs without a name may be any tensor.
    let [mean, deviation] = match call.names(1) || call.names(2) {
        true => call.row_statistics(axis, eps, sum)?,
        false => [sum; 2],
    };
    Ok([normal, mean, deviation, sum].into_iter().take(outputs).collect())
}

/// Imports rows divided by the root of their mean square, and its inverse.
fn simplified_layer_norm(call: &mut Call, outputs: usize) -> Result<Vec<ImportValue>> {
    call.check_most(2)?;
    // The type of the statistics: f32 by default, and here always.
    call.ignore(&["stash_type"]);
    let eps = call.float_or("epsilon", EPS)?;
    let (x, scale) = (call.operand(0)?, call.operand(1)?);
    let axis = axis(call.int_or("axis", -1)?, call.rank(x))?;
    Ok(call.rms_norm(axis, eps, [x, scale])?.into_iter().take(outputs).collect())
}

/// Imports sums divided by the root of their mean square, its inverse as the third output, and the
/// sums.
fn skip_simplified_layer_norm(call: &mut Call, outputs: usize) -> Result<Vec<ImportValue>> {
    call.check_most(4)?;
    let eps = call.float_or("epsilon", SKIP_EPS)?;
    if call.names(1) {
        return unfit("the mean is not supported");
    }
    let sum = skip_sum(call, 3)?;
    let axis = last_axis(call, sum)?;
    let [normal, factors] = call.rms_norm(axis, eps, [sum, call.operand(2)?])?;
    // The second output has no name.
    Ok([normal, sum, factors, sum].into_iter().take(outputs).collect())
}

/// Imports `alpha * a b` with optional transpositions of the last two axes.
fn product(call: &mut Call) -> Result<ImportValue> {
    call.check_most(2)?;
    if call.flag("transBatchA", false)? || call.flag("transBatchB", false)? {
        return unfit("transpositions of the batch are not supported");
    }
    let a = exchanged(call, "transA", 0)?;
    let b = exchanged(call, "transB", 1)?;
    let product = call.add(MatMul, &[a, b])?;
    match call.float_or("alpha", 1.0)? {
        1.0 => Ok(product),
        alpha => call.with(Binary::Mul, product, alpha),
    }
}

fn exchanged(call: &mut Call, name: &'static str, input: usize) -> Result<ImportValue> {
    let (x, is_transposed) = (call.operand(input)?, call.flag(name, false)?);
    let rank = call.rank(x);
    // A vector stays as it is.
    if !is_transposed || rank < 2 {
        return Ok(x);
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    call.transpose(&perm, x)
}

/// Imports a convolution, the sum with an optional tensor, and an activation.
fn conv(call: &mut Call) -> Result<ImportValue> {
    call.check_most(4)?;
    let operands: Vec<ImportValue> = [call.operand(0)?, call.operand(1)?].into_iter().chain(call.optional(2)).collect();
    let mut sum = convolution(call, &operands)?;
    if let Some(added) = call.optional(3) {
        sum = call.binary(Binary::Add, sum, added)?;
    }
    let parameters = call.floats("activation_params")?.unwrap_or(&[]);
    let word = match call.word_or("activation", "")? {
        "" => return Ok(sum),
        "Relu" => "relu",
        "Sigmoid" => "sigmoid",
        "Tanh" => "tanh",
        "LeakyRelu" => "leaky_relu",
        "Clip" => "clip",
        "HardSigmoid" => "hard_sigmoid",
        _ => return Err(attribute("activation", "expected Relu, Sigmoid, Tanh, LeakyRelu, Clip or HardSigmoid")),
    };
    call.with_parameters(word, parameters, sum)
}
