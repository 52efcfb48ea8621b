//! Transposes of blocks of bytes.

use super::X86;
use super::control::address;
use super::encode::{Opcode, RegisterOrMemory};
use super::moves::{INSERT_UPPER, STORE_UPPER_PAIR};
use super::narrow::{EXTRACT_BYTE, EXTRACT_HALF, EXTRACT_WORD, LOAD_PAIR, STORE_PAIR};
use super::vectors::{EXTRACT_QUARTER, LOAD, MOVE_INTEGER, PERMUTE_PAIRS, opcode};
use crate::asm::instruction_set::{Address as At, Vector};

/// `vpunpcklbw`: interleaves the lower bytes of two vectors in each 128-bit part.
const UNPACK_LOW_BYTES: Opcode = opcode(1, 1, 0x60);
/// `vpunpckhbw`: interleaves the upper bytes.
const UNPACK_HIGH_BYTES: Opcode = opcode(1, 1, 0x68);

/// Bytes of a 128-bit part of a vector.
const PART: usize = 16;
/// Largest number of columns in separate registers.
const MOST: usize = 8;
/// Number of registers for a transpose, of which one is a spare.
pub(super) const OF_BYTES: usize = MOST + 1;

impl X86 {
    /// Transposes 4, 8 or 16 rows of up to 16 columns, which are split into powers of two. `store`
    /// is the instruction for rows of 16 bytes.
    pub(super) fn transpose_bytes(&mut self, rows: &[At], columns: &[At], first: Vector, store: Opcode) {
        let mut from = 0;
        for width in [16, 8, 4, 2, 1].into_iter().filter(|width| columns.len() & width != 0) {
            let rows: Vec<At> = rows.iter().map(|row| row.offset_by(from, 1)).collect();
            let held = self.interleave_columns(rows.len(), &columns[from..][..width], first);
            self.store_bytes(&rows, width, &held, store);
            from += width;
        }
    }

    /// Loads columns of `rows` bytes and interleaves them: the bytes of a row become neighbours.
    /// Returns registers that hold the rows in sequence. With 16 rows and columns, each has the
    /// lower halves of two rows in its lower 128 bits, the upper halves in the next ones.
    ///
    /// Each round interleaves columns that are half of the remaining ones apart:
    ///
    /// ```text
    /// 0, 1, 2, 3, 4, 5, 6, 7   →   04, 15, 26, 37   →   0246, 1357   →   01234567
    /// ```
    fn interleave_columns(&mut self, rows: usize, columns: &[At], first: Vector) -> Vec<Vector> {
        let is_256 = rows.min(columns.len()) == 16;
        let (near, far) = columns.split_at(columns.len().min(MOST));
        let mut held: Vec<Vector> = (first..).take(near.len()).collect();
        let mut free = first + near.len() as u8;
        for (number, &v) in held.iter().enumerate() {
            self.load_column(rows, v, near[number]);
            match far.get(number) {
                Some(&other) if is_256 => {
                    self.code.vex(INSERT_UPPER, true, [v, v], address(other).into());
                    self.code.immediate(1, 1);
                }
                Some(&other) => {
                    self.load_column(rows, free, other);
                    self.code.vex(UNPACK_LOW_BYTES, false, [v, v], RegisterOrMemory::Register(free));
                }
                None => {}
            }
        }

        // Bytes in the 128-bit parts of each register.
        let mut bytes = if is_256 { rows } else { rows * columns.len() / near.len() };
        for _ in 0..near.len().ilog2() {
            let mut next = Vec::with_capacity(held.len());
            let (ahead, behind) = held.split_at(held.len() / 2);
            for (&a, &b) in ahead.iter().zip(behind) {
                self.code.vex(UNPACK_LOW_BYTES, is_256, [free, a], RegisterOrMemory::Register(b));
                next.push(free);
                free = b;
                // The upper halves of registers that are not full have nothing to interleave.
                if bytes == PART {
                    self.code.vex(UNPACK_HIGH_BYTES, is_256, [a, a], RegisterOrMemory::Register(b));
                    next.push(a);
                }
            }
            (held, bytes) = (next, PART.min(2 * bytes));
        }
        held
    }

    /// Loads 4, 8 or 16 bytes to the lower end of a register.
    fn load_column(&mut self, rows: usize, v: Vector, at: At) {
        let load = match rows {
            4 => MOVE_INTEGER,
            8 => LOAD_PAIR,
            _ => LOAD,
        };
        self.code.vex(load, false, [v, 0], address(at).into());
    }

    /// Stores rows of `width` bytes that [`X86::interleave_columns`] left in registers.
    fn store_bytes(&mut self, rows: &[At], width: usize, held: &[Vector], store: Opcode) {
        // Order of 64-bit parts: the lower and upper half of one row, then those of the next.
        const HALVES: i64 = 0b11_01_10_00;
        let extract = [EXTRACT_BYTE, EXTRACT_HALF, EXTRACT_WORD];

        for (&v, rows) in held.iter().zip(rows.chunks(rows.len().div_ceil(held.len()))) {
            match (width, rows) {
                (16, &[low, high]) => {
                    self.code.vex(PERMUTE_PAIRS, true, [v, 0], RegisterOrMemory::Register(v));
                    self.code.immediate(HALVES, 1);
                    self.code.vex(store, false, [v, 0], address(low).into());
                    self.code.vex(EXTRACT_QUARTER, true, [v, 0], RegisterOrMemory::Register(v));
                    self.code.immediate(1, 1);
                    self.code.vex(store, false, [v, 0], address(high).into());
                }

                (16, rows) => {
                    rows.iter().for_each(|&row| self.code.vex(store, false, [v, 0], address(row).into()));
                }
                (8, rows) => {
                    for (op, &row) in [STORE_PAIR, STORE_UPPER_PAIR].into_iter().zip(rows) {
                        self.code.vex(op, false, [v, 0], address(row).into());
                    }
                }
                (_, rows) => {
                    for (number, &row) in (0..).zip(rows) {
                        self.code.vex(extract[width.ilog2() as usize], false, [v, 0], address(row).into());
                        self.code.immediate(number, 1);
                    }
                }
            }
        }
    }
}
