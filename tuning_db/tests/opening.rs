//! Errors and warnings of opening a path that is not a database, a newer one, or a damaged one.

use std::fs;
use std::io::Write;
use std::path::Path;

use autotune_db::{DbError, TuningDb, TuningRecord, Warning};
use autotune_schedules::config::fnv1a;
use autotune_workloads::Workload;

use crate::support::{TARGETS, WORKLOADS, any, assert_agrees, export, record};

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
    for exists in [false, true] {
        let error = TuningDb::open_reading(&path).unwrap_err();
        assert!(matches!(error, DbError::NotFound { .. }));
        assert!(error.to_string().contains("missing.db"));
        assert_eq!(path.exists(), exists);
        fs::create_dir_all(&path).unwrap();
    }
    assert_eq!(listing(&path), [""; 0]);
    filled(&path);
    let db = TuningDb::open_reading(&path).unwrap();
    assert_eq!((db.len(), db.warnings()), (1, vec![]));
    for number in 0..2 {
        let error = db.append(&record(WORKLOADS[0], TARGETS[0], number, 1e-3)).unwrap_err();
        assert!(matches!(error, DbError::ReadOnly { .. }), "{error}");
    }
}

#[test]
fn a_file_is_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    fs::write(&path, "hello").unwrap();
    for result in [TuningDb::open(&path), TuningDb::open_reading(&path)] {
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
    for result in [TuningDb::open(dir.path()), TuningDb::open_reading(dir.path())] {
        let error = result.unwrap_err();
        assert!(matches!(&error, DbError::NotADatabase { found, .. } if found == "thesis.tex"), "{error}");
    }
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
    fs::write(path.join("FORMAT"), "autotune-db 3\n").unwrap();
    fs::create_dir(path.join("sled")).unwrap();
    fs::write(path.join("sled/unknown"), "from the future").unwrap();
    for result in [TuningDb::open(&path), TuningDb::open_reading(&path)] {
        let error = result.unwrap_err();
        assert!(matches!(error, DbError::NewerFormat { found: 3, supported: 2, .. }), "{error}");
        assert!(error.to_string().contains("format 3, newer than the supported format 2"), "{error}");
    }
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
        for result in [TuningDb::open(&path), TuningDb::open_reading(&path)] {
            let error = result.unwrap_err();
            assert!(matches!(error, DbError::Corrupt { .. }) && error.to_string().contains("FORMAT"), "{error}");
        }
    }
    fs::write(path.join("FORMAT"), "autotune-db 2\n").unwrap();
    assert_eq!(TuningDb::open(&path).unwrap().len(), 1);
}

#[test]
fn a_database_killed_while_being_made_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    filled(&path);
    fs::rename(path.join("FORMAT"), path.join("FORMAT.new")).unwrap();
    assert_eq!(TuningDb::open(&path).unwrap().len(), 1);
    assert_eq!(fs::read_to_string(path.join("FORMAT")).unwrap(), "autotune-db 2\n");
}

/// Removes these files and folders of the database.
fn remove(path: &Path, names: &[&str]) {
    for name in names {
        let gone = path.join(name);
        if gone.is_dir() { fs::remove_dir_all(gone).unwrap() } else { fs::remove_file(gone).unwrap() }
    }
}

/// Returns the warnings of opening, as text.
fn told(db: &TuningDb) -> String {
    db.warnings().iter().map(|warning| format!("{warning}\n")).collect()
}

#[test]
fn one_copy_is_restored_from_the_other() {
    for (gone, words) in [
        ("sled", "the storage engine's copy was missing 1 record(s): 1 of matmul:m=64,n=64,k=64 on cpu:test"),
        ("journal", "the journal was missing 1 record(s)"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        filled(&path);
        remove(&path, &[gone]);
        let db = TuningDb::open(&path).unwrap();
        let warnings = told(&db);
        assert!(warnings.contains(words) && warnings.lines().count() == 1, "{warnings}");
        assert_eq!(db.len(), 1);
        drop(db);
        let db = TuningDb::open(&path).unwrap();
        assert_eq!((db.len(), told(&db)), (1, String::new()), "it is mended");
        assert_eq!(TuningDb::open_reading(&path).unwrap().len(), 1);
    }
}

#[test]
fn missing_durable_records_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = TuningDb::open(&path).unwrap();
    for number in 0..5 {
        db.append(&record(WORKLOADS[number % 2], TARGETS[0], number, 1e-3)).unwrap();
    }
    drop(db);
    remove(&path, &["sled"]);
    let journal = fs::read_to_string(path.join("journal")).unwrap();
    let kept: Vec<&str> = journal.lines().filter(|line| !line.contains(",bias\t")).collect();
    fs::write(path.join("journal"), kept.join("\n") + "\n").unwrap();
    let lost = "has lost 2 record(s): 2 of matmul:m=64,n=64,k=64,bias on cpu:test";

    let reader = TuningDb::open_reading(&path).unwrap();
    let warnings = told(&reader);
    assert!(reader.len() == 3 && warnings.contains(lost), "{warnings}");
    for _ in 0..2 {
        let error = TuningDb::open(&path).unwrap_err();
        assert!(matches!(&error, DbError::Lost { records, .. } if records.total() == 2), "{error}");
        assert!(error.to_string().contains(lost) && error.to_string().contains("--salvage"), "{error}");
    }
    let mut saved = Vec::new();
    let report = TuningDb::salvage(&path, &mut saved).unwrap();
    assert_eq!((report.saved, report.unreadable.total(), saved), (3, 2, export(&reader).into_bytes()));

    // This is what the error message advises.
    fs::remove_file(path.join("flushed")).unwrap();
    let db = TuningDb::open(&path).unwrap();
    assert_eq!(db.len(), 3);
    assert!(matches!(db.warnings()[..], [Warning::Marker { file: "flushed", .. }]));
    drop(db);
    assert_eq!(told(&TuningDb::open(&path).unwrap()), "");
}

/// Makes a database as the version without a journal wrote it.
fn without_journal(path: &Path, records: &[TuningRecord], flushed: u64) {
    let db = sled::open(path.join("sled")).unwrap();
    db.insert("meta/format", &1u32.to_be_bytes()).unwrap();
    let mut places = std::collections::BTreeMap::new();
    for record in records {
        let task = format!("{}\0{}\0", record.target, record.workload);
        let place: &mut u64 = places.entry(task.clone()).or_default();
        let key = [b"r\0", task.as_bytes(), &place.to_be_bytes()].concat();
        db.insert(key, record.to_line().unwrap().as_bytes()).unwrap();
        *place += 1;
    }
    for (task, records) in places {
        let index = format!(r#"{{"records":{records},"best":null,"race":null}}"#);
        db.insert([b"i\0", task.as_bytes()].concat(), index.as_bytes()).unwrap();
    }
    db.flush().unwrap();
    fs::write(path.join("FORMAT"), "autotune-db 1\n").unwrap();
    fs::write(path.join("flushed"), format!("{flushed}\n")).unwrap();
}

#[test]
fn a_database_without_a_journal_gets_one() {
    let records: Vec<TuningRecord> = (0..9).map(|i| record(WORKLOADS[i % 3], TARGETS[0], i, 1e-3)).collect();
    for reads in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        without_journal(&path, &records, 9);
        for _ in 0..2 {
            let db = if reads { TuningDb::open_reading(&path) } else { TuningDb::open(&path) }.unwrap();
            assert_agrees(&db, &records, "opened");
            assert_eq!(told(&db), "");
        }
        assert_eq!(fs::read_to_string(path.join("FORMAT")).unwrap(), "autotune-db 2\n");
    }
}

#[test]
fn a_reader_that_cannot_make_a_journal_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    without_journal(&path, &[record(WORKLOADS[0], TARGETS[0], 0, 1e-3)], 1);
    let held = fs::File::create(path.join("holder")).unwrap();
    held.lock().unwrap();
    let error = TuningDb::open_reading(&path).unwrap_err();
    assert!(matches!(error, DbError::NoJournal { .. }), "{error}");
    assert!(
        error.to_string().contains("open it once for writing") && error.to_string().contains("is in use by"),
        "{error}"
    );
}

#[test]
fn a_database_that_is_being_made_is_not_there_yet() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fs::create_dir_all(path.join("sled")).unwrap();
    let held = fs::File::create(path.join("holder")).unwrap();
    held.lock().unwrap();
    let error = TuningDb::open_reading(&path).unwrap_err();
    assert!(matches!(error, DbError::NotFound { .. }), "{error}");

    drop(held);
    assert!(TuningDb::open_reading(&path).unwrap().is_empty(), "what a killed process began a reader ends");
}

#[test]
fn losses_of_a_database_without_a_journal_are_noticed() {
    let records: Vec<TuningRecord> = (0..9).map(|i| record(WORKLOADS[i % 3], TARGETS[0], i, 1e-3)).collect();
    let lost = |damage: fn(&Path)| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        without_journal(&path, &records, 9);
        damage(&path);
        TuningDb::open(&path).unwrap_err().to_string()
    };
    // The index still counts the removed record.
    let error = lost(|path| {
        let db = sled::open(path.join("sled")).unwrap();
        let key = db.scan_prefix(b"r\0").keys().nth(4).unwrap().unwrap();
        db.remove(key).unwrap();
    });
    assert!(error.contains("has lost 1 record(s): 1 of matmul:m=64,n=64,k=64 on cpu:test"), "{error}");
    let error = lost(|path| fs::write(path.join("flushed"), "11\n").unwrap());
    assert!(error.contains("has lost 2 record(s)"), "{error}");
    let error = lost(|path| fs::remove_dir_all(path.join("sled")).unwrap());
    assert!(error.contains("has lost 9 record(s)"), "{error}");
}

/// Replaces checksums in a file by those of earlier versions. `separator` ends a checksum; either
/// every line has one, or only the first.
fn with_earlier_checksums(path: &Path, separator: char, is_by_line: bool) {
    let text = fs::read_to_string(path).unwrap();
    let parts: Vec<&str> = if is_by_line { text.split_inclusive('\n').collect() } else { vec![&text] };
    let earlier = |part: &&str| {
        let (digits, rest) = part.split_once(separator).unwrap();
        let checked = if is_by_line { rest.trim_end_matches('\n') } else { rest };
        let hash = format!("{:016x}", fnv1a(checked.as_bytes()));
        assert_ne!(digits, hash);
        format!("{hash}{separator}{rest}")
    };
    fs::write(path, parts.iter().map(earlier).collect::<String>()).unwrap();
}

#[test]
fn databases_with_the_checksums_of_earlier_versions_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    filled(&path);
    let records = || TuningDb::open_reading(&path).unwrap().query_target(TARGETS[0]).unwrap();
    let wanted = records();
    with_earlier_checksums(&path.join("journal"), '\t', true);
    with_earlier_checksums(&path.join("flushed"), '\n', false);
    for open in [TuningDb::open_reading, TuningDb::open, TuningDb::open_reading] {
        let db = open(&path).unwrap();
        assert_eq!(db.warnings(), []);
        assert_eq!(db.query_target(TARGETS[0]).unwrap(), wanted);
    }

    // New records must be readable together with old ones.
    TuningDb::open(&path).unwrap().append(&record(WORKLOADS[0], TARGETS[0], 99, 1e-3)).unwrap();
    assert_eq!(records().len(), wanted.len() + 1);
}

/// Appends a line to the journal as another version might write it.
fn append_line(path: &Path, place: u64, target: &str, workload: &str, json: &str) {
    let rest = format!("0\t{place}\t{target}\t{workload}\t{json}");
    let mut journal = fs::OpenOptions::new().append(true).open(path.join("journal")).unwrap();
    writeln!(journal, "{:016x}\t{rest}", fnv1a(rest.as_bytes())).unwrap();
}

#[test]
fn unknown_content_is_named_and_blocks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    filled(&path);
    let own = record(WORKLOADS[0], TARGETS[0], 0, 1e-3);
    let line = own.to_line().unwrap();
    let newer = line.replace("\"version\":1", "\"version\":2");
    let operator = line.replace(WORKLOADS[0], "pool9d:m=3");
    let field = line.replace("\"direct\"", "{\"name\":\"direct\"}");
    let poison = line.replace("1e-7", "1e30");
    append_line(&path, 1, TARGETS[0], WORKLOADS[0], &newer);
    append_line(&path, 0, TARGETS[0], "pool9d:m=3", &operator);
    append_line(&path, 2, TARGETS[0], WORKLOADS[0], &field);
    append_line(&path, 3, TARGETS[0], WORKLOADS[0], &poison);
    append_line(&path, 4, TARGETS[0], WORKLOADS[0], "not even JSON");

    let workload: Workload = WORKLOADS[0].parse().unwrap();
    for open in [TuningDb::open_reading, TuningDb::open, TuningDb::open, TuningDb::open_reading] {
        let db = open(&path).unwrap();
        assert_eq!((db.len(), told(&db)), (6, String::new()));
        assert_eq!(db.best(&workload, TARGETS[0], &any).unwrap().unwrap().record, own);
        let warnings = told(&db);
        let words =
            ["record 1 of matmul:m=64,n=64,k=64 on", "record version 2 is newer", "record 3", "tolerance", "record 4"];
        assert!(words.iter().all(|word| warnings.contains(word)) && warnings.lines().count() == 4, "{warnings}");

        assert_eq!(db.query(&workload, TARGETS[0]).unwrap(), std::slice::from_ref(&own));
        assert_eq!(told(&db), "", "each warning is told once");
        assert_eq!(db.tasks().unwrap().len(), 1);
        assert!(told(&db).contains("1 of pool9d:m=3 on cpu:test"));

        let exported = export(&db);
        assert_eq!(exported.lines().collect::<Vec<_>>(), [&line, &newer, &field, &operator]);
        let mut saved = Vec::new();
        let report = TuningDb::salvage(&path, &mut saved).unwrap();
        assert_eq!((report.saved, saved), (4, exported.into_bytes()));
    }
    let db = TuningDb::open(&path).unwrap();
    let another = record(WORKLOADS[0], TARGETS[0], 7, 1e-4);
    db.append(&another).unwrap();
    assert_eq!(db.best(&workload, TARGETS[0], &any).unwrap().unwrap().record, another);
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
fn a_second_writer_is_told_who_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let held = TuningDb::open(&path).unwrap();
    let error = TuningDb::open(&path).unwrap_err();
    assert!(matches!(&error, DbError::Held { holder, .. } if holder.pid == std::process::id()), "{error}");
    drop(held);
    fs::write(path.join("holder"), "left behind").unwrap();
    assert!(TuningDb::open(&path).is_ok(), "the lock decides, not the text");
}

#[test]
fn a_cause_is_told_once() {
    let error = TuningDb::open("/proc/tuning.db").unwrap_err();
    assert!(std::error::Error::source(&error).is_none(), "the message tells it: {error}");
    assert!(error.to_string().ends_with("(os error 2)"), "{error}");
}
