//! Exit codes for missing, mistaken and damaged databases or snapshots: 2 if the user gave a wrong
//! path, else 1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;

use crate::sandbox::{Sandbox, TINY};

/// Small network that loads fast.
const NETWORK: &str = "dqn --threads 1";

/// Returns commands that look up schedules in a database or a snapshot.
fn looking_up() -> Vec<String> {
    vec![
        format!("best {TINY}"),
        format!("show {TINY}"),
        format!("run {NETWORK} --repeat 1"),
        format!("compile {NETWORK} -o network.so"),
        format!("bench {NETWORK} --profile"),
    ]
}

/// Returns commands that read the records of a database.
fn reading() -> Vec<String> {
    vec![
        format!("report {TINY} -o page.html"),
        "log export records.jsonl".into(),
        "log export records.jsonl --salvage".into(),
        "snapshot write written.snapshot".into(),
    ]
}

/// Returns commands that write to a database.
fn writing() -> Vec<String> {
    vec![format!("{TINY} --trials 1"), format!("bench {TINY}"), "log import /dev/null".into()]
}

/// Returns a sandbox with the database of a tuned workload, and a snapshot of it.
fn tuned() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(&format!("{TINY} --trials 2")).expect(0);
    sandbox.run("snapshot write tuned.snapshot").expect(0);
    sandbox
}

/// Checks that each command exits with `code` and one line that contains `words`, and writes no
/// page.
fn check(sandbox: &Sandbox, lines: &[String], db: &str, code: i32, words: &str) {
    for line in lines {
        let line = format!("{line} --db {db}");
        let ended = sandbox.run(&line);
        let told = format!("{line}: {:?}\n{}{}", ended.code, ended.stdout, ended.stderr);
        assert!(ended.code == Some(code) && ended.stderr.contains(words), "{told}");
        assert!(ended.stderr.starts_with("autotune: ") && ended.stderr.lines().count() == 1, "{told}");
        for file in ["network.so", "network.h", "page.html", "records.jsonl", "written.snapshot"] {
            assert!(!sandbox.path(file).exists(), "{file} was written: {told}");
        }
    }
}

#[test]
fn a_database_that_was_named_and_is_not_there_is_bad_usage() {
    let sandbox = Sandbox::new();
    let readers = [looking_up(), reading()].concat();
    let words = "no tuning database at typo: specify another (--db), or create one by tuning (autotune NETWORK)";
    check(&sandbox, &readers, "typo", 2, words);
    assert!(!sandbox.path("typo").exists());

    // A missing database is no error if the path is the default one.
    sandbox.run(&format!("run {NETWORK} --repeat 1")).expect(0);
    sandbox.run(&format!("best {TINY}")).expect_line(1, "tune it first");
    sandbox.run(&format!("report {TINY} -o page.html")).expect_line(1, "tune it first");
}

#[test]
fn other_files_than_databases_and_snapshots_are_bad_usage() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("folder")).unwrap();
    fs::write(sandbox.path("folder/letter.txt"), "dear").unwrap();
    fs::write(sandbox.path("letter"), "dear reader").unwrap();
    let all = [looking_up(), reading(), writing()].concat();
    check(&sandbox, &all, "folder", 2, "folder is not a tuning database");
    check(&sandbox, &looking_up(), "letter", 2, "letter is not a snapshot");
    check(&sandbox, &[reading(), writing()].concat(), "letter", 2, "letter is a file");
    sandbox.run("snapshot check letter").expect_line(2, "letter is not a snapshot");
    sandbox.run("snapshot check none").expect_line(2, "no snapshot at none");
}

#[test]
fn a_damaged_database_is_a_failure() {
    let sandbox = tuned();
    let salvage = |line: &String| line.contains("--salvage");
    let readers: Vec<String> = [looking_up(), reading()].concat().into_iter().filter(|line| !salvage(line)).collect();
    let all = [readers.clone(), writing()].concat();

    let format = sandbox.path("db/FORMAT");
    fs::write(&format, "not a number").unwrap();
    check(&sandbox, &all, "db", 1, "db is corrupt");
    fs::write(&format, "autotune-db 99\n").unwrap();
    check(
        &sandbox,
        &[&all[..], &[reading().into_iter().find(salvage).unwrap()]].concat(),
        "db",
        1,
        "db has database format 99",
    );
    fs::write(&format, "autotune-db 2\n").unwrap();

    // A record lost in both copies: readers go on without it and print a warning.
    let journal = fs::read_to_string(sandbox.path("db/journal")).unwrap();
    fs::write(sandbox.path("db/journal"), journal.replacen("matmul", "matmur", 1)).unwrap();
    fs::remove_dir_all(sandbox.path("db/sled")).unwrap();
    check(&sandbox, &writing(), "db", 1, "db has lost 1 record(s)");
    assert!(sandbox.run(&format!("best {TINY}")).expect(0).stderr.contains("warning"));
    sandbox.run("log export records.jsonl --salvage").expect(0);
}

#[test]
fn a_database_in_use_is_a_failure() {
    let sandbox = tuned();
    let db = autotune_db::TuningDb::open(sandbox.path("db")).unwrap();
    check(&sandbox, &writing(), "db", 1, "db is in use by");
    drop(db);
}

#[test]
fn a_damaged_snapshot_is_a_failure() {
    let sandbox = tuned();
    let whole = fs::read(sandbox.path("tuned.snapshot")).unwrap();
    let damage = |name: &str, words: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        fs::write(sandbox.path(name), bytes).unwrap();
        check(&sandbox, &looking_up(), name, 1, words);
        sandbox.run(&format!("snapshot check {name}")).expect_line(1, words);
    };
    damage("other", "other has snapshot format 0", &|bytes| bytes[8] = 0);
    damage("header", "header is corrupt", &|bytes| bytes[20] ^= 1);
    damage("short", "short is corrupt", &|bytes| bytes.truncate(bytes.len() - 1));
}
