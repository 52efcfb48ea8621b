//! Networks on an OpenCL device (the first one, PoCL for example), compared with the reference. The
//! tests are skipped with a message if there is none; `AUTOTUNE_REQUIRE=opencl` makes that a
//! failure.

use autotune_ir::Target;
use autotune_network::operators::Sliding;
use autotune_network::rewrite::rewrite_traced;
use autotune_network::{Builder, CompileError, Compiled, ConvLayer, Fill, Graph, Seeded, Tensor, zoo};
use autotune_runtime::{OpenClDevice, opencl};
use autotune_workloads::PoolKind;

use crate::common::{numbers, rng};

/// Returns this machine's OpenCL device.
fn target() -> Option<Target> {
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

/// A strided copy, and a part of a tensor at an offset of 12 bytes.
#[test]
fn a_step_without_a_kernel_is_named() {
    let Some(target) = target() else { return };
    let net = Builder::new("apart", Seeded { seed: 1 });
    let x = net.input("x", &[4, 6]);
    net.output("columns", x.slice(1, 1..3));
    let columns = net.finish().unwrap();
    let net = Builder::new("unaligned", Seeded { seed: 1 });
    let (x, y) = (net.input("x", &[1, 3]), net.input("y", &[1, 5]));
    net.output("parts", x.relu().concat(&[y.relu()], 1).linear("fc", 8));
    for (graph, step) in [(columns, "Slice_1"), (net.finish().unwrap(), "Map_3")] {
        let network = Compiled::<OpenClDevice>::on_device(&graph, None, &target).unwrap();
        let error = network.workspace().map(drop).unwrap_err();
        assert!(matches!(error, CompileError::NoKernel { .. }), "{error}");
        assert_eq!(error.to_string(), format!("{step}: OpenCL has no kernel for this step; use --target cpu"));
    }
}

#[test]
fn a_target_of_another_kind_is_refused() {
    let cpu = Target::detect("cpu", Some(1)).unwrap();
    let error = Compiled::<OpenClDevice>::on_device(&images(), None, &cpu).map(drop).unwrap_err();
    assert!(error.to_string().ends_with("is not a GPU"), "{error}");
}
