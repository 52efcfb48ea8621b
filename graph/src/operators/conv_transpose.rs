//! Transposed convolution.

use autotune_workloads::{ConvTranspose2d, PadMode, Workload};

use super::binary::Binary;
use super::contract::{columns_of, contract, with_bias};
use super::pad::Pad;
use super::prelude::*;
use super::window::{
    self, AutoPad, Sliding, auto_pad, check_bias, check_channels, check_spatial, exported, groups, halves,
    kernel_of_weights, pads, reach, scaled, spatial, windows,
};

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("ConvTranspose", import)];

/// Transposed convolution of `[n, c, ..]` with weights `[c, o/groups, ..kernel]` and optional
/// biases `[o]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvTranspose {
    /// Window of each spatial axis; its padding is cropped from the output.
    pub window: Vec<Sliding>,
    /// Elements that are added at the end of each spatial axis of the output.
    pub output_pad: Vec<usize>,
    /// Number of channel groups.
    pub groups: usize,
}

impl Operator for ConvTranspose {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shapes = shapes_of(operands, 2..=3, DType::F32)?;
        Ok((output(&self.window, &self.output_pad, self.groups, &shapes)?, DType::F32))
    }

    /// Scatters each input element's products to its window of the uncropped output, then crops the
    /// padding.
    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (window, output_pad, groups) = (&self.window, &self.output_pad, self.groups);
        let (x, weights) = (values::<f32>(operands, 0)?, values::<f32>(operands, 1)?);
        let (x_shape, w_shape) = (operands[0].shape(), operands[1].shape());
        let [n, of_group, o] = [x_shape[0], x_shape[1] / groups, w_shape[1]];

        // Shape of the output before the padding is cropped.
        let uncut = |(axis, window): (usize, &Sliding)| {
            (x_shape[axis + 2] - 1) * window.stride + (window.kernel - 1) * window.dilation + 1 + output_pad[axis]
        };
        let uncut: Vec<usize> = [n, shape[1]].into_iter().chain(window.iter().enumerate().map(uncut)).collect();
        let size = elements(&uncut)?;

        let steps = strides(&uncut);
        let positions = offsets(&x_shape[2..], &scaled(window, &steps, |window| window.stride));
        let of_channel = offsets(&w_shape[2..], &scaled(window, &steps, |window| window.dilation));
        let (pixels, taps) = (positions.len(), o * of_channel.len());
        elements(&[taps, pixels])?;

        let mut sums = vec![0.0; size];
        for (image, group) in (0..n).flat_map(|image| (0..groups).map(move |group| (image, group))) {
            let x = &x[(image * groups + group) * of_group * pixels..][..of_group * pixels];
            let weights = &weights[group * of_group * taps..][..of_group * taps];
            // Weights are transposed to one row for each tap, as `contract` expects.
            let turned: Vec<f32> =
                (0..taps).flat_map(|tap| (0..of_group).map(move |c| weights[c * taps + tap])).collect();
            let products = contract(&turned, [taps, of_group, pixels], |first, columns| {
                columns_of(x, pixels, first, columns);
            });

            // Scatter: each product is added at its tap's position in the output.
            for (tap, products) in products.chunks_exact(pixels).enumerate() {
                let channel = group * o + tap / of_channel.len();
                let start = image * steps[0] + channel * steps[1] + of_channel[tap % of_channel.len()];
                positions.iter().zip(products).for_each(|(at, product)| sums[start + at] += product);
            }
        }

        // Crop the padding.
        let kept = |(axis, &extent): (usize, &usize)| {
            let cut = axis.checked_sub(2).map_or(0, |axis| window[axis].pad[0]);
            (cut..cut + extent).map(Some).collect()
        };
        let kept: Vec<Vec<_>> = shape.iter().enumerate().map(kept).collect();
        with_bias(picked(&sums, &uncut, &kept, 0.0), operands, shape)
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let bare = workload(&self.window, &self.output_pad, self.groups, [node.shape(0), node.shape(1)])?;
        Some(Anchor::new(bare, node).with_bias().with_sums(Some(1)))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let more = vec![ints("output_padding", self.output_pad.iter().copied()), int("group", self.groups)];
        to.operator("ConvTranspose", [exported(&self.window), more].concat())
    }

    fn steps(&self, operands: &[Facts], _: &[usize]) -> Option<usize> {
        product(operands[0].0)?.checked_mul(product(&operands[1].0[1..])?)
    }

    fn channel_of_sums(&self, _: usize) -> Option<usize> {
        Some(1)
    }
}

fn output(window: &[Sliding], output_pad: &[usize], groups: usize, shapes: &[&[usize]]) -> Result<Vec<usize>, OpError> {
    let (&[n, c, ref extents @ ..], &[c_of_weights, per_group, ref kernels @ ..]) = (shapes[0], shapes[1]) else {
        return unfit(format!("shapes of images {:?} and weights {:?} do not match", shapes[0], shapes[1]));
    };
    check_spatial(window, extents, kernels)?;
    check_channels(groups, &[c])?;
    if c_of_weights != c || output_pad.len() != window.len() {
        return unfit(format!(
            "weights of shape {:?} and output padding {output_pad:?} do not match {c} channels",
            shapes[1]
        ));
    }
    let o = per_group.checked_mul(groups).ok_or(OpError::TooLarge { shape: shapes[1].to_vec() })?;
    check_bias(shapes, o)?;

    let extent = |((window, &extent), &more): ((&Sliding, &usize), &usize)| {
        let last = extent.checked_sub(1)?.checked_mul(window.stride)?.checked_add(window.reach()?)?;
        let cut = window.pad[0].checked_add(window.pad[1])?;
        last.checked_add(more)?.checked_sub(cut).filter(|&extent| extent > 0)
    };
    let spatial = window.iter().zip(extents).zip(output_pad);
    let spatial = spatial.map(|axis| extent(axis).ok_or_else(|| OpError::Unfit("the padding leaves no output".into())));
    [Ok(n), Ok(o)].into_iter().chain(spatial).collect()
}

fn workload(window: &[Sliding], output_pad: &[usize], groups: usize, shapes: [&[usize]; 2]) -> Option<Workload> {
    // With one spatial axis, the image has a single row.
    let whole = [Sliding::new(1)];
    let ([n, c, h, w], [a, b], output_pad) = match (shapes[0], window, output_pad) {
        (&[n, c, w], [a], &[pad]) => ([n, c, 1, w], [&whole[0], a], [0, pad]),
        (&[n, c, h, w], [a, b], &[rows, columns]) => ([n, c, h, w], [a, b], [rows, columns]),
        _ => return None,
    };
    // The workload has no dilation.
    if a.dilation != 1 || b.dilation != 1 {
        return None;
    }
    let op = ConvTranspose2d {
        n,
        c,
        h,
        w,
        o: shapes[1][1].checked_mul(groups)?,
        kernel: [a.kernel, b.kernel],
        stride: [a.stride, b.stride],
        pad: [a.even()?, b.even()?],
        output_pad,
        groups,
    };
    Workload::new(op).ok()
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    let operands = window::operands(call)?;
    let extents = spatial(call, operands[0])?;
    let kernel = kernel_of_weights(call, operands[1], extents.len())?;
    let mut window = windows(call, &kernel)?;

    let axes = extents.len();
    let mut output_pad = call.extents("output_padding")?.unwrap_or_else(|| vec![0; axes]);
    if output_pad.len() != axes {
        return Err(attribute("output_padding", format!("expected {axes} numbers")));
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

        // Excess output is cropped, half at either end.
        let last = extents[axis].saturating_sub(1).saturating_mul(window.stride);
        let whole = last.saturating_add(reach(window)?).saturating_add(*more);
        let too_much = whole.saturating_sub(wanted);
        // The odd element goes to the opposite end compared with convolutions, unless SAME_UPPER is
        // given.
        let auto = if auto == AutoPad::Upper { auto } else { AutoPad::Lower };
        window.pad = halves(too_much, auto);
        // Missing output is appended at the end; where strides imply the amount, half of it at
        // either end.
        let missing = wanted.saturating_sub(whole);
        before[axis] = if outputs.is_none() { halves(missing, auto)[0] } else { 0 };
        *more = more.saturating_add(missing - before[axis]);
    }

    let op = ConvTranspose { window, output_pad, groups: groups(call)? };
    // The operator pads only at the end; leading elements need a separate Pad.
    if before.iter().all(|&before| before == 0) { call.add(op, &operands) } else { moved(call, op, &operands, &before) }
}

/// Adds a transposed convolution, then `before` elements of padding ahead of its output. Only the
/// bias reaches those elements.
fn moved(call: &mut Call, op: ConvTranspose, operands: &[ImportValue], before: &[usize]) -> call::Result<ImportValue> {
    let sums = call.add(op, &operands[..2])?;
    let pad = [0, 0].iter().chain(before).map(|&before| [before, 0]).collect();
    let padded = call.add(Pad { pad, mode: PadMode::Constant, value: 0.0 }, &[sums])?;
    let Some(&bias) = operands.get(2) else { return Ok(padded) };
    let shape = [call.shape(bias), vec![1; before.len()]].concat();
    let bias = call.reshape(&shape, bias)?;
    call.binary(Binary::Add, padded, bias)
}

/// Returns the output's spatial extents, if an attribute gives them.
fn output_shape(call: &Call, axes: usize) -> call::Result<Option<Vec<usize>>> {
    match call.extents("output_shape")? {
        Some(shape) if shape.len() == axes => Ok(Some(shape)),
        // The shape includes batch and channels.
        Some(shape) if shape.len() == axes + 2 => Ok(Some(shape[2..].to_vec())),
        Some(_) => Err(attribute("output_shape", format!("expected {axes} numbers"))),
        None => Ok(None),
    }
}
