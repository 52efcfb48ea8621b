//! Quantisation of float networks: errors, precisions of layers, and the written file.

use std::collections::{BTreeMap, BTreeSet};

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::onnx::{self, ImportOptions};
use autotune_network::operators::{Dequantize, Quantize, Sliding};
use autotune_network::quantisation::{QuantisationPlan, QuantisationSites, RangeMethod, TensorScale};
use autotune_network::{
    Builder, Compiled, ConvLayer, DType, Graph, QuantiseError, QuantiseOptions, QuantisedNetwork, Seeded, Tensor,
    quantise, rewrite,
};
use autotune_workloads::PoolKind;
use rand::RngExt;

use crate::common::cases::for_cases;
use crate::common::{numbers, rng};

/// Layers with all that may read or write bytes between them: ReLU, both kinds of pooling, a
/// residual, a concatenation, a normalisation, and a product at the end.
fn network() -> Graph {
    let net = Builder::new("small", Seeded { seed: 1 });
    let image = net.input("image", &[1, 3, 12, 12]);
    let conv = |channels, kernel: usize| ConvLayer::new(channels, Sliding::new(kernel).pad(kernel / 2)).bias();
    let x = image.conv("first", conv(16, 3)).relu().pool(PoolKind::Max, Sliding::new(2).stride(2));
    let branch = x.conv("branch1", conv(16, 1)).relu().conv("branch2", conv(16, 3));
    let x = (branch + x).relu();
    let x = x.conv("left", conv(8, 1)).relu().concat(&[x.conv("right", conv(8, 3)).relu()], 1);
    let x = x.batch_norm("norm").relu().conv("last", conv(24, 3)).relu();
    net.output("logits", x.global_average_pool().linear("fc", 10));
    rewrite(&net.finish().unwrap()).unwrap()
}

fn examples(count: u64) -> Vec<Vec<Tensor>> {
    (0..count).map(|seed| vec![numbers(&mut rng(seed), &[1, 3, 12, 12])]).collect()
}

fn target() -> Target {
    Target::detect("cpu", Some(1)).unwrap()
}

fn quantised(
    graph: &Graph,
    examples: &[Vec<Tensor>],
    method: Option<RangeMethod>,
    max_error: Option<f64>,
) -> Result<QuantisedNetwork, QuantiseError> {
    let options = QuantiseOptions { method, max_error, source: None, target: &target(), progress: &|_, _, _| () };
    quantise(graph, examples, &options)
}

fn run(graph: &Graph, inputs: &[Tensor]) -> Vec<Tensor> {
    let network = Compiled::new(&rewrite(graph).unwrap(), None, &target()).unwrap();
    network.workspace().unwrap().run_tensors(inputs).unwrap()
}

/// Counts the steps that multiply integers, and those with a type of floating point in memory.
fn integer_and_float_steps(graph: &Graph) -> (usize, usize) {
    let graph = rewrite(graph).unwrap();
    let steps = Cut::of(&graph).steps;
    let count = |dtype| {
        let multiplies = |work: &StepWork| match work {
            StepWork::Kernel(workload) => workload.spec().is_contraction() && workload.dtype() == dtype,
            _ => false,
        };
        steps.iter().filter(|step| multiplies(&step.work)).count()
    };
    (count(DType::U8), count(DType::F32))
}

#[test]
fn every_layer_computes_with_integers_and_the_file_is_the_network() {
    let (graph, examples) = (network(), examples(6));
    let quantised = quantised(&graph, &examples, None, None).unwrap();
    assert_eq!(quantised.layers.len(), 7);
    assert!(quantised.layers.is_sorted_by(|a, b| a.max_rel_error >= b.max_rel_error));
    assert_eq!(integer_and_float_steps(&quantised.graph), (7, 0));

    let mix = &quantised.mixes[quantised.chosen];
    assert_eq!((mix.float_layers, quantised.chosen), (0, 0));
    assert!(mix.max_rel_error > 0.0 && mix.max_rel_error < 0.05, "{mix:?}");
    assert!(mix.agreement.is_some() && mix.run_secs > 0.0);
    let last = quantised.mixes.last().unwrap();
    assert!(last.float_layers == 7 && last.max_rel_error < 1e-5, "{last:?}");

    let read = onnx::read_bytes(&onnx::write(&quantised.graph).unwrap(), &ImportOptions::default()).unwrap();
    assert_eq!((read.node(read.inputs()[0]).name.as_str(), read.outputs()[0].name.as_str()), ("image", "logits"));
    for inputs in &examples {
        assert_eq!(run(&read, inputs), run(&quantised.graph, inputs));
    }
}

#[test]
fn layers_stay_in_floating_point_until_the_error_holds() {
    let (graph, examples) = (network(), examples(3));
    for method in RangeMethod::ALL {
        let free = quantised(&graph, &examples, Some(method), None).unwrap();
        let most = free.mixes[0].max_rel_error;
        for share in [1.0, 0.7, 0.3, 0.0] {
            let bound = most * share;
            let held = quantised(&graph, &examples, Some(method), Some(bound)).unwrap();
            let mix = &held.mixes[held.chosen];
            assert!(mix.max_rel_error <= bound || mix.float_layers == 7, "{method}, {bound}: {mix:?}");
            let (integer, float) = integer_and_float_steps(&held.graph);
            assert_eq!((integer, float), (7 - mix.float_layers, mix.float_layers), "{method}, {bound}");
        }
    }
}

/// Any layers may stay in floating point: the graph is valid, survives its file, and the reference
/// computes what the run does.
#[test]
fn any_layers_may_stay_in_floating_point() {
    let (graph, sites) = (network(), QuantisationSites::of(&network()));
    for_cases(24, |_, rng| {
        let kept: BTreeSet<_> = sites.layers().iter().copied().filter(|_| rng.random_bool(0.4)).collect();
        let mut range = || [-4.0, 4.0].map(|end: f32| end * rng.random_range(0.1..1.0));
        let scales: Vec<TensorScale> = (0..sites.scales()).map(|_| TensorScale::of_range(range())).collect();
        let plan = QuantisationPlan { sites: &sites, kept: &kept, scales: &scales, means: &BTreeMap::new() };
        let made = plan.apply(&graph).unwrap();
        let inputs = vec![numbers(rng, &[1, 3, 12, 12])];
        let found = run(&made, &inputs);
        let step = scales.iter().map(|scale| scale.scale).fold(0.0, f32::max);
        let wanted = made.evaluate(&inputs).unwrap();
        // Halfway cases may round either way, and later layers amplify that.
        let off = autotune_network::output_error(&found, &wanted);
        assert!(off < 0.05 + f64::from(step), "{kept:?}: off by {off}");

        let read = onnx::read_bytes(&onnx::write(&made).unwrap(), &ImportOptions::default()).unwrap();
        assert_eq!(run(&read, &inputs), found);
        let roundings = |graph: &Graph| graph.nodes().filter(|(_, node)| node.op.is::<Quantize>()).count();
        assert_eq!(roundings(&made) == 0, kept.len() == sites.layers().len());
        assert!(made.nodes().filter(|(_, node)| node.op.is::<Dequantize>()).count() >= roundings(&made));
    });
}

#[test]
fn what_cannot_be_quantised_is_refused() {
    let graph = network();
    let error = |graph: &Graph, examples: &[Vec<Tensor>]| quantised(graph, examples, None, None).unwrap_err();
    assert!(matches!(error(&graph, &[]), QuantiseError::NoExamples));
    let infinite = Tensor::f32(&[1, 3, 12, 12], vec![f32::INFINITY; 432]).unwrap();
    assert!(matches!(error(&graph, &[vec![infinite]]), QuantiseError::NotFinite { node } if node == "image"));
    let again = quantised(&graph, &examples(1), Some(RangeMethod::MinMax), None).unwrap().graph;
    assert!(matches!(error(&again, &examples(1)), QuantiseError::Quantised));

    let net = Builder::new("no layers", Seeded { seed: 1 });
    net.output("y", net.input("x", &[1, 3, 12, 12]).relu());
    assert!(matches!(error(&net.finish().unwrap(), &examples(1)), QuantiseError::NoLayers));
}
