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
use crate::asm::instruction_set::{Arithmetic, ElementType, Operand, Shape, Unary, Vectors};
use crate::asm::leaf::{self, Memory, Op};
use crate::asm::transpose::copy_of_elements;

/// Bytes of a word.
const WORD: i32 = 4;

/// Copies that fill words.
struct Words {
    to: Memory,
    /// Elements of each place in them.
    from: SmallVec<[Memory; 4]>,
    /// Numbers of the copies.
    ops: SmallVec<[usize; 8]>,
}

impl Words {
    /// Returns the words that the first operation and some after it fill, if they do.
    fn of(code: leaf::Block, ops: &[Op]) -> Option<Self> {
        let (to, from) = copy(code, ops.first()?)?;
        let Shape::Strided { lanes, stride: WORD } = to.shape else { return None };
        let buffers = [code.buffer(to), code.buffer(from)];
        let bytes = to.of.bytes() as i32;
        if buffers[0] == buffers[1] || to.at.disp % WORD != 0 {
            return None;
        }

        let memory = Memory { shape: Shape::Lanes(lanes), of: ElementType::Word, ..to };
        let mut words = Self { to: memory, from: SmallVec::new(), ops: SmallVec::new() };
        for (number, op) in ops.iter().enumerate() {
            // Copies of other places of these buffers may come between them.
            let (other, from) = copy(code, op)?;
            if [code.buffer(other), code.buffer(from)] != buffers {
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

/// Returns where an operation copies short elements to and from, below zeros, if that is all it does.
fn copy(code: leaf::Block, op: &Op) -> Option<(Memory, Memory)> {
    let (to, from) = copy_of_elements(code, op)?;
    Some((to, Memory { of: unsigned(from.of)?, ..from }))
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
    /// Copies what the first operation and others fill words with, if they do; returns which these are.
    pub(super) fn fill_words(&mut self, ops: &[Op]) -> Result<SmallVec<[usize; 8]>, Failure> {
        let Some(Words { to, from, ops }) = Words::of(self.code, ops) else { return Ok(SmallVec::new()) };
        let (word, part) = (self.spare()?, self.spare()?);
        for (place, &memory) in from.iter().enumerate() {
            let register = if place == 0 { word } else { part };
            self.isa.load_narrow(register, memory);
            if place > 0 {
                let bits = 8 * memory.of.bytes() as u8 * place as u8;
                self.isa.unary(Unary::ShiftLeft(bits), part, part);
                self.isa.arithmetic(Arithmetic::Or, word, word, Operand::Register(part));
            }
        }

        self.isa.store(word, to.shape, to.at, part);
        [word, part].iter().for_each(|&register| self.release(Operand::Register(register)));
        Ok(ops)
    }
}
