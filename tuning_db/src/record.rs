//! Record of one measured schedule and of everything its time depends on.

use autotune_ir::Target;
use autotune_measurement::{Backend, Measurement, RunSecs};
use autotune_schedules::{Config, LOWERING_VERSION};
use autotune_workloads::Workload;
use serde::{Deserialize, Serialize};

/// Version of a record's serialised form. It is increased when the meaning of an existing field
/// changes. Adding a field does not change it, because readers ignore unknown fields.
pub const RECORD_VERSION: u32 = 1;

/// Measured schedule, its result, and everything needed to judge or repeat the measurement.
///
/// Features and scores are not stored, since they can be recomputed from workload, target and
/// config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningRecord {
    /// Workload that was computed.
    pub workload: Workload,
    /// Key of the machine, see `Target::key()`.
    pub target: String,
    /// Schedule that was measured.
    pub config: Config,
    /// Run times, or the reason that there are none.
    pub measurement: Measurement,
    /// Part of the tuning run in which the schedule was measured.
    #[serde(default)]
    pub phase: Phase,
    /// Circumstances of the measurement.
    pub provenance: Provenance,
    /// True if the record was imported from a log, so that it was not measured on this machine.
    #[serde(default, skip_serializing_if = "is_false")]
    pub imported: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Part of a tuning run in which a schedule is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Measured alone: proposed by a searcher, or in a race that could not be interleaved.
    #[default]
    Search,
    /// Measured again, interleaved with the other winners of a search, to decide which is fastest.
    Race {
        /// Identifier shared by the records of one race and by no other race of the task, such as
        /// its starting time in nanoseconds.
        id: u64,
    },
}

/// Circumstances of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Provenance {
    /// Name of the device as the system reports it.
    pub device: String,
    /// Backend that made the code. `None` if there is none, as for GPUs, and in old records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<Backend>,
    /// Name and version of the assembler or compiler.
    pub compiler: String,
    /// Compiler flags, separated by spaces.
    pub flags: String,
    /// Version of the tuner.
    pub tuner_version: String,
    /// Version of the lowering, [`LOWERING_VERSION`]; 1 in records from before it was stored.
    #[serde(default = "first_lowering")]
    pub lowering: u32,
    /// Timing options: warm-up, repeats, time floor, cache state.
    pub harness: String,
    /// Seed of the search.
    pub seed: u64,
    /// Time of the measurement, in seconds since 1970 (UTC).
    pub unix_secs: u64,
}

fn first_lowering() -> u32 {
    1
}

impl TuningRecord {
    /// Returns a record with a time in seconds that was not measured, for tests: found by a search
    /// with the present lowering, on an unnamed device.
    pub fn synthetic(workload: &Workload, target: &Target, config: Config, run_secs: f64) -> Self {
        let run = RunSecs { max_rel_error: 1e-7, ..RunSecs::synthetic(run_secs) };
        let provenance = Provenance {
            device: String::new(),
            backend: None,
            compiler: String::new(),
            flags: String::new(),
            tuner_version: String::new(),
            lowering: LOWERING_VERSION,
            harness: String::new(),
            seed: 0,
            unix_secs: 1,
        };
        Self {
            workload: workload.clone(),
            target: target.key(),
            config,
            measurement: Measurement::of(Ok(run)),
            phase: Phase::Search,
            provenance,
            imported: false,
        }
    }

    /// Returns true if the record is untrusted: imported, or measured with another version of the
    /// lowering, so that its time may not be that of the present code on this machine.
    pub fn is_untrusted(&self) -> bool {
        self.imported || self.provenance.lowering != LOWERING_VERSION
    }
}
