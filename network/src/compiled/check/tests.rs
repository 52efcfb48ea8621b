//! Comparison of networks with the reference, for correct networks and ones with planted faults.

use autotune_ir::layout::to_layout;
use autotune_ir::program::Layout;
use autotune_ir::{DType, Target};
use autotune_runtime::CpuCall;
use autotune_workloads::PoolKind;
use ndarray::ArrayD;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::{Arc, Mutex};

use super::*;
use crate::compiled::{Compiled, encode};
use crate::testing::{known, random_graph};
use autotune_graph::operators::{self, Binary, Pool, Sliding};
use autotune_graph::rewrite::Trace;
use autotune_graph::{Builder, ConvLayer, Seeded};

fn target() -> Target {
    Target::detect("cpu", Some(1)).unwrap()
}

/// Numbers between -1 and 1 for every input of a graph.
fn inputs(graph: &Graph) -> Vec<Tensor> {
    let tensor = |&id: &NodeId| {
        let shape = &graph.node(id).shape;
        let numbers = (0..shape.iter().product()).map(|i: usize| (i * 37 % 101) as f32 / 50.0 - 1.0);
        Tensor::f32(shape, numbers.collect()).unwrap()
    };
    graph.inputs().iter().map(tensor).collect()
}

/// Compares a network with the reference, for a graph that was not rewritten.
fn checked(network: &Arc<Compiled>) -> Checked {
    let (graph, inputs) = (&network.graph, inputs(&network.graph));
    network.workspace().unwrap().check(&inputs, graph, &Trace::of_itself(graph)).unwrap()
}

fn wrong(errors: &[StepError]) -> Vec<String> {
    errors.iter().filter(|step| !step.is_within_tolerance()).map(|step| step.name.clone()).collect()
}

fn wrong_steps(network: Arc<Compiled>) -> Vec<String> {
    wrong(&checked(&network).steps)
}

/// A chain of layers; the weights of the second depend on its name.
fn chain(second: &str) -> Graph {
    let net = Builder::new("chain", Seeded { seed: 1 });
    let mut x = net.input("x", &[1, 16, 8, 8]);
    for name in ["first", second, "third"] {
        x = x.conv(name, ConvLayer::new(16, Sliding::new(3).pad(1))).relu();
    }
    net.output("y", x);
    net.finish().unwrap()
}

#[test]
fn every_step_and_conversion_is_compared() {
    let (mut conversions, mut parts) = (0, 0);
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let graph = random_graph(&mut rng, 12);
        let db = known(&graph, &target(), &mut rng, 2);
        let network = Compiled::new(&graph, Some(&db), &target()).unwrap();
        let Checked { steps: errors, imported } = checked(&network);
        assert_eq!(errors.len(), network.plan.actions.len());
        let wrong: Vec<_> = errors.iter().chain(&imported).filter(|step| !step.is_within_tolerance()).collect();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
        assert!(imported.len() >= graph.outputs().len(), "seed {seed}: {imported:?}");

        conversions += errors.iter().filter(|step| step.is_conversion).count();
        let is_part = |action: &&Action| {
            let MemoryValue { node, shape, .. } = network.cut.value(action.value.0);
            *shape != graph.node(*node).shape
        };
        parts += network.plan.actions.iter().filter(is_part).count();
    }
    assert!(conversions > 10 && parts > 5, "{conversions} conversions, {parts} parts");
}

/// Steps after a wrong one are right for the operands that they receive.
#[test]
fn a_step_with_other_weights_is_told_alone() {
    assert_eq!(wrong_steps(Compiled::new(&chain("second"), None, &target()).unwrap()), [""; 0]);
    let mut network = Compiled::new(&chain("second"), None, &target()).unwrap();
    Arc::get_mut(&mut network).unwrap().graph = chain("other");
    assert_eq!(wrong_steps(network).len(), 1);
}

#[test]
fn a_conversion_to_another_layout_than_it_says_is_told() {
    let found = (0..20).find_map(|seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let graph = random_graph(&mut rng, 12);
        let db = known(&graph, &target(), &mut rng, 2);
        let mut network = Compiled::new(&graph, Some(&db), &target()).unwrap();
        let plan = &mut Arc::get_mut(&mut network).unwrap().plan;
        let conversion = plan.actions.iter_mut().find(|action| action.is_conversion)?;
        conversion.value.1 = match conversion.value.1 {
            Layout::Plain => Layout::ChannelBlocked(8),
            _ => Layout::Plain,
        };
        let name = conversion.name.clone();
        Some((wrong_steps(network), name))
    });
    let (found, name) = found.unwrap();
    assert_eq!(found, [name]);
}

#[test]
fn errors_are_relative_to_sums_that_were_cut_off() {
    let net = Builder::new("dead", Seeded { seed: 1 });
    let x = net.input("x", &[1, 16, 8, 8]);
    net.output("y", x.conv("conv", ConvLayer::new(16, Sliding::new(3).pad(1))).relu());
    let graph = net.finish().unwrap();
    let mut computed = ComputedTensors::nothing(&graph);
    let x = inputs(&graph)[0].to_numbers();
    computed.put(graph.inputs()[0], &x, Allowed::NOTHING).unwrap();
    let relu = graph.outputs()[0].node;
    let sums = computed.reference(graph.node(relu).operands[0]).unwrap();
    assert!(sums.most > 0.0 && sums.numbers.iter().any(|x| *x == -sums.most || *x == sums.most));
    assert_eq!(computed.reference(relu).unwrap().most, sums.most);
}

#[test]
fn numbers_that_are_none_differ() {
    assert_eq!(difference(&[1.0, -2.5], &[1.0, -2.0], 2.0), 0.25);
    assert_eq!(difference(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY], 1.0), 0.0);
    assert_eq!(difference(&[f32::NAN], &[1.0], 1.0), f64::INFINITY);
    assert_eq!(difference(&[1.0], &[f32::INFINITY], 1.0), f64::INFINITY);
    assert_eq!(difference(&[0.0], &[0.0], 0.0), 0.0);
}

/// Replacement of a step's result, computed from the inputs and the right result.
type Fault = dyn Fn(&[Tensor], ArrayD<f32>) -> ArrayD<f32>;

/// Returns what the two walks report as wrong if the action with a name stores a replaced result.
fn planted(
    network: &Arc<Compiled>,
    name: &str,
    other: impl Fn(&[Tensor], ArrayD<f32>) -> ArrayD<f32>,
) -> [Vec<String>; 2] {
    let (graph, plan) = (&network.graph, &network.plan);
    let number = plan.actions.iter().position(|action| action.name == name && !action.is_conversion).unwrap();
    let action = &plan.actions[number];
    let (inputs, mut workspace) = (inputs(graph), network.workspace().unwrap());
    for (tensor, &span) in inputs.iter().zip(&plan.inputs) {
        workspace.write(span, &tensor.to_numbers()).unwrap();
    }
    workspace.start(0..number + 1).unwrap();

    // The replacement is written in the layout of the kernel's output.
    let (value, layout) = action.value;
    let shape = &network.cut.value(value).shape;
    let found = workspace.result(action.output, shape.iter().product()).unwrap();
    let right = from_layout(&found, shape, layout).unwrap();
    let numbers: Vec<f32> = to_layout(&other(&inputs, right), layout).unwrap();

    let dtype = plan.dtype(action.output);
    let mut elements = vec![0u8; numbers.len() * dtype.bytes()];
    encode(dtype, &numbers, &mut elements);
    let output = Mutex::new(network.part(&workspace.device, &workspace.memory, action.output).unwrap());
    workspace.bound.calls[number] = CpuCall::of_work(&workspace.device, 1, move |_| {
        output.lock().unwrap().elements_mut()[..elements.len()].copy_from_slice(&elements);
    });
    let Checked { steps, imported } = workspace.check(&inputs, graph, &Trace::of_itself(graph)).unwrap();
    [wrong(&steps), wrong(&imported)]
}

/// Quantised tensors may be off by one quantum, however small their largest element is.
#[test]
fn errors_of_bytes_are_relative_to_their_range() {
    let mut graph = Graph::new("bytes");
    let x = graph.input("x", DType::F32, &[4, 101]).unwrap();
    let scale = graph.constant("scale", Tensor::scalar(0.02));
    let zero = graph.constant("zero", Tensor::of_numbers(&[], DType::U8, &[50.0]).unwrap());
    let q = graph.add("q", operators::Quantize { dtype: DType::U8, axis: 0 }, &[x, scale, zero]).unwrap();
    let y = graph.add("y", operators::Dequantize { axis: 0 }, &[q, scale, zero]).unwrap();
    graph.output("y", y);
    let network = Compiled::new(&crate::rewrite(&graph).unwrap(), None, &target()).unwrap();
    let plan = &network.plan;
    let rounding = plan.actions.iter().find(|action| plan.dtype(action.output) == DType::U8).unwrap();
    assert!(matches!(rounding.work, ActionKind::Kernel(_)));
    for (quanta, wanted) in [(1.0, vec![]), (3.0, vec![rounding.name.clone()])] {
        let found = planted(&network, &rounding.name, |_, mut right| {
            assert!(right.iter().all(|&number| number <= 100.0));
            right[[2, 7]] += quanta;
            right
        });
        assert_eq!(found, [wanted.clone(), wanted], "{quanta} quanta: {:?}", checked(&network));
    }
}

/// Both walks report exactly the faulty step.
#[test]
fn planted_faults_are_found() {
    let graph = chain("second");
    let network = Compiled::new(&graph, None, &target()).unwrap();
    let found = |fault: &Fault| planted(&network, "second", fault);
    let told = |[steps, imported]: [Vec<String>; 2], what: &str| {
        assert_eq!((steps.len(), imported.len()), (1, 1), "{what}: {steps:?}, {imported:?}");
    };
    assert_eq!(found(&|_, right| right), [const { Vec::<String>::new() }; 2]);

    // Faults: the last column of a tile repeats its neighbour; two channels are exchanged.
    let edge = |_: &[Tensor], mut right: ArrayD<f32>| {
        for at in ndarray::indices(&right.shape()[..3]) {
            right[[at[0], at[1], at[2], 7]] = right[[at[0], at[1], at[2], 6]];
        }
        right
    };
    told(found(&edge), "an edge");
    let channels = |_: &[Tensor], right: ArrayD<f32>| {
        ArrayD::from_shape_fn(right.raw_dim(), |at| {
            right[[at[0], [0, 2, 1].get(at[1]).copied().unwrap_or(at[1]), at[2], at[3]]]
        })
    };
    told(found(&channels), "channels exchanged");
}

#[test]
fn planted_padding_and_weights_are_found() {
    let of = |pad: [usize; 2], kernel: f32| {
        let mut graph = Graph::new("padded");
        let x = graph.input("x", DType::F32, &[1, 16, 9, 9]).unwrap();
        let numbers = (0..16 * 16 * 9).map(|i: usize| if i == 77 { kernel } else { (i * 29 % 97) as f32 / 48.0 - 1.0 });
        let weights = graph.constant("weights", Tensor::f32(&[16, 16, 3, 3], numbers.collect()).unwrap());
        let window = vec![Sliding { pad, ..Sliding::new(3) }, Sliding::new(3).pad(1)];
        let conv = graph.add("conv", operators::Conv { window, groups: 1 }, &[x, weights]).unwrap();
        graph.output("y", conv);
        graph
    };
    let right = Compiled::new(&of([1, 1], 0.25), None, &target()).unwrap();
    assert_eq!(planted(&right, "conv", |_, right| right), [const { Vec::<String>::new() }; 2]);
    for other in [of([0, 2], 0.25), of([2, 0], 0.25), of([1, 1], 0.5)] {
        let wrong = |inputs: &[Tensor], _: ArrayD<f32>| match other.evaluate(inputs).unwrap().remove(0) {
            Tensor::F32(numbers) => numbers,
            whole => panic!("{whole:?}"),
        };
        let [steps, mut imported] = planted(&right, "conv", wrong);
        // The fault shows in the tensor and in the output.
        imported.dedup();
        assert_eq!([steps, imported], [["conv"]; 2]);
    }
}

/// A rewriting that changes more than rounding shows in the second walk only.
#[test]
fn wrong_rules_are_found() {
    let number = |graph: &mut Graph, value: f32| graph.constant("number", Tensor::scalar(value));
    let rounded = |is_conv: bool, is_kept: bool| {
        let mut graph = Graph::new("rounded");
        let input = graph.input("x", DType::F32, &[1, 4, 6, 6]).unwrap();
        let numbers = (0..16).map(|i| i as f32 * 3.7 - 30.0).collect();
        let weights = graph.constant("weights", Tensor::f32(&[4, 4, 1, 1], numbers).unwrap());
        let conv = operators::Conv { window: vec![Sliding::new(1); 2], groups: 1 };
        let (mut x, mut trace) = (input, vec![Some(input), Some(weights)]);
        if is_conv {
            x = graph.add("conv", conv, &[input, weights]).unwrap();
            trace.push(None);
        }
        let of = x;
        for value in [12_582_912.0, -12_582_912.0].into_iter().filter(|_| is_kept) {
            let value = number(&mut graph, value);
            x = graph.add("sum", Binary::Add, &[x, value]).unwrap();
            trace.extend([None, None]);
        }
        *trace.last_mut().unwrap() = Some(of);
        let pool = Pool { window: vec![Sliding::new(1).stride(2); 2], ceil: false, kind: PoolKind::Max };
        let pooled = graph.add("pooled", pool, &[x]).unwrap();
        graph.output("y", pooled);
        trace.push(Some(NodeId(if is_conv { 3 } else { 2 })));
        (graph, Trace::new(trace))
    };

    for is_conv in [false, true] {
        let (imported, trace) = rounded(is_conv, true);
        let (rewritten, _) = rounded(is_conv, false);
        let inputs = inputs(&rewritten);
        let network = Compiled::new(&rewritten, None, &target()).unwrap();
        let Checked { steps, imported } = network.workspace().unwrap().check(&inputs, &imported, &trace).unwrap();
        assert_eq!(wrong(&steps), [""; 0]);
        assert_eq!(wrong(&imported), ["sum"]);

        let (graph, _) = rounded(is_conv, true);
        let network = Compiled::new(&graph, None, &target()).unwrap();
        let checked = network.workspace().unwrap().check(&inputs, &graph, &Trace::of_itself(&graph)).unwrap();
        assert_eq!([wrong(&checked.steps), wrong(&checked.imported)], [const { Vec::<String>::new() }; 2]);
    }
}
