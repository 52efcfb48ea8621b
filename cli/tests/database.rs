//! Look-up, export and import: next to a running tuner, on damaged databases, and with malicious
//! logs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use autotune_db::{TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measurement::{CandidateError, Measurement};
use autotune_schedules::{Config, KnobValue, LOWERING_VERSION, ScheduleSpace};
use autotune_workloads::Workload;

use crate::sandbox::{Sandbox, TINY, finish, signal};

/// Returns a record of a workload's default config on this machine.
fn record(workload: &str, run_secs: f64) -> TuningRecord {
    let (workload, target): (Workload, _) = (workload.parse().unwrap(), Target::detect("cpu", None).unwrap());
    let config = ScheduleSpace::new(&workload, &target).default_config();
    let mut record = TuningRecord::synthetic(&workload, &target, config, run_secs);
    record.provenance.compiler = "an assembler".into();
    record
}

/// Adds a knob that the present schedule space lacks.
fn outside_the_space(mut record: TuningRecord) -> TuningRecord {
    let Config { knobs, .. } = &mut record.config;
    knobs.insert("warp".into(), KnobValue::Choice("9".into()));
    record
}

/// Writes a log file of the given lines.
fn log(sandbox: &Sandbox, name: &str, lines: &[String]) {
    fs::write(sandbox.path(name), lines.join("\n") + "\n").unwrap();
}

/// Adds synthetic records of several tasks to the database.
fn fill(sandbox: &Sandbox, records: usize) {
    let db = TuningDb::open(sandbox.path("db")).unwrap();
    let of_task = |i: usize| record(&format!("matmul:m=8,n=16,k={}", 8 + i % 7), 1e-6 * (i + 1) as f64);
    db.append_all(&(0..records).map(of_task).collect::<Vec<_>>()).unwrap();
}

#[test]
fn lookups_work_while_a_tuner_runs() {
    let sandbox = Sandbox::new();
    let mut tuner = sandbox.start(&format!("{TINY} --trials 100000 --tuner random"));
    let lines = [format!("best {TINY}"), format!("show {TINY}"), "log export -".to_string()];
    for _ in 0..2 {
        let readers: Vec<_> = lines
            .iter()
            .cycle()
            .take(6)
            .map(|line| {
                let mut command = sandbox.command(line);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for (reader, line) in readers.into_iter().zip(lines.iter().cycle()) {
            let output = reader.wait_with_output().unwrap();
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !output.stdout.is_empty(), "{line}: {complaint}");
        }
    }
    assert!(tuner.try_wait().unwrap().is_none(), "the tuner ended before the readers");
    signal(&tuner, libc::SIGKILL);
    tuner.wait().unwrap();
}

#[test]
fn untrusted_times_are_labelled_and_win_nothing() {
    let sandbox = Sandbox::new();
    log(&sandbox, "log", &[record(TINY, 1e-12).to_line().unwrap()]);
    sandbox.run("log import log").expect(0);
    let best = sandbox.run(&format!("best {TINY}")).expect(0);
    assert!(best.stdout.contains("\"standing\": \"claimed\""), "{}", best.stdout);
    assert!(
        best.stderr.contains("imported, never measured here") && best.stderr.lines().count() == 1,
        "{}",
        best.stderr
    );
    let shown = sandbox.run(&format!("show {TINY}")).expect(0).stdout;
    assert!(shown.contains("the best in the database (0.0000 ms, imported, never measured here)"), "{shown}");

    let db = TuningDb::open(sandbox.path("db")).unwrap();
    db.append(&record(TINY, 1e-3)).unwrap();
    drop(db);
    let best = sandbox.run(&format!("best {TINY}")).expect(0);
    assert!(best.stdout.contains("\"standing\": \"searched\"") && best.stdout.contains("0.001"), "{}", best.stdout);
    assert_eq!(best.stderr, "");
}

#[test]
fn records_of_another_lowering_are_labelled() {
    let sandbox = Sandbox::new();
    let mut old = record(TINY, 1e-12);
    old.provenance.lowering = LOWERING_VERSION + 1;
    TuningDb::open(sandbox.path("db")).unwrap().append(&old).unwrap();
    let best = sandbox.run(&format!("best {TINY}")).expect(0);
    assert!(best.stderr.contains("made by the lowering of another version"), "{}", best.stderr);
}

#[test]
fn a_config_outside_the_space_is_skipped() {
    let sandbox = Sandbox::new();
    let poison = outside_the_space(record(TINY, 1e-12));
    TuningDb::open(sandbox.path("db")).unwrap().append(&poison).unwrap();
    sandbox.run(&format!("best {TINY}")).expect_line(1, "is in the current schedule space: tune it again");
    TuningDb::open(sandbox.path("db")).unwrap().append(&record(TINY, 1e-3)).unwrap();
    assert!(sandbox.run(&format!("best {TINY}")).expect(0).stdout.contains("\"run_secs\": 0.001"));
}

#[test]
fn bad_lines_of_a_log_are_refused_or_passed_over() {
    let sandbox = Sandbox::new();
    let good = record(TINY, 1e-3).to_line().unwrap();
    let bad = [
        good.replace("\"max_rel_error\":1e-7", "\"max_rel_error\":1e30"),
        good.replace("an assembler", "\\u001b[2J"),
        good.replace("\"build_secs\":0.0", "\"build_secs\":-1.0"),
        "{}".to_string(),
    ];
    for line in &bad {
        assert_ne!(line, &good);
        log(&sandbox, "log", &[good.clone(), line.clone()]);
        sandbox.run("log import log --db refused").expect_line(2, "line 2 of the log");
    }
    let all = [&bad[..], &[good]].concat();
    log(&sandbox, "log", &all);
    let stderr = sandbox.run("log import log --skip-invalid").expect(0).stderr;
    for words in ["skipped line 1 of the log: field 'max_rel_error'", "4 lines", "imported 1 record(s)"] {
        assert!(stderr.contains(words), "'{words}' is not in: {stderr}");
    }
    assert!(!stderr.contains('\u{1b}') && stderr.lines().count() == 5, "{stderr}");
}

#[test]
fn a_reader_of_an_export_may_go_away() {
    let sandbox = Sandbox::new();
    fill(&sandbox, 2000);
    let mut export = sandbox.command("log export -").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(export.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("{\"version\":1"));
    let ended = export.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn trials_that_all_failed_are_told_with_their_cause() {
    let sandbox = Sandbox::new();
    let failed = |message: &str, unix_secs: u64| {
        let mut record = record(TINY, 1.0);
        record.measurement = Measurement::of(Err(CandidateError::Build { message: message.into() }));
        record.provenance.unix_secs = unix_secs;
        record
    };
    let records = [failed("no room", 1), failed("no room", 2), failed("no luck", 3)];
    TuningDb::open(sandbox.path("db")).unwrap().append_all(&records).unwrap();

    // Without a compiler, the known schedules fail in their race, too.
    let without_compiler = |line: &str| {
        let mut command = sandbox.command(&format!("{TINY} --backend c {line}"));
        command.env("CC", "/nonexistent/cc");
        finish(command).expect(1).stderr
    };
    let ended = without_compiler("--trials 3");
    let words = "no schedule of matmul ran, all 3 trial(s) failed (3 of 3: build failed: no room): fix the cause";
    assert!(ended.contains("nothing left to do: 3 of 3") && ended.contains(words), "{ended}");

    // Even the shortest budget measures the default schedule.
    let ended = without_compiler("--time-budget 1ms --db new");
    assert!(ended.contains("autotune: no C compiler found"), "{ended}");
}

#[test]
fn a_full_disk_is_told_once() {
    let sandbox = Sandbox::new();
    fill(&sandbox, 10);
    for line in ["log export -", &format!("best {TINY}"), "log export - --salvage", "log export /dev/full"] {
        let mut command = sandbox.command(line);
        command.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{line}: {stderr}");
        assert_eq!(stderr.matches("No space left on device").count(), 1, "{line}: {stderr}");
    }
}

#[test]
fn readable_records_of_a_damaged_database_are_salvaged() {
    let sandbox = Sandbox::new();
    fill(&sandbox, 30);
    let whole = sandbox.run("log export -").expect(0).stdout;
    fs::remove_dir_all(sandbox.path("db/sled")).unwrap();
    let journal = fs::read_to_string(sandbox.path("db/journal")).unwrap();
    let damaged: Vec<String> = journal
        .lines()
        .enumerate()
        .map(|(i, line)| if i % 10 == 3 { line.replace("1e-7", "1e-9") } else { line.into() })
        .collect();
    log(&sandbox, "db/journal", &damaged);

    sandbox.run(&format!("{TINY} --trials 1")).expect_line(1, "has lost 3 record(s)");
    let read = sandbox.run("log export -").expect(0);
    assert!(read.stderr.contains("has lost 3 record(s)") && read.stdout.lines().count() == 27, "{}", read.stderr);
    let saved = sandbox.run("log export saved --salvage").expect(0);
    for words in ["warning: 3 record(s): 1 of matmul", "3 damaged piece(s)", "saved 27 record(s)"] {
        assert!(saved.stderr.contains(words), "'{words}' is not in: {}", saved.stderr);
    }
    let text = fs::read_to_string(sandbox.path("saved")).unwrap();
    assert!(text.lines().count() == 27 && text.lines().all(|line| whole.contains(line)));

    sandbox.run("log export x --salvage --db nowhere").expect_line(2, "no tuning database at nowhere");
    assert!(!sandbox.path("x").exists());
    let db = sandbox
        .command("log import -")
        .stdin(File::open(sandbox.path("saved")).unwrap())
        .env("AUTOTUNE_DB", sandbox.path("new"))
        .output();
    assert!(db.unwrap().status.success());
}

#[test]
fn a_mended_database_is_said_to_be() {
    let sandbox = Sandbox::new();
    fill(&sandbox, 5);
    fs::remove_file(sandbox.path("db/journal")).unwrap();
    let imported = finish(sandbox.command("log import /dev/null")).expect(0).stderr;
    assert!(
        imported.contains("autotune: warning: ") && imported.contains("the journal was missing 5 record(s)"),
        "{imported}"
    );
    assert_eq!(sandbox.run("log import /dev/null").expect(0).stderr.lines().count(), 1);
}
