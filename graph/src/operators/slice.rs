//! Slices of tensors.

use super::prelude::*;
use crate::onnx::error::unfit;
use crate::op;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("Slice", import).keeps_bytes(), OnnxOperator::many("Split", split)];

/// Every `step`-th element from `start` on, `count` in total, for each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice(pub Vec<Range>);

/// Elements that a slice takes along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// Position of the first element.
    pub start: usize,
    /// Distance between successive elements; negative to go backwards.
    pub step: isize,
    /// Number of elements that are taken.
    pub count: usize,
}

impl Range {
    /// Returns the ranges of all elements of a shape.
    pub fn all(shape: &[usize]) -> Vec<Self> {
        shape.iter().map(|&count| Self { start: 0, step: 1, count }).collect()
    }
}

impl Operator for Slice {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        Ok((output(&self.0, operands[0].0)?, operands[0].1))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let places = |&Range { start, step, count }: &Range| {
            (0..count).map(move |i| start.checked_add_signed(step * i as isize)).collect()
        };
        pick(operands, &self.0.iter().map(places).collect::<Vec<_>>(), shape)
    }

    /// Returns a contiguous piece where possible, which needs no copy.
    fn movement(&self, node: &NodeView) -> Option<Movement> {
        let strides = strides(node.shape(0));
        let from = self.0.iter().zip(&strides).map(|(range, stride)| range.start * stride).sum();
        if is_contiguous(&self.0, node.shape(0)) {
            return Some(Movement::Piece(from));
        }
        let steps = self.0.iter().zip(strides).map(|(range, stride)| range.step * stride as isize);
        Some(Movement::Strided { from, steps: steps.collect() })
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let ranges = &self.0;
        let extents = to.operand(0).0;
        let starts = to.integers(ranges.iter().map(|range| range.start as i64))?;
        let ends = to.integers(ranges.iter().zip(extents).map(|(range, &extent)| end(range, extent)))?;
        let axes = to.integers(0..ranges.len() as i64)?;
        let steps = to.integers(ranges.iter().map(|range| range.step as i64))?;
        to.node("Slice", &[&to.input(0), &starts, &ends, &axes, &steps], vec![])
    }
}

fn output(ranges: &[Range], shape: &[usize]) -> Result<Vec<usize>, OpError> {
    let is_inside = |(range, &extent): (&Range, &usize)| {
        let last = range.count.checked_sub(1).map(|steps| range.start as i128 + range.step as i128 * steps as i128);
        last.is_none_or(|last| range.start < extent && (0..extent as i128).contains(&last))
    };
    match ranges.len() == shape.len() && ranges.iter().zip(shape).all(is_inside) {
        true => Ok(ranges.iter().map(|range| range.count).collect()),
        false => op::unfit(format!("the slice exceeds a tensor of shape {shape:?}")),
    }
}

/// True if the slice of a row-major tensor is contiguous.
fn is_contiguous(ranges: &[Range], shape: &[usize]) -> bool {
    let is_whole = |(range, &extent): (&Range, &usize)| range.count == extent && (range.step == 1 || extent == 1);
    // Contiguous: axes with one element, then one axis with a dense range, then whole axes.
    let ones = ranges.iter().take_while(|range| range.count == 1).count();
    let is_dense = ranges.get(ones).is_none_or(|range| range.step == 1);
    is_dense && ranges.iter().zip(shape).skip(ones + 1).all(is_whole)
}

/// Returns the ONNX end of a slice, exclusive. Backwards to the first element it is before the
/// start of the axis, which only a number below `-extent` denotes.
fn end(range: &Range, extent: usize) -> i64 {
    match range.start as i64 + range.step as i64 * range.count as i64 {
        end if end < 0 => -1 - extent as i64,
        end => end,
    }
}

impl Call<'_> {
    pub(crate) fn slice(&mut self, ranges: Vec<Range>, x: ImportValue) -> call::Result<ImportValue> {
        match ranges == Range::all(self.draft.shape(x)) {
            true => Ok(x),
            false => self.add(Slice(ranges), &[x]),
        }
    }

    /// Adds a slice of `count` elements from `start` on along an axis.
    pub(crate) fn part(
        &mut self,
        x: ImportValue,
        axis: usize,
        [start, count]: [usize; 2],
    ) -> call::Result<ImportValue> {
        let mut ranges = Range::all(self.draft.shape(x));
        ranges[axis] = Range { start, step: 1, count };
        self.slice(ranges, x)
    }

    /// Adds slices of these sizes, which follow each other along an axis and cover it.
    pub(crate) fn parts(&mut self, x: ImportValue, axis: usize, sizes: &[usize]) -> call::Result<Vec<ImportValue>> {
        let (extent, count) = (self.shape(x)[axis], sizes.len());
        let sum = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        if sum != Some(extent) {
            return unfit(format!("cannot split {extent} elements into {count} parts of {:?}", listed(sizes)));
        }

        let mut start = 0;
        let part = |&size: &usize| {
            // The start of an empty part could be out of range.
            let first = if size == 0 { 0 } else { start };
            start += size;
            self.part(x, axis, [first, size])
        };
        sizes.iter().map(part).collect()
    }
}

/// Imports a slice. Bounds are attributes before opset 10; steps exist since then.
fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(if call.version < 10 { 1 } else { 5 })?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let starts = call.integers("starts", 1, 10)?.ok_or_else(|| missing(1))?;
    let ends = call.integers("ends", 2, 10)?.ok_or_else(|| missing(2))?;
    let axes = call.integers("axes", 3, 10)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if call.version < 10 { None } else { call.known_integers(4)? };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return unfit("starts, ends, axes and steps have different lengths");
    }

    let mut ranges = Range::all(&shape);
    for (index, &number) in axes.iter().enumerate() {
        let axis = axis(number, shape.len())?;
        ranges[axis] = range(shape[axis], starts[index], ends[index], steps[index])?;
    }
    call.slice(ranges, x)
}

/// Returns the range from `start` to `end`, exclusive. Negative bounds count from the end; all are
/// clamped to the axis.
fn range(extent: usize, start: i64, end: i64, step: i64) -> call::Result<Range> {
    let extent = extent as i64;
    let place = |number: i64| if number < 0 { number.saturating_add(extent) } else { number };
    // Backwards, the exclusive end may be the position before the first element.
    let (lowest, highest) = if step < 0 { (-1, extent - 1) } else { (0, extent) };
    // `start` is inclusive and `end` exclusive, so their limits differ.
    let (start, end) = (place(start).clamp(lowest.max(0), highest.max(0)), place(end).clamp(lowest, highest));
    let steps = match step {
        0 => return unfit("a step is 0"),
        1.. => (end - start).max(0).unsigned_abs().div_ceil(step.unsigned_abs()),
        _ => (start - end).max(0).unsigned_abs().div_ceil(step.unsigned_abs()),
    };
    let step = isize::try_from(step).map_err(|_| NodeError::Unfit("a step is too large".into()))?;
    match (extent, usize::try_from(steps)) {
        (0, _) | (_, Ok(0)) => Ok(Range { start: 0, step: 1, count: 0 }),
        (_, Ok(count)) => Ok(Range { start: start as usize, step, count }),
        (_, Err(_)) => unfit("the slice is too large"),
    }
}

/// Imports a split along an axis: into parts of the given sizes, or into one part for each output,
/// the last of which may be smaller.
fn split(call: &mut Call, outputs: usize) -> call::Result<Vec<ImportValue>> {
    call.check_most(if call.version < 13 { 1 } else { 2 })?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let axis = axis(call.int_or("axis", 0)?, shape.len())?;
    let extent = shape[axis];
    let sizes = match call.integers("split", 1, 13)? {
        Some(sizes) => {
            let sizes: Option<Vec<usize>> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
            sizes.ok_or_else(|| NodeError::Unfit("the size of a part is negative".into()))?
        }
        None => {
            let count = call.int("num_outputs")?.map_or(Some(outputs), |count| usize::try_from(count).ok());
            if count != Some(outputs) || outputs == 0 {
                return Err(attribute("num_outputs", format!("the node has {outputs} outputs")));
            }
            // All parts are equal except the last, which may be smaller.
            let size = extent.div_ceil(outputs);
            (0..outputs).map(|part| extent.saturating_sub(part * size).min(size)).collect()
        }
    };
    if sizes.len() != outputs {
        return unfit(format!("cannot split {extent} elements into {outputs} parts of {:?}", listed(&sizes)));
    }
    call.parts(x, axis, &sizes)
}
