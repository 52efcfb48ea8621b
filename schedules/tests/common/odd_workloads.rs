//! Random workloads of any size and shape that can be written down: kernels larger than the input, padding as large as the kernel,
//! taps that are all padding, strides and dilations beyond what they step over, single elements, primes, depthwise and grouped
//! convolutions, tall and flat products.

use std::env;

use autotune_schedules::{Conv2d, Matmul, Workload};
use rand::{Rng, RngExt};

use super::epilogues::random_epilogue;

/// How many random cases a test runs: `AUTOTUNE_CASES` in the environment, else `usual`.
pub fn cases(usual: u64) -> u64 {
    match env::var("AUTOTUNE_CASES") {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("AUTOTUNE_CASES={text}: {e}")),
        Err(_) => usual,
    }
}

/// A workload of f32 that parses.
pub fn odd_workload<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let made = match rng.random_ratio(3, 4) {
            true => Workload::new(odd_conv(rng)),
            false => Workload::new(odd_matmul(rng)),
        };
        let epilogue = random_epilogue(rng);
        let is_exact = rng.random();
        if let Ok(workload) = made {
            return workload.with_epilogue(epilogue).with_exact(is_exact);
        }
    }
}

/// Mostly small, sometimes 1, a power of two, a prime or huge.
fn size<R: Rng>(rng: &mut R, most: usize) -> usize {
    const PRIMES: [usize; 12] = [3, 5, 7, 13, 17, 31, 41, 53, 97, 127, 257, 1009];
    let size = match rng.random_range(0..10) {
        0..2 => 1,
        2..4 => 1 << rng.random_range(0..12),
        4..6 => PRIMES[rng.random_range(0..PRIMES.len())],
        6..9 => rng.random_range(1..80),
        _ => rng.random_range(1..=most),
    };
    size.min(most)
}

fn odd_conv<R: Rng>(rng: &mut R) -> Conv2d {
    let groups = if rng.random_ratio(1, 3) { size(rng, 512) } else { 1 };
    let of_group = |rng: &mut R| if groups > 1 && rng.random_ratio(2, 3) { 1 } else { size(rng, 4096) };
    let (c, o) = (groups * of_group(rng), groups * of_group(rng));
    let common = rng.random_ratio(1, 3);
    let kernel = |rng: &mut R| match rng.random_range(0..8) {
        _ if common => 3,
        0..2 => 1,
        2..5 => rng.random_range(2..8),
        5..7 => rng.random_range(2..40),
        _ => size(rng, 300),
    };
    let step = |rng: &mut R| match rng.random_range(0..8) {
        0..4 => 1,
        4..6 => rng.random_range(1..5),
        6 => rng.random_range(1..40),
        _ => size(rng, 5000),
    };
    let k = [kernel(rng), kernel(rng)];
    let dilation = [step(rng), step(rng)];
    let pad = [0, 1].map(|d| {
        let reach = dilation[d] * (k[d] - 1) + 1;
        match rng.random_range(0..5) {
            0..2 => 0,
            2 => reach / 2,
            3 => rng.random_range(0..=reach),
            _ => reach,
        }
    });
    Conv2d {
        n: if rng.random_ratio(1, 4) { size(rng, 300) } else { 1 },
        c,
        h: size(rng, 5000),
        w: size(rng, 5000),
        o,
        kh: k[0],
        kw: k[1],
        stride: [step(rng), step(rng)],
        pad,
        dilation,
        groups,
    }
}

fn odd_matmul<R: Rng>(rng: &mut R) -> Matmul {
    let most = if rng.random_ratio(1, 8) { 1 << 26 } else { 5000 };
    let b = if rng.random_ratio(1, 4) { size(rng, 300) } else { 1 };
    let plain = Matmul::new(b, size(rng, most), size(rng, most), size(rng, most));
    let weight_is_constant = plain.weight_is_constant ^ rng.random_ratio(1, 4);
    Matmul { ta: rng.random_ratio(1, 4), tb: rng.random_ratio(1, 4), weight_is_constant, ..plain }
}
