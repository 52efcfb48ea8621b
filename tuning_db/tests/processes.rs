//! What only several processes can show: a held database, a killed tuner, damaged files. This program runs itself as
//! the other process.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use autotune_db::{DbError, TuningDb, TuningRecord};
use libtest_mimic::{Arguments, Trial};
use rand::{Rng, RngExt};
use support::{assert_agrees, random_race, random_record, rng};

/// Set in the environment of the other process, which cannot tell its arguments from the test runner's otherwise.
const ROLE: &str = "AUTOTUNE_DB_TEST_ROLE";

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        match role.as_str() {
            "hold" => hold(Path::new(&arguments[0])),
            "tune" => tune(Path::new(&arguments[0]), arguments[1].parse().unwrap()),
            "read" => read(Path::new(&arguments[0])),
            other => panic!("no role '{other}'"),
        }
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = vec![
        trial("another_process_is_told_who_holds_it", another_process_is_told_who_holds_it),
        trial("kill_9_loses_nothing_that_was_appended", kill_9_loses_nothing_that_was_appended),
        trial("damaged_files_are_an_error_or_recovered", damaged_files_are_an_error_or_recovered),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn start(role: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, role).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// `default`, or as many as `AUTOTUNE_DB_TEST_ROUNDS` says, for hunting rare failures.
fn rounds(default: u64) -> u64 {
    std::env::var("AUTOTUNE_DB_TEST_ROUNDS").map_or(default, |n| n.parse().unwrap())
}

/// Opens the database, says so, and holds it until its input ends.
fn hold(path: &Path) {
    let db = TuningDb::open(path).unwrap();
    println!("open");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(db);
}

fn another_process_is_told_who_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut child = start("hold", &[path.to_str().unwrap()]);
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "open\n");

    let error = TuningDb::open(&path).unwrap_err();
    assert!(matches!(&error, DbError::Held { holder, .. } if holder.pid == child.id()), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("is held by pid {}", child.id())), "{text}");
    assert!(text.contains(path.to_str().unwrap()) && text.contains("processes"), "{text}");

    drop(child.stdin.take());
    TuningDb::open_waiting(&path, Duration::from_secs(600)).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Record after record and batch after batch of one endless tuning run, the same for the same seed.
fn batches(seed: u64) -> impl Iterator<Item = Vec<TuningRecord>> {
    let mut rng = rng(seed);
    (0..).map(move |number| {
        let like = random_record(&mut rng);
        if rng.random_bool(0.2) {
            return random_race(&mut rng, &like, number);
        }
        (0..rng.random_range(1..12)).map(|_| random_record(&mut rng)).collect()
    })
}

/// Whether a batch is appended at once or record by record.
fn at_once(batch: usize) -> bool {
    batch.is_multiple_of(2)
}

/// Appends the batches that are not there yet, one record at a time or all at once, and tells the number of records after
/// each append. Every third batch is flushed.
fn tune(path: &Path, seed: u64) {
    let db = TuningDb::open(path).unwrap();
    let there = db.len() as usize;
    let mut begun = 0;
    for (number, batch) in batches(seed).enumerate() {
        let missing = &batch[there.saturating_sub(begun).min(batch.len())..];
        begun += batch.len();
        let step = if at_once(number) { missing.len() } else { 1 };
        for records in missing.chunks(step.max(1)) {
            db.append_all(records).unwrap();
            println!("{}", db.len());
            std::io::stdout().flush().unwrap();
        }
        if number % 3 == 0 {
            db.flush().unwrap();
        }
    }
}

fn kill_9_loses_nothing_that_was_appended() {
    let rounds = rounds(20);
    let dir = tempfile::tempdir().unwrap();
    let mut rng = rng(1);
    let (mut kills_after_an_append, mut there_before) = (0, 0);
    for round in 0..rounds {
        // Several kills in a row hit the same database, then a new one is begun.
        let (seed, path) = (round / 5, dir.path().join(format!("{}.db", round / 5)));
        let mut child = start("tune", &[path.to_str().unwrap(), &seed.to_string()]);
        std::thread::sleep(Duration::from_micros(rng.random_range(0..120_000)));
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let what = format!("round {round}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{what}: the tuner failed by itself");
        let told = String::from_utf8(output.stdout).unwrap();
        let told: usize = told.lines().last().map_or(0, |n| n.parse().unwrap());
        kills_after_an_append += usize::from(told > 0);
        let acknowledged = told.max(there_before);

        let db = TuningDb::open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
        let there = db.len() as usize;
        assert!(there >= acknowledged, "{what}: {there} of {acknowledged} acknowledged records are there");
        let mut all = Vec::new();
        for (number, batch) in batches(seed).enumerate() {
            if all.len() > acknowledged || all.len() >= there {
                break;
            }
            let begun = all.len();
            all.extend(batch);
            let halved = begun < there && there < all.len();
            assert!(!(halved && at_once(number)), "{what}: half of a batch that was appended at once");
        }
        assert!(there <= all.len(), "{what}: more than the batch in flight");
        all.truncate(there);
        assert_agrees(&db, &all, &what);
        there_before = there;
        if round % 5 == 4 {
            drop(db);
            fs::remove_dir_all(&path).unwrap();
            there_before = 0;
        }
    }
    assert!(kills_after_an_append > 0, "the kills came too early to show anything");
}

/// Opens the database, reads everything in it and appends to it; tells what came of it.
fn read(path: &Path) {
    let attempt = || -> Result<u64, DbError> {
        let db = TuningDb::open(path)?;
        let mut records = 0;
        for task in db.tasks()? {
            db.best(&task.workload, &task.target)?;
            records += db.query(&task.workload, &task.target)?.len() as u64;
        }
        db.export(std::io::sink())?;
        db.append(&random_record(&mut rng(u64::MAX)))?;
        db.flush()?;
        Ok(records)
    };
    match attempt() {
        Ok(records) => println!("recovered {records}"),
        Err(error) => println!("error: {error}"),
    }
}

fn damaged_files_are_an_error_or_recovered() {
    let cases = rounds(40);
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.db");
    let mut total = 0;
    for seed in 0..3 {
        let db = TuningDb::open(&whole).unwrap();
        batches(seed).take(12).for_each(|batch| assert!(db.append_all(&batch).is_ok()));
        db.flush().unwrap();
        total = db.len();
    }
    for case in 0..cases {
        let mut rng = rng(case);
        let path = dir.path().join(format!("{case}.db"));
        copy(&whole, &path);
        let damage = damage(&path, &mut rng);
        let what = format!("case {case}: {damage}");
        let (said, complaint) = finish(start("read", &[path.to_str().unwrap()]), &what);
        let clear = said == format!("recovered {total}\n")
            || said.starts_with("error: ") && said.contains(path.to_str().unwrap());
        assert!(clear, "{what}: {said} {complaint}");
        fs::remove_dir_all(&path).unwrap();
    }
}

/// What the process says, and what it says on its standard error; fails if it does not end or does not end well.
fn finish(mut child: Child, what: &str) -> (String, String) {
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > Duration::from_secs(60) => {
                child.kill().unwrap();
                panic!("{what}: hangs");
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let output = child.wait_with_output().unwrap();
    let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(status.success(), "{what}: {status}: {said} {complaint}");
    (said.into_owned(), complaint.into_owned())
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

/// Damages one file of the engine and says how.
fn damage(path: &Path, rng: &mut impl Rng) -> String {
    let mut found = Vec::new();
    files(&path.join("sled"), &mut found);
    // The log itself is one file of several but holds nearly everything.
    let log = path.join("sled/db");
    let victim = if rng.random_bool(0.5) { log } else { found[rng.random_range(0..found.len())].clone() };
    let mut bytes = fs::read(&victim).unwrap();
    let used = bytes.iter().rposition(|&b| b != 0).map_or(1, |p| p + 1);
    let at = rng.random_range(0..used);
    let how = match rng.random_range(0..6) {
        0 => {
            bytes.truncate(at);
            "cut off"
        }
        1 => {
            rng.fill_bytes(&mut bytes[at..]);
            "garbage from"
        }
        2 => {
            bytes[at] ^= 1 << rng.random_range(0..8);
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
        _ => {
            bytes.truncate(0);
            "emptied"
        }
    };
    fs::write(&victim, bytes).unwrap();
    format!("{} {how} at {at} of {used}", victim.file_name().unwrap().to_string_lossy())
}
