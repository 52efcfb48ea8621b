//! Fleets of the real command on loopback: tuning on workers, their deaths, stops and refusals.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeSet, HashSet};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::prometheus::Scraped;
use crate::sandbox::{Ended, Sandbox, TINY, signal};

/// Running worker, killed at the end of a test.
pub(crate) struct FleetWorker {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl FleetWorker {
    pub(crate) fn start(sandbox: &Sandbox, options: &str) -> Self {
        Self::listening(sandbox, "127.0.0.1:0", options)
    }

    fn listening(sandbox: &Sandbox, place: &str, options: &str) -> Self {
        Self::of(sandbox.command(&format!("fleet worker --listen {place} {options}")))
    }

    /// Starts a command that prints its address first.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once("listening on ").expect(&line).1.to_string();
        Self { child, address }
    }

    pub(crate) fn connect(&self) -> String {
        format!("--connect {}", self.address)
    }

    /// Waits for the end of the worker, and returns its exit code.
    pub(crate) fn code(mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the worker does not end");
    }
}

impl Drop for FleetWorker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks that the database has one record for each of `trials` configs.
fn check_records(sandbox: &Sandbox, trials: usize) {
    let records = sandbox.records();
    let searched = records.iter().filter(|record| record["phase"] == "search");
    let configs: Vec<String> = searched.map(|record| record["config"].to_string()).collect();
    assert_eq!(configs.len(), trials);
    assert_eq!(configs.iter().collect::<HashSet<_>>().len(), trials, "a config has two records");
}

pub(crate) fn ended(child: Child) -> Ended {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Waits until a worker has looked for its devices, and returns their keys.
fn offers(sandbox: &Sandbox, worker: &FleetWorker) -> Vec<String> {
    loop {
        if let Value::Array(keys) = &status(sandbox, worker)["offers"] {
            return keys.iter().map(|key| key.as_str().unwrap().to_string()).collect();
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn status(sandbox: &Sandbox, worker: &FleetWorker) -> Value {
    let json = sandbox.run(&format!("fleet status {} --json -", worker.connect())).expect(0).stdout;
    let Value::Array(mut rows) = serde_json::from_str(&json).unwrap() else { panic!("{json}") };
    rows.remove(0)
}

#[test]
fn a_workload_is_tuned_on_two_workers_with_the_usual_report() {
    let sandbox = Sandbox::new();
    let socket = format!("unix:{}", sandbox.path("worker.sock").display());
    let workers =
        [FleetWorker::start(&sandbox, "--name left"), FleetWorker::listening(&sandbox, &socket, "--name right")];
    let connects = workers.each_ref().map(FleetWorker::connect).join(" ");
    let tuned = sandbox.run(&format!("{TINY} --threads 1 --trials 24 {connects} --json report.json")).expect(0);
    check_records(&sandbox, 24);
    assert!(tuned.stderr.contains("2 worker(s) of cpu:"), "{}", tuned.stderr);
    assert!(
        tuned.stdout.contains("| matmul |") && tuned.stdout.contains("trials by the workers of cpu:"),
        "{}",
        tuned.stdout
    );
    assert!(sandbox.json("report.json")["tasks"][0]["best_secs"].as_f64().unwrap() > 0.0);
    sandbox.run(&format!("best {TINY} --threads 1")).expect(0);

    let rows = workers.each_ref().map(|worker| status(&sandbox, worker));
    let trials: u64 = rows.iter().map(|row| row["trials"].as_u64().unwrap()).sum();
    assert_eq!(trials, 24, "{rows:?}");
    assert_eq!([&rows[0]["name"], &rows[1]["name"]], ["left", "right"]);
    let table = sandbox.run(&format!("fleet status {connects}")).expect(0).stdout;
    assert!(["| left ", "| right ", "lowering"].iter().all(|words| table.contains(words)), "{table}");

    drop(workers);
    let again = sandbox.run(&format!("{TINY} --threads 1 --trials 24")).expect(0);
    assert!(again.stderr.contains("24 of 24 trials already measured"), "{}", again.stderr);
}

#[test]
fn every_kind_of_a_fleet_is_tuned_with_records_of_its_own() {
    let sandbox = Sandbox::new();
    let core = autotune_runtime::allowed_cores()[0];
    let workers = [FleetWorker::start(&sandbox, ""), FleetWorker::start(&sandbox, &format!("--cores {core}"))];
    let connects = workers.each_ref().map(FleetWorker::connect).join(" ");
    // The CPU with all cores, the CPU with one core, and the GPUs of this machine.
    let kinds: BTreeSet<String> = workers.iter().flat_map(|worker| offers(&sandbox, worker)).collect();
    let line = format!("{TINY} --target any --trials 8 {connects} --json report.json");
    let tuned = sandbox.run(&line).expect(0);
    for key in &kinds {
        let (heading, joined) = (format!("target {key}"), format!("worker(s) of {key}: "));
        assert!(tuned.stdout.contains(&heading) && tuned.stderr.contains(&joined), "{}{}", tuned.stdout, tuned.stderr);
    }
    assert_eq!(tuned.stdout.matches("| matmul |").count(), kinds.len(), "{}", tuned.stdout);
    assert!(tuned.stderr.lines().any(|line| line.starts_with("[1/8] cpu:")), "{}", tuned.stderr);

    let reports = sandbox.json("report.json")["kinds"].as_array().unwrap().clone();
    let tuned: BTreeSet<String> = reports.iter().map(|report| report["target"].as_str().unwrap().to_string()).collect();
    assert_eq!(tuned, kinds);
    assert!(reports.iter().all(|report| report["tasks"][0]["trials"] == 8), "{reports:?}");
    let records = sandbox.records();
    for key in &kinds {
        let own = records.iter().filter(|record| record["target"] == key.as_str() && record["phase"] == "search");
        assert_eq!(own.count(), 8, "{key}");
    }
    let again = sandbox.run(&line).expect(0).stderr;
    assert_eq!(again.matches("8 of 8 trials already measured").count(), kinds.len(), "{again}");
}

#[test]
fn networks_are_tuned_for_any_target_and_for_a_whole_key() {
    let sandbox = Sandbox::new();
    let worker = FleetWorker::start(&sandbox, "");
    let tune = |target: &str| sandbox.run(&format!("dqn --target {target} --trials 6 {}", worker.connect())).expect(0);
    let any = tune("any --threads 1");
    assert!(any.stdout.contains("the network as a whole was not run"), "{}", any.stdout);
    let records = sandbox.records();
    let keys = records.iter().map(|record| record["target"].as_str().unwrap());
    let cpu = keys.into_iter().find(|key| key.starts_with("cpu:") && key.ends_with(":threads=1")).unwrap();
    let again = tune(cpu);
    assert!(again.stderr.contains("6 of 6 trials already measured"), "{}", again.stderr);
}

#[test]
fn any_target_needs_workers() {
    let sandbox = Sandbox::new();
    sandbox.run(&format!("{TINY} --target any --trials 4")).expect_line(2, "--target any: only a fleet has several");
    let gone = FleetWorker::start(&sandbox, "");
    let closed = gone.connect();
    drop(gone);
    let tune = |options: &str| sandbox.run(&format!("{TINY} --target any --trials 4 {options}"));
    tune(&closed).expect_line(1, "is unreachable: Connection refused");
    let worker = FleetWorker::start(&sandbox, "");
    // A machine with a GPU has a kind without threads.
    if offers(&sandbox, &worker).len() == 1 {
        tune(&format!("--threads 4096 {}", worker.connect()))
            .expect_line(1, "has no device for the target: it has cpu:");
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = sandbox.command(&format!("{TINY} --target any --connect {}", silent.local_addr().unwrap()));
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _accepted = silent.accept().unwrap();
    signal(&waiting, libc::SIGINT);
    ended(waiting).expect_line(130, "interrupted: nothing was written");
    assert!(!sandbox.path("db").exists(), "no database was made");
    sandbox.run(&format!("best {TINY} --target any")).expect_line(2, "any");
}

#[test]
fn a_worker_states_its_metrics_on_request() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("fleet worker --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --name scraped");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut after = |words: &str| lines.next().unwrap().rsplit_once(words).unwrap().1.to_string();
    let (address, metrics) = (after("listening on "), after("metrics at http://"));
    let worker = FleetWorker { child, address };
    let metrics = metrics.strip_suffix("/metrics").unwrap();
    let wishes = |end: &str| Scraped::of(metrics).value("autotune_worker_wishes_total", &[("result", end)]);
    assert_eq!(wishes("measured"), 0.0);

    sandbox.run(&format!("{TINY} --threads 1 --trials 12 {}", worker.connect())).expect(0);
    assert_eq!(wishes("measured") + wishes("failed"), 12.0);
    let scraped = Scraped::of(metrics);
    assert_eq!(scraped.value("autotune_worker_info", &[("worker", "scraped")]), 1.0);
    assert_eq!(scraped.value("autotune_worker_queued_wishes", &[]), 0.0);
    assert!(scraped.value("autotune_worker_last_lease_timestamp_seconds", &[]) > 1.6e9);
    let target = sandbox.records()[0]["target"].as_str().unwrap().to_string();
    let labels = [("target", target.as_str())];
    assert!(scraped.value("autotune_worker_reference_kernel_seconds", &labels) > 0.0);

    sandbox.run("fleet worker --listen 127.0.0.1:0 --metrics unix:x").expect_line(2, "--metrics 'unix:x'");
    sandbox.run(&format!("fleet worker --listen 127.0.0.1:0 --metrics {metrics}")).expect_line(1, "cannot listen on");
}

#[test]
fn refusals_are_one_line_and_come_soon() {
    let sandbox = Sandbox::new();
    let worker = FleetWorker::start(&sandbox, "--name here");
    let gone = FleetWorker::start(&sandbox, "");
    let closed = gone.connect();
    drop(gone);
    let tune = |options: String| sandbox.run(&format!("{TINY} --trials 4 {options}"));
    let start = Instant::now();
    tune(closed.clone()).expect_line(1, "is unreachable: Connection refused");
    sandbox.run(&format!("fleet status {closed}")).expect_line(1, "is unreachable");
    tune(format!("--target cuda:sm_90 {}", worker.connect())).expect_line(1, "has no device for the target");
    tune(format!("--threads 4096 {}", worker.connect())).expect_line(1, "has no device for the target");
    tune(format!("--target cpu:Nobody-1-1:avx2:-:32K+512K+8M:?:threads=1 {}", worker.connect()))
        .expect_line(1, "its CPU is cpu:");
    assert!(start.elapsed() < Duration::from_secs(20), "five refusals");
    assert!(!sandbox.path("db").exists(), "no database was made");

    tune("--connect nowhere".into()).expect_line(2, "'nowhere' is not an address");
    sandbox.run("fleet worker").expect_line(2, "--listen");
    sandbox.run("fleet worker --listen 127.0.0.1:0 --cores 9-1").expect_line(2, "--cores '9-1'");
    sandbox.run("fleet worker --listen 127.0.0.1:0 --cores 4000").expect_line(2, "may not use core 4000");
    sandbox.run("fleet worker --listen 192.0.2.1:1").expect_line(1, "cannot listen on 192.0.2.1:1");
    sandbox.run(&format!("fleet worker --listen {}", worker.address)).expect_line(1, "cannot listen on");
    sandbox.run("fleet").expect_line(2, "missing");
}

#[test]
fn a_killed_worker_costs_no_record_and_a_returning_one_measures_on() {
    let sandbox = Sandbox::new();
    let (victim, other) = (FleetWorker::start(&sandbox, ""), FleetWorker::start(&sandbox, ""));
    let place = victim.address.clone();
    let line = format!("{TINY} --threads 1 --trials 160 {} {}", victim.connect(), other.connect());
    let tuner = sandbox.start(&line);
    signal(&victim.child, libc::SIGKILL);
    drop(victim);
    let _again = FleetWorker::listening(&sandbox, &place, "");
    let ended = ended(tuner).expect(0);
    assert!(ended.stderr.contains("is lost"), "{}", ended.stderr);
    check_records(&sandbox, 160);
}

#[test]
fn late_results_of_a_stopped_worker_are_the_same_records() {
    let sandbox = Sandbox::new();
    let (stopped, other) = (FleetWorker::start(&sandbox, "--name stopped"), FleetWorker::start(&sandbox, ""));
    let line = format!("{TINY} --threads 1 --trials 2000 {} {}", stopped.connect(), other.connect());
    let mut command = sandbox.command(&line);
    let mut tuner = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(tuner.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap).inspect(|line| println!("{line}"));
    assert!(lines.any(|line| line.starts_with('[')), "it measures");
    signal(&stopped.child, libc::SIGSTOP);
    assert!(lines.any(|line| line.contains("worker stopped reports no progress")));
    signal(&stopped.child, libc::SIGCONT);
    // The late results are there before anything that is measured from now on.
    while status(&sandbox, &stopped)["queued"] == 0 {}
    signal(&tuner, libc::SIGINT);
    assert_eq!(tuner.wait().unwrap().code(), Some(130));
    let trials = sandbox.searched();
    check_records(&sandbox, trials);
}

#[test]
fn a_killed_tuner_goes_on_where_it_was() {
    let sandbox = Sandbox::new();
    let worker = FleetWorker::start(&sandbox, "");
    let line = format!("{TINY} --threads 1 --trials 120 {}", worker.connect());
    let mut tuner = sandbox.start(&line);
    signal(&tuner, libc::SIGKILL);
    tuner.wait().unwrap();
    let before = sandbox.searched();
    assert!((1..120).contains(&before), "{before}");
    sandbox.run(&line).expect(0);
    check_records(&sandbox, 120);
}

#[test]
fn a_worker_stops_on_sigterm_and_the_tuner_goes_on() {
    let sandbox = Sandbox::new();
    let (leaving, staying) = (FleetWorker::start(&sandbox, "--name leaving"), FleetWorker::start(&sandbox, ""));
    let line = format!("{TINY} --threads 1 --trials 160 {} {}", leaving.connect(), staying.connect());
    let tuner = sandbox.start(&line);
    signal(&leaving.child, libc::SIGTERM);
    let start = Instant::now();
    assert_eq!(leaving.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5));
    let ended = ended(tuner).expect(0);
    assert!(ended.stderr.contains("worker leaving stopped"), "{}", ended.stderr);
    check_records(&sandbox, 160);
}

#[test]
fn an_interrupted_tuner_returns_its_leases() {
    let sandbox = Sandbox::new();
    let worker = FleetWorker::start(&sandbox, "");
    let tuner = sandbox.start(&format!("{TINY} --threads 1 --trials 5000 {}", worker.connect()));
    signal(&tuner, libc::SIGINT);
    ended(tuner).expect(130);
    let start = Instant::now();
    while status(&sandbox, &worker)["queued"] != 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "the worker still measures");
    }
    assert_eq!(status(&sandbox, &worker)["tuners"], 0);
}

#[test]
fn an_idle_worker_exits() {
    let sandbox = Sandbox::new();
    let socket = sandbox.path("idle.sock");
    let place = format!("unix:{}", socket.display());
    let worker = FleetWorker::listening(&sandbox, &place, "--exit-when-idle 300ms");
    assert_eq!(worker.code(), Some(0));
    assert!(!socket.exists(), "it removed its socket");
}

#[test]
fn a_fleet_of_this_machine_is_started_and_ended_by_one_command() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("fleet up --workers 2");
    let mut up = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("--connect")).unwrap();
    let connects = line.split_once(" --connect ").unwrap().1;
    let tuned = sandbox.run(&format!("{TINY} --threads 1 --trials 12 --connect {connects}")).expect(0);
    assert!(tuned.stderr.contains("2 worker(s) of cpu:"), "{}", tuned.stderr);
    check_records(&sandbox, 12);
    signal(&up, libc::SIGTERM);
    assert_eq!(up.wait().unwrap().code(), Some(0));
    let place = connects.split_whitespace().next().unwrap();
    sandbox.run(&format!("fleet status --connect {place}")).expect_line(1, "is unreachable");
}

#[test]
fn nats_is_refused_with_a_reason_by_programs_without_it_and_for_servers_that_are_not_there() {
    let sandbox = Sandbox::new();
    let expected = match cfg!(feature = "nats") {
        true => "NATS server nats://127.0.0.1:9 cannot be used",
        false => "built without NATS",
    };
    for line in [format!("{TINY} --trials 4"), "fleet worker".into(), "fleet status".into()] {
        sandbox.run(&format!("{line} --nats nats://127.0.0.1:9")).expect_line(1, expected);
    }
    sandbox.run("fleet status --team x").expect_line(2, "--nats");
}

#[cfg(feature = "nats")]
#[test]
fn a_workload_is_tuned_through_a_nats_server() {
    let Some(server) = crate::server::Server::start(0) else { return };
    let sandbox = Sandbox::new();
    let nats = format!("--nats nats://127.0.0.1:{} --team cli", server.port);
    let tune = || sandbox.run(&format!("{TINY} --threads 1 --trials 24 {nats}"));
    tune().expect_line(1, "no worker of team cli is connected");

    let start = |name: &str| {
        let mut command = sandbox.command(&format!("fleet worker {nats} --name {name}"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("listening on nats://"), "{line}");
        FleetWorker { child, address: String::new() }
    };
    let workers = ["left", "right"].map(start);
    let tuned = tune().expect(0);
    assert!(tuned.stderr.contains("2 worker(s) of cpu:"), "{}", tuned.stderr);
    check_records(&sandbox, 24);
    let table = sandbox.run(&format!("fleet status {nats}")).expect(0).stdout;
    assert!(["| left ", "| right "].iter().all(|words| table.contains(words)), "{table}");
    for worker in workers {
        signal(&worker.child, libc::SIGTERM);
        assert_eq!(worker.code(), Some(0));
    }
    sandbox.run(&format!("fleet status {nats}")).expect_line(1, "no worker of team cli");
}
