//! Random workloads of two contractions, small enough for the interpreter: odd, prime and tiny sizes, strides, padding, dilation, epilogues.

use autotune_schedules::Workload;
use rand::{Rng, RngExt};

/// A depthwise convolution with a pointwise one behind it, or two matrix products.
pub fn random_pair<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let text = if rng.random_bool(0.65) { random_separable(rng) } else { random_mlp(rng) };
        let workload = format!("{text}{}", random_functions(rng)).parse::<Workload>();
        if let Some(workload) = workload.ok().filter(|workload| workload.flops() < 1e6) {
            return workload;
        }
    }
}

fn pick<R: Rng, T: Copy>(rng: &mut R, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}

fn random_separable<R: Rng>(rng: &mut R) -> String {
    let channels = |rng: &mut R| pick(rng, &[1, 2, 3, 8, 13, 16, 16, 24, 32, 32, 48]);
    let mut text = format!("separable_conv2d:n={},c={},o={}", pick(rng, &[1, 1, 2]), channels(rng), channels(rng));
    text += &format!(",h={},w={}", rng.random_range(1..20), rng.random_range(1..20));
    for axis in ["h", "w"] {
        let (kernel, dilation) = (pick(rng, &[1, 2, 3, 3, 5]), pick(rng, &[1, 1, 2]));
        let pad = rng.random_range(0..=(dilation * (kernel - 1) + 1).min(6));
        text += &format!(",k{axis}={kernel},d{axis}={dilation},p{axis}={pad},s{axis}={}", pick(rng, &[1, 1, 2, 3]));
    }
    text
}

fn random_mlp<R: Rng>(rng: &mut R) -> String {
    let mut size = || pick(rng, &[1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 48, 64, 97]);
    format!("mlp:m={},n={},k={},h={}", size(), size(), size(), size())
}

fn random_functions<R: Rng>(rng: &mut R) -> String {
    let words = [(",mid=relu", 0.5), (",mid_bias", 0.4), (",bias", 0.4), (",add", 0.3), (",act=relu", 0.4)];
    words.into_iter().filter(|(_, often)| rng.random_bool(*often)).map(|(word, _)| word).collect()
}
