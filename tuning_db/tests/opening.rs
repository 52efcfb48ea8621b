//! What opening a path says when it is no database, a newer one, or a damaged one.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use autotune_db::{DbError, TuningDb};
use support::{TARGETS, WORKLOADS, record};

fn filled(path: &Path) {
    let db = TuningDb::open(path).unwrap();
    db.append(&record(WORKLOADS[0], TARGETS[0], 0, 1e-3)).unwrap();
}

fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn looking_up_makes_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("missing.db");
    let error = TuningDb::open_existing(&path).unwrap_err();
    assert!(matches!(error, DbError::NotFound { .. }));
    assert!(error.to_string().contains("missing.db"));
    assert!(!path.exists());
    filled(&path);
    assert_eq!(TuningDb::open_existing(&path).unwrap().len(), 1);
}

#[test]
fn a_file_is_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    fs::write(&path, "hello").unwrap();
    for result in [TuningDb::open(&path), TuningDb::open_existing(&path)] {
        let error = result.unwrap_err();
        assert!(matches!(error, DbError::NotADirectory { .. }), "{error}");
        assert!(error.to_string().contains("notes.txt"), "{error}");
    }
    let error = TuningDb::open(path.join("below")).unwrap_err();
    assert!(error.to_string().contains("notes.txt/below"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "hello");
}

#[test]
fn another_directory_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "...").unwrap();
    let error = TuningDb::open(dir.path()).unwrap_err();
    assert!(matches!(&error, DbError::NotADatabase { found, .. } if found == "thesis.tex"), "{error}");
    assert_eq!(listing(dir.path()), ["thesis.tex"]);
}

#[test]
fn an_unwritable_place_is_named() {
    let error = TuningDb::open("/proc/tuning.db").unwrap_err();
    assert!(matches!(error, DbError::Io { .. }), "{error}");
    assert!(error.to_string().contains("/proc/tuning.db"), "{error}");
}

#[test]
fn a_newer_format_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("FORMAT"), "autotune-db 2\n").unwrap();
    fs::create_dir(path.join("sled")).unwrap();
    fs::write(path.join("sled/unknown"), "from the future").unwrap();
    let error = TuningDb::open(&path).unwrap_err();
    assert!(matches!(error, DbError::NewerFormat { found: 2, supported: 1, .. }), "{error}");
    assert!(error.to_string().contains("format 2, newer than the supported format 1"), "{error}");
    assert_eq!(
        (listing(&path), listing(&path.join("sled"))),
        (vec!["FORMAT".into(), "sled".into()], vec!["unknown".into()])
    );
}

#[test]
fn a_damaged_format_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    filled(&path);
    for text in ["", "autotune-db", "autotune-db x", "\u{0}\u{0}", "something else 1"] {
        fs::write(path.join("FORMAT"), text).unwrap();
        let error = TuningDb::open(&path).unwrap_err();
        assert!(matches!(error, DbError::Corrupt { .. }) && error.to_string().contains("FORMAT"), "{error}");
    }
    fs::write(path.join("FORMAT"), "autotune-db 1\n").unwrap();
    assert_eq!(TuningDb::open(&path).unwrap().len(), 1);
}

#[test]
fn a_database_killed_while_being_made_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    filled(&path);
    fs::rename(path.join("FORMAT"), path.join("FORMAT.new")).unwrap();
    assert_eq!(TuningDb::open(&path).unwrap().len(), 1);
    assert_eq!(fs::read_to_string(path.join("FORMAT")).unwrap(), "autotune-db 1\n");
}

#[test]
fn lost_records_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    filled(&path);
    fs::remove_dir_all(path.join("sled")).unwrap();
    let error = TuningDb::open(&path).unwrap_err();
    assert!(matches!(error, DbError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("its records are gone"), "{error}");
}

#[test]
fn losing_some_of_the_flushed_records_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = TuningDb::open(&path).unwrap();
    db.append(&record(WORKLOADS[0], TARGETS[0], 0, 1e-3)).unwrap();
    db.flush().unwrap();
    db.append(&record(WORKLOADS[0], TARGETS[0], 1, 1e-3)).unwrap();
    drop(db);
    let counter = path.join("flushed");
    assert_eq!(fs::read_to_string(&counter).unwrap(), "1\n");
    for (text, lost) in [("1\n", false), ("2\n", false), ("3\n", true), ("", false), ("\u{0}\u{0}", false)] {
        fs::write(&counter, text).unwrap();
        match TuningDb::open(&path) {
            Ok(db) => assert!(!lost && db.len() == 2, "{text:?}"),
            Err(error) => assert!(lost && error.to_string().contains("lost 1 of 3 records"), "{text:?}: {error}"),
        }
    }
}

#[test]
fn an_unfinished_snapshot_is_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    filled(&path);
    filled(&path);
    let unfinished = path.join("sled/snap.FFFFFFFFFFFFFF00.generating");
    fs::write(&unfinished, vec![7; 100]).unwrap();
    assert_eq!(TuningDb::open(&path).unwrap().len(), 1);
    assert!(!unfinished.exists());
}

#[test]
fn a_second_handle_is_told_who_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let held = TuningDb::open(&path).unwrap();
    let error = TuningDb::open(&path).unwrap_err();
    assert!(matches!(&error, DbError::Held { holder, .. } if holder.pid == std::process::id()), "{error}");
    let error = TuningDb::open_waiting(&path, Duration::from_millis(120)).unwrap_err();
    assert!(matches!(error, DbError::Held { .. }), "{error}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| TuningDb::open_waiting(&path, Duration::from_secs(600)).map(|db| db.len()));
        drop(held);
        assert_eq!(waiting.join().unwrap().unwrap(), 0);
    });
    fs::write(path.join("holder"), "left behind").unwrap();
    assert!(TuningDb::open(&path).is_ok(), "the lock decides, not the text");
}
