//! Random workloads for the tests of all crates. Each of them uses only some of them.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod cases;
pub mod convolutions;
pub mod epilogues;
pub mod odd_workloads;
pub mod operators;
pub mod pairs;
pub mod pointwise;
pub mod workloads;
