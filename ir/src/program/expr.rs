//! Expressions: the values that statements store.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::buffer::BufferId;
use super::op::{BinaryOp, Compare, UnaryOp};
use crate::affine::Affine;
use crate::dtype::DType;

/// An element of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Buffer that contains the element.
    pub buffer: BufferId,
    /// One index per physical dimension.
    pub index: Index,
}

/// Index of an element, shared between accesses and cloned on write. Transforms read the same few
/// elements many times, and separate copies would dominate the memory of their loop nests.
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

/// Condition `0 <= index < extent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InBounds {
    /// Value that is compared.
    pub index: Affine,
    /// Exclusive upper bound of the value.
    pub extent: usize,
}

/// Element whose index is partly computed from values. The index is that of `access`, with the
/// zeros along some dimensions replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct GatherAccess {
    /// Access to global memory with index 0 along the replaced dimensions.
    pub access: Access,
    /// Replaced dimensions, each once.
    pub dims: Vec<usize>,
    /// Value of the index along each replaced dimension, converted by [`gathered_index`].
    pub at: Vec<Expr>,
}

/// Number of elements of a table that has one for each u8.
pub const TABLE_LEN: usize = 1 << u8::BITS;

/// Converts a value to an index along a dimension of `extent` elements: rounds down and clamps to
/// the valid range; NaN becomes 0.
pub fn gathered_index(value: f32, extent: usize) -> usize {
    // The comparison is false for NaN and for negative values.
    if value >= 1.0 { (value as usize).min(extent.saturating_sub(1)) } else { 0 }
}

/// Expression with a value of type f32, or i32 if it [is an integer](Expr::is_integer).
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// Constant, in f32 also for integers.
    Const(f32),
    /// Element of a buffer.
    Load(Access),
    /// Element of a buffer whose index is partly computed from values.
    Gather(Box<GatherAccess>),
    /// Operation on one value.
    Unary(UnaryOp, Box<Expr>),
    /// Operation on two values.
    Binary(BinaryOp, Box<[Expr; 2]>),
    /// Selection among four values: the third if the comparison of the first two holds, else the
    /// fourth.
    Select(Compare, Box<[Expr; 4]>),
    /// The value if every condition holds, else zero without loading anything. GPU only.
    Guarded {
        /// Conditions, all of which must hold.
        when: Vec<InBounds>,
        /// Value if they hold.
        value: Box<Expr>,
    },
}

impl Expr {
    /// Returns `a + b`.
    pub fn sum(a: Expr, b: Expr) -> Self {
        Self::binary(BinaryOp::Add, a, b)
    }

    /// Returns `a * b`.
    pub fn product(a: Expr, b: Expr) -> Self {
        Self::binary(BinaryOp::Mul, a, b)
    }

    /// Returns the product of two values that are sums of a high and a low part, without the
    /// product of the low parts: `a * b + a * b_low + a_low * b`.
    pub fn split_product([a, b]: [Expr; 2], [a_low, b_low]: [Expr; 2]) -> Self {
        let high = Self::product(a.clone(), b.clone());
        Self::sum(Self::sum(high, Self::product(a, b_low)), Self::product(a_low, b))
    }

    /// Returns an element whose index along `dims` is computed from the values `at`.
    pub fn gather(access: Access, dims: Vec<usize>, at: Vec<Expr>) -> Self {
        Expr::Gather(Box::new(GatherAccess { access, dims, at }))
    }

    /// Returns the larger of two values.
    pub fn max(a: Expr, b: Expr) -> Self {
        Self::binary(BinaryOp::Max, a, b)
    }

    /// Returns an operation on one value.
    pub fn unary(op: UnaryOp, of: Expr) -> Self {
        Expr::Unary(op, Box::new(of))
    }

    /// Returns an operation on two values.
    pub fn binary(op: BinaryOp, a: Expr, b: Expr) -> Self {
        Expr::Binary(op, Box::new([a, b]))
    }

    /// Returns `then` if the comparison of `a` with `b` holds, else `otherwise`.
    pub fn select(compare: Compare, [a, b]: [Expr; 2], then: Expr, otherwise: Expr) -> Self {
        Expr::Select(compare, Box::new([a, b, then, otherwise]))
    }

    /// Returns true if the expression is computed as an i32 (wrapping): an element of an integer
    /// type, or a sum, difference, product, maximum or minimum of integers and integral constants.
    /// In all other operations integers are first rounded to f32. The closure tells whether a
    /// buffer has an integer type.
    pub fn is_integer(&self, is_integer: &impl Fn(BufferId) -> bool) -> bool {
        match self {
            Expr::Load(access) => is_integer(access.buffer),
            Expr::Gather(gather) => is_integer(gather.access.buffer),
            Expr::Guarded { value, .. } => value.is_integer(is_integer),
            Expr::Binary(op, of) if op.of_integers(0, 0).is_some() => {
                // Integral constants adopt the type of the other operand.
                let is_whole =
                    |expr: &Expr| matches!(expr, Expr::Const(x) if DType::I32.rounded(f64::from(*x)) == f64::from(*x));
                of.iter().any(|expr| expr.is_integer(is_integer))
                    && of.iter().all(|expr| is_whole(expr) || expr.is_integer(is_integer))
            }
            Expr::Const(_) | Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => false,
        }
    }

    /// Returns the factors of a product of two elements; `None` for other expressions.
    pub fn factors(&self) -> Option<[&Access; 2]> {
        match self {
            Expr::Binary(BinaryOp::Mul, factors) => match &**factors {
                [Expr::Load(a), Expr::Load(b)] => Some([a, b]),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the direct subexpressions, left to right.
    pub fn operands(&self) -> &[Expr] {
        match self {
            Expr::Const(_) | Expr::Load(_) => &[],
            Expr::Gather(gather) => &gather.at,
            Expr::Unary(_, of) | Expr::Guarded { value: of, .. } => std::slice::from_ref(of),
            Expr::Binary(_, of) => &**of,
            Expr::Select(_, of) => &**of,
        }
    }

    /// Returns the direct subexpressions for modification, left to right.
    pub fn operands_mut(&mut self) -> &mut [Expr] {
        match self {
            Expr::Const(_) | Expr::Load(_) => &mut [],
            Expr::Gather(gather) => &mut gather.at,
            Expr::Unary(_, of) | Expr::Guarded { value: of, .. } => std::slice::from_mut(of),
            Expr::Binary(_, of) => &mut **of,
            Expr::Select(_, of) => &mut **of,
        }
    }

    /// Calls `visit` on the expression and on all its subexpressions, in preorder.
    pub fn for_each<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        visit(self);
        self.operands().iter().for_each(|of| of.for_each(visit));
    }

    /// Returns true if the expression or one of its subexpressions passes `test`.
    pub fn any(&self, test: &impl Fn(&Expr) -> bool) -> bool {
        test(self) || self.operands().iter().any(|of| of.any(test))
    }

    /// Calls `visit` on every load, left to right, a gather before its indices. Also passes the
    /// conditions under which the load happens: those in `guards` and those of the expressions
    /// around it.
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

    /// Calls `visit` on every load, left to right, a gather before its indices.
    pub fn for_each_load<'a>(&'a self, visit: &mut impl FnMut(&'a Access)) {
        self.for_each(&mut |expr| match expr {
            Expr::Load(access) => visit(access),
            Expr::Gather(gather) => visit(&gather.access),
            _ => {}
        });
    }

    /// Returns the leftmost load, if there is one.
    pub fn first_load(&self) -> Option<&Access> {
        match self {
            Expr::Load(access) => Some(access),
            Expr::Gather(gather) => Some(&gather.access),
            _ => self.operands().iter().find_map(Expr::first_load),
        }
    }

    /// Returns the same operation with every direct subexpression replaced by the result of `with`,
    /// left to right.
    pub fn of_others(&self, mut with: impl FnMut(&Expr) -> Expr) -> Self {
        match self {
            Expr::Const(_) | Expr::Load(_) => self.clone(),
            Expr::Gather(gather) => {
                let GatherAccess { access, dims, at } = &**gather;
                Expr::gather(access.clone(), dims.clone(), at.iter().map(with).collect())
            }
            Expr::Unary(op, of) => Expr::unary(*op, with(of)),
            Expr::Binary(op, of) => Expr::Binary(*op, Box::new(of.each_ref().map(with))),
            Expr::Select(compare, of) => Expr::Select(*compare, Box::new(of.each_ref().map(with))),
            Expr::Guarded { when, value } => Expr::Guarded { when: when.clone(), value: Box::new(with(value)) },
        }
    }

    /// Returns the expression with every load replaced. A gather stays a gather if its access is
    /// replaced by a load.
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
