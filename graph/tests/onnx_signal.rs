//! Fourier transforms and windows, compared with their definitions and with what ONNX Runtime 1.31
//! computes.

use std::f64::consts::TAU;

use autotune_graph::Tensor;
use rten_onnx::onnx::AttributeProto;

use crate::build::{Model, assert_near, f32s, i64s, int, one};
use crate::onnx_runtime::ramp;

fn number(number: i64) -> Tensor {
    Tensor::i64(&[], vec![number]).unwrap()
}

/// Returns a transform of version 20 along an axis.
fn transform(x: &Tensor, length: Option<i64>, axis: i64, [inverse, onesided]: [i64; 2]) -> Tensor {
    let mut model = Model::new(20).input("x", x.shape()).constant("axis", &number(axis));
    if let Some(length) = length {
        model = model.constant("length", &number(length));
    }
    let inputs = if length.is_some() { "x length axis" } else { "x _ axis" };
    let attributes = vec![int("inverse", inverse), int("onesided", onesided)];
    model.node("DFT", inputs, "y", attributes).output("y").run(std::slice::from_ref(x)).remove(0)
}

/// Returns the transform of complex numbers by its definition.
fn defined(x: &[[f64; 2]], sign: f64) -> Vec<[f64; 2]> {
    let of = |k: usize| {
        let term = |(n, [re, im]): (usize, &[f64; 2])| {
            let (sine, cosine) = (sign * TAU * (k * n) as f64 / x.len() as f64).sin_cos();
            [re * cosine - im * sine, re * sine + im * cosine]
        };
        x.iter().enumerate().map(term).fold([0.0; 2], |sum, term| [sum[0] + term[0], sum[1] + term[1]])
    };
    (0..x.len()).map(of).collect()
}

fn pairs(x: &Tensor) -> Vec<[f64; 2]> {
    x.to_numbers().chunks_exact(2).map(|pair| [pair[0].into(), pair[1].into()]).collect()
}

fn flat(x: &[[f64; 2]], factor: f64) -> Vec<f32> {
    x.as_flattened().iter().map(|x| (x * factor) as f32).collect()
}

#[test]
fn transforms_of_complex_numbers() {
    for length in [1, 2, 5, 12] {
        let x = ramp(&[1, length, 2], length);
        assert_near(&transform(&x, None, 1, [0, 0]), &flat(&defined(&pairs(&x), -1.0), 1.0));
        assert_near(&transform(&x, None, -2, [1, 0]), &flat(&defined(&pairs(&x), 1.0), 1.0 / length as f64));
    }
    // Along an outer axis, cut and filled up with zeros.
    let x = ramp(&[4, 2, 2], 3);
    let line = |column: usize, count: usize| -> Vec<[f64; 2]> {
        let pairs = pairs(&x);
        (0..count).map(|row| pairs.get(row * 2 + column).copied().unwrap_or_default()).collect()
    };
    for length in [3, 6] {
        let found = pairs(&transform(&x, Some(length as i64), 0, [0, 0]));
        for column in 0..2 {
            let found: Vec<[f64; 2]> = found.iter().skip(column).step_by(2).copied().collect();
            let wanted = flat(&defined(&line(column, length), -1.0), 1.0);
            assert_near(&f32s(&[2 * length], &flat(&found, 1.0)), &wanted);
        }
    }
}

/// A transform of real numbers has half of the conjugates, from which the inverse computes them.
#[test]
fn transforms_of_real_numbers() {
    for length in [1, 2, 5, 8] {
        let x = ramp(&[2, length, 1], length);
        let spectrum = transform(&x, None, 1, [0, 1]);
        assert_eq!(spectrum.shape(), [2, length / 2 + 1, 2]);
        let complex: Vec<[f64; 2]> = x.to_numbers()[..length].iter().map(|&re| [re.into(), 0.0]).collect();
        let wanted = flat(&defined(&complex, -1.0)[..length / 2 + 1], 1.0);
        assert_near(&f32s(&[wanted.len()], &spectrum.to_numbers()[..wanted.len()]), &wanted);
        assert_near(&transform(&spectrum, Some(length as i64), 1, [1, 1]), &x.to_numbers());
    }
    let even = transform(&ramp(&[1, 4, 1], 1), None, 1, [0, 1]);
    assert_eq!(transform(&even, None, 1, [1, 1]).shape(), [1, 4, 1]);
}

/// The axis is an attribute before version 20.
#[test]
fn axes_of_transforms() {
    let x = ramp(&[1, 3, 2], 1);
    let old = one(17, "DFT", std::slice::from_ref(&x), &[], vec![int("inverse", 1)]);
    assert_near(&old, &[0.25, 0.166667, -0.158494, 0.32516, -0.591506, 0.758173]);
    let new = one(20, "DFT", std::slice::from_ref(&x), &[], vec![int("inverse", 1)]);
    assert_eq!(new, old);
}

fn frames(x: &Tensor, constants: [Option<Tensor>; 3], onesided: i64) -> Model {
    let mut model = Model::new(17).input("x", x.shape());
    let mut names = String::from("x");
    for (name, constant) in ["step", "window", "length"].into_iter().zip(constants) {
        names += &format!(" {}", if constant.is_some() { name } else { "_" });
        if let Some(constant) = constant {
            model = model.constant(name, &constant);
        }
    }
    model.node("STFT", &names, "y", vec![int("onesided", onesided)]).output("y")
}

#[test]
fn frames_of_signals() {
    let x = ramp(&[1, 9, 1], 1);
    let run = |model: Model, x: &Tensor| model.run(std::slice::from_ref(x)).remove(0);
    let found = run(frames(&x, [Some(number(3)), Some(ramp(&[4], 2)), None], 1), &x);
    assert_eq!(found.shape(), [1, 2, 3, 2]);
    assert_near(&found, &[-0.8125, 0.0, -0.375, 0.9375, 1.0625, 0.0, -0.9375, 0.0, -0.1875, 0.75, 0.5625, 0.0]);
    // Without a window all samples count alike.
    let plain = run(frames(&x, [Some(number(5)), None, Some(number(4))], 0), &x);
    let second = f32s(&[1, 4, 1], &x.to_numbers()[5..9]);
    assert_near(
        &plain,
        &[
            transform(&f32s(&[1, 4, 1], &x.to_numbers()[..4]), None, 1, [0, 0]).to_numbers(),
            transform(&second, None, 1, [0, 0]).to_numbers(),
        ]
        .concat(),
    );

    let complex = ramp(&[1, 6, 2], 1);
    let found = run(frames(&complex, [Some(number(2)), Some(ramp(&[3], 2)), None], 0), &complex);
    assert_near(
        &found,
        &[
            0.6875, 0.875, -0.04411, 1.059655, -1.01839, -0.997155, 0.75, -1.8125, 0.595393, 0.040224, -0.595392,
            1.772276,
        ],
    );
}

#[test]
fn windows_and_bands() {
    let of = |operator: &str, size, periodic| one(17, operator, &[], &[number(size)], vec![int("periodic", periodic)]);
    assert_near(&of("HannWindow", 5, 1), &[0.0, 0.345491, 0.904508, 0.904508, 0.345491]);
    assert_near(&of("HannWindow", 5, 0), &[0.0, 0.5, 1.0, 0.5, 0.0]);
    assert_near(&of("HammingWindow", 4, 1), &[0.086957, 0.543478, 1.0, 0.543478]);
    assert_near(&of("BlackmanWindow", 4, 0), &[0.0, 0.63, 0.63, 0.0]);
    assert_eq!(of("HannWindow", 1, 0), f32s(&[1], &[1.0]));
    assert_eq!(of("HannWindow", 0, 1).shape(), [0]);
    let integers = one(17, "BlackmanWindow", &[], &[number(3)], vec![int("periodic", 0), int("output_datatype", 7)]);
    assert_eq!(integers, i64s(&[0, 1, 0]));

    let edges = [100.0, 3500.0].map(Tensor::scalar);
    let constants = [&[2, 16, 8000].map(number)[..], &edges].concat();
    let bands = one(17, "MelWeightMatrix", &[], &constants, vec![]);
    let wanted: Vec<f32> = [[0.0; 2], [1.0, 0.0], [0.0, 1.0], [0.0, 0.5]].concat();
    assert_eq!(bands.shape(), [9, 2]);
    assert_near(&bands, &[wanted, vec![0.0; 10]].concat());
}

#[test]
fn signals_that_do_not_fit() {
    let refusal = |model: Model| {
        let error = model.import().unwrap_err().to_string();
        error.split_once("): ").map(|(_, reason)| reason.to_string()).unwrap()
    };
    let of = |shape: &[usize], version, attributes: Vec<AttributeProto>| {
        refusal(Model::new(version).input("x", shape).node("DFT", "x", "y", attributes).output("y"))
    };
    let parts = of(&[2, 3, 3], 20, vec![]);
    assert_eq!(parts, "numbers of shape [2, 3, 3] have no real and imaginary parts along the last axis");
    assert_eq!(of(&[2, 3, 1], 17, vec![int("axis", 2)]).split(' ').next(), Some("numbers"));
    let needs = "attribute 'onesided': a transform of real numbers, or an inverse one to real numbers, is needed";
    assert_eq!(of(&[2, 3, 2], 20, vec![int("onesided", 1)]), needs);
    assert_eq!(of(&[2, 3, 1], 20, vec![int("onesided", 1), int("inverse", 1)]), needs);
    let empty = Model::new(20).input("x", &[2, 3, 1]).constant("length", &number(0));
    assert_eq!(refusal(empty.node("DFT", "x length", "y", vec![]).output("y")), "a transform of nothing");
    // The matrix of a long transform exceeds what an import may compute.
    let long = of(&[1, 1 << 24, 1], 20, vec![]);
    assert!(long.contains("too large") || long.contains("more than"), "{long}");

    let of = |step, length| refusal(frames(&ramp(&[1, 9, 1], 1), [Some(number(step)), None, Some(number(length))], 1));
    assert_eq!(of(0, 4), "input 1: is missing or zero");
    assert_eq!(of(1, 10), "frames of 10 of 9 samples, with a window of shape None");
    let complex = frames(&ramp(&[1, 9, 2], 1), [Some(number(1)), None, None], 1);
    assert_eq!(refusal(complex), "attribute 'onesided': is for real signals only");
}
