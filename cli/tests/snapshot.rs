//! `autotune snapshot`, and look-ups in the files that it writes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;

use autotune::{Deploy, TuneOnMiss, tune_within};
use autotune_db::{TimeProvenance, TuningDb, TuningRecord};
use autotune_ir::Target;
use serde_json::Value;

use crate::sandbox::{Sandbox, TINY, finish};

/// Returns a sandbox with the database of a tuned workload, and a snapshot of it.
fn tuned() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(&format!("{TINY} --trials 4")).expect(0);
    let written = sandbox.run("snapshot write tuned.snapshot").expect(0).stdout;
    assert!(written.starts_with("wrote 1 schedule(s) of 1 target(s) to tuned.snapshot, "), "{written}");
    sandbox
}

/// Replaces all records of the database by changed ones.
fn change(sandbox: &Sandbox, change: impl Fn(TuningRecord) -> TuningRecord) {
    let lines = sandbox.run("log export -").expect(0).stdout;
    let records: Vec<TuningRecord> = lines.lines().map(|line| change(TuningRecord::from_line(line).unwrap())).collect();
    fs::remove_dir_all(sandbox.path("db")).unwrap();
    TuningDb::open(sandbox.path("db")).unwrap().append_all(&records).unwrap();
}

#[test]
fn tuned_schedules_are_written_checked_and_looked_up() {
    let sandbox = tuned();
    let key = Target::detect("cpu", None).unwrap().key();
    let checked = sandbox.run("snapshot check tuned.snapshot").expect(0).stdout;
    assert_eq!(checked, format!("tuned.snapshot: 1 schedule(s) are valid\n{key}\n"));

    let of_db = sandbox.run(&format!("best {TINY}")).expect(0).stdout;
    let of_snapshot = sandbox.run(&format!("best {TINY} --db tuned.snapshot")).expect(0).stdout;
    assert_eq!(of_db, of_snapshot);
    let best: Value = serde_json::from_str(&of_snapshot).unwrap();
    assert_eq!((&best["reach"], &best["standing"], &best["target"]), (&"machine".into(), &"raced".into(), &key.into()));
    let shown = sandbox.run(&format!("show {TINY} --db tuned.snapshot")).expect(0).stdout;
    assert!(shown.contains("the best in the database"), "{shown}");
    sandbox.run("best matmul:m=9,n=9,k=9 --db tuned.snapshot").expect_line(1, "no schedule is known");

    sandbox.run("snapshot write tuned.snapshot --target cpu").expect(0);
    let none = sandbox.run("snapshot write tuned.snapshot --target cuda:sm_90");
    none.expect_line(1, "db has no schedule for cuda:sm_90 to write: tune first");
    sandbox.run("snapshot check tuned.snapshot").expect(0);
    assert!(!sandbox.path("tuned.snapshot.new").exists());
}

#[test]
fn unknown_machines_are_served_records_of_similar_ones_with_a_note() {
    let sandbox = tuned();
    let target = Target::detect("cpu", None).unwrap();
    let cpu = target.cpu().unwrap();
    let other = |model: &str| {
        let other = autotune_ir::CpuTarget { model: model.into(), ..cpu.clone() };
        Target::Cpu(other).key()
    };
    let family = cpu.model.rsplit_once('-').map_or(cpu.model.as_str(), |(family, _)| family);
    for (model, reach, words) in [
        (format!("{family}-999"), "family", "with the same CPU family"),
        ("Nobody-1-1".to_string(), "isa", "with the same instruction set"),
    ] {
        change(&sandbox, |record| TuningRecord { target: other(&model), ..record });
        sandbox.run("snapshot write other.snapshot").expect(0);
        for db in ["db", "other.snapshot"] {
            let served = sandbox.run(&format!("best {TINY} --db {db}")).expect(0);
            let best: Value = serde_json::from_str(&served.stdout).unwrap();
            assert_eq!((&best["reach"], &best["standing"]), (&reach.into(), &"claimed".into()), "{db}");
            assert!(served.stderr.contains(words) && served.stderr.contains(&other(&model)), "{db}: {}", served.stderr);
            assert!(sandbox.run(&format!("show {TINY} --db {db}")).expect(0).stdout.contains(words), "{db}");
        }
    }
}

#[test]
fn bad_snapshots_are_refused_in_one_line() {
    let sandbox = tuned();
    let whole = fs::read(sandbox.path("tuned.snapshot")).unwrap();
    let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        fs::write(sandbox.path(name), bytes).unwrap();
        for line in
            [format!("snapshot check {name}"), format!("best {TINY} --db {name}"), format!("show {TINY} --db {name}")]
        {
            sandbox.run(&line).expect_line(if name == "text" { 2 } else { 1 }, name);
        }
    };
    damage("old", &|bytes| bytes[8] = 0);
    damage("header", &|bytes| bytes[20] ^= 1);
    damage("index", &|bytes| bytes[128..].chunks_mut(64).for_each(|bucket| bucket[0] ^= 1));
    damage("short", &|bytes| bytes.truncate(bytes.len() - 1));
    damage("text", &|bytes| *bytes = b"dear reader".to_vec());
    sandbox
        .run("snapshot check old")
        .expect_line(1, "old has snapshot format 0, this version reads format 3: write it again");
    sandbox.run("snapshot check none").expect_line(2, "no snapshot at none");
    sandbox.run("snapshot check tuned.snapshot").expect(0);
}

#[test]
fn schedules_that_would_not_be_served_fail_the_check() {
    let sandbox = tuned();
    change(&sandbox, |mut record| {
        record.config.knobs.insert("warp".into(), autotune_schedules::KnobValue::Choice("9".into()));
        record
    });
    let none = sandbox.run("snapshot write none.snapshot").expect(1);
    assert_eq!(none.stderr.lines().count(), 2, "{}", none.stderr);
    assert!(
        none.stderr.contains("is left out: no measured schedule is in the current schedule space"),
        "{}",
        none.stderr
    );

    let db = TuningDb::open_reading(sandbox.path("db")).unwrap();
    let mut writer = autotune_db::SnapshotWriter::default();
    let task = db.tasks().unwrap().remove(0);
    let record = db.best(&task.workload, &task.target, &|_| true).unwrap().unwrap().record;
    writer.add(&record).unwrap();
    writer.write(sandbox.path("bad.snapshot")).unwrap();
    let ended = sandbox.run("snapshot check bad.snapshot").expect(1);
    assert!(ended.stderr.contains("1 of 1 schedule(s) would not be served"), "{}", ended.stderr);
}

#[test]
fn existing_files_are_left_alone_and_bad_usage_is_reported() {
    let sandbox = tuned();
    fs::write(sandbox.path("letter.txt"), "dear").unwrap();
    for (line, words) in [
        ("snapshot", "missing"),
        ("snapshot write", "<FILE>"),
        ("snapshot write letter.txt", "letter.txt exists and is not a snapshot"),
        ("snapshot write db", "db exists and is not a snapshot"),
        ("snapshot write no/folder/x", "no/folder/x"),
        ("snapshot write x --target tpu", "unknown target 'tpu'"),
        ("snapshot write x --db nowhere", "no tuning database at nowhere"),
        ("snapshot write x --db tuned.snapshot", "tuned.snapshot is a file"),
    ] {
        sandbox.run(line).expect_line(2, words);
    }
    assert_eq!(fs::read(sandbox.path("letter.txt")).unwrap(), b"dear");
    for line in ["snapshot write --help", "snapshot check --help"] {
        assert!(sandbox.run(line).expect(0).stdout.contains("Examples:"));
    }

    let mut command = sandbox.command("snapshot write here --db db");
    command.env("HOME", "").env_remove("AUTOTUNE_DB");
    finish(command).expect(0);
}

/// Tunes within the test's process; the command next to it serves as the worker that runs
/// candidates.
#[test]
fn a_program_tunes_what_it_misses_and_then_looks_it_up() {
    let sandbox = Sandbox::new();
    let (workload, target) = (TINY.parse().unwrap(), Target::detect("cpu", Some(1)).unwrap());
    let deploy = Deploy::TuneOnMiss(TuneOnMiss::into(sandbox.path("db"), tune_within(4, None)));
    let tuned = deploy.schedule(&workload, &target).unwrap();
    assert_eq!(tuned.best().map(|best| best.standing), Some(TimeProvenance::Raced));
    let records = sandbox.records();
    assert_eq!(records.iter().filter(|record| record["phase"] == "search").count(), 4);
    tuned.build().unwrap();

    assert_eq!(deploy.schedule(&workload, &target).unwrap().config(), tuned.config());
    assert_eq!(sandbox.records().len(), records.len(), "nothing was measured again");
}
