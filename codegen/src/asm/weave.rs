//! Copies between a row of groups of elements and rows of their own for the elements of each place
//! in a group, such as images with channels last and channels first: three rows of whole vectors at
//! once are three vectors of groups.

use smallvec::SmallVec;

use super::instruction_set::{Address, Shape, Vector, Vectors};
use super::leaf::{self, Op};
use super::transpose::copy;

/// Elements of a group; those of an even number are not in as many different lanes as a vector has.
const GROUPS: [i32; 3] = [3, 5, 7];

/// Element `r + l * rows.len()` of `groups` is element `l` of `rows[r]`, for every lane.
pub(super) struct Weave {
    rows: SmallVec<[Address; 7]>,
    groups: Address,
    /// True if the groups are read, false if they are written.
    is_apart: bool,
    /// Which operations copy this.
    pub(super) ops: SmallVec<[usize; 8]>,
}

impl Weave {
    /// What the first operation and some behind it copy, if they do.
    pub(super) fn of(code: leaf::Block, ops: &[Op], lanes: u8) -> Option<Self> {
        let (to, from) = copy(code, ops.first()?)?;
        let (is_apart, of_groups) = match (to.shape, from.shape) {
            (Shape::Lanes(n), Shape::Strided { .. }) if n == lanes => (true, from),
            (Shape::Strided { .. }, Shape::Lanes(n)) if n == lanes => (false, to),
            _ => return None,
        };
        let Shape::Strided { lanes: groups, stride } = of_groups.shape else { return None };
        let size = GROUPS.into_iter().find(|size| stride == 4 * size)?;
        if groups != lanes || code.buffer(to) == code.buffer(from) {
            return None;
        }

        // One behind the other, with nothing but copies of other places of these buffers between
        // them.
        let mut weave = Self { rows: SmallVec::new(), groups: of_groups.at, is_apart, ops: SmallVec::new() };
        for (number, op) in ops.iter().enumerate() {
            let (other_to, other_from) = copy(code, op)?;
            if [code.buffer(other_to), code.buffer(other_from)] != [code.buffer(to), code.buffer(from)] {
                return None;
            }
            let (row, place) = if is_apart { (other_to, other_from) } else { (other_from, other_to) };
            let next = weave.groups.behind(weave.rows.len(), 4);
            if place.at == next && place.shape == of_groups.shape && row.shape == Shape::Lanes(lanes) {
                weave.rows.push(row.at);
                weave.ops.push(number);
            }
            if weave.rows.len() == size as usize {
                return Some(weave);
            }
        }
        None
    }

    /// How many registers from `first` on are changed; `None` if there are too few.
    pub(super) fn registers(&self, isa: &impl Vectors, first: Vector) -> Option<usize> {
        isa.weave_registers(self.rows.len() as u8, first)
    }

    pub(super) fn emit(&self, isa: &mut impl Vectors, first: Vector) {
        match self.is_apart {
            true => isa.deinterleave(&self.rows, self.groups, first),
            false => isa.interleave(self.groups, &self.rows, first),
        }
    }
}
