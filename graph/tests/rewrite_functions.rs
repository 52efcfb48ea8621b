//! Functions of elements as exporters write them.

use autotune_graph::operators::{Binary, Map, Prelu};
use autotune_graph::{DType, Graph, NodeId, Tensor, rewrite};
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Function};

use crate::common::graphs::{Net, assert_same, only, ops};

/// Rewrites a graph and compares both on random inputs.
pub(crate) fn rewritten(net: &Net) -> Graph {
    let rewritten = rewrite(&net.graph).unwrap();
    assert_same(&net.graph, &rewritten, 1);
    rewritten
}

/// Fails unless the operations on an input become a single function.
fn assert_function(shape: &[usize], wanted: Activation, of: impl Fn(&mut Net, NodeId) -> NodeId) {
    let mut net = Net::new(1);
    let x = net.input(shape);
    let y = of(&mut net, x);
    net.output(y);
    let rewritten = rewritten(&net);
    assert_eq!(ops(&rewritten), ["Map"], "{wanted:?}");
    assert_eq!(*only(&rewritten, "Map"), Map(Function::Activation(wanted)));
}

/// Adds a binary operation with its operands in either order.
pub(crate) fn either(net: &mut Net, op: Binary, a: NodeId, b: NodeId, turned: bool) -> NodeId {
    if turned { net.binary(op, b, a) } else { net.binary(op, a, b) }
}

#[test]
fn gelu() {
    for case in 0..24 {
        let (turned, by, order) = (case % 2 == 0, case / 2 % 4, case / 8);
        assert_function(&[2, 3], Activation::Gelu, |net, x| {
            let root = std::f32::consts::SQRT_2;
            let scaled = match by {
                0 => net.with(Binary::Div, x, root),
                1 => net.with(Binary::Mul, x, 1.0 / root),
                2 => {
                    let (two, half) = (net.scalar(2.0), net.scalar(0.5));
                    let root = net.binary(Binary::Pow, two, half);
                    net.binary(Binary::Div, x, root)
                }
                _ => {
                    let inverse = net.scalar(1.0 / root);
                    net.binary(Binary::Mul, inverse, x)
                }
            };

            let erf = net.unary(UnaryOp::Erf, scaled);
            let (one, half) = (net.scalar(1.0), net.scalar(0.5));
            let sum = either(net, Binary::Add, erf, one, turned);

            match order {
                0 => {
                    let product = either(net, Binary::Mul, x, sum, turned);
                    either(net, Binary::Mul, product, half, turned)
                }
                1 => {
                    let product = either(net, Binary::Mul, x, half, turned);
                    either(net, Binary::Mul, product, sum, turned)
                }
                _ => {
                    let product = either(net, Binary::Mul, sum, half, turned);
                    either(net, Binary::Mul, x, product, turned)
                }
            }
        });
    }
}

#[test]
fn gelu_by_a_hyperbolic_tangent() {
    for case in 0..12 {
        let (turned, by) = (case % 2 == 0, case / 2 % 3);
        assert_function(&[2, 3], Activation::GeluTanh, |net, x| {
            let factor = (2.0 / std::f32::consts::PI).sqrt();
            let inner = match by {
                0 => {
                    let cube = net.with(Binary::Pow, x, 3.0);
                    let small = net.with(Binary::Mul, cube, 0.044715);
                    let sum = either(net, Binary::Add, x, small, turned);
                    net.with(Binary::Mul, sum, factor)
                }
                1 => {
                    let square = net.binary(Binary::Mul, x, x);
                    let cube = either(net, Binary::Mul, x, square, turned);
                    let small = net.with(Binary::Mul, cube, 0.044715);
                    let sum = either(net, Binary::Add, x, small, turned);
                    net.with(Binary::Mul, sum, factor)
                }
                _ => {
                    let scaled = net.with(Binary::Mul, x, 0.044715);
                    let square = either(net, Binary::Mul, x, scaled, turned);
                    let sum = net.with(Binary::Add, square, 1.0);
                    let x = net.with(Binary::Mul, x, factor);
                    either(net, Binary::Mul, x, sum, turned)
                }
            };

            let tanh = if turned { net.unary(UnaryOp::Tanh, inner) } else { net.act("tanh", &[], inner) };
            let sum = net.with(Binary::Add, tanh, 1.0);
            let half = net.with(Binary::Mul, x, 0.5);
            either(net, Binary::Mul, half, sum, turned)
        });
    }
}

#[test]
fn swishes() {
    for turned in [false, true] {
        assert_function(&[2, 3], Activation::Silu, |net, x| {
            let sigmoid = if turned { net.unary(UnaryOp::Sigmoid, x) } else { net.act("sigmoid", &[], x) };
            either(net, Binary::Mul, x, sigmoid, turned)
        });
        assert_function(&[2, 3], Activation::HardSwish, |net, x| {
            let sigmoid = net.act("hard_sigmoid", &[0.166_666_7, 0.5], x);
            either(net, Binary::Mul, x, sigmoid, turned)
        });

        let clipped = |net: &mut Net, x: NodeId| {
            let three = net.scalar(3.0);
            let sum = either(net, Binary::Add, x, three, turned);
            net.act("clip", &[0.0, 6.0], sum)
        };
        assert_function(&[2, 3], Activation::HardSwish, |net, x| {
            let clip = clipped(net, x);
            let product = either(net, Binary::Mul, x, clip, turned);
            net.with(Binary::Div, product, 6.0)
        });
        assert_function(&[2, 3], Activation::HardSwish, |net, x| {
            let clip = clipped(net, x);
            let sixth = net.with(Binary::Div, clip, 6.0);
            either(net, Binary::Mul, x, sixth, turned)
        });

        let hard_sigmoid = Activation::new("hard_sigmoid", &[1.0 / 6.0, 0.5]).unwrap();
        assert_function(&[2, 3], hard_sigmoid, |net, x| {
            let clip = clipped(net, x);
            net.with(Binary::Div, clip, 6.0)
        });
    }

    let steep = Activation::new("hard_sigmoid", &[0.25, 0.125]).unwrap();
    assert_function(&[3], steep, |net, x| {
        let scaled = net.with(Binary::Mul, x, 0.25);
        let shifted = net.with(Binary::Add, scaled, 0.125);
        net.act("clip", &[0.0, 1.0], shifted)
    });
}

#[test]
fn bounds() {
    let clip = |lo, hi| Activation::new("clip", &[lo, hi]).unwrap();
    assert_function(&[9], Activation::Relu, |net, x| net.with(Binary::Max, x, 0.0));
    assert_function(&[9], clip(f32::NEG_INFINITY, 0.5), |net, x| net.with(Binary::Min, x, 0.5));
    assert_function(&[9], clip(0.0, 1.0), |net, x| {
        let (zero, relu) = (net.scalar(0.0), net.with(Binary::Min, x, 1.0));
        net.binary(Binary::Max, zero, relu)
    });
    assert_function(&[9], clip(0.0, 1.5), |net, x| {
        let relu = net.act("relu", &[], x);
        net.act("clip", &[-1.0, 1.5], relu)
    });
    // Bounds that exclude each other.
    assert_function(&[9], clip(1.0, 1.0), |net, x| {
        let low = net.act("clip", &[-1.0, 0.0], x);
        net.act("clip", &[1.0, 2.0], low)
    });
    assert_function(&[2, 3], Activation::new("leaky_relu", &[0.25]).unwrap(), |net, x| {
        let slopes = net.graph.constant("slopes", Tensor::f32(&[3], vec![0.25; 3]).unwrap());
        net.add(Prelu, &[x, slopes])
    });
}

#[test]
fn functions_that_are_others() {
    // 0.6 in place of 0.5; a product with another tensor; a constant that broadcasts the result.
    let mut net = Net::new(1);
    let (x, y) = (net.input(&[3]), net.input(&[3]));
    let scaled = net.with(Binary::Mul, x, std::f32::consts::FRAC_1_SQRT_2);
    let erf = net.unary(UnaryOp::Erf, scaled);
    let sum = net.with(Binary::Add, erf, 1.0);
    let product = net.binary(Binary::Mul, x, sum);
    let wrong = net.with(Binary::Mul, product, 0.6);
    net.output(wrong);
    let half = net.with(Binary::Mul, y, 0.5);
    let other = net.binary(Binary::Mul, half, sum);
    net.output(other);
    let sigmoid = net.act("sigmoid", &[], y);
    let gate = net.binary(Binary::Mul, x, sigmoid);
    net.output(gate);
    let found = rewritten(&net);
    assert!(
        !found.nodes().any(|(_, node)| matches!(
            node.op.of(),
            Some(Map(Function::Activation(Activation::Gelu | Activation::Silu)))
        ))
    );

    let mut net = Net::new(1);
    let x = net.input(&[3]);
    let sigmoid = net.act("sigmoid", &[], x);
    let product = net.binary(Binary::Mul, x, sigmoid);
    let one = net.graph.constant("one", Tensor::f32(&[1, 1], vec![1.0]).unwrap());
    let wide = net.binary(Binary::Mul, product, one);
    net.output(wide);
    assert_eq!(rewritten(&net).node(rewritten(&net).outputs()[0].node).shape, [1, 3]);
}

/// Integer powers become products by repeated squaring.
#[test]
fn powers_of_integers() {
    for (exponent, products) in [(2, 1), (3, 2), (5, 3), (13, 5), (63, 10), (64, 0), (0, 0), (-1, 0)] {
        let mut graph = Graph::new("powers");
        let x = graph.input("x", DType::I64, &[2, 3]).unwrap();
        let by = graph.constant("by", Tensor::i64(&[1], vec![exponent]).unwrap());
        let power = graph.add("power", Binary::Pow, &[x, by]).unwrap();
        graph.output("y", power);

        let rewritten = rewrite(&graph).unwrap();
        match products {
            0 => assert!(!ops(&rewritten).contains(&"Pow"), "{exponent}"),
            _ => assert_eq!(ops(&rewritten), vec!["Mul"; products], "{exponent}"),
        }
        // Powers beyond 64 bits overflow in either form.
        let most = if exponent == 64 { 1 } else { 3 };
        let input = [Tensor::i64(&[2, 3], [-2, -1, 0, 1, 2, 3].map(|x: i64| x.clamp(-most, most)).to_vec()).unwrap()];
        assert_eq!(rewritten.evaluate(&input).unwrap(), graph.evaluate(&input).unwrap(), "{exponent}");
    }
}
