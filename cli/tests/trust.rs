//! Tests that the `autotune` command never harms, misleads or stalls its user.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use autotune_ir::Target;
use autotune_schedules::ScheduleSpace;
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, TINY, finish, signal};

/// Returns the sorted names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn folders_next_to_scratch_folders_are_left_alone() {
    let sandbox = Sandbox::new();
    let tmp = sandbox.path("tmp");
    for name in ["autotune-2026-results", "autotune-4194305-x", "autotune-scratch-results", "autotune-scratch-x/owner"]
    {
        fs::create_dir_all(tmp.join(name)).unwrap();
        fs::write(tmp.join(name).join("thesis.txt"), "three years of work").unwrap();
    }

    let db = tmp.join("autotune-2026-db");
    let run = |line: &str| {
        let mut command = sandbox.command(line);
        command.env("TMPDIR", &tmp).env("AUTOTUNE_DB", &db);
        finish(command).expect(0)
    };
    run(&format!("{TINY} --trials 4"));
    run(&format!("bench {TINY}"));
    run(&format!("best {TINY}"));

    let expected = [
        "autotune-2026-db",
        "autotune-2026-results",
        "autotune-4194305-x",
        "autotune-scratch-results",
        "autotune-scratch-x",
    ];
    assert_eq!(names(&tmp), expected);
    for name in &expected[1..4] {
        assert!(tmp.join(name).join("thesis.txt").exists(), "{name}");
    }
    assert!(tmp.join("autotune-scratch-x/owner/thesis.txt").exists());
}

/// Returns the ids and command lines of processes that have files of a folder open.
fn holders(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let open = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let files: Vec<PathBuf> = open.filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
        if files.iter().any(|file| file.starts_with(folder)) {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            found.push(format!(
                "{}: {}",
                process.file_name().display(),
                String::from_utf8_lossy(&line).replace('\0', " ")
            ));
        }
    }
    found
}

#[test]
fn any_command_removes_files_of_killed_runs_and_none_of_running_ones() {
    let sandbox = Sandbox::new();
    let tmp = sandbox.path("tmp");
    fs::create_dir(&tmp).unwrap();
    // The C back end leaves temporary libraries in the folder.
    let tune = format!("{TINY} --trials 100000 --tuner random --backend c");
    let start = |db: &str| sandbox.start_in(&tmp, &format!("{tune} --db {db}"));
    let mut killed = start("a");
    let mut running = start("b");
    let before = names(&tmp);
    signal(&killed, libc::SIGKILL);
    killed.wait().unwrap();
    assert_eq!(names(&tmp), before, "a killed process removes nothing");

    // A compiler that was starting may hold files for a moment longer.
    let left_by_a_start = |most: usize| {
        for _ in 0..300 {
            let mut tasks = sandbox.command(&format!("tasks {TINY}"));
            tasks.env("TMPDIR", &tmp);
            finish(tasks).expect(0);
            if names(&tmp).len() <= most {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        names(&tmp)
    };
    let left = left_by_a_start(before.len() - 1);
    assert!(!left.is_empty() && left.len() < before.len(), "{left:?} of {before:?}, held by {:#?}", holders(&tmp));

    signal(&running, libc::SIGKILL);
    running.wait().unwrap();
    assert_eq!(left_by_a_start(0), Vec::<String>::new());
}

/// Forges a record as a stranger might send it: with another config, and a time that no kernel
/// reaches.
fn forged(record: &Value, config: &Value) -> String {
    let mut forged = record.clone();
    forged["config"] = config.clone();
    let run = &mut forged["measurement"]["outcome"]["Ok"];
    for key in ["run_secs", "median_secs"] {
        run[key] = json!(1e-12);
    }
    forged.to_string() + "\n"
}

/// Checks that the best time in a report is that of a kernel that ran.
fn assert_measured(sandbox: &Sandbox, report: &str) {
    let task = &sandbox.json(report)["tasks"][0];
    let (default, best) = (task["default_secs"].as_f64().unwrap(), task["best_secs"].as_f64().unwrap());
    assert!(best > 1e-9 && default / best < 1000.0, "{task}");
}

#[test]
fn forged_times_win_nothing_and_a_config_outside_the_space_spoils_no_task() {
    let sandbox = Sandbox::new();
    sandbox.run(&format!("{TINY} --trials 8 --tuner random")).expect(0);
    let records = sandbox.records();
    let ran = records.iter().find(|record| record["measurement"]["outcome"]["Ok"].is_object()).unwrap();
    let space = ScheduleSpace::new(&TINY.parse().unwrap(), &Target::detect("cpu", None).unwrap());
    let known: Vec<&Value> = records.iter().map(|record| &record["config"]).collect();
    let mut configs = space.iter().map(|candidate| serde_json::to_value(candidate.config()).unwrap());
    let fresh = configs.find(|config| !known.contains(&config)).unwrap();
    let mut unknown = fresh.clone();
    unknown["knobs"]["tile.of.tomorrow"] = unknown["knobs"].as_object().unwrap().values().next().unwrap().clone();
    fs::write(sandbox.path("valid.jsonl"), forged(ran, &fresh)).unwrap();
    fs::write(sandbox.path("unknown.jsonl"), forged(ran, &unknown)).unwrap();

    // Measured schedules are served first; forged ones count only after they are measured.
    sandbox.run("log import valid.jsonl").expect(0);
    sandbox.run("log import unknown.jsonl").expect(0);
    let best = |db: &str| sandbox.run(&format!("best {TINY} --db {db}"));
    let served: Value = serde_json::from_str(&best("db").expect(0).stdout).unwrap();
    assert!(served["measurement"]["outcome"]["Ok"]["run_secs"].as_f64().unwrap() > 1e-9, "{served}");
    sandbox.run(&format!("bench {TINY} --json bench.json")).expect(0);
    assert_measured(&sandbox, "bench.json");
    let again = sandbox.run(&format!("{TINY} --trials 12 --tuner random --json tune.json")).expect(0);
    assert!(again.stderr.contains("continuing: 8 of 12"), "imported records are no trials: {}", again.stderr);
    assert_measured(&sandbox, "tune.json");
    let measured = |record: &&Value| record["config"] == fresh && record["imported"] != json!(true);
    assert!(sandbox.records().iter().any(|record| measured(&record)), "what was claimed to be fast was measured");

    // Without a measured schedule, an untrusted one is served and marked as such, unless it does
    // not fit. Tuning ignores it.
    sandbox.run("log import unknown.jsonl --db poisoned").expect(0);
    assert!(best("poisoned").expect(1).stderr.contains("no known schedule"));
    sandbox.run("log import valid.jsonl --db poisoned").expect(0);
    let claimed = best("poisoned").expect(0);
    assert!(claimed.stderr.contains("imported") && claimed.stdout.contains("claimed"), "{}", claimed.stdout);
    sandbox.run(&format!("{TINY} --trials 6 --db poisoned --json poisoned.json")).expect(0);
    assert_measured(&sandbox, "poisoned.json");
    let served: Value = serde_json::from_str(&best("poisoned").expect(0).stdout).unwrap();
    assert!(served["measurement"]["outcome"]["Ok"]["run_secs"].as_f64().unwrap() > 1e-9, "{served}");
}

#[test]
fn a_product_whose_kernels_take_long_is_tuned_within_its_budget_and_checked() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run("matmul:m=2500,n=2500,k=2500 --time-budget 2s --json out.json").expect(0);
    assert!(ended.stdout.contains("stopped: the time budget is used up"), "{}", ended.stdout);
    let task = &sandbox.json("out.json")["tasks"][0];
    assert!(task["best_secs"].as_f64().unwrap() <= task["default_secs"].as_f64().unwrap());
    assert!(task["max_rel_error"].as_f64().unwrap() < 1e-4, "{task}");
}

#[test]
fn closed_and_full_streams_are_no_panic() {
    let sandbox = Sandbox::new();
    let full = || Stdio::from(File::create("/dev/full").unwrap());
    for line in [format!("show {TINY}"), "tasks resnet18".into(), "--help".into(), "--version".into()] {
        let mut command = sandbox.command(&line);
        let output = command.stdout(full()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{line}: {stderr}");
        assert!(stderr.starts_with("autotune: cannot write to standard output: "), "{line}: {stderr}");
        assert_eq!(stderr.matches("os error").count(), 1, "{line}: {stderr}");
    }

    let tune = format!("{TINY} --trials 4 --tuner random");
    let status = sandbox.command(&tune).stderr(full()).stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(0), "nobody reads the progress");
    let status = sandbox.command("resnet19").stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2), "nobody reads the error");
    let status = sandbox.command(&tune).stdout(full()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(1));

    // Standard error, or both streams, closed.
    for (redirection, code) in [("2>&-", 0), (">&- 2>&-", 1)] {
        let mut shell = std::process::Command::new("sh");
        let script = format!("{} {TINY} --trials 5 --tuner random {redirection}", env!("CARGO_BIN_EXE_autotune"));
        shell
            .args(["-c", &script])
            .env("AUTOTUNE_DB", sandbox.path("db"))
            .env("AUTOTUNE_CACHE", sandbox.path("cache"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = shell.status().unwrap();
        assert!(status.code() == Some(0) || status.code() == Some(code), "{redirection}: {status}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let sandbox = Sandbox::new();
    sandbox.run(&format!("{TINY} --trials 4 --tuner random")).expect(0);
    // Larger than the buffer of a pipe.
    let log = sandbox.run("log export -").expect(0).stdout;
    let copies = 200_000 / log.len() + 1;
    let renumbered = |copy: usize| log.replace("\"seed\":0", &format!("\"seed\":{}", copy + 1));
    fs::write(sandbox.path("many.jsonl"), (0..copies).map(renumbered).collect::<String>()).unwrap();
    sandbox.run("log import many.jsonl").expect(0);

    for line in ["log export -".to_string(), format!("show {TINY}")] {
        let mut child = sandbox.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{line}");
    }
}

#[test]
fn records_under_the_key_of_earlier_versions_are_untrusted() {
    let sandbox = Sandbox::new();
    sandbox.run(&format!("{TINY} --trials 4 --tuner random")).expect(0);
    let target = Target::detect("cpu", None).unwrap();
    let (key, legacy_key) = (target.key(), target.legacy_key().unwrap());
    let log = sandbox.run("log export -").expect(0).stdout;
    let earlier = log.replace(&format!("\"{key}\""), &format!("\"{legacy_key}\""));
    assert_ne!(earlier, log);
    fs::write(sandbox.path("earlier.jsonl"), earlier).unwrap();
    sandbox.run("log import earlier.jsonl --db earlier").expect(0);

    let served = sandbox.run(&format!("best {TINY} --db earlier")).expect(0);
    assert!(served.stdout.contains("claimed") && served.stdout.contains(&legacy_key), "{}", served.stdout);
    let tuned = sandbox.run(&format!("{TINY} --trials 6 --tuner random --db earlier")).expect(0);
    assert!(tuned.stderr.contains(&format!("record(s) from '{legacy_key}'")), "{}", tuned.stderr);
    let again = sandbox.run(&format!("{TINY} --trials 8 --tuner random --db earlier")).expect(0);
    assert!(
        again.stderr.contains("continuing: 6 of 8") && !again.stderr.contains("the key of earlier versions"),
        "{}",
        again.stderr
    );
}
