//! Networks that run, against the reference.

#![allow(clippy::unwrap_used)]

use autotune_ir::Target;
use autotune_network::cut::{Cut, Work};
use autotune_network::op::Sliding;
use autotune_network::{Builder, Compiled, Conv, Element, Fill, Graph, Seeded, Tensor, zoo};
use autotune_schedules::workload::Activation;
use rand::{RngExt, SeedableRng};

/// Numbers between -1 and 1; whole ones below 20 for integers.
fn random(graph: &Graph, seed: u64) -> Vec<Tensor> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let tensor = |id: &autotune_network::NodeId| {
        let node = graph.node(*id);
        let count = node.shape.iter().product();
        match node.element {
            Element::F32 => Tensor::f32(&node.shape, (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()),
            _ => Tensor::i64(&node.shape, (0..count).map(|_| rng.random_range(0..20)).collect()),
        }
    };
    graph.inputs().iter().map(tensor).collect::<Result<_, _>>().unwrap()
}

/// Runs a network twice in one workspace, on different inputs, and compares every output with the reference.
fn check(graph: &Graph, threads: usize) {
    let target = Target::detect("cpu", Some(threads)).unwrap();
    let network = Compiled::new(graph, None, &target).unwrap();
    let mut workspace = network.workspace().unwrap();
    for seed in [1, 2] {
        let inputs = random(graph, seed);
        let found = workspace.run_tensors(&inputs).unwrap();
        let wanted = graph.evaluate(&inputs).unwrap();
        for (output, (found, wanted)) in graph.outputs().iter().zip(found.iter().zip(&wanted)) {
            assert_eq!(found.shape(), wanted.shape());
            let (found, wanted) = (found.to_numbers(), wanted.to_numbers());
            let scale = wanted.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
            for (at, (x, y)) in found.iter().zip(&wanted).enumerate() {
                let error = (x - y).abs() / scale;
                assert!(error < 1e-4, "{}: output {} at {at}: {x} for {y}, seed {seed}", graph.name(), output.name);
            }
        }
    }
}

#[test]
fn small_networks_of_the_zoo_compute_what_they_mean() {
    for name in ["dqn", "lstm"] {
        check(&zoo::graph(name).unwrap(), 2);
    }
}

/// Masks that are repeated for queries, for heads, or for all of the batch, and one that no kernel has.
#[test]
fn attention_with_masks_is_what_it_means() {
    let kernels = [(&[5][..], 1), (&[1, 1, 1, 5], 1), (&[5, 5], 1), (&[2, 1, 1, 5], 1), (&[2, 1, 5, 5], 1)];
    for (shape, wanted) in kernels.into_iter().chain([(&[2, 3, 1, 5][..], 1), (&[2, 3, 5, 5], 1), (&[3, 1, 5], 0)]) {
        let net = Builder::new("masked", Seeded { seed: 1 });
        let (x, mask) = (net.input("x", &[2, 5, 12]), net.input("mask", shape));
        net.output("y", x.self_attention("attention", 3, Some(mask)));
        let graph = net.finish().unwrap();
        check(&graph, 1);
        let is_kernel = |work: &Work| matches!(work, Work::Kernel(of) if of.as_str().starts_with("attention:"));
        let kernels = Cut::of(&graph).steps.iter().filter(|step| is_kernel(&step.work)).count();
        assert_eq!(kernels, wanted, "{shape:?}");
    }
}

/// A scale and a shift of channels behind an activation are part of what is in front, and a gate of channels is one pass.
#[test]
fn what_is_done_to_channels_behind_an_activation_is_fused() {
    let net = Builder::new("affine", Seeded { seed: 1 });
    let hard_swish = Activation::new("hard_swish", &[]).unwrap();
    let (x, gate) = (net.input("x", &[1, 3, 9, 9]), net.input("gate", &[1, 16, 1, 1]));
    let [scale, shift] = ["scale", "shift"].map(|name| net.weight(name, &[16, 1, 1], Fill::deviation(1.0)));
    let y = x.conv("conv", Conv::new(16, Sliding::new(3).pad(1)).bias()).activation(hard_swish) * scale + shift;
    net.output("gated", y * gate);
    let graph = net.finish().unwrap();
    check(&graph, 1);

    let text = |work: &Work| if let Work::Kernel(of) = work { of.to_string() } else { String::new() };
    let steps: Vec<String> = Cut::of(&graph).steps.iter().map(|step| text(&step.work)).collect();
    let conv = "conv2d:n=1,c=3,h=9,w=9,o=16,k=3,s=1,p=1,bias,act=hard_swish,post_scale,post_bias";
    assert_eq!(steps, [conv, "pointwise:m=16,n=81,op=copy,channels=column,scale"]);
}
