//! Image operators compared with their definitions, one output at a time.

use autotune_graph::operators::{Conv, ConvTranspose, GroupNorm, LocalResponseNorm, Pad, Pool, Resize, Sliding};
use autotune_graph::{OpError, Operator, Tensor};
use autotune_workloads::{Coordinates, PadMode, PoolKind, Rounding, Sampling};
use rand::Rng;

use crate::common::{any, assert_near, at, indices, made, numbers, rng};

fn sliding(rng: &mut impl Rng, extent: usize) -> Sliding {
    loop {
        let window = Sliding {
            kernel: any(rng, 1..=4),
            stride: any(rng, 1..=3),
            dilation: any(rng, 1..=2),
            pad: [any(rng, 0..=2), any(rng, 0..=3)],
        };
        if (window.kernel - 1) * window.dilation < extent + window.pad[0] + window.pad[1] {
            return window;
        }
    }
}

/// Returns the position in the image of a window's tap.
fn tap(window: &Sliding, output: i64, tap: i64) -> i64 {
    output * window.stride as i64 + tap * window.dilation as i64 - window.pad[0] as i64
}

fn taps(window: &[Sliding]) -> Vec<Vec<usize>> {
    indices(&window.iter().map(|window| window.kernel).collect::<Vec<_>>())
}

fn shape(op: &impl Operator, operands: &[&Tensor]) -> Vec<usize> {
    op.infer(&operands.iter().map(|x| (x.shape(), x.dtype())).collect::<Vec<_>>()).unwrap().0
}

#[test]
fn convolutions() {
    let mut rng = rng(1);
    for case in 0..120 {
        let (axes, groups) = (any(&mut rng, 1..=3), any(&mut rng, 1..=3));
        let (c, o) = (any(&mut rng, 1..=3), any(&mut rng, 1..=5));
        let extents: Vec<usize> = (0..axes).map(|_| any(&mut rng, 1..=9)).collect();
        let window: Vec<Sliding> = extents.iter().map(|&extent| sliding(&mut rng, extent)).collect();
        let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
        let n = any(&mut rng, 1..=2);
        let x = numbers(&mut rng, &[&[n, c * groups][..], &extents].concat());
        let w = numbers(&mut rng, &[&[o * groups, c][..], &kernels].concat());
        let b = numbers(&mut rng, &[o * groups]);
        let operands = if case % 2 == 0 { vec![&x, &w, &b] } else { vec![&x, &w] };

        let op = Conv { window: window.clone(), groups };
        let wanted = made(&shape(&op, &operands), |out| {
            let first = out[1] / o as i64 * c as i64;
            let mut sum = operands.get(2).map_or(0.0, |b| at(b, &[out[1]]).unwrap());
            for channel in 0..c as i64 {
                for tap_index in taps(&window) {
                    let from = window.iter().zip(&tap_index).zip(&out[2..]);
                    let from: Vec<i64> = from.map(|((window, &k), &y)| tap(window, y, k as i64)).collect();
                    let weight: Vec<i64> = tap_index.iter().map(|&k| k as i64).collect();
                    let weight = at(&w, &[&[out[1], channel][..], &weight].concat()).unwrap();
                    sum += weight * at(&x, &[&[out[0], first + channel][..], &from].concat()).unwrap_or(0.0);
                }
            }
            sum
        });
        assert_near(&op.evaluate(&operands).unwrap(), &wanted, &format!("{op:?} of {:?}", x.shape()));
    }
}

#[test]
fn transposed_convolutions() {
    let mut rng = rng(2);
    let mut seen = 0;
    while seen < 60 {
        let (axes, groups) = (any(&mut rng, 1..=3), any(&mut rng, 1..=2));
        let (c, o) = (any(&mut rng, 1..=2), any(&mut rng, 1..=3));
        let extents: Vec<usize> = (0..axes).map(|_| any(&mut rng, 1..=6 / axes)).collect();
        let window: Vec<Sliding> = extents.iter().map(|_| sliding(&mut rng, 99)).collect();
        let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
        let output_pad: Vec<usize> = window.iter().map(|_| any(&mut rng, 0..=2)).collect();
        let n = any(&mut rng, 1..=2);
        let x = numbers(&mut rng, &[&[n, c * groups][..], &extents].concat());
        let w = numbers(&mut rng, &[&[c * groups, o][..], &kernels].concat());
        let b = numbers(&mut rng, &[o * groups]);
        let operands = if seen % 2 == 0 { vec![&x, &w, &b] } else { vec![&x, &w] };
        let op = ConvTranspose { window: window.clone(), output_pad, groups };
        let known: Vec<_> = operands.iter().map(|x| (x.shape(), x.dtype())).collect();
        let Ok((shape, _)) = op.infer(&known) else { continue };
        seen += 1;

        // An output is the sum over all inputs and taps that map to it.
        let wanted = made(&shape, |out| {
            let (group, own) = (out[1] / o as i64, out[1] % o as i64);
            let mut sum = operands.get(2).map_or(0.0, |b| at(b, &[out[1]]).unwrap());
            for channel in group * c as i64..(group + 1) * c as i64 {
                for from in indices(&extents) {
                    for tap_index in taps(&window) {
                        let mut each = window.iter().zip(&from).zip(&tap_index).zip(&out[2..]);
                        if each.all(|(((window, &y), &k), &out)| tap(window, y as i64, k as i64) == out) {
                            let whole = |lead: [i64; 2], rest: &[usize]| -> Vec<i64> {
                                lead.into_iter().chain(rest.iter().map(|&i| i as i64)).collect()
                            };
                            let weight = at(&w, &whole([channel, own], &tap_index)).unwrap();
                            sum += weight * at(&x, &whole([out[0], channel], &from)).unwrap();
                        }
                    }
                }
            }
            sum
        });
        assert_near(&op.evaluate(&operands).unwrap(), &wanted, &format!("{op:?} of {:?}", x.shape()));
    }
}

#[test]
fn poolings() {
    let mut rng = rng(3);
    for case in 0..240 {
        let kind = [PoolKind::Max, PoolKind::Average, PoolKind::InnerAverage][case % 3];
        let extents: Vec<usize> = (0..any(&mut rng, 1..=3)).map(|_| any(&mut rng, 1..=9)).collect();
        let window: Vec<Sliding> = extents.iter().map(|&extent| sliding(&mut rng, extent)).collect();
        let (n, c) = (any(&mut rng, 1..=2), any(&mut rng, 1..=3));
        let x = numbers(&mut rng, &[&[n, c][..], &extents].concat());
        let op = Pool { window: window.clone(), ceil: case % 2 == 0, kind };

        let wanted = made(&shape(&op, &[&x]), |out| {
            let (mut inside, mut padding) = (Vec::new(), 0);
            for tap_index in taps(&window) {
                let from = window.iter().zip(&tap_index).zip(&out[2..]);
                let from: Vec<i64> = from.map(|((window, &k), &y)| tap(window, y, k as i64)).collect();
                let mut each = from.iter().zip(&window).zip(&extents);
                match at(&x, &[&[out[0], out[1]][..], &from].concat()) {
                    Some(x) => inside.push(x),
                    None if each.all(|((&y, window), &extent)| y < (extent + window.pad[1]) as i64) => padding += 1,
                    None => {}
                }
            }
            let sum: f64 = inside.iter().sum();
            match kind {
                PoolKind::Max => inside.into_iter().fold(f64::NEG_INFINITY, f64::max),
                PoolKind::Average => sum / (inside.len() + padding) as f64,
                PoolKind::InnerAverage => sum / inside.len() as f64,
            }
        });
        assert_near(&op.evaluate(&[&x]).unwrap(), &wanted, &format!("{op:?} of {:?}", x.shape()));
    }
}

#[test]
fn the_largest_of_a_window_is_not_a_number_where_one_of_it_is_none() {
    let x = Tensor::f32(&[1, 1, 4], vec![1.0, f32::NAN, 3.0, 5.0]).unwrap();
    let op = Pool { window: vec![Sliding::new(2)], ceil: false, kind: PoolKind::Max };
    let wanted = Tensor::f32(&[1, 1, 3], vec![f32::NAN, f32::NAN, 5.0]).unwrap();
    assert_near(&op.evaluate(&[&x]).unwrap(), &wanted, "a maximum");
}

#[test]
fn resized_images() {
    let row = |values: &[f32]| Tensor::f32(&[1, 1, 1, values.len()], values.to_vec()).unwrap();
    let resized = |x: &Tensor, width, coordinates, sampling| {
        Resize { size: [1, width], coordinates, sampling }.evaluate(&[x]).unwrap()
    };
    let (x, nearest) = (row(&[1.0, 2.0, 3.0, 4.0]), Sampling::Nearest);

    // Positions for twice as many elements: -1/4, 1/4, 3/4, 5/4, ..; with aligned corners: 0, 3/4,
    // 6/4, ..
    let linear = |width, coordinates| resized(&x, width, coordinates, Sampling::Linear);
    let half = row(&[1.0, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.0]);
    assert_near(&linear(8, Coordinates::HalfPixel), &half, "half pixels");
    let corners = row(&[1.0, 1.0 + 3.0 / 4.0, 2.5, 3.25, 4.0]);
    assert_near(&linear(5, Coordinates::AlignCorners), &corners, "corners");
    assert_near(&linear(1, Coordinates::AlignCorners), &row(&[1.0]), "one corner");
    let asymmetric = row(&[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.0]);
    assert_near(&linear(8, Coordinates::Asymmetric), &asymmetric, "asymmetric");

    // Positions for two elements, 1/2 and 5/2: halfway cases.
    let two = |rounding| resized(&x, 2, Coordinates::HalfPixel, nearest(rounding));
    assert_eq!(two(Rounding::PreferFloor), row(&[1.0, 3.0]));
    assert_eq!(two(Rounding::PreferCeil), row(&[2.0, 4.0]));
    // Positions for three elements: 0, 4/3 and 8/3.
    let three = |rounding| resized(&x, 3, Coordinates::Asymmetric, nearest(rounding));
    assert_eq!(three(Rounding::Floor), row(&[1.0, 2.0, 3.0]));
    assert_eq!(three(Rounding::Ceil), row(&[1.0, 3.0, 4.0]));
    assert_eq!(three(Rounding::PreferFloor), row(&[1.0, 2.0, 4.0]));

    // Both axes: an element between four others.
    let x = Tensor::f32(&[1, 1, 2, 2], vec![0.0, 1.0, 2.0, 5.0]).unwrap();
    let op = Resize { size: [3, 3], coordinates: Coordinates::AlignCorners, sampling: Sampling::Linear };
    let wanted = Tensor::f32(&[1, 1, 3, 3], vec![0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 2.0, 3.5, 5.0]).unwrap();
    assert_near(&op.evaluate(&[&x]).unwrap(), &wanted, "both axes");
}

#[test]
fn paddings() {
    let x = Tensor::f32(&[1, 3], vec![1.0, 2.0, 3.0]).unwrap();
    let padded = |mode, behind| Pad { pad: vec![[0, 0], [2, behind]], mode, value: 9.0 }.evaluate(&[&x]);
    let row = |values: Vec<f32>| Tensor::f32(&[1, values.len()], values);
    assert_eq!(padded(PadMode::Constant, 1), row(vec![9.0, 9.0, 1.0, 2.0, 3.0, 9.0]));
    assert_eq!(padded(PadMode::Reflect, 1), row(vec![3.0, 2.0, 1.0, 2.0, 3.0, 2.0]));
    assert_eq!(padded(PadMode::Edge, 4), row(vec![1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0]));
    assert!(matches!(padded(PadMode::Reflect, 3), Err(OpError::Unfit(_))));

    let nothing = Tensor::f32(&[1, 0], vec![]).unwrap();
    let of_nothing = |mode| Pad { pad: vec![[0, 0], [1, 1]], mode, value: 9.0 }.evaluate(&[&nothing]);
    assert_eq!(of_nothing(PadMode::Constant), row(vec![9.0, 9.0]));
    assert!(of_nothing(PadMode::Edge).is_err() && of_nothing(PadMode::Reflect).is_err());
}

#[test]
fn normalised_channels() {
    let mut rng = rng(4);
    for size in 1..=5 {
        let x = numbers(&mut rng, &[2, 4, 3]);
        let op = LocalResponseNorm { size, alpha: 0.5, beta: 0.75, bias: 2.0 };
        let wanted = made(&[2, 4, 3], |i| {
            let near = -((size as i64 - 1) / 2)..=size as i64 / 2;
            let squares: f64 = near.filter_map(|by| at(&x, &[i[0], i[1] + by, i[2]])).map(|x| x * x).sum();
            at(&x, i).unwrap() / (2.0 + 0.5 / size as f64 * squares).powf(0.75)
        });
        assert_near(&op.evaluate(&[&x]).unwrap(), &wanted, "local response");
    }

    let (x, scale, bias) = (numbers(&mut rng, &[2, 6, 3]), numbers(&mut rng, &[6]), numbers(&mut rng, &[6]));
    for groups in [1, 2, 6] {
        let wanted = made(&[2, 6, 3], |i| {
            let size = 6 / groups as i64;
            let first = i[1] / size * size;
            let all: Vec<f64> = (0..size * 3).map(|k| at(&x, &[i[0], first + k / 3, k % 3]).unwrap()).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            // The variance as the mean of squares minus the square of the mean.
            let variance = all.iter().map(|x| x * x).sum::<f64>() / all.len() as f64 - mean * mean;
            let normal = (at(&x, i).unwrap() - mean) / (variance + 0.01).sqrt();
            normal * at(&scale, &i[1..2]).unwrap() + at(&bias, &i[1..2]).unwrap()
        });
        let op = GroupNorm { groups, eps: 0.01 };
        assert_near(&op.evaluate(&[&x, &scale, &bias]).unwrap(), &wanted, "groups");
    }
}

#[test]
fn too_large_intermediate_tensors_are_refused() {
    let (x, w) = (Tensor::f32(&[1, 1, 1], vec![1.0]).unwrap(), Tensor::f32(&[1, 1, 1], vec![1.0]).unwrap());
    let far = Sliding { kernel: 1, stride: 1 << 40, dilation: 1, pad: [1 << 40, 1 << 40] };
    let conv = Conv { window: vec![far], groups: 1 };
    assert!(matches!(conv.evaluate(&[&x, &w]), Err(OpError::TooLarge { .. })));
    let pool = Pool { window: vec![far], ceil: false, kind: PoolKind::Average };
    assert!(matches!(pool.evaluate(&[&x]), Err(OpError::TooLarge { .. })));
}

#[test]
fn images_without_elements() {
    let empty = |shape: &[usize]| Tensor::f32(shape, vec![]).unwrap();
    let op = |groups| Conv { window: vec![Sliding::new(1); 2], groups };
    let bias = Tensor::f32(&[2], vec![1.0, 2.0]).unwrap();
    // Without input channels only the bias remains.
    let wanted = Tensor::f32(&[1, 2, 1, 2], vec![1.0, 1.0, 2.0, 2.0]).unwrap();
    assert_eq!(op(1).evaluate(&[&empty(&[1, 0, 1, 2]), &empty(&[2, 0, 1, 1]), &bias]), Ok(wanted.clone()));
    let transposed = ConvTranspose { window: vec![Sliding::new(1); 2], output_pad: vec![0, 0], groups: 1 };
    assert_eq!(transposed.evaluate(&[&empty(&[1, 0, 1, 2]), &empty(&[0, 2, 1, 1]), &bias]), Ok(wanted));

    let none = op(1).evaluate(&[&empty(&[0, 3, 4, 4]), &numbers(&mut rng(1), &[2, 3, 1, 1]), &bias]);
    assert_eq!(none, Ok(empty(&[0, 2, 4, 4])));
    let norm = GroupNorm { groups: 1, eps: 1e-5 };
    let x = empty(&[2, 2, 0]);
    assert_eq!(norm.evaluate(&[&x, &bias, &bias]), Ok(x));
}
