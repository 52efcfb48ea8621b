//! Imports of the losses of classifiers.

use autotune_ir::program::UnaryOp;
use autotune_workloads::ReduceOp;

use super::binary::Binary;
use super::choose::Where;
use super::gather::Gather;
use super::gather_elements::GatherElements;
use super::prelude::*;
use super::softmax::Softmax;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::many("SoftmaxCrossEntropyLoss", cross_entropy),
    OnnxOperator::one("NegativeLogLikelihoodLoss", |call| {
        let logarithms = call.operand(0)?;
        likelihood(call, logarithms)
    }),
];

/// Imports a loss of scores; the second output is the logarithm of their softmax.
fn cross_entropy(call: &mut Call, outputs: usize) -> Result<Vec<ImportValue>> {
    let scores = call.operand(0)?;
    let logarithms = call.add(Softmax { axis: 1, log: true }, &[scores])?;
    let loss = likelihood(call, logarithms)?;
    Ok([loss, logarithms].into_iter().take(outputs).collect())
}

/// Adds the loss of logarithms of probabilities `[n, classes, ..]` for the classes `[n, ..]` at the
/// second input.
fn likelihood(call: &mut Call, logarithms: ImportValue) -> Result<ImportValue> {
    call.check_most(3)?;
    let (shape, mut classes) = (call.shape(logarithms), call.operand(1)?);
    let (&[n, _, ref extents @ ..], of_classes) = (&shape[..], call.shape(classes)) else {
        return unfit(format!("probabilities of shape {shape:?}; expected batch and classes"));
    };
    if of_classes != [&[n], extents].concat() {
        return unfit(format!("classes of shape {of_classes:?} do not match probabilities of shape {shape:?}"));
    }

    // An ignored class may be none of the others.
    let mut is_ignored = None;
    if let Some(number) = call.int("ignore_index")? {
        let number = call.constant(Tensor::i64(&[], vec![number])?);
        let found = call.binary(Binary::Equal, classes, number)?;
        let first = call.number(0.0, classes)?;
        classes = call.add(Where, &[found, first, classes])?;
        is_ignored = Some(found);
    }
    let columns = call.reshape(&[&[n, 1], extents].concat(), classes)?;
    let chosen = call.add(GatherElements { axis: 1 }, &[logarithms, columns])?;
    let chosen = call.reshape(&of_classes, chosen)?;
    let mut loss = call.unary(UnaryOp::Neg, chosen)?;

    let mut weights = match call.optional(2) {
        Some(weights) => Some(call.add(Gather { axis: 0 }, &[weights, classes])?),
        None => None,
    };
    if let Some(weights) = weights {
        loss = call.binary(Binary::Mul, loss, weights)?;
    }
    if let Some(is_ignored) = is_ignored {
        let (zero, one) = (call.number(0.0, loss)?, call.number(1.0, loss)?);
        loss = call.add(Where, &[is_ignored, zero, loss])?;
        weights = Some(call.add(Where, &[is_ignored, zero, weights.unwrap_or(one)])?);
    }
    reduced(call, loss, weights)
}

/// Adds the reduction of losses; their mean is relative to the sum of the weights.
fn reduced(call: &mut Call, loss: ImportValue, weights: Option<ImportValue>) -> Result<ImportValue> {
    let axes: Vec<usize> = (0..call.rank(loss)).collect();
    match (call.word_or("reduction", "mean")?, weights) {
        ("none", _) => Ok(loss),
        ("sum", _) => call.reduce(ReduceOp::Sum, &axes, false, loss),
        ("mean", None) => call.reduce(ReduceOp::Mean, &axes, false, loss),
        ("mean", Some(weights)) => {
            let sum = call.reduce(ReduceOp::Sum, &axes, false, loss)?;
            let whole = call.reduce(ReduceOp::Sum, &axes, false, weights)?;
            call.binary(Binary::Div, sum, whole)
        }
        _ => Err(attribute("reduction", "expected none, sum or mean")),
    }
}
