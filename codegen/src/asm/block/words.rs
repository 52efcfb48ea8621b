//! Copies of short elements that lie a word apart: where there is one for each place in the words,
//! whole words are stored.
//!
//! ```text
//! [p0 + 4*l + 0] = [p1 + l]         v = [p1 + l] | [p2 + l] << 8 | [p3 + l] << 16 | [p4 + l] << 24
//! [p0 + 4*l + 1] = [p2 + l]    →    words [p0 + 4*l] = v
//! [p0 + 4*l + 2] = [p3 + l]
//! [p0 + 4*l + 3] = [p4 + l]         (for each lane l)
//! ```

use smallvec::SmallVec;

use super::Block;
use crate::asm::error::Failure;
use crate::asm::instruction_set::{Arithmetic, ElementType, Operand, Shape, Unary, Vector, Vectors};
use crate::asm::leaf::{self, Memory, Op, Source};
use crate::asm::transpose::assignment;

/// Bytes of a word.
const WORD: i32 = 4;

/// Copies that fill words.
struct Words {
    to: Memory,
    /// Elements of each place in them; none for zeros.
    from: SmallVec<[Option<Memory>; 4]>,
    /// Numbers of the copies.
    ops: SmallVec<[usize; 8]>,
}

impl Words {
    /// Returns the words that the first operation and some after it fill, if they do.
    fn of(code: leaf::Block, ops: &[Op]) -> Option<Self> {
        let (to, _) = copy(code, ops.first()?)?;
        let lanes = match to.shape {
            Shape::Strided { lanes, stride: WORD } => Shape::Lanes(lanes),
            Shape::Splat => Shape::Splat,
            _ => return None,
        };
        let bytes = to.of.bytes() as i32;
        if to.at.disp % WORD != 0 {
            return None;
        }

        let mut words = Self { to: Memory { shape: lanes, ..to }, from: SmallVec::new(), ops: SmallVec::new() };
        let mut source = None;
        for (number, op) in ops.iter().enumerate() {
            // Copies of other places of these buffers may come between them.
            let (other, from) = copy(code, op)?;
            let buffer = from.map(|from| code.buffer(from));
            let is_other = |buffer| *source.get_or_insert(buffer) != buffer || buffer == code.buffer(to);
            if code.buffer(other) != code.buffer(to) || buffer.is_some_and(is_other) {
                return None;
            }
            if (other.shape, other.at) == (to.shape, to.at.behind(words.from.len(), bytes)) {
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

/// Returns where an operation copies short elements to and from, if that is all it does; no source
/// if they become zeros.
fn copy(code: leaf::Block, op: &Op) -> Option<(Memory, Option<Memory>)> {
    match assignment(code, op)? {
        (to, Source::Constant(0)) => unsigned(to.of).map(|_| (to, None)),
        (to, Source::Memory(from)) => Some((to, Some(Memory { of: loaded(to.of, from.of)?, ..from }))),
        (_, Source::Constant(_)) => None,
    }
}

/// Returns the type to load elements as so that the lowest bits of lanes are those that a copy to
/// another type stores; none where stores or loads convert.
fn loaded(to: ElementType, from: ElementType) -> Option<ElementType> {
    match to {
        ElementType::SignedHalf if from.bytes() == 1 => Some(from),
        _ if to == from => unsigned(from),
        _ => None,
    }
}

/// Elements of the same bits, above which a lane has zeros; none where loads convert.
fn unsigned(of: ElementType) -> Option<ElementType> {
    match of {
        ElementType::Byte | ElementType::SignedByte => Some(ElementType::Byte),
        ElementType::Half | ElementType::SignedHalf => Some(ElementType::Half),
        ElementType::Word | ElementType::F16 | ElementType::Bf16 => None,
    }
}

impl<S: Vectors> Block<'_, S> {
    /// Copies what the first operation and others fill words with, if they do; returns which these
    /// are.
    pub(super) fn fill_words(&mut self, ops: &[Op]) -> Result<SmallVec<[usize; 8]>, Failure> {
        let Some(Words { to, from, ops }) = Words::of(self.code, ops) else { return Ok(SmallVec::new()) };
        let (word, part) = (self.spare()?, self.spare()?);
        let mut is_empty = true;
        for (place, memory) in from.iter().enumerate() {
            let &Some(memory) = memory else { continue };
            let register = if is_empty { word } else { part };
            self.load_place(register, memory, (to.of, place as u8));
            if !is_empty {
                self.isa.arithmetic(Arithmetic::Or, word, word, Operand::Register(part));
            }
            is_empty = false;
        }
        if is_empty {
            self.isa.constant(word, 0);
        }

        self.isa.store(word, to.shape, to.at, part);
        [word, part].iter().for_each(|&register| self.release(Operand::Register(register)));
        Ok(ops)
    }

    /// The bits of elements that are stored as a type at a place of words; all other bits are
    /// zeros.
    fn load_place(&mut self, register: Vector, memory: Memory, (of, place): (ElementType, u8)) {
        let (bits, before) = (8 * of.bytes() as u8, 8 * of.bytes() as u8 * place);
        let above = 32 - bits;
        self.isa.load_narrow(register, memory);

        // Above negative elements are ones.
        let up = if memory.of == ElementType::SignedByte { above } else { before };
        let shifts = [Unary::ShiftLeft(up), Unary::ShiftRight(up - before)];
        let changes = |shift: &Unary| !matches!(shift, Unary::ShiftLeft(0) | Unary::ShiftRight(0));
        shifts.into_iter().filter(changes).for_each(|shift| self.isa.unary(shift, register, register));
    }
}
