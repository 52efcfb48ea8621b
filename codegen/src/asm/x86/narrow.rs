//! Loads and stores of 8- and 16-bit elements.

use super::X86;
use super::control::{address, integer};
use super::encode::{Goal, Integer, MemoryOperand, Opcode, RegisterOrMemory, TIMES_TWO, evex};
use super::index_registers::UPPER_HALVES;
use super::moves::{STORE_UPPER_PAIR, WIDE};
use super::vectors::{
    ALL_OF_MASK, BROADCAST, ELEMENT, EXTRACT_QUARTER, GATHER, LANES_AT, LOAD, MOVE_INTEGER, MOVE_TO_INTEGER, PERMUTE,
    PERMUTE_PAIRS, SHIFT, STORE, STREAM, VECTOR, XOR_VEX, opcode,
};
use crate::asm::instruction_set::{Address as At, ElementType, PACKED, Shape, Unary, Vector, Vectors};
use crate::asm::leaf::MemoryAccess;
use autotune_ir::target::Isa;

/// `vcvtps2ph`: rounds lanes to f16; the immediate is the rounding mode.
const ROUND_TO_F16: Opcode = opcode(3, 1, 0x1d);
/// Rounding mode of [`ROUND_TO_F16`]: to nearest even.
const TO_NEAREST: i64 = 0;
/// `vpternlogd`: any bitwise function of three operands; the immediate is its truth table.
const BITS_BY_TABLE: Opcode = opcode(3, 1, 0x25);
/// `vptestmd`: mask of the lanes in which two vectors have common bits.
const TEST: Opcode = opcode(2, 1, 0x27);
/// `vptestnmd`: mask of the lanes in which two vectors have no common bits.
const TEST_NOT: Opcode = opcode(2, 2, 0x27);
const ADD_BITS: Opcode = opcode(1, 1, 0xfe);
/// Opcode of a 32-bit load to an integer register.
const READ_WORD: u16 = 0x8b;
/// Opcode of a 32-bit store from an integer register.
const WRITE_WORD: u16 = 0x89;
/// Log2 of the bytes in a 16-bit element.
const HALF: u32 = 1;
/// `vpmovdw`: the lower halves of lanes, packed into half a vector.
pub(super) const LOWER_HALVES: Opcode = opcode(2, 2, 0x33);
/// `vpmovdb`: the lowest bytes of lanes, packed into a quarter of a vector.
const LOWER_QUARTERS: Opcode = opcode(2, 2, 0x31);
/// `vpackusdw`: packs the lanes of two vectors to 16 bits, alternating by 128-bit quarters. The
/// upper halves must be zero.
pub(super) const PACK: Opcode = opcode(2, 1, 0x2b);
/// `vpackuswb`: packs 16-bit lanes to 8 bits in the same way.
const PACK_HALVES: Opcode = opcode(1, 1, 0x67);
/// `vpackssdw` and `vpacksswb`: pack signed integers, which saturate.
const PACK_SIGNED: Opcode = opcode(1, 1, 0x6b);
const PACK_SIGNED_HALVES: Opcode = opcode(1, 1, 0x63);
/// `vcvtneps2bf16` (AVX512_BF16): rounds lanes to bf16, packed into half a vector.
const ROUND_TO_BF16: Opcode = opcode(2, 2, 0x72);
/// `vmovdqu16`: stores the 16-bit elements that a mask selects.
const STORE_HALVES: Opcode = opcode(1, WIDE | 3, 0x7f);
/// `vpbroadcastw`: broadcasts a 16-bit element.
const BROADCAST_HALF: Opcode = opcode(2, 1, 0x79);
/// `vpermw`: permutes 16-bit elements by an index vector.
const PERMUTE_HALVES: Opcode = opcode(2, WIDE | 1, 0x8d);
/// `vpermi2b` (AVX512_VBMI): selects bytes of two vectors by an index vector, the destination.
const PERMUTE_BYTES: Opcode = opcode(2, 1, 0x75);
/// `vpmovb2m` (AVX512BW): the uppermost bit of each byte, as a mask.
const UPPER_BITS: Opcode = opcode(2, 2, 0x29);
/// `vpblendmb` (AVX512BW): bytes of the second operand where a mask has bits, else of the first.
const BLEND_BYTES: Opcode = opcode(2, 1, 0x66);
/// Shift of the lower halves of lanes to the upper halves.
const UPWARDS: Unary = Unary::ShiftLeft(16);
/// `vmovq`: stores the lowest eight bytes.
pub(super) const STORE_PAIR: Opcode = opcode(1, 1, 0xd6);
/// `vmovq`: loads the lowest eight bytes.
pub(super) const LOAD_PAIR: Opcode = opcode(1, 2, 0x7e);
/// `vpextrd`, `vpextrw`, `vpextrb`: store four, two bytes or one byte at a position.
pub(super) const EXTRACT_WORD: Opcode = opcode(3, 1, 0x16);
pub(super) const EXTRACT_HALF: Opcode = opcode(3, 1, 0x15);
pub(super) const EXTRACT_BYTE: Opcode = opcode(3, 1, 0x14);
/// `vpinsrd`, `vpinsrw`, `vpinsrb`: load four, two bytes or one byte to a position.
const INSERT_WORD: Opcode = opcode(3, 1, 0x22);
const INSERT_HALF: Opcode = opcode(1, 1, 0xc4);
const INSERT_BYTE: Opcode = opcode(3, 1, 0x20);

/// Instructions to load and store elements of a type.
pub(super) struct Narrow {
    /// Loads elements and extends them to lanes.
    extend: Opcode,
    /// Loads an element to an integer register.
    pub(super) read: u16,
    /// Stores lanes of 512 bits truncated to elements.
    truncate: Opcode,
    /// Loads four elements; inserts two elements; inserts one.
    load: [Opcode; 3],
    /// Stores four elements, two elements, or one.
    store: [Opcode; 3],
    /// Log2 of the bytes that 512 bits of lanes take in memory.
    scale: u32,
    /// Number of bits in a lane above the element.
    unused: u8,
}

const HALVES: Narrow = Narrow {
    extend: opcode(2, 1, 0x33),
    read: 0x0fb7,
    truncate: LOWER_HALVES,
    load: [LOAD_PAIR, INSERT_WORD, INSERT_HALF],
    store: [STORE_PAIR, EXTRACT_WORD, EXTRACT_HALF],
    scale: 5,
    unused: 16,
};

const BYTES: Narrow = Narrow {
    extend: opcode(2, 1, 0x31),
    read: 0x0fb6,
    truncate: LOWER_QUARTERS,
    load: [MOVE_INTEGER, INSERT_HALF, INSERT_BYTE],
    store: [MOVE_TO_INTEGER, EXTRACT_HALF, EXTRACT_BYTE],
    scale: 4,
    unused: 24,
};

impl Narrow {
    /// Returns the instructions for a type narrower than a word.
    pub(super) fn of(element: ElementType) -> Self {
        match element {
            ElementType::F16 => Self { extend: opcode(2, 1, 0x13), truncate: ROUND_TO_F16, ..HALVES },
            ElementType::Half | ElementType::Bf16 | ElementType::Word => HALVES,
            ElementType::SignedHalf => Self { extend: opcode(2, 1, 0x23), read: 0x0fbf, ..HALVES },
            ElementType::Byte => BYTES,
            ElementType::SignedByte => Self { extend: opcode(2, 1, 0x21), read: 0x0fbe, ..BYTES },
        }
    }
}

/// Returns the operand some elements after an address.
fn element_operand(at: MemoryOperand, of: ElementType, elements: u8) -> RegisterOrMemory {
    MemoryOperand { disp: at.disp.wrapping_add(of.bytes() as i32 * i32::from(elements)), ..at }.into()
}

impl X86 {
    /// `v = [at]`; further lanes are zero.
    pub(super) fn load_elements(&mut self, v: Vector, memory: MemoryAccess) {
        let MemoryAccess { at, shape, of } = memory;
        let at = address(at);
        match shape {
            Shape::Splat => self.load_one(v, of, at),
            Shape::Lanes(n) => self.load_part(v, of, n, at),
            Shape::Strided { lanes, stride } => {
                self.move_elements(of, (LANES_AT, of.bytes() as i32), (at, stride), lanes);
                self.load_part(v, of, lanes, LANES_AT);
            }
        }
    }

    /// Gathers elements at the indices in `index`. Overwrites `spare` and the integer register
    /// `scratch`.
    pub(super) fn gather_elements(
        &mut self,
        to: Vector,
        (at, of): (At, ElementType),
        index: Vector,
        (spare, scratch): (Vector, u8),
    ) {
        if self.isa == Isa::Avx512 && of == ElementType::Bf16 {
            return self.gather_upper_halves(to, at, index, spare);
        }
        let after = |bytes: i64| MemoryOperand { disp: LANES_AT.disp + bytes as i32, ..LANES_AT };
        self.whole(STORE, [index, 0], LANES_AT.into(), VECTOR);
        for lane in 0..i64::from(self.lanes()) {
            self.code.legacy(false, READ_WORD, integer(scratch) as u8, after(4 * lane));
            self.point_after(scratch, at.pointer, of.bytes());
            let element = MemoryOperand { base: integer(scratch), disp: at.disp };
            self.code.legacy(false, Narrow::of(of).read, Integer::Rax as u8, element);
            // A word store also overwrites the bytes after its element. That is harmless: the next
            // element goes there, and the indices stored there have been read.
            self.code.legacy(false, WRITE_WORD, Integer::Rax as u8, after(of.bytes() * lane));
        }
        self.load_part(to, of, self.lanes(), LANES_AT);
    }

    /// Gathers bf16 elements with 4-byte loads, such that the element is the upper half of its
    /// word.
    ///
    /// The loaded word begins with the previous element. The first element has none: its word
    /// begins with the element itself, and the lower half is shifted up. The buffer must have at
    /// least two elements.
    fn gather_upper_halves(&mut self, to: Vector, at: At, index: Vector, spare: Vector) {
        const ANY: i64 = 0xff;
        let (mask, own) = (evex::BITS_512 | 7, RegisterOrMemory::Register(to));
        self.code.evex(BITS_BY_TABLE, evex::BITS_512, [spare, spare], RegisterOrMemory::Register(spare), VECTOR);
        self.code.immediate(ANY, 1);
        // Subtract one from each index except 0, by adding a vector with all bits set.
        self.code.evex(TEST, evex::BITS_512, [7, index], RegisterOrMemory::Register(index), VECTOR);
        self.code.evex(ADD_BITS, mask | evex::ZEROING, [spare, index], RegisterOrMemory::Register(spare), VECTOR);
        self.code.vex(ALL_OF_MASK, true, [7, 7], RegisterOrMemory::Register(7));
        self.code.evex_indexed(GATHER, mask, to, (address(at), TIMES_TWO), spare);

        self.code.evex(TEST_NOT, evex::BITS_512, [7, index], RegisterOrMemory::Register(index), VECTOR);
        self.code.evex(SHIFT, mask, [6, to], own, VECTOR);
        self.code.immediate(16, 1);
        self.unary(Unary::ShiftRight(16), to, to);
        self.unary(UPWARDS, to, to);
    }

    /// Loads an element, broadcast to every lane.
    fn load_one(&mut self, v: Vector, of: ElementType, at: MemoryOperand) {
        let (is_wide, own) = (self.isa == Isa::Avx512, RegisterOrMemory::Register(v));
        let Narrow { extend, read, scale, .. } = Narrow::of(of);
        if of == ElementType::Bf16 {
            self.whole(BROADCAST_HALF, [v, 0], at.into(), HALF);
            return self.unary(UPWARDS, v, v);
        }
        self.code.legacy(false, read, Integer::Rax as u8, at);
        match is_wide {
            true => self.code.evex(MOVE_INTEGER, 0, [v, 0], Integer::Rax.into(), ELEMENT),
            false => self.code.vex(MOVE_INTEGER, false, [v, 0], Integer::Rax.into()),
        }
        if of == ElementType::F16 {
            match is_wide {
                true => self.code.evex(extend, 0, [v, 0], own, scale),
                false => self.code.vex(extend, false, [v, 0], own),
            }
        }
        self.whole(BROADCAST, [v, 0], own, ELEMENT);
    }

    /// Loads `n` consecutive elements.
    fn load_part(&mut self, v: Vector, of: ElementType, n: u8, at: MemoryOperand) {
        if of == ElementType::Bf16 {
            return self.load_upper_halves(v, n, at);
        }
        let Narrow { extend, load, scale, .. } = Narrow::of(of);
        if self.isa == Isa::Avx512 {
            let mask = if n == self.lanes() { 0 } else { self.mask(n) | evex::ZEROING };
            return self.code.evex(extend, evex::BITS_512 | mask, [v, 0], at.into(), scale);
        }
        // Other lane counts would read beyond the elements, so they are loaded in parts.
        if matches!(n, 4 | 8) {
            return self.code.vex(extend, n == 8, [v, 0], at.into());
        }

        // Load four, two and one of them, according to the bits of the number.
        let [load_four, insert_two, insert_one] = load;
        match n & 4 {
            0 => self.code.vex(XOR_VEX, false, [v, v], RegisterOrMemory::Register(v)),
            _ => self.code.vex(load_four, false, [v, 0], at.into()),
        }
        for (op, elements) in [(insert_two, 2), (insert_one, 1)] {
            if n & elements != 0 {
                let first = n & !(2 * elements - 1);
                self.code.vex(op, false, [v, v], element_operand(at, of, first));
                self.code.immediate(i64::from(first / elements), 1);
            }
        }
        self.code.vex(extend, true, [v, 0], RegisterOrMemory::Register(v));
    }

    /// Loads `n` consecutive elements into the upper halves of lanes.
    fn load_upper_halves(&mut self, v: Vector, n: u8, at: MemoryOperand) {
        let Some(numbers) = self.held.halves.filter(|_| n == self.lanes()) else {
            self.load_part(v, ElementType::Half, n, at);
            return self.unary(UPWARDS, v, v);
        };
        // One permutation replaces an extension and a shift.
        let flags = evex::BITS_512 | evex::ZEROING | UPPER_HALVES;
        self.code.evex(LOAD, evex::BITS_256, [v, 0], at.into(), HALVES.scale);
        self.code.evex(PERMUTE_HALVES, flags, [v, numbers], RegisterOrMemory::Register(v), VECTOR);
    }

    /// `[at] = v`, with the elements packed in `spare` first if that takes several instructions.
    pub(super) fn store_elements(&mut self, v: Vector, memory: MemoryAccess, spare: Vector, is_streamed: bool) {
        let MemoryAccess { at, shape, of } = memory;
        let (at, whole) = (address(at), self.lanes());
        match shape {
            Shape::Lanes(n) if n == whole && is_streamed => {
                self.narrow(v, spare, of);
                self.move_whole(([STREAM, STORE_PAIR], at), of, spare);
            }
            Shape::Lanes(n) => self.store_part((v, spare), of, n, at),
            Shape::Splat => self.store_part((v, spare), of, 1, at),
            Shape::Strided { lanes, stride } => {
                self.store_part((v, spare), of, whole, LANES_AT);
                self.move_elements(of, (at, stride), (LANES_AT, of.bytes() as i32), lanes);
            }
        }
    }

    /// Stores the first `n` lanes to consecutive elements.
    fn store_part(&mut self, (v, spare): (Vector, Vector), of: ElementType, n: u8, at: MemoryOperand) {
        if of == ElementType::Bf16 {
            return self.store_bf16((v, spare), n, at);
        }
        if self.isa == Isa::Avx512 {
            let mask = if n == self.lanes() { 0 } else { self.mask(n) };
            return self.narrow_wide(v, of, at.into(), mask);
        }

        // Narrowing in a register and storing takes half the time of one instruction with a memory
        // operand (measured on AMD EPYC, family 25, model 17).
        self.narrow(v, spare, of);
        if n == self.lanes() {
            return self.move_whole(([STORE, STORE_PAIR], at), of, spare);
        }
        // Store four, two and one of them, according to the bits of the number.
        let [store_four, extract_two, extract_one] = Narrow::of(of).store;
        if n & 4 != 0 {
            self.code.vex(store_four, false, [spare, 0], at.into());
        }
        for (op, elements) in [(extract_two, 2), (extract_one, 1)] {
            if n & elements != 0 {
                let first = n & !(2 * elements - 1);
                self.code.vex(op, false, [spare, 0], element_operand(at, of, first));
                self.code.immediate(i64::from(first / elements), 1);
            }
        }
    }

    /// Stores the first `n` lanes rounded to bf16. The instruction that rounds has no memory
    /// destination.
    fn store_bf16(&mut self, (v, spare): (Vector, Vector), n: u8, at: MemoryOperand) {
        self.narrow(v, spare, ElementType::Bf16);
        if n == self.lanes() {
            return self.move_whole(([STORE, STORE_PAIR], at), ElementType::Bf16, spare);
        }
        let mask = self.mask(n);
        self.code.evex(STORE_HALVES, evex::BITS_256 | mask, [spare, 0], at.into(), HALVES.scale);
    }

    /// Converts the lanes of `v` to elements, packed at the lower end of `to`.
    fn narrow(&mut self, v: Vector, to: Vector, of: ElementType) {
        match (self.isa == Isa::Avx512, of) {
            (_, ElementType::Bf16) => {
                self.code.evex(ROUND_TO_BF16, evex::BITS_512, [to, 0], RegisterOrMemory::Register(v), VECTOR);
            }
            (true, _) => self.narrow_wide(v, of, RegisterOrMemory::Register(to), 0),
            (false, ElementType::F16) => {
                self.code.vex(ROUND_TO_F16, true, [v, 0], RegisterOrMemory::Register(to));
                self.code.immediate(TO_NEAREST, 1);
            }
            (false, ElementType::Half | ElementType::Word) => self.pack_halves(v, to),
            (false, ElementType::SignedHalf | ElementType::Byte | ElementType::SignedByte) => {
                // Packing saturates, so clear the bits above the element: shift up and down.
                for (direction, from) in [(6, v), (2, to)] {
                    self.whole(SHIFT, [direction, to], RegisterOrMemory::Register(from), VECTOR);
                    self.code.immediate(Narrow::of(of).unused.into(), 1);
                }
                self.pack_halves(to, to);
                if of.bytes() == 1 {
                    self.code.vex(PACK_HALVES, true, [to, to], RegisterOrMemory::Register(to));
                }
            }
        }
    }

    /// Packs the lower halves of the lanes of `v` into the lower half of `to`. The upper halves
    /// must be zero.
    fn pack_halves(&mut self, v: Vector, to: Vector) {
        // Each quarter is there twice; keep the first and the third.
        const EVEN: i64 = 0b10_00;
        self.code.vex(PACK, true, [to, v], RegisterOrMemory::Register(v));
        self.code.vex(PERMUTE_PAIRS, true, [to, 0], RegisterOrMemory::Register(to));
        self.code.immediate(EVEN, 1);
    }

    /// Stores four vectors of integers as bytes, which are looked up in a table if there is one.
    /// Packing saturates, and takes half of the time of four truncations to memory (measured on
    /// Intel Xeon, family 6, model 207).
    pub(super) fn pack_bytes(
        &mut self,
        values: [Vector; PACKED],
        (to, of): ([At; PACKED], ElementType),
        table: Option<At>,
        spare: Vector,
    ) {
        // Two vectors become one, in each 128-bit part for itself; then a permutation of words
        // collects the parts of each vector.
        let [a, b, c, d] = values;
        let to_bytes = if of == ElementType::SignedByte { PACK_SIGNED_HALVES } else { PACK_HALVES };
        for (op, [first, second]) in [(PACK_SIGNED, [a, b]), (PACK_SIGNED, [c, d]), (to_bytes, [a, c])] {
            self.whole(op, [first, first], RegisterOrMemory::Register(second), VECTOR);
        }
        self.whole(LOAD, [spare, 0], RegisterOrMemory::Constant, VECTOR);
        self.code.goal(Goal::TransposedLanes { lanes: self.lanes() });
        self.whole(PERMUTE, [a, spare], RegisterOrMemory::Register(a), VECTOR);

        if let Some(table) = table {
            self.look_up(values, table);
        }
        self.store_quarters(a, to, spare);
    }

    /// Replaces the bytes in the first register by elements of a table of 256 bytes. Overwrites the
    /// others.
    fn look_up(&mut self, [index, low, part, _]: [Vector; PACKED], table: At) {
        const UPPER: u8 = 7;
        let quarter = |number: usize| address(table.offset_by(number, 1 << VECTOR));
        // Seven bits of an index select from two registers, the eighth from two results.
        self.copy(low, index);
        self.code.evex(LOAD, evex::BITS_512, [part, 0], quarter(0).into(), VECTOR);
        self.code.evex(PERMUTE_BYTES, evex::BITS_512, [low, part], quarter(1).into(), VECTOR);
        self.code.evex(LOAD, evex::BITS_512, [part, 0], quarter(2).into(), VECTOR);
        self.code.evex(UPPER_BITS, evex::BITS_512, [UPPER, 0], RegisterOrMemory::Register(index), VECTOR);
        self.code.evex(PERMUTE_BYTES, evex::BITS_512, [index, part], quarter(3).into(), VECTOR);
        let blended = evex::BITS_512 | UPPER;
        self.code.evex(BLEND_BYTES, blended, [index, low], RegisterOrMemory::Register(index), VECTOR);
    }

    /// Stores the four quarters of a register. Overwrites `spare`.
    fn store_quarters(&mut self, from: Vector, to: [At; PACKED], spare: Vector) {
        let lanes = usize::from(self.lanes());
        let follows = |part: usize| to[part] == to[part - 1].offset_by(lanes, 1);
        if (1..PACKED).all(follows) {
            return self.whole(STORE, [from, 0], address(to[0]).into(), VECTOR);
        }
        if self.isa == Isa::Avx512 {
            for (part, at) in (0..).zip(to) {
                self.code.evex(EXTRACT_QUARTER, evex::BITS_512, [from, 0], address(at).into(), BYTES.scale);
                self.code.immediate(part, 1);
            }
            return;
        }

        self.code.vex(EXTRACT_QUARTER, true, [from, 0], RegisterOrMemory::Register(spare));
        self.code.immediate(1, 1);
        for (half, first) in [(from, 0), (spare, 2)] {
            if follows(first + 1) {
                self.code.vex(STORE, false, [half, 0], address(to[first]).into());
                continue;
            }
            for (op, at) in [STORE_PAIR, STORE_UPPER_PAIR].into_iter().zip(&to[first..]) {
                self.code.vex(op, false, [half, 0], address(*at).into());
            }
        }
    }

    /// Converts 512 bits of lanes to elements, to a register, or to memory under a mask.
    fn narrow_wide(&mut self, v: Vector, of: ElementType, to: RegisterOrMemory, mask: u8) {
        let Narrow { truncate, scale, .. } = Narrow::of(of);
        self.code.evex(truncate, evex::BITS_512 | mask, [v, 0], to, scale);
        if of == ElementType::F16 {
            self.code.immediate(TO_NEAREST, 1);
        }
    }

    /// Copies as many elements as there are lanes.
    pub(super) fn copy_whole(&mut self, to: At, from: At, of: ElementType, spare: Vector) {
        self.move_whole(([LOAD, LOAD_PAIR], address(from)), of, spare);
        self.move_whole(([STORE, STORE_PAIR], address(to)), of, spare);
    }

    /// Loads or stores the elements of all lanes, which are packed at the lower end of a register.
    /// The second instruction moves eight bytes.
    fn move_whole(&mut self, ([op, of_pair], at): ([Opcode; 2], MemoryOperand), of: ElementType, v: Vector) {
        match (self.isa, of.bytes()) {
            (Isa::Avx512, 1) => self.code.evex(op, 0, [v, 0], at.into(), Narrow::of(of).scale),
            (Isa::Avx512, _) => self.code.evex(op, evex::BITS_256, [v, 0], at.into(), Narrow::of(of).scale),
            (_, 1) => self.code.vex(of_pair, false, [v, 0], at.into()),
            _ => self.code.vex(op, false, [v, 0], at.into()),
        }
    }
}
