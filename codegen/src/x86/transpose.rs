//! Copies that transpose: blocks of four rows whose columns lie far apart in the source.

use super::block::Code;
use super::emit::{Emitter, Shape, Vector};
use super::encode::Address;
use super::leaf::{Input, Memory, Op, Source};
use autotune_ir::program::StoreMode;

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
    pub(super) fn of(code: Code, ops: &[Op]) -> Option<Self> {
        let copy = |op: &Op| copy(code, op);
        let rows: [(Memory, Memory); ROWS] = match ops.get(..ROWS)? {
            [a, b, c, d] => [copy(a)?, copy(b)?, copy(c)?, copy(d)?],
            _ => return None,
        };
        let (_, from) = rows[0];
        let Shape::Strided { lanes: lanes @ (4 | 8), stride } = from.shape else { return None };
        let buffer = |memory: &Memory| code.pointers[usize::from(memory.pointer)];
        let is_row = |(r, (to, row)): (usize, &(Memory, Memory))| {
            let disp = from.disp.checked_add(4 * r as i32);
            to.shape == Shape::Lanes(lanes)
                && buffer(to) != buffer(&from)
                && Some(row.disp) == disp
                && Memory { disp: from.disp, ..*row } == from
        };
        rows.iter().enumerate().all(is_row).then(|| Self { to: rows.map(|r| r.0), from, stride, lanes })
    }

    /// Copies the block through the vector registers from `first` on, all of them below 16.
    pub(super) fn emit(&self, e: &mut Emitter, at: impl Fn(&Memory) -> Address, first: Vector) {
        let from = at(&self.from);
        let column =
            |lane: u8| Address { disp: from.disp.wrapping_add(self.stride.wrapping_mul(i32::from(lane))), ..from };
        let columns: Vec<Address> = (0..self.lanes).map(column).collect();
        e.transpose([0, 1, 2, 3].map(|row| at(&self.to[row])), &columns, first);
    }
}

/// Where an operation copies to and from.
fn copy(code: Code, op: &Op) -> Option<(Memory, Memory)> {
    let Op::Store { dst, mode: StoreMode::Assign, value } = op else { return None };
    let &[Input::Source(id)] = code.inputs_of(*value) else { return None };
    match code.sources[id as usize] {
        Source::Memory(from) => Some((*dst, from)),
        Source::Constant(_) => None,
    }
}
