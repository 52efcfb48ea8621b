//! Tests of the examples, and of the sources of the whole workspace.
//!
//! What guards the whole tree is here and not in `lab/tests`, since `cargo test` runs this crate,
//! which is a default member, and not the lab.
#![allow(clippy::unwrap_used)]

mod file_circles;
mod programs;
