//! Memory of a team with the real command: tuners share records through a collector, which is
//! killed and restarted, and deployed programs follow its schedules.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fleet::{FleetWorker, ended};
use crate::sandbox::{Ended, Sandbox, TINY, signal};

/// Running collector with the database `team` of a sandbox, killed at the end of a test.
struct Collector(FleetWorker);

impl Collector {
    fn start(sandbox: &Sandbox) -> Self {
        Self::at(sandbox, "--listen 127.0.0.1:0")
    }

    fn at(sandbox: &Sandbox, place: &str) -> Self {
        Self(FleetWorker::of(sandbox.command(&format!("fleet collect --db team --name memory {place}"))))
    }

    /// Ends the collector as kill -9 does, and starts it again at the same place.
    fn restart(self, sandbox: &Sandbox) -> Self {
        let place = self.0.address.clone();
        signal(&self.0.child, libc::SIGKILL);
        drop(self);
        Self::at(sandbox, &format!("--listen {place}"))
    }

    fn address(&self) -> &str {
        &self.0.address
    }

    fn option(&self) -> String {
        format!("--collector {}", self.0.address)
    }
}

/// Returns the records of a database in order.
fn lines(sandbox: &Sandbox, db: &str) -> Vec<String> {
    let exported = sandbox.run(&format!("log export - --db {db}")).expect(0).stdout;
    let mut lines: Vec<String> = exported.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// Checks that the team's database has the records of other databases, and each once.
fn check_team(sandbox: &Sandbox, own: &[&str]) {
    let mut expected: Vec<String> = own.iter().flat_map(|db| lines(sandbox, db)).collect();
    expected.sort();
    expected.dedup();
    let team = lines(sandbox, "team");
    assert!(team == expected, "{} records instead of {}", team.len(), expected.len());
}

#[test]
fn what_one_tuner_measured_no_other_measures_again() {
    let sandbox = Sandbox::new();
    let (collector, worker) = (Collector::start(&sandbox), FleetWorker::start(&sandbox, ""));
    let tune = |db: &str, trials: usize, more: &str| {
        let line = format!("{TINY} --threads 1 --trials {trials} --db {db} {} {more}", collector.option());
        sandbox.run(&line).expect(0)
    };
    // The first measures here, the second on a worker of the fleet.
    let first = tune("first", 24, "");
    assert!(first.stdout.contains("collector memory: took"), "{}", first.stdout);
    check_team(&sandbox, &["first"]);
    let again = tune("second", 24, "");
    assert!(again.stderr.contains("24 of 24 trials already measured"), "{}", again.stderr);
    let more = tune("second", 40, &worker.connect());
    assert!(more.stderr.contains("24 of 40 trials already measured"), "{}", more.stderr);
    check_team(&sandbox, &["first", "second"]);
    let searched = |db: &str| lines(&sandbox, db).iter().filter(|line| line.contains("\"phase\":\"search\"")).count();
    assert_eq!([searched("first"), searched("second"), searched("team")], [24, 40, 40]);

    sandbox.run("fleet collect --db team --listen 127.0.0.1:0").expect_line(1, "team");
    signal(&collector.0.child, libc::SIGTERM);
    assert_eq!(collector.0.code(), Some(0));
}

#[test]
fn a_killed_collector_and_a_killed_tuner_cost_no_record() {
    let sandbox = Sandbox::new();
    let collector = Collector::start(&sandbox);
    let option = collector.option();
    let line = |trials: usize| format!("{TINY} --threads 1 --trials {trials} --db own {option}");
    let tuner = sandbox.start(&line(400));
    let collector = collector.restart(&sandbox);
    thread::sleep(Duration::from_millis(300));
    let _collector = collector.restart(&sandbox);
    let tuned = ended(tuner).expect(0);
    assert!(!tuned.stdout.contains("the next run"), "{}", tuned.stdout);
    check_team(&sandbox, &["own"]);

    let mut tuner = sandbox.start(&line(4000));
    signal(&tuner, libc::SIGKILL);
    tuner.wait().unwrap();
    let before = lines(&sandbox, "own").len();
    assert!(before > 400);
    sandbox.run(&line(400)).expect(0);
    check_team(&sandbox, &["own"]);
}

#[test]
fn connections_beyond_the_open_files_of_a_process_do_not_end_it() {
    let sandbox = Sandbox::new();
    let (collector, worker) = (Collector::start(&sandbox), FleetWorker::start(&sandbox, ""));
    for served in [&collector.0, &worker] {
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: the pointers are valid or null, and the child has not been waited for.
        let set = unsafe {
            libc::prlimit(served.child.id() as i32, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut())
        };
        assert_eq!(set, 0);
        let all: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&served.address).unwrap()).collect();
        drop(all);
    }
    // Until the connections that are gone are closed, others may be, too.
    let wait = |line: &str, is_served: &dyn Fn(Ended) -> bool| {
        let mut runs = (0..200).map(|_| sandbox.run(line));
        assert!(runs.any(is_served), "{line}");
    };
    let follow = format!("snapshot follow {} -o x --once", collector.address());
    wait(&follow, &|followed| followed.stderr.contains("has no schedules yet"));
    wait(&format!("fleet status {}", worker.connect()), &|asked| asked.code == Some(0));
}

#[test]
fn collectors_that_cannot_be_used_are_named() {
    let sandbox = Sandbox::new();
    let (collector, worker) = (Collector::start(&sandbox), FleetWorker::start(&sandbox, ""));
    let tune = |options: &str| sandbox.run(&format!("{TINY} --trials 4 {options}"));
    tune("--collector 127.0.0.1:9").expect_line(1, "collector 127.0.0.1:9 cannot be used: it is unreachable");
    tune(&format!("--collector {}", worker.address))
        .expect_line(1, "cannot be used: it is no collector of this version");
    tune(&format!("--connect {}", collector.address())).expect_line(1, "it is a collector of records");
    let status = sandbox.run(&format!("fleet status --connect {}", collector.address()));
    status.expect_line(1, "it is a collector of records");
    sandbox.run("snapshot follow 127.0.0.1:9 -o x --once").expect_line(1, "it is unreachable");
    sandbox.run("snapshot follow nowhere -o x").expect_line(2, "'nowhere' is not an address");
    sandbox.run("snapshot follow nats://127.0.0.1:9 -o x").expect_line(2, "a NATS server is named by --nats");
    sandbox.run("snapshot follow -o x").expect_line(2, "SOURCE");
    sandbox.run("fleet collect --db team").expect_line(2, "--listen");
    sandbox.run("fleet collect --listen 127.0.0.1:0").expect_line(2, "--db");
    let taken = format!("fleet collect --db new --listen {}", collector.address());
    sandbox.run(&taken).expect_line(1, "cannot listen on");
    assert!(!sandbox.path("new").exists(), "no database was made");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = sandbox.command(&format!("snapshot follow {} -o x", silent.local_addr().unwrap()));
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _accepted = silent.accept().unwrap();
    signal(&waiting, libc::SIGINT);
    let waited = ended(waiting).expect(130);
    assert!(waited.stderr.ends_with("autotune: interrupted\n"), "{}", waited.stderr);
    assert!(!sandbox.path("db").exists(), "no database was made");
}

/// Starts a collector that ends after it was greeted, and returns its address.
fn dying_collector() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut exchange = |answer: &dyn Fn(Value) -> Value| {
            let mut len = [0; 4];
            stream.read_exact(&mut len).unwrap();
            let mut frame = vec![0; u32::from_le_bytes(len) as usize];
            stream.read_exact(&mut frame).unwrap();
            let answer = answer(serde_json::from_slice(&frame).unwrap()).to_string();
            stream.write_all(&(answer.len() as u32).to_le_bytes()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        };
        exchange(&|hello| json!({ "kind": "welcome", "build": hello["build"], "name": "dying" }));
        exchange(&|asked| json!({ "number": asked["number"], "answer": { "kind": "lacking", "positions": [] } }));
    });
    address
}

#[test]
fn a_run_goes_on_without_a_collector_that_is_lost_at_its_start() {
    let sandbox = Sandbox::new();
    let tuned = sandbox.run(&format!("{TINY} --threads 1 --trials 4 --collector {}", dying_collector())).expect(0);
    assert!(tuned.stderr.contains("continuing without the records of the team"), "{}", tuned.stderr);
    assert!(tuned.stdout.contains("the next run with this collector passes them on"), "{}", tuned.stdout);
}

/// Waits until a file has another content than before, and returns it.
fn changed(sandbox: &Sandbox, name: &str, before: &[u8]) -> Vec<u8> {
    let start = Instant::now();
    loop {
        let now = fs::read(sandbox.path(name)).unwrap_or_default();
        if now != before {
            return now;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{name} does not change");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn deployed_programs_follow_the_schedules_of_the_team() {
    let sandbox = Sandbox::new();
    let collector = Collector::start(&sandbox);
    let follow = format!("snapshot follow {} -o live.snapshot", collector.address());
    sandbox.run(&format!("{follow} --once")).expect_line(1, "has no schedules yet");
    let mut command = sandbox.command(&format!("{follow} --every 50ms"));
    let follower = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let tune = |workload: &str| {
        sandbox.run(&format!("{workload} --threads 1 --trials 8 {}", collector.option())).expect(0);
    };
    tune(TINY);
    changed(&sandbox, "live.snapshot", &[]);
    fs::remove_file(sandbox.path("live.snapshot")).unwrap();
    let first = changed(&sandbox, "live.snapshot", &[]);
    let best = |workload: &str| sandbox.run(&format!("best {workload} --threads 1 --db live.snapshot"));
    best(TINY).expect(0);
    tune("matmul:m=8,n=16,k=16");
    changed(&sandbox, "live.snapshot", &first);
    let served = || best("matmul:m=8,n=16,k=16").code == Some(0);
    let start = Instant::now();
    while !served() {
        assert!(start.elapsed() < Duration::from_secs(30), "the second schedule does not come");
    }
    sandbox.run("snapshot check live.snapshot").expect(0);
    sandbox.run(&format!("{follow} --once")).expect(0);

    // The file stays while the collector is away, and follows it again.
    let kept = fs::read(sandbox.path("live.snapshot")).unwrap();
    let collector = collector.restart(&sandbox);
    sandbox.run(&format!("matmul:m=16,n=16,k=16 --threads 1 --trials 8 {}", collector.option())).expect(0);
    changed(&sandbox, "live.snapshot", &kept);
    signal(&follower, libc::SIGTERM);
    let followed = ended(follower).expect(0);
    assert!(followed.stderr.contains("\nstopping (Ctrl-C again to stop at once)"), "{}", followed.stderr);

    fs::write(sandbox.path("other"), "not a snapshot").unwrap();
    let other = format!("snapshot follow {} -o other", collector.address());
    sandbox.run(&other).expect_line(2, "other");
    assert_eq!(fs::read(sandbox.path("other")).unwrap(), b"not a snapshot");
}

#[cfg(feature = "nats")]
#[test]
fn tuners_and_followers_of_a_team_find_its_collector_through_nats() {
    let Some(server) = crate::server::Server::start(0) else { return };
    let sandbox = Sandbox::new();
    let url = format!("nats://127.0.0.1:{}", server.port);
    let nats = format!("--nats {url} --team memory");
    sandbox.run(&format!("snapshot follow {nats} -o x --once")).expect_line(1, "no collector of team memory");
    let start = |line: String| sandbox.command(&line);
    let collector = FleetWorker::of(start(format!("fleet collect --db team {nats}")));
    let _worker = FleetWorker::of(start(format!("fleet worker {nats}")));
    sandbox.run(&format!("fleet collect --db other {nats}")).expect_line(1, "has a collector already");
    let tune = |db: &str| sandbox.run(&format!("{TINY} --threads 1 --trials 16 --db {db} {nats}")).expect(0);
    tune("first");
    check_team(&sandbox, &["first"]);
    assert!(tune("second").stderr.contains("16 of 16 trials already measured"));
    check_team(&sandbox, &["first", "second"]);
    sandbox.run(&format!("snapshot follow {nats} -o live.snapshot --once")).expect(0);
    sandbox.run("snapshot check live.snapshot").expect(0);

    // A collector that is killed and started again is found again, by followers that run, too.
    let mut command = sandbox.command(&format!("snapshot follow {nats} -o live.snapshot --every 50ms"));
    let follower = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let tuner = sandbox.start(&format!("{TINY} --threads 1 --trials 400 --db third {nats}"));
    signal(&collector.child, libc::SIGKILL);
    drop(collector);
    let before = fs::read(sandbox.path("live.snapshot")).unwrap();
    let collector = FleetWorker::of(start(format!("fleet collect --db team {nats}")));
    let tuned = ended(tuner).expect(0);
    assert!(!tuned.stdout.contains("the next run"), "{}", tuned.stdout);
    check_team(&sandbox, &["first", "second", "third"]);
    sandbox.run(&format!("matmul:m=16,n=16,k=16 --threads 1 --trials 8 --db third {nats}")).expect(0);
    changed(&sandbox, "live.snapshot", &before);
    signal(&follower, libc::SIGINT);
    ended(follower).expect(0);
    signal(&collector.child, libc::SIGTERM);
    assert_eq!(collector.code(), Some(0));
}
