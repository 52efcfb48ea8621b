//! Compiled networks compared with the reference.

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::operators::{self, Binary, Concat, ConvTranspose, Expand, Gather, MatMul, Reduce, Sliding};
use autotune_network::{Builder, Compiled, ConvLayer, DType, Fill, Graph, NodeId, Op, Seeded, Tensor, rewrite, zoo};
use autotune_schedules::portfolio::ShippedSet;
use autotune_schedules::winograd;
use autotune_workloads::{Activation, ReduceOp};

use crate::common::cases::for_cases;
use crate::common::graphs::{Net, brought};
use crate::common::random_graphs::random_graph;
use crate::common::rng;

/// Largest difference from the reference, relative to the largest element: the error of Winograd's
/// transforms and of other summation orders.
const TOLERANCE: f32 = 3e-4;

/// Runs a network twice in one workspace, on different inputs, and compares every output with the
/// reference.
fn check(graph: &Graph, threads: usize, seeds: [u64; 2], what: &str) {
    let target = Target::detect("cpu", Some(threads)).unwrap();
    let network = Compiled::new(graph, None, &target).unwrap();
    let mut workspace = network.workspace().unwrap();
    for seed in seeds {
        let inputs = brought(graph, &mut rng(seed));
        let found = workspace.run_tensors(&inputs).unwrap();
        let wanted = graph.evaluate(&inputs).unwrap();
        for (output, (found, wanted)) in graph.outputs().iter().zip(found.iter().zip(&wanted)) {
            assert_eq!(found.shape(), wanted.shape());
            let (found, wanted) = (found.to_numbers(), wanted.to_numbers());
            let finite = wanted.iter().filter(|x| x.is_finite());
            let scale = finite.fold(1e-3f32, |most, x| most.max(x.abs()));
            for (at, (&x, &y)) in found.iter().zip(&wanted).enumerate() {
                let is_near = x == y || x.is_nan() && y.is_nan() || (x - y).abs() / scale < TOLERANCE;
                assert!(is_near, "{} output {} at {at}: {x} for {y}, inputs {seed}\n{graph:#?}", what, output.name);
            }
        }
    }
}

#[test]
fn small_networks_of_the_zoo_compute_what_they_mean() {
    for name in ["dqn", "lstm"] {
        check(&zoo::graph(name).unwrap(), 2, [1, 2], name);
    }
}

/// Graphs before rewriting, with indices from inputs and from constants.
#[test]
fn negative_numbers_of_rows_count_from_the_end() {
    let table = Tensor::f32(&[5, 3], (0..15).map(|x| x as f32).collect()).unwrap();
    let numbers = Tensor::i64(&[2, 3], vec![-1, 0, 4, -5, 2, -2]).unwrap();
    let mut graph = Graph::new("rows");
    let (table, brought) = (graph.constant("table", table), graph.input("rows", DType::I64, &[2, 3]).unwrap());
    let known = graph.constant("known", numbers.clone());
    for (name, rows) in [("of_data", brought), ("of_constants", known)] {
        let found = graph.add(name, Gather { axis: 0 }, &[table, rows]).unwrap();
        graph.output(name, found);
    }
    let network = Compiled::new(&graph, None, &Target::detect("cpu", Some(1)).unwrap()).unwrap();
    let found = network.workspace().unwrap().run_tensors(std::slice::from_ref(&numbers)).unwrap();
    let rows = [4, 0, 4, 0, 2, 3].iter().flat_map(|row| (0..3).map(move |column| (3 * row + column) as f32));
    let rows: Vec<f32> = rows.collect();
    assert_eq!(found.iter().map(Tensor::to_numbers).collect::<Vec<_>>(), [rows.clone(), rows]);
}

/// Masks that are repeated for queries, heads or the whole batch, and one without a kernel.
#[test]
fn attention_with_masks_is_what_it_means() {
    let kernels = [(&[5][..], 1), (&[1, 1, 1, 5], 1), (&[5, 5], 1), (&[2, 1, 1, 5], 1), (&[2, 1, 5, 5], 1)];
    for (shape, wanted) in kernels.into_iter().chain([(&[2, 3, 1, 5][..], 1), (&[2, 3, 5, 5], 1), (&[3, 1, 5], 0)]) {
        let net = Builder::new("masked", Seeded { seed: 1 });
        let (x, mask) = (net.input("x", &[2, 5, 12]), net.input("mask", shape));
        net.output("y", x.self_attention("attention", 3, Some(mask)));
        let graph = net.finish().unwrap();
        check(&graph, 1, [1, 2], graph.name());
        let is_kernel = |work: &StepWork| matches!(work, StepWork::Kernel(of) if of.as_str().starts_with("attention:"));
        let kernels = Cut::of(&graph).steps.iter().filter(|step| is_kernel(&step.work)).count();
        assert_eq!(kernels, wanted, "{shape:?}");
    }
}

/// A scale and a shift for each channel after an activation are fused into the preceding step; a
/// gate for each channel is a single pass.
#[test]
fn channel_operations_after_an_activation_are_fused() {
    let net = Builder::new("affine", Seeded { seed: 1 });
    let hard_swish = Activation::new("hard_swish", &[]).unwrap();
    let (x, gate) = (net.input("x", &[1, 3, 9, 9]), net.input("gate", &[1, 16, 1, 1]));
    let [scale, shift] = ["scale", "shift"].map(|name| net.weight(name, &[16, 1, 1], Fill::deviation(1.0)));
    let y = x.conv("conv", ConvLayer::new(16, Sliding::new(3).pad(1)).bias()).activation(hard_swish) * scale + shift;
    net.output("gated", y * gate);
    let graph = net.finish().unwrap();
    check(&graph, 1, [1, 2], graph.name());

    let text = |work: &StepWork| if let StepWork::Kernel(of) = work { of.to_string() } else { String::new() };
    let steps: Vec<String> = Cut::of(&graph).steps.iter().map(|step| text(&step.work)).collect();
    let conv = "conv2d:n=1,c=3,h=9,w=9,o=16,k=3,s=1,p=1,bias,act=hard_swish,post_scale,post_bias";
    assert_eq!(steps, [conv, "pointwise:m=16,n=81,op=copy,channels=column,scale"]);
}

/// Channel counts that no block size divides, in plain and blocked layouts, partly with untuned
/// Winograd schedules.
#[test]
fn weights_may_come_with_every_run() {
    fn steps(op: impl Into<Op>, weights: &[usize]) -> Vec<StepWork> {
        let mut graph = Graph::new("weights");
        let x = graph.input("x", DType::F32, &[1, 6, 9, 7]).unwrap();
        let weights = graph.input("weights", DType::F32, weights).unwrap();
        let y = graph.add("y", op, &[x, weights]).unwrap();
        graph.output("y", y);
        check(&graph, 2, [1, 2], "weights");
        Cut::of(&graph).steps.into_iter().map(|step| step.work).collect()
    }

    let window = vec![Sliding::new(3).pad(1), Sliding::new(4).stride(2)];
    let conv = steps(operators::Conv { window: window.clone(), groups: 2 }, &[8, 3, 3, 4]);
    let is_kernel =
        |work: &StepWork| matches!(work, StepWork::Kernel(workload) if workload.as_str().contains(",weights=data"));
    assert!(matches!(&conv[..], [work] if is_kernel(work)), "{conv:?}");

    let transposed = steps(ConvTranspose { window, output_pad: vec![0, 0], groups: 1 }, &[6, 4, 3, 4]);
    assert!(matches!(&transposed[..], [work] if is_kernel(work)), "{transposed:?}");
}

/// Operands are not expanded in memory, and the operation is not split into steps.
#[test]
fn broadcast_products_and_sums_over_axes_that_lie_apart_are_one_kernel() {
    let steps = |graph: &Graph| {
        let text = |work: &StepWork| if let StepWork::Kernel(of) = work { of.to_string() } else { String::new() };
        Cut::of(&rewrite(graph).unwrap()).steps.iter().map(|step| text(&step.work)).collect::<Vec<_>>()
    };

    let product = |shapes: [&[usize]; 2], repeated: Option<&[usize]>| {
        let mut graph = Graph::new("product");
        let a = graph.input("a", DType::F32, shapes[0]).unwrap();
        let mut b = graph.input("b", DType::F32, shapes[1]).unwrap();
        if let Some(shape) = repeated {
            b = graph.add("repeated", Expand(shape.to_vec()), &[b]).unwrap();
        }
        let c = graph.add("c", MatMul, &[a, b]).unwrap();
        graph.output("c", c);
        graph
    };
    for (shapes, repeated, wanted) in [
        ([&[2, 3, 4, 5][..], &[2, 1, 5, 6]], None, "matmul:b=2,m=12,n=6,k=5"),
        ([&[2, 3, 4, 5], &[2, 1, 5, 6]], Some(&[2, 3, 5, 6][..]), "matmul:b=2,m=12,n=6,k=5"),
        ([&[4, 5], &[7, 5, 6]], None, "matmul:b=7,lhs=shared,m=4,n=6,k=5"),
        ([&[2, 1, 4, 5], &[3, 5, 6]], None, "matmul:b=2x3,lhs=0,rhs=1,m=4,n=6,k=5"),
    ] {
        let graph = product(shapes, repeated);
        assert_eq!(steps(&graph), [wanted]);
        check(&graph, 1, [1, 2], wanted);
    }

    let mut graph = Graph::new("sum");
    let x = graph.input("x", DType::F32, &[3, 4, 5, 6]).unwrap();
    let op = Reduce { op: ReduceOp::Sum, axes: vec![0, 2], keep_axes: false };
    let sum = graph.add("sum", op, &[x]).unwrap();
    graph.output("sum", sum);
    assert_eq!(steps(&graph), ["reduce:shape=3x4x5x6,axes=02,op=sum"]);
    check(&graph, 2, [1, 2], "sum");
}

#[test]
fn odd_numbers_of_channels_compute_what_they_mean() {
    let net = Builder::new("odd", Seeded { seed: 1 });
    let conv = |channels| ConvLayer::new(channels, Sliding::new(3).pad(1)).bias();
    let x = net.input("x", &[1, 96, 40, 36]).conv("in", conv(96)).relu();
    let narrow = x.conv("narrow", conv(24)).relu();
    let odd = narrow.conv("odd", conv(58)).conv("prime", conv(29)).relu();
    net.output("wide", odd.concat(&[narrow], 1).conv("wide", conv(64)));
    net.output("few", odd.conv("few", conv(3)));
    let graph = net.finish().unwrap();
    for threads in [1, 2] {
        check(&graph, threads, [1, 2], graph.name());
    }

    // With tile instructions, products are faster than those that Winograd's algorithm saves.
    let target = Target::detect("cpu:avx2", Some(1)).unwrap();
    if ShippedSet::of_target(&target).is_some() {
        let network = Compiled::new(&graph, None, &target).unwrap();
        let is_narrow = |tuned: &&autotune::Tuned| tuned.workload().as_str().contains("c=96,h=40,w=36,o=24,");
        let narrow = network.schedules().iter().find(is_narrow).unwrap();
        assert_eq!(narrow.config().sketch, winograd::SKETCH);
    }
}

/// Such images have the memory of images with one row, along which schedules have tiles.
#[test]
fn images_of_one_column_compute_what_they_mean() {
    let mut net = Net::new(1);
    let conv = |net: &mut Net, x, channels, rows: Sliding, stride| {
        let weights = net.random(&[32, channels, rows.kernel, 1]);
        let window = vec![rows.stride(stride), Sliding::new(1).stride(stride)];
        net.graph.add("conv", operators::Conv { window, groups: 1 }, &[x, weights]).unwrap()
    };
    let x = net.input(&[2, 16, 70, 1]);
    let y = conv(&mut net, x, 16, Sliding::new(5).pad(2), 1);
    let z = conv(&mut net, y, 32, Sliding::new(3).pad(1), 1);
    let sum = net.binary(Binary::Add, z, y);
    let out = conv(&mut net, sum, 32, Sliding::new(3), 2);
    net.output(out);

    check(&net.graph, 2, [1, 2], "column");
    let network = Compiled::new(&net.graph, None, &Target::detect("cpu", Some(1)).unwrap()).unwrap();
    let mut workloads = network.schedules().iter().map(|tuned| tuned.workload().as_str());
    assert!(workloads.any(|text| text.contains("h=1,w=70,o=32,kh=1,kw=5")));
}

/// Kernels are not marked as uncached if their constants stay cached, or if they have none.
#[test]
fn kernels_are_cold_whose_constants_the_caches_do_not_hold() {
    let colds = |hidden: usize| {
        let net = Builder::new("layers", Seeded { seed: 1 });
        let x = net.input("x", &[1, 256]);
        net.output("y", x.linear("first", hidden).relu().linear("second", 256).softmax());
        let steps = Cut::of(&net.finish().unwrap()).steps;
        let cold = |work: &StepWork| matches!(work, StepWork::Kernel(of) if of.is_cold());
        steps.iter().map(|step| cold(&step.work)).collect::<Vec<_>>()
    };
    assert_eq!(colds(500), [false, false, false]);
    assert_eq!(colds(512), [true, true, false]);
}

#[test]
fn random_graphs_compute_what_they_mean() {
    for_cases(30, |seed, choices| {
        let graph = random_graph(seed, 30, choices);
        // The graph must run on the inputs of its construction; with others, numbers could grow
        // without bound.
        check(&graph, 1 + seed as usize % 2, [seed, seed], &format!("seed {seed}:"));
        check(&rewrite(&graph).unwrap(), 1, [seed, seed], &format!("seed {seed}, rewritten:"));
    });
}

#[test]
fn parts_of_one_tensor_and_outputs_that_are_read_keep_their_elements() {
    let mut graph = Graph::new("parts");
    let x = graph.input("x", DType::F32, &[1, 32, 4, 4]).unwrap();
    fn add(graph: &mut Graph, op: impl Into<Op>, operands: &[NodeId]) -> NodeId {
        graph.add("node", op, operands).unwrap()
    }
    let twice = add(&mut graph, Binary::Add, &[x, x]);
    // One part twice, an input, and a tensor that is an output itself.
    let whole = add(&mut graph, Concat { axis: 1 }, &[twice, x, twice]);
    let square = add(&mut graph, Binary::Mul, &[whole, whole]);
    graph.output("x", x);
    graph.output("twice", twice);
    graph.output("square", square);
    graph.output("again", square);
    check(&graph, 2, [1, 2], "parts");
}
