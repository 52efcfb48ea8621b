//! Loads and stores of elements of 16 bits.

use super::X86;
use super::control::address;
use super::encode::{Address, Integer, Opcode, Place, evex};
use super::vectors::{BROADCAST, ELEMENT, LANES_AT, MOVE_INTEGER, PERMUTE_PAIRS, STORE, STREAM, XOR_VEX, opcode};
use crate::asm::instruction_set::{ElementType, Shape, Vector, Vectors};
use crate::asm::leaf::Memory;
use autotune_ir::target::Isa;

/// Lanes rounded to f16; the immediate says how.
const ROUND_TO_F16: Opcode = opcode(3, 1, 0x1d);
const TO_NEAREST: i64 = 0;
/// The lower halves of lanes: into half a vector, and of two vectors in turns by quarters, where no upper half has a bit.
const LOWER_HALVES: Opcode = opcode(2, 2, 0x33);
const PACK: Opcode = opcode(2, 1, 0x2b);
/// Four elements of 16 bits, two by their number, and one.
const STORE_FOUR: Opcode = opcode(1, 1, 0xd6);
const EXTRACT_TWO: Opcode = opcode(3, 1, 0x16);
const EXTRACT_ONE: Opcode = opcode(3, 1, 0x15);

/// Lanes of f16, and of 16 bits below zeros.
const OF_F16: Opcode = opcode(2, 1, 0x13);
const OF_HALVES: Opcode = opcode(2, 1, 0x33);
/// Four elements of 16 bits, two and one by their number beside others.
const LOAD_FOUR: Opcode = opcode(1, 2, 0x7e);
const INSERT_TWO: Opcode = opcode(3, 1, 0x22);
const INSERT_ONE: Opcode = opcode(1, 1, 0xc4);
/// An element of 16 bits below zeros, to an integer register.
pub(super) const READ: u16 = 0x0fb7;

/// Bytes of half a vector of 512 bits, as a power of two.
const HALF_VECTOR: u32 = 5;

/// The place some elements of 16 bits behind another.
fn halves_behind(at: Address, elements: u8) -> Place {
    Address { disp: at.disp.wrapping_add(2 * i32::from(elements)), ..at }.into()
}

impl X86 {
    /// `v = [at]`; lanes behind the last are zeros.
    pub(super) fn load_halves(&mut self, v: Vector, memory: Memory) {
        let Memory { at, shape, of } = memory;
        let at = address(at);
        match shape {
            Shape::Splat => self.load_one(v, of, at),
            Shape::Lanes(n) => self.load_part(v, of, n, at),
            Shape::Strided { lanes, stride } => {
                self.move_elements(of, (LANES_AT, 2), (at, stride), lanes);
                self.load_part(v, of, lanes, LANES_AT);
            }
        }
    }

    /// An element for every lane.
    fn load_one(&mut self, v: Vector, of: ElementType, at: Address) {
        let (is_wide, own) = (self.isa == Isa::Avx512, Place::Register(v));
        self.code.legacy(false, READ, Integer::Rax as u8, at);
        match is_wide {
            true => self.code.evex(MOVE_INTEGER, 0, [v, 0], Integer::Rax.into(), ELEMENT),
            false => self.code.vex(MOVE_INTEGER, false, [v, 0], Integer::Rax.into()),
        }
        if of == ElementType::F16 {
            match is_wide {
                true => self.code.evex(OF_F16, 0, [v, 0], own, HALF_VECTOR),
                false => self.code.vex(OF_F16, false, [v, 0], own),
            }
        }
        self.whole(BROADCAST, [v, 0], own, ELEMENT);
    }

    /// `n` elements, one behind the other.
    fn load_part(&mut self, v: Vector, of: ElementType, n: u8, at: Address) {
        let op = if of == ElementType::F16 { OF_F16 } else { OF_HALVES };
        if self.isa == Isa::Avx512 {
            let mask = if n == self.lanes() { 0 } else { self.mask(n) | evex::ZEROING };
            return self.code.evex(op, evex::BITS_512 | mask, [v, 0], at.into(), HALF_VECTOR);
        }
        if matches!(n, 4 | 8) {
            return self.code.vex(op, n == 8, [v, 0], at.into());
        }

        // Four, two and one of them, as the number has bits.
        match n & 4 {
            0 => self.code.vex(XOR_VEX, false, [v, v], Place::Register(v)),
            _ => self.code.vex(LOAD_FOUR, false, [v, 0], at.into()),
        }
        for (op, elements) in [(INSERT_TWO, 2), (INSERT_ONE, 1)] {
            if n & elements != 0 {
                let first = n & !(2 * elements - 1);
                self.code.vex(op, false, [v, v], halves_behind(at, first));
                self.code.immediate(i64::from(first / elements), 1);
            }
        }
        self.code.vex(op, true, [v, 0], Place::Register(v));
    }

    /// `[at] = v`, by half a vector in `spare` where that takes several instructions.
    pub(super) fn store_halves(&mut self, v: Vector, memory: Memory, spare: Vector, is_streamed: bool) {
        let Memory { at, shape, of } = memory;
        let (at, whole) = (address(at), self.lanes());
        match shape {
            Shape::Lanes(n) if n == whole && is_streamed => {
                self.narrow(v, spare, of);
                self.store_whole(STREAM, spare, at);
            }
            Shape::Lanes(n) => self.store_part((v, spare), of, n, at),
            Shape::Splat => self.store_part((v, spare), of, 1, at),
            Shape::Strided { lanes, stride } => {
                self.store_part((v, spare), of, whole, LANES_AT);
                self.move_elements(of, (at, stride), (LANES_AT, 2), lanes);
            }
        }
    }

    /// The first `n` lanes, one behind the other.
    fn store_part(&mut self, (v, spare): (Vector, Vector), of: ElementType, n: u8, at: Address) {
        if self.isa == Isa::Avx512 {
            let mask = if n == self.lanes() { 0 } else { self.mask(n) };
            return self.narrow_wide(v, of, at.into(), mask);
        }

        // Two instructions take half the time of one that goes to memory (AMD EPYC 25/17).
        self.narrow(v, spare, of);
        if n == self.lanes() {
            return self.store_whole(STORE, spare, at);
        }
        // Four, two and one of them, as the number has bits.
        if n & 4 != 0 {
            self.code.vex(STORE_FOUR, false, [spare, 0], at.into());
        }
        for (op, elements) in [(EXTRACT_TWO, 2), (EXTRACT_ONE, 1)] {
            if n & elements != 0 {
                let first = n & !(2 * elements - 1);
                self.code.vex(op, false, [spare, 0], halves_behind(at, first));
                self.code.immediate(i64::from(first / elements), 1);
            }
        }
    }

    /// The lower half of `to` is the elements that the lanes of `v` become.
    fn narrow(&mut self, v: Vector, to: Vector, of: ElementType) {
        match (self.isa == Isa::Avx512, of) {
            (true, _) => self.narrow_wide(v, of, Place::Register(to), 0),
            (false, ElementType::F16) => {
                self.code.vex(ROUND_TO_F16, true, [v, 0], Place::Register(to));
                self.code.immediate(TO_NEAREST, 1);
            }
            (false, _) => {
                // Each quarter twice, of which the first and the third are wanted.
                const EVEN: i64 = 0b10_00;
                self.code.vex(PACK, true, [to, v], Place::Register(v));
                self.code.vex(PERMUTE_PAIRS, true, [to, 0], Place::Register(to));
                self.code.immediate(EVEN, 1);
            }
        }
    }

    /// The same of 512 bits, to a register or, those lanes that a mask has, to memory.
    fn narrow_wide(&mut self, v: Vector, of: ElementType, to: Place, mask: u8) {
        match of {
            ElementType::F16 => {
                self.code.evex(ROUND_TO_F16, evex::BITS_512 | mask, [v, 0], to, HALF_VECTOR);
                self.code.immediate(TO_NEAREST, 1);
            }
            ElementType::Half | ElementType::F32 => {
                self.code.evex(LOWER_HALVES, evex::BITS_512 | mask, [v, 0], to, HALF_VECTOR);
            }
        }
    }

    /// Half a vector.
    fn store_whole(&mut self, op: Opcode, v: Vector, at: Address) {
        match self.isa {
            Isa::Avx512 => self.code.evex(op, evex::BITS_256, [v, 0], at.into(), HALF_VECTOR),
            _ => self.code.vex(op, false, [v, 0], at.into()),
        }
    }
}
