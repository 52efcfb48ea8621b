//! Random records, and a naive model of the store.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod child;

use std::collections::BTreeSet;

use autotune_db::{Phase, Provenance, TimeProvenance, TuningDb, TuningRecord};
use autotune_measurement::{Backend, CandidateError, Measurement, RunSecs};
use autotune_schedules::{Config, KnobValue, LOWERING_VERSION};
use autotune_workloads::Workload;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub const WORKLOADS: [&str; 4] = [
    "matmul:m=64,n=64,k=64",
    "matmul:m=64,n=64,k=64,bias",
    "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1",
    "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1,bias,act=relu",
];
/// The first is a prefix of the second.
pub const TARGETS: [&str; 3] = ["cpu:test:avx2:threads=1", "cpu:test:avx2:threads=16", "cuda:sm_90"];

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

pub fn config(number: usize) -> Config {
    let knobs = [
        ("tile.m".to_string(), KnobValue::Tile(vec![8 * (number + 1), 4])),
        ("order".to_string(), KnobValue::Order(vec!["m".into(), "n".into()])),
    ];
    Config { sketch: "direct".into(), knobs: knobs.into() }
}

pub fn record(workload: &str, target: &str, number: usize, run_secs: f64) -> TuningRecord {
    let run = RunSecs { spread: 0.1, repeats: 7, max_rel_error: 1e-7, ..RunSecs::synthetic(run_secs) };
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
            lowering: LOWERING_VERSION,
            seed: u64::MAX,
            unix_secs: 1_760_000_000,
        },
        imported: false,
    }
}

/// Predicate of configs that is always true.
pub fn any(_: &Config) -> bool {
    true
}

/// Predicate of configs that is true for about two in three.
pub fn some(config: &Config) -> bool {
    config.knobs["tile.m"] != KnobValue::Tile(vec![8, 4]) && !config.stable_hash().is_multiple_of(3)
}

pub fn imported(mut record: TuningRecord) -> TuningRecord {
    record.imported = true;
    record
}

pub fn racing(mut record: TuningRecord, id: u64) -> TuningRecord {
    record.phase = Phase::Race { id };
    record
}

pub fn failed(mut record: TuningRecord) -> TuningRecord {
    record.measurement.outcome = Err(CandidateError::Crash { message: "signal 11\nsecond line".into() });
    record
}

/// Returns a positive time: a random number, or one of a few, so that ties occur.
fn random_secs(rng: &mut impl Rng) -> f64 {
    match rng.random_range(0..3) {
        0 => f64::from(rng.random_range(1..6u32)) * 1e-4,
        _ => rng.random::<f64>() + f64::MIN_POSITIVE,
    }
}

/// Returns a record of one of a few tasks and configs, so that they often coincide. One in fifty is
/// large.
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
        let message = "error: \u{1F980}\n".repeat(rng.random_range(1..1300));
        record.measurement.outcome = Err(CandidateError::Build { message });
    }
    record.imported = rng.random_bool(0.2);
    if rng.random_bool(0.1) {
        record.provenance.lowering += 1;
    }
    record
}

/// Returns a race over a few configs of the task of `like`.
pub fn random_race(rng: &mut impl Rng, like: &TuningRecord, id: u64) -> Vec<TuningRecord> {
    let racers = rng.random_range(1..6);
    let mut race: Vec<TuningRecord> = (0..racers).map(|_| racing(random_record(rng), id)).collect();
    for racer in &mut race {
        racer.workload = like.workload.clone();
        racer.target.clone_from(&like.target);
    }
    race
}

/// Returns the records of one task, in order.
pub fn task_log<'a>(all: &'a [TuningRecord], workload: &Workload, target: &str) -> Vec<&'a TuningRecord> {
    all.iter().filter(|r| r.workload == *workload && r.target == target).collect()
}

fn fastest<'a>(records: impl IntoIterator<Item = &'a TuningRecord>) -> Option<&'a TuningRecord> {
    let ran = records.into_iter().filter(|r| r.measurement.run_secs().is_some());
    ran.min_by(|a, b| a.measurement.run_secs().partial_cmp(&b.measurement.run_secs()).unwrap())
}

/// Returns the records measured here, and the untrusted ones of other configs.
fn parted<'a>(log: &[&'a TuningRecord]) -> (Vec<&'a TuningRecord>, Vec<&'a TuningRecord>) {
    let (claims, measured): (Vec<_>, Vec<_>) = log.iter().partition(|r| r.is_untrusted());
    let is_open = |claim: &&TuningRecord| measured.iter().all(|r: &&TuningRecord| r.config != claim.config);
    let claims = claims.into_iter().filter(is_open).collect();
    (measured, claims)
}

/// Specification of [`TuningDb::best`] for one task's records.
pub fn model_best<'a>(log: &[&'a TuningRecord], fits: fn(&Config) -> bool) -> Option<&'a TuningRecord> {
    let (measured, claims) = parted(log);
    best_of(&measured, fits).or_else(|| best_of(&claims, fits))
}

/// Returns the best record, computed race by race.
fn best_of<'a>(log: &[&'a TuningRecord], fits: fn(&Config) -> bool) -> Option<&'a TuningRecord> {
    let mut best: Option<&TuningRecord> = None;
    for stretch in log.chunk_by(|a, b| a.phase == b.phase) {
        let winner = fastest(stretch.iter().copied().filter(|r| fits(&r.config)));
        let raced = stretch[0].phase != Phase::Search;
        let took_part = best.is_some_and(|b| stretch.iter().any(|r| r.config == b.config));
        best = if raced && took_part { winner } else { fastest(best.into_iter().chain(winner)) };
    }
    best
}

/// Specification of `top` and `untrusted`, computed config by config.
fn model_ranking<'a>(log: &[&'a TuningRecord], k: usize, fits: fn(&Config) -> bool) -> Vec<&'a TuningRecord> {
    let configs: BTreeSet<&Config> = log.iter().map(|r| &r.config).filter(|config| fits(config)).collect();
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

/// Asserts that the store answers every query as the model does.
pub fn assert_agrees(db: &TuningDb, all: &[TuningRecord], what: &str) {
    assert_eq!(db.len(), all.len() as u64, "{what}: len");
    let mut tasks = 0;
    for target in TARGETS {
        for text in WORKLOADS {
            let workload: Workload = text.parse().unwrap();
            let log = task_log(all, &workload, target);
            tasks += usize::from(!log.is_empty());
            assert_task_agrees(db, &workload, target, &log, &format!("{what}: {text} {target}"));
        }
        let of_target = all.iter().filter(|r| r.target == target).count();
        assert_eq!(db.query_target(target).unwrap().len(), of_target, "{what}: query_target {target}");
    }
    assert_eq!(db.tasks().unwrap().len(), tasks, "{what}: tasks");
}

fn assert_task_agrees(db: &TuningDb, workload: &Workload, target: &str, log: &[&TuningRecord], what: &str) {
    let stored = db.query(workload, target).unwrap();
    assert_eq!(stored.iter().collect::<Vec<_>>(), log, "{what}: query");
    let (measured, claims) = parted(log);

    for fits in [any, some] {
        let best = db.best(workload, target, &fits).unwrap();
        assert_eq!(best.as_ref().map(|b| &b.record), model_best(log, fits), "{what}: best");
        if let Some(best) = best {
            let expected = match (best.record.is_untrusted(), best.record.phase) {
                (true, _) => TimeProvenance::Claimed,
                (false, Phase::Search) => TimeProvenance::Searched,
                (false, Phase::Race { .. }) => TimeProvenance::Raced,
            };
            assert_eq!(best.standing, expected, "{what}: best");
        }
        for k in [0, 1, 4, 1000] {
            let top = db.top(workload, target, k, &fits).unwrap();
            assert_eq!(top.iter().collect::<Vec<_>>(), model_ranking(&measured, k, fits), "{what}: top {k}");
            let claimed = db.untrusted(workload, target, k, &fits).unwrap();
            assert_eq!(claimed.iter().collect::<Vec<_>>(), model_ranking(&claims, k, fits), "{what}: claims {k}");
        }
    }

    for number in 0..31 {
        let known = log.iter().any(|r| r.config == config(number));
        assert_eq!(db.contains(workload, target, &config(number)).unwrap(), known, "{what}: contains {number}");
    }
}

pub fn export(db: &TuningDb) -> String {
    let mut bytes = Vec::new();
    db.export(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}
