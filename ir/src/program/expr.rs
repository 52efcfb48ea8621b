//! What is stored: values, made of elements of buffers.

use super::BufferId;
use super::op::{BinaryOp, Compare, UnaryOp};
use crate::affine::Affine;

/// One element of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// One index per physical dimension.
    pub index: Vec<Affine>,
}

/// The condition `0 <= index < extent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InBounds {
    /// What is compared.
    pub index: Affine,
    /// Behind the last value for which the condition holds.
    pub extent: usize,
}

/// A value of type f32.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A constant.
    Const(f32),
    /// An element of a buffer.
    Load(Access),
    /// What an operation makes of one value.
    Unary(UnaryOp, Box<Expr>),
    /// What an operation makes of two values.
    Binary(BinaryOp, Box<[Expr; 2]>),
    /// Of four values, the third where the first two compare so, else the fourth.
    Select(Compare, Box<[Expr; 4]>),
    /// The value where every condition holds, elsewhere zero; nothing is loaded there. GPU only.
    Guarded {
        /// The conditions.
        when: Vec<InBounds>,
        /// The value where they hold.
        value: Box<Expr>,
    },
}

impl Expr {
    /// `a + b`.
    pub fn sum(a: Expr, b: Expr) -> Self {
        Self::binary(BinaryOp::Add, a, b)
    }

    /// `a * b`.
    pub fn product(a: Expr, b: Expr) -> Self {
        Self::binary(BinaryOp::Mul, a, b)
    }

    /// The larger of two.
    pub fn max(a: Expr, b: Expr) -> Self {
        Self::binary(BinaryOp::Max, a, b)
    }

    /// What an operation makes of a value.
    pub fn unary(op: UnaryOp, of: Expr) -> Self {
        Expr::Unary(op, Box::new(of))
    }

    /// What an operation makes of two values.
    pub fn binary(op: BinaryOp, a: Expr, b: Expr) -> Self {
        Expr::Binary(op, Box::new([a, b]))
    }

    /// `then` where `a` and `b` compare so, else `otherwise`.
    pub fn select(compare: Compare, [a, b]: [Expr; 2], then: Expr, otherwise: Expr) -> Self {
        Expr::Select(compare, Box::new([a, b, then, otherwise]))
    }

    /// The values that it is made of, left to right.
    pub fn operands(&self) -> &[Expr] {
        match self {
            Expr::Const(_) | Expr::Load(_) => &[],
            Expr::Unary(_, of) | Expr::Guarded { value: of, .. } => std::slice::from_ref(of),
            Expr::Binary(_, of) => &**of,
            Expr::Select(_, of) => &**of,
        }
    }

    /// The values that it is made of, left to right.
    pub fn operands_mut(&mut self) -> &mut [Expr] {
        match self {
            Expr::Const(_) | Expr::Load(_) => &mut [],
            Expr::Unary(_, of) | Expr::Guarded { value: of, .. } => std::slice::from_mut(of),
            Expr::Binary(_, of) => &mut **of,
            Expr::Select(_, of) => &mut **of,
        }
    }

    /// Calls `visit` on the expression and on all within it, left to right.
    pub fn for_each<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        visit(self);
        self.operands().iter().for_each(|of| of.for_each(visit));
    }

    /// Calls `visit` on every load, left to right, with the conditions under which it happens: these and those around it.
    pub fn for_each_guarded_load<'a>(
        &'a self,
        guards: &mut Vec<&'a InBounds>,
        visit: &mut impl FnMut(&'a Access, &[&'a InBounds]),
    ) {
        let outer = guards.len();
        match self {
            Expr::Load(access) => visit(access, guards),
            Expr::Guarded { when, .. } => guards.extend(when),
            _ => {}
        }
        self.operands().iter().for_each(|of| of.for_each_guarded_load(guards, visit));
        guards.truncate(outer);
    }

    /// Calls `visit` on every load, left to right.
    pub fn for_each_load<'a>(&'a self, visit: &mut impl FnMut(&'a Access)) {
        self.for_each(&mut |expr| {
            if let Expr::Load(access) = expr {
                visit(access);
            }
        });
    }

    /// The leftmost load.
    pub fn first_load(&self) -> Option<&Access> {
        match self {
            Expr::Load(access) => Some(access),
            _ => self.operands().iter().find_map(Expr::first_load),
        }
    }

    /// The same operation of other values: of what `with` makes of those that it is made of, left to right.
    pub fn of_others(&self, mut with: impl FnMut(&Expr) -> Expr) -> Self {
        match self {
            Expr::Const(_) | Expr::Load(_) => self.clone(),
            Expr::Unary(op, of) => Expr::unary(*op, with(of)),
            Expr::Binary(op, of) => Expr::Binary(*op, Box::new(of.each_ref().map(with))),
            Expr::Select(compare, of) => Expr::Select(*compare, Box::new(of.each_ref().map(with))),
            Expr::Guarded { when, value } => Expr::Guarded { when: when.clone(), value: Box::new(with(value)) },
        }
    }

    /// The same with something else in the place of every load.
    pub fn replaced(&self, with: &mut impl FnMut(&Access) -> Expr) -> Self {
        match self {
            Expr::Load(access) => with(access),
            _ => self.of_others(|of| of.replaced(with)),
        }
    }
}
