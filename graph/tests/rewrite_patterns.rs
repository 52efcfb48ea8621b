//! Normalisations and attention as exporters write them.

use autotune_graph::Operator;
use autotune_graph::operators::{
    Attention, Binary, Cast, GroupNorm, LayerNorm, MatMul, Not, Pool, Reduce, Reshape, Sliding, Softmax, Transpose,
    Where,
};
use autotune_graph::{DType, NodeId, Op, Tensor, rewrite};
use autotune_ir::program::UnaryOp;
use autotune_workloads::{PoolKind, ReduceOp};

use crate::common::graphs::{Net, assert_same_on, brought, only, ops};
use crate::common::rng;
use crate::rewrite_functions::{either, rewritten};

/// Adds `(x - mean) / sqrt(variance + eps)` over axes.
fn normal(net: &mut Net, x: NodeId, axes: &[usize], case: usize) -> NodeId {
    let mean = |net: &mut Net, x| net.add(Reduce { op: ReduceOp::Mean, axes: axes.to_vec(), keep_axes: true }, &[x]);
    let average = mean(net, x);
    let centred = net.binary(Binary::Sub, x, average);

    // Some exporters compute it twice.
    let again = if case.is_multiple_of(2) { centred } else { net.binary(Binary::Sub, x, average) };
    let square =
        if case.is_multiple_of(3) { net.binary(Binary::Mul, again, again) } else { net.with(Binary::Pow, again, 2.0) };
    let variance = mean(net, square);
    let sum = net.with(Binary::Add, variance, 0.01);

    match case % 5 {
        0 => {
            let root = net.unary(UnaryOp::Sqrt, sum);
            net.binary(Binary::Div, centred, root)
        }
        4 => {
            let (one, root) = (net.scalar(1.0), net.unary(UnaryOp::Sqrt, sum));
            let inverse = net.binary(Binary::Div, one, root);
            net.binary(Binary::Mul, centred, inverse)
        }
        1 => {
            let root = net.with(Binary::Pow, sum, 0.5);
            net.binary(Binary::Div, centred, root)
        }
        2 => {
            let root = net.unary(UnaryOp::Rsqrt, sum);
            net.binary(Binary::Mul, root, centred)
        }
        _ => {
            let root = net.with(Binary::Pow, sum, -0.5);
            net.binary(Binary::Mul, centred, root)
        }
    }
}

#[test]
fn normalisations() {
    let cases: [([&[usize]; 3], Op); 4] = [
        ([&[2, 3, 4], &[2], &[4]], LayerNorm { axis: 2, eps: 0.01 }.into()),
        ([&[2, 3, 4], &[1, 2], &[3, 4]], LayerNorm { axis: 1, eps: 0.01 }.into()),
        ([&[2, 3, 4, 5], &[3], &[5]], LayerNorm { axis: 3, eps: 0.01 }.into()),
        ([&[2, 3, 4, 5], &[2, 3], &[3, 1, 1]], GroupNorm { groups: 3, eps: 0.01 }.into()),
    ];
    for ([shape, axes, constant], wanted) in cases {
        for case in 0..30 {
            let mut net = Net::new(case as u64);
            let x = net.input(shape);
            let normal = normal(&mut net, x, axes, case);
            let (scale, shift) = (net.random(constant), net.random(constant));
            let scaled = either(&mut net, Binary::Mul, normal, scale, case % 2 == 0);
            let shifted = either(&mut net, Binary::Add, scaled, shift, case % 2 == 0);
            net.output(shifted);
            let rewritten = rewritten(&net);
            assert_eq!(ops(&rewritten), [wanted.name()], "{case}");
            assert_eq!(*only(&rewritten, wanted.name()), wanted);
        }
    }

    // Not the last axes.
    let mut net = Net::new(2);
    let x = net.input(&[2, 3, 4]);
    let normal = normal(&mut net, x, &[1], 0);
    net.output(normal);
    assert!(!ops(&rewritten(&net)).contains(&"LayerNorm"));
}

#[test]
fn groups_of_channels() {
    let mut net = Net::new(2);
    let x = net.input(&[2, 6, 3, 5]);
    let split = net.add(Reshape(vec![2, 3, 30]), &[x]);
    let (scale, bias) = (net.random(&[3]), net.random(&[3]));
    let normal = net.add(GroupNorm { groups: 3, eps: 0.01 }, &[split, scale, bias]);
    let whole = net.add(Reshape(vec![2, 6, 3, 5]), &[normal]);
    let (scale, shift) = (net.random(&[6, 1, 1]), net.random(&[6, 1, 1]));
    let scaled = net.binary(Binary::Mul, whole, scale);
    let shifted = net.binary(Binary::Add, scaled, shift);
    net.output(shifted);
    let found = rewritten(&net);
    assert_eq!(ops(&found), ["GroupNorm"]);
    assert_eq!(*only(&found, "GroupNorm"), GroupNorm { groups: 3, eps: 0.01 });

    // Groups of rows instead of channels.
    let mut net = Net::new(2);
    let x = net.input(&[2, 6, 3, 5]);
    let split = net.add(Reshape(vec![4, 3, 15]), &[x]);
    let (scale, bias) = (net.random(&[3]), net.random(&[3]));
    let normal = net.add(GroupNorm { groups: 3, eps: 0.01 }, &[split, scale, bias]);
    let whole = net.add(Reshape(vec![2, 6, 3, 5]), &[normal]);
    net.output(whole);
    assert_eq!(ops(&rewritten(&net)), ["Reshape", "GroupNorm", "Reshape"]);
}

#[test]
fn softmax() {
    for with_largest in [false, true] {
        let mut net = Net::new(3);
        let x = net.input(&[2, 3, 4]);
        let reduced = |net: &mut Net, op, x| net.add(Reduce { op, axes: vec![1], keep_axes: true }, &[x]);
        let mut below = x;
        if with_largest {
            let largest = reduced(&mut net, ReduceOp::Max, x);
            below = net.binary(Binary::Sub, x, largest);
        }

        let exp = net.unary(UnaryOp::Exp, below);
        let sum = reduced(&mut net, ReduceOp::Sum, exp);
        let softmax = net.binary(Binary::Div, exp, sum);
        let log = net.unary(UnaryOp::Log, softmax);

        // Only with the maximum subtracted does an infinity make the whole row NaN.
        let rewritten = |net: &Net| match with_largest {
            true => rewritten(net),
            false => {
                let rewritten = rewrite(&net.graph).unwrap();
                assert_same_on(&net.graph, &rewritten, &brought(&net.graph, &mut rng(1)), "without its largest");
                rewritten
            }
        };

        net.output(log);
        assert_eq!(*only(&rewritten(&net), "LogSoftmax"), Softmax { axis: 1, log: true });
        net.output(softmax);
        assert!(ops(&rewritten(&net)).contains(&"Softmax"));
    }
}

#[test]
fn whole_images() {
    for (op, kind) in [(ReduceOp::Mean, PoolKind::Average), (ReduceOp::Max, PoolKind::Max)] {
        for keep_axes in [false, true] {
            let mut net = Net::new(4);
            let x = net.input(&[2, 3, 4, 5]);
            let y = net.add(Reduce { op, axes: vec![2, 3], keep_axes }, &[x]);
            let flat = net.add(Reshape(vec![2, 3]), &[y]);
            net.output(flat);
            let rewritten = rewritten(&net);
            assert_eq!(ops(&rewritten), ["Pool", "Reshape"]);
            let window = vec![Sliding::new(4), Sliding::new(5)];
            assert_eq!(*only(&rewritten, "Pool"), Pool { window, ceil: false, kind });
        }
        let mut net = Net::new(4);
        let x = net.input(&[2, 3, 7]);
        let y = net.add(Pool { window: vec![Sliding::new(7)], ceil: false, kind }, &[x]);
        net.output(y);
        assert_eq!(*only(&rewritten(&net), "Reduce"), Reduce { op, axes: vec![2], keep_axes: true });
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    /// Scale on the scores, on the queries, or on both sides.
    scale: usize,
    /// None, added, added first, or chosen in two ways.
    mask: usize,
}

/// Adds attention over `[b, t, h*d]` with heads split and merged, as exporters write it.
fn heads(net: &mut Net, case: Case) -> (NodeId, NodeId) {
    let (b, t, h, d) = (2, 5, 3, 4);
    let split = |net: &mut Net, perm: &[usize]| {
        let x = net.input(&[b, t, h * d]);
        let split = net.add(Reshape(vec![b, t, h, d]), &[x]);
        net.add(Transpose(perm.to_vec()), &[split])
    };
    let mut q = split(net, &[0, 2, 1, 3]);
    let mut k = split(net, &[0, 2, 3, 1]);
    let v = split(net, &[0, 2, 1, 3]);

    match case.scale {
        1 => q = net.with(Binary::Div, q, 2.0),
        2 => {
            q = net.with(Binary::Mul, q, 0.7);
            k = net.with(Binary::Mul, k, 0.7);
        }
        _ => {}
    }

    let mut scores = net.add(MatMul, &[q, k]);
    if case.scale == 0 {
        scores = net.with(Binary::Div, scores, 2.0);
    }
    scores = match case.mask {
        1 | 2 => {
            let mask = net.input(&[b, 1, 1, t]);
            either(net, Binary::Add, scores, mask, case.mask == 2)
        }
        3 | 4 => {
            // At least one key is visible.
            let mask = Tensor::i64(&[1, 1, t, t], (0..t * t).map(|i| i64::from(i % t <= i / t)).collect()).unwrap();
            let mut mask = Cast(DType::Bool).evaluate(&[&mask]).unwrap();
            let below = net.graph.constant("below", Tensor::scalar(f32::NEG_INFINITY));
            if case.mask == 4 {
                mask = Not.evaluate(&[&mask]).unwrap();
            }
            let mask = net.graph.constant("mask", mask);
            let operands = if case.mask == 3 { [mask, scores, below] } else { [mask, below, scores] };
            net.add(Where, &operands)
        }
        _ => scores,
    };

    let weights = net.add(Softmax { axis: 3, log: false }, &[scores]);
    let sums = net.add(MatMul, &[weights, v]);
    let together = net.add(Transpose(vec![0, 2, 1, 3]), &[sums]);
    (net.add(Reshape(vec![b, t, h * d]), &[together]), weights)
}

#[test]
fn attention() {
    for scale in 0..4 {
        for mask in 0..5 {
            let case = Case { scale, mask };
            let mut net = Net::new(5);
            let (y, _) = heads(&mut net, case);
            net.output(y);
            let rewritten = rewritten(&net);
            let moved = ["Reshape", "Transpose"];
            let wanted: Vec<&str> = std::iter::repeat_n(moved, 3).flatten().chain(["Attention"]).collect();
            let found = ops(&rewritten);
            let sorted = |mut all: Vec<&'static str>| {
                all.sort_unstable();
                all
            };
            // A scale other than the kernels' becomes a product with the queries.
            let scaled = if scale > 1 { vec!["Mul"] } else { vec![] };
            let wanted = [wanted, vec!["Transpose", "Reshape"], scaled].concat();
            assert_eq!(sorted(found), sorted(wanted), "{case:?}");
            let Some(&Attention { scale: found }) = only(&rewritten, "Attention").of() else { panic!("no attention") };
            assert!((found - 0.5).abs() < 1e-6, "{case:?}");
        }
    }
}

#[test]
fn masks_of_truth_values() {
    let mut net = Net::new(8);
    let (q, k, v) = (net.input(&[2, 3, 4]), net.input(&[2, 5, 4]), net.input(&[2, 5, 6]));
    let mask = Tensor::i64(&[3, 5], (0..15).map(|i| i % 4).collect()).unwrap();
    let mask = Cast(DType::Bool).evaluate(&[&mask]).unwrap();
    let mask = net.graph.constant("mask", mask);
    let y = net.add(Attention { scale: 0.5 }, &[q, k, v, mask]);
    net.output(y);
    let found = rewritten(&net);
    let operands = &found.nodes().find(|(_, node)| node.op.name() == "Attention").unwrap().1.operands;
    assert_eq!(found.node(operands[3]).dtype, DType::F32);
}

#[test]
fn attention_whose_weights_others_read() {
    let mut net = Net::new(6);
    let (y, weights) = heads(&mut net, Case { scale: 0, mask: 1 });
    net.output(y);
    net.output(weights);
    let found = ops(&rewritten(&net));
    assert!(found.contains(&"Softmax") && !found.contains(&"Attention"));
}

#[test]
fn attention_with_one_batch_for_all() {
    // Values broadcast over the batch, which the attention operator does not support.
    let mut net = Net::new(7);
    let (q, k, v) = (net.input(&[2, 3, 4]), net.input(&[2, 4, 5]), net.input(&[5, 6]));
    let scores = net.add(MatMul, &[q, k]);
    let weights = net.add(Softmax { axis: 2, log: false }, &[scores]);
    let sums = net.add(MatMul, &[weights, v]);
    net.output(sums);
    assert_eq!(ops(&rewritten(&net)), ["MatMul", "Softmax", "MatMul"]);
}
