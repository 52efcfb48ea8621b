//! Windows over images, of each of which one element is made.

use autotune_workloads::PoolKind;

use super::places::{offsets, padded, picked, strides};
use super::{larger, tensor, values};
use crate::error::OpError;
use crate::op::Sliding;
use crate::tensor::{Tensor, elements};

/// A mean with padding is one over the elements of the window that are within image and padding: those beyond, of windows that are rounded
/// up, do not count. The largest of no elements is minus infinity, their mean is not a number.
pub(super) fn pool(
    window: &[Sliding],
    kind: PoolKind,
    operands: &[&Tensor],
    shape: &[usize],
) -> Result<Tensor, OpError> {
    let (x, x_shape) = (values::<f32>(operands, 0)?, operands[0].shape());
    let outside = if kind == PoolKind::Max { f32::NEG_INFINITY } else { 0.0 };

    // The image with as much around it that all windows are inside.
    let around = |(axis, window): (usize, &Sliding)| {
        let reach = (window.kernel - 1) * window.dilation + 1;
        let end = (shape[axis + 2] - 1) * window.stride + reach;
        [window.pad[0], window.pad[1].max(end.saturating_sub(x_shape[axis + 2] + window.pad[0]))]
    };
    let around: Vec<[usize; 2]> = [[0, 0]; 2].into_iter().chain(window.iter().enumerate().map(around)).collect();
    let room: Vec<usize> = x_shape.iter().zip(&around).map(|(extent, pad)| extent + pad[0] + pad[1]).collect();
    elements(&room)?;
    let places: Vec<_> = x_shape.iter().zip(&around).map(|(&extent, &pad)| padded(extent, pad)).collect();
    let image = picked(&x, x_shape, &places, outside);

    let steps = strides(&room);
    let scaled = |by: fn(&Sliding) -> usize| -> Vec<usize> {
        window.iter().zip(&steps[2..]).map(|(window, step)| step * by(window)).collect()
    };
    let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
    let positions = offsets(&shape[2..], &scaled(|window| window.stride));
    let taps = offsets(&kernels, &scaled(|window| window.dilation));
    let counts = counts(window, kind, &x_shape[2..], &shape[2..]);

    let planes = offsets(&shape[..2], &steps[..2]);
    let windows = planes.iter().flat_map(|plane| positions.iter().zip(&counts).map(move |at| (plane, at)));
    let made = windows.map(|(plane, (position, count))| {
        let all = taps.iter().map(|tap| f64::from(image[plane + position + tap]));
        match kind {
            PoolKind::Max => all.fold(f64::NEG_INFINITY, larger) as f32,
            PoolKind::Average | PoolKind::InnerAverage => (all.sum::<f64>() / count) as f32,
        }
    });
    tensor(shape, made.collect())
}

/// Elements of each window that a mean counts.
fn counts(window: &[Sliding], kind: PoolKind, extents: &[usize], outputs: &[usize]) -> Vec<f64> {
    let mut counts = vec![1.0];
    for ((window, extent), &outputs) in window.iter().zip(extents).zip(outputs) {
        let [before, behind] = window.pad;
        let counted = match kind {
            PoolKind::InnerAverage => before..before + extent,
            PoolKind::Max | PoolKind::Average => 0..before + extent + behind,
        };
        let count = |y: usize| {
            let taps = (0..window.kernel).map(|tap| y * window.stride + tap * window.dilation);
            taps.filter(|at| counted.contains(at)).count() as f64
        };
        counts = counts
            .iter()
            .flat_map(|others| (0..outputs).map(move |y| (others, y)))
            .map(|(others, y)| others * count(y))
            .collect();
    }
    counts
}
