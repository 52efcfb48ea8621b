//! Limits of the import, domains, and positions of inputs.

use std::ops::RangeInclusive;

/// Supported opset versions of models.
pub const VERSIONS: RangeInclusive<i64> = 6..=24;

/// Domain of ONNX Runtime's own operators.
pub(crate) const MICROSOFT: &str = "com.microsoft";

/// Position of the lengths of the sequences among the inputs of a recurrent layer.
pub const LAYER_LENGTHS: usize = 4;

/// Positions of the initial states among the inputs of a recurrent layer.
pub const LAYER_STATES: [usize; 2] = [5, 6];

/// Maximum number of axes of a tensor.
pub(crate) const MOST_AXES: usize = 16;
