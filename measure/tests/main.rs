//! The integration tests of this crate in one binary: what they share is compiled and linked once.
//! `Cargo.toml` names those that need a program of their own, and why.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod layers;
mod wire;
