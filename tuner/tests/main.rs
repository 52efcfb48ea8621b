//! The integration tests of this crate in one binary: what they share is compiled and linked once.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod contract;
mod deploy;
mod few_configs;
mod kind;
#[path = "../../workloads/tests/common/long.rs"]
#[allow(unreachable_pub)]
mod long;
mod results;
mod search;
mod several;
mod support;
mod tuned;
