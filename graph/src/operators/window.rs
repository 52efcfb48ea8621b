//! Sliding windows along the spatial axes of images, `[n, c, ..spatial]`.

use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;
use crate::op;

/// A sliding window along one spatial axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sliding {
    /// Number of elements in the window.
    pub kernel: usize,
    /// Distance between neighbouring windows, in elements of the image.
    pub stride: usize,
    /// Distance between neighbouring elements of the window, in elements of the image.
    pub dilation: usize,
    /// Elements of padding before and after the image.
    pub pad: [usize; 2],
}

impl Sliding {
    /// Creates a dense window of `kernel` elements with stride 1 and no padding.
    pub fn new(kernel: usize) -> Self {
        Self { kernel, stride: 1, dilation: 1, pad: [0, 0] }
    }

    /// Sets the distance between neighbouring windows.
    pub fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// Sets the padding, equal at both ends.
    pub fn pad(self, pad: usize) -> Self {
        Self { pad: [pad, pad], ..self }
    }

    /// Returns the padding, if it is equal at both ends.
    pub(super) fn even(&self) -> Option<usize> {
        (self.pad[0] == self.pad[1]).then_some(self.pad[0])
    }

    /// Returns the extent of a window in the image, from its first to its last element; `None` on
    /// overflow.
    pub(super) fn reach(&self) -> Option<usize> {
        (self.kernel - 1).checked_mul(self.dilation)?.checked_add(1)
    }

    /// Returns a shorter axis whose windows overlap the padding in the same ways, and for each
    /// window of the whole axis the window of the shorter one with the same overlap. `None` if all
    /// windows overlap it.
    pub(crate) fn distinct(&self, extent: usize) -> Option<(usize, Vec<i64>)> {
        let (count, reach) = (self.outputs(extent, false).ok()?, self.reach()?);
        let is_inside = |window: &usize| {
            let first = (window * self.stride).checked_sub(self.pad[0]);
            first.is_some_and(|first| first + reach <= extent)
        };
        let inside: Vec<usize> = (0..count).filter(is_inside).collect();
        let (&first, left_out) = (inside.first()?, inside.len() - 1);

        // One window inside the image stands for all of them, which are adjacent.
        let equal = |window: usize| window.min(first).max(window.saturating_sub(left_out)) as i64;
        Some((extent - left_out * self.stride, (0..count).map(equal).collect()))
    }

    /// Returns the number of windows along an axis.
    pub(super) fn outputs(&self, extent: usize, ceil: bool) -> std::result::Result<usize, OpError> {
        let [before, behind] = self.pad;
        let padded = extent.checked_add(before).and_then(|sum| sum.checked_add(behind));
        let room = padded.zip(self.reach()).and_then(|(padded, reach)| padded.checked_sub(reach));
        let Some(room) = room else {
            return op::unfit(format!("the window of {} elements exceeds the image of {extent}", self.kernel));
        };
        let whole = room / self.stride + 1;
        // With `ceil`, one more window covers the remainder, unless it would start in the padding
        // after the image.
        let more = ceil && room % self.stride > 0 && whole * self.stride < extent + before;
        Ok(whole + usize::from(more))
    }
}

/// Fails unless there is a nonempty window with the expected kernel for each spatial axis.
pub(super) fn check_spatial(
    window: &[Sliding],
    extents: &[usize],
    kernels: &[usize],
) -> std::result::Result<(), OpError> {
    let found: Vec<usize> = window.iter().map(|window| window.kernel).collect();
    if found != kernels || window.len() != extents.len() || window.is_empty() {
        return op::unfit(format!("windows {found:?} do not match images of {extents:?} and weights of {kernels:?}"));
    }
    let is_empty = |window: &Sliding| [window.kernel, window.stride, window.dilation].contains(&0);
    if window.iter().any(is_empty) || extents.contains(&0) {
        return op::unfit("kernel, stride, dilation and image must not be empty");
    }
    Ok(())
}

/// Fails unless all channel counts are divisible by `groups`.
pub(super) fn check_channels(groups: usize, channels: &[usize]) -> std::result::Result<(), OpError> {
    match groups > 0 && channels.iter().all(|c| c.is_multiple_of(groups)) {
        true => Ok(()),
        false => op::unfit(format!("{channels:?} channels cannot be divided into {groups} groups")),
    }
}

/// Fails if there is a third operand that is not a vector of `o` channels.
pub(super) fn check_bias(shapes: &[&[usize]], o: usize) -> std::result::Result<(), OpError> {
    match shapes.get(2) {
        Some(&shape) if shape != [o] => op::unfit(format!("biases of shape {shape:?} do not match {o} channels")),
        _ => Ok(()),
    }
}

/// Returns image strides multiplied by a property of each window, such as its stride.
pub(super) fn scaled(window: &[Sliding], strides: &[usize], by: fn(&Sliding) -> usize) -> Vec<usize> {
    window.iter().zip(&strides[2..]).map(|(window, step)| step * by(window)).collect()
}

/// Returns the window attributes for ONNX; all padding before precedes all padding after.
pub(super) fn exported(window: &[Sliding]) -> Vec<Attribute> {
    let each = |name: &str, of: fn(&Sliding) -> usize| ints(name, window.iter().map(of));
    let pads = window.iter().map(|window| window.pad[0]).chain(window.iter().map(|window| window.pad[1]));
    let mut all =
        vec![each("kernel_shape", |window| window.kernel), each("strides", |window| window.stride), ints("pads", pads)];
    // Some operators on quantised tensors of ONNX Runtime refuse the attribute.
    if window.iter().any(|window| window.dilation > 1) {
        all.push(each("dilations", |window| window.dilation));
    }
    all
}

/// ONNX `auto_pad`: how padding is derived.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum AutoPad {
    /// Padding is given by `pads`.
    None,
    /// Padding is 0 on all sides.
    Valid,
    /// Padding for `ceil(extent / stride)` windows, the odd element after the image.
    Upper,
    /// Like `Upper`, the odd element before the image.
    Lower,
}

pub(super) fn auto_pad(call: &Call) -> Result<AutoPad> {
    match call.word_or("auto_pad", "NOTSET")? {
        "NOTSET" | "" => Ok(AutoPad::None),
        "VALID" => Ok(AutoPad::Valid),
        "SAME_UPPER" => Ok(AutoPad::Upper),
        "SAME_LOWER" => Ok(AutoPad::Lower),
        _ => Err(attribute("auto_pad", "expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")),
    }
}

/// Returns the spatial extents of images, without batch and channels.
pub(super) fn spatial(call: &Call, x: ImportValue) -> Result<Vec<usize>> {
    match &call.shape(x)[..] {
        [_, _, spatial @ ..] if !spatial.is_empty() => Ok(spatial.to_vec()),
        shape => unfit(format!("expected images of at least three axes, found shape {shape:?}")),
    }
}

/// Returns the windows that the attributes give, without padding.
pub(super) fn windows(call: &Call, kernel: &[usize]) -> Result<Vec<Sliding>> {
    let axes = kernel.len();
    let numbers = |name| match call.extents(name)? {
        Some(numbers) if numbers.len() != axes => Err(attribute(name, format!("expected {axes} numbers"))),
        Some(numbers) if numbers.contains(&0) => Err(attribute(name, "must not contain 0")),
        numbers => Ok(numbers.unwrap_or_else(|| vec![1; axes])),
    };
    let (strides, dilations) = (numbers("strides")?, numbers("dilations")?);
    let each = kernel.iter().zip(strides).zip(dilations);
    Ok(each.map(|((&kernel, stride), dilation)| Sliding { kernel, stride, dilation, pad: [0, 0] }).collect())
}

pub(super) fn kernel_shape(call: &Call, axes: usize) -> Result<Option<Vec<usize>>> {
    match call.extents("kernel_shape")? {
        Some(kernel) if kernel.len() != axes => Err(attribute("kernel_shape", format!("expected {axes} numbers"))),
        Some(kernel) if kernel.contains(&0) => Err(attribute("kernel_shape", "must not contain 0")),
        kernel => Ok(kernel),
    }
}

/// Returns the explicit padding before and after each axis.
pub(super) fn pads(call: &Call, axes: usize) -> Result<Vec<[usize; 2]>> {
    match call.extents("pads")? {
        Some(pads) if pads.len() != 2 * axes => Err(attribute("pads", format!("expected {} numbers", 2 * axes))),
        Some(pads) => Ok((0..axes).map(|axis| [pads[axis], pads[axes + axis]]).collect()),
        None => Ok(vec![[0, 0]; axes]),
    }
}

/// Splits padding in halves; the odd element goes before the image for `Lower`, else after.
pub(super) fn halves(total: usize, auto: AutoPad) -> [usize; 2] {
    let (less, more) = (total / 2, total - total / 2);
    if auto == AutoPad::Lower { [more, less] } else { [less, more] }
}

/// Returns the extent of a window in the image.
pub(super) fn reach(window: &Sliding) -> Result<usize> {
    window.reach().map_or_else(|| unfit("the windows are too large"), Ok)
}

/// Adds padding, explicit or derived, to the windows over an image of these extents.
pub(super) fn padded(call: &Call, mut windows: Vec<Sliding>, extents: &[usize]) -> Result<Vec<Sliding>> {
    let auto = auto_pad(call)?;
    let said = pads(call, windows.len())?;
    for ((window, said), &extent) in windows.iter_mut().zip(said).zip(extents) {
        window.pad = match auto {
            AutoPad::None => said,
            AutoPad::Valid => [0, 0],
            AutoPad::Upper | AutoPad::Lower => {
                // Start of the last window; the image is padded to its end.
                let last = (extent.div_ceil(window.stride).saturating_sub(1)).saturating_mul(window.stride);
                halves(last.saturating_add(reach(window)?).saturating_sub(extent), auto)
            }
        };
    }
    Ok(windows)
}

/// Returns the kernel extents of the weights; fails if an attribute contradicts them.
pub(super) fn kernel_of_weights(call: &Call, weights: ImportValue, axes: usize) -> Result<Vec<usize>> {
    let shape = call.shape(weights);
    let kernel = match &shape[..] {
        [_, _, kernel @ ..] if kernel.len() == axes && !kernel.contains(&0) => kernel,
        _ => return unfit(format!("weights of shape {shape:?} do not match images of {axes} spatial axes")),
    };
    match kernel_shape(call, axes)? {
        Some(said) if said != kernel => Err(attribute("kernel_shape", format!("the weights have {kernel:?}"))),
        _ => Ok(kernel.to_vec()),
    }
}

pub(super) fn groups(call: &Call) -> Result<usize> {
    let groups = call.int_or("group", 1)?;
    usize::try_from(groups).ok().filter(|&groups| groups > 0).ok_or_else(|| attribute("group", "is not positive"))
}

/// Returns images, weights and, if present, biases.
pub(super) fn operands(call: &Call) -> Result<Vec<ImportValue>> {
    call.check_most(3)?;
    Ok([call.operand(0)?, call.operand(1)?].into_iter().chain(call.optional(2)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns for each window the numbers of its elements before and after the image.
    fn overlaps(window: &Sliding, extent: usize) -> Vec<(Vec<bool>, Vec<bool>)> {
        let positions = |number: usize| {
            (0..window.kernel)
                .map(move |tap| (number * window.stride + tap * window.dilation) as isize - window.pad[0] as isize)
        };
        let of = |number| {
            let before = positions(number).map(|at| at < 0).collect();
            (before, positions(number).map(|at| at >= extent as isize).collect())
        };
        (0..window.outputs(extent, false).unwrap_or_default()).map(of).collect()
    }

    #[test]
    fn distinct_windows_overlap_the_padding_alike() {
        let mut shortened = 0;
        for (extent, kernel, stride) in (1..14).flat_map(|n| (1..5).flat_map(move |k| (1..4).map(move |s| (n, k, s)))) {
            for (dilation, before, after) in [(1, 0, 0), (1, 1, 1), (2, 2, 0), (1, 0, 3), (3, 3, 2)] {
                let window = Sliding { kernel, stride, dilation, pad: [before, after] };
                let Some((shorter, equal)) = window.distinct(extent) else { continue };
                let (whole, short) = (overlaps(&window, extent), overlaps(&window, shorter));
                let chosen: Vec<_> = equal.iter().map(|&number| short[number as usize].clone()).collect();
                assert_eq!(whole, chosen, "{window:?} of {extent}");
                shortened += usize::from(shorter < extent);
            }
        }
        assert!(shortened > 300, "{shortened}");
    }
}
