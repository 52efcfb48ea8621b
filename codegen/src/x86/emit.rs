//! Single instructions of either instruction set.
//!
//! Values are whole vector registers: a scalar is the same value in every lane, a vector of fewer lanes has zeros behind it.

use super::encode::{Address, Code, Goal, Integer, Opcode, Place, evex};
use autotune_ir::target::Isa;

/// Number of a vector register.
pub(super) type Vector = u8;

/// Where the lanes of a value lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// One element, the same for every lane.
    Splat,
    /// So many consecutive elements.
    Lanes(u8),
    /// So many elements, each `stride` bytes behind the one before.
    Strided {
        /// Number of elements.
        lanes: u8,
        /// Distance in bytes.
        stride: i32,
    },
}

impl Shape {
    /// True for 4 or 8 elements of which each is the second next of the one before.
    pub(super) fn is_every_other(self) -> bool {
        matches!(self, Shape::Strided { lanes: 4 | 8, stride: 8 })
    }
}

/// Second operand of an arithmetic instruction.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    Register(Vector),
    /// A whole vector in memory.
    Vector(Address),
    /// An element in memory for every lane; AVX-512 only.
    Splat(Address),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Arithmetic {
    Add,
    Sub,
    Mul,
    /// The second operand where either is not a number.
    Max,
    /// Adds the product to the destination.
    MulAdd,
}

/// How two integers compare as signed numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    Greater,
    NotEqual,
}

impl Order {
    /// Its number in opcodes.
    fn code(self) -> u8 {
        match self {
            Order::NotEqual => 5,
            Order::Less => 12,
            Order::Greater => 15,
        }
    }
}

/// Bytes below the stack pointer through which strided lanes go; a leaf calls nothing, so that they are its own.
const LANES_AT: Address = Address { base: Integer::Rsp, disp: -64 };

const fn opcode(map: u8, prefix: u8, code: u8) -> Opcode {
    Opcode { map, prefix, code }
}

/// Whole vectors.
const LOAD: Opcode = opcode(1, 0, 0x10);
const STORE: Opcode = opcode(1, 0, 0x11);
const COPY: Opcode = opcode(1, 0, 0x28);
/// The first one or two lanes.
const LOAD_1: Opcode = opcode(1, 2, 0x10);
const STORE_1: Opcode = opcode(1, 2, 0x11);
const LOAD_2: Opcode = opcode(1, 3, 0x10);
const STORE_2: Opcode = opcode(1, 3, 0x11);
/// The lanes that a vector has the sign of.
const LOAD_SIGNED: Opcode = opcode(2, 1, 0x2c);
const STORE_SIGNED: Opcode = opcode(2, 1, 0x2e);
/// One element to every lane, from memory or a vector; from an integer register; to the first lane from there.
const BROADCAST: Opcode = opcode(2, 1, 0x18);
const BROADCAST_INTEGER: Opcode = opcode(2, 1, 0x7c);
const MOVE_INTEGER: Opcode = opcode(1, 1, 0x6e);
/// An integer register to a mask.
const SET_MASK: Opcode = opcode(1, 0, 0x92);
const XOR_VEX: Opcode = opcode(1, 0, 0x57);
const XOR_EVEX: Opcode = opcode(1, 1, 0xef);

/// Two elements of each half of one factor, then two of the other.
const SHUFFLE: Opcode = opcode(1, 0, 0xc6);
/// Pairs of elements in any order; the prefix is that of 64-bit operands, too.
const PERMUTE_PAIRS: Opcode = opcode(3, 0x80 | 1, 0x01);
/// Half a vector of 256 bits.
const INSERT_HALF: Opcode = opcode(3, 1, 0x18);
/// The lower or upper elements, or pairs of elements, of two vectors in turns, in each half.
const UNPACK_LOW: Opcode = opcode(1, 0, 0x14);
const UNPACK_HIGH: Opcode = opcode(1, 0, 0x15);
const UNPACK_LOW_PAIRS: Opcode = opcode(1, 1, 0x14);
const UNPACK_HIGH_PAIRS: Opcode = opcode(1, 1, 0x15);

/// Bytes of a vector and of an element, in units of which AVX-512 counts short displacements, as powers of two.
const VECTOR: u32 = 6;
const ELEMENT: u32 = 2;

/// Emits instructions.
pub(super) struct Emitter {
    pub(super) isa: Isa,
    pub(super) code: Code,
    /// Lanes of the masks in k1, k2, ...
    masks: Vec<u8>,
}

impl Emitter {
    pub(super) fn new(isa: Isa) -> Self {
        Self { isa, code: Code::default(), masks: Vec::new() }
    }

    /// Lanes of a register.
    pub(super) fn lanes(&self) -> u8 {
        (self.isa.vector_bytes() / 4) as u8
    }
}

/// Vectors.
impl Emitter {
    /// An instruction of whole registers that both instruction sets have.
    fn whole(&mut self, op: Opcode, registers: [Vector; 2], place: Place, scale: u32) {
        if self.isa == Isa::Avx512 {
            self.code.evex(op, evex::BITS_512, registers, place, scale);
        } else {
            self.code.vex(op, true, registers, place);
        }
    }

    /// Makes the masks of a leaf, which must come before anything else in it.
    pub(super) fn set_masks(&mut self, lanes: &[u8]) {
        self.masks.clear();
        self.masks.extend(lanes.iter().take(if self.isa == Isa::Avx512 { 6 } else { 0 }));
        for i in 0..self.masks.len() {
            self.set_mask(1 + i as u8, self.masks[i]);
        }
    }

    fn set_mask(&mut self, k: u8, lanes: u8) {
        self.set_eax((1 << lanes) - 1);
        self.code.vex(SET_MASK, false, [k, 0], Integer::Rax.into());
    }

    /// The number of a mask register.
    fn mask(&mut self, lanes: u8) -> u8 {
        match self.masks.iter().position(|&n| n == lanes) {
            Some(i) => 1 + i as u8,
            None => {
                self.set_mask(7, lanes);
                7
            }
        }
    }

    /// `v = [at]`.
    pub(super) fn load(&mut self, v: Vector, shape: Shape, at: Address) {
        match shape {
            Shape::Splat => self.whole(BROADCAST, [v, 0], at.into(), ELEMENT),
            Shape::Lanes(n) if n == self.lanes() => self.whole(LOAD, [v, 0], at.into(), VECTOR),
            Shape::Lanes(n) if self.isa == Isa::Avx512 => {
                let flags = self.mask(n) | evex::ZEROING | evex::BITS_512;
                self.code.evex(LOAD, flags, [v, 0], at.into(), VECTOR);
            }
            Shape::Lanes(1) => self.code.vex(LOAD_1, false, [v, 0], at.into()),
            Shape::Lanes(2) => self.code.vex(LOAD_2, false, [v, 0], at.into()),
            Shape::Lanes(4) => self.code.vex(LOAD, false, [v, 0], at.into()),
            Shape::Lanes(n) => {
                self.load_mask_avx2(v, n);
                self.code.vex(LOAD_SIGNED, true, [v, v], at.into());
            }
            Shape::Strided { lanes, .. } if shape.is_every_other() && v < 16 => self.load_every_other(v, lanes, at),
            Shape::Strided { lanes, stride } => {
                self.copy_elements((LANES_AT, 4), (at, stride), lanes);
                self.load(v, Shape::Lanes(lanes), LANES_AT);
            }
        }
    }

    /// `v` is every other element from `at` on, `lanes` of them: 4 or 8; nothing behind the last is read.
    fn load_every_other(&mut self, v: Vector, lanes: u8, at: Address) {
        // Elements 0 and 2 of the first factor, then 1 and 3 of the second, of each half.
        const EVEN_ODD: u8 = 0b11_01_10_00;
        let behind = Address { disp: at.disp.wrapping_add(4 * (i32::from(lanes) - 1)), ..at };
        let is_256 = lanes == 8;
        self.code.vex(LOAD, is_256, [v, 0], at.into());
        self.code.vex(SHUFFLE, is_256, [v, v], behind.into());
        self.code.immediate_byte(EVEN_ODD as i8);
        if is_256 {
            self.code.vex(PERMUTE_PAIRS, true, [v, 0], Place::Register(v));
            self.code.immediate_byte(EVEN_ODD as i8);
        }
    }

    /// Element `r` of `[columns[l]]` is element `l` of `[rows[r]]`, for four rows and four or eight columns; changes the eight
    /// registers from `first` on, all of them below 16.
    pub(super) fn transpose(&mut self, rows: [Address; 4], columns: &[Address], first: Vector) {
        let is_256 = columns.len() == 8;
        for (v, &low) in (first..).zip(&columns[..4]) {
            self.code.vex(LOAD, false, [v, 0], low.into());
            if let Some(&high) = columns.get(4 + usize::from(v - first)) {
                self.code.vex(INSERT_HALF, true, [v, v], high.into());
                self.code.immediate_byte(1);
            }
        }
        let mut unpack = |op: Opcode, to: u8, a: u8, b: u8| {
            self.code.vex(op, true, [first + to, first + a], Place::Register(first + b));
        };
        for (op, to, a) in [(UNPACK_LOW, 4, 0), (UNPACK_HIGH, 5, 0), (UNPACK_LOW, 6, 2), (UNPACK_HIGH, 7, 2)] {
            unpack(op, to, a, a + 1);
        }
        let (low, high) = (UNPACK_LOW_PAIRS, UNPACK_HIGH_PAIRS);
        for (op, to, a) in [(low, 0, 4), (high, 1, 4), (low, 2, 5), (high, 3, 5)] {
            unpack(op, to, a, a + 2);
        }
        for (v, to) in (first..).zip(rows) {
            self.code.vex(STORE, is_256, [v, 0], to.into());
        }
    }

    fn load_mask_avx2(&mut self, v: Vector, lanes: u8) {
        self.code.vex(LOAD, true, [v, 0], Place::Constant);
        self.code.goal(Goal::Mask(lanes));
    }

    /// True if a store of this shape needs a register of its own.
    pub(super) fn store_needs_register(&self, shape: Shape) -> bool {
        matches!(shape, Shape::Lanes(n) if self.isa != Isa::Avx512 && n != self.lanes() && !n.is_power_of_two())
    }

    /// `[at] = v`; changes `spare` where [`Emitter::store_needs_register`].
    pub(super) fn store(&mut self, v: Vector, shape: Shape, at: Address, spare: Vector) {
        match shape {
            Shape::Splat | Shape::Lanes(1) if self.isa == Isa::Avx512 => {
                self.code.evex(STORE_1, 0, [v, 0], at.into(), ELEMENT);
            }
            Shape::Splat | Shape::Lanes(1) => self.code.vex(STORE_1, false, [v, 0], at.into()),
            Shape::Lanes(n) if n == self.lanes() => self.whole(STORE, [v, 0], at.into(), VECTOR),
            Shape::Lanes(n) if self.isa == Isa::Avx512 => {
                let flags = self.mask(n) | evex::BITS_512;
                self.code.evex(STORE, flags, [v, 0], at.into(), VECTOR);
            }
            Shape::Lanes(2) => self.code.vex(STORE_2, false, [v, 0], at.into()),
            Shape::Lanes(4) => self.code.vex(STORE, false, [v, 0], at.into()),
            Shape::Lanes(n) => {
                self.load_mask_avx2(spare, n);
                self.code.vex(STORE_SIGNED, true, [v, spare], at.into());
            }
            Shape::Strided { lanes, stride } => {
                self.store(v, Shape::Lanes(self.lanes()), LANES_AT, spare);
                self.copy_elements((at, stride), (LANES_AT, 4), lanes);
            }
        }
    }

    /// Copies `lanes` elements between places with strides in bytes, first to last, through eax.
    pub(super) fn copy_elements(&mut self, to: (Address, i32), from: (Address, i32), lanes: u8) {
        let element = |(at, stride): (Address, i32), i: u8| Address {
            disp: at.disp.wrapping_add(stride.wrapping_mul(i32::from(i))),
            ..at
        };
        for i in 0..lanes {
            self.code.legacy(false, &[0x8b], Integer::Rax as u8, element(from, i));
            self.code.legacy(false, &[0x89], Integer::Rax as u8, element(to, i));
        }
    }

    /// Asks for the cache line of an address.
    pub(super) fn prefetch(&mut self, at: Address) {
        self.code.legacy(false, &[0x0f, 0x18], 1, at);
    }

    /// `v` is a constant of these bits in every lane.
    pub(super) fn constant(&mut self, v: Vector, bits: u32) {
        let is_avx512 = self.isa == Isa::Avx512;
        if bits == 0 {
            let xor = if is_avx512 { XOR_EVEX } else { XOR_VEX };
            self.whole(xor, [v, v], Place::Register(v), VECTOR);
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

    /// `to = from`.
    pub(super) fn copy(&mut self, to: Vector, from: Vector) {
        self.whole(COPY, [to, 0], Place::Register(from), VECTOR);
    }

    /// `to = a op b`.
    pub(super) fn arithmetic(&mut self, op: Arithmetic, to: Vector, a: Vector, b: Operand) {
        let op = match op {
            Arithmetic::Add => opcode(1, 0, 0x58),
            Arithmetic::Mul => opcode(1, 0, 0x59),
            Arithmetic::Sub => opcode(1, 0, 0x5c),
            Arithmetic::Max => opcode(1, 0, 0x5f),
            Arithmetic::MulAdd => opcode(2, 1, 0xb8),
        };
        match b {
            Operand::Register(b) => self.whole(op, [to, a], Place::Register(b), VECTOR),
            Operand::Vector(at) => self.whole(op, [to, a], at.into(), VECTOR),
            Operand::Splat(at) => {
                self.code.evex(op, evex::BITS_512 | evex::BROADCAST, [to, a], at.into(), ELEMENT);
            }
        }
    }

    /// Lets functions of other instruction sets run as fast as ever.
    pub(super) fn clear_upper(&mut self) {
        self.code.plain(&[0xc5, 0xf8, 0x77]);
    }
}

/// Integers and control flow; 64 bits unless said otherwise.
impl Emitter {
    pub(super) fn push(&mut self, register: Integer) {
        self.code.short(false, 0x50, register, 0, 0);
    }

    pub(super) fn pop(&mut self, register: Integer) {
        self.code.short(false, 0x58, register, 0, 0);
    }

    /// `register = [at]`.
    pub(super) fn read(&mut self, register: Integer, at: Address) {
        self.code.legacy(true, &[0x8b], register as u8, at);
    }

    /// `[at] = register`.
    pub(super) fn write(&mut self, at: Address, register: Integer) {
        self.code.legacy(true, &[0x89], register as u8, at);
    }

    /// `[at] = value`.
    pub(super) fn write_value(&mut self, at: Address, value: i32) {
        self.code.legacy(true, &[0xc7], 0, at);
        self.code.immediate(value);
    }

    /// `register = value`.
    pub(super) fn set(&mut self, register: Integer, value: i64) {
        match i32::try_from(value) {
            Ok(value) => {
                self.code.legacy(true, &[0xc7], 0, register);
                self.code.immediate(value);
            }
            Err(_) => self.code.short(true, 0xb8, register, value as u64, 8),
        }
    }

    /// 32 bits.
    fn set_eax(&mut self, value: u32) {
        self.code.short(false, 0xb8, Integer::Rax, u64::from(value), 4);
    }

    /// `register += value`; may change rax.
    pub(super) fn add(&mut self, register: Integer, value: i64) {
        if value == 0 {
            return;
        }
        if let Ok(value) = i8::try_from(value) {
            self.code.legacy(true, &[0x83], 0, register);
            self.code.immediate_byte(value);
        } else if let Ok(value) = i32::try_from(value) {
            self.code.legacy(true, &[0x81], 0, register);
            self.code.immediate(value);
        } else {
            self.set(Integer::Rax, value);
            self.code.legacy(true, &[0x03], register as u8, Integer::Rax);
        }
    }

    /// `register += [at] * factor`; changes rax.
    pub(super) fn add_scaled(&mut self, register: Integer, at: Address, factor: i64) {
        match i32::try_from(factor) {
            Ok(factor) => {
                self.code.legacy(true, &[0x69], Integer::Rax as u8, at);
                self.code.immediate(factor);
            }
            Err(_) => {
                self.set(Integer::Rax, factor);
                self.code.legacy(true, &[0x0f, 0xaf], Integer::Rax as u8, at);
            }
        }
        self.code.legacy(true, &[0x03], register as u8, Integer::Rax);
    }

    /// `rdx = rax mod by; rax = rax / by`; changes rcx.
    pub(super) fn divide(&mut self, by: i64) {
        self.code.legacy(false, &[0x33], Integer::Rdx as u8, Integer::Rdx);
        self.set(Integer::Rcx, by);
        self.code.legacy(true, &[0xf7], 6, Integer::Rcx);
    }

    /// Compares rax.
    pub(super) fn compare(&mut self, with: impl Into<Place>) {
        self.code.legacy(true, &[0x3b], Integer::Rax as u8, with);
    }

    /// `rax = from` if what was compared was so.
    pub(super) fn move_if(&mut self, order: Order, from: Integer) {
        self.code.legacy(true, &[0x0f, 0x40 | order.code()], Integer::Rax as u8, from);
    }

    /// `register -= 1`, and compares it with 0.
    pub(super) fn decrement(&mut self, register: Integer) {
        self.code.legacy(true, &[0xff], 1, register);
    }

    /// Jumps back to an offset in the code if what was compared was so.
    pub(super) fn jump_back(&mut self, order: Order, to: usize) {
        self.code.plain(&[0x0f, 0x80 | order.code()]);
        self.code.lead_to(Goal::Code(to));
    }

    /// Jumps to where [`Emitter::aim`] will be called with the number that this returns.
    pub(super) fn jump(&mut self) -> usize {
        self.code.plain(&[0xe9]);
        self.code.lead_to(Goal::Code(0))
    }

    /// Lets a jump lead here.
    pub(super) fn aim(&mut self, jump: usize) {
        self.code.aim(jump, Goal::Code(self.code.here()));
    }

    /// Calls a leaf.
    pub(super) fn call(&mut self, leaf: usize) {
        self.code.plain(&[0xe8]);
        self.code.lead_to(Goal::Leaf(leaf));
    }

    pub(super) fn ret(&mut self) {
        self.code.plain(&[0xc3]);
    }
}
