//! Exported and imported graphs compute the same.

use autotune_graph::Operator;
use autotune_graph::onnx::{self, ImportOptions};
use autotune_graph::operators::{
    Attention, Binary, Bitwise, Cast, Concat, Conv, ConvTranspose, CumSum, Expand, Gather, GatherElements, GatherNd,
    GroupNorm, LayerNorm, LocalResponseNorm, Map, MatMul, Not, Pad, Pool, Prelu, Range, Reduce, Reshape, Resize,
    Scatter, Selection, Slice, Sliding, Softmax, TopK, Transpose, Trigonometric, Where,
};
use autotune_graph::{Graph, NodeId, Op, Tensor, zoo};
use autotune_ir::DType;
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Coordinates, Function, PadMode, PoolKind, ReduceOp, Rounding, Sampling};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::build::{difference, i64s};

/// Returns random numbers from -2 to 2, integers from 0 to 3, or booleans.
fn random(dtype: DType, shape: &[usize], rng: &mut ChaCha8Rng) -> Tensor {
    let count = shape.iter().product();
    let integers: Vec<i64> = (0..count).map(|_| rng.random_range(0..4)).collect();
    match dtype {
        DType::F32 => Tensor::f32(shape, (0..count).map(|_| rng.random_range(-2.0..2.0)).collect()).unwrap(),
        DType::I64 => Tensor::i64(shape, integers).unwrap(),
        DType::Bool => Cast(DType::Bool).evaluate(&[&Tensor::i64(shape, integers).unwrap()]).unwrap(),
        other => panic!("tensors of {other}"),
    }
}

/// Exports and imports a graph.
pub fn again(graph: &Graph) -> Graph {
    onnx::read_bytes(&onnx::write(graph).unwrap(), &ImportOptions::default()).unwrap()
}

/// Asserts that a graph and its file compute the same on random inputs.
pub fn check(graph: &Graph, what: &str) {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let inputs: Vec<Tensor> =
        graph.inputs().iter().map(|&id| random(graph.node(id).dtype, &graph.node(id).shape, &mut rng)).collect();
    let read = again(graph);
    let names = |graph: &Graph| graph.outputs().iter().map(|output| output.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(graph), names(&read), "{what}");
    for (found, expected) in read.evaluate(&inputs).unwrap().iter().zip(graph.evaluate(&inputs).unwrap()) {
        assert_eq!(difference(found, &expected, 1e-5, 1e-6), None, "{what}");
    }
}

/// Creates a graph with one operator.
fn single(op: impl Into<Op>, operands: &[(DType, &[usize])]) -> Graph {
    let mut graph = Graph::new("single");
    let operands: Vec<NodeId> = operands
        .iter()
        .enumerate()
        .map(|(index, (dtype, shape))| graph.input(&format!("x{index}"), *dtype, shape).unwrap())
        .collect();
    let y = graph.add("y", op, &operands).unwrap();
    graph.output("y", y);
    graph
}

const X: (DType, &[usize]) = (DType::F32, &[2, 4, 5, 6]);

fn floats(shape: &[usize]) -> (DType, &[usize]) {
    (DType::F32, shape)
}

#[test]
fn functions() {
    let activations = [
        "none",
        "relu",
        "leaky_relu",
        "sigmoid",
        "tanh",
        "hard_sigmoid",
        "hard_swish",
        "elu",
        "softplus",
        "silu",
        "mish",
        "gelu",
        "gelu_tanh",
    ];
    let with = |word, parameters: &[f32]| Activation::new(word, parameters).unwrap();
    let activations = activations.iter().map(|word| with(word, &[])).chain([
        with("clip", &[-0.5, f32::INFINITY]),
        with("clip", &[-0.5, 0.7]),
        with("round", &[-0.75, 2.0]),
        with("leaky_relu", &[0.3]),
        with("elu", &[0.3]),
        with("hard_sigmoid", &[0.25, 0.4]),
    ]);

    for activation in activations {
        check(&single(Map(Function::Activation(activation)), &[X]), &activation.to_string());
    }

    for op in UnaryOp::ALL {
        let graph = single(Map(Function::Op(op)), &[X]);
        match op {
            UnaryOp::Cast(dtype) if ![DType::F32, DType::F16, DType::Bf16].contains(&dtype) => {
                let message = "node 'y' (Map): no element type rounds to this precision";
                assert_eq!(onnx::write(&graph).unwrap_err().to_string(), message);
            }
            // Half-precision types become f32 at import, so their rounding is lost.
            UnaryOp::Cast(DType::F16 | DType::Bf16) => drop(again(&graph)),
            op => check(&graph, op.word()),
        }
    }
}

#[test]
fn elements() {
    for binary in
        [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min, Binary::Less, Binary::Equal]
    {
        check(&single(binary, &[X, floats(&[4, 1, 6])]), "binary");
        let integers = (DType::I64, &[2, 4, 5, 6][..]);
        if binary != Binary::Div {
            check(&single(binary, &[integers, (DType::I64, &[6])]), "integers");
        }
    }
    check(&single(Binary::Pow, &[X, floats(&[])]), "power");
    for bitwise in [Bitwise::And, Bitwise::Or, Bitwise::Xor] {
        check(&single(bitwise, &[(DType::I64, &[4, 5]), (DType::I64, &[5])]), "bits");
    }
    for function in Trigonometric::ALL {
        check(&single(function, &[X]), function.name());
    }
    let truths = (DType::Bool, &[5, 6][..]);
    check(&single(Binary::And, &[truths, truths]), "and");
    check(&single(Not, &[truths]), "not");
    check(&single(Where, &[truths, X, floats(&[6])]), "where");
    check(&single(Prelu, &[X, floats(&[4, 1, 1])]), "slopes");
    for (from, to) in [(DType::F32, DType::I64), (DType::I64, DType::Bool), (DType::Bool, DType::F32)] {
        check(&single(Cast(to), &[(from, &[3, 4])]), "cast");
    }
}

#[test]
fn images() {
    let window = |kernel, stride, dilation, pad| Sliding { kernel, stride, dilation, pad };
    let windows = vec![window(3, 2, 1, [1, 0]), window(2, 1, 2, [0, 2])];
    let conv = Conv { window: windows.clone(), groups: 2 };
    check(&single(conv.clone(), &[X, floats(&[6, 2, 3, 2])]), "convolution");
    check(&single(conv, &[X, floats(&[6, 2, 3, 2]), floats(&[6])]), "convolution with biases");
    let op = ConvTranspose { window: windows.clone(), output_pad: vec![1, 0], groups: 2 };
    check(&single(op, &[X, floats(&[4, 3, 3, 2]), floats(&[6])]), "transposed convolution");

    for kind in [PoolKind::Max, PoolKind::Average, PoolKind::InnerAverage] {
        for (ceil, pad) in [(false, [0, 0]), (true, [0, 0]), (false, [1, 0]), (true, [1, 1])] {
            let window = vec![window(2, 2, 1, pad), window(3, 2, 1, pad)];
            check(&single(Pool { window, ceil, kind }, &[X]), &format!("{kind:?} {ceil} {pad:?}"));
        }
    }
    let coordinates = [Coordinates::HalfPixel, Coordinates::AlignCorners, Coordinates::Asymmetric];
    let nearest = [Rounding::PreferFloor, Rounding::PreferCeil, Rounding::Floor, Rounding::Ceil].map(Sampling::Nearest);
    for coordinates in coordinates {
        for sampling in nearest.into_iter().chain([Sampling::Linear]) {
            check(&single(Resize { size: [7, 3], coordinates, sampling }, &[X]), "size");
        }
    }
    for mode in [PadMode::Constant, PadMode::Reflect, PadMode::Edge] {
        let pad = vec![[0, 0], [0, 0], [1, 2], [3, 0]];
        check(&single(Pad { pad, mode, value: 0.5 }, &[X]), "padding");
    }
}

#[test]
fn cumulative_sums() {
    for (axis, exclusive, reverse) in [(0, false, true), (1, true, false), (3, true, true)] {
        check(&single(CumSum { axis, exclusive, reverse }, &[X]), "sums");
    }
}

#[test]
fn rows() {
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod, ReduceOp::Mean] {
        for (axes, keep_axes) in [(vec![], false), (vec![1, 3], true), (vec![0, 2], false), (vec![0, 1, 2, 3], false)] {
            check(&single(Reduce { op, axes, keep_axes }, &[X]), "reduction");
        }
    }
    for log in [false, true] {
        check(&single(Softmax { axis: 1, log }, &[X]), "softmax");
    }
    let numbers = || floats(&[5, 6]);
    check(&single(LayerNorm { axis: 2, eps: 1e-3 }, &[X, numbers()]), "layers");
    check(&single(LayerNorm { axis: 2, eps: 1e-3 }, &[X, numbers(), numbers()]), "layers and biases");
    for groups in [1, 2, 4] {
        check(&single(GroupNorm { groups, eps: 1e-3 }, &[X, floats(&[4]), floats(&[4])]), "groups");
    }
    check(&single(LocalResponseNorm { size: 3, alpha: 0.1, beta: 0.5, bias: 2.0 }, &[X]), "channels");
    check(&single(MatMul, &[X, floats(&[6, 3])]), "product");
    check(&single(MatMul, &[X, floats(&[6])]), "column");
    let operands = [floats(&[2, 3, 4]), floats(&[2, 5, 4]), floats(&[2, 5, 6])];
    check(&single(Attention { scale: 0.5 }, &operands), "attention");
    let masked = [&operands[..], &[floats(&[3, 5])]].concat();
    check(&single(Attention { scale: 0.5 }, &masked), "attention and mask");
}

#[test]
fn parts() {
    let range = |start, step, count| Range { start, step, count };
    let ranges = vec![range(0, 1, 2), range(3, -1, 4), range(1, 2, 2), range(5, -2, 2)];
    check(&single(Slice(ranges), &[X]), "slice");
    let none = vec![range(0, 1, 2), range(0, 1, 0), range(0, 1, 5), range(0, 1, 6)];
    check(&single(Slice(none), &[X]), "nothing");
    check(&single(Concat { axis: 1 }, &[X, floats(&[2, 1, 5, 6]), X]), "parts");
    check(&single(Reshape(vec![8, 30]), &[X]), "shape");
    check(&single(Transpose(vec![2, 0, 3, 1]), &[X]), "axes");
    check(&single(Expand(vec![3, 4, 5]), &[floats(&[4, 1])]), "broadcast");
    check(&single(Gather { axis: 1 }, &[X, (DType::I64, &[2, 2])]), "rows");
}

#[test]
fn elements_by_index() {
    check(&single(GatherElements { axis: 1 }, &[X, (DType::I64, &[2, 3, 5, 1])]), "elements");
    check(&single(GatherNd { batch_axes: 1 }, &[floats(&[2, 4, 5]), (DType::I64, &[2, 3, 2])]), "slices");
    for reduction in [None, Some(Binary::Add), Some(Binary::Mul), Some(Binary::Max), Some(Binary::Min)] {
        let scatter = |selection| Scatter { selection, reduction };
        let (of_elements, of_slices) = ([3, 2], [6, 2]);
        let operands = [floats(&[4, 6]), (DType::I64, &of_elements), floats(&of_elements)];
        check(&single(scatter(Selection::Along(1)), &operands), "scattered elements");
        let operands = [floats(&[4, 4, 5]), (DType::I64, &of_slices), floats(&[6, 5])];
        check(&single(scatter(Selection::Tuples(0)), &operands), "scattered slices");
    }
}

#[test]
fn orders() {
    for (is_largest, has_indices) in [(true, true), (true, false), (false, true), (false, false)] {
        check(&single(TopK { axis: 1, count: 3, is_largest, has_indices }, &[X]), "order");
    }
}

#[test]
fn names() {
    // An output that is an input, one tensor as two outputs, a constant, and conflicting names.
    let mut graph = Graph::new("names");
    let x = graph.input("t2", DType::F32, &[2]).unwrap();
    let constant = graph.constant("t2", i64s(&[1, 2]));
    let y = graph.add("t2", Map(Function::Op(UnaryOp::Rsqrt)), &[x]).unwrap();
    let z = graph.add("t2", Map(Function::Op(UnaryOp::Exp)), &[y]).unwrap();
    for (name, node) in [("t2", x), ("y", y), ("again", y), ("t2.1", z), ("constant", constant), ("t2_", x)] {
        graph.output(name, node);
    }
    check(&graph, "names");

    graph.output("y", z);
    let message = "output 'y': the name is empty or already in use";
    assert_eq!(onnx::write(&graph).unwrap_err().to_string(), message);
}

#[test]
fn networks() {
    for name in ["squeezenet", "dqn", "lstm"] {
        check(&zoo::graph(name).unwrap(), name);
    }
    for name in ["resnet18", "mobilenet_v2", "dcgan"] {
        let graph = zoo::graph(name).unwrap();
        let read = again(&graph);
        let inputs = |graph: &Graph| -> Vec<(String, Vec<usize>)> {
            graph.inputs().iter().map(|&id| (graph.node(id).name.clone(), graph.node(id).shape.clone())).collect()
        };
        assert_eq!(inputs(&graph), inputs(&read), "{name}");
    }
}
