//! Which constants may be merged, so that nothing but rounding changes.
//!
//! `u` is the unit roundoff, 2^-24; differences are to first order in it.
//!
//! **Sums.** `(x + a) + b` rounds `x + a` and the result, `x + c` with `c = a + b` rounds `c` and
//! the result. They differ by at most
//!
//! ```text
//! u |x + a|  +  u |c|  +  2 u |x + c|   <=   u (3 |x| + |a| + 3 |c|)
//! ```
//!
//! which is rounding as long as `|a|` is not large beside `|c|`. A constant that is added and taken
//! off again is large beside what is left: `(x + 12582912) - 12582912` rounds to whole numbers, and
//! stays. How large it may be depends on what `x` is:
//!
//! - Of any tensor, `|a| <= |c|` and `|b| <= |c|`, element by element: no element cancels. The
//!   bound is `u (3 |x| + 4 |c|)`, and holds however many sums are merged, as each of the sums on
//!   the way is at most the last.
//! - Of sums of products and of normalisations, whose kernels have errors relative to the largest
//!   of a tensor, the largest `|a|` and `|b|` are at most [`MOST_CANCELLED`] times the largest
//!   `|c|`. The bound is `u (3 |x| + 259 max |c|)`, 1.6e-5 of the largest. Of a constant that was
//!   merged so the largest on the way is remembered ([`reach`](super::new_graph::NewGraph::reach))
//!   and takes the place of `|a|`, so that several merges keep to the bound, too.
//!
//! What rounding `c` loses is at most [`MOST_LOST`] of the smaller constant, of each element or of
//! the largest as above: if the larger is taken off again later, what is left has the smaller one
//! still, such as the half in `((x + 0.5) + 12582912) - 12582912`.
//!
//! Constants are at most [`LARGEST_SHIFT`]: less than half the distance of the two largest numbers
//! (2^104), so that a sum with a finite number is finite. Infinities and what is not a number come
//! of the data in both forms alike. Sums of floating-point numbers are exact where they are
//! denormal.
//!
//! **Products.** `(x * a) * b` and `x * c` with `c = a * b` differ by `3 u` of either where nothing
//! on the way is too large or too small. With `|a|`, `|b|` and `|c|` between [`SMALLEST_SCALE`] and
//! [`LARGEST_SCALE`], or 0, that is so of all networks whose tensors have magnitudes between 2^-64
//! and 2^64 (beside zeros, infinities and what is not a number): a product is less than 2^94 then,
//! a sum of 2^31 of them less than 2^125. `c` is neither infinite nor denormal, and 0 where a
//! factor is, so that products with infinite data are numbers in both forms or in neither.
//!
//! Of weights that is demanded of the largest product, and no factor may be beyond
//! [`LARGEST_SCALE`]: what a smaller product loses by being denormal is at most 2^-150, of the
//! largest 2^-120. (Beside infinite data, a product that is less than 2^-150 is 0, where it was
//! none.)

use ndarray::{ArrayD, ArrayViewD, IxDyn};

use super::new_graph::{Made, largest, magnitude, of_bits};
use super::site::Site;
use crate::constant::Constant;
use crate::error::{GraphError, OpError};
use crate::graph::NodeId;
use crate::op::{Op, Operator, broadcast};
use crate::operators::Binary;
use crate::tensor::Tensor;

/// Largest magnitude of what is added.
const LARGEST_SHIFT: f32 = (1u128 << 90) as f32;

/// Largest and smallest magnitude of factors and of their products.
const LARGEST_SCALE: f32 = (1u32 << 30) as f32;
const SMALLEST_SCALE: f32 = 1.0 / LARGEST_SCALE;

/// How many times larger than the largest sum of constants the largest of them may be, of what is
/// added to sums of products.
const MOST_CANCELLED: f32 = 256.0;

/// What the sum of two constants may lack of the smaller one.
const MOST_LOST: f64 = 1.0 / 16384.0;

/// Largest magnitude of an offset of what is cut off at 0 and 1: it costs `u` times that.
pub(super) const LARGEST_OFFSET: f32 = 64.0;

/// What constants are added to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// Any tensor.
    ToAny,
    /// Sums of products, or normalised rows: their errors are relative to the largest element of
    /// the tensor.
    ToSums,
}

/// The sum of two constants, if what both are added to may have it added at once.
pub(super) fn sum(site: &mut Site, a: Made, b: Made, added: Added) -> Result<Option<Made>, GraphError> {
    let Some([of_a, of_b]) = site.new.constants([a, b]) else { return Ok(None) };
    let most = match (of_a.as_f32(), of_b.as_f32()) {
        (Some(of_a), Some(of_b)) => {
            let reach = |made: Made, own: f32| site.new.reach(made).unwrap_or(own);
            let [own_a, own_b] = [largest(of_a), largest(of_b)];
            let most = reach(a, own_a).max(reach(b, own_b));
            let kept = own_a.max(own_b) <= LARGEST_SHIFT && keeps(of_a, of_b, most, added);
            if !kept {
                return Ok(None);
            }
            Some(most)
        }
        // Whole numbers are added exactly.
        _ => None,
    };

    let sum = site.add(Binary::Add, &[a, b])?;
    most.into_iter().for_each(|most| site.new.reached(sum, most));
    Ok(Some(sum))
}

/// True if what is left of two constants when they are added is large enough beside both, or beside
/// the largest on the way to them, and has what both have.
fn keeps(a: &ArrayD<f32>, b: &ArrayD<f32>, most: f32, added: Added) -> bool {
    let Ok(shape) = broadcast(a.shape(), b.shape()) else { return false };
    let (Some(all_a), Some(all_b)) = (a.broadcast(IxDyn(&shape)), b.broadcast(IxDyn(&shape))) else { return false };
    let lost = |a: f32, b: f32| (f64::from(a) + f64::from(b) - f64::from(a + b)).abs();
    let mut pairs = all_a.iter().copied().zip(all_b.iter().copied());
    match added {
        Added::ToAny => pairs.all(|(a, b)| {
            let [smaller, larger] = [a.abs().min(b.abs()), a.abs().max(b.abs())];
            (a + b).abs() >= larger && lost(a, b) <= MOST_LOST * f64::from(smaller)
        }),
        Added::ToSums => {
            let (left, lost) =
                pairs.fold((0f32, 0f64), |(left, most), (a, b)| (left.max((a + b).abs()), most.max(lost(a, b))));
            most <= MOST_CANCELLED * left && lost <= MOST_LOST * f64::from(largest(a).min(largest(b)))
        }
    }
}

/// What an operation, which is linear, makes of constants, if sums of products may have it added
/// instead of the single terms; something else is added to it, too, if that is said.
pub(super) fn added_up(
    site: &mut Site,
    op: impl Into<Op>,
    operands: &[Made],
    beside: Option<Made>,
) -> Result<Option<Made>, GraphError> {
    let op = op.into();
    let magnitudes = operands.iter().map(|&made| {
        let [tensor] = site.new.constants([made])?;
        Some(Tensor::F32(tensor.as_f32()?.mapv(f32::abs)))
    });
    let Some(magnitudes) = magnitudes.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let terms = op.evaluate(&magnitudes.iter().collect::<Vec<_>>()).map_err(|source| site.wrong(source))?;
    let terms = terms.as_f32().map_or(f32::INFINITY, largest);
    if terms > LARGEST_SHIFT {
        return Ok(None);
    }

    let sum = site.add(op, operands)?;
    site.new.reached(sum, terms);
    let left = site.new.constants([sum]).and_then(|[tensor]| tensor.as_f32().map(largest));
    let is_kept = beside.is_some() || left.is_some_and(|left| terms <= MOST_CANCELLED * left);
    Ok(is_kept.then_some(sum))
}

/// The product of two constants, if what is multiplied by both may be multiplied by it at once.
pub(super) fn product(a: &Tensor, b: &Tensor) -> Result<Option<Tensor>, OpError> {
    let product = Binary::Mul.evaluate(&[a, b])?;
    let are_moderate = [a, b, &product].into_iter().filter_map(Tensor::as_f32).flatten().all(|&x| is_moderate(x));
    Ok(are_moderate.then_some(product))
}

/// True for a factor that neither overflows nor underflows.
pub(super) fn is_moderate(factor: f32) -> bool {
    factor == 0.0 || (SMALLEST_SCALE..=LARGEST_SCALE).contains(&factor.abs())
}

/// True if weights may be multiplied by factors, which are broadcast to them, instead of what is
/// computed with them.
pub(super) fn may_scale(site: &Site, weights: NodeId, factors: &ArrayD<f32>) -> bool {
    let Some(weights) = site.from.constant_of(weights) else { return false };
    let Some(most) = largest_product(weights, factors) else { return false };
    most == 0.0 || (SMALLEST_SCALE.into()..=LARGEST_SCALE.into()).contains(&most)
}

/// True if what is added may be multiplied by factors first, whatever it is added to.
pub(super) fn may_scale_shift(shift: &Tensor, factors: &ArrayD<f32>) -> bool {
    let shift = shift.as_f32().map(largest);
    shift.is_some_and(|shift| shift <= LARGEST_SHIFT / LARGEST_SCALE) && largest(factors) <= LARGEST_SCALE
}

/// The largest magnitude of a product of weights and factors; `None` if a factor is too large, or a
/// weight is no finite number.
fn largest_product(weights: &Constant, factors: &ArrayD<f32>) -> Option<f64> {
    if largest(factors) > LARGEST_SCALE {
        return None;
    }
    // Along the last axes there is one factor only.
    let shape = weights.shape();
    let own = |axis: usize| (axis + factors.ndim()).checked_sub(shape.len()).map_or(1, |axis| factors.shape()[axis]);
    let outer = (0..shape.len()).rev().find(|&axis| own(axis) != 1).map_or(0, |axis| axis + 1);
    let leading = factors.ndim().saturating_sub(shape.len() - outer);
    let factors = factors.to_shape(&factors.shape()[..leading]).ok()?;
    let factors = factors.broadcast(IxDyn(&shape[..outer]))?;
    let inner = shape[outer..].iter().product::<usize>().max(1);

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
    weights.release();
    most.is_finite().then_some(product)
}

/// The largest of all rows, by their largest magnitudes, and the largest product with the factors
/// of the rows.
fn largest_of(rows: impl Iterator<Item = u32>, factors: &ArrayViewD<f32>) -> [f64; 2] {
    let largest = rows.map(|row| of_bits(row).into());
    largest.zip(factors).fold([0.0; 2], |[most, product], (row, factor): (f64, _)| {
        [most.max(row), product.max(row * f64::from(factor.abs()))]
    })
}
