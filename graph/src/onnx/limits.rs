//! Limits of the import, and names and positions in files.

use std::ops::RangeInclusive;

/// Supported opset versions of models.
pub const VERSIONS: RangeInclusive<i64> = 6..=24;

/// Domain of ONNX Runtime's own operators.
pub(crate) const MICROSOFT: &str = "com.microsoft";

/// Attribute of the parts of a layer with weights of 8 bits: true if the inputs were quantised.
pub(crate) const ROUNDED_INPUTS: &str = "rounded inputs";

/// Position of the lengths of the sequences among the inputs of a recurrent layer.
pub const LAYER_LENGTHS: usize = 4;

/// Positions of the initial states among the inputs of a recurrent layer.
pub const LAYER_STATES: [usize; 2] = [5, 6];

/// Maximum number of axes of a tensor.
pub(crate) const MOST_AXES: usize = 16;
