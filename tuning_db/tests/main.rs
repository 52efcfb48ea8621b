//! The integration tests of this crate in one binary: what they share is compiled and linked once.
//! `Cargo.toml` names those that need a program of their own, and why.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod claims;
mod contract;
mod fuzz_log;
mod fuzz_snapshot;
mod opening;
#[path = "../../workloads/tests/common/random_value.rs"]
mod random_value;
mod snapshot;
mod support;
