//! Behaviour that needs several processes: locks, a killed tuner, damaged files. This program runs
//! itself as the other process.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use autotune_db::{DbError, TuningDb, TuningRecord};
use libtest_mimic::{Arguments, Trial};
use rand::RngExt;
use support::child::{finish, role, rounds, start};
use support::{assert_agrees, export, random_race, random_record, rng};

fn main() -> ExitCode {
    if let Some((role, arguments)) = role() {
        let path = Path::new(&arguments[0]);
        let seed = || arguments[1].parse().unwrap();
        match role.as_str() {
            "hold" => hold(path),
            "tune" => tune(path, seed()),
            "look" => look(path, seed()),
            "fill" => fill(path, seed()),
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
        trial("readers_see_what_was_appended_before_they_opened", readers_see_what_was_appended_before_they_opened),
        trial(
            "a_folder_without_write_permission_is_read_and_unchanged",
            a_folder_without_write_permission_is_read_and_unchanged,
        ),
        trial("a_full_disk_loses_nothing_that_was_appended", a_full_disk_loses_nothing_that_was_appended),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Opens the database, reports that, and keeps it open until the input ends.
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
    assert!(text.contains(&format!("is in use by pid {}", child.id())), "{text}");
    assert!(text.contains(path.to_str().unwrap()) && text.contains("processes"), "{text}");

    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    TuningDb::open(&path).unwrap();
}

/// Returns the batches of an endless tuning run, the same for the same seed.
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

/// Returns true if a batch is appended at once, false if record by record.
fn at_once(batch: usize) -> bool {
    batch.is_multiple_of(2)
}

/// Appends the batches that are not stored yet, record by record or at once, and prints the number
/// of records after each append. Flushes after every third batch.
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
        // Several kills in a row hit the same database, then a new one is started.
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

        let read = TuningDb::open_reading(&path).map(|db| (export(&db), db.warnings()));
        let db = TuningDb::open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(db.warnings(), [], "{what}");
        match read {
            Ok(read) => assert_eq!(read, (export(&db), vec![]), "{what}: the reader"),
            Err(error) => assert!(matches!(error, DbError::NotFound { .. }) && db.is_empty(), "{what}: {error}"),
        }
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

/// Returns the first records of a run.
fn first(seed: u64, records: usize) -> Vec<TuningRecord> {
    batches(seed).flatten().take(records).collect()
}

/// Opens the database for reading, checks every answer, and prints the number of records.
fn look(path: &Path, seed: u64) {
    let db = TuningDb::open_reading(path).unwrap();
    assert_agrees(&db, &first(seed, db.len() as usize), "the reader");
    assert_eq!(db.warnings(), []);
    println!("{}", db.len());
}

fn readers_see_what_was_appended_before_they_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut tuner = start("tune", &[path.to_str().unwrap(), "5"]);
    let mut told =
        BufReader::new(tuner.stdout.take().unwrap()).lines().map(|line| line.unwrap().parse::<u64>().unwrap());
    let mut seen = Vec::new();
    for round in 0..rounds(6) {
        let acknowledged = told.by_ref().nth(30).unwrap();
        let readers: Vec<_> = (0..3).map(|_| start("look", &[path.to_str().unwrap(), "5"])).collect();
        for reader in readers {
            let what = format!("round {round}");
            let found: u64 = finish(reader, &what).0.trim().parse().unwrap();
            assert!(found >= acknowledged, "{what}: {found} of {acknowledged} records that were there before");
            seen.push(found);
        }
    }
    tuner.kill().unwrap();
    tuner.wait().unwrap();
    assert!(seen.first() < seen.last(), "the tuner went on beside the readers: {seen:?}");
}

/// Returns every file below a folder with its content and time of change.
fn state(folder: &Path) -> Vec<(PathBuf, Vec<u8>, (i64, i64))> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let changed = |path: &Path| fs::metadata(path).map(|m| (m.ctime(), m.ctime_nsec())).unwrap();
    let mut all = vec![(folder.to_path_buf(), Vec::new(), changed(folder))];
    for path in paths {
        if path.is_dir() {
            all.extend(state(&path));
        } else {
            all.push((path.clone(), fs::read(&path).unwrap(), changed(&path)));
        }
    }
    all
}

fn a_folder_without_write_permission_is_read_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = TuningDb::open(&path).unwrap();
    first(3, 100).iter().for_each(|record| db.append(record).unwrap());
    drop(db);
    let permit = |mode| {
        for folder in [dir.path(), &path, &path.join("sled")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    permit(0o555);
    let before = state(&path);
    assert_eq!(finish(start("look", &[path.to_str().unwrap(), "3"]), "the reader").0, "100\n");
    assert_eq!(state(&path), before);
    permit(0o755);
}

/// Appends to a database until its disk is full, and prints the number of records appended. The
/// disk is simulated by a limit on file sizes, which has nearly the same effect.
fn fill(path: &Path, limit_bytes: u64) {
    let limit = libc::rlimit { rlim_cur: limit_bytes, rlim_max: limit_bytes };
    // SAFETY: the limit is valid, and ignoring a signal installs no handler.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let db = TuningDb::open(path).unwrap();
    let mut appended = 0;
    let error = batches(limit_bytes).find_map(|batch| match db.append_all(&batch) {
        Ok(new) => {
            appended += new;
            None
        }
        Err(error) => Some(error),
    });
    let error = error.unwrap();
    assert!(matches!(error, DbError::Io { .. } | DbError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    for reads in [&db, &TuningDb::open_reading(path).unwrap()] {
        assert_agrees(reads, &first(limit_bytes, appended), "on the full disk");
    }
    println!("{appended}");
}

fn a_full_disk_loses_nothing_that_was_appended() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = rng(7);
    for round in 0..rounds(8) {
        let path = dir.path().join(format!("{round}.db"));
        let limit_bytes: u64 = rng.random_range(600_000..1_200_000);
        let (said, complaint) = finish(start("fill", &[path.to_str().unwrap(), &limit_bytes.to_string()]), "filling");
        let appended: usize = said.trim().parse().unwrap();
        assert!(appended > 100, "round {round}: only {appended} records: {complaint}");
        for _ in 0..2 {
            let db = TuningDb::open(&path).unwrap();
            let there = db.len() as usize;
            assert!(there >= appended, "round {round}: {there} of {appended}");
            assert_agrees(&db, &first(limit_bytes, there), "after the full disk");
            assert_eq!(db.warnings(), [], "round {round}");
        }
    }
}
