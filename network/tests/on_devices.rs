//! Networks on an OpenCL device (the first one, PoCL for example), compared with the reference. The
//! tests are skipped with a message if there is none; `AUTOTUNE_REQUIRE=opencl` makes that a
//! failure.

use autotune_ir::Target;
use autotune_network::operators::{CumSum, Expand, Range, Slice, Sliding};
use autotune_network::rewrite::rewrite_traced;
use autotune_network::{
    Builder, CompileError, Compiled, ConvLayer, DType, Fill, Graph, Seeded, StepError, Tensor, zoo,
};
use autotune_runtime::{OpenClDevice, opencl};
use autotune_workloads::PoolKind;

use crate::common::graphs::brought;
use crate::common::random_graphs::random_graph;
use crate::common::{numbers, rng};
use crate::long::or_long;

/// Returns this machine's OpenCL device.
pub(crate) fn target() -> Option<Target> {
    match opencl::devices() {
        Ok(devices) => Some(Target::Gpu(devices[0].target.clone())),
        Err(reason) => {
            let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
            assert!(required.split(',').all(|name| name != "opencl"), "opencl is required: {reason}");
            eprintln!("skipped, opencl is missing: {reason}");
            None
        }
    }
}

/// Runs a network twice and compares every step with the reference.
fn check(imported: &Graph, target: &Target) {
    let (graph, trace) = rewrite_traced(imported).unwrap();
    let network = Compiled::<OpenClDevice>::on_device(&graph, None, target).unwrap();
    let mut workspace = network.workspace().unwrap();
    for seed in 0..2 {
        let node = |&id| numbers(&mut rng(seed), &graph.node(id).shape);
        let inputs: Vec<Tensor> = graph.inputs().iter().map(node).collect();
        let found = workspace.run_tensors(&inputs).unwrap();
        let checked = workspace.check(&inputs, imported, &trace).unwrap();
        let steps = checked.steps.iter().chain(&checked.imported);
        let wrong: Vec<_> = steps.filter(|step| !step.is_within_tolerance()).collect();
        assert!(wrong.is_empty() && !checked.steps.is_empty(), "{}: {wrong:?}", graph.name());

        // Running the steps one by one gives the same as a whole run.
        assert_eq!(workspace.run_tensors(&inputs).unwrap(), found, "{}", graph.name());
    }
    assert!(workspace.run_secs(3).unwrap() > 0.0);
    assert!(workspace.profile(1).unwrap().len() >= network.schedules().len());
}

fn images() -> Graph {
    let net = Builder::new("images", Seeded { seed: 1 });
    let image = net.input("image", &[1, 3, 32, 32]);
    let window = |k: usize| Sliding::new(k).pad(k / 2);
    let x = image.conv("first", ConvLayer::new(16, window(3).stride(2))).batch_norm("bn").relu();
    let y = x.conv("narrow", ConvLayer::new(8, window(1)).bias()).relu();
    let z = x.conv("each", ConvLayer::new(16, window(3)).groups(16)).batch_norm("bn2").relu();
    let both = y.concat(&[z], 1).conv("both", ConvLayer::new(16, window(3)));
    let sum = (both + x).relu().pool(PoolKind::Max, Sliding::new(2).stride(2));
    // Two parts are copied into one tensor, since the caller also reads them.
    let (given, row) = (net.input("given", &[1, 4, 8, 8]), net.weight("row", &[1, 16, 8, 8], Fill::deviation(1.0)));
    net.output("joined", given.concat(&[sum, row], 1).relu());
    net.output("sum", sum);
    net.output("logits", sum.global_average_pool().linear("fc", 10).softmax());
    net.finish().unwrap()
}

fn words() -> Graph {
    let net = Builder::new("words", Seeded { seed: 2 });
    let x = net.input("tokens", &[2, 7, 24]);
    let y = (x.self_attention("attention", 3, None) + x).layer_norm("norm", 1e-5);
    let z = y.linear("wide", 48).relu().linear("narrow", 24) + y;
    net.output("out", z.layer_norm("last", 1e-5));
    net.finish().unwrap()
}

#[test]
fn networks_compute_what_the_reference_does() {
    let Some(target) = target() else { return };
    for graph in [images(), words(), zoo::graph("dqn").unwrap()] {
        check(&graph, &target);
    }
}

/// Random graphs of every kind of operator.
#[test]
fn random_networks_are_right() {
    let Some(target) = target() else { return };
    for seed in 0..or_long([3, 60]) {
        let graph = random_graph(seed, 6 + seed as usize % 12, &mut rng(seed));
        let (rewritten, trace) = rewrite_traced(&graph).unwrap();
        let mut workspace =
            Compiled::<OpenClDevice>::on_device(&rewritten, None, &target).unwrap().workspace().unwrap();
        let checked = workspace.check(&brought(&graph, &mut rng(seed)), &graph, &trace).unwrap();
        let all = checked.steps.iter().chain(&checked.imported);
        let wrong: Vec<&StepError> = all.filter(|step| !step.is_within_tolerance()).collect();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
}

/// Two workspaces of a network, and of one compiled from it, have separate memory.
#[test]
fn workspaces_share_a_network() {
    let Some(target) = target() else { return };
    let graph = autotune_network::rewrite(&images()).unwrap();
    let network = Compiled::<OpenClDevice>::on_device(&graph, None, &target).unwrap();
    let beside = network.untuned_sharing(&target).unwrap();
    let mut workspaces = [network.workspace(), network.workspace(), beside.workspace()].map(Result::unwrap);
    let inputs = |seed| [[1, 3, 32, 32], [1, 4, 8, 8]].map(|shape| numbers(&mut rng(seed), &shape));
    for _ in 0..2 {
        for (seed, workspace) in workspaces.iter_mut().enumerate() {
            let found = workspace.run_tensors(&inputs(seed as u64)).unwrap().swap_remove(2);
            let wanted = graph.evaluate(&inputs(seed as u64)).unwrap().swap_remove(2);
            let far = found.to_numbers().iter().zip(wanted.to_numbers()).any(|(a, b)| (a - b).abs() > 1e-5);
            assert!(!far, "{found:?} {wanted:?}");
        }
    }
}

/// Slices, flips, transpositions, repetitions and concatenations, with extents that share no factor
/// with a thread block, some of them larger than a grid.
#[test]
fn elements_are_copied_between_any_positions() {
    let Some(target) = target() else { return };
    for (seed, shape) in [[3, 5, 7, 1], [2, 1, 9, 33], [30, 11, 70, 3]].into_iter().enumerate() {
        let net = Builder::new("moves", Seeded { seed: seed as u64 });
        let (x, fixed) = (net.input("x", &shape), net.weight("fixed", &shape, Fill::deviation(1.0)));
        let back = |axis: usize| Range { start: shape[axis] - 1, step: -1, count: shape[axis] };
        let whole = |axis: usize| Range { start: 0, step: 1, count: shape[axis] };
        let flip = [back(0), whole(1), back(2), whole(3)];
        net.output("columns", x.slice(2, 1..shape[2] - 1));
        net.output("flipped", x.op(Slice(flip.to_vec()), &[]));
        net.output("odd", x.slice(1, 0..1).transpose(&[2, 0, 3, 1]));
        net.output("turned", x.transpose(&[3, 1, 0, 2]).relu());
        net.output("often", x.op(Expand([&[2][..], &shape].concat()), &[]));
        for axis in 0..4 {
            net.output(&format!("joined{axis}"), x.concat(&[fixed, x.relu()], axis));
        }
        check(&net.finish().unwrap(), &target);
    }
}

/// Kernels that read and write parts of tensors at offsets of 12 bytes and others.
#[test]
fn parts_may_begin_anywhere() {
    let Some(target) = target() else { return };
    let net = Builder::new("parts", Seeded { seed: 1 });
    let (x, y, z) = (net.input("x", &[1, 3]), net.input("y", &[1, 5]), net.input("z", &[9, 7]));
    net.output("both", x.relu().concat(&[y.relu()], 1).linear("fc", 8));
    net.output("rows", z.slice(0, 1..8).linear("rows", 3).softmax());
    net.output("sum", (z.slice(0, 3..5) + z.slice(0, 5..7)).concat(&[z.slice(0, 7..9).relu()], 0));
    let graph = net.finish().unwrap();
    let (rewritten, _) = rewrite_traced(&graph).unwrap();
    check(&graph, &target);

    // The copies are conversions of the plan, not steps.
    let network = Compiled::<OpenClDevice>::on_device(&rewritten, None, &target).unwrap();
    let times = network.workspace().unwrap().profile(1).unwrap();
    assert!(times.iter().any(|step| step.is_conversion && step.kernel.is_none()), "{times:?}");
}

#[test]
fn a_step_without_a_kernel_is_named() {
    let Some(target) = target() else { return };
    let mut graph = Graph::new("sums");
    let x = graph.input("x", DType::F32, &[3, 5]).unwrap();
    let sums = graph.add("sums", CumSum { axis: 1, exclusive: false, reverse: false }, &[x]).unwrap();
    graph.output("sums", sums);
    let network = Compiled::<OpenClDevice>::on_device(&graph, None, &target).unwrap();
    let error = network.workspace().map(drop).unwrap_err();
    assert!(matches!(error, CompileError::NoKernel { .. }), "{error}");
    assert_eq!(error.to_string(), "sums: OpenCL has no kernel for CumSum; use --target cpu");
}

#[test]
fn a_target_of_another_kind_is_refused() {
    let cpu = Target::detect("cpu", Some(1)).unwrap();
    let error = Compiled::<OpenClDevice>::on_device(&images(), None, &cpu).map(drop).unwrap_err();
    assert!(error.to_string().ends_with("is not a GPU"), "{error}");
}
