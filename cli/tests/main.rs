//! The integration tests of this crate in one binary: what they share is compiled and linked once.
#![allow(unreachable_pub, clippy::unwrap_used)]

#[path = "../../graph/tests/common/build.rs"]
mod build;
mod command;
mod contract;
mod cuda_library;
mod database;
mod exit_codes;
mod fleet;
mod inputs;
mod interrupt;
mod networks;
#[path = "../../fleet/tests/prometheus.rs"]
mod prometheus;
mod quantize;
mod report_page;
mod sandbox;
#[cfg(feature = "nats")]
#[path = "../../fleet/tests/server.rs"]
#[allow(dead_code)]
mod server;
mod snapshot;
mod stub_device;
mod team;
mod trust;
