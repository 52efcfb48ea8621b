//! Damage of messages in JSON, for tests of what reads them.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// Replaces one value in a message.
pub(crate) fn replace_one(value: &mut Value, rng: &mut ChaCha8Rng) {
    let below: Vec<&mut Value> = match value {
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => Vec::new(),
    };
    let count = below.len();
    if count > 0 && rng.random_range(0..10) > 0 {
        if let Some(one) = below.into_iter().nth(rng.random_range(0..count)) {
            replace_one(one, rng);
        }
        return;
    }
    let others = [
        Value::Null,
        Value::from(0),
        Value::from(-1),
        Value::from(u64::MAX),
        Value::from(1e300),
        Value::from("matmul:m=16384,n=16384,k=16384"),
        Value::from("x".repeat(5000)),
        Value::from(vec![0; 3]),
        Value::Object(Default::default()),
    ];
    *value = others[rng.random_range(0..others.len())].clone();
}
