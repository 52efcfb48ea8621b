//! All operators in every form get kernels: nothing that runs is left to the interpreter.

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::operators::{
    Binary, Bitwise, Cast, Concat, Conv, ConvTranspose, CumSum, Gather, GatherElements, GatherNd, GroupNorm,
    LocalResponseNorm, MatMul, Pad, Pool, Reduce, Resize, Scatter, Selection, Sliding, Softmax, TopK, Transpose,
};
use autotune_network::{Compiled, DType, Graph, Library, NodeId, Op, Tensor, rewrite};
use autotune_workloads::{Coordinates, PadMode, PoolKind, ReduceOp, Rounding, Sampling};
use rand_chacha::ChaCha8Rng;

use crate::common::graphs::{Net, assert_same, assert_same_on, brought};
use crate::common::{any, assert_near, rng};
use crate::long::or_long;

/// Fails unless a graph compiles to kernels only, computes the same, and becomes a library if
/// possible.
fn assert_compiles(graph: &Graph, seed: u64) {
    let rewritten = rewrite(graph).unwrap();
    match graph.inputs() {
        [_] => assert_same(graph, &rewritten, seed),
        // With explicit zeros between the elements of an image, infinite weights would yield NaN.
        _ => assert_same_on(graph, &rewritten, &brought(graph, &mut rng(seed)), &format!("seed {seed}")),
    }
    for step in Cut::of(&rewritten).steps {
        if let StepWork::Interpret(id) = step.work {
            panic!("{seed}: {:?}", rewritten.node(id));
        }
    }

    let target = Target::detect("cpu", Some(1)).unwrap();
    let network = Compiled::new(&rewritten, None, &target).unwrap();
    let inputs = brought(graph, &mut rng(seed));
    let (found, wanted) =
        (network.workspace().unwrap().run_tensors(&inputs).unwrap(), graph.evaluate(&inputs).unwrap());
    for (found, wanted) in found.iter().zip(&wanted) {
        let largest = wanted.to_numbers().iter().fold(1f32, |most, x| most.max(x.abs()));
        let scaled = |tensor: &Tensor| match tensor.as_f32() {
            Some(array) => Tensor::F32(array.mapv(|x| x / (largest * 50.0))),
            None => tensor.clone(),
        };
        assert_near(&scaled(found), &scaled(wanted), &format!("{seed}"));
    }
    if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        Library::of(&network, "network", "network.so").unwrap();
    }
}

/// Adds a single output node with the given operands.
fn single(net: &mut Net, op: impl Into<Op>, operands: &[NodeId]) -> Option<NodeId> {
    let node = net.graph.add("node", op, operands).ok()?;
    net.output(node);
    Some(node)
}

/// Adds weights: a constant, or an input.
fn weights(net: &mut Net, shape: &[usize]) -> NodeId {
    if any(&mut net.rng, 0..=2) == 0 { net.input(shape) } else { net.random(shape) }
}

fn window(rng: &mut ChaCha8Rng) -> Sliding {
    Sliding {
        kernel: any(rng, 1..=3),
        stride: any(rng, 1..=4),
        dilation: [1, 1, 2, 3][any(rng, 0..=3)],
        pad: [any(rng, 0..=2), any(rng, 0..=2)],
    }
}

/// Checks `count` graphs in a long run and half as many in an ordinary one, from the first seeds
/// that yield a valid one.
fn of_seeds(count: usize, graph: impl Fn(&mut Net) -> Option<NodeId>) {
    let made = (0..).filter_map(|seed| {
        let mut net = Net::new(seed);
        graph(&mut net).map(|_| (seed, net))
    });
    made.take(or_long([count / 2, count])).for_each(|(seed, net)| assert_compiles(&net.graph, seed));
}

#[test]
fn transposed_convolutions() {
    of_seeds(60, |net| {
        let axes = [1, 2, 2, 3, 4][any(&mut net.rng, 0..=4)];
        let (groups, inner, outer) = (any(&mut net.rng, 1..=2), any(&mut net.rng, 0..=2), any(&mut net.rng, 1..=2));
        let extents: Vec<usize> = (0..axes).map(|_| any(&mut net.rng, 1..=4)).collect();
        let window: Vec<Sliding> = extents.iter().map(|_| window(&mut net.rng)).collect();
        let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
        // As `output_padding`, which strides or dilations limit, or as `output_shape` implies it,
        // without a limit.
        let output_pad = extents.iter().map(|_| any(&mut net.rng, 0..=4)).collect();

        let x = net.input(&[&[2, groups * inner][..], &extents].concat());
        let w = weights(net, &[&[groups * inner, outer][..], &kernels].concat());
        let mut operands = vec![x, w];
        if any(&mut net.rng, 0..=1) == 0 {
            operands.push(net.random(&[groups * outer]));
        }
        single(net, ConvTranspose { window, output_pad, groups }, &operands)
    });
}

#[test]
fn convolutions_and_poolings_of_many_axes() {
    of_seeds(30, |net| {
        let axes = any(&mut net.rng, 3..=5);
        let (groups, inner, outer) = (any(&mut net.rng, 1..=2), any(&mut net.rng, 0..=2), any(&mut net.rng, 1..=2));
        let extents: Vec<usize> = (0..axes).map(|_| any(&mut net.rng, 1..=4)).collect();
        let window: Vec<Sliding> = extents.iter().map(|_| window(&mut net.rng)).collect();
        let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
        let x = net.input(&[&[2, groups * inner][..], &extents].concat());
        if inner > 0 && any(&mut net.rng, 0..=1) == 0 {
            let kind = [PoolKind::Max, PoolKind::Average, PoolKind::InnerAverage][any(&mut net.rng, 0..=2)];
            let window =
                window.into_iter().map(|window| Sliding { dilation: 1, pad: [0, window.kernel - 1], ..window });
            let op = Pool { window: window.collect(), ceil: any(&mut net.rng, 0..=1) == 0, kind };
            return single(net, op, &[x]);
        }

        let w = weights(net, &[&[groups * outer, inner][..], &kernels].concat());
        let biases = net.random(&[groups * outer]);
        single(net, Conv { window, groups }, &[x, w, biases])
    });
}

/// Dilated windows, some of which contain no element of the image.
#[test]
fn poolings_with_gaps() {
    of_seeds(150, |net| {
        let extents: Vec<usize> = (0..any(&mut net.rng, 1..=2)).map(|_| any(&mut net.rng, 1..=6)).collect();
        let mut window = || {
            let window = window(&mut net.rng);
            let most = (window.kernel - 1) * window.dilation;
            Sliding { pad: [0, 1].map(|_| any(&mut net.rng, 0..=most)), ..window }
        };
        let window = extents.iter().map(|_| window()).collect();
        let kind = [PoolKind::Max, PoolKind::Average, PoolKind::InnerAverage][any(&mut net.rng, 0..=2)];
        let ceil = any(&mut net.rng, 0..=1) == 0;
        let x = net.input(&[&[1, 2][..], &extents].concat());
        single(net, Pool { window, ceil, kind }, &[x])
    });
}

#[test]
fn sums_of_squares_over_more_channels_than_there_are() {
    of_seeds(20, |net| {
        let axes = any(&mut net.rng, 0..=3);
        let extents: Vec<usize> = (0..axes).map(|_| any(&mut net.rng, 1..=4)).collect();
        let channels = any(&mut net.rng, 1..=7);
        let size = [1, 2, 3, 4, 5, 8, 13, 14, 1000, 1 << 40][any(&mut net.rng, 0..=9)];
        let x = net.input(&[&[2, channels][..], &extents].concat());
        single(net, LocalResponseNorm { size, alpha: 0.5 * size as f32, beta: 0.75, bias: 1.0 }, &[x])
    });
}

#[test]
fn paddings_of_several_and_of_long_axes() {
    of_seeds(40, |net| {
        let mode = [PadMode::Constant, PadMode::Edge, PadMode::Reflect][any(&mut net.rng, 0..=2)];
        let shape = match any(&mut net.rng, 0..=3) {
            0 => (0..any(&mut net.rng, 1..=5)).map(|_| any(&mut net.rng, 0..=4)).collect(),
            1 => vec![1, 2, any(&mut net.rng, 16_380..=20_000)],
            2 => vec![any(&mut net.rng, 16_380..=20_000), 2],
            // More columns after an axis than a table can have.
            _ => vec![1, any(&mut net.rng, 1..=3), 130, 130],
        };
        let most = |extent: usize| if mode == PadMode::Reflect { extent.saturating_sub(1).min(3) } else { 3 };
        let pad = shape.iter().map(|&extent| [0, 1].map(|_| any(&mut net.rng, 0..=most(extent)))).collect();
        let value = any(&mut net.rng, 0..=1) as f32;
        let x = net.input(&shape);
        single(net, Pad { pad, mode, value }, &[x])
    });
}

/// Returns an extent that exceeds the kernels' tables, or a small one.
fn long_or_short(net: &mut Net) -> usize {
    if any(&mut net.rng, 0..=1) == 0 { any(&mut net.rng, 16_380..=20_000) } else { any(&mut net.rng, 1..=5) }
}

#[test]
fn images_resized_along_long_axes() {
    of_seeds(60, |net| {
        let is_first = any(&mut net.rng, 0..=1) == 0;
        let (long, other) = ([long_or_short(net), long_or_short(net)], any(&mut net.rng, 1..=3));
        let others = [other, any(&mut net.rng, 1..=3)];
        let [from, to] = [0, 1].map(|at| if is_first { [long[at], others[at]] } else { [others[at], long[at]] });
        let coordinates =
            [Coordinates::HalfPixel, Coordinates::AlignCorners, Coordinates::Asymmetric][any(&mut net.rng, 0..=2)];
        let roundings = [Rounding::PreferFloor, Rounding::PreferCeil, Rounding::Floor, Rounding::Ceil];
        let sampling = match any(&mut net.rng, 0..=1) {
            0 => Sampling::Linear,
            _ => Sampling::Nearest(roundings[any(&mut net.rng, 0..=3)]),
        };
        let channels = any(&mut net.rng, 1..=2);
        let x = net.input(&[1, channels, from[0], from[1]]);
        single(net, Resize { size: to, coordinates, sampling }, &[x])
    });
}

/// Windows that start in the padding or end after it, and volumes with long slices.
#[test]
fn means_over_long_axes() {
    of_seeds(40, |net| {
        let shape = match any(&mut net.rng, 0..=3) {
            0 => vec![1, 2, any(&mut net.rng, 16_380..=20_000)],
            1 => vec![1, 1, any(&mut net.rng, 16_380..=20_000), 2],
            2 => vec![1, 1, 2, any(&mut net.rng, 16_380..=20_000)],
            _ => vec![1, 1, 3, 130, 130],
        };
        let window = |extent: &usize| {
            let kernel = any(&mut net.rng, 1..=3.min(*extent));
            Sliding { kernel, stride: any(&mut net.rng, 1..=2), dilation: 1, pad: [kernel / 2, kernel / 2] }
        };
        let window = shape[2..].iter().map(window).collect();
        let kind = [PoolKind::Average, PoolKind::InnerAverage][any(&mut net.rng, 0..=1)];
        let ceil = any(&mut net.rng, 0..=1) == 0;
        let x = net.input(&shape);
        single(net, Pool { window, ceil, kind }, &[x])
    });
}

/// All operators without tests of their own.
#[test]
fn long_and_empty_axes_of_everything_else() {
    of_seeds(80, |net| {
        let mut shape: Vec<usize> = (0..any(&mut net.rng, 2..=4)).map(|_| any(&mut net.rng, 1..=3)).collect();
        let axis = any(&mut net.rng, 0..=shape.len() - 1);
        shape[axis] = [0, any(&mut net.rng, 16_380..=40_000)][any(&mut net.rng, 0..=3).min(1)];
        let (rank, x) = (shape.len(), net.input(&shape));

        let op: Op = match any(&mut net.rng, 0..=6) {
            0 => Softmax { axis: any(&mut net.rng, 0..=rank - 1), log: any(&mut net.rng, 0..=1) == 0 }.into(),
            1 => GroupNorm { groups: 1, eps: 1e-5 }.into(),
            2 => LocalResponseNorm { size: any(&mut net.rng, 1..=5), alpha: 0.5, beta: 0.75, bias: 1.0 }.into(),
            3 => Transpose((0..rank).rev().collect()).into(),
            4 => {
                let op = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Mean][any(&mut net.rng, 0..=2)];
                Reduce { op, axes: vec![any(&mut net.rng, 0..=rank - 1)], keep_axes: false }.into()
            }
            5 => Concat { axis: any(&mut net.rng, 0..=rank - 1) }.into(),
            _ => {
                let last = shape[axis].checked_sub(1)?;
                let numbers = (0..5).map(|_| any(&mut net.rng, 0..=last) as i64).collect();
                let numbers = net.graph.constant("numbers", Tensor::i64(&[5], numbers).unwrap());
                return single(net, Gather { axis }, &[x, numbers]);
            }
        };

        let operands = if op.is::<Concat>() { vec![x, x] } else { vec![x] };
        single(net, op, &operands)
    });
}

#[test]
fn cumulative_sums() {
    of_seeds(60, |net| {
        let shape: Vec<usize> = (0..any(&mut net.rng, 1..=3)).map(|_| any(&mut net.rng, 0..=9)).collect();
        let axis = any(&mut net.rng, 0..=shape.len() - 1);
        let mut x = net.input(&shape);
        if any(&mut net.rng, 0..=1) == 0 {
            x = net.add(Cast(DType::I64), &[x]);
        }
        let [exclusive, reverse] = [0; 2].map(|_| any(&mut net.rng, 0..=1) == 0);
        single(net, CumSum { axis, exclusive, reverse }, &[x])
    });
}

/// Adds indices from -1 to 1: a constant, or computed ones.
fn small_indices(net: &mut Net, shape: &[usize], is_constant: bool) -> NodeId {
    if is_constant {
        let numbers = (0..shape.iter().product()).map(|_| any(&mut net.rng, 0..=2) as i64 - 1).collect();
        return net.graph.constant("indices", Tensor::i64(shape, numbers).unwrap());
    }
    let x = net.input(shape);
    let clipped = net.act("clip", &[-1.0, 1.0], x);
    net.add(Cast(DType::I64), &[clipped])
}

fn reduction(net: &mut Net) -> Option<Binary> {
    let all = [Binary::Add, Binary::Mul, Binary::Max, Binary::Min].map(Some);
    [&all[..], &[None; 4]].concat()[any(&mut net.rng, 0..=7)]
}

/// Adds an input, or integers from -9 to 9 that are computed from it.
fn numbers_or_integers(net: &mut Net, shape: &[usize], has_integers: bool) -> NodeId {
    let x = net.input(shape);
    if !has_integers {
        return x;
    }
    let clipped = net.act("clip", &[-0.9, 0.9], x);
    let ten = net.graph.constant("ten", Tensor::scalar(10.0));
    let scaled = net.add(Binary::Mul, &[clipped, ten]);
    net.add(Cast(DType::I64), &[scaled])
}

#[test]
fn largest_and_smallest_elements() {
    of_seeds(60, |net| {
        let shape: Vec<usize> = (0..any(&mut net.rng, 1..=3)).map(|_| any(&mut net.rng, 1..=6)).collect();
        let axis = any(&mut net.rng, 0..=shape.len() - 1);
        let has_integers = any(&mut net.rng, 0..=1) == 0;
        let x = numbers_or_integers(net, &shape, has_integers);
        let count = any(&mut net.rng, 1..=shape[axis]);
        let [is_largest, has_indices] = [0; 2].map(|_| any(&mut net.rng, 0..=1) == 0);
        single(net, TopK { axis, count, is_largest, has_indices }, &[x])
    });
}

#[test]
fn bits_of_integers() {
    of_seeds(40, |net| {
        let shape: Vec<usize> = (0..any(&mut net.rng, 1..=3)).map(|_| any(&mut net.rng, 1..=6)).collect();
        let (a, b) = (numbers_or_integers(net, &shape, true), numbers_or_integers(net, &shape[1..], true));
        let op = [Bitwise::And, Bitwise::Or, Bitwise::Xor][any(&mut net.rng, 0..=2)];
        single(net, op, &[a, b])
    });
}

#[test]
fn elements_by_index() {
    of_seeds(100, |net| {
        let shape: Vec<usize> = (0..any(&mut net.rng, 1..=4)).map(|_| any(&mut net.rng, 2..=5)).collect();
        let (rank, x) = (shape.len(), net.input(&shape));
        let (axis, is_constant) = (any(&mut net.rng, 0..=rank - 1), any(&mut net.rng, 0..=1) == 0);
        let inner: Vec<usize> = shape.iter().map(|&extent| any(&mut net.rng, 1..=extent)).collect();
        let count = any(&mut net.rng, 1..=rank);
        let tuples = [any(&mut net.rng, 1..=4), count];

        match any(&mut net.rng, 0..=3) {
            0 => {
                let indices = small_indices(net, &inner, is_constant);
                single(net, GatherElements { axis }, &[x, indices])
            }
            1 => {
                let batch_axes = rank - count;
                let extents = [&shape[..batch_axes], &tuples].concat();
                let indices = small_indices(net, &extents, is_constant);
                single(net, GatherNd { batch_axes }, &[x, indices])
            }
            2 => {
                let (indices, updates) = (small_indices(net, &inner, is_constant), weights(net, &inner));
                let op = Scatter { selection: Selection::Along(axis), reduction: reduction(net) };
                single(net, op, &[x, indices, updates])
            }
            _ => {
                let indices = small_indices(net, &tuples, is_constant);
                let updates = weights(net, &[&tuples[..1], &shape[count..]].concat());
                let op = Scatter { selection: Selection::Tuples(0), reduction: reduction(net) };
                single(net, op, &[x, indices, updates])
            }
        }
    });
}

#[test]
fn many_axes_that_lie_apart() {
    of_seeds(40, |net| {
        let shape: Vec<usize> = (0..any(&mut net.rng, 3..=12)).map(|_| any(&mut net.rng, 1..=2)).collect();
        let mut repeated = || shape.iter().map(|&extent| [1, extent][any(&mut net.rng, 0..=1)]).collect::<Vec<_>>();
        let (left, right) = (repeated(), repeated());
        match any(&mut net.rng, 0..=3) {
            0 => {
                let x = net.input(&shape);
                let axes = (0..shape.len()).filter(|_| any(&mut net.rng, 0..=1) == 0).collect();
                let op = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Mean][any(&mut net.rng, 0..=2)];
                let keep_axes = any(&mut net.rng, 0..=1) == 0;
                single(net, Reduce { op, axes, keep_axes }, &[x])
            }
            1 => {
                let x = net.input(&[&left[..], &[2, 3]].concat());
                let w = weights(net, &[&right[..], &[3, 2]].concat());
                single(net, MatMul, &[x, w])
            }
            _ => {
                let (x, y) = (net.input(&left), weights(net, &right));
                single(net, Binary::Mul, &[x, y])
            }
        }
    });
}

/// Queries absorb the rest of the scale, which must not make them infinite.
#[test]
fn scores_times_a_large_number() {
    let mut net = Net::new(1);
    let (q, k, v) = (net.input(&[3, 4]), net.input(&[4, 3]), net.input(&[3, 4]));
    let scores = net.add(MatMul, &[q, k]);
    let scores = net.with(Binary::Mul, scores, 6e8);
    let weights = net.add(Softmax { axis: 1, log: false }, &[scores]);
    let mixed = net.add(MatMul, &[weights, v]);
    net.output(mixed);
    let steps = Cut::of(&rewrite(&net.graph).unwrap()).steps;
    assert!(!steps.iter().any(|step| matches!(step.work, StepWork::Interpret(_))), "{steps:?}");
}

#[test]
fn products_of_nothing() {
    for (left, right) in [(&[3, 0][..], &[0, 4][..]), (&[2, 3, 0], &[2, 0, 1]), (&[0], &[0, 2])] {
        let mut net = Net::new(1);
        let (a, b) = (net.input(left), weights(&mut net, right));
        single(&mut net, MatMul, &[a, b]).unwrap();
        assert_compiles(&net.graph, 1);
    }
}

/// Exponents from negative ones to beyond 63, from where on only powers of 0, 1 and -1 are
/// representable.
#[test]
fn powers_of_integers() {
    let mut graph = Graph::new("powers");
    let [x, n] = ["x", "n"].map(|name| graph.input(name, DType::I64, &[200]).unwrap());
    let y = graph.add("y", Binary::Pow, &[x, n]).unwrap();
    graph.output("y", y);
    assert_compiles(&graph, 1);

    let pairs = (-6i64..=6).flat_map(|x| (-3..=70).map(move |n| (x, n)));
    let fits = |&(x, n): &(i64, i64)| x.abs() < 2 || n < 0 || n < 64 && (x as f64).powi(n as i32).abs() <= 16_777_216.0;
    let all: Vec<(i64, i64)> = pairs.filter(fits).collect();
    let rewritten = rewrite(&graph).unwrap();
    let target = Target::detect("cpu", Some(1)).unwrap();
    let mut workspace = Compiled::new(&rewritten, None, &target).unwrap().workspace().unwrap();
    for some in all.chunks(200) {
        let of = |get: fn(&(i64, i64)) -> i64| {
            Tensor::i64(&[200], some.iter().map(get).chain(std::iter::repeat(1)).take(200).collect()).unwrap()
        };
        let inputs = [of(|pair| pair.0), of(|pair| pair.1)];
        let (found, wanted) = (workspace.run_tensors(&inputs).unwrap(), graph.evaluate(&inputs).unwrap());
        assert_eq!(found, wanted);
        assert_eq!(rewritten.evaluate(&inputs).unwrap(), wanted);
    }
}
