//! Logs with random damage. Each line is refused and named, or becomes an untrusted record that can
//! be looked up, exported and imported again; nothing panics. `AUTOTUNE_CASES` sets the number of
//! logs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use autotune_db::{OnInvalid, TuningDb};
use rand::{Rng, RngExt};
use serde_json::{Value, json};

use crate::random_value::random_value;
use crate::support::{export, random_record, rng};

const CASES: u64 = 300;

fn cases() -> u64 {
    std::env::var("AUTOTUNE_CASES").map_or(CASES, |text| text.parse().expect("AUTOTUNE_CASES is a number"))
}

/// Replaces one value of a record, chosen at random.
fn damage_value(value: &mut Value, rng: &mut impl Rng) {
    let value = random_value(value, 8, rng);
    *value = match rng.random_range(0..13) {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(0),
        3 => json!(1e-300),
        4 => json!(1e300),
        5 => json!(u64::MAX),
        6 => json!("\u{1b}[2J\u{7}"),
        7 => json!("x".repeat(rng.random_range(0..100_000))),
        8 => json!([[]]),
        9 => json!({"kind": "lower", "message": "m"}),
        10 => json!("matmul:m=1,n=1,k=18446744073709551615"),
        11 => json!({"race": {"id": 1}}),
        _ => json!(true),
    };
}

/// Returns a line of a log, whole or damaged.
fn line(rng: &mut impl Rng) -> Vec<u8> {
    let whole = random_record(rng).to_line().unwrap();
    match rng.random_range(0..4) {
        0 => whole.into_bytes(),
        1 => {
            let mut bytes = whole.into_bytes();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] = rng.random();
            }
            bytes.retain(|&byte| byte != b'\n');
            bytes
        }
        _ => {
            let mut value = serde_json::from_str(&whole).unwrap();
            damage_value(&mut value, rng);
            value.to_string().into_bytes()
        }
    }
}

#[test]
fn damaged_logs_are_refused_or_become_untrusted() {
    let (mut lines, mut imported) = (0, 0);
    for seed in 0..cases() {
        let mut rng = rng(seed);
        let log: Vec<Vec<u8>> = (0..rng.random_range(1..6)).map(|_| line(&mut rng)).collect();
        let text = log.join(&b'\n');
        let db = TuningDb::temporary().unwrap();
        let report = db.import(text.as_slice(), OnInvalid::Skip).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let blank = log.iter().filter(|line| line.iter().all(u8::is_ascii_whitespace)).count();
        let counted = report.added + report.skipped_duplicates + report.invalid_lines;
        assert_eq!(counted + blank, log.len(), "seed {seed}: {report:?}");
        assert_eq!(db.len(), report.added as u64, "seed {seed}");

        for task in db.tasks().unwrap() {
            let records = db.query(&task.workload, &task.target).unwrap();
            assert!(records.iter().all(|record| record.is_untrusted()), "seed {seed}");
            let positive = |secs: Option<f64>| secs.is_none_or(|secs| secs > 0.0 && secs.is_finite());
            assert!(records.iter().all(|record| positive(record.measurement.run_secs())), "seed {seed}");
            db.best(&task.workload, &task.target, &|_| true).unwrap();
            assert!(db.top(&task.workload, &task.target, 3, &|_| true).unwrap().is_empty(), "seed {seed}");
        }
        let again = TuningDb::temporary().unwrap();
        let copied = again.import(export(&db).as_bytes(), OnInvalid::Refuse).unwrap();
        assert_eq!((copied.added, export(&again)), (report.added, export(&db)), "seed {seed}");
        (lines, imported) = (lines + log.len(), imported + report.added);
    }
    println!("{lines} lines, {imported} of them imported");
    assert!(imported > 0 && imported < lines);
}
