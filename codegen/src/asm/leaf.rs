//! A leaf: a register tile, or a loop nest without one, as straight-line blocks and loops around
//! them.
//!
//! Every access is a pointer and a constant displacement. Loops advance the pointers. Unrolled
//! loops are written out. A vectorised loop of any extent becomes whole vectors and one vector of
//! the remaining lanes:
//! ```text
//! serial k in 0..64 { unrolled y in 0..2 { vectorized x in 0..20 { acc[y, x] += in[y, k] * w[k, x] } } }   (16 lanes)
//!   →  64 times { a0 += splat [p0] * lanes16 [p1];        a1 += splat [p0] * lanes4 [p1 + 64];
//!                 a2 += splat [p0 + 256] * lanes16 [p1];  a3 += splat [p0 + 256] * lanes4 [p1 + 64];
//!                 p0 += 4; p1 += 80 }
//! ```
//!
//! A load after a store to the same buffer is a new source, even from the same address. So code
//! that reuses loaded values need not check for overwritten memory.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use smallvec::SmallVec;

use super::error::{AssembleError, Failure};
use super::instruction_set::{Address, Arithmetic, ElementType, PrefetchHint, Shape};
use super::nest::{ElementBase, LeafNest, NestValue, ValueTree};
use autotune_ir::program::{BufferId, Program, StoreMode};
use autotune_ir::spec::Reduction;

/// The operations of a leaf, given its pointers.
#[derive(Clone, Default)]
pub(super) struct Leaf {
    pub(super) items: Vec<Item>,
    pub(super) ops: Vec<BlockOp>,
    /// Inputs of all operations' values.
    pub(super) inputs: Vec<LeafInput>,
    /// Accumulators whose lanes are folded (see [`BlockOp::Fold`]).
    pub(super) rows: Vec<u16>,
    pub(super) sources: Vec<LeafSource>,
    /// Elements held by the accumulator registers.
    pub(super) accumulators: Vec<Lanes>,
    /// Number of registers after the accumulators, for values that several accumulators combine.
    pub(super) shared: usize,
    /// Lane counts of partial vectors, in order of appearance.
    pub(super) parts: Vec<u8>,
    /// Distances in bytes between non-consecutive lanes, in order of appearance.
    pub(super) strides: Vec<i32>,
    /// Maximum loop depth of a block.
    pub(super) depth: usize,
}

/// Elements of one vector: the key by which a block recognises elements that it has loaded before.
/// Offsets are relative to the current iterations of the loops around the block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lanes {
    pub(super) place: ElementBase,
    /// Version of the contents: increases with each block and each store to the buffer. Always 0
    /// for accumulators.
    pub(super) version: u32,
    /// Offset of the first lane in elements.
    pub(super) first: i64,
    /// Distance between lanes in elements; 0 for a single element.
    pub(super) stride: i64,
    pub(super) lanes: usize,
}

impl Hash for Lanes {
    /// Hashes only the parts that usually differ, which is faster.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let place = match self.place {
            ElementBase::Constant(bits) => bits,
            ElementBase::Accumulators(buffer) => buffer.0,
            ElementBase::Memory(pointer) => pointer.into(),
        };
        state.write_u64(u64::from(place) << 32 ^ u64::from(self.version) << 48 ^ self.first as u64);
    }
}

#[derive(Clone)]
pub(super) enum Item {
    /// Straight-line code: ranges of operations and of sources.
    Block { ops: Range<usize>, sources: Range<usize> },
    /// Start of a loop.
    Begin { extent: usize },
    /// End of the innermost open loop.
    End { var: u32, extent: usize },
}

/// An operation of a block. Source numbers are relative to the block's first source, inputs of a
/// value to the leaf's first.
#[derive(Clone, Copy)]
pub(super) enum BlockOp {
    /// Accumulator += product of two values in memory, by the instruction `by`; only in the first
    /// `part` lanes if that is not 0.
    MulAdd { acc: u16, part: u8, factors: [u32; 2], by: Arithmetic },
    /// Accumulator or memory = value, or += value.
    Store { dst: LeafInput, mode: StoreMode, value: ValueTree },
    /// Accumulator = the first input, combined with the second if there is one. Inputs are sources
    /// or accumulators.
    Combine { acc: u16, by: Reduction, of: (LeafInput, Option<LeafInput>) },
    /// Prefetch of a source's cache line.
    Prefetch { source: u32, hint: PrefetchHint },
    /// Lane `r` of accumulator `acc` = reduction of the first `lanes` lanes of row `r`. `rows` is a
    /// range of the leaf's `rows`, which are accumulators. `by` is `None` as long as `lanes` is 1:
    /// lane 0 is only assigned.
    Fold { acc: u16, rows: (u32, u32), lanes: u8, by: Option<Reduction> },
}

/// Operand or destination of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LeafInput {
    Accumulator(u16),
    /// `lanes` lanes of an accumulator from lane `first` on. `first` is 0, or a power of two of at
    /// least `lanes`.
    Part {
        acc: u16,
        first: u8,
        lanes: u8,
    },
    Source(u32),
}

impl LeafInput {
    /// Returns the number of the source, if it is one.
    pub(super) fn source(self) -> Option<u32> {
        match self {
            LeafInput::Source(id) => Some(id),
            LeafInput::Accumulator(_) | LeafInput::Part { .. } => None,
        }
    }
}

/// An input that is loaded to a register or read as a memory operand; also a store's destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LeafSource {
    Memory(MemoryAccess),
    /// A constant in every lane, as the bits of an f32.
    Constant(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryAccess {
    pub(super) at: Address,
    pub(super) shape: Shape,
    pub(super) of: ElementType,
}

impl MemoryAccess {
    /// Returns the address if this is a whole vector at a displacement that is a multiple of its
    /// size.
    pub(super) fn whole_vector(self, lanes: usize) -> Option<Address> {
        let bytes = self.of.bytes() as i32 * lanes as i32;
        let is_whole = self.shape == Shape::Lanes(lanes as u8) && self.at.disp % bytes == 0;
        is_whole.then_some(self.at)
    }
}

/// A block of a leaf, borrowed.
#[derive(Clone, Copy)]
pub(super) struct Block<'l> {
    pub(super) ops: &'l [BlockOp],
    pub(super) sources: &'l [LeafSource],
    /// Inputs of the whole leaf.
    inputs: &'l [LeafInput],
    /// Folded accumulators of the whole leaf.
    pub(super) rows: &'l [u16],
    /// Values of the whole leaf.
    pub(super) values: &'l [NestValue],
    /// Buffer of each pointer.
    pointers: &'l [BufferId],
}

impl<'l> Block<'l> {
    /// Returns the address at which an operation overwrites a whole vector of memory, at a
    /// displacement that is a multiple of its size.
    fn whole_vector(&self, op: &BlockOp, lanes: usize) -> Option<Address> {
        let BlockOp::Store { dst: LeafInput::Source(dst), mode: StoreMode::Assign, .. } = *op else { return None };
        let LeafSource::Memory(memory) = self.sources[dst as usize] else { return None };
        memory.whole_vector(lanes)
    }

    pub(super) fn inputs_of(&self, value: ValueTree) -> &'l [LeafInput] {
        &self.inputs[value.inputs.0 as usize..value.inputs.1 as usize]
    }

    pub(super) fn buffer(&self, memory: MemoryAccess) -> BufferId {
        self.pointers[usize::from(memory.at.pointer)]
    }

    /// Returns the buffer of a source, unless that is a constant.
    pub(super) fn buffer_of(&self, source: u32) -> Option<BufferId> {
        match self.sources[source as usize] {
            LeafSource::Memory(memory) => Some(self.buffer(memory)),
            LeafSource::Constant(_) => None,
        }
    }
}

impl Leaf {
    /// Returns the number of vector registers needed: two hold the value being computed, and one
    /// more the products of pairs.
    pub(super) fn registers(&self) -> usize {
        let has_pairs = self.ops.iter().any(|op| matches!(op, BlockOp::MulAdd { by: Arithmetic::MulPairs, .. }));
        self.reserved_registers() + 2 + usize::from(has_pairs)
    }

    /// Returns the number of registers that hold partial sums and shared values.
    pub(super) fn reserved_registers(&self) -> usize {
        self.accumulators.len() + self.shared
    }

    /// Adds an element to the block whose sources begin at `first`; returns its input there.
    pub(super) fn input(
        &mut self,
        element: Lanes,
        first: usize,
        (whole, nest): (usize, &LeafNest),
    ) -> Result<LeafInput, Failure> {
        let source = match element.place {
            ElementBase::Constant(bits) => LeafSource::Constant(bits),
            ElementBase::Memory(pointer) => {
                LeafSource::Memory(self.memory(element, (pointer, nest.types[usize::from(pointer)]), whole)?)
            }
            ElementBase::Accumulators(_) => return Ok(self.accumulator(element)),
        };
        self.sources.push(source);
        Ok(LeafInput::Source((self.sources.len() - 1 - first) as u32))
    }

    /// Returns a new accumulator, or a part of an existing one.
    fn accumulator(&mut self, element: Lanes) -> LeafInput {
        let part_of = |whole: &Lanes| {
            let (first, lanes) = (element.first - whole.first, element.lanes as i64);
            let is_inside = first >= 0 && first + lanes <= whole.lanes as i64;
            // A part can start at lane 0, or be moved there by one shift of a power of two lanes.
            let is_at_hand = first == 0 || first.count_ones() == 1 && lanes <= first;
            let is_part = whole.place == element.place && whole.stride == 1 && (element.stride == 1 || lanes == 1);
            (is_part && is_inside && is_at_hand).then_some(first as u8)
        };
        let known = self.accumulators.iter().enumerate().find_map(|(acc, whole)| Some((acc, part_of(whole)?)));
        let Some((acc, first)) = known else {
            self.accumulators.push(element);
            return LeafInput::Accumulator(self.accumulators.len() as u16 - 1);
        };
        let (acc, lanes) = (acc as u16, element.lanes as u8);
        if !self.parts.contains(&lanes) {
            self.parts.push(lanes);
        }
        LeafInput::Part { acc, first, lanes }
    }

    /// Returns the accumulators that each hold one of these elements, and the lane, which is the
    /// same in all of them.
    pub(super) fn rows_of(&self, elements: Lanes) -> Option<(SmallVec<[u16; 16]>, u8)> {
        let mut lane = None;
        let row = |number: usize| {
            let element = elements.first + elements.stride * number as i64;
            let holds = |whole: &Lanes| {
                let of_row = whole.place == elements.place && (whole.stride == 1 || whole.lanes == 1);
                of_row && (whole.first..whole.first + whole.lanes as i64).contains(&element)
            };
            let acc = self.accumulators.iter().position(holds)?;
            let at = (element - self.accumulators[acc].first) as u8;
            // All rows must be read at the same lane.
            (*lane.get_or_insert(at) == at).then_some(acc as u16)
        };
        let rows = (0..elements.lanes).map(row).collect::<Option<_>>()?;
        Some((rows, lane?))
    }

    /// Returns the number of loads of vectors of this type and length in the code.
    pub(super) fn loads(&self, of: ElementType, lanes: u8) -> usize {
        let is_vector = |source: &LeafSource| matches!(source, LeafSource::Memory(memory) if (memory.of, memory.shape) == (of, Shape::Lanes(lanes)));
        let of_block = |item: &Item| match item {
            Item::Block { ops, sources } => {
                // The destination of a store is a source, too, but is not loaded.
                let is_stored = |number: u32| {
                    let stores =
                        |op: &BlockOp| matches!(op, BlockOp::Store { dst: LeafInput::Source(to), .. } if *to == number);
                    self.ops[ops.clone()].iter().any(stores)
                };
                let vectors = (0..).zip(&self.sources[sources.clone()]).filter(|(_, source)| is_vector(source));
                vectors.filter(|(number, _)| !is_stored(*number)).count()
            }
            Item::Begin { .. } | Item::End { .. } => 0,
        };
        self.items.iter().map(of_block).sum()
    }

    fn memory(
        &mut self,
        element: Lanes,
        (pointer, of): (u8, ElementType),
        whole: usize,
    ) -> Result<MemoryAccess, Failure> {
        let Lanes { first, stride, lanes, .. } = element;
        let (first, stride) = (first * of.bytes(), stride * of.bytes());
        // Every lane must be reachable by a 32-bit displacement.
        let last = first + stride * (lanes as i64 - 1);
        if let Some(&bytes) = [first, last, stride].iter().find(|&&bytes| i32::try_from(bytes).is_err()) {
            return Err(AssembleError::Displacement { bytes }.into());
        }

        let part = lanes as u8;
        let shape = match lanes {
            1 => Shape::Splat,
            _ if stride == of.bytes() => Shape::Lanes(part),
            _ => Shape::Strided { lanes: part, stride: stride as i32 },
        };
        if let Shape::Strided { stride, .. } = shape
            && !self.strides.contains(&stride)
        {
            self.strides.push(stride);
        }
        // Instruction sets may prepare masks for partial vectors.
        if lanes > 1 && lanes != whole && !self.parts.contains(&part) {
            self.parts.push(part);
        }
        Ok(MemoryAccess { at: Address { pointer, disp: first as i32 }, shape, of })
    }

    /// Returns a bit set of pointers whose stores may bypass the caches (non-temporal stores).
    ///
    /// Such stores must be aligned whole vectors. The buffers are marked as
    /// [streamed](autotune_ir::program::Buffer::streamed), and every offset and step is a multiple
    /// of a vector's size, so the stores are aligned if the pointer is.
    pub(super) fn streamed(&self, nest: &LeafNest, program: &Program, lanes: usize) -> u32 {
        // Other steps would misalign the next iterations.
        let is_whole = |elements: i64| elements.rem_euclid(lanes as i64) == 0;
        let has_same_steps = |pointer: u8| {
            nest.steps.iter().all(|step| step.pointer != pointer || is_whole(step.elements))
                && program.buffer(nest.pointers[usize::from(pointer)]).streamed
        };
        let pointers = self.items.iter().flat_map(|item| match item {
            Item::Block { ops, sources } => {
                let block = self.block(nest, ops, sources);
                block.ops.iter().filter_map(move |op| block.whole_vector(op, lanes)).collect()
            }
            Item::Begin { .. } | Item::End { .. } => Vec::new(),
        });
        pointers.filter(|&at| has_same_steps(at.pointer)).fold(0, |known, at| known | 1 << at.pointer)
    }

    /// Returns the block of these operations and sources.
    pub(super) fn block<'l>(&'l self, nest: &'l LeafNest, ops: &Range<usize>, sources: &Range<usize>) -> Block<'l> {
        Block {
            ops: &self.ops[ops.clone()],
            sources: &self.sources[sources.clone()],
            inputs: &self.inputs,
            rows: &self.rows,
            values: &nest.values,
            pointers: &nest.pointers,
        }
    }
}
