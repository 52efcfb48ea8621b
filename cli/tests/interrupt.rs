//! Ctrl-C: commands end with one line that lists the written files, and leave no partial file.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::sandbox::{Ended, Sandbox, signal};

/// Network whose loading takes much longer than sending a signal.
const LARGE: &str = "resnet18";

fn start(sandbox: &Sandbox, line: &str) -> Child {
    sandbox.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until `is_so` returns true for the process id, or the command has ended.
fn wait_until(child: &mut Child, is_so: impl Fn(u32) -> bool) {
    let start = Instant::now();
    while !is_so(child.id()) && child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(120), "nothing happens");
        thread::sleep(Duration::from_millis(1));
    }
}

/// True if the process has a handler for SIGINT.
fn watches(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() >> (libc::SIGINT - 1) & 1 == 1)
}

fn interrupted(child: Child) -> Ended {
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Returns the sorted names in the folder, without the database.
fn files(sandbox: &Sandbox) -> Vec<String> {
    let names = fs::read_dir(sandbox.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).filter(|name| name != "db").collect();
    names.sort();
    names
}

#[test]
fn interruptions_before_any_file_say_so() {
    let sandbox = Sandbox::new();
    for line in [
        format!("run {LARGE} --repeat 1000000 --output out --json figures.json"),
        format!("compile {LARGE} -o network.so"),
        format!("bench {LARGE} --profile --json profile.json"),
    ] {
        let mut child = start(&sandbox, &line);
        wait_until(&mut child, watches);
        interrupted(child).expect_line(130, "autotune: interrupted: nothing was written");
        assert_eq!(files(&sandbox), [""; 0], "{line}");
    }
}

#[test]
fn interruptions_list_written_files() {
    let sandbox = Sandbox::new();
    let mut child = start(&sandbox, "run dqn --threads 1 --repeat 100000000 --output out --json figures.json");
    let out = sandbox.path("out");
    let is_there = |name: &str| name.ends_with(".npy") && !name.starts_with('.');
    let written = || {
        let entries = fs::read_dir(&out).into_iter().flatten();
        let mut names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.find(|name| is_there(name))
    };
    wait_until(&mut child, |_| written().is_some());
    let name = written().unwrap();
    interrupted(child).expect_line(130, &format!("interrupted: wrote only out/{name}"));
    assert_eq!(files(&sandbox), ["out"]);
    assert!(fs::read_dir(&out).unwrap().count() == 1 && fs::read(out.join(name)).unwrap().starts_with(b"\x93NUMPY"));
}

/// At whatever moment compiling is interrupted, the library exists with its header, or neither
/// does.
#[test]
fn nothing_unfinished_is_left() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("network.h"), "").unwrap();
    for at in 0..4 {
        let mut child = start(&sandbox, &format!("compile {LARGE} --threads 1 -o network.so"));
        wait_until(&mut child, |_| files(&sandbox).iter().any(|name| name.starts_with(".autotune-new-")));
        thread::sleep(Duration::from_millis(at * 5));
        let ended = interrupted(child);

        let header = fs::metadata(sandbox.path("network.h")).unwrap().len();
        match ended.code {
            Some(130) if ended.stderr.contains("nothing was written") => {
                assert_eq!((files(&sandbox), header), (vec!["network.h".to_string()], 0));
            }
            Some(0 | 130) => {
                assert!(header > 0 && files(&sandbox) == ["network.h", "network.so"], "{}", ended.stderr);
                fs::remove_file(sandbox.path("network.so")).unwrap();
                fs::write(sandbox.path("network.h"), "").unwrap();
            }
            code => panic!("{code:?}: {}", ended.stderr),
        }
    }
}

#[test]
fn an_interrupted_bench_tells_what_it_measured() {
    let sandbox = Sandbox::new();
    let mut child = start(&sandbox, &format!("bench {LARGE} --json bench.json"));
    let racing = |_| fs::metadata(sandbox.path("db/journal")).is_ok_and(|journal| journal.len() > 0);
    wait_until(&mut child, racing);
    let ended = interrupted(child).expect(130);
    assert!(ended.stdout.contains("speed-up"), "{}", ended.stdout);
    let told =
        ended.stderr.lines().filter(|line| line.starts_with("autotune: interrupted: all measurements are stored"));
    assert_eq!(told.count(), 1, "{}", ended.stderr);
    assert_eq!(files(&sandbox), ["bench.json"]);
}

/// A command under `nohup` goes on when the terminal is closed.
#[test]
fn an_ignored_hangup_stays_ignored() {
    let sandbox = Sandbox::new();
    let mut command = std::process::Command::new("nohup");
    let inner = sandbox.command("run dqn --threads 1 --repeat 100000000");
    command.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(&mut child, watches);
    signal(&child, libc::SIGHUP);
    thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none());
    interrupted(child).expect(130);
}
