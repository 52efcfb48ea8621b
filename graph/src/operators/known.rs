//! Operators whose output is known at import.

use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;
use crate::onnx::tensor::{self, number};

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Constant", constant),
    OnnxOperator::one("ConstantOfShape", constant_of_shape),
    OnnxOperator::one("Shape", shape),
    OnnxOperator::one("Size", size),
    OnnxOperator::one("Range", range),
];

fn constant(call: &mut Call) -> Result<ImportValue> {
    if let Some(constant) = call.tensor("value")? {
        return Ok(call.constant(constant));
    }
    let tensor = if let Some(number) = call.float("value_float")? {
        Tensor::scalar(number)
    } else if let Some(numbers) = call.floats("value_floats")? {
        Tensor::f32(&[numbers.len()], numbers.to_vec())?
    } else if let Some(number) = call.int("value_int")? {
        Tensor::i64(&[], vec![number])?
    } else if let Some(numbers) = call.ints("value_ints")? {
        Tensor::i64(&[numbers.len()], numbers.to_vec())?
    } else {
        return Err(attribute("value", "is missing"));
    };
    Ok(call.constant(tensor))
}

fn constant_of_shape(call: &mut Call) -> Result<ImportValue> {
    let shape = call.known_integers(0)?.ok_or_else(|| missing(0))?;
    let shape = tensor::extents(&shape).map_err(NodeError::Unfit)?;
    let value = call.tensor("value")?.unwrap_or_else(|| Tensor::scalar(0.0).into());
    if elements(value.shape())? != 1 {
        return Err(attribute("value", "does not have exactly one element"));
    }
    let value = call.constant(value);
    let value = call.reshape(&[], value)?;
    match call.constant_of(value).cloned() {
        Some(value) => call.filled(&value, &shape),
        None => call.expand(&shape, value),
    }
}

/// Imports a shape, or its extents from `start` to `end`. Negative positions count from the end;
/// both are clamped to the rank.
fn shape(call: &mut Call) -> Result<ImportValue> {
    let shape = call.shape(call.operand(0)?);
    let rank = shape.len() as i64;
    let place = |axis: i64| if axis < 0 { axis.saturating_add(rank) } else { axis }.clamp(0, rank) as usize;
    let start = place(call.int_or("start", 0)?);
    let end = place(call.int_or("end", rank)?).max(start);
    let extents: Vec<i64> = shape[start..end].iter().map(|&extent| extent as i64).collect();
    Ok(call.constant(Tensor::i64(&[extents.len()], extents)?))
}

fn size(call: &mut Call) -> Result<ImportValue> {
    let count = elements(&call.shape(call.operand(0)?))?;
    Ok(call.constant(Tensor::i64(&[], vec![count as i64])?))
}

/// Imports the numbers from a start towards a limit, which is excluded, by a step.
fn range(call: &mut Call) -> Result<ImportValue> {
    let part = |input: usize| call.known(input)?.ok_or_else(|| missing(input));
    let parts = [part(0)?, part(1)?, part(2)?];
    let integers: Option<Vec<i64>> = parts
        .iter()
        .map(|part| part.as_i64().filter(|part| part.len() == 1).and_then(|part| part.first().copied()))
        .collect();
    if let Some(&[start, limit, step]) = integers.as_deref() {
        // In i128, since the difference of two i64 may overflow.
        let way = i128::from(limit) - i128::from(start);
        let count = count_of(way as f64 / step as f64)?;
        let numbers = (0..count as i64).map(|index| start.wrapping_add(index.wrapping_mul(step))).collect();
        return Ok(call.constant(Tensor::i64(&[count], numbers)?));
    }
    let floats: Option<Vec<f32>> = parts.iter().map(|part| part.as_f32().and_then(|_| number(part))).collect();
    let Some(&[start, limit, step]) = floats.as_deref() else {
        return unfit("the inputs must be three numbers of one type");
    };
    let count = count_of((f64::from(limit) - f64::from(start)) / f64::from(step))?;
    let numbers = (0..count).map(|index| start + index as f32 * step).collect();
    Ok(call.constant(Tensor::f32(&[count], numbers)?))
}

/// Returns the length of a range; fails if it exceeds 2^24.
fn count_of(steps: f64) -> Result<usize> {
    const MOST: f64 = (1 << 24) as f64;
    match steps.ceil() {
        steps if steps <= MOST => Ok(steps.max(0.0) as usize),
        _ => unfit("the range is endless or has more than 2^24 numbers"),
    }
}
