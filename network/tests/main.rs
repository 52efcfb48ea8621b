//! The integration tests of this crate in one binary: what they share is compiled and linked once.
#![allow(unreachable_pub, clippy::unwrap_used)]

#[path = "../../graph/tests/common/build.rs"]
mod build;
mod check;
#[path = "../../graph/tests/common/mod.rs"]
mod common;
mod compiled;
mod family;
#[path = "../../workloads/tests/common/golden.rs"]
mod golden;
mod in_place;
mod library;
#[path = "../../workloads/tests/common/long.rs"]
mod long;
mod on_devices;
mod onnx;
mod own_operator;
mod phase_layers;
mod phases;
mod precision;
mod quantise;
mod quantised;
mod race;
mod rewrite_epilogue;
mod rewrite_random;
mod session;
mod without_kernels;
mod zoo;
