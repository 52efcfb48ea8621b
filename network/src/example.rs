//! Random tensors for inputs.

use autotune_graph::{DType, GraphError, GraphNode, Tensor};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Returns random numbers for an input: within -1 and 1, or the integers 0 and 1.
pub fn random_input(node: &GraphNode, seed: u64) -> Result<Tensor, GraphError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let numbers = (0..node.shape.iter().product()).map(|_| match node.dtype {
        DType::Bool => 1.0,
        integer if integer.is_integer() => rng.random_range(0..2i64) as f32,
        _ => rng.random_range(-1.0..1.0),
    });
    let tensor = Tensor::of_numbers(&node.shape, node.dtype, &numbers.collect::<Vec<f32>>());
    tensor.map_err(|source| GraphError { node: node.name.clone(), op: node.op.name(), source })
}
