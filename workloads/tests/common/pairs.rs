//! Random workloads of two contractions, small enough for the interpreter: odd, prime and tiny
//! sizes, strides, padding, dilation, epilogues.

use super::epilogues::{ACTIVATIONS, random_epilogue};
use autotune_workloads::Workload;
use rand::{Rng, RngExt};

/// Returns a depthwise convolution followed by a pointwise one, or two matrix products.
pub fn random_pair<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let text = if rng.random_bool(0.65) { random_separable(rng) } else { random_mlp(rng) };
        let workload = text.parse::<Workload>();
        let epilogue = random_epilogue(rng);
        if let Some(workload) = workload.ok().filter(|workload| workload.flops() < 1e6) {
            return workload.with_epilogue(epilogue);
        }
    }
}

/// Returns such a pair of any valid size and shape.
pub fn odd_pair<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let text = if rng.random_bool(0.3) { odd_mlp(rng) } else { odd_separable(rng) };
        if let Ok(workload) = text.parse::<Workload>() {
            return workload.with_epilogue(random_epilogue(rng));
        }
    }
}

fn odd_size<R: Rng>(rng: &mut R) -> usize {
    match rng.random_range(0..4) {
        0 => 1,
        1 => 1 << rng.random_range(0..12),
        2 => pick(rng, &[3, 7, 13, 31, 97, 257, 1009]),
        _ => rng.random_range(1..200),
    }
}

/// Returns the text of two matrix products of any size.
pub fn odd_mlp<R: Rng>(rng: &mut R) -> String {
    let [m, n, k, h] = [0; 4].map(|_| odd_size(rng));
    format!("mlp:m={m},n={n},k={k},h={h}") + &random_between(rng)
}

/// Returns the text, which may be invalid, of a depthwise convolution followed by a pointwise one.
pub fn odd_separable<R: Rng>(rng: &mut R) -> String {
    let [n, c, o, h, w] = [0; 5].map(|_| odd_size(rng));
    let mut text = format!("separable_conv2d:n={},c={c},o={o},h={h},w={w}", n.min(4));
    for axis in ["h", "w"] {
        let (kernel, dilation) = (rng.random_range(1..40), rng.random_range(1..5));
        let pad = rng.random_range(0..=dilation * (kernel - 1) + 1);
        text += &format!(",k{axis}={kernel},d{axis}={dilation},p{axis}={pad},s{axis}={}", odd_size(rng));
    }
    text + &random_between(rng)
}

fn pick<R: Rng, T: Copy>(rng: &mut R, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}

/// Returns the text of a depthwise convolution followed by a pointwise one.
pub fn random_separable<R: Rng>(rng: &mut R) -> String {
    let channels = |rng: &mut R| pick(rng, &[1, 2, 3, 8, 13, 16, 16, 24, 32, 32, 48]);
    let mut text = format!("separable_conv2d:n={},c={},o={}", pick(rng, &[1, 1, 2]), channels(rng), channels(rng));
    text += &format!(",h={},w={}", rng.random_range(1..20), rng.random_range(1..20));
    for axis in ["h", "w"] {
        let (kernel, dilation) = (pick(rng, &[1, 2, 3, 3, 5]), pick(rng, &[1, 1, 2]));
        let pad = rng.random_range(0..=(dilation * (kernel - 1) + 1).min(6));
        text += &format!(",k{axis}={kernel},d{axis}={dilation},p{axis}={pad},s{axis}={}", pick(rng, &[1, 1, 2, 3]));
    }
    text + &random_between(rng)
}

/// Returns the text of two matrix products.
pub fn random_mlp<R: Rng>(rng: &mut R) -> String {
    let mut size = || pick(rng, &[1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 48, 64, 97]);
    format!("mlp:m={},n={},k={},h={}", size(), size(), size(), size()) + &random_between(rng)
}

/// Returns the fields for the operations in between: any activation except the one with slopes.
fn random_between<R: Rng>(rng: &mut R) -> String {
    let mid = if rng.random_bool(0.5) { "relu" } else { pick(rng, &ACTIVATIONS) };
    let mid = if mid == "prelu" { "none" } else { mid };
    let bias = if rng.random_bool(0.4) { ",mid_bias" } else { "" };
    format!(",mid={mid}{bias}")
}
