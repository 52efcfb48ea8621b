//! Made-up records for tests.
#![allow(clippy::unwrap_used)]

use autotune_db::{Phase, Provenance, TuningRecord};
use autotune_ir::{CpuTarget, Target};
use autotune_measurement::{Measurement, RunSecs};
use autotune_schedules::{Candidate, Config, LOWERING_VERSION, ScheduleSpace};
use autotune_workloads::Workload;

pub(crate) fn ran(run_secs: f64) -> Measurement {
    Measurement::of(Ok(RunSecs::synthetic(run_secs)))
}

/// Returns a candidate for tests in which only the config matters.
pub(crate) fn synthetic(config: Config) -> Candidate {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    Candidate::new(&"matmul:m=4,n=4,k=4".parse().unwrap(), &target, config)
}

/// Returns a record of the default config.
pub(crate) fn record(
    workload: &Workload,
    target: &Target,
    phase: Phase,
    run_secs: f64,
    unix_secs: u64,
) -> TuningRecord {
    TuningRecord {
        workload: workload.clone(),
        target: target.key(),
        config: ScheduleSpace::new(workload, target).default_config(),
        measurement: ran(run_secs),
        phase,
        imported: false,

        provenance: Provenance {
            device: String::new(),
            backend: None,
            compiler: String::new(),
            flags: String::new(),
            tuner_version: String::new(),
            harness: String::new(),
            seed: 0,
            unix_secs,
            lowering: LOWERING_VERSION,
        },
    }
}
