//! Networks in bf16 compared with the reference, and the choice of rounded tensors and products.

use std::cell::Cell;
use std::collections::BTreeSet;

use autotune_ir::program::UnaryOp;
use autotune_ir::{CpuTarget, Isa, Target};
use autotune_network::cut::{Cut, MemoryValue, StepWork};
use autotune_network::operators::{Conv, Sliding};
use autotune_network::rewrite::rewrite_traced;
use autotune_network::{Compiled, DType, Decided, Graph, NodeId, Precision, StepError, decide, rewrite, tasks, zoo};
use autotune_runtime::Cpu;
use autotune_workloads::{Types, Workload};

use crate::common::cases::for_cases;
use crate::common::graphs::{Net, brought};
use crate::common::random_graphs::random_graph;
use crate::common::rng;

/// Returns the workloads of a graph's steps on a target.
fn workloads(graph: &Graph, target: &Target) -> Vec<Workload> {
    let steps = Cut::for_target(graph, target).steps.into_iter();
    let workload = |work| if let StepWork::Kernel(workload) = work { Some(workload) } else { None };
    steps.filter_map(|step| workload(step.work)).collect()
}

/// On GPUs each kernel has tensors of one type, in memory as the kernels read and write them.
#[test]
fn kernels_of_gpus_have_one_type() {
    for (word, precision) in
        [("cuda:sm_70", Precision::F16), ("cuda:sm_90", Precision::Bf16), ("cuda:sm_90", Precision::Tf32)]
    {
        let (target, dtype) = (Target::detect(word, None).unwrap(), precision.dtype());
        for name in ["resnet18", "mobilenet_v2", "bert_base", "lstm", "dcgan"] {
            let graph = rewrite(&zoo::graph(name).unwrap()).unwrap().with_precision(precision);
            let cut = Cut::for_target(&graph, &target);
            let known: Vec<Workload> = tasks([&graph], &target).iter().map(|task| task.workload.clone()).collect();
            let is_memory_rounded = cut.values.iter().any(|value| value.dtype == dtype);
            assert_eq!(is_memory_rounded, precision != Precision::Tf32, "{name}");

            let (mut rounded, mut all) = (0, 0);
            for step in &cut.steps {
                let StepWork::Kernel(workload) = &step.work else { continue };
                assert!(workload.types().is_uniform() && workload.unsupported_dtype(&target).is_none(), "{workload}");
                assert!(known.iter().any(|known| known == workload), "{name}: {workload}");
                // All products are rounded, and constants are stored as they are read.
                let is_rounded = workload.dtype() == dtype;
                assert!(is_rounded || !workload.spec().is_contraction(), "{name}: {workload}");
                for (&operand, tensor) in step.operands.iter().zip(workload.spec().operands()) {
                    let value = cut.value(operand);
                    let is_constant = graph.constant_of(value.node).is_some() && value.within.is_none();
                    assert!(!is_constant || value.dtype.has_same_bits_as(tensor.dtype), "{name}: {workload}");
                }
                (rounded, all) = (rounded + usize::from(is_rounded), all + 1);
            }
            // In tf32 only products are.
            let share = if precision == Precision::Tf32 { 5 } else { 2 };
            assert!(share * rounded >= all, "{name}: {rounded} of {all} in {precision}");
        }
    }
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
        let cut = Cut::for_target(&rewritten, &target);
        let exact = cut.steps.iter().step_by(2).map(|step| cut.value(step.output).node);
        let exact: BTreeSet<NodeId> = if seed % 3 == 0 { exact.collect() } else { BTreeSet::new() };
        let rewritten = rewritten.with_exact(exact);
        let workloads = workloads(&rewritten, &target);
        rounded.set(rounded.get() + workloads.iter().filter(|workload| is_rounded(workload)).count());
        all.set(all.get() + workloads.len());

        let mut workspace = Compiled::new(&rewritten, None, &target).unwrap().workspace().unwrap();
        let checked = workspace.check(&brought(&graph, &mut rng(seed)), &graph, &trace).unwrap();
        let all = checked.steps.iter().chain(&checked.imported);
        let wrong: Vec<&StepError> = all.filter(|step| !step.is_within_tolerance()).collect();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}\n{workloads:?}");
    });
    assert!(2 * rounded.get() > all.get(), "{} of {} steps in bf16", rounded.get(), all.get());
}

/// With all steps in f32 nothing is rounded; nor is anything if no error is permitted.
#[test]
fn exact_steps_and_errors_are_kept_to() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    let graph = rewrite(&zoo::graph("dqn").unwrap()).unwrap().with_precision(Precision::Bf16);
    let cut = Cut::for_target(&graph, &target);
    let all = cut.steps.iter().map(|step| cut.value(step.output).node).collect();
    assert!(workloads(&graph, &target).iter().any(is_rounded));
    assert!(!workloads(&graph.clone().with_exact(all), &target).iter().any(is_rounded));

    let inputs = brought(&graph, &mut rng(1));
    let Decided { network, contenders, chosen } = decide::<Cpu>(&graph, None, &target, &inputs, 0.0).unwrap();
    // Measurement decides which steps are slower in bf16; it may be all that round.
    assert_eq!(contenders[chosen].max_rel_error, 0.0, "{contenders:?}");
    assert_eq!(network.graph().precision(), contenders[chosen].precision);
    assert!(contenders.len() >= 2 && chosen != 1 && contenders[1].max_rel_error > 1e-4, "{contenders:?}");
    assert!(contenders.iter().all(|contender| contender.run_secs > 0.0), "{contenders:?}");

    let Decided { network, contenders, chosen } = decide::<Cpu>(&graph, None, &target, &inputs, 1.0).unwrap();
    let fastest = contenders.iter().map(|contender| contender.run_secs).fold(f64::INFINITY, f64::min);
    assert!(contenders[chosen].run_secs <= fastest * 1.011, "{contenders:?}");
    assert_eq!(network.graph().exact().len(), contenders[chosen].f32_steps);
}

/// Inputs, outputs and integers are not rounded; all other tensors between kernels are.
#[test]
fn tensors_between_kernels_lie_in_bf16() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    for name in ["resnet18", "mobilenet_v2", "bert_base", "lstm"] {
        let graph = rewrite(&zoo::graph(name).unwrap()).unwrap().with_precision(Precision::Bf16);
        let cut = Cut::for_target(&graph, &target);
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

        let workloads = workloads(&graph, &target);
        // Except for steps that read outputs of the network.
        let exact = workloads.iter().filter(|workload| !is_rounded(workload)).count();
        assert!(exact <= 1 && workloads.len() > 20, "{name}: {workloads:?}");
        let known = tasks([&graph], &target);
        assert!(workloads.iter().all(|own| known.iter().any(|task| task.workload == *own)), "{name}");
        let plain = workloads.iter().map(|workload| workload.with_dtype(DType::F32).unwrap());
        let plain: Vec<String> = plain.map(|workload| workload.to_string()).collect();
        let f32 = graph.with_precision(Precision::F32);
        assert!(self::workloads(&f32, &target).iter().map(Workload::to_string).eq(plain), "{name}");
    }
}

/// Returns a network whose last step is a convolution of `channels` images.
fn convolution(size: usize, extent: usize, channels: usize) -> Graph {
    let mut net = Net::new(1);
    let x = net.input(&[1, channels, extent, extent]);
    let first = net.unary(UnaryOp::Abs, x);
    let filters = net.random(&[channels, channels, size, size]);
    let padding = Sliding { pad: [size / 2; 2], ..Sliding::new(size) };
    let second = net.add(Conv { window: vec![padding; 2], groups: 1 }, &[first, filters]);
    net.output(second);
    net.graph.with_precision(Precision::Bf16)
}

/// Convolutions with few products under Winograd's algorithm in f32 multiply in f32, unless tile
/// instructions multiply them, or that algorithm in bf16 takes less time.
#[test]
fn factors_are_rounded_where_that_saves_time() {
    let cpu = |features: &[&str]| {
        let features = features.iter().map(|feature| feature.to_string()).collect();
        Target::Cpu(CpuTarget { isa: Isa::Avx512, features, ..CpuTarget::generic_avx2(1) })
    };
    let (plain, tiled) = (cpu(&["avx512bf16"]), cpu(&["amx", "avx512bf16"]));
    let factors = |target: &Target, size: usize, extent: usize, channels: usize| {
        let types = workloads(&convolution(size, extent, channels), target).pop().unwrap().types();
        (types.data, types.weights)
    };
    let (rounded, exact) = ((DType::Bf16, DType::Bf16), (DType::Bf16, DType::F32));

    assert_eq!(factors(&plain, 3, 48, 32), exact);
    assert_eq!(factors(&plain, 3, 56, 32), rounded, "large tiles fit badly");
    assert_eq!(factors(&plain, 3, 56, 33), exact, "bf16 multiplies pairs of channels");
    assert_eq!(factors(&plain, 3, 7, 32), rounded, "few tiles");
    assert_eq!(factors(&plain, 1, 56, 32), rounded);
    assert_eq!(factors(&tiled, 3, 56, 32), rounded);
    assert_eq!(factors(&tiled, 3, 56, 33), rounded, "rows of tiles are filled");
    assert_eq!(factors(&Target::detect("cuda:sm_90", None).unwrap(), 3, 56, 32), rounded, "one type");
}

/// Tuned tasks are the workloads that run, on processors with and without tile instructions.
#[test]
fn a_convolution_in_bf16_runs_as_its_tasks() {
    let graph = convolution(3, 56, 32);
    for word in ["cpu", "cpu:avx2"] {
        let Ok(target) = Target::detect(word, Some(1)) else { continue };
        let network = Compiled::new(&graph, None, &target).unwrap();
        let tuned: Vec<Workload> = tasks([&graph], &target).into_iter().map(|task| task.workload).collect();
        let run: Vec<&Workload> = network.schedules().iter().map(|kernel| kernel.workload()).collect();
        assert!(tuned.iter().all(|workload| run.contains(&workload)), "{word}: {tuned:?}, {run:?}");

        let (rewritten, trace) = rewrite_traced(&graph).unwrap();
        let mut workspace = Compiled::new(&rewritten, None, &target).unwrap().workspace().unwrap();
        let checked = workspace.check(&brought(&graph, &mut rng(1)), &graph, &trace).unwrap();
        assert!(
            checked.steps.iter().chain(&checked.imported).all(StepError::is_within_tolerance),
            "{word}: {checked:?}"
        );
    }
}
