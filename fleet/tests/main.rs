//! The integration tests of this crate in one binary: what they share is compiled and linked once.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod campaign;
mod collector;
mod contract;
mod crowd;
#[path = "../../measure/tests/common/damage.rs"]
mod damage;
mod faults;
mod hostile;
mod kinds;
mod ledger;
#[path = "../../workloads/tests/common/long.rs"]
mod long;
mod messages;
mod metrics;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "nats")]
mod nats_security;
mod net;
mod prometheus;
#[path = "../../workloads/tests/common/random_value.rs"]
mod random_value;
mod recalling;
mod refusals;
#[cfg(feature = "nats")]
mod server;
mod sim;
