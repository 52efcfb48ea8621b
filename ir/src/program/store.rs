//! Statements: assignments to elements of buffers, with the iteration of an equation that they
//! compute.

use super::expr::{Access, Expr, InBounds};
use super::op::BinaryOp;
use crate::affine::Affine;

/// Combination of a stored value with the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreMode {
    /// Overwrites the old value.
    Assign,
    /// Adds to the old value.
    Accumulate,
}

/// Statement `dst = value` or `dst += value`.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Element that is written.
    pub dst: Access,
    /// Combination with the old value of the element.
    pub mode: StoreMode,
    /// Value that is stored or added.
    pub value: Expr,
    /// Iteration that the statement computes, if it is one of an equation of the algorithm, such as
    /// the multiply-accumulate of a contraction. The verifier uses it to prove that every iteration
    /// is executed exactly once.
    pub iteration: Option<Iteration>,
}

/// Iteration of an equation of [`Program::algorithm`](super::Program::algorithm).
#[derive(Clone, Debug, PartialEq)]
pub struct Iteration {
    /// Position of the equation.
    pub equation: usize,
    /// Value of each axis: of [`Program::axes`](super::Program::axes) for the main equation, of the
    /// equation's own axes for others.
    pub point: Vec<Affine>,
}

impl Store {
    /// Returns the factors of a multiply-accumulate `dst += a * b`; `None` for other statements.
    pub fn factors(&self) -> Option<[&Access; 2]> {
        self.value.factors().filter(|_| self.mode == StoreMode::Accumulate)
    }

    /// Returns the factors of a multiply-accumulate of values that are sums of a high and a low
    /// part, `dst += a * b + a * b_low + a_low * b`: the high parts, then the low ones. `None` for
    /// other statements.
    pub fn split_factors(&self) -> Option<[[&Access; 2]; 2]> {
        let Expr::Binary(BinaryOp::Add, of) = &self.value else { return None };
        let [Expr::Binary(BinaryOp::Add, sum), last] = &**of else { return None };
        if self.mode != StoreMode::Accumulate {
            return None;
        }

        let [first, second] = &**sum;
        let ([a, b], [again, b_low], [a_low, b_again]) = (first.factors()?, second.factors()?, last.factors()?);
        ([a, b] == [again, b_again]).then_some([[a, b], [a_low, b_low]])
    }

    /// Returns the source of a copy `dst = a` and the conditions under which it is read; `None` for
    /// other statements.
    pub fn copied(&self) -> Option<(&Access, &[InBounds])> {
        let (value, when) = match &self.value {
            Expr::Guarded { when, value } => (&**value, when.as_slice()),
            value => (value, &[][..]),
        };
        match (value, self.mode) {
            (Expr::Load(from), StoreMode::Assign) => Some((from, when)),
            _ => None,
        }
    }
}
