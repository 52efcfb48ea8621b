//! Variables, loops and buffers of a program while its stages are built.

use std::sync::Arc;

use super::nest;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{Buffer, BufferId, Digit, Expr, InBounds, Loop, LoopKind, Node, Role, Scope, VarName};
use autotune_ir::{DType, Spec};

/// Loop variables, extents and kinds, outermost first.
pub(crate) type Loops = Vec<(VarId, usize, LoopKind)>;

/// Variables, loop extents and buffers that all stages of a program share.
pub(crate) struct NestParts {
    /// Spec that is computed.
    spec: Arc<Spec>,
    /// Element type of copies of operands.
    dtype: DType,
    pub(crate) vars: Vec<VarName>,
    pub(crate) extents: Vec<usize>,
    pub(crate) buffers: Vec<Buffer>,
}

impl NestParts {
    pub(crate) fn new(spec: &Arc<Spec>, dtype: DType) -> Self {
        Self { spec: Arc::clone(spec), dtype, vars: Vec::new(), extents: Vec::new(), buffers: Vec::new() }
    }

    /// Adds a buffer in the plain layout. Operands, result and partial sums have their own types;
    /// other buffers have the type of copies.
    pub(crate) fn buffer(&mut self, name: impl Into<String>, role: Role, scope: Scope, shape: Vec<usize>) -> BufferId {
        let dtype = match role {
            Role::Operand(_) | Role::Output => self.spec.find(role).map_or(self.dtype, |tensor| tensor.dtype),
            Role::Accumulator => self.sum_dtype(),
            Role::Packed => self.dtype,
        };
        self.buffers.push(Buffer::plain(name, role, scope, shape, dtype));
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Adds a buffer in memory for partial sums, with their type.
    pub(crate) fn partial_sums(&mut self, name: &str, scope: Scope, shape: Vec<usize>) -> BufferId {
        let dtype = self.sum_dtype();
        self.copy(name, scope, shape, dtype)
    }

    /// Adds a buffer for a copy of elements in another type than other copies.
    pub(crate) fn copy(&mut self, name: &str, scope: Scope, shape: Vec<usize>, dtype: DType) -> BufferId {
        self.buffers.push(Buffer::plain(name, Role::Packed, scope, shape, dtype));
        BufferId(self.buffers.len() as u32 - 1)
    }

    fn sum_dtype(&self) -> DType {
        self.spec.tensor(&self.spec.main().output).dtype
    }

    /// Returns the buffer called `name`. Adds it if it does not exist.
    pub(crate) fn buffer_named(&mut self, name: &str, role: Role, scope: Scope, shape: Vec<usize>) -> BufferId {
        self.find_named(name).unwrap_or_else(|| self.buffer(name, role, scope, shape))
    }

    /// Returns the buffer called `name`, if it exists.
    pub(crate) fn find_named(&self, name: &str) -> Option<BufferId> {
        let known = self.buffers.iter().position(|buffer| buffer.name == name);
        known.map(|known| BufferId(known as u32))
    }

    pub(crate) fn var(&mut self, name: impl Into<VarName>, extent: usize) -> VarId {
        self.vars.push(name.into());
        self.extents.push(extent);
        VarId(self.vars.len() as u32 - 1)
    }

    /// Adds a variable, and its loop to the end of `loops`.
    pub(crate) fn open(
        &mut self,
        name: impl Into<VarName>,
        extent: usize,
        kind: LoopKind,
        loops: &mut Loops,
    ) -> Affine {
        let var = self.var(name, extent);
        loops.push((var, extent, kind));
        Affine::var(var)
    }

    /// Like [`NestParts::open`], but without a loop and with the value zero for an extent of 1.
    pub(crate) fn open_some(
        &mut self,
        name: impl Into<VarName>,
        extent: usize,
        kind: LoopKind,
        loops: &mut Loops,
    ) -> Affine {
        if extent == 1 { Affine::default() } else { self.open(name, extent, kind, loops) }
    }

    /// Adds digits with names and extents, the most significant first. Returns them and their
    /// values.
    pub(crate) fn digits<N: Into<VarName>>(
        &mut self,
        digits: impl IntoIterator<Item = (N, usize)>,
    ) -> (Vec<Digit>, Vec<Affine>) {
        let digits = digits.into_iter().map(|(name, extent)| Digit { var: self.var(name, extent), extent });
        let digits: Vec<Digit> = digits.collect();
        let values = digits.iter().map(|digit| Affine::var(digit.var)).collect();
        (digits, values)
    }

    pub(crate) fn range(&self, index: &Affine) -> (i64, i64) {
        index.range(|var| self.extents[var.0 as usize])
    }

    /// Returns the bounds that the extents of loops do not already imply.
    pub(crate) fn guards(&self, bounds: impl IntoIterator<Item = (Affine, usize)>) -> Vec<InBounds> {
        // A bound that always holds would only cost instructions.
        let leaves = |(index, extent): &(Affine, usize)| {
            let (low, high) = self.range(index);
            low < 0 || high >= *extent as i64
        };
        bounds.into_iter().filter(leaves).map(|(index, extent)| InBounds { index, extent }).collect()
    }

    /// Returns one thread per element of a shape, with registers of its own:
    ///
    /// ```text
    /// block b { thread t in 0..threads { unflatten (d0, d1, ..) = b*threads + t { body } } }
    /// ```
    pub(crate) fn each(
        &mut self,
        threads: usize,
        shape: &[(&'static str, usize)],
        registers: &[BufferId],
        body: impl FnOnce(&mut Self, Vec<Affine>) -> Vec<Node>,
    ) -> Vec<Node> {
        let mut loops = Vec::new();
        let blocks = shape.iter().map(|digit| digit.1).product::<usize>().div_ceil(threads);
        let block = self.open_some("b", blocks, LoopKind::Block, &mut loops);
        let value = block * threads as i64 + self.open("t", threads, LoopKind::Thread, &mut loops);

        // Splitting the number into digits skips threads after the last element.
        let (digits, index) = self.digits(shape.iter().copied());
        let body = vec![Node::Unflatten { value, digits, body: body(self, index) }];
        nest(loops, allocated(registers.iter().copied(), body))
    }
}

/// Returns the name of a buffer that all buffers of the same use and shape share, as in `acc_4x8`.
pub(crate) fn shaped_name(name: &str, shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("{name}_{}", sizes.join("x"))
}

/// `count` tiles of `extent` elements each, the first at `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) start: usize,
    pub(crate) count: usize,
    pub(crate) extent: usize,
}

impl Segment {
    /// Divides an axis into tiles: whole tiles as one segment, and the remainder as another.
    pub(crate) fn tiles(extent: usize, tile: usize) -> impl Iterator<Item = Self> {
        let whole = Self { start: 0, count: extent / tile, extent: tile };
        let rest = Self { start: extent / tile * tile, count: 1, extent: extent % tile };
        // A short axis has no whole tile, and a divisible one no remainder.
        [whole, rest].into_iter().filter(|segment| segment.count * segment.extent > 0)
    }
}

/// Adjacent items that are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EqualRun<T> {
    /// Position of the first item.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// The item that is repeated.
    pub(crate) each: T,
}

/// Groups adjacent items that are equal.
pub(crate) fn runs<T: PartialEq>(items: impl Iterator<Item = T>) -> impl Iterator<Item = EqualRun<T>> {
    let mut items = items.enumerate().peekable();
    std::iter::from_fn(move || {
        let (first, each) = items.next()?;
        let mut count = 1;
        while items.next_if(|(_, next)| *next == each).is_some() {
            count += 1;
        }
        Some(EqualRun { first, count, each })
    })
}

/// Interface of types that build the stages of a program.
pub(crate) trait StageBuilder: Sized {
    fn all(&mut self) -> &mut NestParts;

    /// Returns `for var in 0..extent { body }`. For an extent of 1, the body alone with the
    /// constant 0; for an empty body, nothing.
    fn repeat(
        &mut self,
        name: impl Into<VarName>,
        extent: usize,
        kind: LoopKind,
        body: impl FnOnce(&mut Self, Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        if extent == 1 {
            return body(self, Affine::default());
        }
        let var = self.all().var(name, extent);
        let body = body(self, Affine::var(var));
        if body.is_empty() { body } else { vec![Node::Loop(Loop { var, extent, kind, body })] }
    }
}

impl StageBuilder for NestParts {
    fn all(&mut self) -> &mut NestParts {
        self
    }
}

/// Wraps a body in allocations of buffers, the first outermost.
pub(crate) fn allocated<B>(buffers: B, body: Vec<Node>) -> Vec<Node>
where
    B: IntoIterator<Item = BufferId, IntoIter: DoubleEndedIterator>,
{
    buffers.into_iter().rev().fold(body, |body, buffer| vec![Node::Alloc { buffer, body }])
}

/// Guards a body with conditions.
pub(crate) fn guarded(when: Vec<InBounds>, body: Vec<Node>) -> Vec<Node> {
    if when.is_empty() { body } else { vec![Node::Guard { when, body }] }
}

/// Returns a value that is zero where the conditions do not hold.
pub(crate) fn guarded_value(when: Vec<InBounds>, value: Expr) -> Expr {
    if when.is_empty() { value } else { Expr::Guarded { when, value: Box::new(value) } }
}
