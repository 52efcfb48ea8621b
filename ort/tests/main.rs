//! Programs of the crate `ort` on this backend.
#![allow(unreachable_pub, clippy::unwrap_used)]

#[path = "../../graph/tests/common/build.rs"]
mod build;
mod errors;
mod model;
mod runs;
mod standalone;
