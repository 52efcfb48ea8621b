//! Copies: permutations of blocks, and strided elements.

use super::X86;
use super::bytes::OF_BYTES;
use super::control::address;
use super::encode::{Goal, Integer, MemoryOperand, Opcode, RegisterOrMemory, TIMES_FOUR, evex};
use super::narrow::{LOWER_HALVES, Narrow, PACK, STORE_PAIR};
use super::vectors::{
    ALL_OF_MASK, BLEND_LANES, COPY, EXTRACT_QUARTER, GATHER, LOAD, PERMUTE, PERMUTE_PAIRS, SET_MASK, SHIFT, STORE,
    UNPACK_HIGH_PAIRS, VECTOR, opcode,
};
use crate::asm::instruction_set::{Address as At, ElementType, PrefetchHint, Unary, Vector, Vectors};
use autotune_ir::program::PrefetchLevel;
use autotune_ir::target::Isa;

/// `vshufps`: in each 128-bit part, two elements of one operand, then two of the other.
const SHUFFLE: Opcode = opcode(1, 0, 0xc6);
/// `vunpcklps`: interleaves the lower elements of two vectors in each 128-bit quarter.
pub(super) const UNPACK_LOW: Opcode = opcode(1, 0, 0x14);
/// `vunpckhps`: interleaves the upper elements.
pub(super) const UNPACK_HIGH: Opcode = opcode(1, 0, 0x15);
/// `vunpcklpd`: interleaves the lower pairs of elements.
pub(super) const UNPACK_LOW_PAIRS: Opcode = opcode(1, 1, 0x14);
/// EVEX.W bit, in addition to the prefix: 512-bit instructions on pairs of elements need it.
pub(super) const WIDE: u8 = 0x80;
/// `vinsertf128`, `vinsertf32x4`: inserts 128 bits at a position.
pub(super) const INSERT_UPPER: Opcode = opcode(3, 1, 0x18);

/// Number of registers for a transpose of four rows.
const TRANSPOSED: usize = 8;

/// Log2 of the bytes in a quarter of a 512-bit vector.
const QUARTER: u32 = 4;
/// Log2 of the bytes in half of a 512-bit vector.
const HALF_VECTOR: u32 = 5;
/// `vmovhps`: stores the upper 64 bits of the lowest 128.
pub(super) const STORE_UPPER_PAIR: Opcode = opcode(1, 0, 0x17);

/// `vpcmpeqd`: with the same register twice, it sets the bits of all lanes.
const EQUAL_BITS: Opcode = opcode(1, 1, 0x76);

impl X86 {
    /// Gathers 32-bit elements at the indices in `index`. Overwrites `spare`.
    pub(super) fn gather_words(&mut self, to: Vector, at: At, index: Vector, spare: Vector) {
        if self.isa == Isa::Avx512 {
            self.code.vex(ALL_OF_MASK, true, [7, 7], RegisterOrMemory::Register(7));
            self.code.evex_indexed(GATHER, evex::BITS_512 | 7, to, (address(at), TIMES_FOUR), index);
        } else {
            // The AVX2 gather takes its mask from a vector, which it overwrites.
            self.code.vex(EQUAL_BITS, true, [spare, spare], RegisterOrMemory::Register(spare));
            self.code.vex_indexed(GATHER, true, [to, spare], (address(at), TIMES_FOUR), index);
        }
    }

    /// Loads every other element from `at` on, 4 or 8 of them, without reading past the last.
    pub(super) fn load_every_other(&mut self, v: Vector, lanes: u8, at: MemoryOperand) {
        // In each half, elements 0 and 2 of the first operand, then 1 and 3 of the second.
        const EVEN_ODD: i64 = 0b11_01_10_00;
        let behind = MemoryOperand { disp: at.disp.wrapping_add(4 * (i32::from(lanes) - 1)), ..at };
        let is_256 = lanes == 8;
        self.code.vex(LOAD, is_256, [v, 0], at.into());
        self.code.vex(SHUFFLE, is_256, [v, v], behind.into());
        self.code.immediate(EVEN_ODD, 1);
        if is_256 {
            self.code.vex(PERMUTE_PAIRS, true, [v, 0], RegisterOrMemory::Register(v));
            self.code.immediate(EVEN_ODD, 1);
        }
    }

    /// Prefetches the cache line of an address: `prefetcht0`, `prefetcht1` or `prefetchw`.
    pub(super) fn prefetch_line(&mut self, at: At, hint: PrefetchHint) {
        let (opcode, extension) = match hint {
            PrefetchHint::Read(PrefetchLevel::L1) => (0x0f18, 1),
            PrefetchHint::Read(PrefetchLevel::L2) => (0x0f18, 2),
            PrefetchHint::Write => (0x0f0d, 1),
        };
        self.code.legacy(false, opcode, extension, address(at));
    }

    /// Copies `lanes` elements between addresses with strides in bytes, in order, through eax.
    pub(super) fn move_elements(
        &mut self,
        of: ElementType,
        to: (MemoryOperand, i32),
        from: (MemoryOperand, i32),
        lanes: u8,
    ) {
        const OF_16_BITS: u8 = 0x66;
        let element = |(at, stride): (MemoryOperand, i32), i: u8| MemoryOperand {
            disp: at.disp.wrapping_add(stride.wrapping_mul(i32::from(i))),
            ..at
        };
        let (read, write) = match of.bytes() {
            4 => (0x8b, 0x89),
            2 => (Narrow::of(of).read, 0x89),
            _ => (Narrow::of(of).read, 0x88),
        };

        let rax = Integer::Rax as u8;
        for i in 0..lanes {
            self.code.legacy(false, read, rax, element(from, i));
            // The prefix selects a 16-bit store.
            if of.bytes() == 2 {
                self.code.plain(&[OF_16_BITS]);
            }
            self.code.legacy(false, write, rax, element(to, i));
        }
    }

    /// Returns the number of registers from `first` on that a transpose overwrites; `None` if it is
    /// not supported. Except with 16 columns of wider elements than bytes they must be below 16,
    /// since VEX encodes no others.
    pub(super) fn transposed_registers(
        &self,
        [rows, columns]: [u8; 2],
        of: ElementType,
        first: Vector,
    ) -> Option<usize> {
        let rows = match (of, rows) {
            (ElementType::Word, rows) => rows,
            (ElementType::Byte | ElementType::SignedByte, 4 | 8 | 16) => {
                return (usize::from(first) + OF_BYTES <= 16).then_some(OF_BYTES);
            }
            // 8 rows of 16-bit elements are 4 rows of pairs.
            (_, 8) => 4,
            _ => return None,
        };
        let (most, registers) = match [rows, columns] {
            [4, 4 | 8] => (16, TRANSPOSED),
            [4, 16] if self.isa == Isa::Avx512 => (self.registers(), TRANSPOSED),
            [_, 8 | 16] if of == ElementType::Word && rows == columns && rows == self.lanes() => {
                (self.registers(), usize::from(rows) + 1)
            }
            _ => return None,
        };
        (usize::from(first) + registers <= most).then_some(registers)
    }

    /// Transposes a square block with as many rows as lanes. Columns are loaded whole and merged
    /// pair by pair ([`X86::merges`]), neighbours first.
    pub(super) fn transpose_square(&mut self, rows: &[At], columns: &[At], first: Vector, store: Opcode) {
        let merges = self.merges();
        let mut held: Vec<Vector> = (first..).take(columns.len()).collect();
        let mut free = first + columns.len() as u8;
        for (&v, &column) in held.iter().zip(columns) {
            self.whole(LOAD, [v, 0], address(column).into(), VECTOR);
        }
        for (level, merge) in merges.iter().enumerate() {
            for a in (0..held.len()).filter(|a| a & 1 << level == 0) {
                let [from, other] = [held[a], held[a | 1 << level]];
                self.merge_two(merge, [free, other], [from, other]);
                held[a] = free;
                // Every merge leaves one register free for the next.
                free = from;
            }
        }

        // The first merge separates elements two positions apart, the second neighbours, the third
        // halves of the vector, the fourth quarters. So the bits of a row's number are permuted.
        let row_of = |slot: usize| match merges.len() {
            3 => slot & 4 | (slot & 1) << 1 | (slot & 2) >> 1,
            _ => (slot & 4) << 1 | (slot & 8) >> 1 | (slot & 1) << 1 | (slot & 2) >> 1,
        };
        for (slot, v) in held.into_iter().enumerate() {
            self.whole(store, [v, 0], address(rows[row_of(slot)]).into(), VECTOR);
        }
    }

    /// Transposes four rows of words; `store` is the store instruction.
    pub(super) fn transpose_columns(&mut self, rows: [At; 4], columns: &[At], first: Vector, store: Opcode) {
        self.load_transposed(columns, first);
        for (v, to) in (first..).zip(rows) {
            match columns.len() {
                16 => self.code.evex(store, evex::BITS_512, [v, 0], address(to).into(), VECTOR),
                lanes => self.code.vex(store, lanes == 8, [v, 0], address(to).into()),
            }
        }
    }

    /// Transposes eight rows of 16-bit elements as four rows of pairs. The lower halves of a pair
    /// row are one row, the upper halves the next.
    pub(super) fn transpose_halves(&mut self, rows: &[At], columns: &[At], first: Vector, store: Opcode) {
        // Order of 64-bit parts: the lower words of both halves, then the upper ones.
        const HALVES: i64 = 0b11_01_10_00;
        self.load_transposed(columns, first);
        // The upper half of the transpose's registers is free again.
        let (lower, upper) = (first + TRANSPOSED as u8 / 2, first + TRANSPOSED as u8 / 2 + 1);
        for (v, pair) in (first..).zip(rows.chunks_exact(2)) {
            let [low, high] = [pair[0], pair[1]].map(|at| RegisterOrMemory::from(address(at)));
            if columns.len() == 16 {
                self.code.evex(LOWER_HALVES, evex::BITS_512, [v, 0], RegisterOrMemory::Register(lower), HALF_VECTOR);
                self.unary(Unary::ShiftRight(16), v, v);
                self.code.evex(LOWER_HALVES, evex::BITS_512, [v, 0], RegisterOrMemory::Register(upper), HALF_VECTOR);
                self.code.evex(store, evex::BITS_256, [lower, 0], low, HALF_VECTOR);
                self.code.evex(store, evex::BITS_256, [upper, 0], high, HALF_VECTOR);
                continue;
            }

            let is_256 = columns.len() == 8;
            // A shift left and right clears the upper half of a lane; a shift right extracts it.
            for (direction, to, from) in [(6, lower, v), (2, lower, lower), (2, upper, v)] {
                self.code.vex(SHIFT, is_256, [direction, to], RegisterOrMemory::Register(from));
                self.code.immediate(16, 1);
            }
            self.code.vex(PACK, is_256, [lower, lower], RegisterOrMemory::Register(upper));
            if !is_256 {
                self.code.vex(STORE_PAIR, false, [lower, 0], low);
                self.code.vex(STORE_UPPER_PAIR, false, [lower, 0], high);
                continue;
            }
            self.code.vex(PERMUTE_PAIRS, true, [lower, 0], RegisterOrMemory::Register(lower));
            self.code.immediate(HALVES, 1);
            self.code.vex(EXTRACT_QUARTER, true, [lower, 0], RegisterOrMemory::Register(upper));
            self.code.immediate(1, 1);
            self.code.vex(store, false, [lower, 0], low);
            self.code.vex(store, false, [upper, 0], high);
        }
    }

    /// Loads four words of each column, transposed. Four columns go to one quarter of each of four
    /// registers, which become the rows.
    fn load_transposed(&mut self, columns: &[At], first: Vector) {
        let is_wide = columns.len() == 16;
        for (number, &column) in columns.iter().enumerate() {
            let (v, quarter, place) = (first + number as u8 % 4, number / 4, address(column).into());
            match (quarter, is_wide) {
                (0, true) => self.code.evex(LOAD, 0, [v, 0], place, QUARTER),
                (0, false) => self.code.vex(LOAD, false, [v, 0], place),
                (_, true) => self.code.evex(INSERT_UPPER, evex::BITS_512, [v, v], place, QUARTER),
                (_, false) => self.code.vex(INSERT_UPPER, true, [v, v], place),
            }
            if quarter > 0 {
                self.code.immediate(quarter as i64, 1);
            }
        }

        let mut unpack = |op: Opcode, to: u8, a: u8, b: u8| {
            let (registers, b) = ([first + to, first + a], RegisterOrMemory::Register(first + b));
            match is_wide {
                true => self.code.evex(op, evex::BITS_512, registers, b, VECTOR),
                false => self.code.vex(op, true, registers, b),
            }
        };
        for (op, to, a) in [(UNPACK_LOW, 4, 0), (UNPACK_HIGH, 5, 0), (UNPACK_LOW, 6, 2), (UNPACK_HIGH, 7, 2)] {
            unpack(op, to, a, a + 1);
        }
        let [low, high] = [UNPACK_LOW_PAIRS, UNPACK_HIGH_PAIRS].map(|op| match is_wide {
            true => Opcode { prefix: op.prefix | WIDE, ..op },
            false => op,
        });
        for (op, to, a) in [(low, 0, 4), (high, 1, 4), (low, 2, 5), (high, 3, 5)] {
            unpack(op, to, a, a + 2);
        }
    }

    /// Returns the number of registers from `first` on that [`X86::interleave_rows`] and its
    /// inverse overwrite: two per row and one for lane numbers.
    pub(super) fn interleave_registers(&self, rows: u8, first: Vector) -> Option<usize> {
        let registers = 2 * usize::from(rows) + 1;
        (usize::from(first) + registers <= self.registers()).then_some(registers)
    }

    /// Interleaves `k` rows into `k` vectors. Because `k` is odd, the elements of a row belong in
    /// different lanes of the result vectors. So each row is first permuted, each element to its
    /// lane; then each result vector is blended from the permuted rows:
    ///
    /// ```text
    /// rows         a0 a1 a2 a3 a4 a5 a6 a7    permuted  a0 a3 a6 a1 a4 a7 a2 a5     vectors  a0 b0 c0 a1 b1 c1 a2 b2
    ///              b0 b1 b2 b3 b4 b5 b6 b7              b5 b0 b3 b6 b1 b4 b7 b2              c2 a3 b3 c3 a4 b4 c4 a5
    ///              c0 c1 c2 c3 c4 c5 c6 c7              c2 c5 c0 c3 c6 c1 c4 c7              b5 c5 a6 b6 c6 a7 b7 c7
    /// ```
    pub(super) fn interleave_rows(&mut self, to: At, rows: &[At], first: Vector) {
        let (k, lanes) = (rows.len(), usize::from(self.lanes()));
        let (merged, numbers) = (first + k as u8, first + 2 * k as u8);
        // Element `l` of row `r` belongs in lane `(r + k * l) % lanes`. So lane `m` takes element
        // `(m - r) / k` of the row, modulo the number of lanes.
        let step = inverse(k, lanes);
        for (r, &row) in rows.iter().enumerate() {
            self.load_numbers(numbers, (lanes - r) * step, step);
            self.whole(PERMUTE, [first + r as u8, numbers], address(row).into(), VECTOR);
        }
        self.merge_lanes([first, merged], k, |vector, lane| (vector * lanes + lane) % k);
        for vector in 0..k {
            let at = address(to.offset_by(vector, 4 * lanes as i32));
            self.whole(STORE, [merged + vector as u8, 0], at.into(), VECTOR);
        }
    }

    /// The inverse of [`X86::interleave_rows`].
    pub(super) fn deinterleave_rows(&mut self, rows: &[At], from: At, first: Vector) {
        let (k, lanes) = (rows.len(), usize::from(self.lanes()));
        let (merged, numbers) = (first + k as u8, first + 2 * k as u8);
        for vector in 0..k {
            let at = address(from.offset_by(vector, 4 * lanes as i32));
            self.whole(LOAD, [first + vector as u8, 0], at.into(), VECTOR);
        }
        // Lane `l` of vector `v` belongs to row `(v * lanes + l) % k`. Solved for `v`:
        let vectors = inverse(lanes % k, k);
        self.merge_lanes([first, merged], k, |row, lane| (row + k - lane % k) * vectors % k);
        for (r, &row) in rows.iter().enumerate() {
            let v = merged + r as u8;
            self.load_numbers(numbers, r, k);
            self.whole(PERMUTE, [v, numbers], RegisterOrMemory::Register(v), VECTOR);
            self.whole(STORE, [v, 0], address(row).into(), VECTOR);
        }
    }

    /// Blends `k` registers into `k` others. Every `k`-th lane of a result comes from the same
    /// operand, whose number is `of(result, lane)`.
    fn merge_lanes(&mut self, [from, to]: [Vector; 2], k: usize, of: impl Fn(usize, usize) -> usize) {
        for number in 0..k as u8 {
            self.whole(COPY, [to + number, 0], RegisterOrMemory::Register(from), VECTOR);
        }
        for first in 0..k {
            let bits = (first..usize::from(self.lanes())).step_by(k).fold(0, |bits, lane| bits | 1 << lane);
            if self.isa == Isa::Avx512 {
                self.set_eax(bits);
                self.code.vex(SET_MASK, false, [7, 0], Integer::Rax.into());
            }
            for number in 0..k {
                let (v, source) = (to + number as u8, of(number, first));
                let place = RegisterOrMemory::Register(from + source as u8);
                match (source, self.isa == Isa::Avx512) {
                    // These lanes were copied above.
                    (0, _) => {}
                    (_, true) => self.code.evex(COPY, evex::BITS_512 | 7, [v, 0], place, VECTOR),
                    (_, false) => {
                        self.code.vex(BLEND_LANES, true, [v, v], place);
                        self.code.immediate(bits.into(), 1);
                    }
                }
            }
        }
    }

    /// Sets lane `l` of `v` to the lane number `first + step * l`, modulo the number of lanes.
    fn load_numbers(&mut self, v: Vector, first: usize, step: usize) {
        let lanes = self.lanes();
        self.whole(LOAD, [v, 0], RegisterOrMemory::Constant, VECTOR);
        let [first, step] = [first, step].map(|number| (number % usize::from(lanes)) as u32);
        self.code.goal(Goal::Lanes { first, step, modulus: lanes.into(), lanes });
    }
}

/// Returns the multiplicative inverse of `of` modulo `modulus`; 0 if there is none.
fn inverse(of: usize, modulus: usize) -> usize {
    (0..modulus).find(|number| number * of % modulus == 1).unwrap_or(0)
}
