//! Fallback rewriting of forms without kernels, so that every network that runs can be compiled.
//!
//! The results are slower than a dedicated kernel would be. These rules come after all rules that
//! produce a form with a kernel.

use autotune_ir::DType;
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Function, PadMode, ReduceOp, Resample, Sampling};
use ndarray::{Array1, Axis};

use super::new_graph::NewNode;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::error::GraphError;
use crate::op::SubNode;
use crate::operators::{
    Binary, Concat, Conv, ConvTranspose, Expand, Gather, LocalResponseNorm, Map, MatMul, Pad, Prelu, Range, Reduce,
    Reshape, Resize, Slice, Sliding, Transpose, Where,
};
use crate::tensor::Tensor;

/// Maximum number of spatial axes of a convolution kernel.
const MOST_AXES: usize = 3;

/// Maximum number of axes of a result for which kernels support any broadcasting.
pub(super) const MOST_REPEATED: usize = 6;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "sum_of_nothing",
        before: "MatMul, Conv or ConvTranspose with an empty reduction",
        after: "Expand(0), or Expand of the biases",
        apply: sum_of_nothing,
    },
    Rule {
        name: "conv_transpose_as_conv",
        before: "ConvTranspose over three axes, with dilation or with output padding",
        after: "Conv of the zero-stuffed and padded image by the flipped weights",
        apply: conv_transpose_as_conv,
    },
    Rule {
        name: "conv_of_many_axes",
        before: "Conv over more than three axes",
        after: "sum of Convs over the other axes, one for each element of the window along the first axis",
        apply: conv_of_many_axes,
    },
    Rule {
        name: "norm_of_all_channels",
        before: "LocalResponseNorm over more channels than x has",
        after: "Slice(LocalResponseNorm(Pad(x)))",
        apply: norm_of_all_channels,
    },
    Rule {
        name: "pad_by_parts",
        before: "Pad along axes longer than the tables of a kernel",
        after: "Concat(padding before, x, padding after)",
        apply: pad_by_parts,
    },
    Rule {
        name: "resize_by_axes",
        before: "Resize of images with axes longer than the tables of a kernel",
        after: "for each axis Gather(x) of the nearest element, or a * Gather(x) + b * Gather(x) of both neighbours",
        apply: resize_by_axes,
    },
    Rule {
        name: "whole_operands",
        before: "x + y, MatMul(x, y), .., broadcast along more separate axes than kernels support",
        after: "Expand(x) + Expand(y), ..",
        apply: whole_operands,
    },
    Rule {
        name: "reduce_in_steps",
        before: "Reduce along more separate axes than kernels support",
        after: "Reduce(Reduce(x))",
        apply: reduce_in_steps,
    },
    Rule {
        name: "parts",
        before: "CumSum, or another operator whose parts have kernels",
        after: "its parts",
        apply: parts,
    },
    Rule {
        name: "power_of_integers",
        before: "x^n of integers",
        after: "product of those of x, x^2, x^4, .. that the binary digits of n select",
        apply: power_of_integers,
    },
];

/// Adds a slice along one axis.
fn part(site: &mut RewriteSite, x: NewNode, axis: usize, range: Range) -> Result<NewNode, GraphError> {
    let mut ranges = Range::all(&site.shape_of(x));
    ranges[axis] = range;
    site.add(Slice(ranges), &[x])
}

fn with_zeros(site: &mut RewriteSite, x: NewNode, pad: Vec<[usize; 2]>) -> Result<NewNode, GraphError> {
    site.add(Pad { pad, mode: PadMode::Constant, value: 0.0 }, &[x])
}

fn sum_of_nothing(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    let shape = |operand: usize| &site.of(node.operands[operand]).shape;
    let summed = match &node.op {
        op if op.is::<MatMul>() => shape(0).last().copied(),
        op if op.is::<Conv>() => Some(shape(1)[1]),
        op if op.is::<ConvTranspose>() => Some(shape(1)[0]),
        _ => return Ok(None),
    };
    if summed != Some(0) {
        return Ok(None);
    }

    // Without products only the bias remains.
    let sums = match node.operands.get(2) {
        None => site.constant(Tensor::scalar(0.0)),
        Some(&biases) => {
            let ones = node.shape.len() - 2;
            let of_channels = [&site.of(biases).shape[..], &vec![1; ones]].concat();
            let biases = site.made(biases);
            site.add(Reshape(of_channels), &[biases])?
        }
    };
    site.add(Expand(node.shape.clone()), &[sums]).map(Some)
}

/// Rewrites a transposed convolution as a convolution of the image with `stride - 1` zeros between
/// its elements, with mirrored weights.
fn conv_transpose_as_conv(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    let Some(ConvTranspose { window, output_pad, groups }) = node.op.of() else { return Ok(None) };
    if site.from.has_kernel(site.id) {
        return Ok(None);
    }

    let mut operands = site.operands_of(site.id);
    // Zeros between the elements replace the stride.
    for (axis, window) in window.iter().enumerate() {
        operands[0] = dilated(site, operands[0], axis + 2, window.stride)?;
    }
    operands[0] = padded(site, operands[0], window, output_pad)?;
    operands[1] = transposed_weights(site, operands[1], *groups)?;
    let dense = |window: &Sliding| Sliding { stride: 1, pad: [0, 0], ..*window };
    site.add(Conv { window: window.iter().map(dense).collect(), groups: *groups }, &operands).map(Some)
}

/// Adds `stride - 1` zeros between the elements along an axis.
fn dilated(site: &mut RewriteSite, x: NewNode, axis: usize, stride: usize) -> Result<NewNode, GraphError> {
    let mut shape = site.shape_of(x);
    let extent = shape[axis];
    if stride == 1 || extent == 1 {
        return Ok(x);
    }

    // A new axis of extent `stride`, zero except for its first element, is merged into the axis.
    shape.insert(axis + 1, 1);
    let split = site.add(Reshape(shape.clone()), &[x])?;
    let mut pad = vec![[0, 0]; shape.len()];
    pad[axis + 1] = [0, stride - 1];
    let padded = with_zeros(site, split, pad)?;
    shape.remove(axis + 1);
    shape[axis] = extent * stride;
    let joined = site.add(Reshape(shape), &[padded])?;
    // No zeros after the last element.
    part(site, joined, axis, Range { start: 0, step: 1, count: (extent - 1) * stride + 1 })
}

/// Adds zeros around an image, so that it has as many windows as there are outputs.
fn padded(site: &mut RewriteSite, x: NewNode, window: &[Sliding], output_pad: &[usize]) -> Result<NewNode, GraphError> {
    let (mut pad, mut ranges) = (vec![[0, 0]; 2], Range::all(&site.shape_of(x)));
    for (axis, (window, more)) in window.iter().zip(output_pad).enumerate() {
        let last = (window.kernel - 1) * window.dilation;
        // The padding may crop more than a window's extent.
        let [before, behind] = [last.saturating_sub(window.pad[0]), (last + more).saturating_sub(window.pad[1])];
        let start = window.pad[0].saturating_sub(last);
        let range = &mut ranges[axis + 2];
        (range.start, range.count) = (start, site.node().shape[axis + 2] + last);
        pad.push([before, behind]);
    }
    let padded = with_zeros(site, x, pad)?;
    site.add(Slice(ranges), &[padded])
}

/// Rearranges weights `[c, o/groups, ..]` to `[o, c/groups, ..]` and reverses their spatial axes.
fn transposed_weights(site: &mut RewriteSite, weights: NewNode, groups: usize) -> Result<NewNode, GraphError> {
    let shape = site.shape_of(weights);
    let mut ranges = Range::all(&shape);
    for range in &mut ranges[2..] {
        *range = Range { start: range.count - 1, step: -1, count: range.count };
    }
    let backwards = site.add(Slice(ranges), &[weights])?;

    let (inputs, outputs, kernel) = (shape[0] / groups, shape[1], &shape[2..]);
    let by_groups = site.add(Reshape([&[groups, inputs, outputs], kernel].concat()), &[backwards])?;
    let perm = [0, 2, 1].into_iter().chain(3..shape.len() + 1).collect();
    let exchanged = site.add(Transpose(perm), &[by_groups])?;
    site.add(Reshape([&[groups * outputs, inputs], kernel].concat()), &[exchanged])
}

/// Splits a convolution along its first spatial axis; the window positions along it join the batch.
fn conv_of_many_axes(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    let Some(Conv { window, groups }) = node.op.of() else { return Ok(None) };
    let [first, rest @ ..] = &window[..] else { return Ok(None) };
    if rest.len() < MOST_AXES {
        return Ok(None);
    }

    let (rank, outputs) = (node.shape.len(), node.shape[2]);
    let mut operands = site.operands_of(site.id);
    let mut pad = vec![[0, 0]; rank];
    pad[2] = first.pad;
    let image = with_zeros(site, operands[0], pad)?;
    let front: Vec<usize> = [0, 2, 1].into_iter().chain(3..rank).collect();
    let weights = operands[1];

    // Each tap along the first axis is a convolution over the other axes.
    let mut sum: Option<NewNode> = None;
    for tap in 0..first.kernel {
        let range = Range { start: tap * first.dilation, step: first.stride as isize, count: outputs };
        let rows = part(site, image, 2, range)?;
        let rows = site.add(Transpose(front.clone()), &[rows])?;
        let mut shape = site.shape_of(rows);
        let batch = shape[0] * shape[1];
        shape.splice(..2, [batch]);
        operands[0] = site.add(Reshape(shape), &[rows])?;

        let of_tap = part(site, weights, 2, Range { start: tap, step: 1, count: 1 })?;
        let mut shape = site.shape_of(of_tap);
        shape.remove(2);
        operands[1] = site.add(Reshape(shape), &[of_tap])?;
        let products = site.add(Conv { window: rest.to_vec(), groups: *groups }, &operands)?;
        // The bias is added once only.
        operands.truncate(2);
        sum = Some(match sum {
            None => products,
            Some(sum) => binary(site, Binary::Add, sum, products)?,
        });
    }

    let Some(sum) = sum else { return Ok(None) };
    let mut shape = site.shape_of(sum);
    shape.splice(..1, [node.shape[0], outputs]);
    let split = site.add(Reshape(shape), &[sum])?;
    site.add(Transpose(front), &[split]).map(Some)
}

/// Pads with channels of zeros, which add nothing to the sums of squares.
fn norm_of_all_channels(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    let Some(&LocalResponseNorm { size, alpha, beta, bias }) = node.op.of() else { return Ok(None) };
    let channels = node.shape[1];
    if size <= channels {
        return Ok(None);
    }

    // A window of this size covers all channels, whatever its centre.
    let reach = size.min(2 * channels);
    let mut pad = vec![[0, 0]; node.shape.len()];
    pad[1] = [0, reach - channels];
    let x = site.made(site.operand(0));
    let padded = with_zeros(site, x, pad)?;
    // The kernel divides by its window size, `reach`, instead of `size`.
    let alpha = (f64::from(alpha) * reach as f64 / size as f64) as f32;
    let norm = site.add(LocalResponseNorm { size: reach, alpha, beta, bias }, &[padded])?;
    part(site, norm, 1, Range { start: 0, step: 1, count: channels }).map(Some)
}

fn pad_by_parts(site: &mut RewriteSite) -> Rewritten {
    let Some(&Pad { ref pad, mode, value }) = site.node().op.of() else { return Ok(None) };
    let padded = pad.iter().position(|pad| *pad != [0, 0]);
    let Some(axis) = padded.filter(|_| !site.from.has_kernel(site.id)) else { return Ok(None) };

    // Other axes are padded first.
    let mut rest = pad.clone();
    let [before, behind] = std::mem::take(&mut rest[axis]);
    let mut x = site.made(site.operand(0));
    if rest.iter().any(|pad| *pad != [0, 0]) {
        x = site.add(Pad { pad: rest, mode, value }, &[x])?;
    }
    let extent = site.shape_of(x)[axis];

    let mut parts = Vec::new();
    for (count, is_behind) in [(before, false), (behind, true)] {
        if count > 0 {
            let block = match mode {
                PadMode::Constant => site.constant(Tensor::scalar(value)),
                PadMode::Edge => {
                    let start = if is_behind { extent - 1 } else { 0 };
                    part(site, x, axis, Range { start, step: 1, count: 1 })?
                }
                PadMode::Reflect => {
                    let start = if is_behind { extent - 2 } else { before };
                    part(site, x, axis, Range { start, step: -1, count })?
                }
            };
            let mut shape = site.shape_of(x);
            shape[axis] = count;
            parts.push(if site.shape_of(block) == shape { block } else { site.add(Expand(shape), &[block])? });
        }
        if !is_behind {
            parts.push(x);
        }
    }
    site.add(Concat { axis }, &parts).map(Some)
}

/// Resizes one axis after the other; linear interpolation is separable.
fn resize_by_axes(site: &mut RewriteSite) -> Rewritten {
    let Some(&Resize { size, coordinates, sampling }) = site.node().op.of() else { return Ok(None) };
    let (&[n, c, ref input @ ..], false) = (&*site.of(site.operand(0)).shape, site.from.has_kernel(site.id)) else {
        return Ok(None);
    };
    let Ok(input) = <[usize; 2]>::try_from(input) else { return Ok(None) };
    let resample = Resample { n, c, input, output: size, coordinates, sampling };

    let mut x = site.made(site.operand(0));
    for axis in (0..2).filter(|&axis| input[axis] != size[axis]) {
        let places = resample.places(axis);
        let last = input[axis] - 1;
        let first = elements_at(site, x, axis + 2, places.iter().map(|&place| place as usize))?;
        x = match sampling {
            Sampling::Nearest(_) => first,
            Sampling::Linear => {
                let next = places.iter().map(|&place| last.min(place as usize + 1));
                let second = elements_at(site, x, axis + 2, next)?;
                let behind: Vec<f64> = places.iter().map(|place| place.fract()).collect();
                let first = weighted(site, first, axis, behind.iter().map(|behind| 1.0 - behind))?;
                let second = weighted(site, second, axis, behind.into_iter())?;
                binary(site, Binary::Add, first, second)?
            }
        };
    }
    Ok(Some(x))
}

/// Adds a gather of elements by constant numbers along an axis.
fn elements_at(
    site: &mut RewriteSite,
    x: NewNode,
    axis: usize,
    numbers: impl Iterator<Item = usize>,
) -> Result<NewNode, GraphError> {
    let numbers = site.constant(Tensor::I64(Array1::from_iter(numbers.map(|number| number as i64)).into_dyn()));
    site.add(Gather { axis }, &[x, numbers])
}

/// Multiplies images by a number for each row (axis 0) or column (axis 1).
fn weighted(
    site: &mut RewriteSite,
    images: NewNode,
    axis: usize,
    weights: impl Iterator<Item = f64>,
) -> Result<NewNode, GraphError> {
    let weights = Array1::from_iter(weights.map(|weight| weight as f32));
    let of_axis = if axis == 0 { weights.insert_axis(Axis(1)).into_dyn() } else { weights.into_dyn() };
    let weights = site.constant(Tensor::F32(of_axis));
    binary(site, Binary::Mul, images, weights)
}

fn whole_operands(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    let op = &node.op;
    let is_repeated = op.is::<Binary>() || op.is::<Where>() || op.is::<Prelu>() || op.is::<MatMul>();
    if !is_repeated || node.shape.len() <= MOST_REPEATED || site.from.has_kernel(site.id) {
        return Ok(None);
    }

    let mut operands = site.operands_of(site.id);
    let mut is_changed = false;
    for operand in &mut operands {
        let own = site.shape_of(*operand);
        let whole = match (op.is::<MatMul>(), &own[..]) {
            // Matrix products broadcast their leading axes only.
            (true, [.., rows, columns]) => [&node.shape[..node.shape.len() - 2], &[*rows, *columns]].concat(),
            (true, _) => return Ok(None),
            _ => node.shape.clone(),
        };
        if own != whole {
            (*operand, is_changed) = (site.add(Expand(whole), &[*operand])?, true);
        }
    }
    if is_changed { site.add(node.op.clone(), &operands).map(Some) } else { Ok(None) }
}

fn reduce_in_steps(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    let Some(Reduce { op, axes, keep_axes }) = node.op.of() else { return Ok(None) };
    // Integer means truncate, and must do so once only.
    let is_cut_off = *op == ReduceOp::Mean && node.dtype == DType::I64;
    if axes.len() < 2 || is_cut_off || site.from.has_kernel(site.id) {
        return Ok(None);
    }

    // The inner reduction keeps its axes, so that the others keep their numbers.
    let (first, last) = axes.split_at(axes.len() / 2);
    let x = site.made(site.operand(0));
    let part = site.add(Reduce { op: *op, axes: last.to_vec(), keep_axes: true }, &[x])?;
    let rest = site.add(Reduce { op: *op, axes: first.to_vec(), keep_axes: true }, &[part])?;
    if *keep_axes { Ok(Some(rest)) } else { site.add(Reshape(node.shape.clone()), &[rest]).map(Some) }
}

/// Replaces an operator by its own decomposition ([`parts`](crate::op::Operator::parts)).
fn parts(site: &mut RewriteSite) -> Rewritten {
    let Some(parts) = site.node().op.parts(&site.from.view(site.id)) else { return Ok(None) };
    if site.from.has_kernel(site.id) {
        return Ok(None);
    }
    // Operands of a part are numbered over the node's operands and the earlier parts.
    let mut made = site.operands_of(site.id);
    for SubNode { op, operands } in parts {
        let part = match op.of() {
            Some(constant) => site.new.constant(&site.node().name, constant),
            None => site.add(op, &operands.iter().map(|&operand| made[operand]).collect::<Vec<_>>())?,
        };
        made.push(part);
    }
    Ok(made.pop())
}

/// Rewrites an integer power. A negative exponent truncates the fraction; zero to a negative power
/// is `i64::MAX`.
fn power_of_integers(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    if node.op != Binary::Pow || node.dtype != DType::I64 {
        return Ok(None);
    }
    let [x, n] = [0, 1].map(|number| site.made(site.operand(number)));
    let [zero, one] = [0, 1].map(|number| integer(site, number));
    let power = power_of_size(site, x, n)?;

    // For negative n, powers of 1 and -1 are exact, 0 saturates, and all others truncate to 0.
    let size = site.add(Map(Function::Op(UnaryOp::Abs)), &[x])?;
    let (is_one, is_zero) = (binary(site, Binary::Equal, size, one)?, binary(site, Binary::Equal, size, zero)?);
    let largest = integer(site, i64::MAX);
    let others = site.add(Where, &[is_zero, largest, zero])?;
    let inverse = site.add(Where, &[is_one, power, others])?;
    let is_inverse = binary(site, Binary::Less, n, zero)?;
    site.add(Where, &[is_inverse, inverse, power]).map(Some)
}

/// Adds `x` to the power `|n|`.
fn power_of_size(site: &mut RewriteSite, x: NewNode, n: NewNode) -> Result<NewNode, GraphError> {
    let [zero, one, most] = [0, 1, 62].map(|number| integer(site, number));
    let mut left = site.add(Map(Function::Op(UnaryOp::Abs)), &[n])?;

    // Beyond an exponent of 63 only powers of 0, 1 and -1 are representable, and they depend only
    // on the exponent's parity.
    let (_, odd) = halved(site, left)?;
    let most = binary(site, Binary::Add, odd, most)?;
    left = binary(site, Binary::Min, left, most)?;

    // Binary exponentiation; six digits suffice for exponents up to 63.
    let (mut power, mut square) = (one, x);
    for digit in 0..6 {
        if digit > 0 {
            square = binary(site, Binary::Mul, square, square)?;
        }
        let (half, odd) = halved(site, left)?;
        let counts = binary(site, Binary::Less, zero, odd)?;
        let factor = site.add(Where, &[counts, square, one])?;
        power = binary(site, Binary::Mul, power, factor)?;
        left = half;
    }
    Ok(power)
}

/// Adds nodes for `number / 2`, truncated, and for the remainder `number % 2`.
fn halved(site: &mut RewriteSite, number: NewNode) -> Result<(NewNode, NewNode), GraphError> {
    let two = integer(site, 2);
    let half = binary(site, Binary::Div, number, two)?;
    let twice = binary(site, Binary::Mul, half, two)?;
    Ok((half, binary(site, Binary::Sub, number, twice)?))
}

fn integer(site: &mut RewriteSite, number: i64) -> NewNode {
    site.constant(Tensor::I64(ndarray::arr0(number).into_dyn()))
}

fn binary(site: &mut RewriteSite, op: Binary, a: NewNode, b: NewNode) -> Result<NewNode, GraphError> {
    site.add(op, &[a, b])
}
