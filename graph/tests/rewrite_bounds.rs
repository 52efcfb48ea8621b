//! Constants are merged only where results change by rounding only.

use autotune_graph::operators::{Binary, Conv, ConvTranspose, GroupNorm, LayerNorm, MatMul, Reshape, Sliding};
use autotune_graph::{NodeId, Tensor, rewrite};

use crate::common::graphs::{Net, assert_same_on, brought, ops};
use crate::common::rng;

/// Adding and subtracting this number rounds to integers.
const ROUNDING: f32 = 12_582_912.0;

/// Returns the operators of the rewritten graph, which computes the same on these inputs.
fn rewritten(net: &Net, inputs: &[Tensor], what: &str) -> Vec<&'static str> {
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same_on(&net.graph, &rewritten, inputs, what);
    ops(&rewritten)
}

/// Returns the operators of the rewritten graph, checked on random inputs.
fn rewritten_on_any(net: &Net, what: &str) -> Vec<&'static str> {
    rewritten(net, &brought(&net.graph, &mut rng(3)), what)
}

/// An operand of merged constants: its name, and the function that adds it.
type Merged = (&'static str, fn(&mut Net) -> NodeId);

const SUMS: [Merged; 6] = [
    ("a convolution", |net| conv(net, &[2, 4, 5, 5], false)),
    ("a convolution with a bias", |net| conv(net, &[2, 4, 5, 5], true)),
    ("a transposed convolution", |net| {
        let (x, weights) = (net.input(&[1, 4, 3, 3]), net.random(&[4, 6, 2, 2]));
        net.add(ConvTranspose { window: vec![Sliding::new(2); 2], output_pad: vec![0, 0], groups: 1 }, &[x, weights])
    }),
    ("a product", |net| {
        let (x, weights) = (net.input(&[3, 5]), net.random(&[5, 6]));
        net.add(MatMul, &[x, weights])
    }),
    ("normalised rows", |net| {
        let (x, scale, bias) = (net.input(&[3, 6]), net.random(&[6]), net.random(&[6]));
        net.add(LayerNorm { axis: 1, eps: 1e-5 }, &[x, scale, bias])
    }),
    ("normalised channels", |net| {
        let (x, scale, bias) = (net.input(&[2, 6, 3, 3]), net.random(&[6]), net.random(&[6]));
        net.add(GroupNorm { groups: 2, eps: 1e-5 }, &[x, scale, bias])
    }),
];

/// Adds a padded convolution with 6 outputs.
fn conv(net: &mut Net, shape: &[usize], bias: bool) -> NodeId {
    let (x, weights) = (net.input(shape), net.random(&[6, shape[1], 3, 3]));
    let bias = bias.then(|| net.random(&[6]));
    let operands: Vec<NodeId> = [x, weights].into_iter().chain(bias).collect();
    net.add(Conv { window: vec![Sliding::new(3).pad(1); 2], groups: 1 }, &operands)
}

/// Adds a chain of sums with constants.
fn sums(net: &mut Net, x: NodeId, constants: &[f32]) -> NodeId {
    constants.iter().fold(x, |x, &constant| net.with(Binary::Add, x, constant))
}

#[test]
fn sums_that_round_stay() {
    let x = Tensor::f32(&[5], vec![0.4, 0.5, 1.5, 2.5, -1.2]).unwrap();
    let half = ROUNDING / 2.0;
    for constants in [
        vec![ROUNDING, -ROUNDING],
        vec![-ROUNDING, ROUNDING],
        vec![half, half, -ROUNDING],
        vec![ROUNDING, -12_500_000.0, -82_912.0],
        vec![0.5, ROUNDING, -ROUNDING, -0.5],
        vec![49_152.0, -49_152.0],
        vec![1.0, -1.0],
    ] {
        let mut net = Net::new(1);
        let input = net.input(&[5]);
        let rounded = sums(&mut net, input, &constants);
        net.output(rounded);
        rewritten(&net, std::slice::from_ref(&x), &format!("{constants:?}"));
        let same = rewrite(&net.graph).unwrap().evaluate(std::slice::from_ref(&x)).unwrap();
        assert_eq!(same, net.graph.evaluate(std::slice::from_ref(&x)).unwrap(), "{constants:?}");
    }

    for (name, of) in SUMS {
        for constants in
            [vec![ROUNDING, -ROUNDING], vec![ROUNDING, -12_500_000.0, -82_912.0], vec![ROUNDING, 128.0 - ROUNDING]]
        {
            let mut net = Net::new(1);
            let sums_of = of(&mut net);
            let rounded = sums(&mut net, sums_of, &constants);
            let scaled = net.with(Binary::Mul, rounded, 0.3);
            net.output(scaled);
            let found = rewritten_on_any(&net, &format!("{constants:?} behind {name}"));
            assert!(found.iter().filter(|op| **op == "Add").count() > 0, "{name}: {found:?}");
        }
    }
}

/// Multiples of a step, as in networks that simulate 8-bit numbers.
#[test]
fn imitated_quantisation_stays() {
    for step in [0.1f32, 1.0 / 128.0, 0.037] {
        for (name, of) in SUMS {
            let mut net = Net::new(2);
            let x = of(&mut net);
            let scaled = net.with(Binary::Mul, x, 1.0 / step);
            let rounded = sums(&mut net, scaled, &[ROUNDING, -ROUNDING]);
            let clipped = net.act("clip", &[-128.0, 127.0], rounded);
            let back = net.with(Binary::Mul, clipped, step);
            net.output(back);
            let after = rewrite(&net.graph).unwrap();
            for tensor in after.evaluate(&brought(&net.graph, &mut rng(3))).unwrap() {
                let steps = tensor.to_numbers().into_iter().map(|x| x / step);
                assert!(steps.into_iter().all(|x| (x - x.round()).abs() < 1e-4), "{name}, steps of {step}");
            }
        }
    }
}

#[test]
fn rounding_in_front_of_products_stays() {
    for pad in [0, 1] {
        let mut net = Net::new(3);
        let x = net.input(&[1, 4, 9, 9]);
        let rounded = sums(&mut net, x, &[ROUNDING]);
        let weights = net.random(&[4, 4, 3, 3]);
        let product = net.add(Conv { window: vec![Sliding::new(3).pad(pad); 2], groups: 1 }, &[rounded, weights]);
        let zero_sum = net.random(&[4]);
        let shifted = net.add(Reshape(vec![1, 4, 1, 1]), &[zero_sum]);
        let back = net.binary(Binary::Add, product, shifted);
        net.output(back);
        rewritten_on_any(&net, "a convolution");
    }
    // Differences of neighbours cancel what was added before.
    let mut net = Net::new(3);
    let x = net.input(&[3, 4]);
    let rounded = sums(&mut net, x, &[ROUNDING]);
    let numbers = vec![1.0, 0.0, 0.0, -1.0, 1.0, 0.0, 0.0, -1.0, 1.0, 0.0, 0.0, -1.0];
    let weights = net.graph.constant("differences", Tensor::f32(&[4, 3], numbers).unwrap());
    let product = net.add(MatMul, &[rounded, weights]);
    net.output(product);
    assert_eq!(rewritten_on_any(&net, "a product"), ["Add", "MatMul"]);
}

/// Folding factors into weights and biases must not produce infinities, denormals or zero times
/// infinity.
#[test]
fn constants_do_not_become_too_large_or_too_small() {
    let weights = Tensor::f32(&[3, 2], vec![2.0, 0.0, 0.0, 3.0, 1.0, 1.0]).unwrap();
    for (x, factor) in [(1e-3, 3e38), (1.0, f32::INFINITY), (1e30, 1e-40), (1e-20, 1e38), (1.0, f32::NAN), (0.0, 3e38)]
    {
        let mut net = Net::new(4);
        let input = net.input(&[1, 3]);
        let constant = net.graph.constant("weights", weights.clone());
        let product = net.add(MatMul, &[input, constant]);
        let scaled = net.with(Binary::Mul, product, factor);
        let before = net.with(Binary::Mul, input, factor);
        let before = net.add(MatMul, &[before, constant]);
        net.output(scaled);
        net.output(before);
        let x = Tensor::f32(&[1, 3], vec![x, 2.0 * x, 0.5 * x]).unwrap();
        rewritten(&net, &[x], &format!("a product times {factor}"));
    }

    for (name, of) in SUMS {
        for factor in [3e38, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 1e-38, 1e36] {
            let mut net = Net::new(4);
            let x = of(&mut net);
            let scaled = net.with(Binary::Mul, x, factor);
            net.output(scaled);
            let found = rewritten_on_any(&net, &format!("{name} times {factor}"));
            assert!(found.contains(&"Mul"), "{name} times {factor}: {found:?}");
        }
        // Each is finite with the data, but both together are not.
        for constants in
            [[3e38, 3e38], [3e38, -3e38], [-2e38, -2e38], [f32::INFINITY, 1.0], [f32::INFINITY, f32::NEG_INFINITY]]
        {
            let mut net = Net::new(4);
            let x = of(&mut net);
            let large = net.with(Binary::Mul, x, -1e37);
            let sum = sums(&mut net, large, &constants);
            let direct = sums(&mut net, x, &constants);
            net.output(sum);
            net.output(direct);
            rewritten_on_any(&net, &format!("{constants:?} behind {name}"));
        }
    }
}

#[test]
fn products_of_constants_stay_within_bounds() {
    let x = Tensor::f32(&[4], vec![1e-3, 1.0, -2.5e4, f32::INFINITY]).unwrap();
    for factors in [
        [1e-30, 1e30],
        [1e-30, 1e-30],
        [1e30, 1e30],
        [1e-20, 1e-20],
        [3e38, 0.5],
        [f32::INFINITY, 0.0],
        [0.0, f32::INFINITY],
    ] {
        let mut net = Net::new(5);
        let input = net.input(&[4]);
        let product = factors.iter().fold(input, |x, &factor| net.with(Binary::Mul, x, factor));
        net.output(product);
        assert_eq!(rewritten(&net, std::slice::from_ref(&x), &format!("{factors:?}")), ["Mul", "Mul"]);
    }
    for factors in [[0.5, 3.0], [1e6, 1e-6], [-255.0, 1e-4], [0.0, 3.0]] {
        let mut net = Net::new(5);
        let input = net.input(&[4]);
        let product = factors.iter().fold(input, |x, &factor| net.with(Binary::Mul, x, factor));
        net.output(product);
        let found = rewritten(&net, std::slice::from_ref(&x), &format!("{factors:?}"));
        assert!(found.len() < 2, "{factors:?}: {found:?}");
    }
}

/// A product shifted by a large number is exact if another large number cancels the shift; a
/// product that is scaled first is not.
#[test]
fn differences_of_large_numbers_stay() {
    let mut net = Net::new(6);
    let x = net.input(&[4]);
    let rounded = sums(&mut net, x, &[ROUNDING, -ROUNDING]);
    let scaled = net.with(Binary::Mul, rounded, 0.1);
    let clipped = net.act("clip", &[0.0, 1.0], scaled);
    net.output(clipped);
    let x = Tensor::f32(&[4], vec![0.4, 3.3, 7.5, 1e3]).unwrap();
    rewritten(&net, std::slice::from_ref(&x), "a clipped product");
    let found = rewrite(&net.graph).unwrap().evaluate(&[x]).unwrap();
    assert_eq!(found[0].to_numbers(), [0.0, 0.3, 0.8, 1.0].map(|x: f32| (x * 10.0).round() * 0.1));
}

/// Typical constants of networks are merged: biases and normalisations of all sizes, including dead
/// channels.
#[test]
fn normalisations_go_into_weights() {
    for (seed, (name, of)) in SUMS.into_iter().enumerate() {
        let mut net = Net::new(seed as u64 + 10);
        let x = of(&mut net);
        let axes = if net.graph.node(x).shape.len() == 4 { vec![6, 1, 1] } else { vec![6] };
        let values = |values: [f32; 6]| Tensor::f32(&axes, values.to_vec()).unwrap();
        let scale = net.graph.constant("scale", values([316.0, 1e-20, 0.0, 2.5, -0.75, 1e-3]));
        let shift = net.graph.constant("shift", values([-200.0, 0.5, 0.0, -2.5, 1e-20, 7.0]));
        let scaled = net.binary(Binary::Mul, x, scale);
        let shifted = net.binary(Binary::Add, scaled, shift);
        let relu = net.act("relu", &[], shifted);
        net.output(relu);
        let found = rewritten_on_any(&net, name);
        assert!(!found.contains(&"Mul"), "{name}: {found:?}");
        assert!(found.len() <= 3, "{name}: {found:?}");
    }
}
