//! Built-in networks compared with published figures.

use std::collections::HashSet;
use std::sync::Arc;

use autotune_network::cut::{Cut, StepWork};
use autotune_network::operators::{Attention, Binary, Conv, ConvTranspose, LayerNorm, MatMul};
use autotune_network::{Constant, DType, Fill, Graph, GraphNode, Op, OpError, Tensor, Weights, rewrite, zoo};

/// Weights that take no time: zero pages that are never touched.
struct Zeros;

impl Weights for Zeros {
    fn tensor(&mut self, _: &str, shape: &[usize], _: Fill) -> Result<Arc<Tensor>, OpError> {
        Tensor::f32(shape, vec![0.0; shape.iter().product()]).map(Arc::new)
    }
}

fn graph(name: &str) -> Graph {
    zoo::with_weights(name, Zeros).unwrap()
}

fn shape<'g>(graph: &'g Graph, node: &GraphNode, operand: usize) -> &'g [usize] {
    &graph.node(node.operands[operand]).shape
}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

fn is_constant(graph: &Graph, node: &GraphNode, operand: usize) -> bool {
    graph.constant_of(node.operands[operand]).is_some()
}

/// Counts the multiply-adds of convolutions and products, including padding taps.
fn multiply_adds(graph: &Graph, node: &GraphNode) -> usize {
    match &node.op {
        op if op.is::<Conv>() => count(&node.shape) * count(&shape(graph, node, 1)[1..]),
        op if op.is::<ConvTranspose>() => count(shape(graph, node, 0)) * count(&shape(graph, node, 1)[1..]),
        op if op.is::<MatMul>() => count(&node.shape) * shape(graph, node, 0).last().unwrap(),
        op if op.is::<Attention>() => {
            let keys = shape(graph, node, 1)[2];
            keys * (count(shape(graph, node, 0)) + count(&node.shape))
        }
        _ => 0,
    }
}

fn parameters(graph: &Graph) -> usize {
    graph.nodes().filter(|(_, node)| node.op.is::<Constant>()).map(|(_, node)| count(&node.shape)).sum()
}

fn nodes(graph: &Graph, wanted: fn(&Op) -> bool) -> usize {
    graph.nodes().filter(|(_, node)| wanted(&node.op)).count()
}

/// Name, parameters, millions of multiply-adds, convolutions, matrix products, shapes of the
/// outputs.
type Published = (&'static str, usize, f64, usize, usize, &'static [&'static [usize]]);

const LSTM_OUTPUTS: [&[usize]; 5] = [&[1, 650], &[1, 650], &[1, 650], &[1, 650], &[1, 10_000]];

/// The first six and `vit_b16` are from torchvision's documentation (with a scale and a shift for
/// each normalised channel). The parameters of `bert_base` are from Hugging Face; its operations
/// are from Sun et al., "MobileBERT" (2020), table 1: 22.5 billion, without look-ups in tables. The
/// others are counted by hand from the layers in their papers.
const PUBLISHED: [Published; 11] = [
    ("resnet18", 11_689_512, 1814.0, 20, 1, &[&[1, 1000]]),
    ("resnet34", 21_797_672, 3664.0, 36, 1, &[&[1, 1000]]),
    ("resnet50", 25_557_032, 4089.0, 53, 1, &[&[1, 1000]]),
    ("mobilenet_v2", 3_504_872, 301.0, 52, 1, &[&[1, 1000]]),
    ("squeezenet", 1_235_496, 349.0, 26, 0, &[&[1, 1000]]),
    ("vgg16", 138_357_544, 15_470.0, 13, 3, &[&[1, 1000]]),
    ("bert_base", 109_482_240, 11_174.0, 0, 73, &[&[1, 128, 768], &[1, 768]]),
    ("vit_b16", 86_567_656, 17_564.0, 1, 73, &[&[1, 1000]]),
    ("dqn", 8_224 + 32_832 + 36_928 + 1_606_144 + 18 * 513, 9.344, 3, 2, &[&[1, 18]]),
    ("dcgan", 1_638_400 + 8_388_608 + 2_097_152 + 524_288 + 6_144 + 2 * 896, 410.8, 4, 1, &[&[1, 3, 64, 64]]),
    ("lstm", 6_500_000 + 2 * 2 * (650 * 2600 + 2600) + 650 * 10_000 + 10_000, 13.26, 0, 5, &LSTM_OUTPUTS),
];

#[test]
fn networks_have_the_published_sizes() {
    assert_eq!(PUBLISHED.map(|network| network.0), zoo::NAMES);
    for (name, weights, millions, convs, products, outputs) in PUBLISHED {
        let graph = graph(name);
        assert_eq!(graph.name(), name);
        assert_eq!(parameters(&graph), weights, "{name}: parameters");
        let total: usize = graph.nodes().map(|(_, node)| multiply_adds(&graph, node)).sum();
        let error = (total as f64 / 1e6 - millions).abs();
        assert!(error <= 0.5_f64.min(millions * 1e-3), "{name}: {total} multiply-adds, not {millions} million");
        let convolutions = nodes(&graph, |op| op.is::<Conv>() || op.is::<ConvTranspose>());
        assert_eq!(convolutions, convs, "{name}: convolutions");
        assert_eq!(nodes(&graph, |op| op.is::<MatMul>()), products, "{name}: products");
        let found: Vec<&[usize]> = graph.outputs().iter().map(|output| &*graph.node(output.node).shape).collect();
        assert_eq!(found, outputs, "{name}: outputs");
    }
}

#[test]
fn transformers_have_twelve_layers() {
    for name in ["bert_base", "vit_b16"] {
        let graph = graph(name);
        assert_eq!(nodes(&graph, |op| op.is::<Attention>()), 12, "{name}");
        assert_eq!(nodes(&graph, |op| op.is::<LayerNorm>()), 25, "{name}");
    }
}

#[test]
fn every_weight_has_a_name_of_its_own_and_is_used() {
    for name in zoo::NAMES {
        let (graph, mut names) = (graph(name), HashSet::new());
        let uses = graph.uses();
        for (id, node) in graph.nodes() {
            assert!(uses[id.0 as usize] > 0, "{name}: nobody needs '{}'", node.name);
            let is_new = names.insert(&node.name);
            assert!(is_new || !node.op.is::<Constant>(), "{name}: '{}' twice", node.name);
        }
    }
}

/// `c, h, w, o, k, s` of the convolutions C1 to C12 in table 1 of "Learning to Optimize Tensor
/// Programs".
const TABLE_1: [[usize; 6]; 12] = [
    [3, 224, 224, 64, 7, 2],
    [64, 56, 56, 64, 3, 1],
    [64, 56, 56, 64, 1, 1],
    [64, 56, 56, 128, 3, 2],
    [64, 56, 56, 128, 1, 2],
    [128, 28, 28, 128, 3, 1],
    [128, 28, 28, 256, 3, 2],
    [128, 28, 28, 256, 1, 2],
    [256, 14, 14, 256, 3, 1],
    [256, 14, 14, 512, 3, 2],
    [256, 14, 14, 512, 1, 2],
    [512, 7, 7, 512, 3, 1],
];

#[test]
fn the_convolutions_of_the_papers_table_are_those_of_resnet18() {
    let graph = graph("resnet18");
    let found = graph.nodes().filter_map(|(_, node)| match node.op.of() {
        Some(Conv { window, groups: 1 }) => {
            let ([_, c, h, w], &[o, ..]) = (shape(&graph, node, 0), shape(&graph, node, 1)) else { return None };
            assert!(window.iter().all(|axis| axis.pad == [axis.kernel / 2; 2] && axis.dilation == 1));
            Some([*c, *h, *w, o, window[0].kernel, window[0].stride])
        }
        _ => None,
    });
    // C3, the projection before the first stage, is only in the table: the published network keeps
    // its width there.
    let wanted = TABLE_1.iter().filter(|conv| **conv != TABLE_1[2]).copied().collect();
    assert_eq!(found.collect::<HashSet<_>>(), wanted);
}

#[test]
fn batch_normalisation_is_a_scale_and_a_shift_after_a_convolution() {
    let graph = graph("resnet50");
    for (_, node) in graph.nodes().filter(|(_, node)| node.op.is::<Conv>()) {
        assert_eq!(node.operands.len(), 2, "{}", node.name);
    }
    let by_channel = graph.nodes().filter(|(_, node)| {
        node.op.is::<Binary>() && is_constant(&graph, node, 1) && shape(&graph, node, 1)[1..] == [1, 1]
    });
    assert_eq!(by_channel.count(), 2 * 53);
}

#[test]
fn inputs_are_those_of_the_networks() {
    for name in zoo::NAMES {
        let graph = graph(name);
        let first = graph.node(graph.inputs()[0]);
        let wanted: (DType, &[usize]) = match name {
            "bert_base" => (DType::I64, &[1, 128]),
            "lstm" => (DType::I64, &[1]),
            "dqn" => (DType::F32, &[1, 4, 84, 84]),
            "dcgan" => (DType::F32, &[1, 100]),
            _ => (DType::F32, &[1, 3, 224, 224]),
        };
        assert_eq!((first.dtype, &*first.shape), wanted, "{name}");
    }
}

#[test]
fn weights_of_built_in_networks_are_the_same_every_time() {
    assert_eq!(zoo::graph("dqn"), zoo::graph("dqn"));
    let graph = zoo::graph("dqn").unwrap();
    let constants = graph.nodes().filter_map(|(id, _)| graph.constant_of(id));
    let values = constants.flat_map(|constant| constant.tensor().unwrap().as_f32().unwrap());
    let (mut least, mut largest) = (f32::MAX, f32::MIN);
    values.for_each(|&x| (least, largest) = (least.min(x), largest.max(x)));
    assert!(-0.3 < least && least < -0.1 && 0.1 < largest && largest < 0.3, "{least} {largest}");
}

/// Weights that no rule simplifies.
struct Ramps;

impl Weights for Ramps {
    fn tensor(&mut self, _: &str, shape: &[usize], _: Fill) -> Result<Arc<Tensor>, OpError> {
        Tensor::f32(shape, (0..count(shape)).map(|at| (at % 251) as f32 * 1e-3 - 0.1).collect()).map(Arc::new)
    }
}

#[test]
fn every_node_has_a_kernel() {
    for name in zoo::NAMES {
        let graph = rewrite(&zoo::with_weights(name, Ramps).unwrap()).unwrap();
        for step in Cut::of(&graph).steps {
            assert!(!matches!(step.work, StepWork::Interpret(_)), "{name}: {step:?}");
        }
    }
}

#[test]
fn unknown_networks_are_told_with_the_known_ones() {
    let error = zoo::graph("resnet19").unwrap_err().to_string();
    assert!(error.starts_with("unknown network 'resnet19': expected resnet18, resnet34, "), "{error}");
}
