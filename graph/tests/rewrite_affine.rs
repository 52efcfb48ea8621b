//! Folding of constants into adjacent weights and biases.

use autotune_graph::operators::{
    Binary, Conv, ConvTranspose, Gather, GroupNorm, LayerNorm, MatMul, Reshape, Sliding, Transpose,
};
use autotune_graph::{NodeId, rewrite};
use autotune_ir::program::UnaryOp;

use crate::common::graphs::{Net, assert_same, ops};

/// Adds a grouped convolution from 4 to 6 channels with random weights and an optional bias.
fn conv(net: &mut Net, x: NodeId, pad: usize, groups: usize, bias: bool) -> NodeId {
    let window = vec![Sliding::new(3).pad(pad), Sliding::new(2).stride(2).pad(pad)];
    let weights = net.random(&[6, 4 / groups, 3, 2]);
    let bias = bias.then(|| net.random(&[6]));
    let operands: Vec<NodeId> = [x, weights].into_iter().chain(bias).collect();
    net.add(Conv { window, groups }, &operands)
}

/// Adds a batch normalisation as a product and a sum.
fn batch_norm(net: &mut Net, x: NodeId, channels: usize, axes: usize) -> NodeId {
    let shape: Vec<usize> = [channels].into_iter().chain(std::iter::repeat_n(1, axes)).collect();
    let (scale, shift) = (net.random(&shape), net.random(&shape));
    let scaled = net.binary(Binary::Mul, x, scale);
    net.binary(Binary::Add, scaled, shift)
}

#[test]
fn normalisations_after_convolutions() {
    for seed in 0..8 {
        let mut net = Net::new(seed);
        let (x, residual) = (net.input(&[2, 4, 5, 6]), net.input(&[2, 6, 5, 4]));
        let sums = conv(&mut net, x, 1, 1 + seed as usize % 2, seed % 3 > 0);
        let normal = batch_norm(&mut net, sums, 6, 2);
        let more = net.binary(Binary::Add, residual, normal);
        let relu = net.act("relu", &[], more);
        net.output(relu);
        let rewritten = rewrite(&net.graph).unwrap();
        assert_same(&net.graph, &rewritten, seed);
        assert_eq!(ops(&rewritten), ["Conv", "Add", "Map"]);
        // Two inputs, weights and a bias.
        assert_eq!(rewritten.nodes().len(), 2 + 2 + 3);
        assert_eq!(rewritten.nodes().find(|(_, node)| node.op.name() == "Conv").unwrap().1.operands.len(), 3);
    }
}

#[test]
fn values_with_other_readers_stay() {
    let mut net = Net::new(1);
    let x = net.input(&[2, 4, 5, 6]);
    let sums = conv(&mut net, x, 1, 1, true);
    let normal = batch_norm(&mut net, sums, 6, 2);
    let other = net.act("tanh", &[], sums);
    net.output(normal);
    net.output(other);
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, 1);
    assert_eq!(ops(&rewritten).iter().filter(|op| **op == "Conv").count(), 1);
    assert_eq!(ops(&rewritten).len(), 4);
}

#[test]
fn normalisations_before_convolutions() {
    // With padding, the shift reaches the outermost outputs only in part; with several images it
    // stays in place.
    for (images, pad, wanted) in [(2, 0, &["Conv"][..]), (1, 1, &["Conv", "Add"]), (2, 1, &["Mul", "Add", "Conv"])] {
        for groups in [1, 2] {
            let mut net = Net::new(2);
            let x = net.input(&[images, 4, 15, 6]);
            let normal = batch_norm(&mut net, x, 4, 2);
            let sums = conv(&mut net, normal, pad, groups, groups == 1);
            net.output(sums);
            let rewritten = rewrite(&net.graph).unwrap();
            assert_same(&net.graph, &rewritten, 2);
            assert_eq!(ops(&rewritten), wanted);
        }
    }
    let mut net = Net::new(2);
    let x = net.input(&[2, 4, 5, 6]);
    let scale = net.random(&[1, 4, 1, 1]);
    let scaled = net.binary(Binary::Mul, x, scale);
    let sums = conv(&mut net, scaled, 1, 2, true);
    net.output(sums);
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, 2);
    assert_eq!(ops(&rewritten), ["Conv"]);
}

#[test]
fn successive_normalisations() {
    let mut net = Net::new(3);
    let mut x = net.input(&[1, 4, 3, 3]);
    for _ in 0..5 {
        let [scale, shift] = [(); 2].map(|()| net.random(&[4, 1, 1]));
        // The shifts must not cancel.
        let [scale, shift] = [scale, shift].map(|constant| net.unary(UnaryOp::Exp, constant));
        let scaled = net.binary(Binary::Mul, x, scale);
        x = net.binary(Binary::Add, scaled, shift);
    }
    net.output(x);
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, 3);
    assert_eq!(ops(&rewritten), ["Mul", "Add"]);
}

#[test]
fn normalisations_after_transposed_convolutions() {
    for groups in [1, 2] {
        let mut net = Net::new(3);
        let x = net.input(&[1, 4, 3, 3]);
        let weights = net.random(&[4, 3, 4, 4]);
        let window = vec![Sliding::new(4).stride(2); 2];
        let sums = net.add(ConvTranspose { window, output_pad: vec![0, 0], groups }, &[x, weights]);
        let normal = batch_norm(&mut net, sums, 3 * groups, 2);
        net.output(normal);
        let rewritten = rewrite(&net.graph).unwrap();
        assert_same(&net.graph, &rewritten, 3);
        let wanted = if groups == 1 { &["ConvTranspose"][..] } else { &["ConvTranspose", "Mul", "Add"] };
        assert_eq!(ops(&rewritten), wanted);
    }
}

#[test]
fn products_with_biases_and_normalisations() {
    for seed in 0..6 {
        let mut net = Net::new(seed);
        let x = net.input(&[3, 5]);
        let before = batch_norm(&mut net, x, 5, 0);
        let (weights, bias) = (net.random(&[5, 4]), net.random(&[4]));
        let product = net.add(MatMul, &[before, weights]);
        let sums = net.binary(Binary::Add, bias, product);
        let after = batch_norm(&mut net, sums, 4, 0);
        let scaled = net.with(Binary::Div, after, 4.0);
        let relu = net.act("relu", &[], scaled);
        net.output(relu);
        let rewritten = rewrite(&net.graph).unwrap();
        assert_same(&net.graph, &rewritten, seed);
        assert_eq!(ops(&rewritten), ["MatMul", "Add", "Map"]);
    }
}

#[test]
fn constants_next_to_each_other() {
    for (op, other) in [(Binary::Add, Binary::Add), (Binary::Mul, Binary::Div)] {
        let mut net = Net::new(4);
        let mut x = net.input(&[2, 3, 4]);
        for step in 0..40 {
            let shape: &[usize] = [&[][..], &[4], &[3, 1], &[1, 1, 4]][step % 4];
            let constant = net.random(shape);
            // Keep constants away from zero.
            let constant = net.unary(UnaryOp::Exp, constant);
            x = net.binary(if step % 2 == 0 { op } else { other }, x, constant);
        }
        net.output(x);
        let rewritten = rewrite(&net.graph).unwrap();
        assert_same(&net.graph, &rewritten, 4);
        // Constants along different axes are not merged into a larger one: of four, two remain, and
        // one at the start.
        assert_eq!(ops(&rewritten).len(), 40 / 2 + 1);
    }

    let mut net = Net::new(4);
    let x = net.input(&[2, 3]);
    let large = net.with(Binary::Mul, x, 1e30);
    let larger = net.with(Binary::Mul, large, 1e30);
    net.output(larger);
    assert_eq!(ops(&rewrite(&net.graph).unwrap()), ["Mul", "Mul"]);
}

#[test]
fn scales_after_normalisations() {
    let mut net = Net::new(5);
    let x = net.input(&[2, 3, 4]);
    let (one, channel) = (net.random(&[4]), net.random(&[3]));
    let normal = net.add(LayerNorm { axis: 2, eps: 1e-5 }, &[x, one]);
    let (scale, shift) = (net.random(&[1, 1, 4]), net.random(&[]));
    let scaled = net.binary(Binary::Mul, normal, scale);
    let shifted = net.binary(Binary::Add, scaled, shift);
    let grouped = net.add(GroupNorm { groups: 1, eps: 1e-5 }, &[shifted, channel, channel]);
    let normal = batch_norm(&mut net, grouped, 3, 1);
    net.output(normal);
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, 5);
    assert_eq!(ops(&rewritten), ["LayerNorm", "GroupNorm"]);

    // Along an axis that the scale lacks.
    let mut net = Net::new(5);
    let x = net.input(&[2, 3, 4]);
    let one = net.random(&[4]);
    let normal = net.add(LayerNorm { axis: 2, eps: 1e-5 }, &[x, one]);
    let scale = net.random(&[3, 1]);
    let scaled = net.binary(Binary::Mul, normal, scale);
    net.output(scaled);
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, 5);
    assert_eq!(ops(&rewritten), ["LayerNorm", "Mul"]);
}

#[test]
fn constants_are_folded_and_shared() {
    let mut net = Net::new(6);
    let x = net.input(&[3, 4]);
    let weights = net.random(&[5, 4]);
    let turned = net.add(Transpose(vec![1, 0]), &[weights]);
    let again = net.add(Transpose(vec![1, 0]), &[weights]);
    let (a, b) = (net.add(MatMul, &[x, turned]), net.add(MatMul, &[x, again]));
    let unused = net.act("tanh", &[], a);
    assert_eq!(net.graph.node(unused).shape, [3, 5]);
    let sum = net.binary(Binary::Add, a, b);
    let zero = net.scalar(0.0);
    let minus_zero = net.scalar(-0.0);
    let (zero, minus_zero) = (net.binary(Binary::Mul, sum, zero), net.binary(Binary::Mul, sum, minus_zero));
    net.output(sum);
    net.output(zero);
    net.output(minus_zero);
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, 6);
    // Zeros of different sign differ.
    assert_eq!(ops(&rewritten), ["MatMul", "Add", "Mul", "Mul"]);
    assert_eq!(rewritten.nodes().len(), 1 + 3 + 4);
}

#[test]
fn a_constant_that_cannot_be_computed_stays_a_node() {
    let mut net = Net::new(7);
    let data = net.random(&[3]);
    let numbers = net.graph.constant("numbers", autotune_graph::Tensor::i64(&[1], vec![5]).unwrap());
    let found = net.add(Gather { axis: 0 }, &[data, numbers]);
    net.output(found);
    let rewritten = rewrite(&net.graph).unwrap();
    assert_eq!(ops(&rewritten), ["Gather"]);
    assert!(rewritten.evaluate(&[]).is_err());
}

#[test]
fn deep_and_wide_graphs_end() {
    // Thousands of nodes, each of which a rule applies to.
    let mut net = Net::new(8);
    let mut x = net.input(&[1, 4, 3, 3]);
    for step in 0..1000 {
        let constant = net.random(&[4, 1, 1]);
        let scale = net.with(Binary::Mul, constant, 0.25);
        let scaled = net.binary(Binary::Mul, x, scale);
        let shifted = net.with(Binary::Sub, scaled, 0.5);
        x = net.act(["relu", "sigmoid", "tanh"][step % 3], &[], shifted);
        if step % 7 == 0 {
            x = net.add(Reshape(vec![1, 4, 9, 1]), &[x]);
            x = net.add(Reshape(vec![1, 4, 3, 3]), &[x]);
        }
    }
    net.output(x);
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, 8);
    assert_eq!(ops(&rewritten).len(), 3000);
}
