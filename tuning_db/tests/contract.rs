//! Contract of the store, tested on a fresh store, on one that is reopened after every step, and on
//! a temporary one; also with random records against a model.

#[path = "../../measure/tests/layers.rs"]
mod layers;

use std::io::Cursor;

use autotune_db::{Best, DbError, ImportReport, OnInvalid, RecordError, TuningDb, TuningRecord};
use autotune_measurement::CandidateError;
use autotune_schedules::LOWERING_VERSION;
use autotune_workloads::Workload;
use rand::RngExt;

use crate::support::{
    TARGETS, WORKLOADS, any, assert_agrees, config, export, failed, imported, racing, random_race, random_record,
    record, rng,
};

/// Store, and the function that reopens it.
struct Subject {
    db: Option<TuningDb>,
    reopen: Option<Box<dyn Fn() -> TuningDb>>,
}

impl Subject {
    /// Returns the store, after reopening it if this subject has such a function.
    fn db(&mut self) -> &TuningDb {
        if let Some(reopen) = &self.reopen {
            self.db = None;
            self.db = Some(reopen());
        }
        self.db.as_ref().unwrap()
    }
}

/// Runs `check` on every kind of store.
fn on_every_store(check: impl Fn(&mut Subject)) {
    check(&mut Subject { db: Some(TuningDb::temporary().unwrap()), reopen: None });
    let dir = tempfile::tempdir().unwrap();
    check(&mut Subject { db: Some(TuningDb::open(dir.path().join("fresh.db")).unwrap()), reopen: None });
    let path = dir.path().join("not/yet/there/reopened.db");
    check(&mut Subject { db: None, reopen: Some(Box::new(move || TuningDb::open(&path).unwrap())) });
}

fn secs(best: Option<Best>) -> Option<f64> {
    best.and_then(|best| best.record.measurement.run_secs())
}

#[test]
fn an_empty_store_has_nothing() {
    on_every_store(|subject| {
        let workload: Workload = WORKLOADS[0].parse().unwrap();
        assert!(subject.db().is_empty());
        assert_eq!(subject.db().best(&workload, TARGETS[0], &any).unwrap(), None);
        assert_eq!(subject.db().top(&workload, TARGETS[0], 3, &any).unwrap(), []);
        assert_eq!(subject.db().query(&workload, TARGETS[0]).unwrap(), []);
        assert!(!subject.db().contains(&workload, TARGETS[0], &config(0)).unwrap());
        assert_eq!(subject.db().tasks().unwrap(), []);
        assert_eq!(export(subject.db()), "");
    });
}

#[test]
fn records_come_back_in_order_and_only_for_their_task() {
    on_every_store(|subject| {
        let first = record(WORKLOADS[0], TARGETS[0], 3, 2e-3);
        let others = [record(WORKLOADS[1], TARGETS[0], 1, 1e-6), record(WORKLOADS[0], TARGETS[1], 1, 1e-6)];
        let failure = failed(record(WORKLOADS[0], TARGETS[0], 2, 1.0));
        let again = record(WORKLOADS[0], TARGETS[0], 3, 1e-3);
        subject.db().append(&first).unwrap();
        assert_eq!(subject.db().append_all(&others).unwrap(), 2);
        subject.db().append(&failure).unwrap();
        subject.db().append(&again).unwrap();
        let db = subject.db();
        assert_eq!(db.query(&first.workload, TARGETS[0]).unwrap(), [first.clone(), failure.clone(), again.clone()]);
        assert_eq!(db.best(&first.workload, TARGETS[0], &any).unwrap().unwrap().record, again);
        assert_eq!(db.top(&first.workload, TARGETS[0], 9, &any).unwrap(), [again]);
        assert!(db.contains(&first.workload, TARGETS[0], &failure.config).unwrap());
        assert!(!db.contains(&first.workload, TARGETS[2], &failure.config).unwrap());
        let counts: Vec<u64> = db.tasks().unwrap().iter().map(|t| t.records).collect();
        assert_eq!((counts, db.len()), (vec![3, 1, 1], 5));
        assert_eq!(db.tasks().unwrap()[0].workload, first.workload);
    });
}

#[test]
fn an_equal_record_is_stored_once() {
    on_every_store(|subject| {
        let r = record(WORKLOADS[0], TARGETS[0], 0, 1e-3);
        assert_eq!(subject.db().append_all(&[r.clone(), r.clone()]).unwrap(), 1);
        assert_eq!(subject.db().append_all(std::slice::from_ref(&r)).unwrap(), 0);
        assert_eq!(subject.db().len(), 1);
    });
}

#[test]
fn a_race_settles_which_is_best() {
    on_every_store(|subject| {
        let r = |number, run_secs| record(WORKLOADS[2], TARGETS[0], number, run_secs);
        let workload = r(0, 1.0).workload;
        let mut best_after = |records: &[TuningRecord]| {
            subject.db().append_all(records).unwrap();
            secs(subject.db().best(&workload, TARGETS[0], &any).unwrap())
        };
        assert_eq!(best_after(&[r(0, 1.0), r(1, 1.1), r(2, 1.2)]), Some(1.0));

        // The incumbent's single measurement was lucky. The race's records are appended one at a
        // time, the other racer first.
        assert_eq!(best_after(&[racing(r(1, 1.15), 1)]), Some(1.0));
        assert_eq!(best_after(&[racing(r(0, 1.3), 1)]), Some(1.15));
        // A later record of a search has to beat the race's winner.
        assert_eq!(best_after(&[r(3, 1.2)]), Some(1.15));
        assert_eq!(best_after(&[r(4, 1.1)]), Some(1.1));
        // The incumbent does not take part, so the race's winner has to be faster.
        assert_eq!(best_after(&[racing(r(0, 1.2), 2), racing(r(1, 1.2), 2)]), Some(1.1));
        assert_eq!(best_after(&[racing(r(0, 1.05), 3), racing(r(1, 1.2), 3)]), Some(1.05));

        // The incumbent fails in the race.
        assert_eq!(best_after(&[racing(failed(r(0, 1.0)), 4), racing(r(1, 1.4), 4)]), Some(1.4));
        assert_eq!(best_after(&[racing(failed(r(1, 1.0)), 5)]), None);
        assert_eq!(best_after(&[r(5, 2.0)]), Some(2.0));

        let top = subject.db().top(&workload, TARGETS[0], 9, &any).unwrap();
        let times: Vec<f64> = top.into_iter().filter_map(|r| r.measurement.run_secs()).collect();
        assert_eq!(times, [1.1, 1.2, 1.2, 2.0], "configs 4, 2, 3 and 5; 0 and 1 failed in their last race");
    });
}

#[test]
fn impossible_measurements_are_refused_with_their_batch() {
    on_every_store(|subject| {
        let good = record(WORKLOADS[0], TARGETS[0], 0, 1e-3);
        let mut infinite = good.clone();
        infinite.measurement.build_secs = f64::INFINITY;
        let mut no_target = good.clone();
        no_target.target = String::new();
        let mut nul_target = good.clone();
        nul_target.target = "cpu\0".into();
        let timed = |run_secs| record(WORKLOADS[0], TARGETS[0], 0, run_secs);
        for bad in [timed(0.0), timed(-1.0), timed(f64::NAN), timed(f64::INFINITY), infinite, no_target, nul_target] {
            let error = subject.db().append_all(&[good.clone(), bad.clone()]).unwrap_err();
            assert!(matches!(error, DbError::Refused(_)), "{error} for {bad:?}");
            assert!(subject.db().is_empty());
        }
        let mut not_a_number = good.clone();
        not_a_number.measurement.outcome =
            Err(CandidateError::WrongResult { max_rel_error: f64::NAN, tolerance: 1e-4 });
        subject.db().append(&not_a_number).unwrap();
        assert_eq!(subject.db().query(&good.workload, TARGETS[0]).unwrap().len(), 1);
    });
}

#[test]
fn random_appends_agree_with_the_model() {
    for seed in 0..3 {
        on_every_store(|subject| {
            let mut rng = rng(seed);
            let mut model: Vec<TuningRecord> = Vec::new();
            for step in 0..40 {
                let mut batch: Vec<TuningRecord> =
                    (0..rng.random_range(0..6)).map(|_| random_record(&mut rng)).collect();
                if rng.random_bool(0.4) {
                    let like = random_record(&mut rng);
                    batch.extend(random_race(&mut rng, &like, step));
                }

                model.extend(batch.iter().cloned());
                if rng.random_bool(0.5) {
                    assert_eq!(subject.db().append_all(&batch).unwrap(), batch.len(), "seed {seed}");
                } else {
                    let db = subject.db();
                    batch.iter().for_each(|r| db.append(r).unwrap());
                }

                if step % 13 == 0 {
                    assert_agrees(subject.db(), &model, &format!("seed {seed}, step {step}"));
                }
            }
            assert_agrees(subject.db(), &model, &format!("seed {seed}, end"));
            assert_round_trip(subject.db(), &model, seed);
        });
    }
}

/// Exports and imports into an empty store. The records must be the same but untrusted, and further
/// copies identical.
fn assert_round_trip(db: &TuningDb, model: &[TuningRecord], seed: u64) {
    let text = export(db);
    assert_eq!(text.lines().count(), model.len(), "seed {seed}");
    let import = |db: &TuningDb, text: &str| db.import(Cursor::new(text), OnInvalid::Refuse).unwrap();
    let nothing_new = ImportReport { skipped_duplicates: model.len(), ..ImportReport::default() };
    assert_eq!(import(db, &text), nothing_new, "seed {seed}: into itself");

    let copy = TuningDb::temporary().unwrap();
    let added = ImportReport { added: model.len(), ..ImportReport::default() };
    assert_eq!(import(&copy, &text), added, "seed {seed}");
    let claims: Vec<TuningRecord> = model.iter().cloned().map(imported).collect();
    assert_agrees(&copy, &claims, &format!("seed {seed}, copy"));
    assert_eq!(import(&copy, &text), nothing_new, "seed {seed}");

    let copied = export(&copy);
    assert_eq!(import(&copy, &copied), nothing_new, "seed {seed}");
    let second = TuningDb::temporary().unwrap();
    assert_eq!(import(&second, &copied), added, "seed {seed}");
    assert_eq!(export(&second), copied, "seed {seed}");
}

#[test]
fn threads_share_a_handle() {
    on_every_store(|subject| {
        let db = subject.db();
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                scope.spawn(move || {
                    for i in 0..50u32 {
                        let run_secs = f64::from(1 + (i * 4 + thread) * 7919 % 997);
                        db.append(&record(WORKLOADS[0], TARGETS[0], i as usize, run_secs)).unwrap();
                        if i % 16 == 0 {
                            db.flush().unwrap();
                        }
                    }
                });
            }
        });
        let db = subject.db();
        let all = db.query(&WORKLOADS[0].parse().unwrap(), TARGETS[0]).unwrap();
        assert_eq!(all.len(), 200);
        assert_agrees(db, &all, "four threads");
    });
}

#[test]
fn unknown_fields_of_a_record_are_passed_over() {
    let good = record(WORKLOADS[0], TARGETS[0], 0, 1e-3);
    let line = good.to_line().unwrap();
    let newer = line.replace("\"seed\":", "\"weather\":{\"sunny\":true},\"seed\":").replacen('{', "{\"extra\":[1],", 1);
    assert_ne!(line, newer);
    assert_eq!(TuningRecord::from_line(&newer), Ok(good));
    let older = line.replace("\"phase\":\"search\",", "");
    assert_ne!(line, older);
    assert!(TuningRecord::from_line(&older).is_ok());
    let older = line.replace("\"backend\":\"c\",", "");
    assert_ne!(line, older);
    let read = TuningRecord::from_line(&older).unwrap();
    assert_eq!((read.provenance.backend, read.to_line()), (None, Ok(older)), "records of before there were backends");
    let older = line.replace(&format!("\"lowering\":{LOWERING_VERSION},"), "");
    assert_ne!(line, older);
    assert_eq!(
        TuningRecord::from_line(&older).unwrap().provenance.lowering,
        1,
        "records of the first lowering do not tell"
    );
    let newer = line.replace("\"version\":1", "\"version\":2");
    assert_eq!(TuningRecord::from_line(&newer), Err(RecordError::NewerVersion { found: 2, supported: 1 }));
}

#[test]
fn the_written_form_is_fixed() {
    let line = racing(record(WORKLOADS[0], TARGETS[2], 0, 1.5e-5), 9).to_line().unwrap();
    let expected = concat!(
        r#"{"version":1,"workload":"matmul:m=64,n=64,k=64","target":"cuda:sm_90","#,
        r#""config":{"sketch":"direct","knobs":{"order":["m","n"],"tile.m":[8,4]}},"#,
        r#""measurement":{"outcome":{"Ok":{"run_secs":0.000015,"median_secs":0.000015,"spread":0.1,"repeats":7,"#,
        r#""stopped_early":false,"max_rel_error":1e-7,"slowdown":1.0,"kernel_secs":0.0,"graph_runs":0}},"build_secs":0.07,"#,
        r#""measure_secs":0.01},"#,
        r#""phase":{"race":{"id":9}},"provenance":{"device":"a \"quoted\" device – ü","backend":"c","compiler":"gcc 12","#,
        r#""flags":"-O3","tuner_version":"0.1.0","lowering":6,"harness":"repeats=7","seed":18446744073709551615,"#,
        r#""unix_secs":1760000000}}"#,
    );
    assert_eq!(line, expected);
}
