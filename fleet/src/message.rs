//! Messages between tuners and workers: JSON objects, one a frame.
//!
//! Schedules travel as configs, workloads and targets as text, never code: a worker runs only what
//! its own binary lowered, verified and built. The greeting carries the [`FleetBuild`] and keeps
//! its form in all versions; everything after it is understood by equal versions only.

use std::fmt;

use autotune_ir::Target;
use autotune_measure::Ceilings;
use autotune_measurement::{Backend, Measurement};
use autotune_schedules::{Config, LOWERING_VERSION};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::params::{MAX_FRAME_BYTES, MAX_WISHES};

/// Version of the messages. Raise it with every change of their form.
pub const PROTOCOL: u32 = 2;

/// Version of a program, in its greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetBuild {
    /// Version of the messages.
    pub protocol: u32,
    /// Version of the lowering: others make other programs of the same config.
    pub lowering: u32,
    /// Version of autotune, for people: programs need not agree on it.
    pub version: String,
}

impl FleetBuild {
    /// Returns the version of this program.
    pub fn own() -> Self {
        Self { protocol: PROTOCOL, lowering: LOWERING_VERSION, version: env!("CARGO_PKG_VERSION").into() }
    }

    /// Returns true if configs and messages mean the same to both programs.
    pub fn agrees_with(&self, other: &Self) -> bool {
        (self.protocol, self.lowering) == (other.protocol, other.lowering)
    }
}

impl fmt::Display for FleetBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autotune {} (lowering {}, messages {})", self.version, self.lowering, self.protocol)
    }
}

/// Device that a tuner asks a worker for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceWish {
    /// Word of a target (`cpu`, `cpu:avx2`, `cpu:avx512`, `cuda`, `opencl`) or the key of one.
    pub target: String,
    /// Threads of a kernel on a CPU; `None` means all cores of the worker.
    pub threads: Option<usize>,
    /// Method by which candidates are turned into code.
    pub backend: Backend,
}

/// Identity of a lease. Leases of other runs have other numbers of `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId {
    /// Number drawn at random by a tuner for each run of batches.
    pub run: u64,
    /// Position of the lease in the run.
    pub number: u64,
}

/// Schedule to be measured. Its number identifies the one record that answers it, whatever lease
/// the answer comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wish {
    /// Position among all candidates of the run.
    pub number: u64,
    /// Schedule in text form.
    pub config: Config,
}

/// Wishes for one workload, leased to one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WishBatch {
    /// Lease of the batch.
    pub lease: LeaseId,
    /// Workload in text form.
    pub workload: String,
    /// At most [`MAX_WISHES`] schedules, measured in order.
    pub wishes: Vec<Wish>,
    /// Fastest seconds per run of the workload so far, beyond which slow candidates are stopped.
    pub incumbent_secs: Option<f64>,
}

/// Participant of a race.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Racer {
    /// Workload in text form.
    pub workload: String,
    /// Schedule in text form.
    pub config: Config,
}

/// Message of a tuner to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TunerMessage {
    /// Greeting, the first message.
    Hello {
        /// Version of the tuner.
        build: FleetBuild,
    },
    /// Question for the worker's state, answered by [`WorkerMessage::State`].
    State,
    /// Request for a device, answered by [`WorkerMessage::Opened`]. Further wishes are measured on
    /// the device that was opened last.
    Open(DeviceWish),
    /// Wishes to be measured, answered one by one.
    Measure(WishBatch),
    /// Race, answered as a whole.
    Race {
        /// Lease of the race.
        lease: LeaseId,
        /// At most [`MAX_WISHES`] schedules.
        racers: Vec<Racer>,
        /// Seconds for the rounds of the race.
        budget_secs: f64,
    },
    /// End of a lease whose results are no longer wanted. With a number for which there is no lease
    /// it does nothing.
    Return {
        /// Lease that the worker gives up.
        lease: LeaseId,
    },
    /// Sign of life, without an answer.
    Alive,
}

/// Device that a worker opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenedDevice {
    /// Target, with nominal rates.
    pub target: Target,
    /// Name of the device.
    pub device: String,
    /// Timing options, as records store them.
    pub harness: String,
    /// Measured peak rates; `None` if they could not be measured.
    pub ceilings: Option<Ceilings>,
    /// Seconds per run of the reference kernel, by which workers are compared.
    pub reference_secs: Option<f64>,
}

/// State of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerState {
    /// Key of the CPU with all cores of the worker.
    pub target: String,
    /// Keys of the worker's devices, the CPU with all cores among them; `None` until it has looked
    /// for all.
    pub offers: Option<Vec<String>>,
    /// Keys of the devices that tuners opened.
    pub devices: Vec<String>,
    /// Number of tuners that are connected.
    pub tuners: usize,
    /// Number of wishes that wait or are being measured.
    pub queued: usize,
    /// Number of wishes that were measured since the start.
    pub trials: u64,
    /// Trials per second in the last minute.
    pub trials_per_sec: f64,
    /// Seconds since the start.
    pub up_secs: f64,
    /// Seconds since the last result; `None` if there was none.
    pub idle_secs: Option<f64>,
    /// Present time of the reference kernel over its first, on the device used last.
    pub drift: Option<f64>,
}

/// Reason that a worker refuses a tuner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Lowering or messages of another version.
    Version,
    /// A bound is reached.
    Full,
    /// There is no device for the target.
    NoDevice,
    /// A message cannot be read, is too long, or comes at the wrong time.
    Invalid,
}

/// Message of a worker to a tuner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WorkerMessage {
    /// Answer to the greeting.
    Welcome {
        /// Version of the worker.
        build: FleetBuild,
        /// Name of the worker.
        name: String,
    },
    /// Reason that the worker closes the connection.
    Refused {
        /// Kind of reason, which decides the error that the tuner reports.
        refusal: Refusal,
        /// Reason in words, which the tuner reports to its user.
        reason: String,
    },
    /// Load of the worker, the answer to [`TunerMessage::State`].
    State(WorkerState),
    /// Device that is open now, the answer to [`TunerMessage::Open`].
    Opened(Box<OpenedDevice>),
    /// Sign of life, with the leases that the worker holds for this tuner.
    Progress {
        /// Leases that wait or are being measured.
        leases: Vec<LeaseId>,
    },
    /// The worker was told to stop: it takes no more wishes, and returns those it has.
    Leaving,
    /// Answer to one wish.
    Measured {
        /// Lease of the wish.
        lease: LeaseId,
        /// Number of the wish.
        wish: u64,
        /// Result, with the toolchain.
        measurement: Box<Measurement>,
    },
    /// All wishes of a lease were answered.
    Finished {
        /// Lease whose last wish was answered.
        lease: LeaseId,
        /// Seconds per run of the reference kernel after the batch.
        reference_secs: Option<f64>,
    },
    /// Results of a race, one for each racer, with the share of time that others took.
    Raced {
        /// Lease of the race.
        lease: LeaseId,
        /// Results in the order of the racers.
        measurements: Vec<Measurement>,
        /// Reason that the racers were not interleaved.
        failure: Option<String>,
    },
    /// End of a lease before all its wishes were answered.
    Returned {
        /// Lease of the wishes without an answer.
        lease: LeaseId,
        /// Fault for which it could not be carried out; `None` if the worker was told to stop or
        /// the tuner asked for the return.
        fault: Option<String>,
    },
}

/// Returns a message as the content of a frame.
///
/// # Errors
/// If it is longer than [`MAX_FRAME_BYTES`].
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, String> {
    let text = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    match text.len() <= MAX_FRAME_BYTES {
        true => Ok(text),
        false => Err(format!("a message of {} bytes, more than {MAX_FRAME_BYTES}", text.len())),
    }
}

/// Reads a message from the content of a frame.
///
/// # Errors
/// If it is not a message of the type.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, String> {
    serde_json::from_slice(frame).map_err(|error| format!("not a message of the fleet: {error}"))
}

/// Checks the number of schedules in a batch or race.
///
/// # Errors
/// If there are none, or too many.
pub fn check_count(schedules: usize) -> Result<(), String> {
    match schedules {
        1..=MAX_WISHES => Ok(()),
        _ => Err(format!("a batch of {schedules} schedules, not 1 to {MAX_WISHES}")),
    }
}

/// Returns the reason that a measurement cannot be true; `None` if it can.
pub fn implausible(measurement: &Measurement) -> Option<String> {
    let run = measurement.outcome.as_ref().ok();
    let times = run.map(|run| [run.run_secs, run.median_secs]).into_iter().flatten();
    let bad = times.into_iter().find(|secs| !(secs.is_finite() && *secs > 0.0));
    let spent = [measurement.build_secs, measurement.measure_secs, measurement.taken];
    let bad = bad.or_else(|| spent.into_iter().find(|secs| !(secs.is_finite() && *secs >= 0.0)));
    let bad = bad.or_else(|| run.map(|run| run.slowdown).filter(|slowdown| !(1.0..1e6).contains(slowdown)));
    bad.map(|value| format!("a result with an impossible value ({value})"))
}
