//! Random epilogues.

use autotune_schedules::workload::{Activation, Epilogue};
use rand::{Rng, RngExt};

/// Every activation, with parameters of several signs and bounds.
pub const ACTIVATIONS: [&str; 16] = [
    "none",
    "relu",
    "clip:0:6",
    "clip:-1:inf",
    "clip:-inf:0.75",
    "leaky_relu",
    "leaky_relu:-0.5",
    "prelu",
    "sigmoid",
    "tanh",
    "hard_sigmoid",
    "hard_sigmoid:0.2:0.25",
    "hard_swish",
    "silu",
    "gelu",
    "gelu_tanh",
];

/// The activation of a text form.
pub fn activation(text: &str) -> Activation {
    let mut parts = text.split(':');
    let word = parts.next().unwrap();
    let parameters: Vec<f32> = parts.map(|part| part.parse().unwrap()).collect();
    Activation::new(word, &parameters).unwrap()
}

/// Each part as often as not, every activation now and then.
pub fn random_epilogue<R: Rng>(rng: &mut R) -> Epilogue {
    let act = match rng.random_bool(0.5) {
        true => ACTIVATIONS[rng.random_range(0..2)],
        false => ACTIVATIONS[rng.random_range(2..ACTIVATIONS.len())],
    };
    Epilogue {
        scale: rng.random_bool(0.2),
        bias: rng.random_bool(0.5),
        residual: rng.random_bool(0.3),
        activation: activation(act),
    }
}
