//! Random workloads small enough for the interpreter: odd, prime and tiny sizes, strides, padding,
//! dilation, groups, epilogues.

use autotune_workloads::{
    AttentionWorkload, Batch, Conv2d, GroupNormWorkload, LayerNormWorkload, LocalResponseNormWorkload, Mask, Matmul,
    Pool2d, PoolKind, ReduceOp, ReduceWorkload, RmsNorm, Sides, SoftmaxWorkload, TransposeWorkload, Workload,
    WorkloadError,
};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use super::epilogues::{random_epilogue, with_random_prologue};

/// Returns a workload with at most about a million multiply-adds.
pub fn random_workload<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let workload = match rng.random_bool(0.7) {
            true => Workload::new(random_conv(rng)),
            false => Workload::new(random_matmul(rng)),
        };
        let epilogue = random_epilogue(rng);
        match workload {
            Ok(workload) if workload.flops() < 2e6 => {
                return with_random_prologue(odd_weights(workload, rng), rng).with_epilogue(epilogue);
            }
            _ => {}
        }
    }
}

/// Occasionally makes weights constant that usually are not, or the other way round.
pub fn odd_weights<R: Rng>(workload: Workload, rng: &mut R) -> Workload {
    match workload.weights().first() {
        Some(&weight) if rng.random_bool(0.15) => {
            let is_constant = workload.spec().operands().nth(weight).unwrap().is_constant();
            workload.with_constant_weights(!is_constant).unwrap_or(workload)
        }
        _ => workload,
    }
}

/// Returns a map or reduction with at most about a million elements.
pub fn random_map_reduce<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let workload = match rng.random_range(0..9) {
            0 | 1 => Workload::new(random_reduce(rng)),
            2 | 3 => Workload::new(random_transpose(rng)),
            4 | 5 => random_chain(rng),
            _ => Workload::new(random_pool(rng)),
        };
        let epilogue = random_epilogue(rng);
        match workload {
            Ok(workload) if workload.flops() < 5e5 => {
                return with_random_prologue(workload, rng).with_epilogue(epilogue);
            }
            _ => {}
        }
    }
}

/// Returns an attention with any mask.
pub fn random_attention<R: Rng>(rng: &mut R) -> AttentionWorkload {
    let (m, n) = (pick(rng, &[1, 2, 5, 12]), pick(rng, &[1, 3, 16, 33]));
    let (k, d) = (pick(rng, &[1, 4, 16, 19]), pick(rng, &[1, 8, 16, 21]));
    let mask = pick(rng, &[Mask::None, Mask::None, Mask::Row, Mask::Rows, Mask::Matrix, Mask::Matrices]);
    let has_heads = matches!(mask, Mask::Rows | Mask::Matrices) && rng.random_bool(0.5);
    let (h, causal) = (1 + usize::from(has_heads), rng.random_bool(0.4) && m <= n);
    AttentionWorkload { h, mask, causal, ..AttentionWorkload::new(pick(rng, &[1, 2, 3]), [m, n], [k, d]) }
}

/// Returns an operator that takes several passes over its rows.
pub fn random_chain<R: Rng>(rng: &mut R) -> Result<Workload, WorkloadError> {
    let (m, n) = (pick(rng, &[1, 2, 3, 16, 37]), rng.random_range(1..=200));
    let k = pick(rng, &[1, 1, 2, 13, 16, 40]);
    let eps = pick(rng, &[1e-5, 1e-3, 0.5]);
    match rng.random_range(0..8) {
        6 | 7 => Workload::new(random_attention(rng)),
        4 => {
            let (groups, of_group, s) = (pick(rng, &[1, 2, 3]), pick(rng, &[1, 2, 5]), pick(rng, &[1, 7, 16, 33]));
            Workload::new(GroupNormWorkload { n: pick(rng, &[1, 2]), c: groups * of_group, groups, s, eps })
        }
        5 => {
            let (c, s) = (pick(rng, &[1, 3, 8, 17]), pick(rng, &[1, 5, 16, 33]));
            let (size, alpha, beta, shift) = (rng.random_range(1..=c.min(6)), pick(rng, &[1e-4, 0.5]), 0.75, 1.5);
            Workload::new(LocalResponseNormWorkload { n: pick(rng, &[1, 2]), c, s, size, alpha, beta, shift })
        }
        0 => Workload::new(LayerNormWorkload { m, n, eps }),
        1 => Workload::new(RmsNorm { m, n, eps }),
        _ => Workload::new(SoftmaxWorkload { m, n, k, log: rng.random() }),
    }
}

/// Returns a pooling of any kind.
pub fn random_pool<R: Rng>(rng: &mut R) -> Pool2d {
    let kernel = [pick(rng, &[1, 2, 3, 3, 5, 7]), pick(rng, &[1, 2, 3, 3, 4])];
    let dilation = [pick(rng, &[1, 1, 2]), pick(rng, &[1, 1, 1, 3])];
    let kind = pick(rng, &[PoolKind::Max, PoolKind::Average, PoolKind::InnerAverage]);
    let pad = |rng: &mut R, d: usize| rng.random_range(0..=(dilation[d] * (kernel[d] - 1)).min(3));
    Pool2d {
        n: pick(rng, &[1, 1, 2]),
        c: pick(rng, &[1, 2, 3, 8, 16, 17, 24, 32]),
        h: rng.random_range(1..24),
        w: rng.random_range(1..50),
        kernel,
        stride: [pick(rng, &[1, 1, 2, 3]), pick(rng, &[1, 1, 2, 2, 3])],
        pad: [pad(rng, 0), pad(rng, 1)],
        dilation,
        ceil: rng.random(),
        kind,
    }
}

/// Returns a reduction of rows, of columns, or of several separate axes; occasionally a mean of
/// more elements than one sum accumulates.
pub fn random_reduce<R: Rng>(rng: &mut R) -> ReduceWorkload {
    // Products of many elements below 1 underflow.
    let op = pick(rng, &[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Mean, ReduceOp::Prod]);
    let most = if op == ReduceOp::Prod { 8 } else { 200 };
    if rng.random_ratio(1, 4) {
        let axes: Vec<usize> = (0..5).filter(|_| rng.random()).collect();
        let most = if op == ReduceOp::Prod { 2 } else { 9 };
        let extent = |axis: usize, rng: &mut R| {
            if axes.contains(&axis) { rng.random_range(1..=most) } else { pick(rng, &[1, 2, 5, 16, 40]) }
        };
        let shape: Vec<usize> = (0..5).map(|axis| extent(axis, rng)).collect();
        return ReduceWorkload::new(&shape, &axes, op).unwrap();
    }
    if op == ReduceOp::Mean && rng.random_ratio(1, 8) {
        return ReduceWorkload::columns([1, rng.random_range(16_000..70_000), pick(rng, &[1, 2, 3])], op);
    }
    let k = pick(rng, &[1, 1, 1, 2, 13, 16, 40, 600, 1030]);
    ReduceWorkload::columns([pick(rng, &[1, 2, 3, 16, 37]), rng.random_range(1..=most), k], op)
}

/// Returns a transpose of matrices, or a permutation of up to six axes, of which adjacent ones may
/// be merged.
pub fn random_transpose<R: Rng>(rng: &mut R) -> TransposeWorkload {
    if rng.random_bool(0.5) {
        let mut size = || pick(rng, &[1, 2, 3, 7, 8, 13, 16, 31, 33, 64]);
        let (m, n) = (size(), size());
        return TransposeWorkload::matrices(pick(rng, &[1, 1, 2, 3]), m, n);
    }
    let mut perm: Vec<usize> = (0..rng.random_range(1..=6)).collect();
    perm.shuffle(rng);
    let shape: Vec<usize> = perm.iter().map(|_| pick(rng, &[1, 2, 3, 3, 5, 8, 11])).collect();
    match TransposeWorkload::new(&shape, &perm) {
        Ok(transpose) if transpose.shape().len() <= 5 && shape.iter().product::<usize>() <= 1 << 13 => transpose,
        _ => random_transpose(rng),
    }
}

/// Returns a workload that the Winograd sketch supports with channel blocks of `block`: with two
/// outputs or more along both axes.
pub fn random_winograd<R: Rng>(rng: &mut R, block: usize) -> Workload {
    let plain = (3, 1);
    let (taps, stride) =
        pick(rng, &[plain, plain, plain, (3, 2), (3, 2), (2, 1), (4, 1), (5, 1), (5, 2), (7, 2), (5, 3)]);
    random_winograd_of(rng, block, taps, stride)
}

/// Returns such a workload with square kernels of `taps` by `taps` and a stride.
pub fn random_winograd_of<R: Rng>(rng: &mut R, block: usize, taps: usize, stride: usize) -> Workload {
    let pad = pick(rng, &[0, taps / 2, taps / 2, taps - 1]);
    let conv = Conv2d {
        n: pick(rng, &[1, 1, 1, 2]),
        c: block * pick(rng, &[1, 1, 2, 3]),
        h: stride * pick(rng, &[1, 2, 3, 5, 6, 7, 8, 11, 13, 14, 17]) - rng.random_range(0..stride),
        w: stride * pick(rng, &[2, 3, 4, 5, 7, 9, 10, 12, 13, 15]) - rng.random_range(0..stride),
        o: block * pick(rng, &[1, 2, 3, 5]),
        kh: taps,
        kw: taps,
        stride: [stride, stride],
        pad: [pad, pick(rng, &[0, taps / 2, taps / 2, taps - 1])],
        dilation: [1, 1],
        groups: 1,
    };
    match Workload::new(conv) {
        Ok(workload) if workload.output_shape()[2..].iter().all(|&extent| extent > 1) => {
            workload.with_epilogue(random_epilogue(rng))
        }
        _ => random_winograd_of(rng, block, taps, stride),
    }
}

pub fn pick<R: Rng, T: Copy>(rng: &mut R, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}

/// Returns a convolution, occasionally with groups, padding, strides and dilation.
pub fn random_conv<R: Rng>(rng: &mut R) -> Conv2d {
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
    Conv2d {
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
    }
}

/// Returns a matrix product, occasionally with a transposed operand.
pub fn random_matmul<R: Rng>(rng: &mut R) -> Matmul {
    let mut size = || pick(rng, &[1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 48, 64, 97, 128, 197]);
    let (m, n, k) = (size(), size(), size());
    let plain = Matmul::new(pick(rng, &[1, 1, 1, 2, 3]), m, n, k);
    let (ta, tb) = (rng.random_bool(0.2), rng.random_bool(0.3));
    let b = if rng.random_ratio(1, 4) { random_batch(rng, &[1, 2, 3]) } else { plain.b };
    Matmul { b, ta, tb, ..plain }
}

/// Returns a batch whose axes belong to either operand or to both.
pub fn random_batch<R: Rng>(rng: &mut R, extents: &[usize]) -> Batch {
    let mut axis = || (pick(rng, extents), pick(rng, &[Sides::Both, Sides::Left, Sides::Right]));
    let axes: Vec<_> = (0..Batch::MOST_AXES).map(|_| axis()).collect();
    Batch::new(axes).unwrap()
}
