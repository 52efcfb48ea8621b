//! What is stored: values, made of elements of buffers.

use super::BufferId;
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
    /// Sum.
    Add(Box<[Expr; 2]>),
    /// Product.
    Mul(Box<[Expr; 2]>),
    /// The larger of two.
    Max(Box<[Expr; 2]>),
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
        Expr::Add(Box::new([a, b]))
    }

    /// `a * b`.
    pub fn product(a: Expr, b: Expr) -> Self {
        Expr::Mul(Box::new([a, b]))
    }

    /// The larger of two.
    pub fn max(a: Expr, b: Expr) -> Self {
        Expr::Max(Box::new([a, b]))
    }

    /// Calls `visit` on the expression and on all within it, left to right.
    pub fn for_each<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        visit(self);
        match self {
            Expr::Const(_) | Expr::Load(_) => {}
            Expr::Add(of) | Expr::Mul(of) | Expr::Max(of) => of.iter().for_each(|e| e.for_each(visit)),
            Expr::Guarded { value, .. } => value.for_each(visit),
        }
    }

    /// Calls `visit` on every load, left to right, with the conditions under which it happens: these and those around it.
    pub fn for_each_guarded_load<'a>(
        &'a self,
        guards: &mut Vec<&'a InBounds>,
        visit: &mut impl FnMut(&'a Access, &[&'a InBounds]),
    ) {
        match self {
            Expr::Const(_) => {}
            Expr::Load(access) => visit(access, guards),
            Expr::Add(of) | Expr::Mul(of) | Expr::Max(of) => {
                of.iter().for_each(|e| e.for_each_guarded_load(guards, visit));
            }
            Expr::Guarded { when, value } => {
                let outer = guards.len();
                guards.extend(when);
                value.for_each_guarded_load(guards, visit);
                guards.truncate(outer);
            }
        }
    }

    /// Calls `visit` on every load, left to right.
    pub fn for_each_load<'a>(&'a self, visit: &mut impl FnMut(&'a Access)) {
        self.for_each(&mut |expr| {
            if let Expr::Load(access) = expr {
                visit(access);
            }
        });
    }

    /// The same with something else in the place of every load.
    pub fn replaced(&self, with: &mut impl FnMut(&Access) -> Expr) -> Self {
        let mut pair = |of: &[Expr; 2]| Box::new([of[0].replaced(with), of[1].replaced(with)]);
        match self {
            Expr::Const(_) => self.clone(),
            Expr::Load(access) => with(access),
            Expr::Add(of) => Expr::Add(pair(of)),
            Expr::Mul(of) => Expr::Mul(pair(of)),
            Expr::Max(of) => Expr::Max(pair(of)),
            Expr::Guarded { when, value } => {
                Expr::Guarded { when: when.clone(), value: Box::new(value.replaced(with)) }
            }
        }
    }
}
