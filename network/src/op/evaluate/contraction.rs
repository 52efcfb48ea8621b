//! Convolutions and products: sums of products in double precision, in the order of the summed axis.

use rayon::prelude::*;

use super::places::{Rows, broadcast_strides, offsets, padded, picked, strides};
use super::{larger, tensor, values};
use crate::error::OpError;
use crate::op::Sliding;
use crate::tensor::{Element, Tensor, elements};

/// Columns that are summed at once.
const COLUMNS: usize = 8;

/// `Σ_k rows[i, k] * column(j)[k]` for all of `m` rows and `n` columns, row-major. `fill` writes some neighbouring columns, from one of them
/// on, as one array for each `k`; those behind the last are not used.
fn contract<T: Copy + Into<f64> + Sync>(
    rows: &[T],
    [m, k, n]: [usize; 3],
    fill: impl Fn(usize, &mut [[f64; COLUMNS]]) + Sync,
) -> Vec<f64> {
    let row = |i: usize| &rows[i * k..(i + 1) * k];
    let panel = |number: usize| {
        let mut columns = vec![[0.0; COLUMNS]; k];
        fill(number * COLUMNS, &mut columns);

        // Two rows share what is read of the columns.
        let mut sums = Vec::with_capacity(m + 1);
        for i in (0..m).step_by(2) {
            let (mut first, mut second) = ([0.0; COLUMNS], [0.0; COLUMNS]);
            for ((&a, &b), column) in row(i).iter().zip(row((i + 1).min(m - 1))).zip(&columns) {
                let (a, b): (f64, f64) = (a.into(), b.into());
                for j in 0..COLUMNS {
                    first[j] += a * column[j];
                    second[j] += b * column[j];
                }
            }
            sums.extend([first, second]);
        }
        sums
    };
    let panels: Vec<_> = (0..n.div_ceil(COLUMNS)).into_par_iter().map(panel).collect();

    let mut all = Vec::with_capacity(m * n);
    for i in 0..m {
        for (number, panel) in panels.iter().enumerate() {
            all.extend(&panel[i][..COLUMNS.min(n - number * COLUMNS)]);
        }
    }
    all
}

/// Some columns of a row-major matrix of `n` columns.
fn columns_of<T: Copy + Into<f64>>(matrix: &[T], n: usize, first: usize, columns: &mut [[f64; COLUMNS]]) {
    for (k, column) in columns.iter_mut().enumerate() {
        let row = &matrix[k * n + first..(k + 1) * n];
        column.iter_mut().zip(row).for_each(|(column, &x)| *column = x.into());
    }
}

pub(super) fn matmul(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let (a, b) = (values::<f32>(operands, 0)?, values::<f32>(operands, 1)?);
    let (a_shape, b_shape) = (operands[0].shape(), operands[1].shape());
    let [m, k] = if let [k] = *a_shape { [1, k] } else { last_two(a_shape) };
    let n = if b_shape.len() == 1 { 1 } else { last_two(b_shape)[1] };

    let outer = |shape: &[usize]| shape[..shape.len().saturating_sub(2)].to_vec();
    let own = usize::from(a_shape.len() > 1) + usize::from(b_shape.len() > 1);
    let batch = &shape[..shape.len() - own];
    let starts = |shape: &[usize], size: usize| -> Vec<usize> {
        let strides = broadcast_strides(&outer(shape), batch);
        offsets(batch, &strides).into_iter().map(|matrix| matrix * size).collect()
    };

    let mut product = Vec::with_capacity(elements(shape)?);
    for (a_start, b_start) in starts(a_shape, m * k).into_iter().zip(starts(b_shape, k * n)) {
        let (a, b) = (&a[a_start..a_start + m * k], &b[b_start..b_start + k * n]);
        let sums = contract(a, [m, k, n], |first, columns| columns_of(b, n, first, columns));
        product.extend(sums.into_iter().map(|sum| sum as f32));
    }
    tensor(shape, product)
}

/// The last two extents of a tensor that has them.
fn last_two(shape: &[usize]) -> [usize; 2] {
    [shape[shape.len() - 2], shape[shape.len() - 1]]
}

pub(super) fn conv(
    window: &[Sliding],
    groups: usize,
    operands: &[&Tensor],
    shape: &[usize],
) -> Result<Tensor, OpError> {
    let (x, weights) = (values::<f32>(operands, 0)?, values::<f32>(operands, 1)?);
    let (x_shape, w_shape) = (operands[0].shape(), operands[1].shape());
    let [n, c] = [x_shape[0], x_shape[1]];
    let [o, of_group] = [shape[1] / groups, c / groups];

    let around: Vec<[usize; 2]> = [[0, 0]; 2].into_iter().chain(window.iter().map(|window| window.pad)).collect();
    let room: Vec<usize> = x_shape.iter().zip(&around).map(|(extent, pad)| extent + pad[0] + pad[1]).collect();
    elements(&room)?;
    let places: Vec<_> = x_shape.iter().zip(&around).map(|(&extent, &pad)| padded(extent, pad)).collect();
    let image = if c == 0 { Vec::new() } else { picked(&x, x_shape, &places, 0.0) };

    // Where each output's window begins, and where from there each tap is.
    let steps = strides(&room);
    let scaled = |by: fn(&Sliding) -> usize| -> Vec<usize> {
        window.iter().zip(&steps[2..]).map(|(window, step)| step * by(window)).collect()
    };
    let positions = offsets(&shape[2..], &scaled(|window| window.stride));
    let of_channel = offsets(&w_shape[2..], &scaled(|window| window.dilation));
    let taps: Vec<usize> = (0..of_group)
        .flat_map(|channel| of_channel.iter().map(move |tap| (channel, tap)))
        .map(|(c, tap)| c * steps[1] + tap)
        .collect();

    let size = o * taps.len();
    let mut sums = Vec::with_capacity(elements(shape)?);
    for (image_number, group) in (0..n).flat_map(|image| (0..groups).map(move |group| (image, group))) {
        let start = image_number * steps[0] + group * of_group * steps[1];
        let fill = |first: usize, columns: &mut [[f64; COLUMNS]]| {
            for (column, tap) in columns.iter_mut().zip(&taps) {
                let at = positions[first..].iter();
                column.iter_mut().zip(at).for_each(|(column, at)| *column = image[start + at + tap].into());
            }
        };
        let weights = &weights[group * size..(group + 1) * size];
        sums.extend(contract(weights, [o, taps.len(), positions.len()], fill));
    }
    with_bias(sums, operands, shape)
}

/// Every element of the image is added to all outputs of its window; the padding is cut off afterwards.
pub(super) fn conv_transpose(
    window: &[Sliding],
    output_pad: &[usize],
    groups: usize,
    operands: &[&Tensor],
    shape: &[usize],
) -> Result<Tensor, OpError> {
    let (x, weights) = (values::<f32>(operands, 0)?, values::<f32>(operands, 1)?);
    let (x_shape, w_shape) = (operands[0].shape(), operands[1].shape());
    let [n, of_group, o] = [x_shape[0], x_shape[1] / groups, w_shape[1]];

    let uncut = |(axis, window): (usize, &Sliding)| {
        (x_shape[axis + 2] - 1) * window.stride + (window.kernel - 1) * window.dilation + 1 + output_pad[axis]
    };
    let uncut: Vec<usize> = [n, shape[1]].into_iter().chain(window.iter().enumerate().map(uncut)).collect();
    let size = elements(&uncut)?;

    let steps = strides(&uncut);
    let scaled = |by: fn(&Sliding) -> usize| -> Vec<usize> {
        window.iter().zip(&steps[2..]).map(|(window, step)| step * by(window)).collect()
    };
    let positions = offsets(&x_shape[2..], &scaled(|window| window.stride));
    let of_channel = offsets(&w_shape[2..], &scaled(|window| window.dilation));
    let (pixels, taps) = (positions.len(), o * of_channel.len());
    elements(&[taps, pixels])?;

    let mut sums = vec![0.0; size];
    for (image, group) in (0..n).flat_map(|image| (0..groups).map(move |group| (image, group))) {
        let x = &x[(image * groups + group) * of_group * pixels..][..of_group * pixels];
        let weights = &weights[group * of_group * taps..][..of_group * taps];
        let turned: Vec<f32> = (0..taps).flat_map(|tap| (0..of_group).map(move |c| weights[c * taps + tap])).collect();
        let products = contract(&turned, [taps, of_group, pixels], |first, columns| {
            columns_of(x, pixels, first, columns);
        });

        for (tap, products) in products.chunks_exact(pixels).enumerate() {
            let channel = group * o + tap / of_channel.len();
            let start = image * steps[0] + channel * steps[1] + of_channel[tap % of_channel.len()];
            positions.iter().zip(products).for_each(|(at, product)| sums[start + at] += product);
        }
    }

    let kept = |(axis, &extent): (usize, &usize)| {
        let cut = axis.checked_sub(2).map_or(0, |axis| window[axis].pad[0]);
        (cut..cut + extent).map(Some).collect()
    };
    let kept: Vec<Vec<_>> = shape.iter().enumerate().map(kept).collect();
    with_bias(picked(&sums, &uncut, &kept, 0.0), operands, shape)
}

/// Sums of `[n, o, ..]` and the third operand, if there is one.
fn with_bias(sums: Vec<f64>, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let bias = if operands.len() > 2 { values::<f32>(operands, 2)? } else { vec![0.0; shape[1]].into() };
    let pixels: usize = shape[2..].iter().product();
    let channels = sums.chunks_exact(pixels).zip(bias.iter().cycle());
    let sums = channels.flat_map(|(sums, &bias)| sums.iter().map(move |sum| (sum + f64::from(bias)) as f32));
    tensor(shape, sums.collect())
}

/// A row all of whose scores are minus infinity has no weights: it is not a number.
pub(super) fn attention(scale: f32, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let (q, k, v) = (values::<f32>(operands, 0)?, values::<f32>(operands, 1)?, values::<f32>(operands, 2)?);
    let ([m, d], [n, e]) = (last_two(operands[0].shape()), last_two(operands[2].shape()));
    let batch = shape[..shape.len() - 2].iter().product::<usize>();
    let mask = mask(operands, &[&shape[..shape.len() - 2], &[m, n]].concat())?;

    let mut outputs = Vec::with_capacity(elements(shape)?);
    for number in 0..batch {
        let of = |x: &[f32], size: usize| x[number * size..(number + 1) * size].to_vec();
        let (q, k, v) = (of(&q, m * d), of(&k, n * d), of(&v, n * e));
        let mut scores = contract(&q, [m, d, n], |first, columns| {
            for (i, column) in columns.iter_mut().enumerate() {
                column.iter_mut().zip(first..n).for_each(|(column, key)| *column = k[key * d + i].into());
            }
        });
        for (row, scores) in scores.chunks_exact_mut(n.max(1)).enumerate() {
            let mask = mask.as_ref().map(|mask| &mask[(number * m + row) * n..][..n]);
            scores.iter_mut().for_each(|score| *score *= f64::from(scale));
            mask.into_iter().for_each(|mask| scores.iter_mut().zip(mask).for_each(|(score, mask)| *score += mask));
            weigh(scores);
        }
        let sums = contract(&scores, [m, n, e], |first, columns| columns_of(&v, e, first, columns));
        outputs.extend(sums.into_iter().map(|sum| sum as f32));
    }
    tensor(shape, outputs)
}

/// What is added to the scores of these extents, minus infinity where a mask of truth values is false.
fn mask(operands: &[&Tensor], extents: &[usize]) -> Result<Option<Vec<f64>>, OpError> {
    let Some(mask) = operands.get(3) else { return Ok(None) };
    if elements(extents)? == 0 {
        return Ok(Some(Vec::new()));
    }
    let rows = Rows::broadcast([mask.shape()], extents);
    Ok(Some(match mask.element() {
        Element::Bool => {
            let mask = values::<bool>(operands, 3)?;
            rows.map(|[at]| if mask[at] { 0.0 } else { f64::NEG_INFINITY })
        }
        _ => {
            let mask = values::<f32>(operands, 3)?;
            rows.map(|[at]| mask[at].into())
        }
    }))
}

/// The softmax of a row.
fn weigh(row: &mut [f64]) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, larger);
    row.iter_mut().for_each(|x| *x = libm::exp(*x - largest));
    let total: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= total);
}
