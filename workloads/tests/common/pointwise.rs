//! Random elementwise operators with broadcasting.

use autotune_workloads::Workload;
use rand::{Rng, RngExt};

use super::epilogues::random_epilogue;

/// Names of all operations with one operand.
pub const UNARY: [&str; 32] = [
    "relu",
    "gelu",
    "gelu_tanh",
    "silu",
    "hard_sigmoid",
    "hard_swish",
    "clip:-0.5:2",
    "round:-0.75:2.25",
    "leaky_relu",
    "leaky_relu:0.3",
    "hard_sigmoid:0.2:0.25",
    "sigmoid",
    "tanh",
    "erf",
    "softplus",
    "mish",
    "elu",
    "elu:0.5",
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "abs",
    "neg",
    "floor",
    "sign",
    "copy",
    "not",
    "bool",
    "trunc",
];

/// Returns a random operation with any number of operands and axes, a function before it, and
/// broadcasting.
pub fn random_pointwise<R: Rng>(rng: &mut R) -> Workload {
    let rank = [2, 2, 2, 3, 3, 4, 5][rng.random_range(0..7)];
    let mut pick = |of: &[&'static str]| of[rng.random_range(0..of.len())].to_string();
    let (m, n) = (pick(&["1", "2", "7", "16", "33"]), pick(&["1", "2", "13", "16", "64", "97"]));
    let (shape, words): (String, &[&'static str]) = match rank {
        2 => (format!("m={m},n={n}"), &["full", "row", "column", "scalar"]),
        3 => {
            let words = &["full", "row", "rows", "column", "scalar", "0", "01", "12"];
            (format!("b={},m={m},n={n}", pick(&["2", "3"])), words)
        }
        4 => (format!("shape=2x3x{}x{n}", pick(&["1", "5"])), &["full", "scalar", "13", "02", "3", "012", "123"]),
        _ => ("shape=2x3x2x5x11".into(), &["full", "scalar", "04", "13", "024", "234", "0124"]),
    };

    let op = match &*pick(&["unary", "binary", "binary", "where"]) {
        "unary" => pick(&UNARY),
        "binary" => {
            let op = pick(&[
                "add",
                "sub",
                "mul",
                "div",
                "max",
                "min",
                "pow",
                "less",
                "less_equal",
                "equal",
                "prelu",
                "quotient",
            ]);
            format!("{op},rhs={}", pick(words))
        }
        _ => format!("where,rhs={},third={}", pick(words), pick(words)),
    };
    let lhs = if pick(&["whole", "whole", "any"]) == "any" { pick(words) } else { "full".into() };
    let pre = pick(&["copy", "copy", "sigmoid", "abs", "leaky_relu:0.3"]);
    let channels = if rank <= 3 { pick(&["row", "column"]) } else { "row".into() };
    let text = format!("pointwise:{shape},pre={pre},op={op},lhs={lhs},channels={channels}");
    let workload: Workload = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    workload.with_epilogue(random_epilogue(rng))
}
