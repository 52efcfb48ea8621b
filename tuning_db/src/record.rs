//! One measured schedule and the causes of its time.

use autotune_ir::Target;
use autotune_measurement::{Backend, Measurement, RunSecs};
use autotune_schedules::{Config, LOWERING_VERSION};
use autotune_workloads::Workload;
use serde::{Deserialize, Serialize};

/// Version of the written form of a record. It grows when the meaning of an existing field changes;
/// a field that is merely added leaves it alone, because readers pass over fields they do not know.
pub const RECORD_VERSION: u32 = 1;

/// What was measured, what came out, and everything needed to judge or repeat it.
///
/// Records keep causes: features and scores are recomputed from workload, target and config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningRecord {
    /// What is computed.
    pub workload: Workload,
    /// Key of the machine: `Target::key()`.
    pub target: String,
    /// The schedule.
    pub config: Config,
    /// Its time, or why it has none.
    pub measurement: Measurement,
    /// How the schedule came to be measured.
    #[serde(default)]
    pub phase: Phase,
    /// Under which circumstances.
    pub provenance: Provenance,
    /// True if it came with an imported log: whether it is so was never seen here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub imported: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// How a schedule came to be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Measured by itself: proposed by a searcher, or in a race whose candidates could not be timed
    /// in turns.
    #[default]
    Search,
    /// Measured again, interleaved with the other winners of a search, to settle which is fastest.
    Race {
        /// Shared by the records of one race and by no other race of the same task, such as its
        /// starting time in nanoseconds.
        id: u64,
    },
}

/// The circumstances of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Provenance {
    /// Name of the device as the system tells it.
    pub device: String,
    /// What kind of generator made the code; `None` if it made none, and in records from before
    /// there were two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<Backend>,
    /// Assembler or compiler and its version.
    pub compiler: String,
    /// Its flags.
    pub flags: String,
    /// Version of the tuner.
    pub tuner_version: String,
    /// Version of the code that configs become, [`LOWERING_VERSION`]; 1 in records from before it
    /// was told.
    #[serde(default = "first_lowering")]
    pub lowering: u32,
    /// Timing options: warm-up, repeats, time floor, cache state.
    pub harness: String,
    /// Seed of the search.
    pub seed: u64,
    /// When it was measured, in seconds since 1970 (UTC).
    pub unix_secs: u64,
}

fn first_lowering() -> u32 {
    1
}

impl TuningRecord {
    /// Returns a record of a time in seconds that nobody measured, for tests: found by a search
    /// with today's lowering, on a device without a name.
    pub fn made_up(workload: &Workload, target: &Target, config: Config, run_secs: f64) -> Self {
        let run = RunSecs { max_rel_error: 1e-7, ..RunSecs::made_up(run_secs) };
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

    /// True if its time is not one that was measured here of the code that its config becomes
    /// today: it was imported, or another version's lowering made the code.
    pub fn is_claim(&self) -> bool {
        self.imported || self.provenance.lowering != LOWERING_VERSION
    }
}
