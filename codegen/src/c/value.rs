//! Values of expressions.

/// An expression in C and its number of lanes (1 for a scalar).
pub(super) struct Value {
    pub(super) text: String,
    pub(super) lanes: usize,
}

/// The C type of a value.
pub(super) fn type_name(lanes: usize) -> String {
    if lanes == 1 { "float".into() } else { format!("vec{lanes}") }
}

/// The value with `lanes` lanes.
pub(super) fn splat(value: Value, lanes: usize) -> String {
    if value.lanes == lanes { value.text } else { format!("splat{lanes}({})", value.text) }
}
