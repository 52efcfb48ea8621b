//! Many machines measure for many tuners.
//!
//! A worker ([`serve_fleet`]) offers the devices of its machine. A tuner connects to workers of one
//! target key ([`Fleet`]), and measures on them through the trait
//! [`Measurer`](autotune_measure::Measurer): searchers, database and report are those of local
//! tuning. Schedules travel as text; a worker lowers, verifies, builds, checks and times them
//! itself, in its usual worker processes.
//!
//! The tuner's database is the only truth. A worker that is killed, hangs or is cut off loses its
//! leases, and its wishes are measured again elsewhere ([`ledger`]). No answer is recorded twice.
//!
//! # Files
//!
//! A file uses only files above it.
//!
//! | file | contents |
//! |---|---|
//! | [`params`], [`error`](mod@error), `random` | times and bounds; reasons that a fleet cannot be used |
//! | [`transport`], [`socket`] | interface of transports; TCP and Unix sockets |
//! | `nats` | NATS (feature `nats`) |
//! | [`message`] | messages, in JSON |
//! | [`ledger`], [`health`] | leases of wishes; comparison of the workers |
//! | [`work_device`] | devices of a worker |
//! | `desk`, `measuring` | state of a worker; its thread that measures |
//! | [`metrics`], `exposition` | HTTP server for figures; figures of a worker in Prometheus' text format |
//! | `connections` | threads that serve connections |
//! | [`worker`] | connections of a worker |
//! | `crew`, [`fleet`], `run` | connections of a tuner; [`Fleet`]; one run of batches |
//! | [`collector_message`], [`collected`] | questions to a collector; its database |
//! | [`collector`] | connections of a collector |
//! | [`team`], [`upload`] | collector, as a tuner sees it; upload of the tuner's records |
//! | [`recalling`] | measurer that measures nothing that the team has measured |
//! | [`state`], [`kinds`] | state of workers for people; workers by their target keys |
#![warn(missing_docs)]

pub mod collected;
pub mod collector;
pub mod collector_message;
mod connections;
mod crew;
mod desk;
pub mod error;
mod exposition;
pub mod fleet;
pub mod health;
pub mod kinds;
pub mod ledger;
mod measuring;
pub mod message;
pub mod metrics;
#[cfg(feature = "nats")]
pub mod nats;
pub mod params;
mod random;
pub mod recalling;
mod run;
pub mod socket;
pub mod state;
pub mod team;
pub mod transport;
pub mod upload;
pub mod work_device;
pub mod worker;

pub use collected::Collected;
pub use collector::{CollectorOptions, serve_collector};
pub use collector_message::Fingerprint;
pub use error::FleetError;
pub use fleet::{Fleet, FleetOptions};
pub use kinds::WorkerKind;
pub use message::{DeviceWish, FleetBuild, WorkerState};
pub use metrics::MetricsPlace;
#[cfg(feature = "nats")]
pub use nats::{NatsOptions, NatsServer};
pub use params::FleetParams;
pub use recalling::Recalling;
pub use socket::SocketPlace;
pub use state::{Queried, query};
pub use team::{StoredRecords, TeamMemory};
pub use upload::{Upload, Uploaded};
pub use work_device::LocalDevices;
pub use worker::{WorkerOptions, serve_fleet};
