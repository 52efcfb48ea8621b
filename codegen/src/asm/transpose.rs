//! Groups of copies that transpose: blocks of rows whose columns are far apart in the source.
//!
//! 16-bit elements are transposed in pairs, as words, and separated at the end. So a block has
//! twice as many rows.
//!
//! Bytes are interleaved, in blocks of 16, 8 or 4 rows.
//!
//! A block of four rows of words reads four elements of each column. If columns are a multiple of
//! [`SET_PERIOD_BYTES`] apart, they would evict each other from the first-level cache before the
//! next four elements are read. In that case a block has as many rows as a vector has lanes.

use smallvec::SmallVec;

use super::instruction_set::{Address, ElementType, Shape, Vector, Vectors};
use super::leaf::{self, BlockOp, LeafInput, LeafSource, MemoryAccess};
use super::nest::ValueTree;
use autotune_ir::machine::cpu::SET_PERIOD_BYTES;
use autotune_ir::program::StoreMode;

/// Most bytes that a block reads of each column, unless it is square.
const COLUMN: usize = 16;
/// Numbers of rows of blocks that are not square.
const ROWS: [usize; 3] = [16, 8, 4];

/// A block to transpose. With elements of `bytes` bytes, the one in row `r`, lane `l` is read at
/// `from + bytes * r + stride * l` and written to `to[r] + bytes * l`.
pub(super) struct TransposeBlock {
    to: SmallVec<[Address; 16]>,
    from: Address,
    stride: i32,
    lanes: u8,
    of: ElementType,
}

impl TransposeBlock {
    /// Returns the block that the first operations copy, if they do, and the number of registers
    /// from `first` on that it overwrites.
    pub(super) fn of(code: leaf::Block, ops: &[BlockOp], isa: &impl Vectors, first: Vector) -> Option<(Self, usize)> {
        let (_, from) = copy_of_bits(code, ops.first()?)?;
        let Shape::Strided { lanes, stride } = from.shape else { return None };
        let square = (i64::from(stride) % SET_PERIOD_BYTES == 0).then_some(usize::from(lanes));
        let fitting = |rows: usize| {
            let registers = isa.transpose_registers([rows as u8, lanes], from.of, first)?;
            Some((Self::of_rows(code, ops, rows)?, registers))
        };
        let shorter = ROWS.into_iter().filter(|rows| rows * from.of.bytes() as usize <= COLUMN);
        // Square blocks come first, if columns would compete for cache sets.
        square.into_iter().chain(shorter).find_map(fitting)
    }

    /// Returns the block with this number of rows, if the operations copy one.
    fn of_rows(code: leaf::Block, ops: &[BlockOp], count: usize) -> Option<Self> {
        let rows: Option<SmallVec<[(MemoryAccess, MemoryAccess); 16]>> =
            ops.get(..count)?.iter().map(|op| copy_of_bits(code, op)).collect();
        let rows = rows?;
        let &(_, from) = rows.first()?;
        let Shape::Strided { lanes, stride } = from.shape else { return None };
        let is_row = |(r, (to, row)): (usize, &(MemoryAccess, MemoryAccess))| {
            let disp = from.at.disp.checked_add(from.of.bytes() as i32 * r as i32);
            to.shape == Shape::Lanes(lanes)
                // Within one buffer, a row could overwrite elements that are read later.
                && code.buffer(*to) != code.buffer(from)
                && Some(row.at.disp) == disp
                && (row.at.pointer, row.shape, row.of) == (from.at.pointer, from.shape, from.of)
        };
        let is_block = rows.iter().enumerate().all(is_row);
        let to = || rows.iter().map(|row| row.0.at).collect();
        is_block.then(|| Self { to: to(), from: from.at, stride, lanes, of: from.of })
    }

    pub(super) fn rows(&self) -> usize {
        self.to.len()
    }

    /// Emits the block, using the vector registers from `first` on. Streams whole vectors relative
    /// to the pointers in the bit set `streamed`.
    pub(super) fn emit(&self, isa: &mut impl Vectors, first: Vector, streamed: u32) {
        let columns: SmallVec<[Address; 16]> =
            (0..usize::from(self.lanes)).map(|lane| self.from.offset_by(lane, self.stride)).collect();
        let whole = isa.lanes();
        let is_streamed = |&at: &Address| {
            let memory = MemoryAccess { at, shape: Shape::Lanes(self.lanes), of: self.of };
            memory.whole_vector(whole.into()).is_some() && streamed & 1 << at.pointer != 0
        };
        isa.transpose((&self.to, &columns), self.of, first, self.to.iter().all(is_streamed));
    }
}

/// Returns destination and source, if an operation only copies words.
pub(super) fn copy(code: leaf::Block, op: &BlockOp) -> Option<(MemoryAccess, MemoryAccess)> {
    copy_of_bits(code, op).filter(|(to, _)| to.of == ElementType::Word)
}

/// Returns destination and source, if an operation only copies bits.
fn copy_of_bits(code: leaf::Block, op: &BlockOp) -> Option<(MemoryAccess, MemoryAccess)> {
    match assignment(code, op)? {
        (to, LeafSource::Memory(from)) if copies_bits(to, from) => Some((to, from)),
        _ => None,
    }
}

/// True if elements keep their bits on the way from one place to the other. Conversions from and to
/// f16 and bf16 change NaN.
pub(super) fn copies_bits(to: MemoryAccess, from: MemoryAccess) -> bool {
    to.of == from.of && !matches!(to.of, ElementType::F16 | ElementType::Bf16)
}

/// Returns destination and source of an operation that is a plain copy without conversion; `None`
/// for any other.
pub(super) fn assignment(code: leaf::Block, op: &BlockOp) -> Option<(MemoryAccess, LeafSource)> {
    let BlockOp::Store {
        dst: LeafInput::Source(to),
        mode: StoreMode::Assign,
        value: value @ ValueTree { steps: None, .. },
    } = *op
    else {
        return None;
    };
    let &[LeafInput::Source(from)] = code.inputs_of(value) else { return None };
    match code.sources[to as usize] {
        LeafSource::Memory(to) => Some((to, code.sources[from as usize])),
        LeafSource::Constant(_) => None,
    }
}
