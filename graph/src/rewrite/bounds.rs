//! Conditions under which constants may be merged, so that results change by rounding only.
//!
//! `u` is the unit roundoff, 2^-24; all bounds are to first order in it (forward error analysis as
//! in Higham, *Accuracy and Stability of Numerical Algorithms*).
//!
//! **Sums.** `(x + a) + b` rounds `x + a` and the result; `x + c` with `c = a + b` rounds `c` and
//! the result. They differ by at most
//!
//! ```text
//! u |x + a|  +  u |c|  +  2 u |x + c|   <=   u (3 |x| + |a| + 3 |c|)
//! ```
//!
//! This is rounding unless `|a|` is much larger than `|c|`. A constant that is added and subtracted
//! again is much larger than the remainder: `(x + 12582912) - 12582912` rounds to integers and must
//! stay. The permitted size depends on `x`:
//!
//! - For any tensor, `|a| <= |c|` and `|b| <= |c|` elementwise: nothing cancels. The bound is `u (3
//!   |x| + 4 |c|)`. It holds for any number of merged sums, since each partial sum is at most the
//!   last.
//! - For sums of products and normalisations, whose kernels have errors relative to a tensor's
//!   largest element, the largest `|a|` and `|b|` are at most [`MOST_CANCELLED`] times the largest
//!   `|c|`. The bound is `u (3 |x| + 259 max |c|)`, 1.6e-5 of the largest. The largest partial sum
//!   of a merged constant is recorded ([`reach`](super::new_graph::NewGraph::reach)) and used in
//!   place of `|a|`, so repeated merges keep the bound.
//!
//! Rounding `c` loses at most [`MOST_LOST`] of the smaller constant, per element or relative to the
//! largest as above. So if the larger constant is subtracted later, the smaller one survives, such
//! as 0.5 in `((x + 0.5) + 12582912) - 12582912`.
//!
//! Constants are at most [`LARGEST_SHIFT`], which is less than half the distance of the two largest
//! floats (2^104), so adding one to a finite number cannot overflow. Infinities and NaN in the data
//! propagate alike in both forms. Sums with denormal results are exact.
//!
//! **Products.** `(x * a) * b` and `x * c` with `c = a * b` differ by `3 u` relatively, unless an
//! intermediate result over- or underflows. With `|a|`, `|b|` and `|c|` either 0 or between
//! [`SMALLEST_SCALE`] and [`LARGEST_SCALE`], none does in a network whose tensors have magnitudes
//! between 2^-64 and 2^64 (or 0, infinity, NaN): a product is then below 2^94, and a sum of 2^31 of
//! them below 2^125. `c` is neither infinite nor denormal, and it is 0 exactly if a factor is, so
//! products with infinities are NaN in both forms or in neither.
//!
//! For weights this is required of the largest product only, and no factor may exceed
//! [`LARGEST_SCALE`]: a smaller product loses at most 2^-150 by being denormal, which is 2^-120 of
//! the largest. (With infinite data, a product below 2^-150 becomes 0 where it was nonzero.)

use autotune_ir::DType;
use ndarray::{ArrayD, ArrayViewD, IxDyn};

use super::new_graph::{NewNode, largest, magnitude, of_bits};
use super::site::RewriteSite;
use crate::constant::Constant;
use crate::error::{GraphError, OpError};
use crate::graph::NodeId;
use crate::op::{Op, Operator, broadcast};
use crate::operators::Binary;
use crate::tensor::Tensor;

/// Largest magnitude of a summand.
const LARGEST_SHIFT: f32 = (1u128 << 90) as f32;

/// Range of magnitudes of factors and their products.
const LARGEST_SCALE: f32 = (1u32 << 30) as f32;
const SMALLEST_SCALE: f32 = 1.0 / LARGEST_SCALE;

/// Largest permitted ratio of the largest partial sum to the largest element of merged constants
/// that are added to sums of products.
const MOST_CANCELLED: f32 = 256.0;

/// Largest fraction of the smaller constant that a sum may lose by rounding.
const MOST_LOST: f64 = 1.0 / 16384.0;

/// Largest offset inside a clamp to `[0, 1]`; the error is `u` times the offset.
pub(super) const LARGEST_OFFSET: f32 = 64.0;

/// Kind of tensor that constants are added to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BiasTarget {
    /// Any tensor; nothing is known of its error.
    ToAny,
    /// Sums of products or normalised rows, whose errors are relative to the tensor's largest
    /// element.
    ToSums,
}

/// Returns the sum of two constants that are added to a tensor one after the other, if merging them
/// is safe.
pub(super) fn sum(
    site: &mut RewriteSite,
    a: NewNode,
    b: NewNode,
    added: BiasTarget,
) -> Result<Option<NewNode>, GraphError> {
    let Some([of_a, of_b]) = site.new.constants([a, b]) else { return Ok(None) };
    let most = match (of_a.as_f32(), of_b.as_f32()) {
        (Some(of_a), Some(of_b)) => {
            // Earlier merges count with their largest partial sum.
            let reach = |made: NewNode, own: f32| site.new.reach(made).unwrap_or(own);
            let [own_a, own_b] = [largest(of_a), largest(of_b)];
            let most = reach(a, own_a).max(reach(b, own_b));
            let kept = own_a.max(own_b) <= LARGEST_SHIFT && keeps(of_a, of_b, most, added);
            if !kept {
                return Ok(None);
            }
            Some(most)
        }
        // Integer sums are exact.
        _ => None,
    };

    let sum = site.add(Binary::Add, &[a, b])?;
    most.into_iter().for_each(|most| site.new.record_partial_sum(sum, most));
    Ok(Some(sum))
}

/// True if the sum of two constants is large enough compared with both (or with `most`, their
/// largest partial sum) and preserves both.
fn keeps(a: &ArrayD<f32>, b: &ArrayD<f32>, most: f32, added: BiasTarget) -> bool {
    let Ok(shape) = broadcast(a.shape(), b.shape()) else { return false };
    let (Some(all_a), Some(all_b)) = (a.broadcast(IxDyn(&shape)), b.broadcast(IxDyn(&shape))) else { return false };
    let lost = |a: f32, b: f32| (f64::from(a) + f64::from(b) - f64::from(a + b)).abs();
    let mut pairs = all_a.iter().copied().zip(all_b.iter().copied());
    match added {
        BiasTarget::ToAny => pairs.all(|(a, b)| {
            let [smaller, larger] = [a.abs().min(b.abs()), a.abs().max(b.abs())];
            (a + b).abs() >= larger && lost(a, b) <= MOST_LOST * f64::from(smaller)
        }),
        BiasTarget::ToSums => {
            let (left, lost) =
                pairs.fold((0f32, 0f64), |(left, most), (a, b)| (left.max((a + b).abs()), most.max(lost(a, b))));
            most <= MOST_CANCELLED * left && lost <= MOST_LOST * f64::from(largest(a).min(largest(b)))
        }
    }
}

/// Applies a linear operation to constant operands, if a sum of products may have the result added
/// instead of its terms. If `summand` is given, the caller adds the result to it and checks
/// cancellation there.
pub(super) fn fold_linear(
    site: &mut RewriteSite,
    op: impl Into<Op>,
    operands: &[NewNode],
    summand: Option<NewNode>,
) -> Result<Option<NewNode>, GraphError> {
    let op = op.into();
    let constants = operands.iter().map(|made| site.new.graph.constant_of(made.0).cloned());
    let is_f32 = |constant: &Constant| constant.dtype() == DType::F32;
    let constants = constants.collect::<Option<Vec<_>>>().filter(|constants| constants.iter().all(is_f32));
    let Some(constants) = constants else { return Ok(None) };
    let terms = site.new.largest_terms(&op, &constants).map_err(|source| site.wrong(source))?;
    if terms > LARGEST_SHIFT {
        return Ok(None);
    }

    let sum = site.add(op, operands)?;
    site.new.record_partial_sum(sum, terms);
    let left = site.new.constants([sum]).and_then(|[tensor]| tensor.as_f32().map(largest));
    // With another summand, the caller checks the total for cancellation.
    let is_kept = summand.is_some() || left.is_some_and(|left| terms <= MOST_CANCELLED * left);
    Ok(is_kept.then_some(sum))
}

/// Returns the product of two constants that multiply a tensor one after the other, if merging them
/// is safe.
pub(super) fn product(a: &Tensor, b: &Tensor) -> Result<Option<Tensor>, OpError> {
    let product = Binary::Mul.evaluate(&[a, b])?;
    let are_moderate = [a, b, &product].into_iter().filter_map(Tensor::as_f32).flatten().all(|&x| is_moderate(x));
    Ok(are_moderate.then_some(product))
}

/// True if products with a factor neither overflow nor underflow.
pub(super) fn is_moderate(factor: f32) -> bool {
    factor == 0.0 || (SMALLEST_SCALE..=LARGEST_SCALE).contains(&factor.abs())
}

/// True if weights may be multiplied by factors, which broadcast to them, in place of the result.
pub(super) fn may_scale(site: &RewriteSite, weights: NodeId, factors: &ArrayD<f32>) -> bool {
    let Some(weights) = site.from.constant_of(weights) else { return false };
    let Some(most) = site.new.largest_product(weights, factors, largest_product) else { return false };
    most == 0.0 || (SMALLEST_SCALE.into()..=LARGEST_SCALE.into()).contains(&most)
}

/// True if a summand may be multiplied by factors before it is added.
pub(super) fn may_scale_shift(shift: &Tensor, factors: &ArrayD<f32>) -> bool {
    let shift = shift.as_f32().map(largest);
    shift.is_some_and(|shift| shift <= LARGEST_SHIFT / LARGEST_SCALE) && largest(factors) <= LARGEST_SCALE
}

/// Returns the largest magnitude of a product of weights and factors; `None` if a factor is too
/// large or a weight is not finite.
fn largest_product(weights: &Constant, factors: &ArrayD<f32>) -> Option<f64> {
    if largest(factors) > LARGEST_SCALE {
        return None;
    }
    // The factors are constant along the trailing axes, so each row of these has one factor.
    let shape = weights.shape();
    let own = |axis: usize| (axis + factors.ndim()).checked_sub(shape.len()).map_or(1, |axis| factors.shape()[axis]);
    let outer = (0..shape.len()).rev().find(|&axis| own(axis) != 1).map_or(0, |axis| axis + 1);
    let leading = factors.ndim().saturating_sub(shape.len() - outer);
    let factors = factors.to_shape(&factors.shape()[..leading]).ok()?;
    let factors = factors.broadcast(IxDyn(&shape[..outer]))?;
    let inner = shape[outer..].iter().product::<usize>().max(1);

    // Weights in a file are scanned there, without loading them.
    let [most, product] = match weights.file_bytes() {
        Some(bytes) => {
            let rows = bytes.as_chunks().0.chunks(inner);
            let most = |row: &[[u8; 4]]| row.iter().fold(0, |most, &x| magnitude(f32::from_le_bytes(x)).max(most));
            largest_of(rows.map(most), &factors)
        }
        None => {
            let tensor = weights.tensor().ok()?.as_f32()?.as_standard_layout();
            let rows = tensor.as_slice()?.chunks(inner);
            largest_of(rows.map(|row| row.iter().fold(0, |most, &x| magnitude(x).max(most))), &factors)
        }
    };
    // The scanned pages are no longer needed.
    weights.release();
    most.is_finite().then_some(product)
}

/// Returns the largest magnitude of all rows and the largest product of a row's magnitude and its
/// factor.
fn largest_of(rows: impl Iterator<Item = u32>, factors: &ArrayViewD<f32>) -> [f64; 2] {
    let largest = rows.map(|row| of_bits(row).into());
    largest.zip(factors).fold([0.0; 2], |[most, product], (row, factor): (f64, _)| {
        [most.max(row), product.max(row * f64::from(factor.abs()))]
    })
}
