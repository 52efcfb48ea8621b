//! The batch of a product, whose operands need not have all of it.

use super::super::fields::{joined, some_axes};

/// Names of the axes, where there are several.
const NAMES: [&str; Batch::MOST_AXES] = ["b0", "b1", "b2", "b3"];
const EXPECTED: &str = "the axes of the batch that the operand has, by their numbers, such as 0 or 02, or shared";

/// Which of the operands has an axis of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sides {
    /// Both have.
    #[default]
    Both,
    /// `A` has; all of the axis is multiplied by one `B`.
    Left,
    /// `B` has.
    Right,
}

/// The axes of a batch of products, outermost first.
///
/// Those of one element are left out, and those that lie side by side and are of the same operands
/// are one; if none is left, it is one of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Batch {
    axes: [(usize, Sides); Batch::MOST_AXES],
    len: usize,
}

impl Batch {
    /// Most axes.
    pub const MOST_AXES: usize = 4;

    /// `extent` matrices of both operands.
    pub fn of(extent: usize) -> Self {
        let mut axes = [(1, Sides::Both); Self::MOST_AXES];
        axes[0].0 = extent;
        Self { axes, len: 1 }
    }

    /// Axes by extent and operands; `None` if they are too many, or overflow.
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

    /// Extent of each axis, and which operands have it.
    pub fn axes(&self) -> &[(usize, Sides)] {
        &self.axes[..self.len]
    }

    /// True for a single product.
    pub fn is_one(&self) -> bool {
        *self == Self::of(1)
    }

    /// Extents of its axes.
    pub(super) fn extents(&self) -> Vec<usize> {
        self.axes().iter().map(|axis| axis.0).collect()
    }

    /// A name for each axis.
    pub(super) fn names(&self) -> &'static [&'static str] {
        if self.len == 1 { &["b"] } else { &NAMES[..self.len] }
    }

    /// The axes that an operand has; the `other` side's are those that it has not.
    pub(super) fn without(&self, other: Sides) -> impl Iterator<Item = usize> {
        (0..self.len).filter(move |&axis| self.axes[axis].1 != other)
    }

    /// What the text form says: the extents, and, where an operand lacks some of them, the axes
    /// that it has.
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

/// Reads which axes an operand has: by axis, whether it has it.
pub(super) fn parse_axes(text: &str, rank: usize) -> Result<Vec<bool>, &'static str> {
    if text == "shared" { Ok(vec![false; rank]) } else { some_axes(text, rank).ok_or(EXPECTED) }
}
