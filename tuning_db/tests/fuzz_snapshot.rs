//! Damaged snapshots are refused, or each look-up gives an error or the original answer; never
//! another answer, a miss or a panic. `AUTOTUNE_CASES` sets the number of snapshots with random
//! damage.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use autotune_db::{KeyChain, Snapshot, SnapshotWriter};
use rand::{Rng, RngExt};

use crate::support::{TARGETS, record, rng};

const CASES: u64 = 3000;
const WORKLOADS: [&str; 3] = ["matmul:m=64,n=64,k=64", "matmul:m=64,n=64,k=64,bias", "matmul:m=8,n=64,k=64"];

fn cases() -> u64 {
    std::env::var("AUTOTUNE_CASES").map_or(CASES, |text| text.parse().expect("AUTOTUNE_CASES is a number"))
}

/// Returns a snapshot with schedules for every target and two of the three workloads.
fn whole() -> Vec<u8> {
    let mut writer = SnapshotWriter::default();
    for (number, target) in TARGETS.into_iter().enumerate() {
        for workload in &WORKLOADS[..2] {
            writer.add(&record(workload, target, number, 1e-3 * (number + 1) as f64)).unwrap();
        }
    }
    writer.into_bytes().unwrap()
}

/// Returns the answers for every target and workload: the full record as text, "none", or "error".
fn answers(bytes: Vec<u8>) -> Option<Vec<String>> {
    let snapshot = Snapshot::from_bytes(bytes).ok()?;
    let mut answers = Vec::new();
    for target in TARGETS.into_iter().chain(["cpu:other:avx2:threads=1"]) {
        let keys = KeyChain::of(target);
        for workload in WORKLOADS {
            answers.push(match snapshot.get(&keys, workload) {
                Ok(None) => "none".into(),
                Ok(Some(entry)) => match (entry.config(), entry.best()) {
                    (Ok(_), Ok(best)) => format!("{best:?} {:?} {}", entry.key_scope(), entry.run_secs()),
                    (_, Err(error)) | (Err(error), _) => one_line(&error),
                },
                Err(error) => one_line(&error),
            });
            answers.push(match snapshot.nearest(&keys, &workload.parse().unwrap(), 3) {
                Ok(nearest) => format!("near: {}", nearest.iter().map(|e| e.workload()).collect::<Vec<_>>().join(" ")),
                Err(error) => one_line(&error),
            });
        }
    }
    // The check must notice damage that no look-up reads.
    let report = snapshot.check();
    answers.push(report.map_or_else(|error| one_line(&error), |report| format!("{report:?}")));
    Some(answers)
}

fn one_line(error: &impl ToString) -> String {
    let text = error.to_string();
    assert!(text.lines().count() == 1 && text.contains("corrupt"), "{text}");
    "error".into()
}

fn assert_sound(damaged: Vec<u8>, right: &[String], what: &str) -> bool {
    let Some(answers) = answers(damaged) else {
        return false;
    };
    for (answer, right) in answers.iter().zip(right) {
        assert!(answer == right || answer == "error", "{what}: {answer} instead of {right}");
    }
    assert_eq!(answers.last().unwrap(), "error", "{what}: the check finds nothing");
    true
}

#[test]
fn no_flipped_bit_yields_another_answer() {
    let whole = whole();
    let right = answers(whole.clone()).unwrap();
    assert_eq!(right.iter().filter(|answer| *answer == "none").count(), 4);
    let near = format!("near: {} {}", WORKLOADS[0], WORKLOADS[1]);
    assert_eq!(right.iter().filter(|answer| **answer == near).count(), 8, "{right:#?}");
    assert!(right.iter().all(|answer| answer != "error"));
    let mut rng = rng(0);
    let mut opened = 0;
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << rng.random_range(0..8);
        opened += usize::from(assert_sound(damaged, &right, &format!("byte {at}")));
    }
    assert_eq!(opened, whole.len() - 128, "only damage of the header is noticed when it is opened");
}

#[test]
fn no_length_but_its_own_is_opened() {
    let whole = whole();
    for len in 0..whole.len() {
        assert!(Snapshot::from_bytes(whole[..len].to_vec()).is_err(), "{len} bytes");
    }
    assert!(Snapshot::from_bytes([&whole[..], &[0]].concat()).is_err());
}

#[test]
fn random_damage_yields_no_other_answer() {
    let whole = whole();
    let right = answers(whole.clone()).unwrap();
    for seed in 0..cases() {
        let mut rng = rng(seed);
        let damaged = damage(&whole, &mut rng);
        if damaged != whole {
            assert_sound(damaged, &right, &format!("seed {seed}"));
        }
    }
}

/// Overwrites a random range with random bytes, with another range, or with zeros.
fn damage(whole: &[u8], rng: &mut impl Rng) -> Vec<u8> {
    let mut damaged = whole.to_vec();
    let mut place = || rng.random_range(0..whole.len());
    let (from, to) = (place(), place());
    let bytes = rng.random_range(1..200).min(whole.len() - from).min(whole.len() - to);
    match rng.random_range(0..3) {
        0 => damaged[to..to + bytes].fill_with(|| rng.random()),
        1 => damaged[to..to + bytes].copy_from_slice(&whole[from..from + bytes]),
        _ => damaged[to..to + bytes].fill(0),
    }
    damaged
}
