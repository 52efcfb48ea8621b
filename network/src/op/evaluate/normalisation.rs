//! What is computed of many elements along axes: reductions, softmax, normalisations.

use autotune_workloads::ReduceOp;

use super::places::{Rows, offsets, strides};
use super::{larger, smaller, tensor, values};
use crate::error::OpError;
use crate::tensor::{Element, Tensor, elements};

pub(super) fn reduce(op: ReduceOp, axes: &[usize], operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    // Where in the output each element of the input goes: axes that are reduced have one place.
    let from = operands[0].shape();
    let kept: Vec<usize> =
        from.iter().enumerate().map(|(axis, &extent)| if axes.contains(&axis) { 1 } else { extent }).collect();
    let places = Rows::broadcast([&kept], from).map(|[to]| to);
    let each = axes.iter().map(|&axis| from[axis]).product::<usize>();

    if operands[0].element() == Element::I64 {
        let (x, first) = (values::<i64>(operands, 0)?, first_integer(op));
        let mut all = vec![first; elements(shape)?];
        for (x, &to) in x.iter().zip(&places) {
            all[to] = of_integers(op, all[to], *x);
        }
        let mean = |sum: i64| if op == ReduceOp::Mean { sum / each as i64 } else { sum };
        return tensor(shape, all.into_iter().map(mean).collect());
    }

    let (x, first) = (values::<f32>(operands, 0)?, first_number(op));
    let mut all = vec![first; elements(shape)?];
    for (x, &to) in x.iter().zip(&places) {
        all[to] = of_numbers(op, all[to], (*x).into());
    }
    let mean = |sum: f64| if op == ReduceOp::Mean { sum / each as f64 } else { sum };
    tensor(shape, all.into_iter().map(|x| mean(x) as f32).collect())
}

fn first_number(op: ReduceOp) -> f64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => 0.0,
        ReduceOp::Prod => 1.0,
        ReduceOp::Max => f64::NEG_INFINITY,
        ReduceOp::Min => f64::INFINITY,
    }
}

fn of_numbers(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => a + b,
        ReduceOp::Prod => a * b,
        ReduceOp::Max => larger(a, b),
        ReduceOp::Min => smaller(a, b),
    }
}

fn first_integer(op: ReduceOp) -> i64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Max => i64::MIN,
        ReduceOp::Min => i64::MAX,
    }
}

fn of_integers(op: ReduceOp, a: i64, b: i64) -> i64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => a.wrapping_add(b),
        ReduceOp::Prod => a.wrapping_mul(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::Min => a.min(b),
    }
}

pub(super) fn softmax(axis: usize, log: bool, operands: &[&Tensor]) -> Result<Tensor, OpError> {
    let (x, shape) = (values::<f32>(operands, 0)?, operands[0].shape());
    let (steps, extent) = (strides(shape), shape[axis]);
    let mut firsts = shape.to_vec();
    firsts[axis] = 1;

    let mut result = vec![0.0; x.len()];
    for first in offsets(&firsts, &steps) {
        let row = || (0..extent).map(|i| first + i * steps[axis]);
        let largest = row().map(|at| x[at].into()).fold(f64::NEG_INFINITY, larger);
        let below = |at: usize| f64::from(x[at]) - largest;
        // The largest are 1 each: of one of them the logarithm is that of 1 and what is beside it.
        let largest_too = row().filter(|&at| below(at) == 0.0).count() as f64;
        let others: f64 = row().filter(|&at| below(at) != 0.0).map(|at| libm::exp(below(at))).sum();
        for at in row() {
            result[at] = match log {
                true => below(at) - libm::log1p(largest_too - 1.0 + others),
                false => libm::exp(below(at)) / (largest_too + others),
            } as f32;
        }
    }
    tensor(shape, result)
}

pub(super) fn layer_norm(axis: usize, eps: f32, operands: &[&Tensor]) -> Result<Tensor, OpError> {
    let (x, shape) = (values::<f32>(operands, 0)?, operands[0].shape());
    let scale = values::<f32>(operands, 1)?;
    let bias = if operands.len() > 2 { values::<f32>(operands, 2)? } else { vec![0.0; scale.len()].into() };
    let rows = x.chunks_exact(shape[axis..].iter().product());
    let normal = rows.flat_map(|row| normal(row, eps).into_iter().zip(scale.iter().zip(bias.iter())));
    tensor(shape, normal.map(|(x, (&scale, &bias))| (x * f64::from(scale) + f64::from(bias)) as f32).collect())
}

pub(super) fn group_norm(groups: usize, eps: f32, operands: &[&Tensor]) -> Result<Tensor, OpError> {
    let (x, shape) = (values::<f32>(operands, 0)?, operands[0].shape());
    let (scale, bias) = (values::<f32>(operands, 1)?, values::<f32>(operands, 2)?);
    let pixels: usize = shape[2..].iter().product();
    let rows = x.chunks_exact(shape[1] / groups * pixels);
    let normal = rows.flat_map(|row| normal(row, eps)).enumerate();
    let scaled = normal.map(|(at, x)| {
        let channel = at / pixels % shape[1];
        (x * f64::from(scale[channel]) + f64::from(bias[channel])) as f32
    });
    tensor(shape, scaled.collect())
}

/// A row with mean 0 and variance 1.
fn normal(row: &[f32], eps: f32) -> Vec<f64> {
    let mean_of = |sum: f64| sum / row.len() as f64;
    let mean = mean_of(row.iter().map(|&x| f64::from(x)).sum());
    let variance = mean_of(row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum());
    let deviation = (variance + f64::from(eps)).sqrt();
    row.iter().map(|&x| (f64::from(x) - mean) / deviation).collect()
}

pub(super) fn local_response_norm(
    size: usize,
    [alpha, beta, bias]: [f32; 3],
    operands: &[&Tensor],
) -> Result<Tensor, OpError> {
    let (x, shape) = (values::<f32>(operands, 0)?, operands[0].shape());
    let (channels, pixels) = (shape[1], shape[2..].iter().product::<usize>());
    let (before, behind) = ((size - 1) / 2, size / 2);
    let of = |(at, &value): (usize, &f32)| {
        let channel = at / pixels % channels;
        let first = at - channel * pixels;
        let near = channel.saturating_sub(before)..channels.min(channel.saturating_add(behind).saturating_add(1));
        let squares: f64 = near.map(|channel| f64::from(x[first + channel * pixels]).powi(2)).sum();
        let base = f64::from(bias) + f64::from(alpha) / size as f64 * squares;
        (f64::from(value) / libm::pow(base, beta.into())) as f32
    };
    tensor(shape, x.iter().enumerate().map(of).collect())
}
