//! Import of operators that select the elements for which a condition is true.

use super::gather::Gather;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("NonZero", non_zero), OnnxOperator::one("Compress", compress)];

/// Imports the indices of all elements that are not zero, in row-major order: one row for each axis
/// of the input, and one column for each such element. A number is like a tensor with one axis.
fn non_zero(call: &mut Call) -> Result<ImportValue> {
    call.only()?;
    let Some(x) = call.known(0)? else { return unfit("the input is missing") };
    let shape = if x.shape().is_empty() { &[1][..] } else { x.shape() };
    let found: Vec<usize> = positions(&x);
    // Strides of empty tensors are 0, but these have no elements to divide.
    let axes: Vec<(usize, usize)> =
        strides(shape).into_iter().map(|stride| stride.max(1)).zip(shape.iter().copied()).collect();

    let index = |&(stride, extent): &(usize, usize)| found.iter().map(move |at| (at / stride % extent) as i64);
    let indices = axes.iter().flat_map(index).collect();
    Ok(call.constant(Tensor::i64(&[axes.len(), found.len()], indices)?))
}

/// Returns the positions of the elements that are not zero.
fn positions(x: &Tensor) -> Vec<usize> {
    fn of<T>(elements: impl Iterator<Item = T>, is_true: impl Fn(T) -> bool) -> Vec<usize> {
        elements.enumerate().filter_map(|(at, element)| is_true(element).then_some(at)).collect()
    }
    match x {
        Tensor::F32(array) => of(array.iter(), |&x| x != 0.0),
        Tensor::I64(array) => of(array.iter(), |&x| x != 0),
        Tensor::Bool(array) => of(array.iter(), |&x| x),
        Tensor::I8(array) => of(array.iter(), |&x| x != 0),
        Tensor::U8(array) => of(array.iter(), |&x| x != 0),
    }
}

/// Imports the slices along an axis, or the elements of the flattened input, for which a condition
/// is true. A condition may be shorter than the axis.
fn compress(call: &mut Call) -> Result<ImportValue> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let (x, axis) = match call.int("axis")? {
        Some(number) => (x, axis(number, call.rank(x))?),
        None => (call.reshape(&[elements(&call.shape(x))?], x)?, 0),
    };
    let Some(condition) = call.known(1)? else { return unfit("the condition is missing") };
    if condition.shape().len() != 1 || condition.shape()[0] > call.shape(x)[axis] {
        return unfit(format!("a condition of shape {:?} for shape {:?}", condition.shape(), call.shape(x)));
    }

    let found: Vec<i64> = positions(&condition).into_iter().map(|at| at as i64).collect();
    let found = call.constant(Tensor::i64(&[found.len()], found)?);
    call.add(Gather { axis }, &[x, found])
}
