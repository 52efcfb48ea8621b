//! A leaf: a register tile, or a loop nest without one, as straight-line blocks and loops around them.
//!
//! Every access is a pointer and a constant displacement. Loops advance the pointers; unrolled loops are written out; a
//! vectorised loop of any extent becomes whole vectors and one of the remaining lanes:
//!
//! ```text
//! serial k in 0..64 { unrolled y in 0..2 { vectorized x in 0..20 { acc[y, x] += in[y, k] * w[k, x] } } }   (16 lanes)
//!   →  64 times { a0 += splat [p0] * lanes16 [p1];        a1 += splat [p0] * lanes4 [p1 + 64];
//!                 a2 += splat [p0 + 256] * lanes16 [p1];  a3 += splat [p0 + 256] * lanes4 [p1 + 64];
//!                 p0 += 4; p1 += 80 }
//! ```

use std::ops::Range;

use super::AssembleError;
use super::emit::Shape;
use super::nest::{Access, Nest, Node, Token};
use super::number::Numbers;
use crate::program::{BufferId, LoopKind, Program, StoreMode};

/// What a leaf does, given its pointers: items, and what they consist of.
#[derive(Default)]
pub(super) struct Leaf {
    pub(super) items: Vec<Item>,
    pub(super) ops: Vec<Op>,
    /// The operands of a value come before it.
    pub(super) values: Vec<Value>,
    pub(super) sources: Vec<Source>,
    /// What the registers of partial sums hold.
    pub(super) accumulators: Vec<Accumulator>,
    /// The numbers of lanes of vectors that are not whole, in order of appearance.
    pub(super) parts: Vec<u8>,
}

/// Elements of a buffer of register scope.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Accumulator {
    buffer: BufferId,
    /// Offset of the first in elements.
    first: i64,
    lanes: usize,
}

impl Accumulator {
    fn hash(&self) -> u64 {
        self.first as u64 ^ u64::from(self.buffer.0) << 32
    }
}

pub(super) enum Item {
    /// Straight-line code: its operations and its sources.
    Block { ops: Range<usize>, sources: Range<usize> },
    /// A loop over the items from here to `end`.
    Loop { var: u32, extent: usize, end: usize },
}

/// An operation of a block. Sources are counted from the block's first.
#[derive(Clone, Copy)]
pub(super) enum Op {
    /// Accumulator += product of two values in memory.
    MulAdd { acc: u16, factors: [u32; 2] },
    /// Accumulator = value, or += value.
    Set { acc: u16, mode: StoreMode, value: Tree },
    /// Memory = value, or += value.
    Store { dst: Memory, mode: StoreMode, value: Tree },
    /// A hint that memory is read soon.
    Prefetch(Memory),
}

/// The values `first..=root`, of which the last is what the others are for.
#[derive(Clone, Copy, Default)]
pub(super) struct Tree {
    first: u32,
    pub(super) root: u32,
}

impl Tree {
    pub(super) fn range(self) -> Range<usize> {
        self.first as usize..self.root as usize + 1
    }
}

/// A value and the registers that it takes to evaluate, besides accumulators (Sethi and Ullman, "The generation of optimal
/// code for arithmetic expressions", 1970).
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub(super) kind: Kind,
    pub(super) registers: u8,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Accumulator(u16),
    Source(u32),
    Add(u32, u32),
    Mul(u32, u32),
    Max(u32, u32),
}

/// What a register may hold besides partial sums.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Memory(Memory),
    /// Bits of an f32.
    Constant(u32),
}

impl Source {
    fn hash(&self) -> u64 {
        match self {
            Source::Constant(bits) => u64::from(*bits) | 1 << 63,
            Source::Memory(memory) => u64::from(memory.disp as u32) | u64::from(memory.pointer) << 32,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) pointer: u8,
    /// Bytes behind the pointer.
    pub(super) disp: i32,
    pub(super) shape: Shape,
}

/// The lanes `start..start + lanes` of a vectorised loop, whose start is the variable's value.
#[derive(Clone, Copy)]
struct Lanes {
    var: u32,
    lanes: usize,
}

/// Writes out the loops of one nest after the other.
pub(super) struct Expander<'p> {
    program: &'p Program,
    /// Elements of a vector.
    lanes: usize,
    pub(super) leaf: Leaf,
    /// Values of the unrolled variables around, by number.
    values: Vec<i64>,
    vector: Option<Lanes>,
    /// Numbers of accumulators.
    accumulators: Numbers,
    /// Numbers of the present block's sources.
    sources: Numbers,
    /// Where the present block's operations and sources begin.
    block: (usize, usize),
}

impl<'p> Expander<'p> {
    pub(super) fn new(program: &'p Program, lanes: usize) -> Self {
        Self {
            program,
            lanes,
            leaf: Leaf::default(),
            values: Vec::new(),
            vector: None,
            accumulators: Numbers::default(),
            sources: Numbers::default(),
            block: (0, 0),
        }
    }

    /// Makes the leaf of a nest.
    pub(super) fn expand(&mut self, nest: &Nest) -> Result<(), AssembleError> {
        let Leaf { items, ops, values, sources, accumulators, parts } = &mut self.leaf;
        items.clear();
        ops.clear();
        values.clear();
        sources.clear();
        parts.clear();
        accumulators.clear();
        self.values.clear();
        self.values.resize(nest.vars, 0);
        self.accumulators.clear();
        self.block = (0, 0);
        self.sources.clear();
        self.nodes(nest, 0..nest.nodes.len())?;
        self.flush();
        self.check_accumulators()
    }

    fn flush(&mut self) {
        let end = (self.leaf.ops.len(), self.leaf.sources.len());
        if end.0 > self.block.0 {
            self.leaf.items.push(Item::Block { ops: self.block.0..end.0, sources: self.block.1..end.1 });
            self.sources.clear();
        }
        self.block = end;
    }

    fn nodes(&mut self, nest: &Nest, range: Range<usize>) -> Result<(), AssembleError> {
        let mut at = range.start;
        while at < range.end {
            match nest.nodes[at] {
                Node::Loop { var, extent, kind, end } => {
                    self.repeat(nest, (var, extent, kind), at + 1..end)?;
                    at = end;
                    continue;
                }
                Node::Store { dst, mode, value } => self.store(nest, dst, mode, &nest.values[value..])?,
                Node::Prefetch(access) => {
                    if let Some(pointer) = access.pointer {
                        let memory = self.memory(nest, &access, pointer)?;
                        self.leaf.ops.push(Op::Prefetch(splat_if_constant(memory)));
                    }
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        nest: &Nest,
        (var, extent, kind): (u32, usize, LoopKind),
        body: Range<usize>,
    ) -> Result<(), AssembleError> {
        match kind {
            LoopKind::Unrolled => (0..extent).try_for_each(|value| {
                self.values[var as usize] = value as i64;
                self.nodes(nest, body.clone())
            }),
            LoopKind::Vectorized => (0..extent).step_by(self.lanes).try_for_each(|start| {
                let lanes = self.lanes.min(extent - start);
                self.values[var as usize] = start as i64;
                self.vector = Some(Lanes { var, lanes });
                let done = self.nodes(nest, body.clone());
                self.vector = None;
                done
            }),
            _ => {
                self.flush();
                let at = self.leaf.items.len();
                self.leaf.items.push(Item::Loop { var, extent, end: 0 });
                self.nodes(nest, body)?;
                self.flush();
                self.leaf.items[at] = Item::Loop { var, extent, end: self.leaf.items.len() };
                Ok(())
            }
        }
    }

    /// A store of the value at the start of `tokens`.
    fn store(&mut self, nest: &Nest, dst: Access, mode: StoreMode, tokens: &[Token]) -> Result<(), AssembleError> {
        if dst.pointer.is_none()
            && mode == StoreMode::Accumulate
            && let [Token::Mul, Token::Load(a), Token::Load(b), ..] = tokens
            && let (Some(a_pointer), Some(b_pointer)) = (a.pointer, b.pointer)
        {
            let factors = [self.load(nest, a, a_pointer)?, self.load(nest, b, b_pointer)?];
            let acc = self.accumulator(nest, &dst)?;
            self.leaf.ops.push(Op::MulAdd { acc, factors });
            return Ok(());
        }
        let to = dst.pointer.map(|pointer| self.memory(nest, &dst, pointer)).transpose()?;
        to.iter().for_each(|memory| self.count_lanes(memory.shape));
        let first = self.leaf.values.len() as u32;
        let root = self.value(nest, &mut tokens.iter())?;
        let value = Tree { first, root };
        let op = match to {
            None => Op::Set { acc: self.accumulator(nest, &dst)?, mode, value },
            Some(dst) => Op::Store { dst, mode, value },
        };
        self.leaf.ops.push(op);
        Ok(())
    }

    /// The number of the value whose tokens are next.
    fn value(&mut self, nest: &Nest, tokens: &mut std::slice::Iter<Token>) -> Result<u32, AssembleError> {
        let combine: fn(u32, u32) -> Kind = match tokens.next() {
            Some(Token::Add) => Kind::Add,
            Some(Token::Mul) => Kind::Mul,
            Some(Token::Max) => Kind::Max,
            Some(Token::Load(access)) => {
                let (kind, registers) = match access.pointer {
                    None => (Kind::Accumulator(self.accumulator(nest, access)?), 0),
                    Some(pointer) => (Kind::Source(self.load(nest, access, pointer)?), 1),
                };
                return Ok(self.push_value(kind, registers));
            }
            Some(&Token::Constant(bits)) => return Ok(self.constant(bits)),
            None => return Ok(self.constant(0)),
        };
        let (a, b) = (self.value(nest, tokens)?, self.value(nest, tokens)?);
        let registers = match [a, b].map(|v| self.leaf.values[v as usize].registers) {
            [a, b] if a == b => a + 1,
            [a, b] => a.max(b),
        };
        Ok(self.push_value(combine(a, b), registers))
    }

    fn constant(&mut self, bits: u32) -> u32 {
        let source = self.source(Source::Constant(bits));
        self.push_value(Kind::Source(source), 1)
    }

    fn push_value(&mut self, kind: Kind, registers: u8) -> u32 {
        self.leaf.values.push(Value { kind, registers });
        self.leaf.values.len() as u32 - 1
    }

    /// The number of a source in the present block.
    fn source(&mut self, source: Source) -> u32 {
        let known = &self.leaf.sources[self.block.1..];
        let hash_of = |number: u32| known[number as usize].hash();
        let number = self.sources.number(source.hash(), |number| known[number as usize] == source, hash_of);
        if number as usize == known.len() {
            self.leaf.sources.push(source);
        }
        number
    }

    /// The source that an access is.
    fn load(&mut self, nest: &Nest, access: &Access, pointer: u8) -> Result<u32, AssembleError> {
        let memory = splat_if_constant(self.memory(nest, access, pointer)?);
        self.count_lanes(memory.shape);
        Ok(self.source(Source::Memory(memory)))
    }

    fn count_lanes(&mut self, shape: Shape) {
        if let Shape::Lanes(n) | Shape::Strided { lanes: n, .. } = shape
            && usize::from(n) != self.lanes
            && !self.leaf.parts.contains(&n)
        {
            self.leaf.parts.push(n);
        }
    }

    /// Offset in elements at the first lane, stride along the vector, and number of lanes.
    fn place(&self, nest: &Nest, access: &Access) -> (i64, i64, usize) {
        let (start, count) = access.terms;
        let terms = &nest.terms[start as usize..(start + count) as usize];
        let (vector, lanes) = self.vector.map_or((u32::MAX, 1), |v| (v.var, v.lanes));
        let (mut first, mut stride) = (access.constant, 0);
        for &(var, coefficient) in terms {
            first += coefficient * self.values[var as usize];
            if var == vector {
                stride = coefficient;
            }
        }
        (first, stride, lanes)
    }

    fn memory(&self, nest: &Nest, access: &Access, pointer: u8) -> Result<Memory, AssembleError> {
        let (first, stride, lanes) = self.place(nest, access);
        let (first, stride) = (first * 4, stride * 4);
        let last = first + stride * (lanes as i64 - 1);
        let fits = |bytes: i64| bytes == i64::from(bytes as i32);
        if !(fits(first) && fits(last) && fits(stride)) {
            let bytes = [first, last, stride].into_iter().find(|&b| !fits(b)).unwrap_or(first);
            return Err(AssembleError::Displacement { bytes });
        }
        let (disp, stride) = (first as i32, stride as i32);
        let shape = match (lanes, stride) {
            (1, _) => Shape::Splat,
            (_, 4) => Shape::Lanes(lanes as u8),
            _ => Shape::Strided { lanes: lanes as u8, stride },
        };
        Ok(Memory { pointer, disp, shape })
    }

    fn accumulator(&mut self, nest: &Nest, access: &Access) -> Result<u16, AssembleError> {
        let (first, stride, lanes) = self.place(nest, access);
        let accumulator = Accumulator { buffer: access.buffer, first, lanes };
        let known = &mut self.leaf.accumulators;
        let is = |number: u32| (known[number as usize].buffer, known[number as usize].first) == (access.buffer, first);
        let hash_of = |number: u32| known[number as usize].hash();
        let number = self.accumulators.number(accumulator.hash(), is, hash_of);
        if number as usize == known.len() {
            known.push(accumulator);
        }
        if known[number as usize].lanes != lanes || (lanes > 1 && stride != 1) {
            return Err(AssembleError::register_index(self.program, access.buffer));
        }
        Ok(number as u16)
    }

    /// No two accumulators may share an element.
    fn check_accumulators(&self) -> Result<(), AssembleError> {
        let mut sorted = self.leaf.accumulators.clone();
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            if pair[0].buffer == pair[1].buffer && pair[0].first + pair[0].lanes as i64 > pair[1].first {
                return Err(AssembleError::register_index(self.program, pair[0].buffer));
            }
        }
        Ok(())
    }
}

/// What is the same for every lane as one element.
fn splat_if_constant(memory: Memory) -> Memory {
    match memory.shape {
        Shape::Strided { stride: 0, .. } => Memory { shape: Shape::Splat, ..memory },
        _ => memory,
    }
}
