//! Copies that transpose: blocks of four rows whose columns lie far apart in the source.

use smallvec::SmallVec;

use super::instruction_set::{Address, ElementType, Shape, Vector, Vectors};
use super::leaf::{self, Input, Memory, Op, Source};
use super::nest::Tree;
use autotune_ir::program::StoreMode;

/// Rows of a block.
pub(super) const ROWS: usize = 4;

/// A block: row `r`, lane `l` is read at `from + 4 * r + stride * l` and written to `to[r] + 4 * l`.
pub(super) struct Block {
    to: [Address; ROWS],
    from: Address,
    stride: i32,
    pub(super) lanes: u8,
}

impl Block {
    /// The block that the first operations copy, if they do.
    pub(super) fn of(code: leaf::Block, ops: &[Op]) -> Option<Self> {
        let copy = |op: &Op| copy(code, op);
        let rows: [(Memory, Memory); ROWS] = match ops.get(..ROWS)? {
            [a, b, c, d] => [copy(a)?, copy(b)?, copy(c)?, copy(d)?],
            _ => return None,
        };
        let (_, from) = rows[0];
        let Shape::Strided { lanes, stride } = from.shape else { return None };
        let buffer = |memory: &Memory| code.pointers[usize::from(memory.at.pointer)];
        let is_row = |(r, (to, row)): (usize, &(Memory, Memory))| {
            let disp = from.at.disp.checked_add(4 * r as i32);
            to.shape == Shape::Lanes(lanes)
                && buffer(to) != buffer(&from)
                && Some(row.at.disp) == disp
                && (row.at.pointer, row.shape) == (from.at.pointer, from.shape)
        };
        rows.iter().enumerate().all(is_row).then(|| Self { to: rows.map(|r| r.0.at), from: from.at, stride, lanes })
    }

    /// Copies the block through the vector registers from `first` on; streams whole vectors behind the pointers that `streamed` has a bit for.
    pub(super) fn emit(&self, isa: &mut impl Vectors, first: Vector, streamed: u32) {
        let columns: SmallVec<[Address; 16]> =
            (0..usize::from(self.lanes)).map(|lane| self.from.behind(lane, self.stride)).collect();
        let whole = isa.lanes();
        let is_streamed = |&at: &Address| {
            let memory = Memory { at, shape: Shape::Lanes(self.lanes), of: ElementType::F32 };
            memory.whole_vector(whole.into()).is_some() && streamed & 1 << at.pointer != 0
        };
        isa.transpose(self.to, &columns, first, self.to.iter().all(is_streamed));
    }
}

/// Where an operation copies to and from, if that is all it does; elements that are stored as they come.
pub(super) fn copy(code: leaf::Block, op: &Op) -> Option<(Memory, Memory)> {
    let Op::Store { dst: Input::Source(to), mode: StoreMode::Assign, value: value @ Tree { steps: None, .. } } = *op
    else {
        return None;
    };
    let &[Input::Source(from)] = code.inputs_of(value) else { return None };
    match [to, from].map(|id| code.sources[id as usize]) {
        [Source::Memory(to), Source::Memory(from)] if [to.of, from.of] == [ElementType::F32; 2] => Some((to, from)),
        _ => None,
    }
}
