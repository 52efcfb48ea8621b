//! Networks in bf16 compared with the reference, and the choice of rounded tensors and products.

use std::cell::Cell;
use std::collections::BTreeSet;

use autotune_ir::Target;
use autotune_ir::program::UnaryOp;
use autotune_network::cut::{Cut, MemoryValue, StepWork};
use autotune_network::operators::{Conv, Sliding};
use autotune_network::rewrite::rewrite_traced;
use autotune_network::{Compiled, DType, Decided, Graph, NodeId, Precision, StepError, decide, rewrite, tasks, zoo};
use autotune_workloads::{Types, Workload};

use crate::common::cases::for_cases;
use crate::common::graphs::{Net, brought};
use crate::common::random_graphs::random_graph;
use crate::common::rng;

/// Returns the workloads of a graph's steps.
fn workloads(graph: &Graph) -> Vec<Workload> {
    let steps = Cut::of(graph).steps.into_iter();
    let workload = |work| if let StepWork::Kernel(workload) = work { Some(workload) } else { None };
    steps.filter_map(|step| workload(step.work)).collect()
}

fn is_rounded(workload: &Workload) -> bool {
    let Types { data, weights, out, .. } = workload.types();
    [data, weights, out].contains(&DType::Bf16)
}

/// Every step is right within bf16's accuracy, and many steps of these graphs are rounded.
#[test]
fn random_networks_in_bf16_are_right() {
    let target = Target::detect("cpu", Some(2)).unwrap();
    let (rounded, all) = (Cell::new(0), Cell::new(0));
    for_cases(60, |seed, choices| {
        let graph = random_graph(seed, 8 + seed as usize % 24, choices).with_precision(Precision::Bf16);
        let (rewritten, trace) = rewrite_traced(&graph).unwrap();
        assert_eq!(rewritten.precision(), Precision::Bf16);
        // In every third network, every second step computes in f32.
        let cut = Cut::of(&rewritten);
        let exact = cut.steps.iter().step_by(2).map(|step| cut.value(step.output).node);
        let exact: BTreeSet<NodeId> = if seed % 3 == 0 { exact.collect() } else { BTreeSet::new() };
        let rewritten = rewritten.with_exact(exact);
        let workloads = workloads(&rewritten);
        rounded.set(rounded.get() + workloads.iter().filter(|workload| is_rounded(workload)).count());
        all.set(all.get() + workloads.len());

        let mut workspace = Compiled::new(&rewritten, None, &target).unwrap().workspace().unwrap();
        let checked = workspace.check(&brought(&graph, &mut rng(seed)), &graph, &trace).unwrap();
        let all = checked.steps.iter().chain(&checked.imported);
        let wrong: Vec<&StepError> = all.filter(|step| !step.is_right()).collect();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}\n{workloads:?}");
    });
    assert!(2 * rounded.get() > all.get(), "{} of {} steps in bf16", rounded.get(), all.get());
}

/// With all steps in f32 nothing is rounded; nor is anything if no error is permitted.
#[test]
fn exact_steps_and_errors_are_kept_to() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let graph = rewrite(&zoo::graph("dqn").unwrap()).unwrap().with_precision(Precision::Bf16);
    let cut = Cut::of(&graph);
    let all = cut.steps.iter().map(|step| cut.value(step.output).node).collect();
    assert!(workloads(&graph).iter().any(is_rounded));
    assert!(!workloads(&graph.clone().with_exact(all)).iter().any(is_rounded));

    let inputs = brought(&graph, &mut rng(1));
    let Decided { network, contenders, chosen } = decide(&graph, None, &target, &inputs, 0.0).unwrap();
    // Measurement decides which steps are slower in bf16; it may be all that round.
    assert_eq!(contenders[chosen].max_rel_error, 0.0, "{contenders:?}");
    assert_eq!(network.graph().precision(), contenders[chosen].precision);
    assert!(contenders.len() >= 2 && chosen != 1 && contenders[1].max_rel_error > 1e-4, "{contenders:?}");
    assert!(contenders.iter().all(|contender| contender.run_secs > 0.0), "{contenders:?}");

    let Decided { network, contenders, chosen } = decide(&graph, None, &target, &inputs, 1.0).unwrap();
    let fastest = contenders.iter().map(|contender| contender.run_secs).fold(f64::INFINITY, f64::min);
    assert!(contenders[chosen].run_secs <= fastest * 1.011, "{contenders:?}");
    assert_eq!(network.graph().exact().len(), contenders[chosen].exact_steps);
}

/// Inputs, outputs and integers are not rounded; all other tensors between kernels are.
#[test]
fn tensors_between_kernels_lie_in_bf16() {
    for name in ["resnet18", "mobilenet_v2", "bert_base", "lstm"] {
        let graph = rewrite(&zoo::graph(name).unwrap()).unwrap().with_precision(Precision::Bf16);
        let cut = Cut::of(&graph);
        let own = cut.inputs.iter().chain(&cut.outputs).map(|&value| cut.root(value).0);
        let callers: Vec<_> = own.collect();
        let is_constant = |value: &MemoryValue| graph.constant_of(value.node).is_some();
        for step in &cut.steps {
            for &operand in step.operands.iter().chain([&step.output]) {
                let value = cut.value(operand);
                let is_kept = callers.contains(&cut.root(operand).0) || graph.node(value.node).dtype != DType::F32;
                let wanted = if is_kept { DType::F32 } else { DType::Bf16 };
                assert!(is_constant(value) || value.dtype == wanted, "{name}, '{}': {}", step.name, value.dtype);
            }
        }

        let workloads = workloads(&graph);
        // Except for steps that read outputs of the network.
        let exact = workloads.iter().filter(|workload| !is_rounded(workload)).count();
        assert!(exact <= 1 && workloads.len() > 20, "{name}: {workloads:?}");
        let known = tasks(&graph);
        assert!(workloads.iter().all(|own| known.iter().any(|task| task.workload == *own)), "{name}");
        let plain = workloads.iter().map(|workload| workload.with_dtype(DType::F32).unwrap());
        let plain: Vec<String> = plain.map(|workload| workload.to_string()).collect();
        let f32 = graph.with_precision(Precision::F32);
        assert!(self::workloads(&f32).iter().map(Workload::to_string).eq(plain), "{name}");
    }
}

/// Convolutions with few products under Winograd's algorithm multiply in f32.
#[test]
fn factors_are_rounded_where_that_saves_time() {
    let weights = |size: usize, extent: usize, channels: usize| {
        let mut net = Net::new(1);
        let x = net.input(&[1, channels, extent, extent]);
        let first = net.unary(UnaryOp::Abs, x);
        let filters = net.random(&[channels, channels, size, size]);
        let padding = Sliding { pad: [size / 2; 2], ..Sliding::new(size) };
        let second = net.add(Conv { window: vec![padding; 2], groups: 1 }, &[first, filters]);
        net.output(second);
        let last = workloads(&net.graph.with_precision(Precision::Bf16)).pop().unwrap();
        (last.types().data, last.types().weights)
    };
    assert_eq!(weights(3, 56, 32), (DType::Bf16, DType::F32));
    assert_eq!(weights(3, 7, 32), (DType::Bf16, DType::Bf16), "few tiles");
    assert_eq!(weights(1, 56, 32), (DType::Bf16, DType::Bf16));
}
