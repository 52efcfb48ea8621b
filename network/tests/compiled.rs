//! Networks that run, against the reference.

use autotune_ir::Target;
use autotune_network::{Compiled, Element, Graph, Tensor, zoo};
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
