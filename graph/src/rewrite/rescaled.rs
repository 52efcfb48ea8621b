//! Scales and shifts of dequantised tensors, merged into one.

use autotune_ir::DType;

use super::integers::vector;
use super::quantised::is_by_channel;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::graph::NodeId;
use crate::memory::is_of_bytes;
use crate::operators::{Binary, Rescale};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "scale_of_rescaled",
        before: "(x * s + b) * c, with 8-bit x and s, b and c for each channel",
        after: "x * (s * c) + b * c",
        apply: scale_of_rescaled,
    },
    Rule {
        name: "shift_of_rescaled",
        before: "x * s + b + c, with 8-bit x and s, b and c for each channel",
        after: "x * s + (b + c)",
        apply: shift_of_rescaled,
    },
    Rule {
        name: "rescaled_again",
        before: "(x * s + b) * t + c, possibly rounded, with 8-bit x and s, b, t and c for each channel",
        after: "x * (s * t) + (b * t + c), rounded in the same way",
        apply: rescaled_again,
    },
];

/// Bound of the largest scale, whose reciprocal is the other bound: far from over- and underflow.
const LARGEST_SCALE: f64 = (1u64 << 60) as f64;

/// Largest ratio of a shift to the tensor before it. Rounding the merged shift then loses at most
/// 2^-12 of that tensor's largest element, much less than a quantisation step.
const MOST_SHIFTED: f64 = 4096.0;

/// Largest ratio of merged shifts to their sum or, if larger, to the scaled tensor. So a number
/// that is added and subtracted again in order to round is kept.
const MOST_CANCELLED: f64 = 64.0;

/// An 8-bit tensor `x` as floating-point numbers `x * scale + shift`.
struct DequantizedBytes {
    x: NodeId,
    /// Axis of scales and shifts.
    axis: usize,
    scale: Vec<f64>,
    shift: Vec<f64>,
}

impl DequantizedBytes {
    /// Matches a tensor that is scaled and shifted by constants, and not rounded.
    fn of(site: &RewriteSite, id: NodeId) -> Option<Self> {
        let &Rescale { dtype, axis } = site.of(id).op.of()?;
        let [x, scale, shift] = site.of(id).operands[..] else { return None };
        if dtype != DType::F32 || !is_of_bytes(site.of(x).dtype) || site.is_constant(x) {
            return None;
        }
        let [scale, shift] = [scale, shift].map(|id| Some(wide(site.tensor(id)?)));
        Some(Self { x, axis, scale: scale?, shift: shift? })
    }

    /// Adds the tensor `(x * scale + shift) * by + plus`, with numbers for each channel, possibly
    /// rounded to 8 bits, if merging the constants changes it by rounding only.
    fn mapped(self, site: &mut RewriteSite, [by, plus]: [&[f64]; 2], dtype: DType) -> Rewritten {
        let product = |own: &[f64]| -> Vec<f64> { own.iter().zip(by).map(|(own, by)| own * by).collect() };
        let (scale, before) = (product(&self.scale), product(&self.shift));
        let shift: Vec<f64> = before.iter().zip(plus).map(|(before, plus)| before + plus).collect();

        let [least, most] = site.of(self.x).dtype.range();
        let scaled = largest(&scale) * most.max(-least);
        let [own, new, both] = [&before[..], plus, &shift[..]].map(largest);
        let is_rounding = (LARGEST_SCALE.recip()..=LARGEST_SCALE).contains(&largest(&scale))
            && new <= MOST_SHIFTED * scaled.max(own)
            && own.max(new) <= MOST_CANCELLED * both.max(scaled);
        if !is_rounding {
            return Ok(None);
        }

        let x = site.made(self.x);
        let [scale, shift] = [scale, shift].map(|numbers| numbers.into_iter().map(|number| number as f32).collect());
        let [scale, shift] = [vector(site, scale)?, vector(site, shift)?];
        site.add(Rescale { dtype, axis: self.axis }, &[x, scale, shift]).map(Some)
    }
}

/// Returns the largest magnitude; infinity if a number is NaN.
fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |most, number| if number.is_nan() { f64::INFINITY } else { most.max(number.abs()) })
}

fn wide(tensor: &Tensor) -> Vec<f64> {
    tensor.to_numbers().into_iter().map(f64::from).collect()
}

/// Returns a constant with one element for each channel along an axis of the replaced node, or with
/// a single element, which is repeated.
fn by_channel(site: &RewriteSite, id: NodeId, axis: usize) -> Option<Vec<f64>> {
    let whole = &site.node().shape;
    let numbers = wide(site.tensor(id).filter(|_| is_by_channel(site, id, whole, axis))?);
    Some(if let [number] = numbers[..] { vec![number; whole[axis]] } else { numbers })
}

/// Matches a scaled tensor and a constant for each channel as operands of the replaced node.
fn with_constant(site: &RewriteSite, op: Binary) -> Option<(DequantizedBytes, Vec<f64>)> {
    site.both_orders(site.id, op).into_iter().find_map(|[x, constant]| {
        let scaled = DequantizedBytes::of(site, x).filter(|_| site.fits(x))?;
        let numbers = by_channel(site, constant, scaled.axis)?;
        Some((scaled, numbers))
    })
}

fn scale_of_rescaled(site: &mut RewriteSite) -> Rewritten {
    let Some((scaled, by)) = with_constant(site, Binary::Mul) else { return Ok(None) };
    let none = vec![0.0; by.len()];
    scaled.mapped(site, [&by, &none], DType::F32)
}

fn shift_of_rescaled(site: &mut RewriteSite) -> Rewritten {
    let Some((scaled, plus)) = with_constant(site, Binary::Add) else { return Ok(None) };
    let one = vec![1.0; plus.len()];
    scaled.mapped(site, [&one, &plus], DType::F32)
}

fn rescaled_again(site: &mut RewriteSite) -> Rewritten {
    let Some(&Rescale { dtype, axis }) = site.node().op.of() else { return Ok(None) };
    let Some(inner) = DequantizedBytes::of(site, site.operand(0)).filter(|inner| inner.axis == axis) else {
        return Ok(None);
    };
    let [by, plus] = [1, 2].map(|place| site.tensor(site.operand(place)).map(wide));
    let (Some(by), Some(plus)) = (by, plus) else { return Ok(None) };
    inner.mapped(site, [&by, &plus], dtype)
}
