//! Synthetic records for tests.
#![allow(clippy::unwrap_used)]

use autotune_db::{Phase, Provenance, TuningRecord};
use autotune_measurement::{CandidateError, Measurement, RunSecs};
use autotune_schedules::{Config, KnobValue, LOWERING_VERSION};

/// Returns a record of a configuration with a number; without a run time it is a failed one.
pub(crate) fn record(workload: &str, number: usize, run_secs: Option<f64>, seed: u64) -> TuningRecord {
    let knobs = [
        ("tile".to_string(), KnobValue::Tile(vec![number + 1, 4])),
        ("odd".to_string(), KnobValue::Choice((number % 2).to_string())),
        ("same".to_string(), KnobValue::Choice("always".into())),
    ];
    let outcome = run_secs.map(RunSecs::synthetic).ok_or(CandidateError::Timeout { limit_secs: 1.0 });

    TuningRecord {
        workload: workload.parse().unwrap(),
        target: "cpu:test".into(),
        config: Config { sketch: "direct".into(), knobs: knobs.into() },
        measurement: Measurement::of(outcome),
        phase: Phase::Search,
        provenance: Provenance {
            device: "a device".into(),
            backend: None,
            compiler: "an assembler".into(),
            flags: String::new(),
            tuner_version: "0.1.0".into(),
            lowering: LOWERING_VERSION,
            harness: "{}".into(),
            seed,
            unix_secs: 1_760_000_000,
        },
        imported: false,
    }
}
