//! Special values in all elementwise operators: the reference is compared with the standard's
//! definitions in f64, kernels with both.

use autotune_ir::Target;
use autotune_ir::formula::ulps;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::{Compiled, Tensor, rewrite};
use rten_onnx::onnx::AttributeProto;

use crate::build::{Model, float, word};

/// Computes a model on inputs by the reference, and by kernels only.
pub(crate) fn both(model: &Model, inputs: &[Tensor], what: &str) -> [Tensor; 2] {
    let graph = rewrite(&model.import().unwrap()).unwrap();
    let is_interpreted = |work: &StepWork| matches!(work, StepWork::Interpret(_));
    assert!(!Cut::of(&graph).steps.iter().any(|step| is_interpreted(&step.work)), "{what} has no kernel");
    let target = Target::detect("cpu", Some(1)).unwrap();
    let mut workspace = Compiled::new(&graph, None, &target).unwrap().workspace().unwrap();
    [model.run(inputs).remove(0), workspace.run_tensors(inputs).unwrap().remove(0)]
}

/// Fails where only one of two numbers is NaN or infinite, or where they differ by more than a
/// number of ulps and more than an absolute error.
pub(crate) fn assert_near(found: &Tensor, wanted: &[f64], most: f64, absolute: f64, what: &str) {
    let found = found.to_numbers();
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (at, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let is_near = (f64::from(found) - wanted).abs() <= absolute || ulps(found, wanted) <= most;
        assert!(is_near, "{what} at {at}: {found:e}, where {wanted:e} is expected");
    }
}

/// Returns numbers of both signs around critical points, and NaN.
pub(crate) fn values() -> Vec<f32> {
    let above = |x: f32| f32::from_bits(x.to_bits() + 1);
    let below = |x: f32| f32::from_bits(x.to_bits() - 1);
    let least = f32::from_bits(1);
    let sizes = [0.0, least, 3.0 * least, below(f32::MIN_POSITIVE), f32::MIN_POSITIVE, 1e-20, 1e-3, 0.5];
    let sizes = sizes.into_iter().chain([below(1.0), 1.0, above(1.0), 2.5, 3.0, below(3.0), 12.3392, 20.0]);
    // Limits of f32 exponentials, for normal and denormal results.
    let sizes =
        sizes.chain([87.4, 88.722_84, 88.8, 103.5, 104.5, 150.0, 16_777_216.0, 1e20, below(f32::MAX), f32::MAX]);
    sizes.chain([f32::INFINITY]).flat_map(|x| [x, -x]).chain([f32::NAN]).collect()
}

/// A unary operator: name, opset, attributes, definition, and permitted error of kernels in ulps
/// and absolute.
type Function = (&'static str, i64, Vec<AttributeProto>, Box<dyn Fn(f64) -> f64>, f64, f64);

fn clamp(x: f64, lo: f64, hi: f64) -> f64 {
    if x.is_nan() { x } else { x.max(lo).min(hi) }
}

fn softplus(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

fn elu(alpha: f64) -> impl Fn(f64) -> f64 {
    move |x| if x < 0.0 { alpha * x.exp_m1() } else { x }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Functions that are rounded once, or have short formulas.
fn plain() -> Vec<Function> {
    let none = Vec::new;

    vec![
        ("Identity", 13, none(), Box::new(|x| x), 0.0, 0.0),
        ("Abs", 13, none(), Box::new(f64::abs), 0.0, 0.0),
        ("Neg", 13, none(), Box::new(|x| -x), 0.0, 0.0),
        ("Floor", 13, none(), Box::new(f64::floor), 0.0, 0.0),
        ("Ceil", 13, none(), Box::new(f64::ceil), 0.0, 0.0),
        ("Round", 13, none(), Box::new(f64::round_ties_even), 0.0, 0.0),
        ("Sign", 13, none(), Box::new(|x| if x == 0.0 { 0.0 } else { x.signum() }), 0.0, 0.0),
        ("Sqrt", 13, none(), Box::new(f64::sqrt), 1.0, 0.0),
        ("Reciprocal", 13, none(), Box::new(f64::recip), 1.0, 0.0),
        ("Relu", 14, none(), Box::new(|x| clamp(x, 0.0, f64::INFINITY)), 0.0, 0.0),
        ("LeakyRelu", 16, none(), Box::new(|x| if x < 0.0 { f64::from(0.01f32) * x } else { x }), 1.0, 0.0),
        ("ThresholdedRelu", 10, none(), Box::new(|x| if x > 1.0 { x } else { 0.0 }), 0.0, 0.0),
        ("Softsign", 6, none(), Box::new(|x| x / (1.0 + x.abs())), 2.0, 0.0),
        ("HardSigmoid", 6, none(), Box::new(|x| clamp(f64::from(0.2f32) * x + 0.5, 0.0, 1.0)), 2.0, 1e-7),
        ("HardSwish", 14, none(), Box::new(|x| x * clamp(x / 6.0 + 0.5, 0.0, 1.0)), 2.0, 1e-6),
        (
            "Shrink",
            9,
            vec![float("lambd", 1.0), float("bias", 0.25)],
            Box::new(|x| match x {
                _ if x > 1.0 => x - 0.25,
                _ if x < -1.0 => x + 0.25,
                _ => 0.0,
            }),
            1.0,
            0.0,
        ),
        ("Clip", 6, vec![float("min", -1.0), float("max", 2.0)], Box::new(|x| clamp(x, -1.0, 2.0)), 0.0, 0.0),
    ]
}

/// Functions with tails, where relative accuracy matters.
fn with_tails() -> Vec<Function> {
    let none = Vec::new;
    let selu = |x| f64::from(1.050_701_f32) * elu(f64::from(1.673_263_2_f32))(x);
    let inner = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));

    vec![
        ("Exp", 13, none(), Box::new(f64::exp), 1.5, 0.0),
        ("Log", 13, none(), Box::new(f64::ln), 1.5, 0.0),
        ("Erf", 13, none(), Box::new(libm::erf), 2.0, 0.0),
        ("Sigmoid", 13, none(), Box::new(|x: f64| 1.0 / (1.0 + (-x).exp())), 3.0, 0.0),
        ("Tanh", 13, none(), Box::new(f64::tanh), 3.0, 0.0),
        ("Softplus", 6, none(), Box::new(softplus), 2.0, 0.0),
        ("Mish", 18, none(), Box::new(|x| x * softplus(x).tanh()), 6.0, 0.0),
        ("Elu", 6, none(), Box::new(elu(1.0)), 2.0, 0.0),
        ("Elu", 6, vec![float("alpha", 0.5)], Box::new(elu(0.5)), 2.0, 0.0),
        ("Celu", 12, none(), Box::new(elu(1.0)), 2.0, 0.0),
        (
            "Celu",
            12,
            vec![float("alpha", 2.0)],
            Box::new(move |x| 2.0 * elu(1.0)(clamp(x / 2.0, f64::MIN, 0.0)) + clamp(x, 0.0, f64::INFINITY)),
            4.0,
            0.0,
        ),
        ("Selu", 6, none(), Box::new(selu), 4.0, 0.0),
        ("Gelu", 20, none(), Box::new(|x| 0.5 * x * libm::erfc(-x / 2f64.sqrt())), 7.0, 0.0),
        (
            "Gelu",
            20,
            vec![word("approximate", "tanh")],
            Box::new(move |x| x / (1.0 + (-2.0 * inner(x)).exp())),
            6.0,
            0.0,
        ),
        ("Swish", 24, none(), Box::new(silu), 6.0, 0.0),
        // A product with a sigmoid, which may be denormal.
        ("Swish", 24, vec![float("alpha", 0.5)], Box::new(|x: f64| x / (1.0 + (-0.5 * x).exp())), 6.0, 1e-42),
    ]
}

#[test]
fn functions_of_special_values_are_those_of_the_standard() {
    let x = values();
    let input = Tensor::f32(&[x.len()], x.clone()).unwrap();
    for (operator, version, attributes, meaning, most, absolute) in plain().into_iter().chain(with_tails()) {
        let what = format!("{operator} {:?}", attributes.iter().map(|attribute| attribute.f).collect::<Vec<_>>());
        let model = Model::new(version).input("x", &[x.len()]).node(operator, "x", "y", attributes).output("y");
        let wanted: Vec<f64> = x.iter().map(|&x| meaning(x.into())).collect();
        let [reference, kernels] = both(&model, std::slice::from_ref(&input), &what);
        assert_near(&reference, &wanted, 1.0, absolute, &format!("reference of {what}"));
        assert_near(&kernels, &wanted, most, absolute, &what);
    }
}

/// A trigonometric function: name, definition, permitted error of kernels in ulps and absolute.
type Angular = (&'static str, fn(f64) -> f64, f64, f64);

/// Angles are reduced by a value of pi with 57 bits: next to zeros of the functions, that error
/// counts.
const ANGULAR: [Angular; 11] = [
    ("Sin", libm::sin, 2.0, 1e-12),
    ("Cos", libm::cos, 2.0, 1e-12),
    ("Tan", libm::tan, 4.0, 1e-12),
    ("Asin", libm::asin, 3.0, 0.0),
    ("Acos", libm::acos, 3.0, 0.0),
    ("Atan", libm::atan, 3.0, 0.0),
    ("Sinh", libm::sinh, 5.0, 0.0),
    ("Cosh", libm::cosh, 5.0, 0.0),
    ("Asinh", libm::asinh, 4.0, 0.0),
    ("Acosh", f64::acosh, 4.0, 0.0),
    ("Atanh", libm::atanh, 4.0, 0.0),
];

/// Returns special values, and numbers of all magnitudes up to 10^4, zeros and poles of the
/// functions among them; none is larger and finite.
fn angles() -> Vec<f32> {
    let quarters = (0..6366).map(|quarters| (f64::from(quarters) * std::f64::consts::FRAC_PI_2) as f32);
    let spread = (0..8000).map(|at| (f64::from(at) * 0.0019 - 9.0).exp2() as f32);
    let sizes = values().into_iter().chain(quarters).chain(spread).flat_map(|x| [x, -x]);
    sizes.filter(|x| !x.is_finite() || x.abs() <= 1e4).collect()
}

#[test]
fn trigonometric_functions_are_those_of_the_standard() {
    let x = angles();
    let input = Tensor::f32(&[x.len()], x.clone()).unwrap();
    for (operator, meaning, most, absolute) in ANGULAR {
        let model = Model::new(22).input("x", &[x.len()]).node(operator, "x", "y", vec![]).output("y");
        let wanted: Vec<f64> = x.iter().map(|&x| meaning(x.into())).collect();
        let [reference, kernels] = both(&model, std::slice::from_ref(&input), operator);
        assert_near(&reference, &wanted, 0.5, 0.0, &format!("reference of {operator}"));
        assert_near(&kernels, &wanted, most, absolute, operator);
    }
}

/// Beyond 10^4 the error grows with the angle, but results stay in the functions' range.
#[test]
fn waves_of_large_angles_stay_in_their_range() {
    let x: Vec<f32> = (0..400).map(|at| (13.0 + f64::from(at) * 0.2875).exp2() as f32).collect();
    let input = Tensor::f32(&[x.len()], x.clone()).unwrap();
    for (operator, meaning) in [("Sin", libm::sin as fn(f64) -> f64), ("Cos", libm::cos)] {
        let model = Model::new(22).input("x", &[x.len()]).node(operator, "x", "y", vec![]).output("y");
        let [_, kernels] = both(&model, std::slice::from_ref(&input), operator);
        for (&x, found) in x.iter().zip(kernels.to_numbers()) {
            let off = (f64::from(found) - meaning(x.into())).abs();
            assert!(found.abs() <= 1.0 + 1e-6 && off <= f64::from(x) * 1.2e-7, "{operator} of {x}: off by {off}");
        }
    }
}

/// Every special value paired with every other.
fn pairs() -> [Vec<f32>; 2] {
    let all = values();
    let first = all.iter().flat_map(|&a| vec![a; all.len()]).collect();
    [first, all.iter().flat_map(|_| all.clone()).collect()]
}

#[test]
fn operations_on_special_values_are_those_of_numpy() {
    fn of(is_it: bool) -> f64 {
        f64::from(u8::from(is_it))
    }
    type Operation = (&'static str, i64, fn(f64, f64) -> f64, f64);
    let operations: [Operation; 14] = [
        ("Add", 14, |a, b| a + b, 0.5),
        ("Sub", 14, |a, b| a - b, 0.5),
        ("Mul", 14, |a, b| a * b, 0.5),
        ("Div", 14, |a, b| a / b, 1.0),
        ("Max", 13, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }, 0.0),
        ("Min", 13, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }, 0.0),
        ("Pow", 15, libm::pow, 1.5),
        ("PRelu", 16, |a, b| if a < 0.0 { a * b } else { a }, 0.5),
        ("Equal", 13, |a, b| of(a == b), 0.0),
        ("Less", 13, |a, b| of(a < b), 0.0),
        ("Greater", 13, |a, b| of(a > b), 0.0),
        ("LessOrEqual", 16, |a, b| of(a <= b), 0.0),
        ("GreaterOrEqual", 16, |a, b| of(a >= b), 0.0),
        ("Sum", 13, |a, b| a + b, 0.5),
    ];

    let [a, b] = pairs();
    let inputs = [&a, &b].map(|x| Tensor::f32(&[x.len()], x.clone()).unwrap());
    for (operator, version, meaning, most) in operations {
        let model = Model::new(version).input("a", &[a.len()]).input("b", &[a.len()]);
        let model = model.node(operator, "a b", "y", vec![]).output("y");
        let wanted: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| meaning(a.into(), b.into())).collect();
        let [reference, kernels] = both(&model, &inputs, operator);
        assert_near(&reference, &wanted, 0.5, 0.0, &format!("reference of {operator}"));
        assert_near(&kernels, &wanted, most, 0.0, operator);
    }
}

#[test]
fn kinds_of_special_values_are_found() {
    type Kind = (&'static str, Vec<AttributeProto>, fn(f32) -> bool);
    let [negative, positive] = ["detect_negative", "detect_positive"].map(|name| crate::build::int(name, 0));
    let kinds: [Kind; 5] = [
        ("IsNaN", vec![], f32::is_nan),
        ("IsInf", vec![], f32::is_infinite),
        ("IsInf", vec![negative.clone()], |x| x == f32::INFINITY),
        ("IsInf", vec![positive.clone()], |x| x == f32::NEG_INFINITY),
        ("IsInf", vec![negative, positive], |_| false),
    ];
    let x = values();
    let input = Tensor::f32(&[x.len()], x.clone()).unwrap();
    for (operator, attributes, meaning) in kinds {
        let model = Model::new(20).input("x", &[x.len()]).node(operator, "x", "y", attributes).output("y");
        let wanted: Vec<f64> = x.iter().map(|&x| f64::from(u8::from(meaning(x)))).collect();
        for found in both(&model, std::slice::from_ref(&input), operator) {
            assert_near(&found, &wanted, 0.0, 0.0, operator);
        }
    }
}

/// Booleans: NaN counts as nonzero, and comparisons with NaN are false.
#[test]
fn choices_by_special_values_are_those_of_numpy() {
    let [a, b] = pairs();
    let inputs = [&a, &b].map(|x| Tensor::f32(&[x.len()], x.clone()).unwrap());
    let model = Model::new(16).input("a", &[a.len()]).input("b", &[a.len()]).node("Less", "a b", "is_less", vec![]);
    let model = model.node("Where", "is_less a b", "y", vec![]).output("y");
    let wanted: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| if a < b { a } else { b }.into()).collect();
    both(&model, &inputs, "Where").iter().for_each(|found| assert_near(found, &wanted, 0.0, 0.0, "Where"));

    let to_bool = vec![crate::build::int("to", 9)];
    let model = Model::new(13).input("a", &[a.len()]).node("Cast", "a", "y", to_bool).output("y");
    let wanted: Vec<f64> = a.iter().map(|&a| f64::from(u8::from(a != 0.0))).collect();
    both(&model, &inputs[..1], "Cast").iter().for_each(|found| assert_near(found, &wanted, 0.0, 0.0, "Cast"));
}
