//! Random records and a naive model of the store.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::collections::BTreeSet;

use autotune_db::{Phase, Provenance, TuningDb, TuningRecord};
use autotune_measure::{Backend, CandidateError, Measurement, RunSecs};
use autotune_schedules::{Config, Value, Workload};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub const WORKLOADS: [&str; 4] = [
    "matmul:m=64,n=64,k=64",
    "matmul:m=64,n=64,k=64,bias",
    "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1",
    "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,bias,act=relu",
];
/// One is a prefix of another.
pub const TARGETS: [&str; 3] = ["cpu:test:avx2:threads=1", "cpu:test:avx2:threads=16", "cuda:sm_90"];

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

pub fn config(number: usize) -> Config {
    let knobs = [
        ("tile.m".to_string(), Value::Tile(vec![8 * (number + 1), 4])),
        ("order".to_string(), Value::Order(vec!["m".into(), "n".into()])),
    ];
    Config { sketch: "direct".into(), knobs: knobs.into() }
}

pub fn record(workload: &str, target: &str, number: usize, run_secs: f64) -> TuningRecord {
    let run = RunSecs {
        run_secs,
        median_secs: run_secs,
        spread: 0.1,
        repeats: 7,
        stopped_early: false,
        max_rel_error: 1e-7,
        slowdown: 1.0,
        kernel_secs: 0.0,
    };
    TuningRecord {
        workload: workload.parse().unwrap(),
        target: target.into(),
        config: config(number),
        measurement: Measurement { build_secs: 0.07, measure_secs: 0.01, ..Measurement::of(Ok(run)) },
        phase: Phase::Search,
        provenance: Provenance {
            device: "a \"quoted\" device – ü".into(),
            backend: Some(Backend::C),
            compiler: "gcc 12".into(),
            flags: "-O3".into(),
            tuner_version: "0.1.0".into(),
            harness: "repeats=7".into(),
            seed: u64::MAX,
            unix_secs: 1_760_000_000,
        },
    }
}

pub fn racing(mut record: TuningRecord, id: u64) -> TuningRecord {
    record.phase = Phase::Race { id };
    record
}

pub fn failed(mut record: TuningRecord) -> TuningRecord {
    record.measurement.outcome = Err(CandidateError::Crash { message: "signal 11\nsecond line".into() });
    record
}

/// A positive time with all its bits random, or, so that ties happen, one of a few.
fn random_secs(rng: &mut impl Rng) -> f64 {
    match rng.random_range(0..3) {
        0 => f64::from(rng.random_range(1..6u32)) * 1e-4,
        _ => rng.random::<f64>() + f64::MIN_POSITIVE,
    }
}

/// A record of one of a few tasks and configs, so that they collide often. One in fifty is large.
pub fn random_record(rng: &mut impl Rng) -> TuningRecord {
    let workload = WORKLOADS[rng.random_range(0..WORKLOADS.len())];
    let target = TARGETS[rng.random_range(0..TARGETS.len())];
    let mut record = record(workload, target, rng.random_range(0..30), random_secs(rng));
    record.measurement.build_secs = rng.random();
    record.provenance.seed = rng.random();
    if rng.random_bool(0.2) {
        let tolerance = rng.random();
        record.measurement.outcome = Err(match rng.random_range(0..3) {
            0 => CandidateError::WrongResult { max_rel_error: f64::INFINITY, tolerance },
            1 => CandidateError::Timeout { limit_secs: rng.random() },
            _ => CandidateError::Crash { message: "signal 11".into() },
        });
    }
    if rng.random_bool(0.02) {
        let message = "error: \u{1F980}\n".repeat(rng.random_range(1..30_000));
        record.measurement.outcome = Err(CandidateError::Build { message });
    }
    record
}

/// A race over a few configs of the task of `like`.
pub fn random_race(rng: &mut impl Rng, like: &TuningRecord, id: u64) -> Vec<TuningRecord> {
    let racers = rng.random_range(1..6);
    let mut race: Vec<TuningRecord> = (0..racers).map(|_| racing(random_record(rng), id)).collect();
    for racer in &mut race {
        racer.workload = like.workload;
        racer.target.clone_from(&like.target);
    }
    race
}

/// The records of one task, in order.
pub fn task_log<'a>(all: &'a [TuningRecord], workload: &Workload, target: &str) -> Vec<&'a TuningRecord> {
    all.iter().filter(|r| r.workload == *workload && r.target == target).collect()
}

fn fastest<'a>(records: impl IntoIterator<Item = &'a TuningRecord>) -> Option<&'a TuningRecord> {
    let ran = records.into_iter().filter(|r| r.measurement.run_secs().is_some());
    ran.min_by(|a, b| a.measurement.run_secs().partial_cmp(&b.measurement.run_secs()).unwrap())
}

/// The documented meaning of `best`, race by race.
pub fn model_best<'a>(log: &[&'a TuningRecord]) -> Option<&'a TuningRecord> {
    let mut best: Option<&TuningRecord> = None;
    for stretch in log.chunk_by(|a, b| a.phase == b.phase) {
        let winner = fastest(stretch.iter().copied());
        let raced = stretch[0].phase != Phase::Search;
        let took_part = best.is_some_and(|b| stretch.iter().any(|r| r.config == b.config));
        best = if raced && took_part { winner } else { fastest(best.into_iter().chain(winner)) };
    }
    best
}

/// The documented meaning of `top`, config by config.
pub fn model_top<'a>(log: &[&'a TuningRecord], k: usize) -> Vec<&'a TuningRecord> {
    let configs: BTreeSet<&Config> = log.iter().map(|r| &r.config).collect();
    let standing = |config: &&Config| {
        let own = log.iter().copied().filter(|r| r.config == **config);
        let last_race = own.clone().map(|r| r.phase).rfind(|phase| *phase != Phase::Search);
        fastest(own.filter(|r| r.phase == last_race.unwrap_or_default()))
    };
    let mut top: Vec<&TuningRecord> = configs.iter().filter_map(standing).collect();
    let place = |record: &TuningRecord| log.iter().position(|r| std::ptr::eq(*r, record)).unwrap();
    top.sort_by(|a, b| {
        let by_time = a.measurement.run_secs().partial_cmp(&b.measurement.run_secs()).unwrap();
        by_time.then(place(a).cmp(&place(b)))
    });
    top.truncate(k);
    top
}

/// Asserts that the store answers every question as the model does.
pub fn assert_agrees(db: &TuningDb, all: &[TuningRecord], what: &str) {
    assert_eq!(db.len(), all.len() as u64, "{what}: len");
    let mut tasks = 0;
    for target in TARGETS {
        for text in WORKLOADS {
            let workload: Workload = text.parse().unwrap();
            let log = task_log(all, &workload, target);
            tasks += usize::from(!log.is_empty());
            let stored = db.query(&workload, target).unwrap();
            assert_eq!(stored.iter().collect::<Vec<_>>(), log, "{what}: query {text} {target}");
            assert_eq!(db.best(&workload, target).unwrap().as_ref(), model_best(&log), "{what}: best {text} {target}");
            for k in [0, 1, 4, 1000] {
                let top = db.top(&workload, target, k).unwrap();
                assert_eq!(top.iter().collect::<Vec<_>>(), model_top(&log, k), "{what}: top {k} {text} {target}");
            }
            for number in 0..31 {
                let known = log.iter().any(|r| r.config == config(number));
                let found = db.contains(&workload, target, &config(number)).unwrap();
                assert_eq!(found, known, "{what}: contains {number} {text} {target}");
            }
        }
        let of_target = all.iter().filter(|r| r.target == target).count();
        assert_eq!(db.query_target(target).unwrap().len(), of_target, "{what}: query_target {target}");
    }
    assert_eq!(db.tasks().unwrap().len(), tasks, "{what}: tasks");
}

pub fn export(db: &TuningDb) -> String {
    let mut bytes = Vec::new();
    db.export(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}
