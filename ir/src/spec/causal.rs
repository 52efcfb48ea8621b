//! Recognition of scores that a causal mask hides.

use super::{Equation, Spec, TensorSource};
use crate::affine::Affine;
use crate::program::{Access, BinaryOp, Compare, Expr};

/// Masked score `table[earlier] < table[later] ? least : score`, with an ascending table of known
/// elements. Points with `earlier < later` are hidden: their score is the least number.
///
/// The score is an element of a computed tensor, possibly times a positive constant. With another
/// operand in it, such as a second mask, all scores of a row could be as small as hidden ones.
#[derive(Clone, Debug, PartialEq)]
pub struct CausalMask<'s> {
    /// Index of the table that the query has.
    pub earlier: Affine,
    /// Index of the table that the key has.
    pub later: Affine,
    /// Score without the mask.
    pub score: &'s Expr,
}

impl<'s> CausalMask<'s> {
    /// Matches a value of an equation; `None` if it is no such score.
    pub fn of(spec: &Spec, equation: &Equation, value: &'s Expr) -> Option<Self> {
        let Expr::Select(Compare::Less, of) = value else { return None };
        let [Expr::Load(earlier), Expr::Load(later), Expr::Const(least), score] = &**of else { return None };
        let ascends = match &spec.tensor(earlier).source {
            TensorSource::Known(elements) => elements.is_sorted_by(|a, b| a < b),
            _ => false,
        };

        let ([first], [second]) = (&earlier.index[..], &later.index[..]) else { return None };
        let extent = spec.tensor(earlier).shape.iter().product();
        let is_within = [first, second].into_iter().all(|index| !equation.is_beyond(index, extent));
        let found = Self { earlier: first.clone(), later: second.clone(), score };
        let is_score = found.access().is_some_and(|score| spec.tensor(score).source == TensorSource::Computed);
        let holds = ascends && earlier.buffer == later.buffer && *least <= f32::MIN && is_within && is_score;
        holds.then_some(found)
    }

    /// Returns the element that the score is, or is a multiple of.
    pub fn access(&self) -> Option<&'s Access> {
        let element = match self.score {
            Expr::Binary(BinaryOp::Mul, factors) => match &**factors {
                [element, Expr::Const(factor)] if *factor > 0.0 => element,
                _ => return None,
            },
            element => element,
        };
        match element {
            Expr::Load(access) => Some(access),
            _ => None,
        }
    }
}
