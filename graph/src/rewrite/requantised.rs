//! Requantisation of integer sums in the kernel that computes them.

use autotune_workloads::{Activation, Function};

use super::integers::{IntegerData, bounded, sums, vector};
use super::quantised::{number, quantised};
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::operators::{Map, Quantize, Rescale, Saturate};

pub(super) const RULES: &[Rule] = &[Rule {
    name: "requantised_sums",
    before: "Quantize(Dequantize(x)) of integer sums x, rounded to u8, whose scale is at most the new one",
    after: "the sums rounded, times a scale plus a bias for each channel, rounded again",
    apply: requantised_sums,
}];

/// Folds a second quantisation into integer sums, such as before a concatenation of tensors with
/// different scales. The result is rounded twice, as without the rule. The new scale is at least
/// the old one, so that a sum between two integers changes the result by one step at most.
fn requantised_sums(site: &mut RewriteSite) -> Rewritten {
    let Some((Quantize { dtype, .. }, [y, scale, zero])) = quantised(site, site.id) else { return Ok(None) };
    let Some(own) = IntegerData::of(site, y).filter(|_| site.is_single(y)) else { return Ok(None) };
    let Some(&Saturate(own_dtype)) = site.of(own.x).op.of() else { return Ok(None) };
    let (Some(step), Some(zero)) = (number(site, scale), number(site, zero)) else { return Ok(None) };
    if !site.is_single(own.x) || own.scale > step {
        return Ok(None);
    }

    let rounded = site.of(own.x).operands[0];
    let Some((found, [lo, hi])) = bounded(site, rounded) else { return Ok(None) };
    let Some((_, channels)) = sums(site, found) else { return Ok(None) };
    let Some(axis) = site.of(found).op.channel_of_sums(site.node().shape.len()) else { return Ok(None) };
    let [least, most] = own_dtype.range().map(|end| end as f32);
    let Ok(round) = Activation::new("round", &[lo.max(least), hi.min(most)]) else { return Ok(None) };

    // In f64, so that each constant is rounded to f32 once only.
    let by = f64::from(own.scale) / f64::from(step);
    let shift = f64::from(zero) - f64::from(own.zero) * by;
    let [by, shift] = [by, shift].map(|number| vec![number as f32; channels]);
    let sums = site.made(found);
    let rounded = site.add(Map(Function::Activation(round)), &[sums])?;
    let operands = [rounded, vector(site, by)?, vector(site, shift)?];
    site.add(Rescale { dtype, axis }, &operands).map(Some)
}
