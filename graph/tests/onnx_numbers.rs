//! Imported determinants and random numbers.

use autotune_graph::Tensor;
use rten_onnx::onnx::AttributeProto;

use crate::build::{Model, counted, f32s, float, int, ints, one};

#[test]
fn determinants() {
    let of = |x: &Tensor| one(11, "Det", std::slice::from_ref(x), &[], vec![]);
    assert_eq!(of(&f32s(&[1, 1], &[3.0])), Tensor::scalar(3.0));
    assert_eq!(of(&f32s(&[2, 2], &[1.0, 2.0, 3.0, 5.0])), Tensor::scalar(-1.0));
    let upper = [2.0, 7.0, 1.0, 9.0, 0.0, 3.0, 5.0, 4.0, 0.0, 0.0, -1.0, 6.0, 0.0, 0.0, 0.0, 0.5];
    assert_eq!(of(&f32s(&[4, 4], &upper)), Tensor::scalar(-3.0));

    // Several matrices; exchanged rows change the sign.
    let rows = [[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]];
    let both = [rows, [rows[1], rows[0], rows[2]]];
    assert_eq!(of(&f32s(&[2, 3, 3], both.as_flattened().as_flattened())), f32s(&[2], &[18.0, -18.0]));

    let error = Model::new(11).input("x", &[2, 3]).node("Det", "x", "y", vec![]).output("y").import().unwrap_err();
    assert!(error.to_string().ends_with("squares of 1 to 6 rows are supported"), "{error}");
}

fn random(operator: &str, inputs: &[Tensor], attributes: Vec<AttributeProto>) -> Vec<f32> {
    one(22, operator, inputs, &[], attributes).to_numbers()
}

/// Numbers have the distribution that the node states, and depend on its seed only.
#[test]
fn random_numbers() {
    let count = 10_000;
    let of = |operator: &str, seed, more: &[AttributeProto]| {
        let own = [ints("shape", &[100, 100]), float("seed", seed)];
        random(operator, &[], [&own[..], more].concat())
    };
    let mean = |x: &[f32]| x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;

    let uniform = of("RandomUniform", 1.0, &[float("low", 2.0), float("high", 6.0)]);
    assert_eq!(uniform.len(), count);
    assert!(uniform.iter().all(|x| (2.0..6.0).contains(x)) && (mean(&uniform) - 4.0).abs() < 0.05);
    let normal = of("RandomNormal", 1.0, &[float("mean", 3.0), float("scale", 0.5)]);
    let squares: Vec<f32> = normal.iter().map(|x| (x - 3.0) * (x - 3.0)).collect();
    assert!((mean(&normal) - 3.0).abs() < 0.02 && (mean(&squares) - 0.25).abs() < 0.01);
    assert_eq!(of("RandomNormal", 2.0, &[]), of("RandomNormal", 2.0, &[]));
    assert_ne!(of("RandomNormal", 2.0, &[]), of("RandomNormal", 3.0, &[]));

    // Shapes and types of inputs, and the probabilities of ones.
    let like = random("RandomUniformLike", &[counted(&[2, 3])], vec![float("seed", 1.0)]);
    assert!(like.len() == 6 && like.iter().all(|x| (0.0..1.0).contains(x)));
    let ones = random("Bernoulli", &[f32s(&[2, 5000], &[[0.0; 5000], [0.3; 5000]].concat())], vec![float("seed", 1.0)]);
    assert!(ones[..5000].iter().all(|&x| x == 0.0) && (mean(&ones[5000..]) - 0.3).abs() < 0.03);
    let integers = one(22, "Bernoulli", &[f32s(&[1], &[1.0])], &[], vec![float("seed", 0.0), int("dtype", 7)]);
    assert_eq!(integers, Tensor::i64(&[1], vec![1]).unwrap());
}

#[test]
fn random_numbers_without_a_seed() {
    let model = Model::new(22).input("x", &[2]).node("RandomNormalLike", "x", "y", vec![]).output("y");
    let wanted = "node 'randomnormallike' (RandomNormalLike): attribute 'seed': is missing: random numbers are supported \
                  if they may be the same in every run";
    assert_eq!(model.import().unwrap_err().to_string(), wanted);
}
