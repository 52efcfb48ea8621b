//! Iterations that a program may leave out, because a mask hides their scores.
//!
//! A causal softmax replaces scores by the least number where a key is later than the query, by
//! comparing two elements of an ascending table:
//!
//! ```text
//! largest[m] = max (position[m + 2] < position[n] ? -3.4e38 : scores[m, n] * factor)
//! exp[m, n]  = exp((the same score) - largest[m])
//! ```
//!
//! Such points contribute nothing to the maximum and zeros to every sum of exponentials, as long as
//! a row has any score far above the least number. So a program may skip them in each equation that
//! the mask reaches, and in the one that computes the scores. Operands other than the product's,
//! such as a second mask, could make all scores of a row that small: then nothing may be skipped.

use crate::affine::{Affine, VarId};
use crate::program::{Access, AxisInfo, BinaryOp, Expr, InBounds, Program, UnaryOp};
use crate::spec::{CausalMask, Equation, Reduction, Spec};

use super::interface;

/// Two indices in the axes of an equation; points with `earlier < later` are hidden.
#[derive(Clone, Debug, PartialEq)]
struct Hidden {
    earlier: Affine,
    later: Affine,
}

/// Returns true if each iteration of an equation that a condition excludes is hidden. `point` and
/// the condition are in variables of the given extents.
pub(super) fn may_leave_out(
    program: &Program,
    (number, axes): (usize, &[AxisInfo]),
    point: &[Affine],
    guard: &InBounds,
    extent_of: impl Fn(VarId) -> usize + Copy,
) -> bool {
    // Excluded are only negative values of the condition's index.
    let is_lower_bound = guard.index.range(extent_of).1 < guard.extent as i64;
    let at = |index: &Affine| interface::less(Affine::default(), index, axes, point).map(|negated| negated * -1);
    let place = hidden(&program.algorithm, number).and_then(|hidden| Some([at(&hidden.earlier)?, at(&hidden.later)?]));
    let (true, Some([earlier, later])) = (is_lower_bound, place) else { return false };

    // With `distance = a * (-1 - index) + rest` and `a > 0`, a negative index and `rest >= 0` imply
    // `distance >= 0`.
    let mut distance = later;
    distance.add_scaled(&earlier, -1);
    distance.constant -= 1;
    let Some(&(var, c)) = guard.index.terms.iter().find(|term| extent_of(term.0) > 1) else { return false };
    let factor = -distance.coefficient(var) / c;
    distance.add_scaled(&guard.index, factor);
    distance.constant += factor;
    factor > 0 && distance.range(extent_of).0 >= 0
}

/// Returns the hidden points of an equation; `None` if it has none.
fn hidden(spec: &Spec, number: usize) -> Option<Hidden> {
    let equation = &spec.equations[number];
    let is_largest = matches!(equation.reduction, Reduction::Max | Reduction::MaxNumber) && equation.reduces();
    if is_largest {
        return masked(spec, equation, &equation.value).map(|(hidden, _)| hidden);
    }
    if equation.reduction != Reduction::Sum {
        return None;
    }
    vanishing(spec, number, &equation.value).or_else(|| of_scores(spec, number))
}

/// Matches a masked score: returns its hidden points and the access to the score.
fn masked<'s>(spec: &Spec, equation: &Equation, value: &'s Expr) -> Option<(Hidden, &'s Access)> {
    let mask = CausalMask::of(spec, equation, value)?;
    let score = mask.access()?;
    Some((Hidden { earlier: mask.earlier, later: mask.later }, score))
}

/// Returns the points at which a value is zero because of a mask; `None` if there are none.
/// Equations read only tensors of earlier ones, so the recursion ends.
fn vanishing(spec: &Spec, number: usize, value: &Expr) -> Option<Hidden> {
    let equation = &spec.equations[number];
    match value {
        Expr::Unary(UnaryOp::Exp, exponent) => {
            let below = match &**exponent {
                Expr::Binary(BinaryOp::Mul, factors) => match &**factors {
                    [below, Expr::Const(factor)] if *factor > 0.0 => below,
                    _ => return None,
                },
                below => below,
            };

            let Expr::Binary(BinaryOp::Sub, of) = below else { return None };
            let [score, Expr::Load(largest)] = &**of else { return None };
            let row = spec.equations[..number].iter().find(|row| row.output.buffer == largest.buffer)?;
            // The maximum must be that of the same scores.
            let is_of_row = row.value == *score && row.output == *largest && row.reduction != Reduction::Sum;
            masked(spec, equation, score).filter(|_| is_of_row).map(|(hidden, _)| hidden)
        }
        Expr::Binary(BinaryOp::Mul, of) => of.iter().find_map(|of| vanishing(spec, number, of)),
        Expr::Load(access) => {
            let from = spec.equations[..number].iter().position(|from| from.output.buffer == access.buffer)?;
            let (of, made) = (&spec.equations[from], hidden(spec, from)?);

            let is_map = !of.reduces() && of.reduction == Reduction::Sum;
            let values = (0..of.axes.len()).map(|axis| {
                let dim = of.output.index.iter().position(|index| *index == Affine::var(VarId(axis as u32)))?;
                Some(access.index[dim].clone())
            });
            let values: Vec<Affine> = values.collect::<Option<_>>().filter(|_| is_map)?;
            Some(made.at(&values))
        }
        _ => None,
    }
}

/// Returns the points of the equation of scores at which every reader masks its result.
fn of_scores(spec: &Spec, number: usize) -> Option<Hidden> {
    let equation = &spec.equations[number];
    let mut found: Option<Hidden> = None;
    for reader in spec.equations.iter().filter(|reader| reads(reader, &equation.output)) {
        let (mut here, mut loads) = (None, 0);
        reader.value.for_each(&mut |value| here = here.take().or_else(|| masked(spec, reader, value)));
        reader.value.for_each_load(&mut |access| loads += usize::from(access.buffer == equation.output.buffer));
        let (hidden, score) = here.filter(|_| loads == 1)?;

        // The axes of the reader in those of the scores.
        let values = (0..reader.axes.len()).map(|axis| {
            let dim = score.index.iter().position(|index| *index == Affine::var(VarId(axis as u32)))?;
            Some(equation.output.index[dim].clone())
        });
        let hidden = hidden.at(&values.collect::<Option<Vec<_>>>()?);
        if score.buffer != equation.output.buffer || found.as_ref().is_some_and(|found| *found != hidden) {
            return None;
        }
        found = Some(hidden);
    }
    found
}

fn reads(equation: &Equation, tensor: &Access) -> bool {
    equation.loads().into_iter().any(|access| access.buffer == tensor.buffer)
}

impl Hidden {
    /// Returns the points with every axis replaced by its value.
    fn at(&self, values: &[Affine]) -> Self {
        let at = |index: &Affine| {
            let mut total = Affine::constant(index.constant);
            index.terms.iter().for_each(|&(axis, c)| total.add_scaled(&values[axis.0 as usize], c));
            total
        };
        Self { earlier: at(&self.earlier), later: at(&self.later) }
    }
}

/// Returns the value of an equation without its mask; `None` if there is no mask whose points may
/// be left out.
pub(super) fn unmasked(spec: &Spec, number: usize) -> Option<Expr> {
    let equation = &spec.equations[number];
    CausalMask::of(spec, equation, &equation.value).map(|mask| mask.score.clone())
}
