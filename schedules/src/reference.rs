//! The right answer: a plain evaluation of a workload that every kernel's output is compared with.

use ndarray::ArrayD;
use rayon::prelude::*;

use crate::config::{Config, Value};
use crate::tensor::Operands;
use crate::winograd;
use crate::workload::{Activation, Conv2d, DType, Matmul, Operator, Workload};

/// The output of `workload`, [`Workload::output_shape`], summed in f64 and rounded once; the operands are rounded to the
/// workload's type first.
///
/// ```
/// use autotune_schedules::{Operands, Workload, max_rel_error, reference};
/// let workload: Workload = "matmul:m=2,n=3,k=4,act=relu".parse().unwrap();
/// let output = reference(&workload, &Operands::random(&workload, 0));
/// assert_eq!(output.shape(), [1, 2, 3]);
/// assert_eq!(max_rel_error(&output, &output), 0.0);
/// ```
///
/// # Panics
///
/// If the operands are not the workload's ([`Operands::check`]).
pub fn reference(workload: &Workload, operands: &Operands) -> ArrayD<f32> {
    if let Err(misfit) = operands.check(workload) {
        panic!("{misfit}");
    }
    let operands = &*operands.rounded(workload.dtype);
    let mut sums = match workload.op {
        Operator::Conv2d(conv) => conv2d(&conv, operands),
        Operator::Matmul(matmul) => matmul_sums(&matmul, operands),
    };
    add_epilogue(workload, operands, &mut sums);
    sums.mapv(|x| workload.dtype.stored(x as f32))
}

/// Largest difference between two tensors, relative to the largest magnitude in `reference`.
///
/// Infinite if the shapes differ or if any element of either is not a finite number.
pub fn max_rel_error(actual: &ArrayD<f32>, reference: &ArrayD<f32>) -> f64 {
    if actual.shape() != reference.shape() {
        return f64::INFINITY;
    }
    let (mut largest, mut worst) = (0.0f64, 0.0f64);
    for (&a, &r) in actual.iter().zip(reference) {
        if !a.is_finite() || !r.is_finite() {
            return f64::INFINITY;
        }
        largest = largest.max(f64::from(r).abs());
        worst = worst.max((f64::from(a) - f64::from(r)).abs());
    }
    if worst == 0.0 { 0.0 } else { worst / largest }
}

/// The [`max_rel_error`] that sums of a workload's own products in f32, in any order, may have and still be right.
///
/// The rounding errors of a sum of `k` products of random signs grow with `sqrt(k)` like the sum itself, so that the error
/// relative to the largest output stays near the f32 unit roundoff (6e-8), a thousand times below, whereas one missing or
/// doubled product shows: it is about `1/sqrt(k)` of an output.
pub const EXACT_TOLERANCE: f64 = 1e-4;

/// The [`max_rel_error`] that a kernel made from `config` may have and still be right: [`EXACT_TOLERANCE`] or that of
/// [`winograd::tolerance`], and more for two reasons.
///
/// An output that is rounded to 16 bits may be the neighbour of the reference's, where the sums lie on either side of the
/// middle between them: twice [`DType::unit_roundoff`]. A matrix instruction cuts off what does not fit into the f32 sum that
/// it adds to, instead of rounding: an error of up to 2^-23 of the sum, always towards zero, for each instruction of 8 steps.
pub fn tolerance(workload: &Workload, config: &Config) -> f64 {
    let sums = match config.knobs.get(winograd::TILE_SIZE_KNOB) {
        Some(Value::Choice(m)) if !config.is_exact() => winograd::tolerance(m.parse().unwrap_or_default()),
        _ => EXACT_TOLERANCE,
    };
    let rounded = match workload.dtype {
        DType::F32 | DType::Tf32 => 0.0,
        DType::F16 | DType::Bf16 => 2.0 * workload.dtype.unit_roundoff(),
    };
    let cut_off = match workload.dtype {
        DType::F32 => 0.0,
        _ => workload.reduction_len() as f64 / 8.0 * 2f64.powi(-23),
    };
    sums + rounded + cut_off
}

/// A row-major copy in f64.
fn widen(tensor: &ArrayD<f32>) -> Vec<f64> {
    tensor.iter().map(|&x| f64::from(x)).collect()
}

/// The sums of a workload, made row by row: `row(index, sums)` adds to the zeros of the innermost row `index`.
fn by_rows(shape: &[usize], row: impl Fn(usize, &mut [f64]) + Sync) -> ArrayD<f64> {
    let mut sums = ArrayD::zeros(shape.to_vec());
    let width = shape.last().copied().unwrap_or(1);
    if let Some(all) = sums.as_slice_mut() {
        all.par_chunks_mut(width).enumerate().for_each(|(index, out)| row(index, out));
    }
    sums
}

/// `out[n,o,y,x] = sum over c, kh, kw of padded[n, g*C + c, y*sh + kh*dh, x*sw + kw*dw] * weight[o,c,kh,kw]`
/// with `C = c/groups` and `g` the group of `o`.
fn conv2d(conv: &Conv2d, operands: &Operands) -> ArrayD<f64> {
    let [oh, ow] = conv.output_hw();
    let (height, width) = (conv.h + 2 * conv.pad[0], conv.w + 2 * conv.pad[1]);
    let input = widen(&zero_padded(conv, &operands.input));
    let weight = widen(&operands.weight);
    let group_inputs = conv.c / conv.groups;
    let group_outputs = conv.o / conv.groups;
    by_rows(&[conv.n, conv.o, oh, ow], |row, sums| {
        let (n, o, y) = (row / (conv.o * oh), row / oh % conv.o, row % oh);
        for c in 0..group_inputs {
            let plane = n * conv.c + o / group_outputs * group_inputs + c;
            for kh in 0..conv.kh {
                let line = (plane * height + y * conv.stride[0] + kh * conv.dilation[0]) * width;
                for kw in 0..conv.kw {
                    let tap = weight[((o * group_inputs + c) * conv.kh + kh) * conv.kw + kw];
                    let taps = &input[line + kw * conv.dilation[1]..line + width];
                    add_scaled(sums, tap, taps, conv.stride[1]);
                }
            }
        }
    })
}

/// The input with its padding written out.
fn zero_padded(conv: &Conv2d, input: &ArrayD<f32>) -> ArrayD<f32> {
    let [ph, pw] = conv.pad;
    let mut padded = ArrayD::zeros(vec![conv.n, conv.c, conv.h + 2 * ph, conv.w + 2 * pw]);
    padded.slice_mut(ndarray::s![.., .., ph..ph + conv.h, pw..pw + conv.w]).assign(input);
    padded
}

/// `out[b,m,n] = sum over k of a[b,m,k] * w[b,k,n]`.
fn matmul_sums(matmul: &Matmul, operands: &Operands) -> ArrayD<f64> {
    let &Matmul { b: batch, m, n, k } = matmul;
    let (left, right) = (widen(&operands.input), widen(&operands.weight));
    by_rows(&[batch, m, n], |row, sums| {
        for (j, &scale) in left[row * k..(row + 1) * k].iter().enumerate() {
            let line = (row / m * k + j) * n;
            add_scaled(sums, scale, &right[line..line + n], 1);
        }
    })
}

/// `sums[x] += scale * values[x * step]`.
fn add_scaled(sums: &mut [f64], scale: f64, values: &[f64], step: usize) {
    if step == 1 {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += scale * value;
        }
    } else {
        for (sum, value) in sums.iter_mut().zip(values.iter().step_by(step)) {
            *sum += scale * value;
        }
    }
}

/// `sums = act(sums + bias + residual)`.
fn add_epilogue(workload: &Workload, operands: &Operands, sums: &mut ArrayD<f64>) {
    if let Some(bias) = &operands.bias {
        let channel_axis = match workload.op {
            Operator::Conv2d(_) => 1,
            Operator::Matmul(_) => 2,
        };
        for (mut lane, &value) in sums.axis_iter_mut(ndarray::Axis(channel_axis)).zip(bias) {
            lane += f64::from(value);
        }
    }
    if let Some(residual) = &operands.residual {
        sums.zip_mut_with(residual, |sum, &value| *sum += f64::from(value));
    }
    match workload.epilogue.activation {
        Activation::None => {}
        Activation::Relu => sums.mapv_inplace(|x| x.max(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Dimension, Ix2, s};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Seven loops, every index written out, padding by a test at every tap.
    fn seven_loops(conv: &Conv2d, t: &Operands) -> ArrayD<f64> {
        let [oh, ow] = conv.output_hw();
        let per_group = conv.c / conv.groups;
        ArrayD::from_shape_fn(vec![conv.n, conv.o, oh, ow], |i| {
            let group = i[1] * conv.groups / conv.o;
            let mut sum = 0.0;
            for c in 0..per_group {
                for kh in 0..conv.kh {
                    for kw in 0..conv.kw {
                        let y = (i[2] * conv.stride[0] + kh * conv.dilation[0]) as i64 - conv.pad[0] as i64;
                        let x = (i[3] * conv.stride[1] + kw * conv.dilation[1]) as i64 - conv.pad[1] as i64;
                        if y >= 0 && x >= 0 && y < conv.h as i64 && x < conv.w as i64 {
                            let data = t.input[[i[0], group * per_group + c, y as usize, x as usize]];
                            sum += f64::from(data) * f64::from(t.weight[[i[1], c, kh, kw]]);
                        }
                    }
                }
            }
            sum
        })
    }

    fn random_conv(rng: &mut ChaCha8Rng) -> Option<Workload> {
        let mut pick = |low: usize, high: usize| rng.random_range(low..=high);
        let groups = pick(1, 3);
        let conv = Conv2d {
            n: pick(1, 2),
            c: groups * pick(1, 3),
            h: pick(1, 9),
            w: pick(1, 9),
            o: groups * pick(1, 3),
            kh: pick(1, 4),
            kw: pick(1, 4),
            stride: [pick(1, 3), pick(1, 3)],
            pad: [pick(0, 2), pick(0, 2)],
            dilation: [pick(1, 2), pick(1, 2)],
            groups,
        };
        Workload::conv2d(conv).ok()
    }

    #[test]
    fn convolutions_agree_with_seven_loops() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut tried = 0;
        while tried < 200 {
            let Some(workload) = random_conv(&mut rng) else {
                continue;
            };
            let Operator::Conv2d(conv) = workload.op else { unreachable!() };
            let operands = Operands::random(&workload, tried);
            let wanted = seven_loops(&conv, &operands).mapv(|x| x as f32);
            let error = max_rel_error(&reference(&workload, &operands), &wanted);
            assert!(error < 1e-6, "{workload}, seed {tried}: {error}");
            tried += 1;
        }
    }

    #[test]
    fn products_agree_with_ndarray() {
        for text in ["matmul:m=7,n=5,k=9", "matmul:b=3,m=4,n=6,k=2", "matmul:m=1,n=1,k=1"] {
            let workload: Workload = text.parse().unwrap();
            let operands = Operands::random(&workload, 3);
            let output = reference(&workload, &operands);
            for b in 0..output.shape()[0] {
                let matrix =
                    |t: &ArrayD<f32>| t.slice(s![b, .., ..]).mapv(f64::from).into_dimensionality::<Ix2>().unwrap();
                let wanted = matrix(&operands.input).dot(&matrix(&operands.weight));
                let wanted = wanted.mapv(|x| x as f32).into_dyn();
                let error = max_rel_error(&output.slice(s![b, .., ..]).to_owned().into_dyn(), &wanted);
                assert!(error < 1e-6, "{text}, batch {b}: {error}");
            }
        }
    }

    #[test]
    fn epilogue_adds_bias_and_residual_before_the_activation() {
        for (plain, fused) in [
            ("conv2d:c=2,h=4,w=3,o=5,k=1", "conv2d:c=2,h=4,w=3,o=5,k=1,bias,add,act=relu"),
            ("matmul:b=2,m=3,n=4,k=5", "matmul:b=2,m=3,n=4,k=5,bias,add,act=relu"),
        ] {
            let (plain, fused): (Workload, Workload) = (plain.parse().unwrap(), fused.parse().unwrap());
            let operands = Operands::random(&fused, 5);
            let bare = Operands { bias: None, residual: None, ..operands.clone() };
            let sums = reference(&plain, &bare);
            let output = reference(&fused, &operands);
            let (bias, residual) = (operands.bias.unwrap(), operands.residual.unwrap());
            let mut clipped = 0;
            for (i, &sum) in sums.indexed_iter() {
                let channel = if i.ndim() == 4 { i[1] } else { i[2] };
                let whole = sum + bias[channel] + residual[&i];
                assert!((output[&i] - whole.max(0.0)).abs() < 1e-5, "{fused} at {i:?}");
                clipped += usize::from(whole < 0.0);
            }
            assert!(clipped > 0 && clipped < sums.len());
        }
    }

    #[test]
    fn errors_are_relative_to_the_largest_value_and_never_hide() {
        let tensor = |values: &[f32]| ArrayD::from_shape_vec(vec![values.len()], values.to_vec()).unwrap();
        let wanted = tensor(&[1.0, -4.0]);
        assert_eq!(max_rel_error(&tensor(&[1.5, -4.0]), &wanted), 0.125);
        assert_eq!(max_rel_error(&tensor(&[f32::NAN, -4.0]), &wanted), f64::INFINITY);
        assert_eq!(max_rel_error(&tensor(&[f32::INFINITY, -4.0]), &wanted), f64::INFINITY);
        assert_eq!(max_rel_error(&wanted, &tensor(&[1.0, f32::NAN])), f64::INFINITY);
        assert_eq!(max_rel_error(&tensor(&[1.0]), &wanted), f64::INFINITY);
        assert_eq!(max_rel_error(&tensor(&[0.0]), &tensor(&[0.0])), 0.0);
        assert_eq!(max_rel_error(&tensor(&[1.0]), &tensor(&[0.0])), f64::INFINITY);
    }

    #[test]
    fn tolerance_tells_one_lost_product_from_rounding() {
        let workload: Workload = "matmul:m=4,n=4,k=4096".parse().unwrap();
        let mut operands = Operands::random(&workload, 9);
        let wanted = reference(&workload, &operands);
        operands.input[[0, 2, 1000]] = 0.0;
        assert!(max_rel_error(&reference(&workload, &operands), &wanted) > 5.0 * EXACT_TOLERANCE);
    }
}
