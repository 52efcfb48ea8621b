//! Tests of the examples, and of the sources of the whole workspace.
//!
//! Checks of the whole workspace are here and not in `lab/tests`, as `cargo test` runs this crate,
//! a default member, but not the lab.
#![allow(clippy::unwrap_used)]

mod file_circles;
mod language;
mod literals;
mod programs;
