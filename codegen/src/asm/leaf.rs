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

use super::instruction_set::{Address as At, Shape};
use super::nest::{Access, Nest, Node, Read, Tree};
use super::number::Numbers;
use super::{AssembleError, Failure};
use autotune_ir::program::{BufferId, LoopKind, Program, StoreMode};

/// What a leaf does, given its pointers: items, and what they consist of.
#[derive(Default)]
pub(super) struct Leaf {
    pub(super) items: Vec<Item>,
    pub(super) ops: Vec<Op>,
    /// Those of the values of operations.
    pub(super) inputs: Vec<Input>,
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

/// An operation of a block. Sources are counted from the block's first, the inputs of a value from the leaf's first.
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

/// What a value is made of.
#[derive(Clone, Copy)]
pub(super) enum Input {
    Accumulator(u16),
    Source(u32),
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
            Source::Memory(memory) => u64::from(memory.at.disp as u32) | u64::from(memory.at.pointer) << 32,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) at: At,
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
    /// By variable, if it is unrolled or vectorised and around: its value, and the number of the iteration.
    values: Vec<(i64, usize)>,
    vector: Option<Lanes>,
    known: Known,
    /// Numbers of accumulators.
    accumulators: Numbers,
    /// Numbers of the present block's sources.
    sources: Numbers,
    /// Where the present block's operations and sources begin.
    block: (usize, usize),
}

/// What reads are, by the iterations that they depend on.
#[derive(Default)]
struct Known {
    /// By read.
    reads: Vec<KnownRead>,
    /// By term of the nest: its variable, and the distance of its iterations in `inputs`.
    steps: Vec<(u32, usize)>,
    /// By variable, the number of iterations.
    counts: Vec<usize>,
    /// With the number of the block in which it was that; there is no block 0.
    inputs: Vec<(u32, Input)>,
    /// Number of the present block.
    block: u32,
}

/// The place of its first iterations in [`Known::inputs`], and its terms.
#[derive(Clone, Copy)]
struct KnownRead {
    first: usize,
    terms: (u32, u32),
}

impl Known {
    /// Makes room for the reads of a nest.
    fn prepare(&mut self, nest: &Nest, lanes: usize) {
        self.counts.clear();
        self.counts.resize(nest.vars, 1);
        for node in &nest.nodes {
            if let Node::Loop { var, extent, kind, .. } = *node {
                self.counts[var as usize] = if kind == LoopKind::Vectorized { extent.div_ceil(lanes) } else { extent };
            }
        }

        // The place of a read is a mixed radix of the numbers of its iterations.
        self.steps.clear();
        self.steps.resize(nest.terms.len(), (0, 0));
        self.reads.clear();
        let mut first = 0;
        for read in &nest.reads {
            let terms = match read {
                Read::Constant(_) => (0, 0),
                Read::Element(access) => access.terms,
            };
            self.reads.push(KnownRead { first, terms });
            let mut size = 1;
            for i in terms.0 as usize..terms.1 as usize {
                let (var, _) = nest.terms[i];
                self.steps[i] = (var, size);
                size *= self.counts[var as usize];
            }
            first += size;
        }

        if self.inputs.len() < first {
            self.inputs.resize(first, (0, Input::Source(0)));
        }
    }

    /// The place of a read in the present iterations.
    fn place(&self, read: u32, values: &[(i64, usize)]) -> usize {
        let KnownRead { first, terms } = self.reads[read as usize];
        let steps = &self.steps[terms.0 as usize..terms.1 as usize];
        steps.iter().fold(first, |place, &(var, step)| place + values[var as usize].1 * step)
    }
}

impl<'p> Expander<'p> {
    pub(super) fn new(program: &'p Program, lanes: usize) -> Self {
        Self {
            program,
            lanes,
            leaf: Leaf::default(),
            values: Vec::new(),
            vector: None,
            known: Known::default(),
            accumulators: Numbers::default(),
            sources: Numbers::default(),
            block: (0, 0),
        }
    }

    /// Makes the leaf of a nest.
    pub(super) fn expand(&mut self, nest: &Nest) -> Result<(), Failure> {
        let Leaf { items, ops, inputs, sources, accumulators, parts } = &mut self.leaf;
        items.clear();
        ops.clear();
        inputs.clear();
        sources.clear();
        parts.clear();
        accumulators.clear();
        self.values.clear();
        self.values.resize(nest.vars, (0, 0));
        self.known.prepare(nest, self.lanes);
        self.accumulators.clear();
        self.block = (0, 0);
        self.sources.clear();
        self.known.block += 1;
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
        self.known.block += 1;
        self.block = end;
    }

    fn nodes(&mut self, nest: &Nest, range: Range<usize>) -> Result<(), Failure> {
        let mut at = range.start;
        while at < range.end {
            match nest.nodes[at] {
                Node::Loop { var, extent, kind, end } => {
                    self.repeat(nest, (var, extent, kind), at + 1..end)?;
                    at = end;
                    continue;
                }
                Node::MulAdd { acc, factors } => self.multiply_add(nest, acc, factors)?,
                Node::Set { acc, mode, value } => {
                    let value = self.value(nest, value)?;
                    if let Input::Accumulator(acc) = self.read(nest, acc)? {
                        self.leaf.ops.push(Op::Set { acc, mode, value });
                    }
                }
                Node::Store { pointer, dst, mode, value } => {
                    let dst = self.memory(nest, &dst, pointer)?;
                    self.count_lanes(dst.shape);
                    let value = self.value(nest, value)?;
                    self.leaf.ops.push(Op::Store { dst, mode, value });
                }
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
    ) -> Result<(), Failure> {
        match kind {
            LoopKind::Unrolled => (0..extent).try_for_each(|value| {
                self.values[var as usize] = (value as i64, value);
                self.nodes(nest, body.clone())
            }),
            LoopKind::Vectorized => (0..extent).step_by(self.lanes).try_for_each(|start| {
                let lanes = self.lanes.min(extent - start);
                self.values[var as usize] = (start as i64, start / self.lanes);
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

    fn multiply_add(&mut self, nest: &Nest, acc: u32, factors: [u32; 2]) -> Result<(), Failure> {
        let [a, b] = factors;
        let inputs = (self.read(nest, a)?, self.read(nest, b)?, self.read(nest, acc)?);
        if let (Input::Source(a), Input::Source(b), Input::Accumulator(acc)) = inputs {
            self.leaf.ops.push(Op::MulAdd { acc, factors: [a, b] });
        }
        Ok(())
    }

    fn value(&mut self, nest: &Nest, value: Tree) -> Result<Tree, Failure> {
        let first = self.leaf.inputs.len() as u32;
        for &read in &nest.inputs[value.inputs.0 as usize..value.inputs.1 as usize] {
            let input = self.read(nest, read)?;
            self.leaf.inputs.push(input);
        }
        Ok(Tree { root: value.root, inputs: (first, self.leaf.inputs.len() as u32) })
    }

    /// What a read is in the present block and iterations.
    #[inline]
    fn read(&mut self, nest: &Nest, read: u32) -> Result<Input, Failure> {
        let place = self.known.place(read, &self.values);
        let (block, known) = self.known.inputs[place];
        if block == self.known.block { Ok(known) } else { self.first_read(nest, read, place) }
    }

    /// What a read with this place is known to be from now on.
    fn first_read(&mut self, nest: &Nest, read: u32, place: usize) -> Result<Input, Failure> {
        let input = match &nest.reads[read as usize] {
            Read::Constant(bits) => Input::Source(self.source(Source::Constant(*bits))),
            Read::Element(access) => match access.pointer {
                None => Input::Accumulator(self.accumulator(nest, access)?),
                Some(pointer) => Input::Source(self.load(nest, access, pointer)?),
            },
        };
        self.known.inputs[place] = (self.known.block, input);
        Ok(input)
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
    fn load(&mut self, nest: &Nest, access: &Access, pointer: u8) -> Result<u32, Failure> {
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
        let (vector, lanes) = self.vector.map_or((u32::MAX, 1), |v| (v.var, v.lanes));
        let (mut first, mut stride) = (access.constant, 0);
        for &(var, coefficient) in nest.terms(access) {
            first += coefficient * self.values[var as usize].0;
            if var == vector {
                stride = coefficient;
            }
        }
        (first, stride, lanes)
    }

    fn memory(&self, nest: &Nest, access: &Access, pointer: u8) -> Result<Memory, Failure> {
        let (first, stride, lanes) = self.place(nest, access);
        let (first, stride) = (first * 4, stride * 4);
        let last = first + stride * (lanes as i64 - 1);
        let fits = |bytes: i64| bytes == i64::from(bytes as i32);
        if !(fits(first) && fits(last) && fits(stride)) {
            let bytes = [first, last, stride].into_iter().find(|&b| !fits(b)).unwrap_or(first);
            return Err(AssembleError::Displacement { bytes }.into());
        }
        let (disp, stride) = (first as i32, stride as i32);
        let shape = match (lanes, stride) {
            (1, _) => Shape::Splat,
            (_, 4) => Shape::Lanes(lanes as u8),
            _ => Shape::Strided { lanes: lanes as u8, stride },
        };
        Ok(Memory { at: At { pointer, disp }, shape })
    }

    fn accumulator(&mut self, nest: &Nest, access: &Access) -> Result<u16, Failure> {
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
    fn check_accumulators(&self) -> Result<(), Failure> {
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
