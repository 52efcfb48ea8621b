//! Choice of a value in a JSON text, for tests of what reads damaged texts.

use rand::{Rng, RngExt};
use serde_json::Value;

/// Returns a random value within another, or that one itself. On its way down, it ends at a value
/// that has others inside with the probability of one in `one_in`.
pub(crate) fn random_value<'v>(value: &'v mut Value, one_in: i32, rng: &mut impl Rng) -> &'v mut Value {
    let count = match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if count == 0 || rng.random_range(0..one_in) == 0 {
        return value;
    }

    let mut inner: Vec<&mut Value> = match value {
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => Vec::new(),
    };
    let chosen = rng.random_range(0..count);
    random_value(inner.swap_remove(chosen), one_in, rng)
}
