//! Times and bounds of a fleet.

use std::time::Duration;

/// Largest frame in bytes: a batch of [`MAX_WISHES`] configs is far below it. With its head it is
/// no longer than the largest message of a NATS server.
pub const MAX_FRAME_BYTES: usize = (1 << 20) - 1024;

/// Most wishes in a batch, and most racers in a race.
pub const MAX_WISHES: usize = 256;

/// Most batches and races of one tuner that wait at a worker.
pub const MAX_JOBS: usize = 4;

/// Most tuners that one worker serves.
pub const MAX_TUNERS: usize = 16;

/// Most connections of one worker or collector.
pub const MAX_CONNECTIONS: usize = 256;

/// Most messages that wait for a tuner which reads slowly. A tuner that falls behind further is
/// disconnected, and its wishes are measured again.
pub const MAX_UNREAD: usize = 1024;

/// Times and limits by which tuners and workers judge each other. The defaults suit networks with
/// round trips below a second.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetParams {
    /// Time without progress after which a lease is lost.
    pub lease: Duration,
    /// Interval at which both sides report that they are alive, and workers their progress.
    pub progress: Duration,
    /// Time limit of connecting and of the greeting.
    pub greeting: Duration,
    /// Time limit of opening a device, whose ceilings may have to be measured first.
    pub opening: Duration,
    /// Interval between attempts to reach a lost worker.
    pub retry: Duration,
    /// Interval at which new workers are looked for.
    pub find: Duration,
    /// Time without any worker after which measuring fails.
    pub give_up: Duration,
    /// Time of silence after which a connection is closed.
    pub silence: Duration,
    /// Seconds of work in a batch, at least as far as wishes wait, and at most. A worker has to
    /// make operands and reference of a workload before its first batch, which small parts would
    /// repeat.
    pub batch_secs: [f64; 2],
    /// Seconds of work left in a worker's batch when it gets the next one.
    pub ahead_secs: f64,
    /// Number of lost deliveries after which a wish is answered by a failure.
    pub deliveries: usize,
    /// Factor over the fleet's reference time beyond which a worker is quarantined.
    pub drift: f64,
}

impl Default for FleetParams {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            lease: secs(10),
            progress: secs(1),
            greeting: secs(4),
            opening: secs(60),
            retry: secs(1),
            find: secs(5),
            give_up: secs(60),
            silence: secs(60),
            batch_secs: [0.5, 1.0],
            ahead_secs: 0.2,
            deliveries: 3,
            drift: 1.25,
        }
    }
}
