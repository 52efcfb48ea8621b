//! The integration tests of this crate in one binary: what they share is compiled and linked once.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod devices;
mod misaligned;
#[cfg(feature = "opencl")]
mod opencl;
mod tiles;
