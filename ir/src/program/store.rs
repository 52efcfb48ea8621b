//! Statements: what is stored where, and for which iteration of an equation.

use super::expr::{Access, Expr, InBounds};
use super::op::BinaryOp;
use crate::affine::Affine;

/// What a store does with the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreMode {
    /// Overwrites it.
    Assign,
    /// Adds to it.
    Accumulate,
}

/// `dst = value` or `dst += value`.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Where to.
    pub dst: Access,
    /// Overwrite or add.
    pub mode: StoreMode,
    /// What.
    pub value: Expr,
    /// For the statement of an equation of the algorithm, such as the multiply-accumulate of a
    /// contraction: which iteration it is, by which the verifier proves that every iteration is
    /// covered exactly once.
    pub iteration: Option<Iteration>,
}

/// One iteration of an equation of [`Program::algorithm`](super::Program::algorithm).
#[derive(Clone, Debug, PartialEq)]
pub struct Iteration {
    /// The equation, by its position.
    pub equation: usize,
    /// The value of each of [`Program::axes`](super::Program::axes) for the main equation; for
    /// others that of each of its own axes.
    pub point: Vec<Affine>,
}

impl Store {
    /// The factors of a multiply-accumulate, `dst += a * b`.
    pub fn factors(&self) -> Option<[&Access; 2]> {
        match (&self.value, self.mode) {
            (Expr::Binary(BinaryOp::Mul, factors), StoreMode::Accumulate) => match &**factors {
                [Expr::Load(a), Expr::Load(b)] => Some([a, b]),
                _ => None,
            },
            _ => None,
        }
    }

    /// What is copied by `dst = a`, and under which conditions.
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
