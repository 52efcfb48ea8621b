//! Operators compared with their definitions and hand-computed values; evaluation of graphs.

use autotune_graph::Operator;
use autotune_graph::operators::{
    Attention, Binary, Cast, Concat, Expand, Gather, LayerNorm, Map, MatMul, Not, Prelu, Range, Reduce, Reshape, Slice,
    Softmax, Transpose, Where,
};
use autotune_graph::{DType, EvaluateError, Graph, OpError, Tensor};
use autotune_workloads::{Activation, Function, ReduceOp};

use crate::common::{any, assert_near, at, indices, made, numbers, rng};

fn f32s(values: &[f32]) -> Tensor {
    Tensor::f32(&[values.len()], values.to_vec()).unwrap()
}

fn i64s(values: &[i64]) -> Tensor {
    Tensor::i64(&[values.len()], values.to_vec()).unwrap()
}

fn bools(values: &[bool]) -> Tensor {
    Cast(DType::Bool).evaluate(&[&i64s(&values.iter().map(|&x| x.into()).collect::<Vec<_>>())]).unwrap()
}

#[test]
fn products() {
    let mut rng = rng(1);
    let shapes: [(&[usize], &[usize], &[usize]); 9] = [
        (&[3, 4], &[4, 5], &[3, 5]),
        (&[1, 7], &[7, 19], &[1, 19]),
        (&[17, 1], &[1, 8], &[17, 8]),
        (&[4], &[4, 5], &[5]),
        (&[3, 4], &[4], &[3]),
        (&[4], &[4], &[]),
        (&[2, 1, 3, 4], &[5, 4, 9], &[2, 5, 3, 9]),
        (&[2, 3, 4], &[4], &[2, 3]),
        (&[4], &[2, 4, 3], &[2, 3]),
    ];
    for (a_shape, b_shape, shape) in shapes {
        let (a, b) = (numbers(&mut rng, a_shape), numbers(&mut rng, b_shape));
        let k = a_shape[a_shape.len() - 1] as i64;
        let (rows, columns) = (a_shape.len() > 1, b_shape.len() > 1);
        let wanted = made(shape, |out| {
            let batch = out.len() - usize::from(rows) - usize::from(columns);
            let own = |shape: &[usize]| -> Vec<i64> {
                let axes = shape.len().saturating_sub(2);
                let own = out[batch - axes..batch].iter().zip(shape);
                own.map(|(&i, &extent)| if extent == 1 { 0 } else { i }).collect()
            };
            let row: Vec<i64> = if rows { out[batch..=batch].to_vec() } else { vec![] };
            let column: Vec<i64> = if columns { out[out.len() - 1..].to_vec() } else { vec![] };
            let of = |k| {
                let a = at(&a, &[&own(a_shape)[..], &row, &[k]].concat()).unwrap();
                a * at(&b, &[&own(b_shape)[..], &[k], &column].concat()).unwrap()
            };
            (0..k).map(of).sum()
        });
        assert_near(&MatMul.evaluate(&[&a, &b]).unwrap(), &wanted, &format!("{a_shape:?} by {b_shape:?}"));
    }

    let nothing = MatMul.evaluate(&[&numbers(&mut rng, &[2, 0]), &numbers(&mut rng, &[0, 3])]);
    assert_eq!(nothing, Tensor::f32(&[2, 3], vec![0.0; 6]));
}

#[test]
fn attention() {
    let mut rng = rng(2);
    for (m, n, d, e) in [(3, 5, 4, 2), (1, 9, 1, 8), (4, 1, 3, 3)] {
        let (q, k) = (numbers(&mut rng, &[2, 3, m, d]), numbers(&mut rng, &[2, 3, n, d]));
        let (v, added) = (numbers(&mut rng, &[2, 3, n, e]), numbers(&mut rng, &[3, 1, n]));
        let chosen = bools(&(0..m * n).map(|i| i % n == 0 || i % 3 > 0).collect::<Vec<_>>());
        let chosen = Reshape(vec![m, n]).evaluate(&[&chosen]).unwrap();

        for mask in [None, Some(&added), Some(&chosen)] {
            let wanted = made(&[2, 3, m, e], |out| {
                let score = |key: i64| {
                    let of =
                        |i| at(&q, &[out[0], out[1], out[2], i]).unwrap() * at(&k, &[out[0], out[1], key, i]).unwrap();
                    let score: f64 = (0..d as i64).map(of).sum::<f64>() * 0.5;
                    match mask {
                        Some(Tensor::Bool(mask)) if !mask[[out[2] as usize, key as usize]] => f64::NEG_INFINITY,
                        Some(mask @ Tensor::F32(_)) => score + at(mask, &[out[1], 0, key]).unwrap(),
                        _ => score,
                    }
                };
                let weights: Vec<f64> = (0..n as i64).map(|key| score(key).exp()).collect();
                let value = |key: usize| at(&v, &[out[0], out[1], key as i64, out[3]]).unwrap();
                let sum: f64 = weights.iter().enumerate().map(|(key, weight)| weight * value(key)).sum();
                sum / weights.iter().sum::<f64>()
            });
            let operands: Vec<&Tensor> = [&q, &k, &v].into_iter().chain(mask).collect();
            assert_near(&Attention { scale: 0.5 }.evaluate(&operands).unwrap(), &wanted, "attention");
        }
    }
}

#[test]
fn broadcast_operations() {
    let mut rng = rng(3);
    for _ in 0..60 {
        // Two shapes, with some extents of 1 and some missing leading axes.
        let whole: Vec<usize> = (0..any(&mut rng, 0..=4)).map(|_| any(&mut rng, 1..=4)).collect();
        let mut part = || -> Vec<usize> {
            let first = any(&mut rng, 0..=whole.len());
            whole[first..].iter().map(|&extent| if any(&mut rng, 0..=2) == 0 { 1 } else { extent }).collect()
        };
        let (a_shape, b_shape) = (part(), part());
        let (a, b) = (numbers(&mut rng, &a_shape), numbers(&mut rng, &b_shape));
        let found = Binary::Sub.evaluate(&[&a, &b]).unwrap();
        let of = |x: &Tensor, out: &[i64]| {
            let own = out[out.len() - x.shape().len()..].iter().zip(x.shape());
            at(x, &own.map(|(&i, &extent)| i.min(extent as i64 - 1)).collect::<Vec<_>>()).unwrap()
        };
        let wanted = made(found.shape(), |out| of(&a, out) - of(&b, out));
        assert_near(&found, &wanted, &format!("{a_shape:?} and {b_shape:?}"));

        let choice = Binary::Less.evaluate(&[&a, &b]).unwrap();
        let smaller = Where.evaluate(&[&choice, &a, &b]).unwrap();
        assert_eq!(smaller, Binary::Min.evaluate(&[&a, &b]).unwrap());

        let slopes = made(a.shape(), |out| if at(&a, out).unwrap() < 0.0 { 0.5 } else { 1.0 });
        let bent = Binary::Mul.evaluate(&[&a, &slopes]);
        assert_eq!(Prelu.evaluate(&[&a, &Tensor::scalar(0.5)]), bent);
    }
}

#[test]
fn special_numbers() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let binary = |op: Binary, a: &[f32], b: &[f32]| op.evaluate(&[&f32s(a), &f32s(b)]).unwrap();
    let max = binary(Binary::Max, &[nan, 1.0, -inf, 2.0], &[1.0, nan, 3.0, -2.0]);
    assert_near(&max, &f32s(&[nan, nan, 3.0, 2.0]), "max");
    let min = binary(Binary::Min, &[nan, 1.0, -inf, 2.0], &[1.0, nan, 3.0, -2.0]);
    assert_near(&min, &f32s(&[nan, nan, -inf, -2.0]), "min");
    let pow = binary(Binary::Pow, &[2.0, -2.0, -8.0, 0.0, 9.0], &[10.0, 3.0, 0.5, 0.0, 0.5]);
    assert_near(&pow, &f32s(&[1024.0, -8.0, nan, 1.0, 3.0]), "pow");
    assert_near(&binary(Binary::Div, &[1.0, -1.0, 0.0], &[0.0; 3]), &f32s(&[inf, -inf, nan]), "div");
    assert_eq!(binary(Binary::Equal, &[nan, 0.0, inf], &[nan, -0.0, inf]), bools(&[false, true, true]));

    let of = |op, x: &[f32]| Reduce { op, axes: vec![0], keep_axes: false }.evaluate(&[&f32s(x)]).unwrap();
    assert_near(&of(ReduceOp::Max, &[1.0, nan, 2.0]), &Tensor::scalar(nan), "largest");
    assert_near(&of(ReduceOp::Min, &[nan, 1.0, 2.0]), &Tensor::scalar(nan), "smallest");

    let softmax = Softmax { axis: 0, log: false }.evaluate(&[&f32s(&[-inf, 1000.0, 1000.0])]).unwrap();
    assert_near(&softmax, &f32s(&[0.0, 0.5, 0.5]), "softmax");
    let casts = Cast(DType::I64).evaluate(&[&f32s(&[1.9, -1.9, nan, inf])]);
    assert_eq!(casts, Ok(i64s(&[1, -1, 0, i64::MAX])));
    assert_eq!(Cast(DType::Bool).evaluate(&[&f32s(&[0.0, -0.0, 0.1, nan])]), Ok(bools(&[false, false, true, true])));
    assert_eq!(Cast(DType::F32).evaluate(&[&bools(&[true, false])]), Ok(f32s(&[1.0, 0.0])));
}

#[test]
fn integers() {
    let binary = |op: Binary, a: &[i64], b: &[i64]| op.evaluate(&[&i64s(a), &i64s(b)]);
    assert_eq!(binary(Binary::Div, &[7, -7, 7, i64::MIN], &[2, 2, -2, -1]), Ok(i64s(&[3, -3, -3, i64::MIN])));
    assert!(matches!(binary(Binary::Div, &[1, 2], &[1, 0]), Err(OpError::Unfit(_))));
    assert_eq!(binary(Binary::Add, &[i64::MAX], &[1]), Ok(i64s(&[i64::MIN])));
    assert_eq!(binary(Binary::Mul, &[i64::MAX, -3], &[2, 5]), Ok(i64s(&[-2, -15])));
    assert_eq!(binary(Binary::Pow, &[-3, 2, 2, -1, 0], &[3, 0, -1, -3, 2]), Ok(i64s(&[-27, 1, 0, -1, 0])));
    assert_eq!(binary(Binary::Max, &[1, -5], &[-2, 3]), Ok(i64s(&[1, 3])));
    assert_eq!(binary(Binary::Less, &[1, 2], &[2, 2]), Ok(bools(&[true, false])));
    assert_eq!(binary(Binary::Equal, &[1, 2], &[2, 2]), Ok(bools(&[false, true])));

    let map = |function, x: &[i64]| Map(function).evaluate(&[&i64s(x)]);
    let large = (1 << 60) + 1;
    assert_eq!(map(Function::Activation(Activation::Relu), &[-3, large]), Ok(i64s(&[0, large])));
    use autotune_ir::program::UnaryOp;
    assert_eq!(map(Function::Op(UnaryOp::Neg), &[i64::MIN, large]), Ok(i64s(&[i64::MIN, -large])));
    assert_eq!(map(Function::Op(UnaryOp::Abs), &[-large, 3]), Ok(i64s(&[large, 3])));
    assert_eq!(map(Function::Op(UnaryOp::Sqrt), &[10, 16]), Ok(i64s(&[3, 4])));

    let reduce = |op| Reduce { op, axes: vec![0], keep_axes: true }.evaluate(&[&i64s(&[-2, 3, -6])]);
    let all =
        [(ReduceOp::Sum, -5), (ReduceOp::Prod, 36), (ReduceOp::Max, 3), (ReduceOp::Min, -6), (ReduceOp::Mean, -1)];
    for (op, wanted) in all {
        assert_eq!(reduce(op), Ok(i64s(&[wanted])), "{op:?}");
    }
    assert_eq!(Not.evaluate(&[&bools(&[true, false])]), Ok(bools(&[false, true])));
    let and = Binary::And.evaluate(&[&bools(&[true, true, false]), &bools(&[true, false, false])]);
    assert_eq!(and, Ok(bools(&[true, false, false])));
}

#[test]
fn functions() {
    // Values are from tables and identities, not from the code's formulas.
    let gelu_of_one = 0.841_344_8;
    let cases = [
        ("relu", &[][..], &[(-1.0, 0.0), (2.0, 2.0)][..]),
        ("clip", &[-1.0, 2.0], &[(-3.0, -1.0), (0.5, 0.5), (9.0, 2.0)]),
        ("round", &[-3.0, 2.25], &[(0.5, 0.0), (1.5, 2.0), (-2.5, -2.0), (-9.0, -3.0), (9.0, 2.0)]),
        ("leaky_relu", &[0.1], &[(-2.0, -0.2), (2.0, 2.0)]),
        ("sigmoid", &[], &[(0.0, 0.5), (3f32.ln(), 0.75), (-(3f32.ln()), 0.25), (-200.0, 0.0)]),
        ("tanh", &[], &[(0.0, 0.0), (3f32.ln() / 2.0, 0.5), (99.0, 1.0)]),
        ("hard_sigmoid", &[0.2, 0.5], &[(-3.0, 0.0), (1.0, 0.7), (3.0, 1.0)]),
        ("hard_swish", &[], &[(-3.0, 0.0), (-1.0, -1.0 / 3.0), (1.0, 2.0 / 3.0), (4.0, 4.0)]),
        ("silu", &[], &[(0.0, 0.0), (3f32.ln(), 0.75 * 3f32.ln())]),
        ("gelu", &[], &[(0.0, 0.0), (1.0, gelu_of_one), (-1.0, gelu_of_one - 1.0), (-8.0, -4.976_76e-15)]),
        ("gelu_tanh", &[], &[(0.0, 0.0), (1.0, 0.841_192), (-1.0, -0.158_808), (10.0, 10.0)]),
    ];
    for (word, parameters, values) in cases {
        let function = Function::Activation(Activation::new(word, parameters).unwrap());
        let (x, y): (Vec<f32>, Vec<f32>) = values.iter().copied().unzip();
        assert_near(&Map(function).evaluate(&[&f32s(&x)]).unwrap(), &f32s(&y), word);
    }
    let relu = Map(Function::Activation(Activation::Relu));
    assert_near(&relu.evaluate(&[&f32s(&[f32::NAN])]).unwrap(), &f32s(&[f32::NAN]), "not a number");
}

#[test]
fn reductions_and_rows() {
    let mut rng = rng(4);
    let shape = [2, 3, 4, 2];
    let x = numbers(&mut rng, &shape);
    for axes in [vec![], vec![0], vec![1, 3], vec![2], vec![0, 1, 2, 3]] {
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod, ReduceOp::Mean] {
            let kept: Vec<usize> = (0..4).map(|axis| if axes.contains(&axis) { 1 } else { shape[axis] }).collect();
            let of = |out: &[i64]| {
                let is_of = |i: &Vec<usize>| (0..4).all(|axis| axes.contains(&axis) || i[axis] as i64 == out[axis]);
                let all = indices(&shape).into_iter().filter(is_of);
                let all: Vec<f64> = all.map(|i| f64::from(x.as_f32().unwrap()[&i[..]])).collect();
                match op {
                    ReduceOp::Sum => all.iter().sum(),
                    ReduceOp::Mean => all.iter().sum::<f64>() / all.len() as f64,
                    ReduceOp::Prod => all.iter().product(),
                    ReduceOp::Max => all.iter().copied().fold(f64::MIN, f64::max),
                    ReduceOp::Min => all.iter().copied().fold(f64::MAX, f64::min),
                }
            };
            let wanted = made(&kept, of);
            let found = Reduce { op, axes: axes.clone(), keep_axes: true }.evaluate(&[&x]).unwrap();
            assert_near(&found, &wanted, &format!("{op:?} over {axes:?}"));
            let bare = Reduce { op, axes: axes.clone(), keep_axes: false }.evaluate(&[&x]).unwrap();
            assert_eq!(Reshape(bare.shape().to_vec()).evaluate(&[&found]), Ok(bare));
        }
    }

    for axis in 0..4 {
        let total = |i: &[i64]| {
            let on = |k: i64| [&i[..axis], &[k], &i[axis + 1..]].concat();
            (0..shape[axis] as i64).map(|k| at(&x, &on(k)).unwrap().exp()).sum::<f64>()
        };
        let wanted = made(&shape, |i| at(&x, i).unwrap().exp() / total(i));
        assert_near(&Softmax { axis, log: false }.evaluate(&[&x]).unwrap(), &wanted, "softmax");
        let wanted = made(&shape, |i| at(&x, i).unwrap() - total(i).ln());
        assert_near(&Softmax { axis, log: true }.evaluate(&[&x]).unwrap(), &wanted, "its logarithm");

        let (scale, bias) = (numbers(&mut rng, &shape[axis..]), numbers(&mut rng, &shape[axis..]));
        let wanted = made(&shape, |i| {
            let row = indices(&shape[axis..]).into_iter();
            let row = row.map(|k| k.into_iter().map(|k| k as i64).collect::<Vec<_>>());
            let row: Vec<f64> = row.map(|k| at(&x, &[&i[..axis], &k].concat()).unwrap()).collect();
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            let variance = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64 - mean * mean;
            (at(&x, i).unwrap() - mean) / (variance + 0.125).sqrt() * at(&scale, &i[axis..]).unwrap()
        });
        let op = LayerNorm { axis, eps: 0.125 };
        let found = op.evaluate(&[&x, &scale]).unwrap();
        assert_near(&found, &wanted, "layer normalisation");
        let shifted = Binary::Add.evaluate(&[&wanted, &bias]).unwrap();
        assert_near(&op.evaluate(&[&x, &scale, &bias]).unwrap(), &shifted, "with a bias");
    }
}

#[test]
fn moved_elements() {
    let mut rng = rng(5);
    let x = numbers(&mut rng, &[2, 3, 4]);
    let moved = Transpose(vec![2, 0, 1]).evaluate(&[&x]).unwrap();
    assert_eq!(moved, made(&[4, 2, 3], |i| at(&x, &[i[1], i[2], i[0]]).unwrap()));

    let range = |start, step, count| Range { start, step, count };
    let slice = Slice(vec![range(1, -1, 2), range(0, 2, 2), range(3, -2, 2)]).evaluate(&[&x]).unwrap();
    assert_eq!(slice, made(&[2, 2, 2], |i| at(&x, &[1 - i[0], 2 * i[1], 3 - 2 * i[2]]).unwrap()));

    let column = numbers(&mut rng, &[3, 1]);
    let wide = Expand(vec![2, 3, 4]).evaluate(&[&column]).unwrap();
    assert_eq!(wide, made(&[2, 3, 4], |i| at(&column, &[i[1], 0]).unwrap()));

    let other = numbers(&mut rng, &[2, 1, 4]);
    let nothing = numbers(&mut rng, &[2, 0, 4]);
    let both = Concat { axis: 1 }.evaluate(&[&x, &nothing, &other]).unwrap();
    let of = |i: &[i64]| at(&x, i).or_else(|| at(&other, &[i[0], i[1] - 3, i[2]])).unwrap();
    assert_eq!(both, made(&[2, 4, 4], of));

    let rows = Tensor::i64(&[2, 2], vec![0, -1, 2, 1]).unwrap();
    let gathered = Gather { axis: 1 }.evaluate(&[&x, &rows]).unwrap();
    let number = |i: &[i64]| [[0, 2], [2, 1]][i[1] as usize][i[2] as usize];
    assert_eq!(gathered, made(&[2, 2, 2, 4], |i| at(&x, &[i[0], number(i), i[3]]).unwrap()));
    for wrong in [3, -4, i64::MAX, i64::MIN] {
        let refused = Gather { axis: 1 }.evaluate(&[&x, &i64s(&[wrong])]);
        assert!(matches!(refused, Err(OpError::Unfit(_))), "{wrong}");
    }

    // Other element types.
    let pick = Slice(vec![range(2, -1, 2)]);
    assert_eq!(pick.evaluate(&[&i64s(&[5, 6, 7])]), Ok(i64s(&[7, 6])));
    assert_eq!(pick.evaluate(&[&bools(&[true, false, true])]), Ok(bools(&[true, false])));
    assert_eq!(Where.evaluate(&[&bools(&[true, false]), &i64s(&[1, 2]), &i64s(&[3])]), Ok(i64s(&[1, 3])));
}

#[test]
fn tensors_without_elements() {
    let huge = 1 << 60;
    let x = Tensor::f32(&[0, huge], vec![]).unwrap();
    let turned = Tensor::f32(&[huge, 0], vec![]).unwrap();
    assert_eq!(Transpose(vec![1, 0]).evaluate(&[&x]), Ok(turned.clone()));
    assert_eq!(Binary::Add.evaluate(&[&x, &Tensor::scalar(1.0)]), Ok(x.clone()));
    assert_eq!(Softmax { axis: 0, log: false }.evaluate(&[&turned]), Ok(turned.clone()));
    assert_eq!(Concat { axis: 0 }.evaluate(&[&turned, &turned]).unwrap().shape(), [huge * 2, 0]);
    assert_eq!(Cast(DType::I64).evaluate(&[&x]).unwrap().dtype(), DType::I64);
    assert!(matches!(Gather { axis: 0 }.evaluate(&[&x, &i64s(&[0])]), Err(OpError::TooLarge { .. })));
}

#[test]
fn graphs() {
    let mut graph = Graph::new("graph");
    let x = graph.input("x", DType::F32, &[2]).unwrap();
    let two = graph.constant("two", Tensor::scalar(2.0));
    let y = graph.add("y", Binary::Mul, &[x, two]).unwrap();
    let z = graph.add("z", Binary::Mul, &[y, y]).unwrap();
    let unused = graph.add("unused", Binary::Sub, &[z, y]).unwrap();
    graph.output("z", z);
    graph.output("x", x);
    graph.output("again", z);

    let brought = f32s(&[1.0, 3.0]);
    let mut seen = Vec::new();
    let found =
        graph.evaluate_each(std::slice::from_ref(&brought), |id, tensor| seen.push((id, tensor.clone()))).unwrap();
    assert_eq!(found, [f32s(&[4.0, 36.0]), brought.clone(), f32s(&[4.0, 36.0])]);
    assert_eq!(seen.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [x, two, y, z, unused]);
    assert_eq!(seen[4].1, f32s(&[2.0, 30.0]));

    assert_eq!(graph.evaluate(&[]), Err(EvaluateError::Count { found: 0, wanted: 1 }));
    let wrong = graph.evaluate(&[i64s(&[1, 2])]).unwrap_err();
    assert_eq!(wrong.to_string(), "input 'x' is i64[2], expected f32[2]");

    let numbers = graph.input("numbers", DType::I64, &[1]).unwrap();
    let row = graph.add("row", Gather { axis: 0 }, &[x, numbers]).unwrap();
    graph.output("row", row);
    let wrong = graph.evaluate(&[brought, i64s(&[7])]).unwrap_err();
    assert_eq!(wrong.to_string(), "node 'row' (Gather): index 7 is out of range for extent 2 of axis 0");
}
