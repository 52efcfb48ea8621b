//! Import of tensors without repetitions.

use std::cmp::Ordering;

use super::gather::Gather;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::many("Unique", unique)];

/// Imports the distinct slices along an axis, or the distinct elements of the flattened input, in
/// increasing order or in that of their first occurrence; then the index of each first occurrence,
/// the index of each slice of the input in the output, and the number of occurrences.
fn unique(call: &mut Call, outputs: usize) -> Result<Vec<ImportValue>> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let (x, axis) = match call.int("axis")? {
        Some(number) => (x, axis(number, call.rank(x))?),
        None => (call.reshape(&[elements(&call.shape(x))?], x)?, 0),
    };
    let is_sorted = call.flag("sorted", true)?;
    let Some(constant) = call.constant_of(x) else { return Err(NodeError::Unknown { input: 0, advice: "" }) };
    let tensor = constant.tensor()?.clone();
    let found = DistinctSlices::of(&tensor, axis, is_sorted)?;

    let integers = |call: &mut Call, numbers: &[usize]| -> Result<ImportValue> {
        let numbers: Vec<i64> = numbers.iter().map(|&number| number as i64).collect();
        Ok(call.constant(Tensor::i64(&[numbers.len()], numbers)?))
    };
    let first = integers(call, &found.first)?;
    let slices = call.add(Gather { axis }, &[x, first])?;
    let (places, counts) = (integers(call, &found.places)?, integers(call, &found.counts)?);
    Ok([slices, first, places, counts].into_iter().take(outputs).collect())
}

/// DistinctSlices slices of a tensor along an axis.
struct DistinctSlices {
    /// Index of the first occurrence of each distinct slice.
    first: Vec<usize>,
    /// Number of the distinct slice that equals each slice.
    places: Vec<usize>,
    /// Number of occurrences of each distinct slice.
    counts: Vec<usize>,
}

impl DistinctSlices {
    fn of(x: &Tensor, axis: usize, is_sorted: bool) -> Result<Self> {
        let keys = keys(x)?;
        let (extent, inner) = (x.shape()[axis], elements(&x.shape()[axis + 1..])?);
        let outer = elements(&x.shape()[..axis])?;
        let rows = |index: usize| (0..outer).map(move |row| (row * extent + index) * inner);
        let slice = |index: usize| rows(index).flat_map(|first| &keys[first..first + inner]);
        let order = |a: usize, b: usize| slice(a).cmp(slice(b));
        let mut sorted: Vec<usize> = (0..extent).collect();
        // A stable sort keeps the first occurrence first.
        sorted.sort_by(|&a, &b| order(a, b));

        let mut groups: Vec<Vec<usize>> = Vec::new();
        for index in sorted {
            match groups.last_mut() {
                Some(group) if order(group[0], index) == Ordering::Equal => group.push(index),
                _ => groups.push(vec![index]),
            }
        }
        if !is_sorted {
            groups.sort_by_key(|group| group[0]);
        }
        let mut places = vec![0; extent];
        for (number, group) in groups.iter().enumerate() {
            group.iter().for_each(|&index| places[index] = number);
        }
        Ok(Self {
            first: groups.iter().map(|group| group[0]).collect(),
            places,
            counts: groups.iter().map(Vec::len).collect(),
        })
    }
}

/// Returns integers in the order of the elements. NaN is the largest number, and the two zeros are
/// equal.
fn keys(x: &Tensor) -> Result<Vec<i64>> {
    let of_float = |x: f32| match x {
        x if x.is_nan() => i64::MAX,
        0.0 => 0,
        x if x < 0.0 => -i64::from(x.abs().to_bits()),
        x => i64::from(x.to_bits()),
    };
    match x {
        Tensor::F32(array) => Ok(array.iter().map(|&x| of_float(x)).collect()),
        Tensor::I64(array) => Ok(array.iter().copied().collect()),
        Tensor::Bool(array) => Ok(array.iter().map(|&x| x.into()).collect()),
        Tensor::I8(_) | Tensor::U8(_) => unfit("quantised elements are not supported"),
    }
}
