//! Random functions of elements.

use autotune_schedules::Workload;
use rand::{Rng, RngExt};

use super::epilogues::random_epilogue;

/// Every operation on one operand, by its word.
pub const UNARY: [&str; 21] = [
    "relu",
    "gelu",
    "gelu_tanh",
    "silu",
    "hard_sigmoid",
    "hard_swish",
    "clip:-0.5:2",
    "leaky_relu",
    "leaky_relu:0.3",
    "hard_sigmoid:0.2:0.25",
    "sigmoid",
    "tanh",
    "erf",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "abs",
    "neg",
    "floor",
    "copy",
];

/// A random operation, of one operand or two.
pub fn random_pointwise<R: Rng>(rng: &mut R) -> Workload {
    let mut pick = |of: &[&'static str]| of[rng.random_range(0..of.len())];
    let op = match pick(&["unary", "binary"]) {
        "unary" => pick(&UNARY).to_string(),
        _ => {
            let op = pick(&["add", "sub", "mul", "div", "max", "min"]);
            format!("{op},rhs={}", pick(&["full", "row", "column", "scalar"]))
        }
    };
    let (m, n) = (pick(&["1", "2", "7", "16", "33"]), pick(&["1", "2", "13", "16", "64", "97"]));
    let workload: Workload = format!("pointwise:m={m},n={n},op={op}").parse().unwrap();
    workload.with_epilogue(random_epilogue(rng))
}
