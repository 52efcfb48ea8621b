//! The comparison with the reference raises no false alarm on correct networks, whatever their
//! numbers.

use autotune_ir::Target;
use autotune_ir::program::UnaryOp;
use autotune_network::operators::{
    Binary, Cast, Conv, GroupNorm, LayerNorm, MatMul, Pool, Reduce, Sliding, Softmax, Transpose,
};
use autotune_network::rewrite::rewrite_traced;
use autotune_network::{Compiled, DType, Graph, NodeId, StepError, Tensor};
use autotune_workloads::{PoolKind, ReduceOp};

use crate::common::graphs::{Net, brought, ops};
use crate::common::rng;

/// Fails unless the rewritten graph passes both comparisons; returns its outputs.
fn assert_right(graph: &Graph, inputs: &[Tensor], what: &str) -> Vec<Tensor> {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let (rewritten, trace) = rewrite_traced(graph).unwrap();
    let mut workspace = Compiled::new(&rewritten, None, &target).unwrap().workspace().unwrap();
    let checked = workspace.check(inputs, graph, &trace).unwrap();
    let wrong = |errors: &[StepError]| -> Vec<_> {
        errors.iter().filter(|step| !step.is_within_tolerance()).cloned().collect()
    };
    let (steps, imported) = (wrong(&checked.steps), wrong(&checked.imported));
    assert!(steps.is_empty() && imported.is_empty(), "{what}: steps {steps:?}, imported {imported:?}");
    assert!(checked.imported.len() >= graph.outputs().len(), "{what}");
    workspace.run_tensors(inputs).unwrap()
}

/// Checks a finished graph on random inputs.
fn assert_right_on_any(net: &Net, what: &str) {
    assert_right(&net.graph, &brought(&net.graph, &mut rng(7)), what);
}

fn ones(net: &mut Net, count: usize) -> NodeId {
    net.graph.constant("ones", Tensor::f32(&[count], vec![1.0; count]).unwrap())
}

fn zeros(net: &mut Net, count: usize) -> NodeId {
    net.graph.constant("zeros", Tensor::f32(&[count], vec![0.0; count]).unwrap())
}

#[test]
fn sums_that_are_zero_by_construction() {
    for (extent, groups) in [(7, 8), (56, 8), (17, 1)] {
        let mut net = Net::new(1);
        let x = net.input(&[2, 8, extent, extent]);
        let (scale, bias) = (ones(&mut net, 8), zeros(&mut net, 8));
        let normal = net.add(GroupNorm { groups, eps: 1e-5 }, &[x, scale, bias]);
        let window = vec![Sliding::new(extent); 2];
        let pooled = net.add(Pool { window, ceil: false, kind: PoolKind::Average }, &[normal]);
        let all = net.add(Reduce { op: ReduceOp::Sum, axes: vec![1, 2, 3], keep_axes: false }, &[normal]);
        net.output(pooled);
        net.output(all);
        assert_right_on_any(&net, "means of images");
    }
    for op in [ReduceOp::Mean, ReduceOp::Sum] {
        let mut net = Net::new(2);
        let x = net.input(&[5, 768]);
        let scale = ones(&mut net, 768);
        let normal = net.add(LayerNorm { axis: 1, eps: 1e-5 }, &[x, scale]);
        let mean = net.add(Reduce { op, axes: vec![1], keep_axes: true }, &[normal]);
        let column = net.graph.constant("column", Tensor::f32(&[768, 1], vec![0.5; 768]).unwrap());
        let product = net.add(MatMul, &[normal, column]);
        net.output(mean);
        net.output(product);
        assert_right_on_any(&net, "means of rows");
    }

    // A filter that computes differences, on a constant image.
    let mut net = Net::new(3);
    let x = net.input(&[1, 3, 20, 20]);
    let window = vec![Sliding::new(3); 2];
    let laplacian: Vec<f32> = [0.3, 0.3, 0.3, 0.3, -2.4, 0.3, 0.3, 0.3, 0.3].repeat(3 * 16);
    let weights = net.graph.constant("weights", Tensor::f32(&[16, 3, 3, 3], laplacian).unwrap());
    let sums = net.add(Conv { window, groups: 1 }, &[x, weights]);
    let relu = net.act("relu", &[], sums);
    net.output(relu);
    assert_right(&net.graph, &[Tensor::f32(&[1, 3, 20, 20], vec![0.77; 1200]).unwrap()], "differences");
}

/// `(x - mean) / sqrt(mean((x - mean)^2) + eps)`, as exporters write it.
fn normalisation(net: &mut Net, x: NodeId) -> NodeId {
    let mean = Reduce { op: ReduceOp::Mean, axes: vec![1], keep_axes: true };
    let average = net.add(mean.clone(), &[x]);
    let centred = net.binary(Binary::Sub, x, average);
    let square = net.binary(Binary::Mul, centred, centred);
    let variance = net.add(mean, &[square]);
    let sum = net.with(Binary::Add, variance, 1e-5);
    let root = net.unary(UnaryOp::Sqrt, sum);
    net.binary(Binary::Div, centred, root)
}

#[test]
fn rows_that_are_the_same_throughout() {
    for value in [0.0, 0.1, 100.3, -3e4] {
        let rows: Vec<f32> = (0..4 * 384).map(|i| if i < 384 { value } else { (i % 13) as f32 / 7.0 }).collect();
        let rows = Tensor::f32(&[4, 384], rows).unwrap();
        for is_one in [false, true] {
            let mut net = Net::new(4);
            let x = net.input(&[4, 384]);
            let (scale, bias) = (ones(&mut net, 384), zeros(&mut net, 384));
            let normal = match is_one {
                true => net.add(LayerNorm { axis: 1, eps: 1e-5 }, &[x, scale, bias]),
                false => normalisation(&mut net, x),
            };
            let more = net.with(Binary::Mul, normal, 0.5);
            net.output(more);
            assert_right(&net.graph, std::slice::from_ref(&rows), &format!("rows of {value}"));
        }
    }
}

#[test]
fn rows_of_attention_that_are_masked_throughout() {
    for (is_constant, all) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut net = Net::new(5);
        let [q, k, v] = [(); 3].map(|()| net.input(&[2, 4, 32, 64]));
        let numbers = (0..2 * 32).map(|i| if i < 32 && (all || i > 20) { -1e4 } else { 0.0 }).collect();
        let mask = Tensor::f32(&[2, 1, 1, 32], numbers).unwrap();
        let added = if is_constant { net.graph.constant("mask", mask.clone()) } else { net.input(&[2, 1, 1, 32]) };
        let turned = net.add(Transpose(vec![0, 1, 3, 2]), &[k]);
        let scores = net.add(MatMul, &[q, turned]);
        let scaled = net.with(Binary::Div, scores, 8.0);
        let masked = net.binary(Binary::Add, scaled, added);
        let weights = net.add(Softmax { axis: 3, log: false }, &[masked]);
        let sums = net.add(MatMul, &[weights, v]);
        net.output(sums);
        let mut inputs = brought(&net.graph, &mut rng(7));
        inputs.truncate(3);
        inputs.extend((!is_constant).then_some(mask));
        assert_right(&net.graph, &inputs, "masked rows");
    }
}

#[test]
fn infinities_and_what_is_no_number() {
    let special = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0, -0.0, 1.5, -20.0, 3e38];
    let x = Tensor::f32(&[2, 8], special.repeat(2)).unwrap();
    for word in ["gelu", "gelu_tanh", "silu", "hard_swish", "sigmoid", "tanh", "relu", "hard_sigmoid", "leaky_relu"] {
        let mut net = Net::new(6);
        let input = net.input(&[2, 8]);
        let act = net.act(word, &[], input);
        net.output(act);
        assert_right(&net.graph, std::slice::from_ref(&x), word);
    }

    let mut net = Net::new(6);
    let input = net.input(&[2, 8]);
    let scaled = net.with(Binary::Div, input, std::f32::consts::SQRT_2);
    let erf = net.unary(UnaryOp::Erf, scaled);
    let sum = net.with(Binary::Add, erf, 1.0);
    let product = net.binary(Binary::Mul, input, sum);
    let gelu = net.with(Binary::Mul, product, 0.5);
    net.output(gelu);
    assert_right(&net.graph, std::slice::from_ref(&x), "gelu in parts");

    let mut net = Net::new(6);
    let input = net.input(&[2, 8]);
    let whole = net.add(Cast(DType::I64), &[input]);
    let truth = net.add(Cast(DType::Bool), &[input]);
    let (whole, truth) = (net.add(Cast(DType::F32), &[whole]), net.add(Cast(DType::F32), &[truth]));
    let sum = net.binary(Binary::Add, whole, truth);
    for output in [whole, truth, sum] {
        net.output(output);
    }
    // No integer represents an infinity.
    let finite = Tensor::f32(&[2, 8], [f32::NAN, 0.0, -0.0, 1.5, -20.7, 1e9, f32::NAN, 0.4].repeat(2)).unwrap();
    assert_right(&net.graph, &[finite], "casts");
}

/// Adds inputs and a node that reads them.
type Maker = fn(&mut Net) -> NodeId;

/// Rounding by adding and subtracting a large constant also happens in the compiled network.
#[test]
fn rounding_by_large_constants_stays() {
    let rounded = |of: &dyn Fn(&mut Net) -> NodeId| {
        let mut net = Net::new(7);
        let x = of(&mut net);
        let sum = net.with(Binary::Add, x, 12_582_912.0);
        let whole = net.with(Binary::Sub, sum, 12_582_912.0);
        net.output(whole);
        net
    };
    let net = rounded(&|net| net.input(&[5]));
    let x = Tensor::f32(&[5], vec![0.4, 0.5, 1.5, 2.5, -1.2]).unwrap();
    assert_eq!(assert_right(&net.graph, &[x], "whole numbers")[0].to_numbers(), [0.0, 0.0, 2.0, 2.0, -1.0]);

    let products: [(&str, Maker); 3] = [
        ("Conv", |net| {
            let (x, weights) = (net.input(&[1, 4, 6, 6]), net.random(&[8, 4, 3, 3]));
            net.add(Conv { window: vec![Sliding::new(3).pad(1); 2], groups: 1 }, &[x, weights])
        }),
        ("MatMul", |net| {
            let (x, weights) = (net.input(&[5, 16]), net.random(&[16, 8]));
            net.add(MatMul, &[x, weights])
        }),
        ("LayerNorm", |net| {
            let (x, scale) = (net.input(&[5, 16]), ones(net, 16));
            net.add(LayerNorm { axis: 1, eps: 1e-5 }, &[x, scale])
        }),
    ];
    for (name, of) in products {
        let net = rounded(&of);
        let found = assert_right(&net.graph, &brought(&net.graph, &mut rng(7)), name);
        assert!(found[0].to_numbers().iter().all(|x| x.fract() == 0.0), "{name}: {found:?}");
        assert_eq!(ops(&net.graph)[0], name);
    }
}
