//! Random workloads of all operators, small enough for the interpreter: extents of 1 and primes,
//! strides, padding, dilation, groups, epilogues.

use autotune_workloads::{
    GroupNormWorkload, LayerNormWorkload, LocalResponseNormWorkload, RmsNorm, SoftmaxWorkload, Workload, operators,
};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

use super::convolutions::{random_line, random_transposed, random_volume};
use super::epilogues::{random_epilogue, with_random_prologue};
use super::pairs::{random_mlp, random_separable};
use super::pointwise::random_pointwise;
use super::workloads::{
    odd_weights, random_attention, random_conv, random_matmul, random_pool, random_reduce, random_transpose,
};

/// Maximum number of floating-point operations of a workload.
const MOST_FLOPS: f64 = 1e6;

/// Returns a random workload of any operator on f32.
pub fn random_operator<R: Rng>(rng: &mut R) -> Workload {
    let name = operators().choose(rng).unwrap().name;
    random_of(name, rng)
}

/// Returns a random workload of the operator with this name.
pub fn random_of<R: Rng>(name: &str, rng: &mut R) -> Workload {
    loop {
        let (m, n, k) = (extent(rng), rng.random_range(1..=200), extent(rng));
        let eps = *[1e-5, 1e-3, 0.5].choose(rng).unwrap();
        let workload = match name {
            "conv2d" => Workload::new(random_conv(rng)),
            "conv1d" => Workload::new(random_line(rng)),
            "conv3d" => Workload::new(random_volume(rng)),
            "conv_transpose2d" => Workload::new(random_transposed(rng)),
            "matmul" => Workload::new(random_matmul(rng)),
            "pool2d" => Workload::new(random_pool(rng)),
            "reduce" => Workload::new(random_reduce(rng)),
            "softmax" | "log_softmax" => {
                // Occasionally rows have more elements than one sum accumulates.
                let n = if rng.random_ratio(1, 8) { 100 * n } else { n };
                Workload::new(SoftmaxWorkload { m, n, k, log: name == "log_softmax" })
            }
            "layer_norm" => Workload::new(LayerNormWorkload { m, n, eps }),
            "rms_norm" => Workload::new(RmsNorm { m, n, eps }),
            "group_norm" | "instance_norm" => {
                let (groups, of_group) = (extent(rng).min(7), extent(rng).min(5));
                let of_group = if name == "instance_norm" { 1 } else { of_group };
                Workload::new(GroupNormWorkload { n: rng.random_range(1..3), c: groups * of_group, groups, s: m, eps })
            }
            "local_response_norm" => {
                let (size, n, alpha) = (rng.random_range(1..=m.min(6)), rng.random_range(1..3), 0.5);
                Workload::new(LocalResponseNormWorkload { n, c: m, s: k, size, alpha, beta: 0.75, shift: 1.5 })
            }
            "transpose" => Workload::new(random_transpose(rng)),
            "attention" => Workload::new(random_attention(rng)),
            "separable_conv2d" => random_separable(rng).parse(),
            "mlp" => random_mlp(rng).parse(),
            "pointwise" => Ok(random_pointwise(rng)),
            "resize" => Ok(random_resample(rng)),
            "gather" => {
                let from_end = if rng.random() { ",from_end" } else { "" };
                format!("gather:m={m},n={n},k={k}{from_end}").parse()
            }
            "pad" => Ok(random_pad(rng)),
            other => panic!("nothing draws workloads of {other}"),
        };

        let epilogue = random_epilogue(rng);
        if let Some(workload) = workload.ok().filter(|workload| workload.flops() < MOST_FLOPS) {
            return with_random_prologue(odd_weights(workload, rng), rng).with_epilogue(epilogue);
        }
    }
}

/// Returns 1, a power of two or a prime.
fn extent<R: Rng>(rng: &mut R) -> usize {
    *[1, 1, 2, 3, 5, 7, 8, 13, 16, 31, 37].choose(rng).unwrap()
}

/// Returns an image resizing with any coordinates and rounding.
pub fn random_resample<R: Rng>(rng: &mut R) -> Workload {
    let mut pick = |words: &[&'static str]| words[rng.random_range(0..words.len())];
    let coord = pick(&["half_pixel", "align_corners", "asymmetric"]);
    let mode = pick(&["linear", "nearest", "nearest,round=floor", "nearest,round=ceil", "nearest,round=prefer_ceil"]);
    let epilogue = pick(&["", ",bias", ",add,act=relu"]);
    let mut size = |most: usize| rng.random_range(1..=most);
    let [n, c, h, w, oh, ow] = [size(2), size(4), size(9), size(20), size(23), size(40)];
    format!("resize:n={n},c={c},h={h},w={w},oh={oh},ow={ow},mode={mode},coord={coord}{epilogue}").parse().unwrap()
}

/// Returns an image padding with any mode.
pub fn random_pad<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let mode = ["constant", "constant,value=-1.5", "reflect", "edge"][rng.random_range(0..4)];
        let mut size = |most: usize| rng.random_range(0..=most);
        let [n, c, h, w] = [1 + size(1), 1 + size(3), 1 + size(8), 1 + size(30)];
        let sides = [size(5), size(2), size(17), size(4)];
        let [pt, pb, pl, pr] = sides;
        let text = format!("pad:n={n},c={c},h={h},w={w},pt={pt},pb={pb},pl={pl},pr={pr},mode={mode}");
        if let Ok(workload) = text.parse() {
            return workload;
        }
    }
}
