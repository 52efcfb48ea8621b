//! Errors of a fleet.

use thiserror::Error;

/// Reason that a fleet cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FleetError {
    /// Text that is not an address.
    #[error("'{0}' is not an address: expected HOST:PORT, or unix:PATH for a Unix socket")]
    Address(String),
    /// An address at which nothing can be offered.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// Address that was asked for.
        address: String,
        /// Message of the system.
        cause: String,
    },
    /// Worker that cannot be reached, or does not respond.
    #[error("worker {address} is unreachable: {cause}")]
    Unreachable {
        /// Address of the worker.
        address: String,
        /// Message of the system.
        cause: String,
    },
    /// Worker of another version, or a program of another kind.
    #[error("worker {address} is of another version: {cause}; install the same version of autotune on both machines")]
    Version {
        /// Address of the worker.
        address: String,
        /// Versions of both sides.
        cause: String,
    },
    /// Worker that serves as many tuners as it can.
    #[error("worker {address} is full: {cause}; try again later")]
    Full {
        /// Address of the worker.
        address: String,
        /// Bound that was reached.
        cause: String,
    },
    /// Worker without a device for the target.
    #[error("worker {address} has no device for the target: {cause}")]
    NoDevice {
        /// Address of the worker.
        address: String,
        /// Devices that it has, or the reason.
        cause: String,
    },
    /// Peer that does not understand the tuner, such as a collector in place of a worker.
    #[error("worker {address} refused: {cause}")]
    Refused {
        /// Address of the peer.
        address: String,
        /// Reason of the peer.
        cause: String,
    },
    /// Collector that cannot be used.
    #[error("collector {address} cannot be used: {cause}")]
    Collector {
        /// Address of the collector.
        address: String,
        /// Reason of the system or of the collector.
        cause: String,
    },
    /// Workers whose target keys differ.
    #[error("the workers are of {} kinds: specify one of them by --target: {}", keys.len(), keys.join(", "))]
    Kinds {
        /// Target keys of the workers.
        keys: Vec<String>,
    },
    /// NATS server that cannot be used.
    #[error("NATS server {url} cannot be used: {cause}")]
    Server {
        /// URL of the server.
        url: String,
        /// Message of the client or the server.
        cause: String,
    },
    /// An empty list of workers.
    #[error("there is no worker")]
    NoWorker,
    /// The caller interrupted the connecting.
    #[error("interrupted")]
    Interrupted,
}

impl FleetError {
    /// Returns true if the same attempt may succeed later.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Full { .. })
    }
}
