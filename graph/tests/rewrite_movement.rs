//! Redundant movement of elements, and padding.

use std::cell::Cell;

use autotune_graph::Operator;
use autotune_graph::operators::{
    Binary, Cast, Concat, Conv, ConvTranspose, Expand, Gather, MatMul, Not, Pad, Pool, Range, Reduce, Reshape, Resize,
    Slice, Sliding, Transpose, Where,
};
use autotune_graph::{DType, Graph, Input, NodeId, Op, Tensor, rewrite};
use autotune_workloads::{Coordinates, PadMode, PoolKind, ReduceOp, Sampling};

use rand::Rng;

use crate::common::any;
use crate::common::cases::for_cases;
use crate::common::graphs::{Net, assert_same, only, ops};

fn rewritten<R>(net: &Net<R>) -> Graph {
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, 1);
    rewritten
}

/// Fails unless a chain of operators on an input is rewritten to another.
fn assert_ops(shape: &[usize], all: &[Op], wanted: &[Op]) {
    let mut net = Net::new(1);
    let mut x = net.input(shape);
    for op in all {
        x = net.add(op.clone(), &[x]);
    }
    net.output(x);
    let rewritten = rewritten(&net);
    let found = rewritten.nodes().map(|(_, node)| node.op.clone());
    assert_eq!(found.filter(|op| !op.is::<Input>()).collect::<Vec<_>>(), wanted);
}

fn range(start: usize, step: isize, count: usize) -> Range {
    Range { start, step, count }
}

fn zeros(pad: &[[usize; 2]]) -> Op {
    Pad { pad: pad.to_vec(), mode: PadMode::Constant, value: 0.0 }.into()
}

#[test]
fn moved_twice() {
    let reshape = |shape: &[usize]| Op::from(Reshape(shape.to_vec()));
    let transpose = |perm: &[usize]| Op::from(Transpose(perm.to_vec()));
    let slice = |start, step, count| Op::from(Slice(vec![range(start, step, count)]));
    let expand = |shape: &[usize]| Op::from(Expand(shape.to_vec()));
    assert_ops(&[2, 6], &[reshape(&[12]), reshape(&[3, 4]), reshape(&[4, 3])], &[reshape(&[4, 3])]);
    assert_ops(&[2, 6], &[reshape(&[12]), reshape(&[2, 6])], &[]);
    assert_ops(&[2, 3, 4], &[transpose(&[2, 0, 1]), transpose(&[0, 2, 1])], &[transpose(&[2, 1, 0])]);
    assert_ops(&[2, 3, 4], &[transpose(&[2, 0, 1]), transpose(&[1, 2, 0])], &[]);
    assert_ops(&[2, 1, 4], &[transpose(&[1, 0, 2])], &[reshape(&[1, 2, 4])]);
    assert_ops(&[2, 1, 4], &[transpose(&[1, 0, 2]), reshape(&[8])], &[reshape(&[8])]);

    let slices = [slice(1, 2, 4), slice(3, -2, 2)];
    assert_ops(&[9], &slices, &[slice(7, -4, 2)]);
    assert_ops(&[9], &[slice(0, 1, 9)], &[]);
    assert_ops(&[1], &[slice(0, -3, 1)], &[]);
    assert_ops(&[3, 1], &[expand(&[3, 4]), expand(&[2, 3, 4])], &[expand(&[2, 3, 4])]);
    assert_ops(&[3, 4], &[expand(&[1, 3, 4])], &[reshape(&[1, 3, 4])]);

    assert_ops(&[3, 4], &[zeros(&[[0, 1], [2, 0]]), zeros(&[[1, 0], [0, 0]])], &[zeros(&[[1, 1], [2, 0]])]);
    assert_ops(&[3, 4], &[zeros(&[[0, 0], [0, 0]])], &[]);
    let reflect = Op::from(Pad { pad: vec![[1, 1]], mode: PadMode::Reflect, value: 0.0 });
    assert_ops(&[4], &[reflect.clone(), reflect.clone()], &[reflect.clone(), reflect]);

    assert_ops(&[3], &[Cast(DType::F32).into(), Concat { axis: 0 }.into()], &[]);
    let casts = [Cast(DType::I64), Cast(DType::F32)].map(Op::from);
    assert_ops(&[3], &casts, &casts);
    let resize = Resize { size: [2, 3], coordinates: Coordinates::HalfPixel, sampling: Sampling::Linear };
    assert_ops(&[1, 2, 2, 3], &[resize.into()], &[]);
    let reduce = Reduce { op: ReduceOp::Sum, axes: vec![1], keep_axes: false };
    assert_ops(&[2, 1, 3], &[reduce.into()], &[reshape(&[2, 3])]);
}

#[test]
fn concatenations() {
    let mut net = Net::new(1);
    let (x, y) = (net.input(&[2, 3]), net.input(&[2, 2]));
    let nothing = net.random(&[2, 0]);
    let inner = net.add(Concat { axis: 1 }, &[x, nothing, y]);
    let outer = net.add(Concat { axis: 1 }, &[y, inner]);
    net.output(outer);
    let once = rewritten(&net);
    assert_eq!(ops(&once), ["Concat"]);
    // Both are outputs: the inner one's elements are not moved again.
    net.output(inner);
    assert_eq!(ops(&rewritten(&net)), ["Concat", "Concat"]);
    // Along another axis.
    let mut net = Net::new(1);
    let x = net.input(&[2, 3]);
    let inner = net.add(Concat { axis: 0 }, &[x, x]);
    let outer = net.add(Concat { axis: 1 }, &[inner, inner]);
    net.output(outer);
    assert_eq!(ops(&rewritten(&net)), ["Concat", "Concat"]);
}

#[test]
fn numbers_of_slices() {
    for (numbers, wanted) in [
        (vec![2], &["Slice", "Reshape"][..]),
        (vec![-1], &["Slice", "Reshape"]),
        (vec![0, 2], &["Slice"]),
        (vec![2, 1, 0], &["Slice"]),
        (vec![0, 1, 2], &[]),
        (vec![0, 2, 1], &["Transpose", "Gather", "Transpose"]),
        (vec![1, 1], &["Transpose", "Gather", "Transpose"]),
    ] {
        let mut net = Net::new(1);
        let x = net.input(&[2, 3, 4]);
        let shape: &[usize] = if numbers.len() == 1 { &[] } else { &[numbers.len()] };
        let numbers = net.graph.constant("numbers", Tensor::i64(shape, numbers).unwrap());
        let y = net.add(Gather { axis: 1 }, &[x, numbers]);
        net.output(y);
        assert_eq!(ops(&rewritten(&net)), wanted);
    }
}

#[test]
fn operations_that_do_nothing() {
    let neutral = [
        (Binary::Add, 0.0),
        (Binary::Sub, 0.0),
        (Binary::Mul, 1.0),
        (Binary::Div, 1.0),
        (Binary::Pow, 1.0),
        (Binary::Max, f32::NEG_INFINITY),
        (Binary::Min, f32::INFINITY),
    ];
    for (op, value) in neutral {
        let mut net = Net::new(1);
        let x = net.input(&[2, 3]);
        let all = net.graph.constant("all", Tensor::f32(&[3], vec![value; 3]).unwrap());
        let y = net.binary(op, x, all);
        net.output(y);
        assert_eq!(ops(&rewritten(&net)), [""; 0], "{op:?}");

        // An operand that broadcasts the tensor is not redundant.
        let mut net = Net::new(1);
        let x = net.input(&[1, 3]);
        let all = net.graph.constant("all", Tensor::f32(&[2, 1], vec![value; 2]).unwrap());
        let y = net.binary(op, x, all);
        net.output(y);
        assert_eq!(ops(&rewritten(&net)).len(), 1, "{op:?}");
    }

    let mut net = Net::new(1);
    let (x, y) = (net.input(&[2, 3]), net.input(&[3]));
    let wide = net.add(Expand(vec![2, 3]), &[y]);
    let sum = net.binary(Binary::Less, x, wide);
    let not = net.add(Not, &[sum]);
    let chosen = net.add(Where, &[not, wide, x]);
    net.output(chosen);
    assert_eq!(ops(&rewritten(&net)), ["Less", "Where"]);
}

#[test]
fn constant_choices_and_inverses() {
    let mut net = Net::new(1);
    let (x, y) = (net.input(&[2, 3]), net.input(&[2, 3]));
    let all =
        net.graph.constant("all", Cast(DType::Bool).evaluate(&[&Tensor::i64(&[3], vec![1; 3]).unwrap()]).unwrap());
    let chosen = net.add(Where, &[all, x, y]);
    let not = net.add(Not, &[all]);
    let other = net.add(Where, &[not, chosen, y]);
    let one = net.scalar(1.0);
    let inverse = net.binary(Binary::Div, one, other);
    let product = net.binary(Binary::Mul, inverse, chosen);
    net.output(product);
    let rewritten = rewritten(&net);
    assert_eq!(ops(&rewritten), ["Div"]);
    let (_, node) = rewritten.nodes().last().unwrap();
    assert_eq!(node.operands, rewritten.inputs());
}

#[test]
fn padding_goes_into_windows() {
    let shape = [2, 3, 6, 7];
    let window = |pads: [[usize; 2]; 2]| -> Vec<Sliding> {
        pads.iter().map(|&pad| Sliding { pad, ..Sliding::new(3) }).collect()
    };
    let conv = |front: [[usize; 2]; 2], pads: [[usize; 2]; 2]| {
        let mut net = Net::new(1);
        let x = net.input(&shape);
        let padded = net.add(zeros(&[[0, 0], [0, 0], front[0], front[1]]), &[x]);
        let weights = net.random(&[2, 3, 3, 3]);
        let y = net.add(Conv { window: window(pads), groups: 1 }, &[padded, weights]);
        net.output(y);
        let rewritten = rewritten(&net);
        let pad = rewritten.nodes().find_map(|(_, node)| match node.op.of() {
            Some(Pad { pad, .. }) => Some([pad[2], pad[3]]),
            _ => None,
        });
        let Some(Conv { window, .. }) = only(&rewritten, "Conv").of() else { panic!("no convolution") };
        (pad, [window[0].pad, window[1].pad])
    };

    assert_eq!(conv([[1, 1], [2, 2]], [[0, 0], [0, 0]]), (None, [[1, 1], [2, 2]]));
    assert_eq!(conv([[1, 0], [0, 0]], [[0, 1], [1, 1]]), (None, [[1, 1], [1, 1]]));
    assert_eq!(conv([[0, 1], [1, 1]], [[0, 0], [0, 0]]), (Some([[0, 1], [0, 0]]), [[0, 0], [1, 1]]));
    assert_eq!(conv([[0, 0], [0, 0]], [[0, 1], [1, 2]]), (Some([[0, 1], [1, 2]]), [[0, 0], [0, 0]]));
    // More than a window's extent.
    assert_eq!(conv([[0, 0], [0, 0]], [[4, 4], [3, 3]]), (Some([[4, 4], [0, 0]]), [[0, 0], [3, 3]]));
}

#[test]
fn padding_of_other_values_stays() {
    for (value, kind, wanted) in [
        (0.0, PoolKind::Average, &["Pool"][..]),
        (0.0, PoolKind::Max, &["Pad", "Pool"]),
        (f32::NEG_INFINITY, PoolKind::Max, &["Pool"]),
        // In the padded image all elements count as inner ones.
        (0.0, PoolKind::InnerAverage, &["Pool"]),
        (1.0, PoolKind::Average, &["Pad", "Pool"]),
    ] {
        let mut net = Net::new(1);
        let x = net.input(&[1, 2, 5, 5]);
        let pad = vec![[0, 0], [0, 0], [1, 1], [1, 1]];
        let padded = net.add(Pad { pad, mode: PadMode::Constant, value }, &[x]);
        let y = net.add(Pool { window: vec![Sliding::new(3); 2], ceil: false, kind }, &[padded]);
        net.output(y);
        assert_eq!(ops(&rewritten(&net)), wanted, "{value} {kind:?}");
    }
}

#[test]
fn pools_of_any_padding() {
    for_cases(300, |seed, rng| {
        let mut net = Net::drawn(rng);
        let kind = [PoolKind::Max, PoolKind::Average, PoolKind::InnerAverage][any(&mut net.rng, 0..=2)];
        let extents: Vec<usize> = (0..2).map(|_| any(&mut net.rng, 1..=7)).collect();
        let window: Vec<Sliding> = extents.iter().map(|_| random_window(&mut net)).collect();
        let x = net.input(&[&[1, 2][..], &extents].concat());
        let op = Pool { window, ceil: any(&mut net.rng, 0..=1) == 1, kind };
        let Ok(y) = net.graph.add("pool", op, &[x]) else { return };
        net.output(y);
        let rewritten = rewritten(&net);
        for (_, node) in rewritten.nodes() {
            let Some(Pool { window, .. }) = node.op.of() else { continue };
            assert!(window.iter().all(|window| window.pad[0] == window.pad[1]), "{seed}: {window:?}");
        }
    });
}

fn random_window(net: &mut Net<impl Rng>) -> Sliding {
    Sliding {
        kernel: any(&mut net.rng, 1..=4),
        stride: any(&mut net.rng, 1..=3),
        dilation: any(&mut net.rng, 1..=2),
        pad: [any(&mut net.rng, 0..=2), any(&mut net.rng, 0..=3)],
    }
}

#[test]
fn transposed_convolutions_of_any_padding() {
    let left = Cell::new(0);
    for_cases(300, |seed, rng| {
        let mut net = Net::drawn(rng);
        let extents: Vec<usize> = (0..2).map(|_| any(&mut net.rng, 1..=5)).collect();
        let window: Vec<Sliding> = extents.iter().map(|_| random_window(&mut net)).collect();
        let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
        // Output padding cancels padding at the end.
        let output_pad = window.iter().map(|window| any(&mut net.rng, 0..=window.pad[1])).collect();
        let x = net.input(&[&[1, 2][..], &extents].concat());
        let weights = net.random(&[&[2, 3][..], &kernels].concat());
        let op = ConvTranspose { window, output_pad, groups: 1 };
        let Ok(y) = net.graph.add("conv", op, &[x, weights]) else { return };
        net.output(y);
        let rewritten = rewritten(&net);
        // Without padding and overlap it becomes a convolution.
        let Some((_, node)) = rewritten.nodes().find(|(_, node)| node.op.name() == "ConvTranspose") else { return };
        left.set(left.get() + 1);
        let Some(ConvTranspose { window, output_pad, .. }) = node.op.of() else { panic!("no convolution") };
        for (axis, window) in window.iter().enumerate() {
            assert_eq!((window.pad[0], window.dilation), (window.pad[1], 1), "{seed}");
            assert!(output_pad[axis] < window.stride && node.shape[axis + 2] % window.stride == 0, "{seed}");
        }
    });
    assert!(left.get() > 40, "{left:?}");
}

#[test]
fn a_node_that_is_an_output_too() {
    let mut net = Net::new(1);
    let x = net.input(&[2, 3]);
    let same: NodeId = net.add(Reshape(vec![2, 3]), &[x]);
    net.output(same);
    net.output(x);
    let constant = net.random(&[2]);
    net.output(constant);
    let rewritten = rewritten(&net);
    assert_eq!(rewritten.outputs()[0].node, rewritten.inputs()[0]);
    assert_eq!(rewritten.nodes().len(), 2);
}

#[test]
fn tensors_without_elements() {
    let mut net = Net::new(1);
    let (x, none) = (net.input(&[2, 3]), net.input(&[0, 3]));
    let sum = net.binary(Binary::Add, none, none);
    let weights = net.random(&[3, 0]);
    let product = net.add(MatMul, &[x, weights]);
    let both = net.add(Concat { axis: 0 }, &[sum, x]);
    net.output(product);
    net.output(both);
    let rewritten = rewritten(&net);
    assert_eq!(ops(&rewritten), [""; 0]);
    assert_eq!(rewritten.node(rewritten.outputs()[0].node).shape, [2, 0]);
    assert_eq!(rewritten.outputs()[1].node, rewritten.inputs()[0]);
}
