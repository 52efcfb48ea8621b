//! Damage of messages in JSON, for tests of what reads them.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::random_value::random_value;

/// Replaces one value in a message.
pub(crate) fn replace_one(value: &mut Value, rng: &mut ChaCha8Rng) {
    let value = random_value(value, 10, rng);
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
