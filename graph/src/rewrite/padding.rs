//! Padding before windows and within them.
//!
//! Kernels support equal padding at both ends of an axis, no more than a window's extent. Padding
//! of that form becomes part of the window; other padding becomes a separate node before it.

use autotune_workloads::{PadMode, PoolKind};

use super::new_graph::NewNode;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::error::{GraphError, OpError};
use crate::memory::is_of_bytes;
use crate::op::Operator;
use crate::operators::{Binary, Concat, Conv, ConvTranspose, Expand, Pad, Pool, Range, Slice, Sliding};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "window_of_one",
        before: "Pool with windows of one element and stride 1",
        after: "x",
        apply: window_of_one,
    },
    Rule {
        name: "not_rounded_up",
        before: "Pool with ceil mode, where floor mode gives as many windows",
        after: "Pool with floor mode",
        apply: not_rounded_up,
    },
    Rule {
        name: "means_without_padding",
        before: "mean Pool that excludes padding, without padding",
        after: "mean Pool",
        apply: means_without_padding,
    },
    Rule {
        name: "pad_into_window",
        before: "Conv(Pad(x)), Pool(Pad(x)), padded with the value that the window pads with",
        after: "Conv(x), Pool(x) with padding",
        apply: pad_into_window,
    },
    Rule { name: "uneven_conv", before: "Conv with asymmetric padding", after: "Conv(Pad(x))", apply: uneven_conv },
    Rule {
        name: "uneven_pool",
        before: "Pool with asymmetric padding, or mean Pool whose counts exceed the tables of a kernel",
        after: "Pool(Pad(x)), means times a correction",
        apply: uneven_pool,
    },
    Rule {
        name: "uneven_conv_transpose",
        before: "ConvTranspose with asymmetric cropping, or whose output is not a multiple of the stride",
        after: "Slice(ConvTranspose(x))",
        apply: uneven_conv_transpose,
    },
];

/// True if a kernel supports this padding. A pooling window, over an axis of `pooled` elements,
/// must also contain at least one of them, even if dilation skips some.
fn is_even(window: &Sliding, pad: [usize; 2], pooled: Option<usize>) -> bool {
    let reach = (window.kernel - 1) * window.dilation + 1;
    let has_one = |extent| pad[0] < reach && (pad[0] == 0 || window.dilation <= extent);
    pad[0] == pad[1] && pooled.map_or(pad[0] <= reach, has_one)
}

fn window_of_one(site: &mut RewriteSite) -> Rewritten {
    match site.node().op.of() {
        Some(Pool { window, .. }) if window.iter().all(|window| *window == Sliding::new(1)) => site.is(site.operand(0)),
        _ => Ok(None),
    }
}

fn not_rounded_up(site: &mut RewriteSite) -> Rewritten {
    let Some(Pool { window, ceil: true, kind }) = site.node().op.of() else { return Ok(None) };
    let rounded_down = Pool { window: window.clone(), ceil: false, kind: *kind };
    let input = site.of(site.operand(0));
    match rounded_down.infer(&[(&input.shape, input.dtype)]) {
        Ok((shape, _)) if shape == site.node().shape => {
            let x = site.made(site.operand(0));
            site.add(rounded_down, &[x]).map(Some)
        }
        _ => Ok(None),
    }
}

fn means_without_padding(site: &mut RewriteSite) -> Rewritten {
    let Some(Pool { window, ceil: false, kind: PoolKind::InnerAverage }) = site.node().op.of() else { return Ok(None) };
    if window.iter().any(|window| window.pad != [0, 0]) {
        return Ok(None);
    }
    let x = site.made(site.operand(0));
    site.add(Pool { window: window.clone(), ceil: false, kind: PoolKind::Average }, &[x]).map(Some)
}

fn pad_into_window(site: &mut RewriteSite) -> Rewritten {
    let conv = site.node().op.of().map(|Conv { window, .. }| (window, 0.0));
    let pool = || match site.node().op.of()? {
        Pool { window, ceil: false, kind: PoolKind::Average } => Some((window, 0.0)),
        Pool { window, ceil: false, kind: PoolKind::Max } => Some((window, f32::NEG_INFINITY)),
        Pool { .. } => None,
    };
    let Some((window, neutral)) = conv.or_else(pool) else { return Ok(None) };
    let input = site.of(site.operand(0));
    let Some(Pad { pad, mode: PadMode::Constant, value }) = input.op.of() else { return Ok(None) };
    if *value != neutral || pad[..2] != [[0, 0]; 2] {
        return Ok(None);
    }

    // An axis whose total padding is supported moves into the window; the rest remains.
    let is_pool = site.node().op.is::<Pool>();
    let extents = &site.of(input.operands[0]).shape[2..];
    let (mut window, mut rest) = (window.clone(), pad.clone());
    for ((window, rest), &extent) in window.iter_mut().zip(&mut rest[2..]).zip(extents) {
        let both = [window.pad[0] + rest[0], window.pad[1] + rest[1]];
        if is_even(window, both, is_pool.then_some(extent)) {
            (window.pad, *rest) = (both, [0, 0]);
        }
    }
    if rest == *pad {
        return Ok(None);
    }
    let x = site.made(input.operands[0]);
    let padded = with_pad(site, x, rest, neutral)?;
    over(site, padded, window)
}

/// Adds a copy of the matched convolution or pooling that reads `image` by the windows `window`.
fn over(site: &mut RewriteSite, image: NewNode, window: Vec<Sliding>) -> Rewritten {
    let mut operands = site.operands_of(site.id);
    operands[0] = image;
    if let Some(&Conv { groups, .. }) = site.node().op.of() {
        return site.add(Conv { window, groups }, &operands).map(Some);
    }
    let Some(&Pool { kind, .. }) = site.node().op.of() else { return Ok(None) };
    site.add(Pool { window, ceil: false, kind }, &operands).map(Some)
}

fn with_pad(site: &mut RewriteSite, x: NewNode, pad: Vec<[usize; 2]>, value: f32) -> Result<NewNode, GraphError> {
    match pad.iter().all(|pad| *pad == [0, 0]) {
        true => Ok(x),
        false if is_of_bytes(site.dtype_of(x)) => surrounded(site, x, &pad, value),
        false => site.add(Pad { pad, mode: PadMode::Constant, value }, &[x]),
    }
}

/// Pads bytes along each axis by concatenation, since [`Pad`] has kernels for f32 only. A value
/// outside the type's range becomes the nearest one inside.
pub(super) fn surrounded(
    site: &mut RewriteSite,
    mut x: NewNode,
    pad: &[[usize; 2]],
    value: f32,
) -> Result<NewNode, GraphError> {
    let dtype = site.dtype_of(x);
    let [least, most] = dtype.range().map(|end| end as f32);
    for (axis, ends) in pad.iter().enumerate() {
        let mut parts = Vec::new();
        for extent in ends {
            let mut shape = site.shape_of(x);
            shape[axis] = *extent;
            let values = vec![value.clamp(least, most); shape.iter().product()];
            let part = Tensor::of_numbers(&shape, dtype, &values).map_err(|source| site.wrong(source))?;
            parts.push((*extent > 0).then(|| site.constant(part)));
        }

        parts.insert(1, Some(x));
        let parts: Vec<NewNode> = parts.into_iter().flatten().collect();
        if parts.len() > 1 {
            x = site.add(Concat { axis }, &parts)?;
        }
    }
    Ok(x)
}

fn uneven_conv(site: &mut RewriteSite) -> Rewritten {
    let Some(Conv { window, .. }) = site.node().op.of() else { return Ok(None) };
    if window.iter().all(|window| is_even(window, window.pad, None)) {
        return Ok(None);
    }
    let pads: Vec<_> = window.iter().map(|window| window.pad).collect();
    let (window, pad) = split(window, &pads, &vec![None; pads.len()]);
    let x = site.made(site.operand(0));
    let padded = with_pad(site, x, pad, 0.0)?;
    over(site, padded, window)
}

/// Splits padding into supported padding, as part of the windows, and the rest, for all axes of the
/// image.
fn split(window: &[Sliding], pads: &[[usize; 2]], pooled: &[Option<usize>]) -> (Vec<Sliding>, Vec<[usize; 2]>) {
    let mut rest = vec![[0, 0]; 2];
    let mut windows = Vec::new();
    for ((window, &own), &pooled) in window.iter().zip(pads).zip(pooled) {
        let (pad, left) = if is_even(window, own, pooled) { (own, [0, 0]) } else { ([0, 0], own) };
        windows.push(Sliding { pad, ..*window });
        rest.push(left);
    }
    (windows, rest)
}

fn uneven_pool(site: &mut RewriteSite) -> Rewritten {
    let Some(Pool { window, ceil, kind }) = site.node().op.of() else { return Ok(None) };
    // Pooling over more axes is split into several operators first.
    let counts = *ceil || *kind == PoolKind::InnerAverage;
    let is_uncounted = || counts && window.len() <= 2 && !site.from.has_kernel(site.id);
    let (from, to) = (&site.of(site.operand(0)).shape, &site.node().shape);
    let pooled: Vec<Option<usize>> = from[2..].iter().copied().map(Some).collect();
    let is_even = |(window, pooled): (&Sliding, &Option<usize>)| is_even(window, window.pad, *pooled);
    if window.iter().zip(&pooled).all(is_even) && !is_uncounted() {
        return Ok(None);
    }

    // Padding that puts all windows inside.
    let whole = |(axis, window): (usize, &Sliding)| {
        let end = (to[axis + 2] - 1) * window.stride + (window.kernel - 1) * window.dilation + 1;
        [window.pad[0], window.pad[1].max(end.saturating_sub(from[axis + 2] + window.pad[0]))]
    };
    let pads: Vec<_> = window.iter().enumerate().map(whole).collect();
    let (windows, rest) = split(window, &pads, &pooled);
    // The neutral element of the reduction.
    let outside = if *kind == PoolKind::Max { f32::NEG_INFINITY } else { 0.0 };
    let x = site.made(site.operand(0));
    let padded = with_pad(site, x, rest, outside)?;
    if *kind == PoolKind::Max || (*kind == PoolKind::Average && !ceil) {
        return over(site, padded, windows);
    }

    // The average divides by the whole window and is too small where fewer elements count.
    let share = share(*kind, window, &from[2..], &pads).map_err(|source| site.wrong(source))?;
    let mean = site.add(Pool { window: windows, ceil: false, kind: PoolKind::Average }, &[padded])?;
    let share = site.constant(share);
    site.add(Binary::Mul, &[mean, share]).map(Some)
}

/// Returns the ratio `[1, 1, ..]` of a window's size to the number of elements that its mean
/// counts, for an image of these extents and this padding.
fn share(kind: PoolKind, window: &[Sliding], extents: &[usize], pads: &[[usize; 2]]) -> Result<Tensor, OpError> {
    // Counted elements are ones: the image, or the image with its own padding. A mean of them is
    // the fraction that counts.
    let mut shape = vec![1; 2];
    let mut around = vec![[0, 0]; 2];
    for ((window, extent), &pad) in window.iter().zip(extents).zip(pads) {
        let [before, behind] = if kind == PoolKind::Average { window.pad } else { [0, 0] };
        shape.push(extent + before + behind);
        around.push([pad[0] - before, pad[1] - behind]);
    }
    let ones = Expand(shape).evaluate(&[&Tensor::scalar(1.0)])?;
    let padded = Pad { pad: around, mode: PadMode::Constant, value: 0.0 }.evaluate(&[&ones])?;
    let window = window.iter().map(|window| Sliding { pad: [0, 0], ..*window }).collect();
    let op = Pool { window, ceil: false, kind: PoolKind::Average };
    Binary::Div.evaluate(&[&Tensor::scalar(1.0), &op.evaluate(&[&padded])?])
}

fn uneven_conv_transpose(site: &mut RewriteSite) -> Rewritten {
    let Some(ConvTranspose { window, output_pad, groups }) = site.node().op.of() else { return Ok(None) };
    let (from, to) = (&site.of(site.operand(0)).shape, &site.node().shape);
    let (mut windows, mut output_pads) = (Vec::new(), Vec::new());
    let mut ranges = Range::all(to);
    for (axis, window) in window.iter().enumerate() {
        let extents = [from[axis + 2], to[axis + 2]];
        // The kernel may compute more outputs than wanted, which the slice removes.
        let Some((pad, output_pad)) = cut(window, output_pad[axis], extents) else { return Ok(None) };
        windows.push(Sliding { pad: [pad, pad], ..*window });
        output_pads.push(output_pad);
        ranges[axis + 2].start = window.pad[0] - pad;
    }
    if windows == *window && output_pads == *output_pad {
        return Ok(None);
    }
    let operands = site.operands_of(site.id);
    let op = ConvTranspose { window: windows, output_pad: output_pads, groups: *groups };
    let larger = site.add(op, &operands)?;
    match site.shape_of(larger) == *to {
        true => Ok(Some(larger)),
        false => site.add(Slice(ranges), &[larger]).map(Some),
    }
}

/// Returns equal padding for both ends and an output padding below the stride that keep all
/// outputs, with a total that is a multiple of the stride. Returns `None` if the original output
/// extends further than that. `from` and `to` are the input's and output's extents.
fn cut(window: &Sliding, output_pad: usize, [from, to]: [usize; 2]) -> Option<(usize, usize)> {
    let Sliding { kernel, stride, dilation, pad } = *window;
    // Number of outputs before cropping.
    let whole = (from - 1) * stride + (kernel - 1) * dilation + 1;
    let with = |cut: usize| {
        let outputs = whole.checked_sub(2 * cut)?;
        // Kernels produce multiples of the stride.
        let more = (stride - outputs % stride) % stride;
        // The first output follows those that the padding crops.
        (outputs + more >= to + pad[0] - cut).then_some((cut, more))
    };
    let is_kept = pad[0] == pad[1] && output_pad < stride && (whole + output_pad - 2 * pad[0]).is_multiple_of(stride);
    if is_kept {
        return Some((pad[0], output_pad));
    }
    // The largest possible crop leaves the fewest superfluous outputs.
    (0..=pad[0].min(pad[1])).rev().find_map(with)
}
