//! Simplification of elementwise operations.

use autotune_ir::DType;
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Function};

use super::rule::Rule;
use super::site::{RewriteSite, Rewritten, uniform};
use super::without_kernels::MOST_REPEATED;
use crate::graph::NodeId;
use crate::operators::{Binary, Cast, Expand, Map, MatMul, Not, Prelu, Where};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule { name: "constant_last", before: "c + x, c * x, max(c, x), ..", after: "x + c, ..", apply: constant_last },
    Rule { name: "neutral", before: "x + 0, x * 1, x^1, max(x, -inf), ..", after: "x", apply: neutral },
    Rule { name: "copy", before: "copy, cast to the same type", after: "x", apply: copy },
    Rule {
        name: "one_form",
        before: "tanh or sigmoid as a unary operation",
        after: "tanh or sigmoid as an activation",
        apply: one_form,
    },
    Rule { name: "twice", before: "-(-x), not not x", after: "x", apply: twice },
    Rule { name: "subtraction", before: "x - c", after: "x + (-c)", apply: subtraction },
    Rule { name: "division", before: "x / c", after: "x * (1 / c)", apply: division },
    Rule { name: "root", before: "x^(1/2), x^(-1/2)", after: "sqrt(x), rsqrt(x)", apply: root },
    Rule { name: "inverse_root", before: "1 / sqrt(x)", after: "rsqrt(x)", apply: inverse_root },
    Rule { name: "inverse", before: "x * (1 / y)", after: "x / y", apply: inverse },
    Rule { name: "bound", before: "max(x, c), min(x, c)", after: "relu or clip of x", apply: bound },
    Rule { name: "bounds", before: "clip of clip, relu of clip, ..", after: "a single relu or clip", apply: bounds },
    Rule { name: "slope", before: "Prelu with one slope", after: "leaky_relu", apply: slope },
    Rule { name: "chosen_if_not", before: "Where(not c, a, b)", after: "Where(c, b, a)", apply: chosen_if_not },
    Rule {
        name: "chosen_always",
        before: "Where(c, a, b), where c is all true or all false",
        after: "a or b",
        apply: chosen_always,
    },
    Rule {
        name: "expanded_operand",
        before: "x + Expand(y), MatMul(x, Expand(y)), .., where broadcasting is equivalent",
        after: "x + y, ..",
        apply: expanded_operand,
    },
];

/// Rules for constant powers; they follow the patterns of functions that contain powers.
pub(super) const POWERS: &[Rule] = &[Rule {
    name: "power",
    before: "x^2, x^3, x^n of integers with n from 2 to 63",
    after: "x * x, x * x * x, a product of squares of squares",
    apply: power,
}];

/// Largest integer exponent that becomes products. Larger powers of anything but -1, 0 and 1
/// overflow 64 bits.
const MOST_POWER: u64 = 63;

fn constant_last(site: &mut RewriteSite) -> Rewritten {
    let Some(&op) = site.node().op.of::<Binary>() else { return Ok(None) };
    let commutes = matches!(op, Binary::Add | Binary::Mul | Binary::Max | Binary::Min | Binary::Equal | Binary::And);
    let [a, b] = [site.operand(0), site.operand(1)];
    if !commutes || !site.is_constant(a) || site.is_constant(b) {
        return Ok(None);
    }
    let operands = [site.made(b), site.made(a)];
    site.add(op, &operands).map(Some)
}

fn neutral(site: &mut RewriteSite) -> Rewritten {
    let Some(&op) = site.node().op.of::<Binary>() else { return Ok(None) };
    let (x, constant) = (site.operand(0), site.tensor(site.operand(1)));
    // A constant that broadcasts `x` to a larger shape is not neutral.
    let Some(value) = constant.and_then(uniform).filter(|_| site.fits(x)) else { return Ok(None) };
    let does_nothing = match op {
        Binary::Add | Binary::Sub => value == 0.0,
        Binary::Mul | Binary::Div | Binary::Pow | Binary::And => value == 1.0,
        Binary::Max => value == f64::NEG_INFINITY,
        Binary::Min => value == f64::INFINITY,
        Binary::Equal | Binary::Less => false,
    };
    if does_nothing { site.is(x) } else { Ok(None) }
}

fn copy(site: &mut RewriteSite) -> Rewritten {
    let op = &site.node().op;
    let is_copy = *op == Map(Function::Activation(Activation::None));
    if is_copy || op.is::<Cast>() && site.fits(site.operand(0)) { site.is(site.operand(0)) } else { Ok(None) }
}

fn one_form(site: &mut RewriteSite) -> Rewritten {
    let activation = match site.node().op.of() {
        Some(Map(Function::Op(UnaryOp::Tanh))) => Activation::Tanh,
        Some(Map(Function::Op(UnaryOp::Sigmoid))) => Activation::Sigmoid,
        _ => return Ok(None),
    };
    let x = site.made(site.operand(0));
    site.add(Map(Function::Activation(activation)), &[x]).map(Some)
}

fn twice(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    let is_own_inverse = node.op.is::<Not>() || node.op == Map(Function::Op(UnaryOp::Neg));
    if !is_own_inverse || site.of(node.operands[0]).op != node.op {
        return Ok(None);
    }
    site.is(site.of(node.operands[0]).operands[0])
}

fn subtraction(site: &mut RewriteSite) -> Rewritten {
    let Some([x, c]) = site.binary(site.id, Binary::Sub).filter(|[_, c]| site.is_constant(*c)) else {
        return Ok(None);
    };
    let (x, c) = (site.made(x), site.made(c));
    let c = site.add(Map(Function::Op(UnaryOp::Neg)), &[c])?;
    site.add(Binary::Add, &[x, c]).map(Some)
}

/// Replaces a division by a product, if all divisors and their reciprocals are normal numbers.
fn division(site: &mut RewriteSite) -> Rewritten {
    let Some([x, c]) = site.binary(site.id, Binary::Div) else { return Ok(None) };
    let Some(divisors) = site.tensor(c).and_then(Tensor::as_f32) else { return Ok(None) };
    if !divisors.iter().all(|c| c.is_normal() && c.recip().is_normal()) {
        return Ok(None);
    }
    let inverses = site.constant(Tensor::F32(divisors.mapv(f32::recip)));
    let x = site.made(x);
    site.add(Binary::Mul, &[x, inverses]).map(Some)
}

fn root(site: &mut RewriteSite) -> Rewritten {
    let Some((x, power)) = site.with_scalar(site.id, Binary::Pow).filter(|(x, _)| site.fits(*x)) else {
        return Ok(None);
    };
    let op = match power {
        0.5 => UnaryOp::Sqrt,
        -0.5 => UnaryOp::Rsqrt,
        _ => return Ok(None),
    };
    let x = site.made(x);
    site.add(Map(Function::Op(op)), &[x]).map(Some)
}

/// Returns `x` of `1 / x`.
fn divisor(site: &RewriteSite, id: NodeId) -> Option<NodeId> {
    let [one, x] = site.binary(id, Binary::Div)?;
    let is_one = site.tensor(one).and_then(uniform) == Some(1.0);
    (is_one && site.of(x).shape == site.of(id).shape && site.of(x).dtype == DType::F32).then_some(x)
}

fn inverse_root(site: &mut RewriteSite) -> Rewritten {
    let x = divisor(site, site.id).and_then(|root| site.unary(root, UnaryOp::Sqrt));
    let Some(x) = x else { return Ok(None) };
    let x = site.made(x);
    site.add(Map(Function::Op(UnaryOp::Rsqrt)), &[x]).map(Some)
}

fn inverse(site: &mut RewriteSite) -> Rewritten {
    // If the reciprocal has another reader, the product is faster.
    let pair = |[x, y]: [NodeId; 2]| Some([x, divisor(site, y).filter(|_| site.is_single(y))?]);
    let Some(pair) = site.both_orders(site.id, Binary::Mul).into_iter().find_map(pair) else { return Ok(None) };
    let operands = pair.map(|id| site.made(id));
    site.add(Binary::Div, &operands).map(Some)
}

fn power(site: &mut RewriteSite) -> Rewritten {
    let Some((x, power)) = site.binary(site.id, Binary::Pow).map(|[x, power]| (x, whole_power(site, power))) else {
        return Ok(None);
    };
    let Some(mut left) = power.filter(|_| site.fits(x)) else { return Ok(None) };

    let mul = Binary::Mul;
    // Exponentiation by squaring.
    let (mut square, mut product) = (site.made(x), None);
    loop {
        if left % 2 == 1 {
            product = Some(match product {
                None => square,
                Some(product) => site.add(mul, &[square, product])?,
            });
        }
        left /= 2;
        if left == 0 {
            return Ok(product);
        }
        square = site.add(mul, &[square, square])?;
    }
}

/// Returns a constant integer exponent for which products are faster than a power, or for which
/// there is no power kernel.
fn whole_power(site: &RewriteSite, exponent: NodeId) -> Option<u64> {
    match site.tensor(exponent)? {
        Tensor::I64(power) if power.len() == 1 => {
            let power = u64::try_from(*power.first()?).ok()?;
            (2..=MOST_POWER).contains(&power).then_some(power)
        }
        _ => [(2.0, 2), (3.0, 3)]
            .into_iter()
            .find_map(|(power, whole)| (site.scalar(exponent)? == power).then_some(whole)),
    }
}

/// Returns the simplest activation that clamps to these bounds; `None` if they are invalid.
pub(super) fn clip(lo: f32, hi: f32) -> Option<Map> {
    let activation = match [lo, hi] {
        [0.0, f32::INFINITY] => Activation::Relu,
        [f32::NEG_INFINITY, f32::INFINITY] => Activation::None,
        bounds => Activation::new("clip", &bounds).ok()?,
    };
    Some(Map(Function::Activation(activation)))
}

fn bound(site: &mut RewriteSite) -> Rewritten {
    let of = |op| site.with_scalar(site.id, op).filter(|(x, _)| site.fits(*x));
    let (max, min) = (of(Binary::Max), of(Binary::Min));
    let (x, op) = match (max, min) {
        (Some((x, lo)), _) => (x, clip(lo, f32::INFINITY)),
        (_, Some((x, hi))) => (x, clip(f32::NEG_INFINITY, hi)),
        _ => return Ok(None),
    };
    let Some(op) = op else { return Ok(None) };
    let x = site.made(x);
    site.add(op, &[x]).map(Some)
}

/// Returns the bounds of an activation that only clamps.
pub(super) fn bounds_of(activation: Activation) -> Option<[f32; 2]> {
    match activation {
        Activation::Relu => Some([0.0, f32::INFINITY]),
        Activation::Clip { lo, hi, .. } => Some([lo, hi]),
        _ => None,
    }
}

fn bounds(site: &mut RewriteSite) -> Rewritten {
    let Some((outer, x)) = site.activation(site.id) else { return Ok(None) };
    let Some([lo, hi]) = bounds_of(outer).filter(|_| site.node().dtype == DType::F32) else { return Ok(None) };
    let inner = site.activation(x).and_then(|(inner, x)| Some((bounds_of(inner)?, x)));
    let (op, x) = match inner {
        // The outer clamp applies to the inner bounds.
        Some(([inner_lo, inner_hi], x)) => (clip(inner_lo.clamp(lo, hi), inner_hi.clamp(lo, hi)), x),
        None => (clip(lo, hi), x),
    };
    // A single clamp is replaced only by a simpler form.
    let Some(op) = op.filter(|op| inner.is_some() || site.node().op != *op) else { return Ok(None) };
    let x = site.made(x);
    site.add(op, &[x]).map(Some)
}

fn slope(site: &mut RewriteSite) -> Rewritten {
    if site.node().op != Prelu {
        return Ok(None);
    }
    let slope = site.tensor(site.operand(1)).and_then(uniform);
    let function = slope.and_then(|slope| Activation::new("leaky_relu", &[slope as f32]).ok());
    let Some(function) = function else { return Ok(None) };
    let x = site.made(site.operand(0));
    site.add(Map(Function::Activation(function)), &[x]).map(Some)
}

fn chosen_if_not(site: &mut RewriteSite) -> Rewritten {
    let (Some(Where), &[choice, yes, no]) = (site.node().op.of(), &site.node().operands[..]) else { return Ok(None) };
    if site.of(choice).op != Not {
        return Ok(None);
    }
    let operands = [site.of(choice).operands[0], no, yes].map(|id| site.made(id));
    site.add(Where, &operands).map(Some)
}

fn chosen_always(site: &mut RewriteSite) -> Rewritten {
    let (Some(Where), &[choice, yes, no]) = (site.node().op.of(), &site.node().operands[..]) else { return Ok(None) };
    let Some(choice) = site.tensor(choice).and_then(uniform) else { return Ok(None) };
    let chosen = if choice == 1.0 { yes } else { no };
    if site.fits(chosen) { site.is(chosen) } else { Ok(None) }
}

fn expanded_operand(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    // For results with more axes there may be no kernel that broadcasts.
    let broadcasts = node.op.is::<Binary>() || node.op.is::<Where>() || node.op.is::<MatMul>();
    if !broadcasts || node.shape.len() > MOST_REPEATED {
        return Ok(None);
    }
    for number in 0..node.operands.len() {
        if !site.of(node.operands[number]).op.is::<Expand>() {
            continue;
        }
        let mut operands = node.operands.clone();
        operands[number] = site.of(operands[number]).operands[0];
        let known: Vec<_> = operands.iter().map(|&id| (&*site.of(id).shape, site.of(id).dtype)).collect();
        // Broadcasting must still yield the output's shape.
        if node.op.infer(&known).is_ok_and(|(shape, _)| shape == node.shape) {
            let operands: Vec<_> = operands.into_iter().map(|id| site.made(id)).collect();
            return site.add(node.op.clone(), &operands).map(Some);
        }
    }
    Ok(None)
}
