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

/// A random operation, of one operand or two, with or without a batch, a function before it, and broadcasting.
pub fn random_pointwise<R: Rng>(rng: &mut R) -> Workload {
    let mut pick = |of: &[&'static str]| of[rng.random_range(0..of.len())];
    let b = pick(&["1", "1", "2", "3"]);
    let shapes: &[&'static str] = match b {
        "1" => &["full", "row", "column", "scalar"],
        _ => &["full", "row", "rows", "column", "scalar"],
    };
    let op = match pick(&["unary", "binary"]) {
        "unary" => pick(&UNARY).to_string(),
        _ => {
            let op = pick(&["add", "sub", "mul", "div", "max", "min"]);
            format!("{op},rhs={}", pick(shapes))
        }
    };
    let lhs = if pick(&["whole", "whole", "any"]) == "any" { pick(shapes) } else { "full" };
    let pre = pick(&["copy", "copy", "sigmoid", "abs", "leaky_relu:0.3"]);
    let channels = pick(&["row", "column"]);
    let (m, n) = (pick(&["1", "2", "7", "16", "33"]), pick(&["1", "2", "13", "16", "64", "97"]));
    let text = format!("pointwise:b={b},m={m},n={n},pre={pre},op={op},lhs={lhs},channels={channels}");
    let workload: Workload = text.parse().unwrap();
    workload.with_epilogue(random_epilogue(rng))
}
