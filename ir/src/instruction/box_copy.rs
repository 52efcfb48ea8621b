//! Copies of rectangles of matrices (boxes) by the tensor memory accelerator (TMA).

use super::site::has_terms;
use super::{Asynchrony, CallSite, Executor, Feature, Instruction, NestForm, Registers};
use crate::affine::{Affine, VarId};
use crate::program::{Access, Buffer, Digit, InBounds, Loop, LoopKind, Node, Scope};
use crate::sets::IntervalSet;

/// `cp.async.bulk.tensor` of a [`BoxCopy`]; an mbarrier counts the bytes that arrive (CUDA, compute
/// capability 9.0).
pub static BOX_COPY: Instruction = Instruction {
    name: "tma",
    factors: &[],
    executor: Executor::Block,
    registers: Registers::None,
    feature: Feature::ComputeCapability(90),
    asynchrony: Asynchrony::Copies,
    nest: NestForm::Box,
};

/// Bytes of a row of a box in shared memory.
pub const BOX_ROW_BYTES: usize = 128;

/// Loop nest of a [`BOX_COPY`]: copies a box of a matrix in global memory to one slot of a buffer
/// in shared memory, which it fills.
///
/// ```text
/// unrolled i                                       (or none)
///   unflatten (row, x) in ROWSx(COLUMNS/V) = ..
///     vectorized v in 0..V
///       shared[slot, row, V*x + v] =
///         if 0 <= index < extent in both dimensions then matrix[.., r + row, c + V*x + v] else 0
/// ```
///
/// Rows in shared memory have [`BOX_ROW_BYTES`] bytes. Each group of eight rows (1024 bytes) is
/// permuted by the hardware's 128-byte swizzle, which only other instructions observe.
pub struct BoxCopy<'a> {
    /// Unrolled loops around the copy, outermost first.
    pub rounds: Vec<&'a Loop>,
    /// Value that is split into digits: the position of a group of `V` elements in the box.
    pub number: &'a Affine,
    /// Digits of the row and of the column.
    pub digits: &'a [Digit],
    /// Vectorised loop over the `V` adjacent elements that one column digit stands for.
    pub vector: &'a Loop,
    /// Destination in shared memory.
    pub to: &'a Access,
    /// Source in global memory.
    pub from: &'a Access,
    /// Conditions under which an element is copied; 0 is stored otherwise.
    pub when: &'a [InBounds],
}

impl<'a> BoxCopy<'a> {
    /// Matches the parts of the nest; `None` if the body has another structure.
    pub fn of(body: &'a [Node]) -> Option<Self> {
        let (mut rounds, mut body) = (Vec::new(), body);
        while let [Node::Loop(l)] = body {
            rounds.push(l);
            body = &l.body;
        }
        let [Node::Unflatten { value: number, digits, body }] = body else { return None };
        let [Node::Loop(vector)] = &body[..] else { return None };
        let [Node::Store(store)] = &vector.body[..] else { return None };
        let (from, when) = store.copied()?;
        (digits.len() == 2).then_some(Self { rounds, number, digits, vector, to: &store.dst, from, when })
    }

    /// Returns the rows and columns of the box, in elements.
    pub fn shape(&self) -> [usize; 2] {
        [self.digits[0].extent, self.digits[1].extent * self.vector.extent]
    }

    /// Returns the index of the first element of the box in the buffer of `access`.
    pub fn origin(&self, access: &Access) -> Vec<Affine> {
        let vars = [self.digits[0].var, self.digits[1].var, self.vector.var];
        let at_zero = |index: &Affine| vars.iter().fold(index.clone(), |i, &v| i.substitute(v, &Affine::default()));
        access.index.iter().map(at_zero).collect()
    }

    /// Returns true if the box is the same for all threads of a block and they copy all of it
    /// together.
    fn is_block_wide(&self, site: &CallSite) -> bool {
        let round = |var: VarId| self.rounds.iter().find(|l| l.var == var).map(|l| l.extent);
        // The threads and rounds together must visit every element of the box.
        let all = IntervalSet::of(self.number, |var| round(var).unwrap_or_else(|| (site.extent)(var)));
        let count: usize = self.digits.iter().map(|d| d.extent).product();
        let origins = [self.origin(self.to), self.origin(self.from)].concat();
        origins.iter().flat_map(|index| &index.terms).all(|&(var, _)| !site.is_thread(var))
            && all.and_then(|set| set.as_prefix()).is_some_and(|n| n >= count)
    }

    /// Checks that a body is a box copy.
    pub(super) fn check(body: &[Node], site: &CallSite) -> Result<(), &'static str> {
        match BoxCopy::of(body) {
            Some(copy) if !copy.is_block_wide(site) => {
                Err("the box of a box copy differs between threads, or they do not copy all of it")
            }
            Some(copy) => copy.check_indices(site),
            None => Err("not a box copy of this instruction"),
        }
    }

    /// Checks the indices and the conditions.
    fn check_indices(&self, site: &CallSite) -> Result<(), &'static str> {
        let program = site.program;

        let row = [(self.digits[0].var, 1)];
        let column = [(self.digits[1].var, self.vector.extent as i64), (self.vector.var, 1)];
        let own = |var: VarId| row.iter().chain(&column).any(|term| term.0 == var);
        let last_two = |access: &Access| has_terms(access, own, [&row, &column]);

        // The box fills a whole slot, in rows of the swizzle's width; the hardware allows at most
        // 256 rows.
        let (to, from) = (program.buffer(self.to.buffer), program.buffer(self.from.buffer));
        let bytes = program.dtype(self.to.buffer).bytes();
        let whole = to.shape.len() == 3
            && to.shape[1..] == self.shape()
            && self.origin(self.to)[1..].iter().all(|index| *index == Affine::default())
            && self.shape()[1] * bytes == BOX_ROW_BYTES
            && self.shape()[0].is_multiple_of(8)
            && self.shape()[0] <= 256;
        if self.vector.kind != LoopKind::Vectorized || !last_two(self.to) || !last_two(self.from) || !whole {
            return Err("a box copy must fill a whole slot of shared memory");
        }

        // Tensor maps describe two-dimensional matrices with rows of whole 16-byte units.
        let matrix = |buffer: &Buffer| {
            let [outer @ .., columns] = &buffer.shape[..] else { return false };
            let outer = &outer[..outer.len().saturating_sub(1)];
            outer.iter().all(|&extent| extent == 1) && (columns * bytes).is_multiple_of(16)
        };
        if from.scope != Scope::Global || !matrix(from) || program.dtype(self.from.buffer).bytes() != bytes {
            return Err("a box copy must read a global matrix whose rows begin at multiples of 16 bytes");
        }

        // The hardware fills with zeros outside the matrix and nowhere else.
        let dims = || self.from.index.iter().zip(&from.shape);
        let edge = |c: &InBounds| dims().any(|(index, &extent)| c.index == *index && c.extent == extent);
        if !self.when.iter().all(edge) {
            return Err("a box copy can fill with zeros only outside the matrix");
        }
        Ok(())
    }
}
