//! Made-up records for tests.
#![allow(clippy::unwrap_used)]

use autotune_db::{Phase, Provenance, TuningRecord};
use autotune_ir::Target;
use autotune_measure::{Measurement, RunSecs};
use autotune_schedules::{LOWERING_VERSION, ScheduleSpace, Workload};

pub(crate) fn ran(run_secs: f64) -> Measurement {
    let secs = RunSecs {
        run_secs,
        median_secs: run_secs,
        spread: 0.0,
        repeats: 5,
        stopped_early: false,
        slowdown: 1.0,
        kernel_secs: 0.0,
        graph_runs: 0,
        max_rel_error: 0.0,
    };
    Measurement::of(Ok(secs))
}

/// A record of the default config.
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
