//! Parts of tensors, and tensors of parts.

use autotune_workloads::PadMode;

use super::Convert::{self, Many, One};
use crate::onnx::NodeError;
use crate::onnx::call::{Call, Result, attribute, axis};
use crate::onnx::draft::Value;
use crate::onnx::error::unfit;
use crate::op::{Op, Range};
use crate::text::listed;

pub(super) const OPERATORS: &[(&str, Convert)] = &[
    ("Slice", One(slice)),
    ("Split", Many(split)),
    ("Concat", One(concat)),
    ("Gather", One(gather)),
    ("Pad", One(pad)),
];

/// Bounds are attributes before version 10; since then there are steps, too.
fn slice(call: &mut Call) -> Result<Value> {
    call.check_most(if call.version < 10 { 1 } else { 5 })?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let missing = |input| move || NodeError::Input { input, reason: "it is missing".into() };
    let starts = call.integers("starts", 1, 10)?.ok_or_else(missing(1))?;
    let ends = call.integers("ends", 2, 10)?.ok_or_else(missing(2))?;
    let axes = call.integers("axes", 3, 10)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if call.version < 10 { None } else { call.known_integers(4)? };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return unfit("starts, ends, axes and steps are not as many");
    }

    let mut ranges = Range::all(&shape);
    for (index, &number) in axes.iter().enumerate() {
        let axis = axis(number, shape.len())?;
        ranges[axis] = range(shape[axis], starts[index], ends[index], steps[index])?;
    }
    call.slice(ranges, x)
}

/// Elements of an axis from `start` in steps until before `end`; both count from the end if negative, and stay within the axis.
fn range(extent: usize, start: i64, end: i64, step: i64) -> Result<Range> {
    let extent = extent as i64;
    let place = |number: i64| if number < 0 { number.saturating_add(extent) } else { number };
    // Backwards, the place before the first element is the last that is not reached.
    let (lowest, highest) = if step < 0 { (-1, extent - 1) } else { (0, extent) };
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

/// Parts along an axis: as large as is said, or as many as there are outputs, the last of which may be smaller.
fn split(call: &mut Call, outputs: usize) -> Result<Vec<Value>> {
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
                return Err(attribute("num_outputs", format!("there are {outputs} outputs")));
            }
            let size = extent.div_ceil(outputs);
            (0..outputs).map(|part| extent.saturating_sub(part * size).min(size)).collect()
        }
    };
    let sum = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
    if sum != Some(extent) || sizes.len() != outputs {
        return unfit(format!("{extent} elements in {outputs} parts of {:?}", listed(&sizes)));
    }

    let mut start = 0;
    let part = |size: usize| {
        let first = if size == 0 { 0 } else { start };
        start += size;
        call.part(x, axis, [first, size])
    };
    sizes.into_iter().map(part).collect()
}

fn concat(call: &mut Call) -> Result<Value> {
    let operands = call.operands()?;
    let &first = operands.first().ok_or(NodeError::Input { input: 0, reason: "it is missing".into() })?;
    let number = call.int("axis")?.ok_or_else(|| attribute("axis", "it is missing"))?;
    let axis = axis(number, call.rank(first))?;
    match &operands[..] {
        [only] => Ok(*only),
        _ => call.add(Op::Concat { axis }, &operands),
    }
}

fn gather(call: &mut Call) -> Result<Value> {
    call.check_most(2)?;
    let (x, numbers) = (call.operand(0)?, call.operand(1)?);
    let axis = axis(call.int_or("axis", 0)?, call.rank(x))?;
    call.add(Op::Gather { axis }, &[x, numbers])
}

/// Amounts and value are attributes before version 11; negative amounts cut off.
fn pad(call: &mut Call) -> Result<Value> {
    call.check_most(if call.version < 11 { 1 } else { 4 })?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let mode = match call.word_or("mode", "constant")? {
        "constant" => PadMode::Constant,
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        _ => return Err(attribute("mode", "it is none of constant, reflect and edge")),
    };
    let amounts = call.integers("pads", 1, 11)?.ok_or(NodeError::Input { input: 1, reason: "it is missing".into() })?;
    let value = if call.version < 11 { call.float("value")? } else { call.known_number(2)? }.unwrap_or(0.0);
    let axes = match call.known_integers(3)? {
        Some(numbers) => numbers.iter().map(|&number| axis(number, shape.len())).collect::<Result<Vec<usize>>>()?,
        None => (0..shape.len()).collect(),
    };
    if amounts.len() != 2 * axes.len() {
        return unfit(format!("{} amounts of padding for {} axes", amounts.len(), axes.len()));
    }

    let mut ranges = Range::all(&shape);
    let mut pad = vec![[0, 0]; shape.len()];
    for (index, &axis) in axes.iter().enumerate() {
        let ends = [amounts[index], amounts[index + axes.len()]];
        let cut = ends.map(|amount| amount.min(0).unsigned_abs() as usize);
        let left = cut.iter().try_fold(ranges[axis].count, |left, &cut| left.checked_sub(cut));
        let Some(count) = left else { return unfit("more is cut off than there is") };
        ranges[axis] = Range { start: if count == 0 { 0 } else { cut[0] }, step: 1, count };
        pad[axis] = ends.map(|amount| amount.max(0) as usize);
    }
    let x = call.slice(ranges, x)?;
    match pad.iter().all(|pad| *pad == [0, 0]) {
        true => Ok(x),
        false => call.add(Op::Pad { pad, mode, value }, &[x]),
    }
}
