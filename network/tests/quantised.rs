//! Quantised networks: in integers, in floating point, and by the reference.

use autotune_ir::Target;
use autotune_ir::program::UnaryOp;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::operators::{Binary, Conv, Dequantize, Map, MatMul, Pool, Quantize, Reshape, Sliding, Transpose};
use autotune_network::rewrite::rewrite_traced;
use autotune_network::{Checked, Compiled, DType, Graph, NodeId, Precision, Tensor, dequantised, rewrite};
use autotune_workloads::{Activation, Function, PoolKind, Workload};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

use crate::common::cases::for_cases;
use crate::long::or_long;

const BYTES: [DType; 2] = [DType::U8, DType::I8];

/// Bound of the slopes of GELU, tanh and SiLU.
const STEEPEST: f32 = 1.2;

/// A layer between quantised tensors.
struct Layer {
    graph: Graph,
    /// Largest change of its result if sums are halfway between two steps: the scale of the
    /// result, plus the scale before if the result is quantised twice.
    step: f32,
    /// Largest change of its sums if each data element moves by half a quantisation step.
    slack: f32,
}

fn whole_numbers(rng: &mut impl Rng, dtype: DType, shape: &[usize]) -> Tensor {
    let [least, most] = dtype.range().map(|end| end as i32);
    let numbers: Vec<f32> =
        (0..shape.iter().product::<usize>()).map(|_| rng.random_range(least..=most) as f32).collect();
    Tensor::of_numbers(shape, dtype, &numbers).unwrap()
}

fn vector(rng: &mut impl Rng, count: usize, range: std::ops::Range<f32>) -> Tensor {
    Tensor::f32(&[count], (0..count).map(|_| rng.random_range(range.clone())).collect()).unwrap()
}

/// Returns a zero point in the middle or at an end of a type's range, or a random one.
fn zero_point(rng: &mut impl Rng, dtype: DType) -> f32 {
    let [least, most] = dtype.range().map(|end| end as f32);
    [least, most, ((least + most) / 2.0).ceil(), rng.random_range(least..=most).round()].choose(rng).copied().unwrap()
}

/// Adds `Dequantize(Quantize(x))`.
fn rounded(graph: &mut Graph, name: &str, x: NodeId, dtype: DType, scale: f32, zero: f32) -> NodeId {
    let scale = graph.constant(format!("{name}_scale"), Tensor::scalar(scale));
    let zero = graph.constant(format!("{name}_zero"), Tensor::of_numbers(&[], dtype, &[zero]).unwrap());
    let q = graph.add(format!("{name}_q"), Quantize { dtype, axis: 0 }, &[x, scale, zero]).unwrap();
    graph.add(name, Dequantize { axis: 0 }, &[q, scale, zero]).unwrap()
}

/// Adds weights of a type with scales along an axis; their zero points may or may not permit i8.
fn weights(graph: &mut Graph, rng: &mut impl Rng, shape: &[usize], axis: usize) -> (NodeId, f32) {
    let dtype = *BYTES.choose(rng).unwrap();
    let count = if rng.random_bool(0.5) { shape[axis] } else { 1 };
    let middle = if dtype == DType::U8 { 128.0 } else { 0.0 };
    let zeros: Vec<f32> = match rng.random_bool(0.8) {
        true => vec![middle; count],
        false => (0..count).map(|_| zero_point(rng, dtype)).collect(),
    };
    let of = if count == 1 { vec![] } else { vec![count] };
    let scales = vector(rng, count, 0.005..0.02).to_numbers();
    let largest = scales.iter().copied().fold(0.0, f32::max);
    let scale = graph.constant("w_scale", Tensor::f32(&of, scales).unwrap());
    let zero = graph.constant("w_zero", Tensor::of_numbers(&of, dtype, &zeros).unwrap());
    let numbers = whole_numbers(rng, dtype, shape);
    let numbers = graph.constant("w", numbers);
    (graph.add("weights", Dequantize { axis }, &[numbers, scale, zero]).unwrap(), largest * 255.0)
}

/// Adds scales and shifts for each channel of a quantised tensor, with a quantisation in between.
/// Returns them with the shape of the shifts, the largest scale, and the step of the quantisation.
fn normalised(graph: &mut Graph, rng: &mut impl Rng) -> (NodeId, Vec<usize>, f32, f32) {
    let (shape, channels) = match rng.random_bool(0.5) {
        true => (vec![1, 5, 4, 3], vec![5, 1, 1]),
        false => (vec![6, 7], vec![7]),
    };
    let (dtype, middle) = (*BYTES.choose(rng).unwrap(), *BYTES.choose(rng).unwrap());
    let zeros = [dtype, middle].map(|dtype| zero_point(rng, dtype));
    let input = graph.input("x", DType::F32, &shape).unwrap();
    let x = rounded(graph, "x_dq", input, dtype, 0.03, zeros[0]);
    let count = channels.iter().product();
    let mut each = |range| Tensor::f32(&channels, vector(rng, count, range).to_numbers()).unwrap();
    let (by, plus) = (graph.constant("by", each(-1.5..1.5)), graph.constant("plus", each(-2.0..2.0)));

    let mut y = graph.add("scaled", Binary::Mul, &[x, by]).unwrap();
    let step = if rng.random_bool(0.5) { 0.05 } else { 0.0 };
    if step > 0.0 {
        y = rounded(graph, "between", y, middle, step, zeros[1]);
    }
    (graph.add("plus_each", Binary::Add, &[y, plus]).unwrap(), channels, 1.5, step)
}

/// Creates a convolution, a product or a normalisation between quantised tensors, with optional
/// operators after it.
fn layer(rng: &mut impl Rng) -> Layer {
    let mut graph = Graph::new("layer");
    let (x_type, y_type) = (*BYTES.choose(rng).unwrap(), *BYTES.choose(rng).unwrap());
    let (x_zero, y_zero) = (zero_point(rng, x_type), zero_point(rng, y_type));
    let (x_step, step) = (rng.random_range(0.01..0.05), rng.random_range(0.05..0.3));
    let kind = rng.random_range(0..10);

    let (sums, terms, largest, channels);
    let mut before = 0.0;
    if kind < 2 {
        (sums, channels, largest, before) = normalised(&mut graph, rng);
        terms = 1;
    } else if kind < 7 {
        let (groups, kernel) = (*[1, 1, 2, 4].choose(rng).unwrap(), rng.random_range(1..=3));
        let [of_group, out] = [rng.random_range(1..=9), rng.random_range(1..=9)];
        let shape = [rng.random_range(1..=2), groups * of_group, rng.random_range(5..=9), rng.random_range(5..=9)];
        let input = graph.input("x", DType::F32, &shape).unwrap();
        let x = rounded(&mut graph, "x_dq", input, x_type, x_step, x_zero);
        let (w, most) = weights(&mut graph, rng, &[groups * out, of_group, kernel, kernel], 0);
        let mut operands = vec![x, w];
        if rng.random_bool(0.6) {
            let bias = vector(rng, groups * out, -2.0..2.0);
            operands.push(graph.constant("bias", bias));
        }
        let mut sliding = || Sliding {
            kernel,
            stride: rng.random_range(1..=2),
            dilation: rng.random_range(1..=2),
            pad: [rng.random_range(0..=1), rng.random_range(0..=1)],
        };
        let window = vec![sliding(), sliding()];
        sums = graph.add("conv", Conv { window, groups }, &operands).unwrap();
        (terms, largest, channels) = (of_group * kernel * kernel, most, vec![groups * out, 1, 1]);
    } else {
        let [m, k, n] = [rng.random_range(1..=9), rng.random_range(1..=40), rng.random_range(1..=40)];
        let shape = if rng.random_bool(0.5) { vec![m, k] } else { vec![2, m, k] };
        let input = graph.input("x", DType::F32, &shape).unwrap();
        let x = rounded(&mut graph, "x_dq", input, x_type, x_step, x_zero);
        let is_transposed = rng.random_bool(0.4);
        let (mut w, most) = match is_transposed {
            true => weights(&mut graph, rng, &[n, k], 0),
            false => weights(&mut graph, rng, &[k, n], 1),
        };
        if is_transposed {
            w = graph.add("w_t", Transpose(vec![1, 0]), &[w]).unwrap();
        }
        sums = graph.add("product", MatMul, &[x, w]).unwrap();
        (terms, largest, channels) = (k, most, vec![n]);
    }

    let mut y = sums;
    if rng.random_bool(0.4) {
        let count: usize = channels.iter().product();
        let shift = Tensor::f32(&channels, vector(rng, count, -2.0..2.0).to_numbers()).unwrap();
        let shift = graph.constant("shift", shift);
        y = graph.add("shifted", Binary::Add, &[y, shift]).unwrap();
    }
    if rng.random_bool(0.3) {
        let shape = graph.node(y).shape.clone();
        if rng.random_bool(0.5) {
            // A sum between two steps may move the result by that step.
            let (inner, zero) = (rng.random_range(0.05..0.3), zero_point(rng, y_type));
            y = rounded(&mut graph, "addend", y, y_type, inner, zero);
            before += inner;
        }
        let (dtype, other) = (*BYTES.choose(rng).unwrap(), graph.input("other", DType::F32, &shape).unwrap());
        let other = rounded(&mut graph, "other_dq", other, dtype, 0.03, if dtype == DType::U8 { 100.0 } else { -28.0 });
        y = graph.add("sum", Binary::Add, &[y, other]).unwrap();
    }
    let clip = Activation::new("clip", &[-1.0, 4.5]).unwrap();
    let activations = [None, Some(Activation::Relu), Some(clip), Some(Activation::HardSwish)];
    if let Some(activation) = *activations.choose(rng).unwrap() {
        y = graph.add("act", Map(Function::Activation(activation)), &[y]).unwrap();
    }
    if let [_, _, height, width] = graph.node(y).shape[..]
        && rng.random_bool(0.3)
    {
        let kernel = height.min(width).min(2);
        let sliding = Sliding { kernel, stride: rng.random_range(1..=2), dilation: 1, pad: [kernel - 1, 0] };
        y = graph.add("pool", Pool { window: vec![sliding; 2], ceil: false, kind: PoolKind::Max }, &[y]).unwrap();
    }
    let mut y = rounded(&mut graph, "y", y, y_type, step, y_zero);
    let mut step = step + before;
    if rng.random_bool(0.4) {
        let (dtype, again) = (*BYTES.choose(rng).unwrap(), 0.15 * rng.random_range(0.7..3.0));
        let zero = zero_point(rng, dtype);
        if rng.random_bool(0.5) {
            let activation = *[Activation::Gelu, Activation::Tanh, Activation::Silu].choose(rng).unwrap();
            y = graph.add("function", Map(Function::Activation(activation)), &[y]).unwrap();
            step *= STEEPEST;
        }
        y = rounded(&mut graph, "again", y, dtype, again, zero);
        step += again;
    }
    graph.output("y", y);
    Layer { graph, step, slack: terms as f32 * largest * x_step / 2.0 + 0.05 }
}

fn inputs(graph: &Graph, rng: &mut impl Rng) -> Vec<Tensor> {
    let tensor = |&id: &NodeId| {
        let shape = &graph.node(id).shape;
        let count = shape.iter().product();
        Tensor::f32(shape, vector(rng, count, -3.0..3.0).to_numbers()).unwrap()
    };
    graph.inputs().iter().map(tensor).collect()
}

fn difference(a: &Tensor, b: &Tensor) -> f32 {
    a.to_numbers().iter().zip(b.to_numbers()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn workloads(graph: &Graph) -> Vec<Workload> {
    let steps = Cut::of(graph).steps.into_iter();
    steps.filter_map(|step| if let StepWork::Kernel(workload) = step.work { Some(workload) } else { None }).collect()
}

/// Results equal the reference's except for values halfway between two steps, which intermediate
/// rounding may move either way. Where quantised data saturate, float data are clamped.
#[test]
fn layers_compute_what_the_reference_does() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let [of_integers, rounded_twice, with_residuals, pools, looked_up] = [const { std::cell::Cell::new(0) }; 5];
    for_cases(or_long([80, 240]), |seed, rng| {
        let Layer { graph, step, slack } = layer(rng);
        let inputs = inputs(&graph, rng);
        let wanted = &graph.evaluate(&inputs).unwrap()[0];

        for precision in Precision::OF_CPUS {
            let (rewritten, trace) = rewrite_traced(&graph).unwrap();
            let rewritten = rewritten.with_precision(precision);
            let steps = workloads(&rewritten);
            let multiplies = |workload: &&Workload| workload.spec().is_contraction() && workload.dtype() == DType::U8;
            of_integers.set(of_integers.get() + steps.iter().filter(multiplies).count());
            let rounds = |workload: &&Workload| workload.epilogue().activation.rounds();
            let pools_bytes =
                |workload: &&Workload| workload.as_str().starts_with("pool2d") && BYTES.contains(&workload.dtype());
            pools.set(pools.get() + steps.iter().filter(pools_bytes).count());
            let adds = |workload: &&Workload| workload.epilogue().post_residual;
            with_residuals.set(with_residuals.get() + steps.iter().filter(adds).count());
            rounded_twice.set(rounded_twice.get() + steps.iter().filter(multiplies).filter(rounds).count());
            let looks_up = |workload: &&Workload| workload.epilogue().table;
            looked_up.set(looked_up.get() + steps.iter().filter(multiplies).filter(looks_up).count());
            let context = format!("seed {seed}, {precision}: {steps:?}");

            let by_rules = &rewritten.evaluate(&inputs).unwrap()[0];
            assert!(difference(by_rules, wanted) <= 1.01 * step, "{context}");
            let network = Compiled::new(&rewritten, None, &target).unwrap();
            let mut workspace = network.workspace().unwrap();
            let found = workspace.run_tensors(&inputs).unwrap().remove(0);
            let Checked { steps: checked, imported } = workspace.check(&inputs, &graph, &trace).unwrap();
            let wrong: Vec<_> = checked.iter().chain(&imported).filter(|step| !step.is_within_tolerance()).collect();
            assert!(wrong.is_empty(), "{context}: {wrong:?}");
            let is_exact = precision == Precision::F32 || steps.iter().all(|step| step.dtype() != DType::Bf16);
            let allowed = if is_exact { 1.01 * step } else { 2.0 * step + slack };
            assert!(difference(&found, wanted) <= allowed, "{context}: {}", difference(&found, wanted));
        }

        let numbers = rewrite(&dequantised(&graph).unwrap()).unwrap();
        assert!(!numbers.is_quantised() || graph.inputs().len() > 1, "seed {seed}");
        let network = Compiled::new(&numbers, None, &target).unwrap();
        let found = network.workspace().unwrap().run_tensors(&inputs).unwrap().remove(0);
        assert_eq!(found.shape(), wanted.shape(), "seed {seed}");
    });
    assert!(of_integers.get() > or_long([50, 150]), "{} layers of integers", of_integers.get());
    let least = or_long([1, 10]);
    assert!(rounded_twice.get() > least, "{} layers rounded twice", rounded_twice.get());
    assert!(with_residuals.get() > least, "{} layers with residuals", with_residuals.get());
    assert!(pools.get() > least, "{} pools of bytes", pools.get());
    assert!(looked_up.get() > least, "{} layers with tables", looked_up.get());
}

/// Returns a network of a random function of one quantised tensor, with roundings in between. All
/// scales are powers of two, so that only functions round.
fn function_of_bytes(rng: &mut impl Rng) -> Graph {
    let mut graph = Graph::new("function");
    let shape: Vec<usize> = (0..rng.random_range(0..=4)).map(|_| rng.random_range(1..=9)).collect();
    let input = graph.input("x", DType::F32, &shape).unwrap();
    let (dtype, zero) = random_type(rng);
    let mut x = rounded(&mut graph, "x_dq", input, dtype, BYTE_STEP, zero);
    if rng.random_bool(0.3) {
        x = graph.add("flat", Reshape(vec![shape.iter().product()]), &[x]).unwrap();
    }

    let mut y = x;
    for number in 0..rng.random_range(1..=8) {
        let functions = [UnaryOp::Erf, UnaryOp::Sigmoid, UnaryOp::Gelu, UnaryOp::Exp, UnaryOp::Log, UnaryOp::Sqrt];
        let operations = [Binary::Add, Binary::Mul, Binary::Div, Binary::Max, Binary::Pow];
        let (function, operation) = (*functions.choose(rng).unwrap(), *operations.choose(rng).unwrap());
        let name = format!("y{number}");
        let mut other = x;
        if rng.random_bool(0.6) {
            other = graph.constant(format!("c{number}"), Tensor::scalar(rng.random_range(-3.0..3.0)));
            let (dtype, zero) = random_type(rng);
            if rng.random_bool(0.5) {
                other = rounded(&mut graph, &format!("c{number}_dq"), other, dtype, BYTE_STEP, zero);
            }
        }
        y = match rng.random_range(0..5) {
            0 | 1 => graph.add(name, Map(Function::Op(function)), &[y]).unwrap(),
            2 | 3 => graph.add(name, operation, &[y, other]).unwrap(),
            _ => {
                let (dtype, zero) = random_type(rng);
                rounded(&mut graph, &name, y, dtype, BYTE_STEP, zero)
            }
        };
    }
    let y = graph.add("last", Map(Function::Activation(Activation::Tanh)), &[y]).unwrap();
    let (dtype, zero) = random_type(rng);
    let y = rounded(&mut graph, "y", y, dtype, BYTE_STEP / 8.0, zero);
    graph.output("y", y);
    graph
}

/// Scale of quantised tensors in [`function_of_bytes`].
const BYTE_STEP: f32 = 1.0 / 16.0;

/// Returns an 8-bit type with a zero point.
fn random_type(rng: &mut impl Rng) -> (DType, f32) {
    let dtype = *BYTES.choose(rng).unwrap();
    (dtype, zero_point(rng, dtype))
}

/// Any function of one quantised tensor is a table with the results of the graph as imported.
#[test]
fn functions_of_bytes_are_looked_up() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    for_cases(120, |seed, rng| {
        let graph = function_of_bytes(rng);
        let shape = &graph.node(graph.inputs()[0]).shape;
        let numbers = (0..shape.iter().product()).map(|_| BYTE_STEP * rng.random_range(-300..=300) as f32).collect();
        let inputs = [Tensor::f32(shape, numbers).unwrap()];
        let wanted = graph.evaluate(&inputs).unwrap();

        let rewritten = rewrite(&graph).unwrap();
        let steps = workloads(&rewritten);
        let tables = steps.iter().filter(|step| step.epilogue().table).count();
        // All other steps only convert elements.
        let copies = steps.iter().filter(|step| step.as_str().contains("op=copy")).count();
        assert_eq!((tables, copies), (1, steps.len()), "seed {seed}: {steps:?}");
        assert_eq!(rewritten.evaluate(&inputs).unwrap(), wanted, "seed {seed}: {steps:?}");
        let network = Compiled::new(&rewritten, None, &target).unwrap();
        assert_eq!(network.workspace().unwrap().run_tensors(&inputs).unwrap(), wanted, "seed {seed}: {steps:?}");
    });
}

/// Adds a layer whose result is rounded to steps of a power of two, with an even zero point.
fn exact_layer(graph: &mut Graph, rng: &mut impl Rng, x: NodeId, name: &str, out: usize) -> NodeId {
    let shape = graph.node(x).shape.clone();
    let is_image = shape.len() == 4;
    let of = if is_image { vec![out, shape[1], 1, 1] } else { vec![shape[1], out] };
    let numbers = whole_numbers(rng, DType::I8, &of);
    let numbers = graph.constant(format!("{name}_w"), numbers);
    let scale = graph.constant(format!("{name}_w_scale"), Tensor::scalar(2f32.powi(-7)));
    let zero = graph.constant(format!("{name}_w_zero"), Tensor::of_numbers(&[], DType::I8, &[0.0]).unwrap());
    let axis = usize::from(!is_image);
    let w = graph.add(format!("{name}_w_dq"), Dequantize { axis }, &[numbers, scale, zero]).unwrap();
    let window = vec![Sliding { kernel: 1, stride: 1, dilation: 1, pad: [0, 0] }; 2];

    let sums = match is_image {
        true => graph.add(name, Conv { window, groups: 1 }, &[x, w]).unwrap(),
        false => graph.add(name, MatMul, &[x, w]).unwrap(),
    };
    exactly_rounded(graph, rng, sums, name, -2..=1)
}

/// Adds `Dequantize(Quantize(x))` with a step of a power of two and an even zero point.
fn exactly_rounded(
    graph: &mut Graph,
    rng: &mut impl Rng,
    x: NodeId,
    name: &str,
    steps: std::ops::RangeInclusive<i32>,
) -> NodeId {
    let dtype = *BYTES.choose(rng).unwrap();
    let [least, most] = dtype.range().map(|end| end as i32 / 2);
    let zero = 2 * rng.random_range(least..=most);
    rounded(graph, &format!("{name}_rounded"), x, dtype, 2f32.powi(rng.random_range(steps)), zero as f32)
}

/// Adds a sum of a layer's rounded result and a rounded tensor, from another layer or an input,
/// with or without a ReLU that saturation replaces.
fn residual_block(rng: &mut impl Rng) -> Graph {
    let mut graph = Graph::new("block");
    let [rows, c, out] = [rng.random_range(1..=9), rng.random_range(4..=40), rng.random_range(1..=40)];
    let is_image = rng.random_bool(0.5);
    let shape = |channels| if is_image { vec![1, channels, rows, 5] } else { vec![rows, channels] };
    let x = graph.input("x", DType::F32, &shape(c)).unwrap();
    let x = exactly_rounded(&mut graph, rng, x, "x", -5..=-4);
    let sums = exact_layer(&mut graph, rng, x, "sums", out);
    let other = match rng.random_bool(0.3) {
        true => exact_layer(&mut graph, rng, x, "shortcut", out),
        false => {
            let other = graph.input("other", DType::F32, &shape(out)).unwrap();
            exactly_rounded(&mut graph, rng, other, "other", -5..=-4)
        }
    };

    let operands = if rng.random_bool(0.5) { [sums, other] } else { [other, sums] };
    let mut y = graph.add("sum", Binary::Add, &operands).unwrap();
    let is_clamped = rng.random_bool(0.5);
    if is_clamped {
        y = graph.add("relu", Map(Function::Activation(Activation::Relu)), &[y]).unwrap();
    }
    let dtype = *BYTES.choose(rng).unwrap();
    let zero = if is_clamped { dtype.range()[0] as f32 } else { 2.0 * f32::from(rng.random_range(0..=60u8)) };
    let y = rounded(&mut graph, "y", y, dtype, 2f32.powi(rng.random_range(-2..=1)), zero);
    graph.output("y", y);
    graph
}

/// With steps of powers of two nothing is rounded but what the file says, so that every bit is
/// known.
#[test]
fn residual_sums_are_the_references_to_the_last_bit() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    for_cases(or_long([40, 120]), |seed, rng| {
        let graph = residual_block(rng);
        let inputs = inputs(&graph, rng);
        let wanted = &graph.evaluate(&inputs).unwrap()[0];
        let rewritten = rewrite(&graph).unwrap();
        let steps = workloads(&rewritten);
        let adds = |workload: &Workload| workload.epilogue().post_residual && workload.spec().is_contraction();
        assert!(steps.iter().any(adds), "seed {seed}: {steps:?}");

        assert_eq!(&rewritten.evaluate(&inputs).unwrap()[0], wanted, "seed {seed}: {steps:?}");
        let network = Compiled::new(&rewritten, None, &target).unwrap();
        let found = network.workspace().unwrap().run_tensors(&inputs).unwrap();
        assert_eq!(&found[0], wanted, "seed {seed}: {steps:?}");
    });
}
