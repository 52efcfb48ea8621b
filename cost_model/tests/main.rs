//! The integration tests of this crate in one binary: what they share is compiled and linked once.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod fuzz_model;
mod model;
#[path = "../../workloads/tests/common/random_value.rs"]
mod random_value;
mod synthetic;
