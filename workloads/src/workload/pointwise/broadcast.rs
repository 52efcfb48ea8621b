//! Broadcasting of operands along axes that they lack.

use super::super::fields::some_axes;

/// Masks with words, for results of two axes `m, n` or three axes `b, m, n`.
const WORDS: [(&str, Broadcast); 3] =
    [("row", Broadcast::ROW), ("rows", Broadcast::ROWS), ("column", Broadcast::COLUMN)];
const EXPECTED: &str = "an operand shape (full, row, rows, column, scalar, or axis numbers such as 02)";

/// The axes of a result that an operand has, as a bit set with the last axis lowest. The operand is
/// broadcast along the other axes.
///
/// | text | shape for a result `[b, m, n]` |
/// |---|---|
/// | `full` | `[b, m, n]` |
/// | `row` | `[n]`: every row is the same |
/// | `rows` | `[b, n]`: every row of a batch is the same |
/// | `column` | `[m]`: every column is the same |
/// | `scalar` | `[1]` |
/// | `0`, `01`, `12`, .. | axes with these numbers, from the outermost on |
///
/// Numbers are the only form for other masks, and for results of four axes or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Broadcast(u8);

impl Default for Broadcast {
    fn default() -> Self {
        Self::FULL
    }
}

impl Broadcast {
    /// All axes of the result.
    pub const FULL: Self = Self(u8::MAX);
    /// `[n]`: the last axis only.
    pub const ROW: Self = Self(0b001);
    /// `[b, n]`: the first and last of three axes.
    pub const ROWS: Self = Self(0b101);
    /// `[m]`: the second last axis only.
    pub const COLUMN: Self = Self(0b010);
    /// No axis: a single element.
    pub const SCALAR: Self = Self(0);

    /// Creates a mask of the axes of a result that are true, outermost first.
    ///
    /// ```
    /// use autotune_workloads::Broadcast;
    /// assert_eq!(Broadcast::of(&[true, false, true]), Broadcast::ROWS);
    /// assert_eq!(Broadcast::of(&[true, true]), Broadcast::FULL);
    /// ```
    pub fn of(has: &[bool]) -> Self {
        match has.iter().all(|has| *has) {
            true => Self::FULL,
            false => Self(has.iter().fold(0, |mask, &has| mask << 1 | u8::from(has))),
        }
    }

    /// Returns the axes of the operand among `rank` axes of the result, outermost first.
    pub(super) fn axes(self, rank: usize) -> impl Iterator<Item = usize> {
        (0..rank).filter(move |axis| self.0 >> (rank - 1 - axis) & 1 == 1)
    }

    /// Reads a text form for `rank` axes. Fails with a description of valid texts.
    pub(super) fn parse(text: &str, rank: usize) -> Result<Self, &'static str> {
        let word = WORDS.iter().find(|(word, _)| *word == text && rank <= 3);
        match (text, word) {
            ("full", _) => Ok(Self::FULL),
            ("scalar", _) => Ok(Self::SCALAR),
            (_, Some((_, known))) => Ok(*known),
            _ => some_axes(text, rank).map(|has| Self::of(&has)).ok_or(EXPECTED),
        }
    }

    /// Returns the text form for `rank` axes.
    pub(super) fn text(self, rank: usize) -> String {
        match WORDS.iter().find(|(_, known)| *known == self && rank <= 3) {
            Some((word, _)) => word.to_string(),
            None if self == Self::FULL => "full".into(),
            None if self == Self::SCALAR => "scalar".into(),
            None => self.axes(rank).map(|axis| axis.to_string()).collect(),
        }
    }

    /// Fails with the reason if the mask is invalid for `rank` axes.
    pub(super) fn check(self, rank: usize) -> Result<(), String> {
        if self == Self::FULL || u32::from(self.0) < (1 << rank) - 1 {
            return Ok(());
        }
        let is_rows = self == Self::ROWS && rank == 2;
        Err(if is_rows {
            "'rows' needs a batch: use 'row'".into()
        } else {
            format!("not a proper subset of the {rank} axes")
        })
    }
}
