//! Random numbers that tell runs and connections apart.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a number that no other run has.
pub(crate) fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns a word of 32 hexadecimal digits that no other connection has.
#[cfg(feature = "nats")]
pub(crate) fn random_word() -> String {
    format!("{:016x}{:016x}", random_number(), random_number())
}
