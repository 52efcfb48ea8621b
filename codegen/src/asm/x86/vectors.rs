//! Vector instructions on ymm or zmm registers.

use super::X86;
use super::control::{address, integer};
use super::encode::{Goal, Integer, MemoryOperand, Opcode, RegisterOrMemory, evex};
use super::index_registers::UPPER_HALVES;
use crate::asm::instruction_set::{
    Address as At, Arithmetic, ArithmeticOperand, Dots, ElementType, MinMax, PACKED, PrefetchHint, Shape, Unary,
    Vector, Vectors,
};
use crate::asm::leaf::MemoryAccess;
use autotune_ir::program::Compare;
use autotune_ir::spec::Reduction;
use autotune_ir::target::Isa;

/// Scratch memory for strided lanes, in the red zone: a leaf calls nothing.
pub(super) const LANES_AT: MemoryOperand = MemoryOperand { base: Integer::Rsp, disp: -64 };

pub(super) const fn opcode(map: u8, prefix: u8, code: u8) -> Opcode {
    Opcode { map, prefix, code }
}

/// `vmovups`, `vmovntps` and `vmovaps`: moves of whole vectors.
pub(super) const LOAD: Opcode = opcode(1, 0, 0x10);
pub(super) const STORE: Opcode = opcode(1, 0, 0x11);
pub(super) const STREAM: Opcode = opcode(1, 0, 0x2b);
pub(super) const COPY: Opcode = opcode(1, 0, 0x28);
/// `vbroadcastss`: broadcasts an element from memory or from a vector's first lane.
pub(super) const BROADCAST: Opcode = opcode(2, 1, 0x18);
/// `vpbroadcastd`: broadcasts an integer register.
const BROADCAST_INTEGER: Opcode = opcode(2, 1, 0x7c);
/// `vmovd`: moves an integer register to the first lane, or back.
pub(super) const MOVE_INTEGER: Opcode = opcode(1, 1, 0x6e);
pub(super) const MOVE_TO_INTEGER: Opcode = opcode(1, 1, 0x7e);
/// `vgatherdps`: loads elements at the indices in a vector, for lanes that a mask selects.
pub(super) const GATHER: Opcode = opcode(2, 1, 0x92);
/// `kxnorw`: with the same mask register twice, it sets the bits of all lanes.
pub(super) const ALL_OF_MASK: Opcode = opcode(1, 0, 0x46);
/// `kmovw`: moves an integer register to a mask register.
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
/// `vpslld`, `vpsrld`: shifts bits; the first operand selects the direction.
pub(super) const SHIFT: Opcode = opcode(1, 1, 0x72);
/// `vcmpps`: compares into a vector, or into a mask register.
pub(super) const COMPARE: Opcode = opcode(1, 0, 0xc2);
/// `vblendvps`: selects lanes by a vector, whose number is in an immediate.
const BLEND_VEX: Opcode = opcode(3, 1, 0x4a);
/// `vblendmps`: selects lanes by a mask register.
const BLEND_EVEX: Opcode = opcode(2, 1, 0x65);

/// `vpermpd`: pairs of elements in any order. The prefix includes the W bit.
pub(super) const PERMUTE_PAIRS: Opcode = opcode(3, 0x80 | 1, 0x01);
/// `vshuff32x4`: two 128-bit quarters of one operand, then two of the other.
pub(super) const SHUFFLE_QUARTERS: Opcode = opcode(3, 1, 0x23);
/// `vpermps`: permutes a vector's elements by an index vector, the second operand.
pub(super) const PERMUTE: Opcode = opcode(2, 1, 0x16);
/// `vpermt2ps`: permutes two vectors by an index vector; the first vector is the destination.
const PERMUTE_TWO: Opcode = opcode(2, 1, 0x7f);
/// `vunpckhpd`: interleaves the upper pairs of elements in each 128-bit part.
pub(super) const UNPACK_HIGH_PAIRS: Opcode = opcode(1, 1, 0x15);
/// `vmovshdup`: the second element of each pair, twice.
const SECOND_ELEMENTS: Opcode = opcode(1, 2, 0x16);
const UNPACK_HIGH_PAIRS_EVEX: Opcode = opcode(1, 0x80 | 1, 0x15);
/// `vextractf128`, `vextractf32x4`: extracts 128 bits to a register or memory.
pub(super) const EXTRACT_QUARTER: Opcode = opcode(3, 1, 0x19);
/// `vextractf64x4`: extracts the upper 256 bits to a register or memory.
const EXTRACT_HALF: Opcode = opcode(3, 0x80 | 1, 0x1b);
/// `vblendps`: takes lanes from the second operand where an immediate has bits.
pub(super) const BLEND_LANES: Opcode = opcode(3, 1, 0x0c);

/// Log2 of a vector's bytes: the unit in which AVX-512 counts one-byte displacements.
pub(super) const VECTOR: u32 = 6;
/// Log2 of an element's bytes: the unit for operands of one element.
pub(super) const ELEMENT: u32 = 2;

/// Distance in bytes between every other element.
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
            // VEX-encoded instructions have only 16 registers.
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

    fn load_narrow(&mut self, v: Vector, memory: MemoryAccess) {
        self.load_elements(v, memory);
    }

    fn store_narrow(&mut self, v: Vector, memory: MemoryAccess, spare: Vector, is_streamed: bool) {
        self.store_elements(v, memory, spare, is_streamed);
    }

    fn copy_narrow(&mut self, to: At, from: At, of: ElementType, spare: Vector) {
        self.copy_whole(to, from, of, spare);
    }

    fn packs_bytes(&self) -> bool {
        true
    }

    fn has_tables(&self) -> bool {
        self.has_tables
    }

    fn store_packed(
        &mut self,
        values: [Vector; PACKED],
        to: ([At; PACKED], ElementType),
        table: Option<At>,
        spare: Vector,
    ) {
        self.pack_bytes(values, to, table, spare);
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
        match of {
            ElementType::Word => self.gather_words(to, at, index, spare),
            _ => self.gather_elements(to, (at, of), index, (spare, scratch)),
        }
    }

    fn point_at(&mut self, to: u8, pointer: u8, index: Vector, bytes: i64) {
        let register = RegisterOrMemory::Register(integer(to) as u8);
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
            (_, ElementType::Byte | ElementType::SignedByte) => self.transpose_bytes(rows, columns, first, store),
            _ => self.transpose_halves(rows, columns, first, store),
        }
    }

    fn weave_registers(&self, rows: u8, first: Vector) -> Option<usize> {
        self.interleave_registers(rows, first)
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

    fn prefetch(&mut self, at: At, hint: PrefetchHint) {
        self.prefetch_line(at, hint);
    }

    fn constant(&mut self, v: Vector, bits: u32) {
        let is_avx512 = self.isa == Isa::Avx512;
        if bits == 0 {
            let xor = if is_avx512 { XOR_EVEX } else { XOR_VEX };
            self.whole(xor, [v, v], RegisterOrMemory::Register(v), VECTOR);
            return;
        }
        // Loading a constant takes one instruction instead of two or three.
        if self.has_steps {
            self.whole(BROADCAST, [v, 0], RegisterOrMemory::Constant, ELEMENT);
            self.code.goal(Goal::Constant(bits));
            return;
        }
        self.set_eax(bits);
        if is_avx512 {
            self.whole(BROADCAST_INTEGER, [v, 0], Integer::Rax.into(), ELEMENT);
        } else {
            self.code.vex(MOVE_INTEGER, false, [v, 0], Integer::Rax.into());
            self.code.vex(BROADCAST, true, [v, 0], RegisterOrMemory::Register(v));
        }
    }

    fn copy(&mut self, to: Vector, from: Vector) {
        self.whole(COPY, [to, 0], RegisterOrMemory::Register(from), VECTOR);
    }

    fn shift_lanes(&mut self, to: Vector, from: Vector, by: u8) {
        let (source, place) = (RegisterOrMemory::Register(from), RegisterOrMemory::Register(to));
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
            self.code.evex(COPY, evex::BITS_512 | mask, [to, 0], RegisterOrMemory::Register(from), VECTOR);
        } else {
            self.code.vex(BLEND_LANES, true, [to, to], RegisterOrMemory::Register(from));
            self.code.immediate((1 << lanes) - 1, 1);
        }
    }

    fn arithmetic(&mut self, op: Arithmetic, to: Vector, a: Vector, b: ArithmeticOperand) {
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
            ArithmeticOperand::Register(b) => self.whole(op, [to, a], RegisterOrMemory::Register(b), VECTOR),
            ArithmeticOperand::Vector(at) => self.whole(op, [to, a], address(at).into(), VECTOR),
            ArithmeticOperand::Splat(at) => {
                self.code.evex(op, evex::BITS_512 | evex::BROADCAST, [to, a], address(at).into(), ELEMENT);
            }
        }
    }

    fn bound(&mut self, bound: MinMax, b: Vector, a: ArithmeticOperand, spare: Vector) {
        self.bound_value(bound, b, a, spare);
    }

    fn bound_instructions(&self) -> usize {
        if self.isa == Isa::Avx512 { 2 } else { 3 }
    }

    fn unary(&mut self, op: Unary, to: Vector, a: Vector) {
        let a = RegisterOrMemory::Register(a);
        match op {
            Unary::Sqrt => self.whole(SQRT, [to, 0], a, VECTOR),
            Unary::Whole => self.whole(WHOLE, [to, 0], a, VECTOR),
            Unary::OfInteger => self.whole(OF_INTEGER, [to, 0], a, VECTOR),
            Unary::Nearest => self.whole(NEAREST, [to, 0], a, VECTOR),
            Unary::Floor => {
                // Round down, without a precision exception.
                self.whole(ROUND, [to, 0], a, VECTOR);
                self.code.immediate(0b1001, 1);
            }
            // The first operand is part of the opcode.
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
        // Ordered predicates: false if an operand is NaN.
        let predicate = match compare {
            Compare::Less => 0x11,
            Compare::LessEqual => 0x12,
            Compare::Equal => 0,
        };
        if self.isa == Isa::Avx512 {
            self.code.evex(COMPARE, evex::BITS_512, [7, a], RegisterOrMemory::Register(b), VECTOR);
            self.code.immediate(predicate, 1);
            self.code.evex(BLEND_EVEX, evex::BITS_512 | 7, [to, otherwise], RegisterOrMemory::Register(then), VECTOR);
        } else {
            self.code.vex(COMPARE, true, [to, a], RegisterOrMemory::Register(b));
            self.code.immediate(predicate, 1);
            self.code.vex(BLEND_VEX, true, [to, otherwise], RegisterOrMemory::Register(then));
            self.code.immediate(i64::from(to) << 4, 1);
        }
    }

    fn spill(&mut self, v: Vector, slot: usize) {
        self.whole(STORE, [v, 0], self.vector_slot(slot), VECTOR);
    }

    fn fill(&mut self, v: Vector, slot: usize) {
        self.whole(LOAD, [v, 0], self.vector_slot(slot), VECTOR);
    }

    /// Only AVX-512 has broadcast memory operands.
    fn memory_operand(&self, shape: Shape, at: At) -> Option<ArithmeticOperand> {
        match shape {
            Shape::Lanes(n) if n == self.lanes() => Some(ArithmeticOperand::Vector(at)),
            Shape::Splat if self.isa == Isa::Avx512 => Some(ArithmeticOperand::Splat(at)),
            _ => None,
        }
    }
}

impl X86 {
    /// Returns a vector slot of the leaf on the stack.
    fn vector_slot(&self, slot: usize) -> RegisterOrMemory {
        MemoryOperand { base: Integer::Rsp, disp: (slot * self.isa.vector_bytes()) as i32 }.into()
    }

    /// Writes an instruction on whole registers that both instruction sets have.
    pub(super) fn whole(&mut self, op: Opcode, registers: [Vector; 2], place: RegisterOrMemory, scale: u32) {
        if self.isa == Isa::Avx512 {
            self.code.evex(op, evex::BITS_512, registers, place, scale);
        } else {
            self.code.vex(op, true, registers, place);
        }
    }

    /// Sets the mask registers of a leaf. Must be called before anything else is emitted in the
    /// leaf.
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

    /// Returns the mask register for a number of lanes, setting k7 if there is none.
    pub(super) fn mask(&mut self, lanes: u8) -> u8 {
        match self.masks.iter().position(|&n| n == lanes) {
            Some(i) => 1 + i as u8,
            None => {
                self.set_mask(7, lanes);
                7
            }
        }
    }

    /// Loads or stores `n` consecutive lanes. `mask` is a register that may be overwritten by a
    /// lane mask; it is `v` for loads.
    fn transfer(&mut self, is_store: bool, v: Vector, n: u8, at: MemoryOperand, mask: Vector) {
        let is_avx512 = self.isa == Isa::Avx512;
        let (whole, store) = (if is_store { STORE } else { LOAD }, u8::from(is_store));
        match n {
            _ if n == self.lanes() => self.whole(whole, [v, 0], at.into(), VECTOR),
            1 if is_avx512 => self.code.evex(opcode(1, 2, whole.code), 0, [v, 0], at.into(), ELEMENT),
            _ if is_avx512 => {
                // Masked-off lanes are zeroed by loads.
                let zeroing = if is_store { 0 } else { evex::ZEROING };
                let flags = self.mask(n) | zeroing | evex::BITS_512;
                self.code.evex(whole, flags, [v, 0], at.into(), VECTOR);
            }
            1 => self.code.vex(opcode(1, 2, whole.code), false, [v, 0], at.into()),
            2 => self.code.vex(opcode(1, 3, whole.code), false, [v, 0], at.into()),
            4 => self.code.vex(whole, false, [v, 0], at.into()),
            _ => {
                // `vmaskmovps` selects lanes by the mask's sign bits.
                self.code.vex(LOAD, true, [mask, 0], RegisterOrMemory::Constant);
                self.code.goal(Goal::Mask(n));
                self.code.vex(opcode(2, 1, 0x2c + 2 * store), true, [v, mask], at.into());
            }
        }
    }

    /// Loads every other element from `at` on, more than 4 of them, without reading past the last.
    ///
    /// ```text
    /// 16 lanes   v = [a15 a16 .. a30]   numbers 16 18 .. 30 1 3 .. 15 of v and [a0 a1 .. a15]
    ///  7 lanes   v = [a0 a1 .. a12]     numbers 16 18 .. modulo 16 of v
    /// ```
    fn load_by_numbers(&mut self, v: Vector, numbers: Vector, lanes: u8, at: MemoryOperand) {
        let (read, first) = (2 * lanes - 1, self.lanes() - 1);
        let (op, place) = match read <= first {
            true => {
                self.transfer(false, v, read, at, v);
                (PERMUTE, RegisterOrMemory::Register(v))
            }
            false => {
                let second = MemoryOperand { disp: at.disp.wrapping_add(4 * i32::from(first)), ..at };
                self.transfer(false, v, read - first, second, v);
                (PERMUTE_TWO, at.into())
            }
        };
        let mask = if lanes == self.lanes() { 0 } else { self.mask(lanes) | evex::ZEROING };
        self.code.evex(op, evex::BITS_512 | mask, [v, numbers], place, VECTOR);
    }
}
