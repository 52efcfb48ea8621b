//! Damaged files: every record is recovered, or its loss is reported. This program runs itself as
//! the process that opens the files, because the storage engine may fail in any way.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use autotune_db::{DbError, TuningDb, Warning};
use libtest_mimic::{Arguments, Trial};
use rand::{Rng, RngExt};
use support::child::{finish, role, rounds, start};
use support::{export, random_record, rng};

fn main() -> ExitCode {
    if let Some((role, arguments)) = role() {
        assert_eq!(role, "judge");
        judge(Path::new(&arguments[0]), Path::new(&arguments[1]));
        return ExitCode::SUCCESS;
    }
    let trials = vec![Trial::test("no_loss_is_silent", || {
        no_loss_is_silent();
        Ok(())
    })];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn no_loss_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.db");
    let mut records = rng(11);
    for run in 0..3 {
        let db = TuningDb::open(&whole).unwrap();
        for _ in 0..60 {
            let batch: Vec<_> = (0..records.random_range(1..6)).map(|_| random_record(&mut records)).collect();
            db.append_all(&batch).unwrap();
        }
        assert_eq!(db.warnings(), [], "run {run}");
    }
    let expected = dir.path().join("expected.jsonl");
    fs::write(&expected, export(&TuningDb::open_reading(&whole).unwrap())).unwrap();

    let mut outcomes = std::collections::BTreeMap::<String, u64>::new();
    for case in 0..rounds(40) {
        let mut rng = rng(case);
        let path = dir.path().join(format!("{case}.db"));
        copy(&whole, &path);
        let damages: Vec<String> = (0..rng.random_range(1..4)).map(|_| damage(&path, &mut rng)).collect();
        let what = format!("case {case}: {}", damages.join(", "));
        let child = start("judge", &[path.to_str().unwrap(), expected.to_str().unwrap()]);
        let (said, complaint) = finish(child, &what);
        assert_eq!(complaint, "", "{what}");
        for outcome in said.lines() {
            *outcomes.entry(outcome.to_string()).or_default() += 1;
        }
        for folder in ["db", "reading", "salvaging", "writing"].map(|way| path.with_extension(way)) {
            fs::remove_dir_all(folder).unwrap();
        }
    }
    println!("{outcomes:#?}");
}

/// Records that were appended, one line each.
struct Expected<'a>(HashSet<&'a str>);

impl Expected<'_> {
    /// Returns how many of the records a log lacks. The log must have no others, and none twice.
    fn missing(&self, log: &str) -> u64 {
        let strange: Vec<&str> = log.lines().filter(|line| !self.0.contains(line)).collect();
        assert!(strange.is_empty(), "not what was appended: {strange:?}");
        assert_eq!(log.lines().count(), log.lines().collect::<HashSet<_>>().len(), "a record twice");
        (self.0.len() - log.lines().count()) as u64
    }
}

/// Opens copies of a damaged database in every way and checks that each reports what is missing.
fn judge(path: &Path, expected: &Path) {
    let expected = fs::read_to_string(expected).unwrap();
    let expected = Expected(expected.lines().collect());
    let copied = |way: &str| {
        let copied = path.with_extension(way);
        copy(path, &copied);
        copied
    };
    judge_reading(&copied("reading"), &expected);
    let missing = judge_salvaging(&copied("salvaging"), &expected);
    judge_writing(&copied("writing"), &expected, missing);
}

fn judge_reading(path: &Path, expected: &Expected<'_>) {
    match TuningDb::open_reading(path) {
        Ok(db) => check_told("reading", expected.missing(&export(&db)), &db.warnings()),
        Err(error) => check_error("reading", path, &error),
    }
}

/// Returns how many records could not be saved; `None` if the salvage refused.
fn judge_salvaging(path: &Path, expected: &Expected<'_>) -> Option<u64> {
    let mut saved = Vec::new();
    match TuningDb::salvage(path, &mut saved) {
        Ok(report) => {
            let missing = expected.missing(std::str::from_utf8(&saved).unwrap());
            assert_eq!(report.saved, expected.0.len() as u64 - missing);
            let is_told = missing == report.unreadable.total() || has_marker_warning(&report.warnings);
            assert!(is_told, "salvage: {missing} are missing without a word: {report:?}");
            println!("salvaging: {}", if missing == 0 { "all" } else { "some, and it is told" });
            Some(missing)
        }
        // The damage made the format look newer.
        Err(error) => {
            assert!(matches!(error, DbError::NewerFormat { .. }), "{error}");
            check_error("salvaging", path, &error);
            None
        }
    }
}

/// If durable records are missing, opening must fail and report as many as salvaging could not
/// save.
fn judge_writing(path: &Path, expected: &Expected<'_>, not_saved: Option<u64>) {
    match TuningDb::open(path) {
        Ok(db) => {
            let missing = expected.missing(&export(&db));
            check_told("writing", missing, &db.warnings());
            drop(db);
            let db = TuningDb::open(path).unwrap();
            assert_eq!((expected.missing(&export(&db)), db.warnings()), (missing, vec![]), "it is mended");
        }
        Err(error) => {
            if let DbError::Lost { records, .. } = &error {
                assert_eq!(Some(records.total()), not_saved, "{error}");
            }
            check_error("writing", path, &error);
        }
    }
}

fn has_marker_warning(warnings: &[Warning]) -> bool {
    warnings.iter().any(|warning| matches!(warning, Warning::Marker { file: "flushed", .. }))
}

/// Checks that the warnings report how many records are missing, or that this is unknown.
fn check_told(how: &str, missing: u64, warnings: &[Warning]) {
    let lost: u64 =
        warnings.iter().map(|w| if let Warning::Lost { records, .. } = w { records.total() } else { 0 }).sum();
    let is_told = missing == lost || has_marker_warning(warnings);
    assert!(is_told, "{how}: {missing} missing, {lost} told: {warnings:?}");
    println!("{how}: {}", if missing == 0 { "all" } else { "some, and it is told" });
}

fn check_error(how: &str, path: &Path, error: &DbError) {
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    println!("{how}: an error");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (source, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if source.is_dir() {
            copy(&source, &target)
        } else {
            fs::copy(&source, &target).unwrap();
        }
    }
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Damages one file and returns a description.
fn damage(path: &Path, rng: &mut impl Rng) -> String {
    let mut found = Vec::new();
    files(path, &mut found);

    // The journal and the engine's log have nearly all the data.
    let victim = match rng.random_range(0..10) {
        0..3 => path.join("journal"),
        3..6 => path.join("sled/db"),
        _ => found[rng.random_range(0..found.len())].clone(),
    };

    let name = victim.strip_prefix(path).unwrap().display().to_string();
    let Ok(mut bytes) = fs::read(&victim) else {
        return format!("{name} is gone already");
    };
    let used = bytes.iter().rposition(|&b| b != 0).map_or(1, |p| p + 1).min(bytes.len());
    let at = rng.random_range(0..used.max(1)).min(bytes.len());

    let how = match rng.random_range(0..7) {
        0 => {
            bytes.truncate(at);
            "cut off"
        }
        1 => {
            rng.fill_bytes(&mut bytes[at..]);
            "garbage from"
        }
        2 => {
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.random_range(0..8));
            "one bit flipped"
        }
        3 => {
            let end = (at + 4096).min(bytes.len());
            bytes[at..end].fill(0);
            "a page of zeros"
        }
        4 => {
            let end = (at + 64).min(bytes.len());
            rng.fill_bytes(&mut bytes[at..end]);
            "some garbage"
        }
        5 => {
            bytes.truncate(0);
            "emptied"
        }
        _ => {
            fs::remove_file(&victim).unwrap();
            return format!("{name} deleted");
        }
    };

    fs::write(&victim, bytes).unwrap();
    format!("{name} {how} at {at} of {used}")
}
