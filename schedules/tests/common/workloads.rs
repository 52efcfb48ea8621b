//! Random workloads that stay small enough for the interpreter: odd, prime and tiny sizes, strides, padding, dilation, groups,
//! epilogues.

use autotune_schedules::workload::{Activation, Epilogue};
use autotune_schedules::{Conv2d, Matmul, Operator, Workload};
use rand::{Rng, RngExt};

/// A workload of at most about a million multiply-adds.
pub fn random_workload<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let workload = if rng.random_bool(0.7) { random_conv(rng) } else { random_matmul(rng) };
        let epilogue = Epilogue {
            bias: rng.random_bool(0.5),
            residual: rng.random_bool(0.3),
            activation: if rng.random_bool(0.5) { Activation::Relu } else { Activation::None },
        };
        match workload.with_epilogue(epilogue).checked() {
            Ok(w) if w.flops() < 2e6 => return w,
            _ => {}
        }
    }
}

fn pick<R: Rng>(rng: &mut R, values: &[usize]) -> usize {
    values[rng.random_range(0..values.len())]
}

fn random_conv<R: Rng>(rng: &mut R) -> Workload {
    let per_group = |rng: &mut R| pick(rng, &[1, 2, 3, 5, 8, 13, 16, 16, 24, 32, 48]);
    let (mut c, mut o) = (per_group(rng), per_group(rng));
    let mut groups = 1;
    if rng.random_bool(0.3) {
        groups = pick(rng, &[2, 3, 8, 16, 32]);
        if rng.random_bool(0.6) {
            (c, o) = (1, 1);
        }
    }
    let kh = pick(rng, &[1, 1, 2, 3, 3, 5, 7]);
    let kw = if rng.random_bool(0.8) { kh } else { pick(rng, &[1, 2, 3, 5]) };
    let dilation = [pick(rng, &[1, 1, 1, 2, 3]), pick(rng, &[1, 1, 1, 2])];
    let reach = [dilation[0] * (kh - 1) + 1, dilation[1] * (kw - 1) + 1];
    let conv = Conv2d {
        n: pick(rng, &[1, 1, 1, 2, 3]),
        c: c * groups,
        h: rng.random_range(1..20),
        w: rng.random_range(1..20),
        o: o * groups,
        kh,
        kw,
        stride: [pick(rng, &[1, 1, 2, 3]), pick(rng, &[1, 1, 2, 3])],
        pad: [rng.random_range(0..=reach[0].min(4)), rng.random_range(0..=reach[1].min(4))],
        dilation,
        groups,
    };
    Workload { op: Operator::Conv2d(conv), dtype: Default::default(), epilogue: Default::default() }
}

fn random_matmul<R: Rng>(rng: &mut R) -> Workload {
    let mut size = || pick(rng, &[1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 48, 64, 97, 128, 197]);
    let (m, n, k) = (size(), size(), size());
    let matmul = Matmul { b: pick(rng, &[1, 1, 1, 2, 3]), m, n, k };
    Workload { op: Operator::Matmul(matmul), dtype: Default::default(), epilogue: Default::default() }
}
