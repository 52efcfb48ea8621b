//! Patterns of activations that exporters write as several operations.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Function};

use super::arithmetic::bounds_of;
use super::bounds::{LARGEST_OFFSET, is_moderate};
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten, near};
use crate::graph::NodeId;
use crate::operators::{Binary, Map};

pub(super) const RULES: &[Rule] = &[
    Rule { name: "silu", before: "x * sigmoid(x)", after: "silu(x)", apply: silu },
    Rule {
        name: "hard_swish",
        before: "x * hard_sigmoid(x), x * clip(x + 3, 0, 6) * 1/6",
        after: "hard_swish(x)",
        apply: hard_swish,
    },
    Rule {
        name: "hard_sigmoid",
        before: "clip(a*x + b, 0, 1), clip(x + b, 0, 1/a) * a",
        after: "hard_sigmoid(x)",
        apply: hard_sigmoid,
    },
    Rule { name: "log_sigmoid", before: "log(sigmoid(x))", after: "-softplus(-x)", apply: log_sigmoid },
    Rule { name: "gelu", before: "0.5 * x * (1 + erf(x / sqrt(2)))", after: "gelu(x)", apply: gelu },
    Rule {
        name: "gelu_tanh",
        before: "0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))",
        after: "gelu_tanh(x)",
        apply: gelu_tanh,
    },
];

/// Adds an activation of `x`, if `x` has the shape of the node.
fn function(site: &mut RewriteSite, activation: Activation, x: Option<NodeId>) -> Rewritten {
    let Some(x) = x.filter(|&x| site.fits(x)) else { return Ok(None) };
    let x = site.made(x);
    site.add(Map(Function::Activation(activation)), &[x]).map(Some)
}

fn silu(site: &mut RewriteSite) -> Rewritten {
    let is = |&[x, y]: &[NodeId; 2]| site.activation(y) == Some((Activation::Sigmoid, x));
    let found = site.product_of_two(site.id, 1.0).into_iter().find(is);
    function(site, Activation::Silu, found.map(|[x, _]| x))
}

fn hard_swish(site: &mut RewriteSite) -> Rewritten {
    let is_sigmoid = |x: NodeId, y: NodeId| match site.activation(y) {
        Some((Activation::HardSigmoid { alpha, beta, .. }, of)) => {
            of == x && near(alpha.into(), 1.0 / 6.0) && near(beta.into(), 0.5)
        }
        _ => false,
    };
    let is_clip = |x: NodeId, y: NodeId| {
        let clip = site.activation(y).filter(|(clip, _)| bounds_of(*clip) == Some([0.0, 6.0]));
        clip.and_then(|(_, sum)| site.with_scalar(sum, Binary::Add)) == Some((x, 3.0))
    };
    let scaled = site.product_of_two(site.id, 1.0 / 6.0).into_iter().find(|&[x, y]| is_clip(x, y));
    let found = scaled.or_else(|| site.product_of_two(site.id, 1.0).into_iter().find(|&[x, y]| is_sigmoid(x, y)));
    function(site, Activation::HardSwish, found.map(|[x, _]| x))
}

fn hard_sigmoid(site: &mut RewriteSite) -> Rewritten {
    // The pattern is a clamp of an affine function, possibly scaled afterwards.
    let (scaled, scale) = site.with_scalar(site.id, Binary::Mul).unwrap_or((site.id, 1.0));
    let Some((clip, inside)) = site.activation(scaled) else { return Ok(None) };
    let is_unit = |[lo, hi]: [f32; 2]| lo == 0.0 && near(f64::from(hi) * f64::from(scale), 1.0);
    if !bounds_of(clip).is_some_and(is_unit) {
        return Ok(None);
    }
    // A missing summand or factor is neutral.
    let (product, beta) = site.with_scalar(inside, Binary::Add).unwrap_or((inside, 0.0));
    let (x, alpha) = site.with_scalar(product, Binary::Mul).unwrap_or((product, 1.0));
    let [alpha, beta] = [alpha * scale, beta * scale];
    // A large offset loses accuracy, and extreme factors overflow.
    let is_near = (-LARGEST_OFFSET..=LARGEST_OFFSET).contains(&beta);
    if !is_near || !is_moderate(alpha) || !is_moderate(scale) {
        return Ok(None);
    }
    let known = Activation::new("hard_sigmoid", &[alpha, beta]);
    // A clamp without a product is cheaper as a clamp.
    match known {
        Ok(activation) if x != inside => function(site, activation, Some(x)),
        _ => Ok(None),
    }
}

/// Replaces the logarithm of a sigmoid, which loses all precision where the sigmoid is near 0 or 1.
fn log_sigmoid(site: &mut RewriteSite) -> Rewritten {
    let sigmoid = site.unary(site.id, UnaryOp::Log).and_then(|of| site.activation(of));
    let Some((Activation::Sigmoid, x)) = sigmoid.filter(|&(_, x)| site.fits(x)) else { return Ok(None) };
    let x = site.made(x);
    let opposite = site.add(Map(Function::Op(UnaryOp::Neg)), &[x])?;
    let softplus = site.add(Map(Function::Activation(Activation::Softplus)), &[opposite])?;
    site.add(Map(Function::Op(UnaryOp::Neg)), &[softplus]).map(Some)
}

/// Returns `x` of `x + 1`.
fn added_to_one(site: &RewriteSite, id: NodeId) -> Option<NodeId> {
    site.with_scalar(id, Binary::Add).filter(|(_, one)| *one == 1.0).map(|(x, _)| x)
}

fn gelu(site: &mut RewriteSite) -> Rewritten {
    let is = |&[x, y]: &[NodeId; 2]| {
        let scaled = added_to_one(site, y).and_then(|erf| site.unary(erf, UnaryOp::Erf));
        scaled.is_some_and(|scaled| {
            let (scale, factors) = site.factors(scaled);
            near(scale, FRAC_1_SQRT_2) && factors == [x]
        })
    };
    let found = site.product_of_two(site.id, 0.5).into_iter().find(is);
    function(site, Activation::Gelu, found.map(|[x, _]| x))
}

fn gelu_tanh(site: &mut RewriteSite) -> Rewritten {
    let is = |&[x, y]: &[NodeId; 2]| {
        let inner = added_to_one(site, y).and_then(|tanh| site.activation(tanh));
        let inner = inner.filter(|(function, _)| *function == Activation::Tanh).map(|(_, inner)| inner);
        inner.is_some_and(|inner| is_inner(site, inner, x))
    };
    let found = site.product_of_two(site.id, 0.5).into_iter().find(is);
    function(site, Activation::GeluTanh, found.map(|[x, _]| x))
}

/// True for `sqrt(2/pi) * (x + 0.044715 * x^3)`, also with `x` factored out of the sum.
fn is_inner(site: &RewriteSite, inner: NodeId, x: NodeId) -> bool {
    let (scale, factors) = site.factors(inner);
    if !near(scale, FRAC_2_SQRT_PI * FRAC_1_SQRT_2) {
        return false;
    }
    let is_power = |id: NodeId, power: usize| {
        let (scale, factors) = site.factors(id);
        near(scale, 0.044_715) && factors == vec![x; power]
    };
    match factors[..] {
        [sum] => site.both_orders(sum, Binary::Add).iter().any(|&[a, b]| a == x && is_power(b, 3)),
        // The same with `x` factored out of the sum.
        [a, b] => [[a, b], [b, a]]
            .iter()
            .any(|&[other, sum]| other == x && added_to_one(site, sum).is_some_and(|square| is_power(square, 2))),
        _ => false,
    }
}
