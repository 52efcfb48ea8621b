//! Behaviour of snapshots that needs several processes: readers during a replacement, killed
//! writers, concurrent writers, task locks. This program runs itself as the other process.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use autotune_db::{KeyChain, Snapshot, SnapshotWriter, TaskHold};
use libtest_mimic::{Arguments, Trial};
use rand::RngExt;
use support::child::{finish, role, rounds, start};
use support::{record, rng};

const TARGET: &str = "cpu:a-1-2:avx2:-:32K+1M+32M:fma4+add3:threads=1";

fn main() -> ExitCode {
    if let Some((role, arguments)) = role() {
        let path = Path::new(&arguments[0]);
        match role.as_str() {
            "read" => read(path),
            "write" => write_on_and_on(path),
            "hold" => hold(path),
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
        trial(
            "readers_see_one_whole_snapshot_while_it_is_replaced",
            readers_see_one_whole_snapshot_while_it_is_replaced,
        ),
        trial(
            "kill_9_of_a_writer_leaves_the_old_file_or_the_new_one",
            kill_9_of_a_writer_leaves_the_old_file_or_the_new_one,
        ),
        trial("a_hold_on_a_task_ends_with_its_process", a_hold_on_a_task_ends_with_its_process),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn workload(number: usize) -> String {
    format!("matmul:m={},n=64,k=64", number + 1)
}

/// Writes a snapshot with one schedule per workload, whose times all equal the generation.
fn write(path: &Path, schedules: usize, generation: u64) {
    let mut writer = SnapshotWriter::default();
    for number in 0..schedules {
        writer.add(&record(&workload(number), TARGET, number, generation as f64)).unwrap();
    }
    writer.write(path).unwrap();
}

/// Returns the generation of a snapshot, and checks that it has all schedules and that all are of
/// that generation.
fn generation(snapshot: &Snapshot) -> u64 {
    let keys = KeyChain::of(TARGET);
    let of = |number: usize| snapshot.get(&keys, &workload(number)).unwrap().unwrap().run_secs() as u64;
    let generations: Vec<u64> = (0..snapshot.len() as usize).map(of).collect();
    assert!(!generations.is_empty() && generations.iter().all(|generation| *generation == generations[0]));
    generations[0]
}

/// Reads until the input ends, and prints how many snapshots it saw. The first one stays open
/// meanwhile.
fn read(path: &Path) {
    let first = Snapshot::open(path).unwrap();
    let began = generation(&first);
    let (mut seen, mut last) = (1, began);
    println!("reading");
    let told = std::thread::spawn(|| std::io::stdin().lock().read_line(&mut String::new()));
    while !told.is_finished() {
        let now = generation(&Snapshot::open(path).unwrap());
        assert!(now >= last, "{now} after {last}");
        seen += u64::from(now > last);
        last = now;
        assert_eq!(generation(&first), began, "what is open does not change");
    }
    println!("{seen}");
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

fn readers_see_one_whole_snapshot_while_it_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tuned");
    write(&path, 20, 1);
    let mut readers: Vec<Child> = (0..6).map(|_| start("read", &[path.to_str().unwrap()])).collect();
    for reader in &mut readers {
        assert_eq!(first_line(reader), "reading\n");
    }
    for generation in 2..2 + rounds(40) {
        write(&path, 20 + generation as usize % 7, generation);
    }
    for mut reader in readers {
        writeln!(reader.stdin.take().unwrap(), "enough").unwrap();
        let seen: u64 = finish(reader, "reading").0.trim().parse().unwrap();
        assert!(seen > 1, "a reader saw nothing new");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// Writes one generation after another until it is killed.
fn write_on_and_on(path: &Path) {
    println!("writing");
    for generation in 2.. {
        write(path, 400, generation);
    }
}

fn kill_9_of_a_writer_leaves_the_old_file_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tuned");
    write(&path, 400, 1);
    let mut rng = rng(0);
    let mut unfinished = 0;
    // On a busy machine it may take many rounds until a writer is killed while it writes.
    for round in 0..100 * rounds(25) {
        if round >= rounds(25) && unfinished > 0 {
            break;
        }
        let mut writers: Vec<Child> = (0..2).map(|_| start("write", &[path.to_str().unwrap()])).collect();
        for writer in &mut writers {
            assert_eq!(first_line(writer), "writing\n");
        }
        sleep(Duration::from_micros(rng.random_range(0..60_000)));
        for writer in &mut writers {
            writer.kill().unwrap();
            writer.wait().unwrap();
        }

        let snapshot = Snapshot::open(&path).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(snapshot.len(), 400, "round {round}");
        generation(&snapshot);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.len() <= 2 && left.iter().all(|name| name == "tuned" || name == "tuned.new"), "{left:?}");
        unfinished += left.len() - 1;
    }
    assert!(unfinished > 0, "no writer was killed in the middle");
    write(&path, 400, 9);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "what killed writers left goes with the next");
}

/// Takes the lock, reports the result and keeps the lock.
fn hold(path: &Path) {
    let hold = TaskHold::take(path, &workload(0).parse().unwrap(), TARGET, Duration::ZERO).unwrap();
    println!("{}", if hold.is_some() { "held" } else { "refused" });
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

fn a_hold_on_a_task_ends_with_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut holder = start("hold", &[path.to_str().unwrap()]);
    assert_eq!(first_line(&mut holder), "held\n");
    let mut other = start("hold", &[path.to_str().unwrap()]);
    assert_eq!(first_line(&mut other), "refused\n");
    drop(other.stdin.take());
    finish(other, "the other");

    let take = |number: usize, wait: u64| {
        TaskHold::take(&path, &workload(number).parse().unwrap(), TARGET, Duration::from_millis(wait)).unwrap()
    };
    assert!(take(0, 0).is_none() && take(0, 50).is_none());
    assert!(take(1, 0).is_some(), "another task is free");
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || TaskHold::take(&path, &workload(0).parse().unwrap(), TARGET, Duration::from_secs(60)).unwrap()
    });
    sleep(Duration::from_millis(50));
    holder.kill().unwrap();
    holder.wait().unwrap();
    let hold = waiting.join().unwrap();
    assert!(hold.is_some() && take(0, 0).is_none());
    drop(hold);
    assert!(take(0, 0).is_some());
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "no file stays");
    // Files of task locks do not prevent creating a database in the folder.
    let hold = take(0, 0);
    autotune_db::TuningDb::open(&path).unwrap();
    drop(hold);
}
