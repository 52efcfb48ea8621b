//! Convolutions and pooling.

use autotune_workloads::{PadMode, PoolKind, ReduceOp};

use super::Convert::{self, One};
use crate::onnx::call::{Call, Result, attribute};
use crate::onnx::draft::Value;
use crate::onnx::error::unfit;
use crate::op::{Binary, Op, Sliding};

pub(super) const OPERATORS: &[(&str, Convert)] = &[
    ("Conv", One(conv)),
    ("ConvTranspose", One(conv_transpose)),
    ("MaxPool", One(max_pool)),
    ("AveragePool", One(average_pool)),
    ("GlobalAveragePool", One(|call| global(call, ReduceOp::Mean))),
    ("GlobalMaxPool", One(|call| global(call, ReduceOp::Max))),
];

/// Where padding that is not said lies.
#[derive(Clone, Copy, PartialEq)]
enum AutoPad {
    /// It is said.
    None,
    /// There is none.
    Valid,
    /// As many windows as strides fit, the odd element behind the image.
    Upper,
    /// The same, the odd element before it.
    Lower,
}

fn auto_pad(call: &Call) -> Result<AutoPad> {
    match call.word_or("auto_pad", "NOTSET")? {
        "NOTSET" | "" => Ok(AutoPad::None),
        "VALID" => Ok(AutoPad::Valid),
        "SAME_UPPER" => Ok(AutoPad::Upper),
        "SAME_LOWER" => Ok(AutoPad::Lower),
        _ => Err(attribute("auto_pad", "it is none of NOTSET, VALID, SAME_UPPER and SAME_LOWER")),
    }
}

/// Extents of images, behind batch and channels.
fn spatial(call: &Call, x: Value) -> Result<Vec<usize>> {
    match &call.shape(x)[..] {
        [_, _, spatial @ ..] if !spatial.is_empty() => Ok(spatial.to_vec()),
        shape => unfit(format!("images of shape {shape:?}")),
    }
}

/// Windows as attributes say them, without padding.
fn windows(call: &Call, kernel: &[usize]) -> Result<Vec<Sliding>> {
    let axes = kernel.len();
    let numbers = |name| match call.extents(name)? {
        Some(numbers) if numbers.len() != axes => Err(attribute(name, format!("it has not {axes} numbers"))),
        Some(numbers) if numbers.contains(&0) => Err(attribute(name, "a number is 0")),
        numbers => Ok(numbers.unwrap_or_else(|| vec![1; axes])),
    };
    let (strides, dilations) = (numbers("strides")?, numbers("dilations")?);
    let each = kernel.iter().zip(strides).zip(dilations);
    Ok(each.map(|((&kernel, stride), dilation)| Sliding { kernel, stride, dilation, pad: [0, 0] }).collect())
}

fn kernel_shape(call: &Call, axes: usize) -> Result<Option<Vec<usize>>> {
    match call.extents("kernel_shape")? {
        Some(kernel) if kernel.len() != axes => Err(attribute("kernel_shape", format!("it has not {axes} numbers"))),
        Some(kernel) if kernel.contains(&0) => Err(attribute("kernel_shape", "a number is 0")),
        kernel => Ok(kernel),
    }
}

/// Padding before and behind each axis.
fn pads(call: &Call, axes: usize) -> Result<Vec<[usize; 2]>> {
    match call.extents("pads")? {
        Some(pads) if pads.len() != 2 * axes => Err(attribute("pads", format!("it has not {} numbers", 2 * axes))),
        Some(pads) => Ok((0..axes).map(|axis| [pads[axis], pads[axes + axis]]).collect()),
        None => Ok(vec![[0, 0]; axes]),
    }
}

/// Halves of some padding, the odd element behind the image or before it.
fn halves(total: usize, auto: AutoPad) -> [usize; 2] {
    let (less, more) = (total / 2, total - total / 2);
    if auto == AutoPad::Lower { [more, less] } else { [less, more] }
}

/// Elements from the first of a window to its last.
fn reach(window: &Sliding) -> Result<usize> {
    let reach = (window.kernel - 1).checked_mul(window.dilation).and_then(|last| last.checked_add(1));
    reach.map_or_else(|| unfit("the windows are too large"), Ok)
}

/// Windows with the padding that attributes say, over images of these extents.
fn padded(call: &Call, mut windows: Vec<Sliding>, extents: &[usize]) -> Result<Vec<Sliding>> {
    let auto = auto_pad(call)?;
    let said = pads(call, windows.len())?;
    for ((window, said), &extent) in windows.iter_mut().zip(said).zip(extents) {
        window.pad = match auto {
            AutoPad::None => said,
            AutoPad::Valid => [0, 0],
            AutoPad::Upper | AutoPad::Lower => {
                let last = (extent.div_ceil(window.stride).saturating_sub(1)).saturating_mul(window.stride);
                halves(last.saturating_add(reach(window)?).saturating_sub(extent), auto)
            }
        };
    }
    Ok(windows)
}

/// The kernel of weights; an attribute must not say another.
fn kernel_of_weights(call: &Call, weights: Value, axes: usize) -> Result<Vec<usize>> {
    let shape = call.shape(weights);
    let kernel = match &shape[..] {
        [_, _, kernel @ ..] if kernel.len() == axes && !kernel.contains(&0) => kernel,
        _ => return unfit(format!("weights of shape {shape:?} for images of {axes} spatial axes")),
    };
    match kernel_shape(call, axes)? {
        Some(said) if said != kernel => Err(attribute("kernel_shape", format!("the weights are of {kernel:?}"))),
        _ => Ok(kernel.to_vec()),
    }
}

fn groups(call: &Call) -> Result<usize> {
    let groups = call.int_or("group", 1)?;
    usize::try_from(groups).ok().filter(|&groups| groups > 0).ok_or_else(|| attribute("group", "it is not positive"))
}

/// Images, weights and, if there are any, biases.
fn operands(call: &Call) -> Result<Vec<Value>> {
    call.check_most(3)?;
    Ok([call.operand(0)?, call.operand(1)?].into_iter().chain(call.optional(2)).collect())
}

fn conv(call: &mut Call) -> Result<Value> {
    let operands = operands(call)?;
    let extents = spatial(call, operands[0])?;
    let kernel = kernel_of_weights(call, operands[1], extents.len())?;
    let window = padded(call, windows(call, &kernel)?, &extents)?;
    let groups = groups(call)?;
    call.add(Op::Conv { window, groups }, &operands)
}

fn conv_transpose(call: &mut Call) -> Result<Value> {
    let operands = operands(call)?;
    let extents = spatial(call, operands[0])?;
    let kernel = kernel_of_weights(call, operands[1], extents.len())?;
    let mut window = windows(call, &kernel)?;

    let axes = extents.len();
    let mut output_pad = call.extents("output_padding")?.unwrap_or_else(|| vec![0; axes]);
    if output_pad.len() != axes {
        return Err(attribute("output_padding", format!("it has not {axes} numbers")));
    }
    let auto = auto_pad(call)?;
    let said = pads(call, axes)?;
    let outputs = output_shape(call, axes)?;
    let mut before = vec![0; axes];
    for axis in 0..axes {
        let (window, more) = (&mut window[axis], &mut output_pad[axis]);
        let same = || extents[axis].saturating_mul(window.stride);
        let wanted = match (&outputs, auto) {
            (Some(outputs), _) => Some(outputs[axis]),
            (None, AutoPad::Upper | AutoPad::Lower) => Some(same()),
            (None, _) => None,
        };
        let Some(wanted) = wanted else {
            window.pad = if auto == AutoPad::None { said[axis] } else { [0, 0] };
            continue;
        };

        // What is too much is cut off, half at either end.
        let last = extents[axis].saturating_sub(1).saturating_mul(window.stride);
        let whole = last.saturating_add(reach(window)?).saturating_add(*more);
        let too_much = whole.saturating_sub(wanted);
        // Where the odd element goes is the other way round than for convolutions, unless SAME_UPPER is said.
        let auto = if auto == AutoPad::Upper { auto } else { AutoPad::Lower };
        window.pad = halves(too_much, auto);
        // What is missing is added behind; if strides say how much, half at either end.
        let missing = wanted.saturating_sub(whole);
        before[axis] = if outputs.is_none() { halves(missing, auto)[0] } else { 0 };
        *more = more.saturating_add(missing - before[axis]);
    }

    let op = Op::ConvTranspose { window, output_pad, groups: groups(call)? };
    if before.iter().all(|&before| before == 0) { call.add(op, &operands) } else { moved(call, op, &operands, &before) }
}

/// A transposed convolution with so many elements before its output, to which nothing but biases is
/// added.
fn moved(call: &mut Call, op: Op, operands: &[Value], before: &[usize]) -> Result<Value> {
    let sums = call.add(op, &operands[..2])?;
    let pad = [0, 0].iter().chain(before).map(|&before| [before, 0]).collect();
    let padded = call.add(Op::Pad { pad, mode: PadMode::Constant, value: 0.0 }, &[sums])?;
    let Some(&bias) = operands.get(2) else { return Ok(padded) };
    let shape = [call.shape(bias), vec![1; before.len()]].concat();
    let bias = call.reshape(&shape, bias)?;
    call.binary(Binary::Add, padded, bias)
}

/// Spatial extents that the output is to have.
fn output_shape(call: &Call, axes: usize) -> Result<Option<Vec<usize>>> {
    match call.extents("output_shape")? {
        Some(shape) if shape.len() == axes => Ok(Some(shape)),
        // With batch and channels.
        Some(shape) if shape.len() == axes + 2 => Ok(Some(shape[2..].to_vec())),
        Some(_) => Err(attribute("output_shape", format!("it has not {axes} numbers"))),
        None => Ok(None),
    }
}

/// The images of a pooling and its windows.
fn pool_windows(call: &Call) -> Result<(Value, Vec<Sliding>)> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let extents = spatial(call, x)?;
    let kernel = kernel_shape(call, extents.len())?.ok_or_else(|| attribute("kernel_shape", "it is missing"))?;
    Ok((x, padded(call, windows(call, &kernel)?, &extents)?))
}

/// Elements that all windows within an image and its padding cover, and whether one more begins in the image or the padding before it.
fn covered(window: &Sliding, extent: usize) -> Result<(usize, bool)> {
    let reach = reach(window)?;
    let padded = window.pad.iter().fold(extent, |sum, &pad| sum.saturating_add(pad));
    let Some(room) = padded.checked_sub(reach) else { return unfit("a window is larger than the image") };
    let next = (room / window.stride + 1).saturating_mul(window.stride);
    Ok((room - room % window.stride + reach, room % window.stride > 0 && next < extent + window.pad[0]))
}

/// Whether windows that end behind the padding count, and there are any.
fn has_more(call: &Call, x: Value, window: &[Sliding]) -> Result<bool> {
    let more: Result<Vec<bool>> =
        window.iter().zip(spatial(call, x)?).map(|(window, extent)| Ok(covered(window, extent)?.1)).collect();
    Ok(call.flag("ceil_mode", false)? && more?.contains(&true))
}

fn max_pool(call: &mut Call) -> Result<Value> {
    // Of the order of indices, which are no output here.
    call.ignore(&["storage_order"]);
    let (x, window) = pool_windows(call)?;
    let ceil = has_more(call, x, &window)?;
    call.add(Op::Pool { window, ceil, kind: PoolKind::Max }, &[x])
}

fn average_pool(call: &mut Call) -> Result<Value> {
    let with_padding = call.flag("count_include_pad", false)?;
    let (mut x, mut window) = pool_windows(call)?;
    let ceil = has_more(call, x, &window)?;

    // Padding counts, but not what is behind it: so it becomes a part of the images, as far as windows go.
    if with_padding && ceil {
        let mut pad = vec![[0, 0]; 2];
        for (window, extent) in window.iter_mut().zip(spatial(call, x)?) {
            let (covered, more) = covered(window, extent)?;
            let [before, behind] = std::mem::take(&mut window.pad);
            pad.push([before, if more { behind } else { covered.saturating_sub(extent + before) }]);
        }
        x = call.add(Op::Pad { pad, mode: PadMode::Constant, value: 0.0 }, &[x])?;
    }
    let is_padded = window.iter().any(|window| window.pad != [0, 0]);
    let counts_all = !ceil && (with_padding || !is_padded);
    let kind = if counts_all { PoolKind::Average } else { PoolKind::InnerAverage };
    call.add(Op::Pool { window, ceil, kind }, &[x])
}

/// Of all elements of an image one.
fn global(call: &mut Call, op: ReduceOp) -> Result<Value> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let axes: Vec<usize> = (2..2 + spatial(call, x)?.len()).collect();
    call.reduce(op, &axes, true, x)
}
