//! Interleaving copies, such as between images with channels first (rows) and channels last
//! (groups): three rows of whole vectors correspond to three vectors of groups.

use smallvec::SmallVec;

use super::instruction_set::{Address, Shape, Vector, Vectors};
use super::leaf::{self, BlockOp};
use super::transpose::copy;

/// Supported group sizes. With an even size, the elements of a row would not all be in different
/// lanes of the vectors.
const GROUPS: [i32; 3] = [3, 5, 7];

/// A group of copies that interleave or deinterleave rows: element `r + l * rows.len()` of `groups`
/// corresponds to element `l` of `rows[r]`, for every lane `l`.
pub(super) struct Interleave {
    rows: SmallVec<[Address; 7]>,
    groups: Address,
    /// True to read the groups (deinterleave), false to write them (interleave).
    is_deinterleave: bool,
    /// Positions of the copy operations that the interleaving replaces.
    pub(super) ops: SmallVec<[usize; 8]>,
}

impl Interleave {
    /// Returns the interleaving that the first operation forms with some later ones; `None` if
    /// there is none.
    pub(super) fn of(code: leaf::Block, ops: &[BlockOp], lanes: u8) -> Option<Self> {
        let (to, from) = copy(code, ops.first()?)?;
        let (is_deinterleave, groups_operand) = match (to.shape, from.shape) {
            (Shape::Lanes(n), Shape::Strided { .. }) if n == lanes => (true, from),
            (Shape::Strided { .. }, Shape::Lanes(n)) if n == lanes => (false, to),
            _ => return None,
        };
        let Shape::Strided { lanes: groups, stride } = groups_operand.shape else { return None };
        let size = GROUPS.into_iter().find(|size| stride == 4 * size)?;
        // Within one buffer, a row could overwrite elements that are read later.
        if groups != lanes || code.buffer(to) == code.buffer(from) {
            return None;
        }

        // The rows must come in order. Copies to other places of the same buffers may come in
        // between.
        let mut interleave =
            Self { rows: SmallVec::new(), groups: groups_operand.at, is_deinterleave, ops: SmallVec::new() };
        for (number, op) in ops.iter().enumerate() {
            let (other_to, other_from) = copy(code, op)?;
            if [code.buffer(other_to), code.buffer(other_from)] != [code.buffer(to), code.buffer(from)] {
                return None;
            }
            let (row, place) = if is_deinterleave { (other_to, other_from) } else { (other_from, other_to) };
            let next = interleave.groups.offset_by(interleave.rows.len(), 4);
            if place.at == next && place.shape == groups_operand.shape && row.shape == Shape::Lanes(lanes) {
                interleave.rows.push(row.at);
                interleave.ops.push(number);
            }
            if interleave.rows.len() == size as usize {
                return Some(interleave);
            }
        }
        None
    }

    /// Returns the number of registers from `first` on that are overwritten; `None` if there are
    /// too few.
    pub(super) fn registers(&self, isa: &impl Vectors, first: Vector) -> Option<usize> {
        isa.weave_registers(self.rows.len() as u8, first)
    }

    pub(super) fn emit(&self, isa: &mut impl Vectors, first: Vector) {
        match self.is_deinterleave {
            true => isa.deinterleave(&self.rows, self.groups, first),
            false => isa.interleave(self.groups, &self.rows, first),
        }
    }
}
