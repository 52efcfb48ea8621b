//! Limits of the import.

use std::ops::RangeInclusive;

/// Supported opset versions of models.
pub const VERSIONS: RangeInclusive<i64> = 6..=24;

/// Maximum number of axes of a tensor.
pub(crate) const MOST_AXES: usize = 16;
