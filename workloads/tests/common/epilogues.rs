//! Random epilogues and prologues.

use autotune_workloads::{Activation, Epilogue, Prologue, Workload};
use rand::{Rng, RngExt};

/// All activations, with parameters of different signs and bounds.
pub const ACTIVATIONS: [&str; 20] = [
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
    "elu",
    "elu:-0.5",
    "softplus",
    "silu",
    "mish",
    "gelu",
    "gelu_tanh",
];

/// Returns the activation with this text form.
pub fn activation(text: &str) -> Activation {
    let mut parts = text.split(':');
    let word = parts.next().unwrap();
    let parameters: Vec<f32> = parts.map(|part| part.parse().unwrap()).collect();
    Activation::new(word, &parameters).unwrap()
}

/// Evaluates an activation by its definition; `slope` is that of the value's channel.
pub fn activated(activation: Activation, x: f64, slope: f64) -> f64 {
    let unit = (x / 6.0 + 0.5).clamp(0.0, 1.0);
    let leaky = |slope: f64| if x < 0.0 { slope * x } else { x };

    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Clip { lo, hi, .. } => x.clamp(lo.into(), hi.into()),
        Activation::Round { lo, hi, .. } => x.clamp(lo.into(), hi.into()).round_ties_even(),
        Activation::LeakyRelu { alpha, .. } => leaky(alpha.into()),
        Activation::Prelu => leaky(slope),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::HardSigmoid { alpha, beta, .. } => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
        Activation::HardSwish => x * unit,
        Activation::Elu { alpha, .. } => {
            if x < 0.0 {
                f64::from(alpha) * x.exp_m1()
            } else {
                x
            }
        }
        Activation::Softplus => x.exp().ln_1p(),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Mish => x * x.exp().ln_1p().tanh(),
        Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
    }
}

/// Returns the workload, occasionally with a random prologue that its operator supports.
pub fn with_random_prologue<R: Rng>(workload: Workload, rng: &mut R) -> Workload {
    if rng.random_bool(0.7) {
        return workload;
    }
    let act = ACTIVATIONS[rng.random_range(0..ACTIVATIONS.len())];
    let activation = if act == "prelu" { Activation::None } else { activation(act) };
    let [scale, bias, gate] = [0.5, 0.5, 0.3].map(|share| rng.random_bool(share));
    let all = Prologue { scale, bias, activation, gate };
    let without_gate = Prologue { gate: false, ..all };
    let function = Prologue { activation, ..Prologue::default() };
    let with = [all, without_gate, function].into_iter().find_map(|prologue| workload.with_prologue(prologue).ok());
    with.unwrap_or(workload)
}

/// Returns an epilogue with random parts and any activation, without a table, which only results of
/// 8 bits have.
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
        post_scale: rng.random_bool(0.15),
        post_bias: rng.random_bool(0.15),
        post_residual: rng.random_bool(0.15),
        table: false,
    }
}
