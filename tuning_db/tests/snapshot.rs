//! Snapshots: answers of look-ups, replacement of files, and refusals.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use autotune_db::{
    DbError, KeyChain, Phase, Snapshot, SnapshotError, SnapshotWriter, Source, TimeProvenance, TuningDb, TuningRecord,
    open_source,
};
use autotune_ir::{CpuTarget, KeyParts, KeyScope, Target};
use autotune_schedules::{Config, KnobValue, ScheduleSpace};
use autotune_workloads::Workload;
use rand::{Rng, RngExt};

use crate::support::{failed, imported, racing, random_record, record, rng};

const HERE: &str = "cpu:AuthenticAMD-25-17:avx512:-:32K+1M+32M:fma4+add3:threads=2";
/// Decreasingly similar to the first.
const TARGETS: [&str; 9] = [
    HERE,
    "cpu:AuthenticAMD-25-17:avx512:avx512bf16:32K+1M+32M:fma4+add3:threads=2",
    "cpu:AuthenticAMD-25-17:avx512:threads=2",
    "cpu:AuthenticAMD-25-1:avx512:-:32K+512K+32M:fma4+add3:threads=2",
    "cpu:GenuineIntel-6-143:avx512:amx:48K+2M+105M:fma4+add4:threads=2",
    "cpu:AuthenticAMD-25-17:avx512:-:32K+1M+32M:fma4+add3:threads=1",
    "cuda:sm_90:NVIDIA_H100",
    "cuda:sm_90:any",
    "tpu:v7",
];

fn workloads() -> Vec<String> {
    (0..6).map(|i| format!("matmul:m=64,n={},k=64", 8 << i)).collect()
}

/// Returns a record that ran, of one of a few tasks.
fn random(rng: &mut impl Rng) -> TuningRecord {
    let (workloads, mut record) = (workloads(), random_record(rng));
    while record.measurement.run_secs().is_none() {
        record = random_record(rng);
    }
    record.workload = workloads[rng.random_range(0..workloads.len())].parse().unwrap();
    record.target = TARGETS[rng.random_range(0..TARGETS.len())].into();
    if rng.random_bool(0.5) { racing(record, rng.random()) } else { record }
}

fn snapshot(records: &[TuningRecord]) -> Snapshot {
    let mut writer = SnapshotWriter::default();
    records.iter().for_each(|record| writer.add(record).unwrap());
    Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap()
}

/// Specification of a look-up: among the records under the narrowest key that has any, measured
/// records come before untrusted ones, then the fastest.
fn model<'a>(records: &'a [TuningRecord], target: &str, workload: &str) -> Option<(&'a TuningRecord, KeyScope)> {
    let asks = KeyParts::of(target);
    KeyScope::ALL.into_iter().find_map(|reach| {
        let of_key = records
            .iter()
            .filter(|r| r.workload.to_string() == workload && asks.shares(&KeyParts::of(&r.target), reach));
        let worth = |r: &TuningRecord| (r.is_untrusted(), r.measurement.run_secs().unwrap());
        Some((of_key.min_by(|a, b| worth(a).partial_cmp(&worth(b)).unwrap())?, reach))
    })
}

/// Specification of the search for similar workloads: narrowest keys first, and under each the
/// nearest shapes.
fn near_model(records: &[TuningRecord], target: &str, workload: &Workload, n: usize) -> Vec<(KeyScope, String)> {
    let asks = KeyParts::of(target);
    let mut near: Vec<(KeyScope, String)> = Vec::new();
    for reach in KeyScope::ALL {
        let of_key = records.iter().filter(|r| asks.shares(&KeyParts::of(&r.target), reach));
        let mut alike: Vec<&Workload> =
            of_key.map(|r| &r.workload).filter(|other| workload.distance(other).is_finite()).collect();
        alike.sort_by(|a, b| workload.distance(a).total_cmp(&workload.distance(b)));
        for other in alike {
            if near.iter().all(|(_, known)| *known != other.to_string()) {
                near.push((reach, other.to_string()));
            }
        }
    }
    near.truncate(n);
    near
}

#[test]
fn the_nearest_are_of_the_narrowest_keys_and_of_the_same_operator() {
    let asked = ["matmul:m=64,n=20,k=64", "matmul:m=1,n=1,k=1048573", "conv2d:c=8,h=8,w=8,o=8,k=3"];
    for seed in 0..40 {
        let mut rng = rng(seed);
        let records: Vec<TuningRecord> = (0..rng.random_range(0..60)).map(|_| random(&mut rng)).collect();
        let snapshot = snapshot(&records);
        for target in TARGETS {
            for workload in asked.map(|text| text.parse::<Workload>().unwrap()) {
                for n in [0, 1, 3, 100] {
                    let found = snapshot.nearest(&KeyChain::of(target), &workload, n).unwrap();
                    let found: Vec<_> = found.iter().map(|e| (e.key_scope(), e.workload().to_string())).collect();
                    let expected = near_model(&records, target, &workload, n);
                    assert_eq!(found, expected, "seed {seed}: {n} near {workload} on {target}");
                }
            }
        }
    }
}

#[test]
fn databases_and_their_snapshots_know_the_same_near_schedules() {
    let target = Target::Cpu(CpuTarget::generic_avx2(2));
    let (db, mut writer) = (TuningDb::temporary().unwrap(), SnapshotWriter::default());
    for (number, text) in workloads().into_iter().enumerate() {
        let config = ScheduleSpace::new(&text.parse().unwrap(), &target).default_config();
        let record = TuningRecord { config, ..record(&text, &target.key(), number, 1e-3) };
        db.append(&record).unwrap();
        writer.add(&record).unwrap();
    }
    let snapshot = Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap();
    let space = ScheduleSpace::new(&"matmul:m=64,n=40,k=64".parse().unwrap(), &target);
    let near = Source::nearest(&snapshot, &space, 3).unwrap();
    let texts: Vec<String> = near.iter().map(|entry| entry.workload.to_string()).collect();
    assert_eq!(texts, ["matmul:m=64,n=32,k=64", "matmul:m=64,n=64,k=64", "matmul:m=64,n=16,k=64"]);
    assert_eq!(Source::nearest(&db, &space, 3).unwrap(), near);
    assert!(near.iter().all(|entry| space.adapt(&entry.config, &entry.workload).is_some()));
}

/// The schedules of some tasks, of a database or another snapshot.
#[test]
fn a_snapshot_takes_a_part_of_a_source() {
    let here = Target::Cpu(CpuTarget::generic_avx2(2));
    let db = TuningDb::temporary().unwrap();
    for text in workloads() {
        let config = ScheduleSpace::new(&text.parse().unwrap(), &here).default_config();
        for (number, target) in [here.key(), HERE.to_string()].iter().enumerate() {
            db.append(&TuningRecord { config: config.clone(), ..record(&text, target, number, 1e-3) }).unwrap();
        }
    }
    let mut all = SnapshotWriter::default();
    db.add_to(&mut all, &|_, _| true).unwrap();
    let all = Snapshot::from_bytes(all.into_bytes().unwrap()).unwrap();
    assert_eq!(all.len(), 2 * workloads().len() as u64);

    let wanted: Workload = workloads()[2].parse().unwrap();
    for source in [&db as &dyn Source, &all] {
        let mut part = SnapshotWriter::default();
        source.add_to(&mut part, &|workload, target| *workload == wanted && target == here.key()).unwrap();
        let part = Snapshot::from_bytes(part.into_bytes().unwrap()).unwrap();
        assert_eq!(part.len(), 1);
        let found = |source: &dyn Source| source.find(&wanted, &here, &|_| true).unwrap().unwrap().best.record;
        assert_eq!(found(&part), found(&db));
    }
}

#[test]
fn a_snapshot_answers_what_its_records_say() {
    for seed in 0..60 {
        let mut rng = rng(seed);
        let count = rng.random_range(0..60);
        let records: Vec<TuningRecord> = (0..count).map(|_| random(&mut rng)).collect();
        let snapshot = snapshot(&records);
        assert_eq!(snapshot.len(), records.len() as u64, "seed {seed}");

        for target in TARGETS {
            let keys = KeyChain::of(target);
            for workload in workloads() {
                let what = format!("seed {seed}: {workload} on {target}");
                let expected = model(&records, target, &workload);
                let found = snapshot.get(&keys, &workload).unwrap();
                assert_eq!(found.map(|entry| entry.key_scope()), expected.map(|(_, reach)| reach), "{what}");
                let (Some(found), Some((record, reach))) = (found, expected) else { continue };

                assert_eq!((found.workload(), found.target()), (workload.as_str(), record.target.as_str()), "{what}");
                assert_eq!(Some(found.run_secs()), record.measurement.run_secs(), "{what}");
                assert_eq!(found.lowering(), record.provenance.lowering, "{what}");
                assert_eq!(found.config().unwrap(), record.config, "{what}");
                let best = found.best().unwrap();
                assert_eq!((&best.record, best.standing), (record, found.provenance()), "{what}");
                let is_untrusted = record.is_untrusted() || !KeyParts::of(target).owns(reach);
                let measured =
                    if record.phase == Phase::Search { TimeProvenance::Searched } else { TimeProvenance::Raced };
                assert_eq!(best.standing, if is_untrusted { TimeProvenance::Claimed } else { measured }, "{what}");
            }
            assert!(snapshot.get(&keys, "matmul:m=1,n=1,k=1").unwrap().is_none());
            assert!(snapshot.get(&keys, "").unwrap().is_none());
        }
    }
}

/// Tests more records than a bucket of the index has slots.
#[test]
fn a_workload_may_be_known_by_many_machines_of_one_instruction_set() {
    let mut rng = rng(7);
    let machine = |number: u32| format!("cpu:V-{}-{number}:avx512:-:32K+1M+32M:?:threads=2", number % 5);
    let record = |number: u32| TuningRecord { target: machine(number), ..random(&mut rng) };
    let records: Vec<TuningRecord> = (0..60).map(record).collect();
    let snapshot = snapshot(&records);

    for number in 0..70 {
        for workload in workloads() {
            let found = snapshot.get(&KeyChain::of(&machine(number)), &workload).unwrap();
            let found = found.map(|entry| (entry.best().unwrap().record, entry.key_scope()));
            let expected = model(&records, &machine(number), &workload);
            assert_eq!(found, expected.map(|(record, reach)| (record.clone(), reach)), "{workload} on {number}");
        }
    }
}

#[test]
fn a_record_that_did_not_run_is_not_taken() {
    let mut writer = SnapshotWriter::default();
    let error = writer.add(&failed(record("matmul:m=64,n=64,k=64", HERE, 1, 1e-3))).unwrap_err();
    assert!(error.to_string().contains("the candidate did not run"), "{error}");
    assert!(writer.is_empty());
    assert!(Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap().is_empty());
}

/// Returns a record of the default config of a workload for a target.
fn of_default(workload: &str, target: &Target, run_secs: f64) -> TuningRecord {
    let config = ScheduleSpace::new(&workload.parse().unwrap(), target).default_config();
    TuningRecord { config, ..record(workload, &target.key(), 0, run_secs) }
}

#[test]
fn a_databases_best_are_written_and_looked_up_alike() {
    let (workload, cpu) = ("matmul:m=64,n=64,k=64", CpuTarget::generic_avx2(2));
    let target = Target::Cpu(cpu.clone());
    let stated = Target::detect("cuda:sm_80", None).unwrap();
    let best = of_default(workload, &target, 2e-5);
    let mut poison = of_default(workload, &target, 1e-9);
    poison.config.knobs.insert("warp".into(), KnobValue::Choice("9".into()));
    let device = TuningRecord { target: "cuda:sm_80:A100".into(), ..of_default(workload, &stated, 3e-5) };
    let outside = of_default("matmul:m=32,n=32,k=32", &target, 1e-5);
    let outside = TuningRecord { config: poison.config.clone(), ..outside };
    let unknown = TuningRecord { target: "tpu:v7".into(), ..best.clone() };

    let db = TuningDb::temporary().unwrap();
    let slow = imported(of_default(workload, &target, 1.0));
    db.append_all(&[best.clone(), poison, device.clone(), outside, unknown, slow]).unwrap();
    let mut writer = SnapshotWriter::default();
    let left_out = writer.add_best_of(&db, &|_| true).unwrap();
    let reasons: Vec<(&str, &str)> = left_out.iter().map(|task| (task.target.as_str(), task.reason)).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons.iter().any(|(target, why)| *target == "tpu:v7" && why.contains("does not know")));
    assert!(reasons.iter().any(|(_, why)| why.contains("the current schedule space")));
    let snapshot = Snapshot::from_bytes(writer.into_bytes().unwrap()).unwrap();
    let report = snapshot.check().unwrap();
    assert_eq!((report.schedules, report.untrusted, report.targets.len(), report.flaws), (2, 0, 2, Vec::new()));

    let parsed: Workload = workload.parse().unwrap();
    let family = Target::Cpu(CpuTarget { l2_bytes: 1 << 20, ..cpu });
    for (asks, record, reach, standing) in [
        (&target, &best, KeyScope::Machine, TimeProvenance::Searched),
        (&family, &best, KeyScope::Model, TimeProvenance::Claimed),
        (&stated, &device, KeyScope::Isa, TimeProvenance::Searched),
    ] {
        let space = ScheduleSpace::new(&parsed, asks);
        for source in [&db as &dyn Source, &snapshot] {
            let found = source.find(&parsed, asks, &|config| space.contains(config)).unwrap().unwrap();
            assert_eq!((&found.best.record, found.reach, found.best.standing), (record, reach, standing), "{asks}");
            let is_other = |config: &Config| space.contains(config) && *config != record.config;
            assert_eq!(source.find(&parsed, asks, &is_other).unwrap(), None, "{asks}");
            assert!(source.knows(&parsed, &record.target).unwrap());
            assert!(!source.knows(&parsed, "cpu:test:avx2:threads=7").unwrap());
        }
    }

    let mut one = SnapshotWriter::default();
    assert_eq!(one.add_best_of(&db, &|key| key.starts_with("cuda")).unwrap(), []);
    assert_eq!(Snapshot::from_bytes(one.into_bytes().unwrap()).unwrap().len(), 1);
}

#[test]
fn unservable_schedules_are_found_by_the_check() {
    let target = Target::Cpu(CpuTarget::generic_avx2(2));
    let sound = of_default("matmul:m=64,n=64,k=64", &target, 2e-5);
    let mut outside = of_default("matmul:m=32,n=64,k=64", &target, 2e-5);
    outside.config.knobs.insert("warp".into(), KnobValue::Choice("9".into()));
    let unknown = TuningRecord { target: "tpu:v7".into(), ..sound.clone() };
    let report = snapshot(&[sound, outside, unknown]).check().unwrap();
    let words: Vec<&str> = report.flaws.iter().map(|flaw| flaw.reason.as_str()).collect();
    assert_eq!((report.schedules, words.len()), (3, 2), "{words:?}");
}

fn written(path: &Path, run_secs: f64) {
    let mut writer = SnapshotWriter::default();
    writer.add(&record("matmul:m=64,n=64,k=64", HERE, 1, run_secs)).unwrap();
    let written = writer.write(path).unwrap();
    assert_eq!((written.schedules, written.targets), (1, 1));
    assert_eq!(fs::metadata(path).unwrap().len(), written.file_bytes);
}

fn run_secs(snapshot: &Snapshot) -> f64 {
    snapshot.get(&KeyChain::of(HERE), "matmul:m=64,n=64,k=64").unwrap().unwrap().run_secs()
}

#[test]
fn a_file_is_replaced_and_who_has_it_open_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tuned.snapshot");
    written(&path, 1.0);
    let old = Snapshot::open(&path).unwrap();
    written(&path, 2.0);
    assert_eq!((run_secs(&old), run_secs(&Snapshot::open(&path).unwrap())), (1.0, 2.0));
    old.check().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o222, 0, "nobody overwrites it in place");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    assert_eq!(run_secs(&Snapshot::from_bytes(fs::read(&path).unwrap()).unwrap()), 2.0);
    assert!(open_source(&path).unwrap().knows(&"matmul:m=64,n=64,k=64".parse().unwrap(), HERE).unwrap());
}

#[test]
fn remains_of_a_killed_writer_are_overwritten_and_other_files_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (path, new_path) = (dir.path().join("tuned"), dir.path().join("tuned.new"));
    for left in [&b""[..], b"auto", b"autosnap\x01\0\0\0 unfinished"] {
        fs::write(&new_path, left).unwrap();
        written(&path, 1.0);
        assert!(!new_path.exists());
    }

    let refused = |path: &Path, at: &Path| {
        let mut writer = SnapshotWriter::default();
        writer.add(&record("matmul:m=64,n=64,k=64", HERE, 1, 2.0)).unwrap();
        let error = writer.write(path).unwrap_err();
        assert!(matches!(&error, SnapshotError::InTheWay { path, .. } if path == at), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    };
    fs::write(&new_path, "somebody's own").unwrap();
    refused(&path, &new_path);
    assert_eq!(fs::read(&new_path).unwrap(), b"somebody's own");
    assert_eq!(run_secs(&Snapshot::open(&path).unwrap()), 1.0);

    let text = dir.path().join("letter.txt");
    fs::write(&text, "dear").unwrap();
    refused(&text, &text);
    assert_eq!(fs::read(&text).unwrap(), b"dear");
    refused(dir.path(), dir.path());
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    refused(&link, &link);

    let nowhere = SnapshotWriter::default().write(dir.path().join("no/such/folder")).unwrap_err();
    assert!(matches!(nowhere, SnapshotError::Io { .. }), "{nowhere}");
}

#[test]
fn files_that_are_no_snapshot_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tuned");
    let refusal = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = Snapshot::open(&path).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.lines().count() == 1, "{text}");
        assert!(matches!(open_source(&path), Err(DbError::Snapshot(_))));
        error
    };
    assert!(matches!(refusal(b""), SnapshotError::NotASnapshot { .. }));
    assert!(matches!(refusal(b"{\"version\":1}\n"), SnapshotError::NotASnapshot { .. }));
    assert!(matches!(refusal(b"autosnap"), SnapshotError::Corrupt { .. }));
    assert!(matches!(refusal(b"autosnap\0\0\0\0\0\0\0\0"), SnapshotError::OtherFormat { found: 0, .. }));
    assert!(matches!(refusal(b"autosnap\x01\0\0\0\0\0\0\0"), SnapshotError::OtherFormat { found: 1, .. }));

    assert!(matches!(Snapshot::open(dir.path()), Err(SnapshotError::NotASnapshot { .. })));
    assert!(matches!(Snapshot::open(dir.path().join("none")), Err(SnapshotError::NotFound { .. })));
    assert!(matches!(open_source(dir.path().join("none")), Err(DbError::NotFound { .. })));
}
