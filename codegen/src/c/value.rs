//! Values of C expressions.

/// A C expression and its number of lanes (1 for a scalar).
pub(super) struct CValue {
    pub(super) text: String,
    pub(super) lanes: usize,
}

/// Returns the C type of a value with `lanes` lanes.
pub(super) fn type_name(lanes: usize) -> String {
    if lanes == 1 { "float".into() } else { format!("vec{lanes}") }
}

/// Returns the value with `lanes` lanes, by a broadcast of a scalar if necessary.
pub(super) fn splat(value: CValue, lanes: usize) -> String {
    if value.lanes == lanes { value.text } else { format!("splat{lanes}({})", value.text) }
}
