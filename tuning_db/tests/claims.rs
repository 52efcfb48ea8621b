//! Untrusted records, which were not measured here: how they arise, and that they never win over
//! measured ones.

use std::io::Cursor;

use autotune_db::{DbError, OnInvalid, TimeProvenance, TuningDb, TuningRecord};
use autotune_measurement::CandidateError;
use autotune_schedules::{Config, KnobValue};
use autotune_workloads::Workload;

use crate::support::{TARGETS, WORKLOADS, any, config, export, failed, imported, racing, record};

const TARGET: &str = TARGETS[0];

fn workload() -> Workload {
    WORKLOADS[0].parse().unwrap()
}

/// Returns true if the config has only these knobs, those of the present space.
fn in_space(config: &Config) -> bool {
    config.knobs.keys().all(|knob| knob == "tile.m" || knob == "order")
}

fn with_unknown_knob(mut record: TuningRecord) -> TuningRecord {
    record.config.knobs.insert("warp".into(), KnobValue::Choice("9".into()));
    record
}

fn best(db: &TuningDb) -> Option<(TimeProvenance, f64)> {
    let best = db.best(&workload(), TARGET, &in_space).unwrap()?;
    Some((best.standing, best.record.measurement.run_secs()?))
}

fn import(db: &TuningDb, records: &[TuningRecord]) -> usize {
    let lines: Vec<String> = records.iter().map(|r| r.to_line().unwrap()).collect();
    db.import(Cursor::new(lines.join("\n")), OnInvalid::Refuse).unwrap().added
}

#[test]
fn untrusted_records_never_beat_local_measurements() {
    let db = TuningDb::temporary().unwrap();
    let r = |number, run_secs| record(WORKLOADS[0], TARGET, number, run_secs);
    assert_eq!(import(&db, &[r(0, 1e-12), with_unknown_knob(r(1, 1e-13))]), 2);
    assert_eq!(best(&db), Some((TimeProvenance::Claimed, 1e-12)), "nothing else is known");

    db.append(&r(2, 1e-3)).unwrap();
    assert_eq!(best(&db), Some((TimeProvenance::Searched, 1e-3)));
    db.append_all(&[racing(r(2, 2e-3), 1), racing(r(3, 3e-3), 1)]).unwrap();
    assert_eq!(best(&db), Some((TimeProvenance::Raced, 2e-3)));

    let top: Vec<TuningRecord> = db.top(&workload(), TARGET, 9, &in_space).unwrap();
    assert_eq!(top.iter().map(|r| r.config.clone()).collect::<Vec<_>>(), [config(2), config(3)]);
    let claims = db.untrusted(&workload(), TARGET, 9, &in_space).unwrap();
    assert_eq!(claims, [imported(r(0, 1e-12))]);
}

#[test]
fn a_record_outside_the_space_is_skipped() {
    let db = TuningDb::temporary().unwrap();
    let r = |number, run_secs| record(WORKLOADS[0], TARGET, number, run_secs);
    // This record was measured here, by a version whose space had the knob.
    let unfit = with_unknown_knob(r(0, 1e-12));
    db.append_all(&[unfit.clone(), r(1, 1e-3)]).unwrap();
    assert_eq!(best(&db), Some((TimeProvenance::Searched, 1e-3)));
    db.append_all(&[racing(r(1, 1.5e-3), 7), racing(unfit.clone(), 7), racing(r(2, 1.2e-3), 7)]).unwrap();
    assert_eq!(best(&db), Some((TimeProvenance::Raced, 1.2e-3)));
    assert_eq!(db.best(&workload(), TARGET, &any).unwrap().unwrap().record, racing(unfit, 7));
}

#[test]
fn configs_that_failed_here_are_not_served_from_untrusted_records() {
    let db = TuningDb::temporary().unwrap();
    let r = |number, run_secs| record(WORKLOADS[0], TARGET, number, run_secs);
    import(&db, &[r(0, 1e-9), r(1, 1e-3)]);
    assert_eq!(best(&db), Some((TimeProvenance::Claimed, 1e-9)));
    db.append(&failed(r(0, 1.0))).unwrap();
    assert_eq!(best(&db), Some((TimeProvenance::Claimed, 1e-3)));
    db.append(&failed(r(1, 1.0))).unwrap();
    assert_eq!(best(&db), None);
}

#[test]
fn times_of_another_lowering_are_untrusted() {
    let db = TuningDb::temporary().unwrap();
    let mut old = record(WORKLOADS[0], TARGET, 0, 1e-9);
    old.provenance.lowering = 0;
    db.append_all(&[old.clone(), record(WORKLOADS[0], TARGET, 1, 1e-3)]).unwrap();
    assert_eq!(best(&db), Some((TimeProvenance::Searched, 1e-3)));
    assert_eq!(db.untrusted(&workload(), TARGET, 9, &in_space).unwrap(), [old]);
}

#[test]
fn importing_what_is_known_changes_nothing() {
    let db = TuningDb::temporary().unwrap();
    let own = record(WORKLOADS[0], TARGET, 0, 1e-3);
    let foreign = record(WORKLOADS[0], TARGET, 1, 2e-3);
    db.append(&own).unwrap();
    assert_eq!(import(&db, &[own.clone(), foreign.clone()]), 1);
    assert_eq!(import(&db, &[own.clone(), foreign.clone()]), 0);
    assert_eq!(db.query(&workload(), TARGET).unwrap(), [own.clone(), imported(foreign.clone())]);

    // A copy's records are untrusted, and remain so when they are copied again.
    let copy = TuningDb::temporary().unwrap();
    copy.import(Cursor::new(export(&db)), OnInvalid::Refuse).unwrap();
    assert_eq!(copy.query(&workload(), TARGET).unwrap(), [imported(own), imported(foreign)]);
}

#[test]
fn records_of_an_old_key_are_adopted_once_as_untrusted() {
    let dir = tempfile::tempdir().unwrap();
    for reopened in [false, true] {
        let path = dir.path().join(format!("{reopened}.db"));
        let mut db = TuningDb::open(&path).unwrap();
        let old: Vec<TuningRecord> = (0..9).map(|i| record(WORKLOADS[i % 3], TARGET, i, 1e-3)).collect();
        db.append_all(&old).unwrap();
        for expected in [9, 0, 0] {
            assert_eq!(db.adopt(TARGET, "cpu:new:threads=1").unwrap(), expected);
            if reopened {
                drop(db);
                db = TuningDb::open(&path).unwrap();
            }
        }
        let adopted = db.query_target("cpu:new:threads=1").unwrap();
        assert!(adopted.len() == 9 && adopted.iter().all(|r| r.imported && r.target == "cpu:new:threads=1"));
        let best = db.best(&workload(), "cpu:new:threads=1", &any).unwrap().unwrap();
        assert_eq!(best.standing, TimeProvenance::Claimed);
        assert_eq!(db.adopt("cpu:nobody", "cpu:new:threads=1").unwrap(), 0);
    }
}

/// Checks that an import of a valid line, a bad one and a valid one refuses or skips the bad one.
fn assert_refused(bad: &str, expected: &str) {
    let good = record(WORKLOADS[0], TARGET, 0, 1e-3).to_line().unwrap();
    let other = record(WORKLOADS[0], TARGET, 1, 1e-3).to_line().unwrap();
    assert_ne!(bad, good, "the case must change the line");
    let log = format!("{good}\n\n{bad}\n{other}\n");

    let db = TuningDb::temporary().unwrap();
    let error = db.import(Cursor::new(&log), OnInvalid::Refuse).unwrap_err();
    assert!(matches!(error, DbError::Log { line: 3, .. }), "{error}");
    assert!(error.to_string().contains(expected), "'{expected}' is not in: {error}");
    assert!(db.is_empty());

    let report = db.import(Cursor::new(&log), OnInvalid::Skip).unwrap();
    assert_eq!((report.added, report.invalid_lines, report.first_invalid[0].0), (2, 1, 3));
    assert!(report.first_invalid[0].1.contains(expected));
}

#[test]
fn a_log_line_that_no_measurement_yields_is_named_or_passed_over() {
    let good = record(WORKLOADS[0], TARGET, 0, 1e-3);
    let line = good.to_line().unwrap();
    let failure = failed(good.clone()).to_line().unwrap();

    let cases: &[(&str, &str, &str)] = &[
        ("\"version\":1", "\"version\":7", "record version 7 is newer than the supported version 1"),
        ("m=64", "m=0", "'m': must be at least 1"),
        ("\"compiler\"", "\"assembler\"", "missing field `compiler`"),
        ("\"run_secs\":0.001", "\"run_secs\":-1", "'run_secs'"),
        ("\"run_secs\":0.001", "\"run_secs\":0", "'run_secs'"),
        ("\"run_secs\":0.001", "\"run_secs\":1e999", "not a tuning record"),
        ("\"median_secs\":0.001", "\"median_secs\":-1", "'median_secs'"),
        ("\"spread\":0.1", "\"spread\":-0.1", "'spread'"),
        ("\"repeats\":7", "\"repeats\":0", "'repeats'"),
        ("\"repeats\":7", "\"repeats\":-7", "not a tuning record"),
        ("\"slowdown\":1.0", "\"slowdown\":0.0", "'slowdown'"),
        ("\"kernel_secs\":0.0", "\"kernel_secs\":-1.0", "'kernel_secs'"),
        ("\"build_secs\":0.07", "\"build_secs\":-1.0", "'build_secs'"),
        ("\"measure_secs\":0.01", "\"measure_secs\":-0.5", "'measure_secs'"),
        ("\"max_rel_error\":1e-7", "\"max_rel_error\":1e30", "'max_rel_error': 1e30 exceeds the tolerance"),
        ("\"max_rel_error\":1e-7", "\"max_rel_error\":2e-4", "'max_rel_error'"),
        ("\"max_rel_error\":1e-7", "\"max_rel_error\":-1e-7", "'max_rel_error'"),
        ("cpu:test", "cpu:\\u001b[2J", "'target'"),
        ("\"direct\"", "\"direct\\u0007\"", "'config'"),
        ("gcc 12", "gcc \\u001b]0;owned\\u0007", "'compiler'"),
        ("-O3", "-O3\\n", "'flags'"),
        ("repeats=7", "repeats=7\\u0000", "'harness'"),
        ("0.1.0", "0.1.0\\u009b", "'tuner_version'"),
    ];

    for (from, to, expected) in cases {
        assert!(line.contains(from), "{from} is not in {line}");
        assert_refused(&line.replace(from, to), expected);
    }
    assert_refused(&failure.replace("signal 11", "signal \\u001b[31m"), "'message'");
    for (bad, expected) in
        [("{", "not a tuning record"), ("[1,2]", "not a tuning record"), ("\u{0}\u{1}", "not a tuning record")]
    {
        assert_refused(bad, expected);
    }
    assert_refused("{\"workload\":\"matmul:m=1,n=1,k=1\"}", "missing field `version`");
    assert!(good.to_line().is_ok());
}

#[test]
fn absurd_lengths_are_refused() {
    let line = record(WORKLOADS[0], TARGET, 0, 1e-3).to_line().unwrap();
    let long = |bytes: usize| "x".repeat(bytes);
    assert_refused(&line.replace("cpu:test", &long(257)), "'target': ");
    assert_refused(&line.replace("cpu:test", &long(1 << 20)), "longer than");
    assert_refused(&line.replace("gcc 12", &long(3000)), "'compiler'");
    assert_refused(&line.replace("\"direct\"", &format!("\"{}\"", long(20_000))), "'config'");
    let failure = failed(record(WORKLOADS[0], TARGET, 0, 1.0)).to_line().unwrap();
    assert_refused(&failure.replace("signal 11", &long(20_000)), "'message'");

    let bytes = b"\xff\xfe\n";
    let error = TuningDb::temporary().unwrap().import(Cursor::new(bytes), OnInvalid::Refuse).unwrap_err().to_string();
    assert!(error.starts_with("line 1 of the log: ") && error.contains("utf-8"), "{error}");
    let endless = std::io::BufReader::new(std::io::repeat(b'x'));
    let error = TuningDb::temporary().unwrap().import(endless, OnInvalid::Refuse).unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
}

#[test]
fn only_the_first_lines_passed_over_are_named() {
    let good = record(WORKLOADS[0], TARGET, 0, 1e-3).to_line().unwrap();
    let log = format!("{}{good}\n", "x\n".repeat(1000));
    let db = TuningDb::temporary().unwrap();
    let report = db.import(Cursor::new(log), OnInvalid::Skip).unwrap();
    assert_eq!((report.added, report.invalid_lines, report.first_invalid.len()), (1, 1000, 3));
}

#[test]
fn messages_of_compilers_and_drivers_are_stored_tidied() {
    let dir = tempfile::tempdir().unwrap();
    let db = TuningDb::open(dir.path().join("db")).unwrap();
    let mut record = record(WORKLOADS[0], TARGET, 0, 1.0);
    record.provenance.compiler = "gcc\u{1b}[31m 12".into();
    let message = format!("line 1\n\tline 2 \u{1b}[1m{}", "ü".repeat(1 << 20));
    record.measurement.outcome = Err(CandidateError::Build { message });
    db.append(&record).unwrap();
    let stored = db.query(&workload(), TARGET).unwrap().pop().unwrap();
    assert_eq!(stored.provenance.compiler, "gcc\u{fffd}[31m 12");
    let Err(CandidateError::Build { message }) = stored.measurement.outcome else { panic!("another outcome") };
    assert!(message.starts_with("line 1\n\tline 2 \u{fffd}[1müü") && message.len() <= 16 << 10, "{}", message.len());
    assert_eq!(TuningDb::temporary().unwrap().import(Cursor::new(export(&db)), OnInvalid::Refuse).unwrap().added, 1);
}
