//! What is stored: values, made of elements of buffers.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::buffer::BufferId;
use super::op::{BinaryOp, Compare, UnaryOp};
use crate::affine::Affine;
use crate::dtype::DType;

/// One element of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// One index per physical dimension.
    pub index: Index,
}

/// The index of an element, which accesses share: a transform reads the same few elements again and
/// again, and its copies were most of what its loop nests take. It is copied where it is changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Index(Arc<[Affine]>);

impl Deref for Index {
    type Target = [Affine];

    fn deref(&self) -> &[Affine] {
        &self.0
    }
}

impl DerefMut for Index {
    fn deref_mut(&mut self) -> &mut [Affine] {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Vec<Affine>> for Index {
    fn from(index: Vec<Affine>) -> Self {
        Self(index.into())
    }
}

impl<const N: usize> From<[Affine; N]> for Index {
    fn from(index: [Affine; N]) -> Self {
        Self(Arc::new(index))
    }
}

impl FromIterator<Affine> for Index {
    fn from_iter<I: IntoIterator<Item = Affine>>(index: I) -> Self {
        Self(index.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a Index {
    type Item = &'a Affine;
    type IntoIter = std::slice::Iter<'a, Affine>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// The condition `0 <= index < extent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InBounds {
    /// What is compared.
    pub index: Affine,
    /// Behind the last value for which the condition holds.
    pub extent: usize,
}

/// An element that is found by values: `access`, but with these indices in the place of the zeros
/// that it has along some dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Gather {
    /// The element where all of them are zero, in global memory.
    pub access: Access,
    /// The dimensions, each once.
    pub dims: Vec<usize>,
    /// The index along each: [`gathered_index`] of a value.
    pub at: Vec<Expr>,
}

/// The index that a value stands for along a dimension: the largest whole number that is not
/// larger, the first or the last index where that is beyond them, the first of what is not a
/// number.
pub fn gathered_index(value: f32, extent: usize) -> usize {
    if value >= 1.0 { (value as usize).min(extent.saturating_sub(1)) } else { 0 }
}

/// A value: f32, or i32 where it [is an integer](Expr::is_integer).
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A constant.
    Const(f32),
    /// An element of a buffer.
    Load(Access),
    /// An element of a buffer whose index is partly values.
    Gather(Box<Gather>),
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

    /// An element at values along some dimensions.
    pub fn gather(access: Access, dims: Vec<usize>, at: Vec<Expr>) -> Self {
        Expr::Gather(Box::new(Gather { access, dims, at }))
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

    /// True for an integer, computed with as i32 (wrapping): an element of an integer type, and
    /// sums, differences, products, maxima and minima of integers and whole constants. Elsewhere
    /// integers are rounded to f32 first. `is_integer` says whether a buffer has integers.
    pub fn is_integer(&self, is_integer: &impl Fn(BufferId) -> bool) -> bool {
        match self {
            Expr::Load(access) => is_integer(access.buffer),
            Expr::Gather(gather) => is_integer(gather.access.buffer),
            Expr::Guarded { value, .. } => value.is_integer(is_integer),
            Expr::Binary(op, of) if op.of_integers(0, 0).is_some() => {
                let is_whole =
                    |expr: &Expr| matches!(expr, Expr::Const(x) if DType::I32.rounded(f64::from(*x)) == f64::from(*x));
                of.iter().any(|expr| expr.is_integer(is_integer))
                    && of.iter().all(|expr| is_whole(expr) || expr.is_integer(is_integer))
            }
            Expr::Const(_) | Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => false,
        }
    }

    /// The values that it is made of, left to right.
    pub fn operands(&self) -> &[Expr] {
        match self {
            Expr::Const(_) | Expr::Load(_) => &[],
            Expr::Gather(gather) => &gather.at,
            Expr::Unary(_, of) | Expr::Guarded { value: of, .. } => std::slice::from_ref(of),
            Expr::Binary(_, of) => &**of,
            Expr::Select(_, of) => &**of,
        }
    }

    /// The values that it is made of, left to right.
    pub fn operands_mut(&mut self) -> &mut [Expr] {
        match self {
            Expr::Const(_) | Expr::Load(_) => &mut [],
            Expr::Gather(gather) => &mut gather.at,
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

    /// True if it, or what it is made of, passes a test.
    pub fn any(&self, test: &impl Fn(&Expr) -> bool) -> bool {
        test(self) || self.operands().iter().any(|of| of.any(test))
    }

    /// Calls `visit` on every load, those of gathers before their indices, left to right, with the
    /// conditions under which it happens: these and those around it.
    pub fn for_each_guarded_load<'a>(
        &'a self,
        guards: &mut Vec<&'a InBounds>,
        visit: &mut impl FnMut(&'a Access, &[&'a InBounds]),
    ) {
        let outer = guards.len();
        match self {
            Expr::Load(access) => visit(access, guards),
            Expr::Gather(gather) => visit(&gather.access, guards),
            Expr::Guarded { when, .. } => guards.extend(when),
            _ => {}
        }
        self.operands().iter().for_each(|of| of.for_each_guarded_load(guards, visit));
        guards.truncate(outer);
    }

    /// Calls `visit` on every load, those of gathers before their indices, left to right.
    pub fn for_each_load<'a>(&'a self, visit: &mut impl FnMut(&'a Access)) {
        self.for_each(&mut |expr| match expr {
            Expr::Load(access) => visit(access),
            Expr::Gather(gather) => visit(&gather.access),
            _ => {}
        });
    }

    /// The leftmost load.
    pub fn first_load(&self) -> Option<&Access> {
        match self {
            Expr::Load(access) => Some(access),
            Expr::Gather(gather) => Some(&gather.access),
            _ => self.operands().iter().find_map(Expr::first_load),
        }
    }

    /// The same operation of other values: of what `with` makes of those that it is made of, left
    /// to right.
    pub fn of_others(&self, mut with: impl FnMut(&Expr) -> Expr) -> Self {
        match self {
            Expr::Const(_) | Expr::Load(_) => self.clone(),
            Expr::Gather(gather) => {
                let Gather { access, dims, at } = &**gather;
                Expr::gather(access.clone(), dims.clone(), at.iter().map(with).collect())
            }
            Expr::Unary(op, of) => Expr::unary(*op, with(of)),
            Expr::Binary(op, of) => Expr::Binary(*op, Box::new(of.each_ref().map(with))),
            Expr::Select(compare, of) => Expr::Select(*compare, Box::new(of.each_ref().map(with))),
            Expr::Guarded { when, value } => Expr::Guarded { when: when.clone(), value: Box::new(with(value)) },
        }
    }

    /// The same with something else in the place of every load; a gather is one of another element
    /// where that is a load.
    pub fn replaced(&self, with: &mut impl FnMut(&Access) -> Expr) -> Self {
        match self {
            Expr::Load(access) => with(access),
            Expr::Gather(gather) => match with(&gather.access) {
                Expr::Load(access) => {
                    let at = gather.at.iter().map(|of| of.replaced(with)).collect();
                    Expr::gather(access, gather.dims.clone(), at)
                }
                other => other,
            },
            _ => self.of_others(|of| of.replaced(with)),
        }
    }
}
