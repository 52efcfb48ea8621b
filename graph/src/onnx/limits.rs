//! What of files is read.

use std::ops::RangeInclusive;

/// Versions of the operators that are read.
pub const VERSIONS: RangeInclusive<i64> = 6..=24;

/// Axes of a tensor, at most.
pub(crate) const MOST_AXES: usize = 16;
