//! Imports of the positions of maxima in windows, and of their inverse.

use autotune_workloads::{PadMode, ReduceOp};

use super::binary::Binary;
use super::concat::Concat;
use super::gather::Gather;
use super::indices::Selection;
use super::pad::Pad;
use super::prelude::*;
use super::scatter::Scatter;
use super::slice::Range;
use super::window::{Sliding, kernel_shape, pads, reach, spatial, windows};
use crate::onnx::call::Result;
use crate::onnx::error::unfit;
use crate::onnx::tensor::extents;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("MaxUnpool", unpool)];

/// Maximum number of elements of a window of whose maximum the position is an output: each becomes
/// a node.
const MOST_TAPS: usize = 256;

/// Adds the position of the maximum in each window among all elements of the images; `shape` is
/// that of the maxima.
pub(super) fn places_of_maxima(
    call: &mut Call,
    x: ImportValue,
    window: &[Sliding],
    shape: &[usize],
) -> Result<ImportValue> {
    let images = call.shape(x);
    let taps = product(&window.iter().map(|window| window.kernel).collect::<Vec<_>>());
    // Positions must be exact in f32.
    let is_small = product(&images).is_some_and(|count| count <= 1 << 24);
    let Some(taps) = taps.filter(|&taps| is_small && taps <= MOST_TAPS) else {
        return unfit(format!("positions in windows {window:?} of images of shape {images:?} are not supported"));
    };

    // Images are padded until all windows are inside.
    let mut pad = vec![[0, 0]; 2];
    for ((window, &extent), &outputs) in window.iter().zip(&images[2..]).zip(&shape[2..]) {
        let end = outputs.saturating_sub(1).saturating_mul(window.stride).saturating_add(reach(window)?);
        pad.push([window.pad[0], end.saturating_sub(extent.saturating_add(window.pad[0]))]);
    }
    let padded = call.add(Pad { pad, mode: PadMode::Constant, value: f32::NEG_INFINITY }, &[x])?;
    let kernel: Vec<usize> = window.iter().map(|window| window.kernel).collect();
    let of_taps = strides(&kernel);
    let mut parts = Vec::new();
    for tap in 0..taps {
        let mut ranges = Range::all(&call.shape(padded));
        for (axis, ((range, window), &count)) in ranges[2..].iter_mut().zip(window).zip(&shape[2..]).enumerate() {
            let step = isize::try_from(window.stride).map_err(|_| attribute("strides", "is too large"))?;
            let element = tap / of_taps[axis] % window.kernel;
            *range = Range { start: element * window.dilation, step, count };
        }
        let part = call.slice(ranges, padded)?;
        parts.push(call.reshape(&[&[1], shape].concat(), part)?);
    }
    let all = call.add(Concat { axis: 0 }, &parts)?;
    let best = call.place_along(ReduceOp::Max, all, 0, [false, false])?;

    let steps = steps(call, &images)?;
    let numbers = places(&kernel, window, &steps, |window| window.dilation);
    let offsets = call.constant(Tensor::i64(&[taps], numbers)?);
    let mut place = call.add(Gather { axis: 0 }, &[offsets, best])?;
    let planes = call.constant(origins(&images, shape.len())?);
    let before: i64 = window.iter().zip(&steps).map(|(window, &step)| (window.pad[0] * step) as i64).sum();
    let first = places(&shape[2..], window, &steps, |window| window.stride).into_iter().map(|place| place - before);
    let first = call.constant(Tensor::i64(&shape[2..], first.collect())?);
    place = call.binary(Binary::Add, place, first)?;
    call.binary(Binary::Add, place, planes)
}

/// Returns the distance of neighbours along each spatial axis, which a node may count column by
/// column.
fn steps(call: &Call, images: &[usize]) -> Result<Vec<usize>> {
    let mut spatial = images[2..].to_vec();
    let by_columns = call.flag("storage_order", false)?;
    if by_columns {
        spatial.reverse();
    }
    let mut steps = strides(&spatial);
    if by_columns {
        steps.reverse();
    }
    Ok(steps)
}

/// Returns the positions of windows, or of the elements of one, in order. `by` returns the distance
/// of neighbours along an axis.
fn places(extents: &[usize], window: &[Sliding], steps: &[usize], by: fn(&Sliding) -> usize) -> Vec<i64> {
    // A distance may be arbitrarily large along an axis of one element.
    let distances = window.iter().zip(steps).map(|(window, step)| by(window).saturating_mul(*step));
    let places = offsets(extents, &distances.collect::<Vec<_>>());
    places.into_iter().map(|place| place as i64).collect()
}

/// Returns the position of the first element of each channel of each image.
fn origins(images: &[usize], rank: usize) -> Result<Tensor> {
    let plane: usize = images[2..].iter().product();
    let mut shape = vec![1; rank];
    shape[..2].copy_from_slice(&images[..2]);
    Ok(Tensor::i64(&shape, (0..elements(&shape)?).map(|number| (number * plane) as i64).collect())?)
}

/// Imports images that are zero but for the first input's elements at the positions in the second.
/// Positions count in the smallest image that has such maxima; a larger output ends in zeros.
fn unpool(call: &mut Call) -> Result<ImportValue> {
    call.check_most(3)?;
    let (x, places) = (call.operand(0)?, call.operand(1)?);
    let (shape, maxima) = (call.shape(x), spatial(call, x)?);
    let kernel = kernel_shape(call, maxima.len())?.ok_or_else(|| attribute("kernel_shape", "is missing"))?;
    let (windows, pads) = (windows(call, &kernel)?, pads(call, kernel.len())?);
    let extent = |((window, pad), &count): ((&Sliding, [usize; 2]), &usize)| {
        let end = count.checked_sub(1)?.checked_mul(window.stride)?.checked_add(window.kernel)?;
        end.checked_sub(pad[0])?.checked_sub(pad[1])
    };
    let spatial: Option<Vec<usize>> = windows.iter().zip(pads).zip(&maxima).map(extent).collect();
    let Some(spatial) = spatial else { return unfit(format!("maxima of shape {shape:?} fit no image")) };

    let images = [&shape[..2], &spatial].concat();
    let (count, all) = (elements(&shape)?, elements(&images)?);
    let zeros = call.filled(&Tensor::scalar(0.0).into(), &[all])?;
    let (places, x) = (call.reshape(&[count], places)?, call.reshape(&[count], x)?);
    let scattered = call.add(Scatter { selection: Selection::Along(0), reduction: None }, &[zeros, places, x])?;
    let scattered = call.reshape(&images, scattered)?;
    let Some(wanted) = call.known_integers(2)? else { return Ok(scattered) };

    let wanted = extents(&wanted).map_err(NodeError::Unfit)?;
    let behind = images.iter().zip(&wanted).map(|(extent, wanted)| wanted.checked_sub(*extent).map(|rest| [0, rest]));
    match behind.collect::<Option<Vec<_>>>() {
        Some(pad) if wanted.len() == images.len() => {
            call.add(Pad { pad, mode: PadMode::Constant, value: 0.0 }, &[scattered])
        }
        _ => unfit(format!("an output of shape {wanted:?} does not contain images of shape {images:?}")),
    }
}
