//! Combines copies of 8- or 16-bit elements whose destinations fill whole words: each word is built
//! in a register and stored once.
//!
//! ```text
//! [p0 + 4*l + 0] = [p1 + l]         v = [p1 + l] | [p2 + l] << 8 | [p3 + l] << 16 | [p4 + l] << 24
//! [p0 + 4*l + 1] = [p2 + l]    →    words [p0 + 4*l] = v
//! [p0 + 4*l + 2] = [p3 + l]
//! [p0 + 4*l + 3] = [p4 + l]         (for each lane l)
//! ```

use smallvec::SmallVec;

use super::BlockEmitter;
use crate::asm::error::Failure;
use crate::asm::instruction_set::{Arithmetic, ArithmeticOperand, ElementType, Shape, Unary, Vector, Vectors};
use crate::asm::leaf::{self, BlockOp, LeafSource, MemoryAccess};
use crate::asm::transpose::assignment;

/// Bytes of a word.
const WORD: i32 = 4;

/// A group of copies that fill words.
struct WordCopies {
    to: MemoryAccess,
    /// Source of the elements at each place in the words; `None` for zeros.
    from: SmallVec<[Option<MemoryAccess>; 4]>,
    /// Positions of the copies among the operations.
    ops: SmallVec<[usize; 8]>,
}

impl WordCopies {
    /// Returns the words that the first operation fills together with some later ones; `None` if it
    /// is no such copy.
    fn of(code: leaf::Block, ops: &[BlockOp]) -> Option<Self> {
        let (to, _) = copy(code, ops.first()?)?;
        let lanes = match to.shape {
            Shape::Strided { lanes, stride: WORD } => Shape::Lanes(lanes),
            // Words with others in between.
            Shape::Strided { stride, .. } if stride % WORD == 0 => to.shape,
            Shape::Splat => Shape::Splat,
            _ => return None,
        };
        let bytes = to.of.bytes() as i32;
        // The first operation must store to the lowest place of the words.
        if to.at.disp % WORD != 0 {
            return None;
        }

        let mut words = Self { to: MemoryAccess { shape: lanes, ..to }, from: SmallVec::new(), ops: SmallVec::new() };
        let mut source = None;
        for (number, op) in ops.iter().enumerate() {
            // Copies to other places of the same buffer may come in between.
            let (other, from) = copy(code, op)?;
            let buffer = from.map(|from| code.buffer(from));
            // All sources must be in one buffer, which is not the destination's.
            let is_other = |buffer| *source.get_or_insert(buffer) != buffer || buffer == code.buffer(to);
            if code.buffer(other) != code.buffer(to) || buffer.is_some_and(is_other) {
                return None;
            }
            if (other.shape, other.at) == (to.shape, to.at.offset_by(words.from.len(), bytes)) {
                words.from.push(from);
                words.ops.push(number);
            }
            if words.from.len() as i32 == WORD / bytes {
                return Some(words);
            }
        }
        None
    }
}

/// Returns destination and source of an operation that only copies 8- or 16-bit elements; no source
/// if it stores zeros.
fn copy(code: leaf::Block, op: &BlockOp) -> Option<(MemoryAccess, Option<MemoryAccess>)> {
    match assignment(code, op)? {
        (to, LeafSource::Constant(0)) => unsigned(to.of).map(|_| (to, None)),
        (to, LeafSource::Memory(from)) => Some((to, Some(MemoryAccess { of: loaded(to.of, from.of)?, ..from }))),
        (_, LeafSource::Constant(_)) => None,
    }
}

/// Returns the type to load elements in, such that the lowest bits of a lane are those that a copy
/// to another type stores; `None` if stores or loads convert.
fn loaded(to: ElementType, from: ElementType) -> Option<ElementType> {
    match to {
        ElementType::SignedHalf if from.bytes() == 1 => Some(from),
        _ if to == from => unsigned(from),
        _ => None,
    }
}

/// Returns the unsigned type of the same width, whose loads extend with zeros; `None` for types
/// whose loads convert values.
fn unsigned(of: ElementType) -> Option<ElementType> {
    match of {
        ElementType::Byte | ElementType::SignedByte => Some(ElementType::Byte),
        ElementType::Half | ElementType::SignedHalf => Some(ElementType::Half),
        ElementType::Word | ElementType::F16 | ElementType::Bf16 => None,
    }
}

impl<S: Vectors> BlockEmitter<'_, S> {
    /// Emits the copies that fill words, if the first operation is one of them. Returns the
    /// positions of the emitted operations, which is empty otherwise.
    pub(super) fn fill_words(&mut self, ops: &[BlockOp]) -> Result<SmallVec<[usize; 8]>, Failure> {
        let Some(WordCopies { to, from, ops }) = WordCopies::of(self.code, ops) else { return Ok(SmallVec::new()) };
        let (word, part) = (self.spare()?, self.spare()?);
        let mut is_empty = true;
        for (place, memory) in from.iter().enumerate() {
            let &Some(memory) = memory else { continue };
            let register = if is_empty { word } else { part };
            self.load_place(register, memory, (to.of, place as u8));
            if !is_empty {
                self.isa.arithmetic(Arithmetic::Or, word, word, ArithmeticOperand::Register(part));
            }
            is_empty = false;
        }
        if is_empty {
            self.isa.constant(word, 0);
        }

        self.isa.store(word, to.shape, to.at, part);
        [word, part].iter().for_each(|&register| self.release(ArithmeticOperand::Register(register)));
        Ok(ops)
    }

    /// Loads elements, shifted to the bits of their place in words; all other bits are zeros.
    fn load_place(&mut self, register: Vector, memory: MemoryAccess, (of, place): (ElementType, u8)) {
        let (bits, before) = (8 * of.bytes() as u8, 8 * of.bytes() as u8 * place);
        let above = 32 - bits;
        self.isa.load_narrow(register, memory);

        // The bits above negative elements are ones, so these are shifted out first.
        let up = if memory.of == ElementType::SignedByte { above } else { before };
        let shifts = [Unary::ShiftLeft(up), Unary::ShiftRight(up - before)];
        let changes = |shift: &Unary| !matches!(shift, Unary::ShiftLeft(0) | Unary::ShiftRight(0));
        shifts.into_iter().filter(changes).for_each(|shift| self.isa.unary(shift, register, register));
    }
}
