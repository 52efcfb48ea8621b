//! Requantisation of integer sums and of sums of tensors.

use autotune_ir::DType;
use autotune_workloads::{Activation, Function};

use super::integers::{IntegerData, bounded, sums, vector};
use super::new_graph::NewNode;
use super::quantised::{number, quantised};
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::operators::{Binary, Cast, Map, Quantize, Rescale, Saturate};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "requantised_sums",
        before: "Quantize(Dequantize(x)) of integer sums x, rounded to u8, whose scale is at most the new one",
        after: "the sums rounded, times a scale plus a bias for each channel, rounded again",
        apply: requantised_sums,
    },
    Rule {
        name: "sums_plus_quantised",
        before: "Quantize of Dequantize(x) + Dequantize(y), or of a relu of that to the least integer, with integer sums x, rounded to u8",
        after: "the sums rounded, times a scale plus a bias for each channel, plus y * c, rounded again",
        apply: sums_plus_quantised,
    },
    Rule {
        name: "sum_of_quantised",
        before: "Quantize of Dequantize(x) + Dequantize(y), or of relu or clip of that",
        after: "(x * c + y + a number), scaled and rounded",
        apply: sum_of_quantised,
    },
];

/// Integer sums that are rounded to an 8-bit tensor with one reader.
struct RoundedSums {
    sums: NodeId,
    /// Axis of scales and biases, and its extent.
    axis: usize,
    channels: usize,
    /// Rounding, with the bounds of an activation before it.
    round: Activation,
    data: IntegerData,
}

impl RoundedSums {
    /// Matches the dequantisation of rounded sums that nothing else reads.
    fn of(site: &RewriteSite, id: NodeId) -> Option<Self> {
        let data = IntegerData::of(site, id).filter(|_| site.is_single(id))?;
        let &Saturate(dtype) = site.of(data.x).op.of()?;
        let &clipped = site.of(data.x).operands.first().filter(|_| site.is_single(data.x))?;
        let (found, [lo, hi]) = bounded(site, clipped)?;
        let (_, channels) = sums(site, found)?;
        let axis = site.of(found).op.channel_of_sums(site.of(found).shape.len())?;

        let [least, most] = dtype.range().map(|end| end as f32);
        let round = Activation::new("round", &[lo.max(least), hi.min(most)]).ok()?;
        Some(Self { sums: found, axis, channels, round, data })
    }

    /// Adds the rounded sums, in steps of `step` with the zero point `zero`.
    fn rescaled(&self, site: &mut RewriteSite, dtype: DType, step: f32, zero: f64) -> Result<NewNode, GraphError> {
        // In f64, so that each constant is rounded to f32 once only.
        let by = f64::from(self.data.scale) / f64::from(step);
        let shift = zero - f64::from(self.data.zero) * by;
        let [by, shift] = [by, shift].map(|number| vec![number as f32; self.channels]);
        let sums = site.made(self.sums);
        let rounded = site.add(Map(Function::Activation(self.round)), &[sums])?;
        let operands = [rounded, vector(site, by)?, vector(site, shift)?];
        site.add(Rescale { dtype, axis: self.axis }, &operands)
    }
}

/// Folds a second quantisation into integer sums, such as before a concatenation of tensors with
/// different scales. The result is rounded twice, as without the rule. The new scale is at least
/// the old one, so that a sum between two integers changes the result by one step at most.
fn requantised_sums(site: &mut RewriteSite) -> Rewritten {
    let Some((Quantize { dtype, .. }, [y, scale, zero])) = quantised(site, site.id) else { return Ok(None) };
    let (Some(step), Some(zero)) = (number(site, scale), number(site, zero)) else { return Ok(None) };
    match RoundedSums::of(site, y).filter(|rounded| rounded.data.scale <= step) {
        Some(rounded) => rounded.rescaled(site, dtype, step, zero.into()).map(Some),
        None => Ok(None),
    }
}

/// Adds a quantised tensor to integer sums in their kernel, which rounds them first, as without the
/// rule. Saturation must clamp at least as much as the activation does.
fn sums_plus_quantised(site: &mut RewriteSite) -> Rewritten {
    let Some((Quantize { dtype, .. }, [sum, scale, zero])) = quantised(site, site.id) else { return Ok(None) };
    let (Some(step), Some(zero)) = (number(site, scale), number(site, zero)) else { return Ok(None) };
    let Some((sum, bounds)) = bounded(site, sum).filter(|(sum, _)| site.is_single(*sum)) else { return Ok(None) };
    let [least, most] = dtype.range().map(|end| end as f32);
    let [lo, hi] = bounds.map(|bound| bound / step + zero);
    if lo > least || hi < most {
        return Ok(None);
    }

    let shape = site.node().shape.clone();
    for [x, y] in site.both_orders(sum, Binary::Add) {
        let Some(other) = IntegerData::of(site, y).filter(|y| site.of(y.x).shape == shape) else { continue };
        let Some(rounded) = RoundedSums::of(site, x).filter(|x| site.of(x.sums).shape == shape) else { continue };
        let by = f64::from(other.scale) / f64::from(step);
        let x = rounded.rescaled(site, DType::F32, step, f64::from(zero) - f64::from(other.zero) * by)?;
        let constants = [by as f32, 0.0].map(|number| vec![number; rounded.channels]);
        let [by, none] = constants.map(|numbers| vector(site, numbers));
        let y = [site.made(other.x), by?, none?];
        let y = site.add(Rescale { dtype: DType::F32, axis: rounded.axis }, &y)?;
        let sum = site.add(Binary::Add, &[x, y])?;
        return site.add(Saturate(dtype), &[sum]).map(Some);
    }
    Ok(None)
}

/// Sums two quantised tensors and requantises the result. Working in units of the second scale lets
/// one kernel read both tensors: `x * (sx / sy) + y - (zx * sx / sy + zy)`, clamped, times `sy / s`
/// plus `z`.
fn sum_of_quantised(site: &mut RewriteSite) -> Rewritten {
    let Some((quantize, [sum, scale, zero])) = quantised(site, site.id) else { return Ok(None) };
    let Some((sum, bounds)) = bounded(site, sum) else { return Ok(None) };
    let (Some(step), Some(zero)) = (number(site, scale), number(site, zero)) else { return Ok(None) };
    let Some([x, y]) = site.binary(sum, Binary::Add).filter(|_| site.is_single(sum)) else { return Ok(None) };
    let (Some(x), Some(y)) = (IntegerData::of(site, x), IntegerData::of(site, y)) else { return Ok(None) };
    let shape = site.node().shape.clone();
    let is_alike = [&x, &y].iter().all(|data| site.of(data.x).shape == shape);
    let axis = if shape.len() > 3 { 1 } else { shape.len().saturating_sub(1) };
    if !is_alike || shape.is_empty() {
        return Ok(None);
    }

    // In f64, so that each constant is rounded to f32 once only.
    let [by, own] = [x.scale, step].map(|scale| f64::from(scale) / f64::from(y.scale));
    let shift = -(f64::from(x.zero) * by + f64::from(y.zero));
    let extent = shape[axis];
    let mut vectors = Vec::new();
    for number in [by, shift, 1.0 / own, f64::from(zero)] {
        vectors.push(vector(site, vec![number as f32; extent])?);
    }
    let (x, other) = (site.made(x.x), site.made(y.x));
    let x = site.add(Rescale { dtype: DType::F32, axis }, &[x, vectors[0], vectors[1]])?;
    let other = site.add(Cast(DType::F32), &[other])?;
    let mut sum = site.add(Binary::Add, &[x, other])?;

    let activation = match bounds {
        [f32::NEG_INFINITY, f32::INFINITY] => None,
        [0.0, f32::INFINITY] => Some(Activation::Relu),
        // The sum is in units of the second scale.
        bounds => match Activation::new("clip", &bounds.map(|bound| bound / y.scale)) {
            Ok(clip) => Some(clip),
            Err(_) => return Ok(None),
        },
    };

    if let Some(activation) = activation {
        sum = site.add(Map(Function::Activation(activation)), &[sum])?;
    }
    site.add(Rescale { dtype: quantize.dtype, axis }, &[sum, vectors[2], vectors[3]]).map(Some)
}
