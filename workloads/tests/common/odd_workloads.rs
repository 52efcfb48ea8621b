//! Random workloads of any valid size and shape: kernels larger than the input, padding as large as
//! the kernel, taps that read only padding. Strides and dilations may exceed the image. Extents are
//! 1, primes or others; convolutions may be grouped or depthwise, products tall or flat.

use autotune_workloads::{Conv2d, Matmul, Workload, operators};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

use super::epilogues::random_epilogue;
use super::operators::random_of;
use super::pairs::{odd_mlp, odd_separable};
use super::workloads::random_batch;

/// Returns a valid workload of any operator on f32.
pub fn odd_operator<R: Rng>(rng: &mut R) -> Workload {
    odd_of(operators().choose(rng).unwrap().name, rng)
}

fn odd_of<R: Rng>(name: &str, rng: &mut R) -> Workload {
    loop {
        let sizes: [usize; 6] = std::array::from_fn(|_| size(rng, 5000));
        let ([a, b, c, d, e, f], n) = (sizes, if rng.random_ratio(1, 4) { sizes[5] } else { 1 });

        let made = match name {
            "conv2d" => Workload::new(odd_conv(rng)),
            "matmul" => Workload::new(odd_matmul(rng)),
            "conv1d" => format!("conv1d:n={n},c={a},w={b},o={c},{}", odd_window(rng, "")).parse(),
            "conv3d" => {
                let windows = ["d", "h", "w"].map(|axis| odd_window(rng, axis)).join(",");
                format!("conv3d:n={n},c={a},d={b},h={c},w={d},o={e},{windows}").parse()
            }
            "conv_transpose2d" => {
                let windows = format!("k={},s={},p={}", size(rng, 40), size(rng, 9), size(rng, 9) - 1);
                format!("conv_transpose2d:n={n},c={a},h={b},w={c},o={d},{windows}").parse()
            }
            "pool2d" => {
                let windows = ["h", "w"].map(|axis| odd_window(rng, axis)).join(",");
                let kind = ["max", "avg", "avg,exclude_pad"].choose(rng).unwrap();
                format!("pool2d:n={n},c={a},h={b},w={c},{windows},kind={kind}").parse()
            }
            "reduce" if n > 1 => format!("reduce:shape={a}x{b}x{n}x{c},axes=02,op=max").parse(),
            "reduce" => format!("reduce:m={a},n={b},k={n},op=sum").parse(),
            "softmax" | "log_softmax" => format!("{name}:m={a},n={b},k={n}").parse(),
            "layer_norm" | "rms_norm" => format!("{name}:m={a},n={b}").parse(),
            "group_norm" => format!("group_norm:n={n},c={},g={a},s={b}", a * c).parse(),
            "instance_norm" => format!("instance_norm:n={n},c={a},s={b}").parse(),
            "local_response_norm" => {
                format!("local_response_norm:n={n},c={a},s={b},size={}", rng.random_range(1..=a.min(40))).parse()
            }
            "transpose" => format!("transpose:b={n},m={a},n={b}").parse(),
            "attention" => format!("attention:b={n},m={a},n={b},k={c},d={}", d.min(512)).parse(),
            "separable_conv2d" => odd_separable(rng).parse(),
            "mlp" => odd_mlp(rng).parse(),
            "pointwise" => format!("pointwise:b={n},m={a},n={b},op=mul,rhs=row").parse(),
            "resize" => format!("resize:n={n},c={a},h={b},w={c},oh={d},ow={e},mode=linear").parse(),
            "gather" => format!("gather:m={a},n={b},k={c}").parse(),
            "pad" => format!("pad:n={n},c={a},h={b},w={c},pt={d},pb={e},pl={f},mode=edge").parse(),
            _ => Ok(random_of(name, rng)),
        };

        let epilogue = random_epilogue(rng);
        let is_exact = rng.random();
        if let Ok(workload) = made {
            return workload.with_epilogue(epilogue).with_exact(is_exact);
        }
    }
}

/// Returns the fields of a window along an axis: kernel, dilation, padding and stride.
fn odd_window<R: Rng>(rng: &mut R, axis: &str) -> String {
    let (kernel, dilation) = (rng.random_range(1..20), rng.random_range(1..5));
    let pad = rng.random_range(0..=dilation * (kernel - 1) / 2);
    format!("k{axis}={kernel},d{axis}={dilation},p{axis}={pad},s{axis}={}", rng.random_range(1..9))
}

/// Returns a valid convolution or matrix product on f32.
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

/// Returns a size that is mostly small, sometimes 1, a power of two, a prime or huge.
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
    let b = if rng.random_ratio(1, 8) { random_batch(rng, &[1, 2, 7, 30]) } else { plain.b };
    Matmul { b, ta: rng.random_ratio(1, 4), tb: rng.random_ratio(1, 4), ..plain }
}
