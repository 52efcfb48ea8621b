//! Batch axes of a matrix product. Operands may lack some of them.

use super::super::fields::{joined, some_axes};

/// Names of the axes if there are several.
const NAMES: [&str; Batch::MOST_AXES] = ["b0", "b1", "b2", "b3"];
const EXPECTED: &str = "a list of the operand's batch axes (such as 0 or 02) or shared";

/// Operands that have a batch axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sides {
    /// Both operands have it.
    #[default]
    Both,
    /// Only `A` has it; all its matrices are multiplied by one `B`.
    Left,
    /// Only `B` has it; one `A` is multiplied by all its matrices.
    Right,
}

/// Batch axes of a matrix product, outermost first.
///
/// Axes of one element are dropped, and adjacent axes of the same operands are merged. If none is
/// left, there is one axis of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Batch {
    axes: [(usize, Sides); Batch::MOST_AXES],
    len: usize,
}

impl Batch {
    /// Maximum number of axes.
    pub const MOST_AXES: usize = 4;

    /// Creates a batch of `extent` matrices for both operands.
    pub fn of(extent: usize) -> Self {
        let mut axes = [(1, Sides::Both); Self::MOST_AXES];
        axes[0].0 = extent;
        Self { axes, len: 1 }
    }

    /// Creates a batch of axes with an extent and operands each; `None` if there are too many, or
    /// extents overflow.
    pub fn new(axes: impl IntoIterator<Item = (usize, Sides)>) -> Option<Self> {
        let mut merged: Vec<(usize, Sides)> = Vec::new();
        for (extent, sides) in axes.into_iter().filter(|(extent, _)| *extent != 1) {
            match merged.last_mut().filter(|last| last.1 == sides) {
                Some(last) => last.0 = last.0.checked_mul(extent)?,
                None => merged.push((extent, sides)),
            }
        }

        let mut batch = Self { len: merged.len().max(1), ..Self::of(1) };
        batch.axes.get_mut(..merged.len())?.copy_from_slice(&merged);
        Some(batch)
    }

    /// Returns the extent of each axis and the operands that have it.
    pub fn axes(&self) -> &[(usize, Sides)] {
        &self.axes[..self.len]
    }

    /// True for a single product.
    pub fn is_one(&self) -> bool {
        *self == Self::of(1)
    }

    /// Returns the extents of the axes.
    pub(super) fn extents(&self) -> Vec<usize> {
        self.axes().iter().map(|axis| axis.0).collect()
    }

    /// Returns a name for each axis.
    pub(super) fn names(&self) -> &'static [&'static str] {
        if self.len == 1 { &["b"] } else { &NAMES[..self.len] }
    }

    /// Returns the axes of one operand: all except those that only the `other` one has.
    pub(super) fn without(&self, other: Sides) -> impl Iterator<Item = usize> {
        (0..self.len).filter(move |&axis| self.axes[axis].1 != other)
    }

    /// Returns the text form: the extents, and for an operand that lacks some axes, those that it
    /// has.
    pub(super) fn text(&self) -> String {
        let mut text = format!("b={}", joined(&self.extents()));
        for (field, other) in [("lhs", Sides::Right), ("rhs", Sides::Left)] {
            let own: String = self.without(other).map(|axis| axis.to_string()).collect();
            match own.len() {
                0 => text += &format!(",{field}=shared"),
                len if len < self.len => text += &format!(",{field}={own}"),
                _ => {}
            }
        }
        text
    }
}

/// Reads the axes of an operand: for each axis, true if the operand has it.
pub(super) fn parse_axes(text: &str, rank: usize) -> Result<Vec<bool>, &'static str> {
    if text == "shared" { Ok(vec![false; rank]) } else { some_axes(text, rank).ok_or(EXPECTED) }
}
