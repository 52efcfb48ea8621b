//! Vectors in ymm or zmm registers.

use super::X86;
use super::control::{address, integer};
use super::encode::{Address, Goal, Integer, Opcode, Place, TIMES_FOUR, evex};
use super::held::UPPER_HALVES;
use crate::asm::instruction_set::{
    Address as At, Arithmetic, Bound, Dots, ElementType, Operand, Shape, Unary, Vector, Vectors,
};
use crate::asm::leaf::Memory;
use autotune_ir::program::Compare;
use autotune_ir::spec::Reduction;
use autotune_ir::target::Isa;

/// Bytes below the stack pointer through which strided lanes go; a leaf calls nothing, so that they
/// are its own.
pub(super) const LANES_AT: Address = Address { base: Integer::Rsp, disp: -64 };

pub(super) const fn opcode(map: u8, prefix: u8, code: u8) -> Opcode {
    Opcode { map, prefix, code }
}

/// Whole vectors.
pub(super) const LOAD: Opcode = opcode(1, 0, 0x10);
pub(super) const STORE: Opcode = opcode(1, 0, 0x11);
pub(super) const STREAM: Opcode = opcode(1, 0, 0x2b);
pub(super) const COPY: Opcode = opcode(1, 0, 0x28);
/// One element to every lane, from memory or a vector; from an integer register; to the first lane
/// from there.
pub(super) const BROADCAST: Opcode = opcode(2, 1, 0x18);
const BROADCAST_INTEGER: Opcode = opcode(2, 1, 0x7c);
pub(super) const MOVE_INTEGER: Opcode = opcode(1, 1, 0x6e);
pub(super) const MOVE_TO_INTEGER: Opcode = opcode(1, 1, 0x7e);
/// Elements by their numbers, of those lanes that a mask has; masks of all lanes.
pub(super) const GATHER: Opcode = opcode(2, 1, 0x92);
const EQUAL_BITS: Opcode = opcode(1, 1, 0x76);
pub(super) const ALL_OF_MASK: Opcode = opcode(1, 0, 0x46);
/// An integer register to a mask.
pub(super) const SET_MASK: Opcode = opcode(1, 0, 0x92);
pub(super) const XOR_VEX: Opcode = opcode(1, 0, 0x57);
const XOR_EVEX: Opcode = opcode(1, 1, 0xef);

pub(super) const MAX: Opcode = opcode(1, 0, 0x5f);
pub(super) const MIN: Opcode = opcode(1, 0, 0x5d);
const SQRT: Opcode = opcode(1, 0, 0x51);
const WHOLE: Opcode = opcode(1, 2, 0x5b);
const OF_INTEGER: Opcode = opcode(1, 0, 0x5b);
const NEAREST: Opcode = opcode(1, 1, 0x5b);
const ROUND: Opcode = opcode(3, 1, 0x08);
/// Bits moved; the first operand tells in which direction.
pub(super) const SHIFT: Opcode = opcode(1, 1, 0x72);
/// A comparison, and the choice by it: by a vector, whose number is an immediate, or by a mask.
pub(super) const COMPARE: Opcode = opcode(1, 0, 0xc2);
const BLEND_VEX: Opcode = opcode(3, 1, 0x4a);
const BLEND_EVEX: Opcode = opcode(2, 1, 0x65);

/// Two elements of each half of one factor, then two of the other.
const SHUFFLE: Opcode = opcode(1, 0, 0xc6);
/// Pairs of elements in any order; the prefix is that of 64-bit operands, too.
pub(super) const PERMUTE_PAIRS: Opcode = opcode(3, 0x80 | 1, 0x01);
/// Quarters of a vector of 512 bits: two of one factor, then two of the other.
pub(super) const SHUFFLE_QUARTERS: Opcode = opcode(3, 1, 0x23);
/// Elements by their numbers, which are the second operand, of a vector and of two, the first of
/// which is the destination.
pub(super) const PERMUTE: Opcode = opcode(2, 1, 0x16);
const PERMUTE_TWO: Opcode = opcode(2, 1, 0x7f);
/// The upper pairs of elements of two vectors in turns, in each quarter.
pub(super) const UNPACK_HIGH_PAIRS: Opcode = opcode(1, 1, 0x15);
/// The second element of each pair twice; the upper quarter, of 128 bits, of two, and the upper
/// half of 512 bits, whose destination is what may be in memory; the lanes of the second factor
/// that an immediate has the bits of.
const SECOND_ELEMENTS: Opcode = opcode(1, 2, 0x16);
const UNPACK_HIGH_PAIRS_EVEX: Opcode = opcode(1, 0x80 | 1, 0x15);
pub(super) const EXTRACT_QUARTER: Opcode = opcode(3, 1, 0x19);
const EXTRACT_HALF: Opcode = opcode(3, 0x80 | 1, 0x1b);
pub(super) const BLEND_LANES: Opcode = opcode(3, 1, 0x0c);

/// Bytes of a vector and of an element, in units of which AVX-512 counts short displacements, as
/// powers of two.
pub(super) const VECTOR: u32 = 6;
pub(super) const ELEMENT: u32 = 2;

/// Distance in bytes of every other element.
pub(super) const EVERY_OTHER: i32 = 8;

impl Vectors for X86 {
    fn lanes(&self) -> u8 {
        (self.isa.vector_bytes() / 4) as u8
    }

    fn registers(&self) -> usize {
        self.isa.vector_registers() - self.held.count()
    }

    fn scales(&self) -> bool {
        self.isa == Isa::Avx512
    }

    fn dots(&self) -> Dots {
        self.dots.clone()
    }

    fn load(&mut self, v: Vector, shape: Shape, at: At) {
        let at = address(at);
        match shape {
            Shape::Splat => self.whole(BROADCAST, [v, 0], at.into(), ELEMENT),
            Shape::Lanes(n) => self.transfer(false, v, n, at, v),
            Shape::Strided { lanes: lanes @ (4 | 8), stride: EVERY_OTHER } if v < 16 => {
                self.load_every_other(v, lanes, at);
            }
            Shape::Strided { lanes, stride } => {
                if let Some(numbers) = self.held.even_numbers.filter(|_| self.loads_together(shape)) {
                    return self.load_by_numbers(v, numbers, lanes, at);
                }
                self.move_elements(ElementType::Word, (LANES_AT, 4), (at, stride), lanes);
                self.transfer(false, v, lanes, LANES_AT, v);
            }
        }
    }

    fn store(&mut self, v: Vector, shape: Shape, at: At, spare: Vector) {
        let at = address(at);
        match shape {
            Shape::Splat => self.transfer(true, v, 1, at, spare),
            Shape::Lanes(n) => self.transfer(true, v, n, at, spare),
            Shape::Strided { lanes, stride } => {
                self.transfer(true, v, self.lanes(), LANES_AT, spare);
                self.move_elements(ElementType::Word, (at, stride), (LANES_AT, 4), lanes);
            }
        }
    }

    fn rounds_to_f16(&self) -> bool {
        true
    }

    fn rounds_to_bf16(&self) -> bool {
        self.rounds_to_bf16
    }

    fn load_narrow(&mut self, v: Vector, memory: Memory) {
        self.load_elements(v, memory);
    }

    fn store_narrow(&mut self, v: Vector, memory: Memory, spare: Vector, is_streamed: bool) {
        self.store_elements(v, memory, spare, is_streamed);
    }

    fn stream(&mut self, v: Vector, at: At) {
        self.whole(STREAM, [v, 0], address(at).into(), VECTOR);
    }

    fn store_needs_register(&self, shape: Shape) -> bool {
        matches!(shape, Shape::Lanes(n) if self.isa != Isa::Avx512 && n != self.lanes() && !n.is_power_of_two())
    }

    fn loads_together(&self, shape: Shape) -> bool {
        match shape {
            Shape::Strided { lanes, stride: EVERY_OTHER } => {
                matches!(lanes, 4 | 8) || self.held.even_numbers.is_some() && lanes > 4
            }
            _ => false,
        }
    }

    fn gather(&mut self, to: Vector, (at, of): (At, ElementType), index: Vector, (spare, scratch): (Vector, u8)) {
        if of != ElementType::Word {
            return self.gather_elements(to, (at, of), index, (spare, scratch));
        }
        if self.isa == Isa::Avx512 {
            self.code.vex(ALL_OF_MASK, true, [7, 7], Place::Register(7));
            self.code.evex_indexed(GATHER, evex::BITS_512 | 7, to, (address(at), TIMES_FOUR), index);
        } else {
            self.code.vex(EQUAL_BITS, true, [spare, spare], Place::Register(spare));
            self.code.vex_indexed(GATHER, [to, spare], address(at), index);
        }
    }

    fn point_at(&mut self, to: u8, pointer: u8, index: Vector, bytes: i64) {
        let register = Place::Register(integer(to) as u8);
        if self.isa == Isa::Avx512 {
            self.code.evex(MOVE_TO_INTEGER, 0, [index, 0], register, ELEMENT);
        } else {
            self.code.vex(MOVE_TO_INTEGER, false, [index, 0], register);
        }
        self.point_after(to, pointer, bytes);
    }

    fn copy_elements(&mut self, (to, to_stride): (At, i32), (from, from_stride): (At, i32), lanes: u8) {
        self.move_elements(ElementType::Word, (address(to), to_stride), (address(from), from_stride), lanes);
    }

    fn transpose_registers(&self, block: [u8; 2], of: ElementType, first: Vector) -> Option<usize> {
        self.transposed_registers(block, of, first)
    }

    fn transpose(&mut self, (rows, columns): (&[At], &[At]), of: ElementType, first: Vector, is_streamed: bool) {
        let store = if is_streamed { STREAM } else { STORE };
        match (rows, of) {
            (&[a, b, c, d], ElementType::Word) => self.transpose_columns([a, b, c, d], columns, first, store),
            (_, ElementType::Word) => self.transpose_square(rows, columns, first, store),
            _ => self.transpose_halves(rows, columns, first, store),
        }
    }

    fn weave_registers(&self, rows: u8, first: Vector) -> Option<usize> {
        self.woven_registers(rows, first)
    }

    fn interleave(&mut self, to: At, rows: &[At], first: Vector) {
        self.interleave_rows(to, rows, first);
    }

    fn deinterleave(&mut self, rows: &[At], from: At, first: Vector) {
        self.deinterleave_rows(rows, from, first);
    }

    fn fold_registers(&self) -> usize {
        self.folding_registers()
    }

    fn fold(&mut self, by: Reduction, to: Vector, rows: &[Vector], first: Vector) {
        self.fold_rows(by, to, rows, first);
    }

    fn prefetch(&mut self, at: At, to_write: bool) {
        // `prefetchw`, or `prefetcht1`: what is read comes to the second-level cache, since a tile
        // ahead may be as large as the first-level one.
        let (opcode, extension) = if to_write { (0x0f0d, 1) } else { (0x0f18, 2) };
        self.code.legacy(false, opcode, extension, address(at));
    }

    fn constant(&mut self, v: Vector, bits: u32) {
        let is_avx512 = self.isa == Isa::Avx512;
        if bits == 0 {
            let xor = if is_avx512 { XOR_EVEX } else { XOR_VEX };
            self.whole(xor, [v, v], Place::Register(v), VECTOR);
            return;
        }
        if self.has_steps {
            self.whole(BROADCAST, [v, 0], Place::Constant, ELEMENT);
            self.code.goal(Goal::Constant(bits));
            return;
        }
        self.set_eax(bits);
        if is_avx512 {
            self.whole(BROADCAST_INTEGER, [v, 0], Integer::Rax.into(), ELEMENT);
        } else {
            self.code.vex(MOVE_INTEGER, false, [v, 0], Integer::Rax.into());
            self.code.vex(BROADCAST, true, [v, 0], Place::Register(v));
        }
    }

    fn copy(&mut self, to: Vector, from: Vector) {
        self.whole(COPY, [to, 0], Place::Register(from), VECTOR);
    }

    fn shift_lanes(&mut self, to: Vector, from: Vector, by: u8) {
        let (source, place) = (Place::Register(from), Place::Register(to));
        match (by, self.isa == Isa::Avx512) {
            (1, true) => self.code.evex(SECOND_ELEMENTS, 0, [to, 0], source, VECTOR),
            (1, false) => self.code.vex(SECOND_ELEMENTS, false, [to, 0], source),
            (2, true) => self.code.evex(UNPACK_HIGH_PAIRS_EVEX, 0, [to, from], source, VECTOR),
            (2, false) => self.code.vex(UNPACK_HIGH_PAIRS, false, [to, from], source),
            (4, true) => self.code.evex(EXTRACT_QUARTER, evex::BITS_512, [from, 0], place, VECTOR),
            (4, false) => self.code.vex(EXTRACT_QUARTER, true, [from, 0], place),
            _ => self.code.evex(EXTRACT_HALF, evex::BITS_512, [from, 0], place, VECTOR),
        }
        if by >= 4 {
            self.code.immediate(1, 1);
        }
    }

    fn merge(&mut self, to: Vector, from: Vector, lanes: u8) {
        if self.isa == Isa::Avx512 {
            let mask = self.mask(lanes);
            self.code.evex(COPY, evex::BITS_512 | mask, [to, 0], Place::Register(from), VECTOR);
        } else {
            self.code.vex(BLEND_LANES, true, [to, to], Place::Register(from));
            self.code.immediate((1 << lanes) - 1, 1);
        }
    }

    fn arithmetic(&mut self, op: Arithmetic, to: Vector, a: Vector, b: Operand) {
        let op = match op {
            Arithmetic::Add => opcode(1, 0, 0x58),
            Arithmetic::Mul => opcode(1, 0, 0x59),
            Arithmetic::Sub => opcode(1, 0, 0x5c),
            Arithmetic::Div => opcode(1, 0, 0x5e),
            Arithmetic::Max => MAX,
            Arithmetic::Min => MIN,
            Arithmetic::And => opcode(1, 1, 0xdb),
            Arithmetic::Or => opcode(1, 1, 0xeb),
            Arithmetic::AddBits => opcode(1, 1, 0xfe),
            Arithmetic::SubBits => opcode(1, 1, 0xfa),
            Arithmetic::MulBits => opcode(2, 1, 0x40),
            Arithmetic::MaxBits => opcode(2, 1, 0x3d),
            Arithmetic::MinBits => opcode(2, 1, 0x39),
            Arithmetic::DotU8I8 => opcode(2, 1, 0x50),
            Arithmetic::DotI16 => opcode(2, 1, 0x52),
            Arithmetic::MulPairs => opcode(1, 1, 0xf5),
            Arithmetic::MulAdd => opcode(2, 1, 0xb8),
            Arithmetic::DotBf16 => opcode(2, 2, 0x52),
            Arithmetic::MulThenAdd => opcode(2, 1, 0xa8),
            Arithmetic::Scale => opcode(2, 1, 0x2c),
        };
        match b {
            Operand::Register(b) => self.whole(op, [to, a], Place::Register(b), VECTOR),
            Operand::Vector(at) => self.whole(op, [to, a], address(at).into(), VECTOR),
            Operand::Splat(at) => {
                self.code.evex(op, evex::BITS_512 | evex::BROADCAST, [to, a], address(at).into(), ELEMENT);
            }
        }
    }

    fn bound(&mut self, bound: Bound, b: Vector, a: Operand, spare: Vector) {
        self.bound_value(bound, b, a, spare);
    }

    fn bound_instructions(&self) -> usize {
        if self.isa == Isa::Avx512 { 2 } else { 3 }
    }

    fn unary(&mut self, op: Unary, to: Vector, a: Vector) {
        let a = Place::Register(a);
        match op {
            Unary::Sqrt => self.whole(SQRT, [to, 0], a, VECTOR),
            Unary::Whole => self.whole(WHOLE, [to, 0], a, VECTOR),
            Unary::OfInteger => self.whole(OF_INTEGER, [to, 0], a, VECTOR),
            Unary::Nearest => self.whole(NEAREST, [to, 0], a, VECTOR),
            Unary::Floor => {
                // Down, without an exception for what is lost.
                self.whole(ROUND, [to, 0], a, VECTOR);
                self.code.immediate(0b1001, 1);
            }
            // The first operand is a part of the opcode.
            Unary::ShiftLeft(places) => {
                self.whole(SHIFT, [6, to], a, VECTOR);
                self.code.immediate(places.into(), 1);
            }
            Unary::ShiftRight(places) => {
                self.whole(SHIFT, [2, to], a, VECTOR);
                self.code.immediate(places.into(), 1);
            }
        }
    }

    fn select(&mut self, compare: Compare, to: Vector, [a, b]: [Vector; 2], then: Vector, otherwise: Vector) {
        // Ordered: nothing holds of what is not a number.
        let predicate = match compare {
            Compare::Less => 0x11,
            Compare::LessEqual => 0x12,
            Compare::Equal => 0,
        };
        if self.isa == Isa::Avx512 {
            self.code.evex(COMPARE, evex::BITS_512, [7, a], Place::Register(b), VECTOR);
            self.code.immediate(predicate, 1);
            self.code.evex(BLEND_EVEX, evex::BITS_512 | 7, [to, otherwise], Place::Register(then), VECTOR);
        } else {
            self.code.vex(COMPARE, true, [to, a], Place::Register(b));
            self.code.immediate(predicate, 1);
            self.code.vex(BLEND_VEX, true, [to, otherwise], Place::Register(then));
            self.code.immediate(i64::from(to) << 4, 1);
        }
    }

    fn spill(&mut self, v: Vector, slot: usize) {
        self.whole(STORE, [v, 0], self.vector_slot(slot), VECTOR);
    }

    fn fill(&mut self, v: Vector, slot: usize) {
        self.whole(LOAD, [v, 0], self.vector_slot(slot), VECTOR);
    }

    /// Elements for every lane are operands of AVX-512 only.
    fn memory_operand(&self, shape: Shape, at: At) -> Option<Operand> {
        match shape {
            Shape::Lanes(n) if n == self.lanes() => Some(Operand::Vector(at)),
            Shape::Splat if self.isa == Isa::Avx512 => Some(Operand::Splat(at)),
            _ => None,
        }
    }
}

impl X86 {
    /// A vector slot of the leaf.
    fn vector_slot(&self, slot: usize) -> Place {
        Address { base: Integer::Rsp, disp: (slot * self.isa.vector_bytes()) as i32 }.into()
    }

    /// An instruction of whole registers that both instruction sets have.
    pub(super) fn whole(&mut self, op: Opcode, registers: [Vector; 2], place: Place, scale: u32) {
        if self.isa == Isa::Avx512 {
            self.code.evex(op, evex::BITS_512, registers, place, scale);
        } else {
            self.code.vex(op, true, registers, place);
        }
    }

    /// Makes the masks of a leaf, which must come before anything else in it.
    pub(super) fn set_masks(&mut self, lanes: &[u8]) {
        self.masks.clear();
        let most = if self.held.halves.is_some() { UPPER_HALVES - 1 } else { 6 };
        self.masks.extend(lanes.iter().take(if self.isa == Isa::Avx512 { most.into() } else { 0 }));
        for i in 0..self.masks.len() {
            self.set_mask(1 + i as u8, self.masks[i]);
        }
    }

    fn set_mask(&mut self, k: u8, lanes: u8) {
        self.set_eax((1 << lanes) - 1);
        self.code.vex(SET_MASK, false, [k, 0], Integer::Rax.into());
    }

    /// The number of a mask register.
    pub(super) fn mask(&mut self, lanes: u8) -> u8 {
        match self.masks.iter().position(|&n| n == lanes) {
            Some(i) => 1 + i as u8,
            None => {
                self.set_mask(7, lanes);
                7
            }
        }
    }

    /// Loads `n` consecutive lanes, or stores them; `mask` may be changed to what tells which, and
    /// is `v` for loads.
    fn transfer(&mut self, is_store: bool, v: Vector, n: u8, at: Address, mask: Vector) {
        let is_avx512 = self.isa == Isa::Avx512;
        let (whole, store) = (if is_store { STORE } else { LOAD }, u8::from(is_store));
        match n {
            _ if n == self.lanes() => self.whole(whole, [v, 0], at.into(), VECTOR),
            1 if is_avx512 => self.code.evex(opcode(1, 2, whole.code), 0, [v, 0], at.into(), ELEMENT),
            _ if is_avx512 => {
                // Lanes that are not loaded are zero.
                let zeroing = if is_store { 0 } else { evex::ZEROING };
                let flags = self.mask(n) | zeroing | evex::BITS_512;
                self.code.evex(whole, flags, [v, 0], at.into(), VECTOR);
            }
            1 => self.code.vex(opcode(1, 2, whole.code), false, [v, 0], at.into()),
            2 => self.code.vex(opcode(1, 3, whole.code), false, [v, 0], at.into()),
            4 => self.code.vex(whole, false, [v, 0], at.into()),
            _ => {
                // The lanes that the mask has the sign of.
                self.code.vex(LOAD, true, [mask, 0], Place::Constant);
                self.code.goal(Goal::Mask(n));
                self.code.vex(opcode(2, 1, 0x2c + 2 * store), true, [v, mask], at.into());
            }
        }
    }

    /// `v` is every other element from `at` on, `lanes` of them: 4 or 8; nothing behind the last is
    /// read.
    fn load_every_other(&mut self, v: Vector, lanes: u8, at: Address) {
        // Elements 0 and 2 of the first factor, then 1 and 3 of the second, of each half.
        const EVEN_ODD: i64 = 0b11_01_10_00;
        let behind = Address { disp: at.disp.wrapping_add(4 * (i32::from(lanes) - 1)), ..at };
        let is_256 = lanes == 8;
        self.code.vex(LOAD, is_256, [v, 0], at.into());
        self.code.vex(SHUFFLE, is_256, [v, v], behind.into());
        self.code.immediate(EVEN_ODD, 1);
        if is_256 {
            self.code.vex(PERMUTE_PAIRS, true, [v, 0], Place::Register(v));
            self.code.immediate(EVEN_ODD, 1);
        }
    }

    /// `v` is every other element from `at` on, `lanes` of them, more than 4; nothing behind the
    /// last is read.
    ///
    /// ```text
    /// 16 lanes   v = [a15 a16 .. a30]   numbers 16 18 .. 30 1 3 .. 15 of v and [a0 a1 .. a15]
    ///  7 lanes   v = [a0 a1 .. a12]     numbers 16 18 .. modulo 16 of v
    /// ```
    fn load_by_numbers(&mut self, v: Vector, numbers: Vector, lanes: u8, at: Address) {
        let (read, first) = (2 * lanes - 1, self.lanes() - 1);
        let (op, place) = match read <= first {
            true => {
                self.transfer(false, v, read, at, v);
                (PERMUTE, Place::Register(v))
            }
            false => {
                let second = Address { disp: at.disp.wrapping_add(4 * i32::from(first)), ..at };
                self.transfer(false, v, read - first, second, v);
                (PERMUTE_TWO, at.into())
            }
        };
        let mask = if lanes == self.lanes() { 0 } else { self.mask(lanes) | evex::ZEROING };
        self.code.evex(op, evex::BITS_512 | mask, [v, numbers], place, VECTOR);
    }
}
