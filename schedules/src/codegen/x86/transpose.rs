//! Copies that transpose: blocks of four rows whose columns lie far apart in the source.

use iced_x86::{Code, Instruction, Register};

use super::emit::{Address, Emitter, Shape, Vector, memory};
use super::leaf::{Memory, Op, Place, Value};
use crate::program::StoreMode;

/// Rows of a block.
pub(super) const ROWS: usize = 4;
/// Vector registers that a block takes.
pub(super) const REGISTERS: usize = 2 * ROWS;

/// A block: row `r`, lane `l` is read at `from + 4 * r + stride * l` and written to `to[r] + 4 * l`.
pub(super) struct Block {
    to: [Memory; ROWS],
    from: Memory,
    stride: i32,
    lanes: u8,
}

impl Block {
    /// The block that the first operations copy, if they do.
    pub(super) fn of(ops: &[Op]) -> Option<Self> {
        let rows: [(Memory, Memory); ROWS] = match ops.get(..ROWS)? {
            [a, b, c, d] => [copy(a)?, copy(b)?, copy(c)?, copy(d)?],
            _ => return None,
        };
        let (_, from) = rows[0];
        let Shape::Strided { lanes: lanes @ (4 | 8), stride } = from.shape else { return None };
        let is_row = |(r, (to, row)): (usize, &(Memory, Memory))| {
            let disp = from.disp.checked_add(4 * r as i32);
            to.shape == Shape::Lanes(lanes)
                && to.buffer != from.buffer
                && Some(row.disp) == disp
                && Memory { disp: from.disp, ..*row } == from
        };
        rows.iter().enumerate().all(is_row).then(|| Self { to: rows.map(|r| r.0), from, stride, lanes })
    }

    /// Copies the block through the vector registers from `first` on, all of them below 16.
    pub(super) fn emit(&self, e: &mut Emitter, at: impl Fn(&Memory) -> Address, first: Vector) {
        let xmm = |i: usize| Register::XMM0 + u32::from(first) + i as u32;
        let ymm = |i: usize| Register::YMM0 + u32::from(first) + i as u32;
        let from = at(&self.from);
        let column = |lane: usize| {
            memory(Address { disp: from.disp.wrapping_add(self.stride.wrapping_mul(lane as i32)), ..from })
        };
        for i in 0..ROWS {
            e.push(Instruction::with2(Code::VEX_Vmovups_xmm_xmmm128, xmm(i), column(i)));
            if self.lanes == 8 {
                let insert = Code::VEX_Vinsertf128_ymm_ymm_xmmm128_imm8;
                e.push(Instruction::with4(insert, ymm(i), ymm(i), column(i + ROWS), 1));
            }
        }
        let (low, high) = (Code::VEX_Vunpcklps_ymm_ymm_ymmm256, Code::VEX_Vunpckhps_ymm_ymm_ymmm256);
        for (code, to, a) in [(low, 4, 0), (high, 5, 0), (low, 6, 2), (high, 7, 2)] {
            e.push(Instruction::with3(code, ymm(to), ymm(a), ymm(a + 1)));
        }
        let (low, high) = (Code::VEX_Vunpcklpd_ymm_ymm_ymmm256, Code::VEX_Vunpckhpd_ymm_ymm_ymmm256);
        for (code, to, a) in [(low, 0, 4), (high, 1, 4), (low, 2, 5), (high, 3, 5)] {
            e.push(Instruction::with3(code, ymm(to), ymm(a), ymm(a + 2)));
        }
        for (i, to) in self.to.iter().enumerate() {
            e.push(if self.lanes == 8 {
                Instruction::with2(Code::VEX_Vmovups_ymmm256_ymm, memory(at(to)), ymm(i))
            } else {
                Instruction::with2(Code::VEX_Vmovups_xmmm128_xmm, memory(at(to)), xmm(i))
            });
        }
    }
}

/// Where an operation copies to and from.
fn copy(op: &Op) -> Option<(Memory, Memory)> {
    match op {
        Op::Store { dst, mode: StoreMode::Assign, value: Value::Load(Place::Memory(from)) } => Some((*dst, *from)),
        _ => None,
    }
}
