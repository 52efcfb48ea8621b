//! Tests of the prepared measurement on a GPU machine: both of its calls, on small workloads, on an
//! OpenCL device (PoCL) and on the stub of a CUDA device with imitations of the toolkit's programs.
//! The measured times are ignored.
//!
//! The pack consists of programs that `cargo test` builds, so that it must have run before. If
//! programs, Python or a device are missing, the tests print that and pass;
//! `AUTOTUNE_REQUIRE=programs,python3,opencl,g++` makes that a failure.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use autotune_runtime::opencl;
use serde_json::Value;
use tempfile::TempDir;

use crate::stub::Stub;

const FILES: [&str; 3] = ["gpu_run.json", "gpu_run.md", "gpu_run.tar.gz"];

/// Time budget of a call in seconds, enough for all of its steps.
const BUDGET_SECS: u64 = 120;

fn missing(tool: &str, reason: &str) {
    let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    eprintln!("skipped, {tool} is missing: {reason}");
}

/// Script in place of the toolkit's programs: runs the program to inspect, which follows the
/// options, and prints a typical result.
const TOOL: &str = r#"#!/bin/sh
tool="$(basename "$0")" report="" all="$*"
while [ $# -gt 0 ]; do
    case "$1" in
    --export) report="$2" ;;
    --import) [ -f "$2" ] && printf '"ID","Kernel Name","launch__registers_per_thread"\n"","","register/thread"\n"0","autotune_compute","40"\n'; exit ;;
    *.cubin) [ -s "$1" ] && echo '/*0010*/ HMMA.16816.F32 R4, R8; FFMA R1, R2'; exit ;;
    */compare_peers) break ;;
    esac
    shift
done
[ $# -gt 0 ] || { echo "$tool: no program in: $all"; exit 2; }
"$@" || exit
[ -z "$report" ] || touch "$report.ncu-rep"
echo "========= ERROR SUMMARY: 0 errors"
"#;

/// Pack of programs with a folder to run it in.
struct Pack {
    dir: TempDir,
    /// Stub device; `None` for a real one.
    stub: Option<&'static Stub>,
}

impl Pack {
    /// Builds a pack by pack.sh from the built programs; `None` if something is missing.
    fn make(stub: Option<&'static Stub>) -> Option<Self> {
        if let Err(error) = Command::new("python3").arg("--version").output() {
            missing("python3", &error.to_string());
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let programs = dir.path().join("programs");
        fs::create_dir(&programs).unwrap();
        for (name, found) in neighbouring_programs() {
            let Some(found) = found else {
                missing("programs", &format!("{name} is not built: `cargo test` without arguments builds it"));
                return None;
            };
            symlink(found, programs.join(name)).unwrap();
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/gpu_run/pack.sh");
        let mut pack = Command::new(script);
        let packed = pack.arg("--programs").arg(&programs).arg(dir.path().join("pack")).output().unwrap();
        assert!(packed.status.success(), "{packed:?}");
        // Hides PyTorch, so that results do not depend on its installation.
        fs::create_dir(dir.path().join("python")).unwrap();
        fs::write(dir.path().join("python/torch.py"), "raise ImportError('kept away by the test')\n").unwrap();
        Some(Self { dir, stub })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("python3");
        command.arg(self.path("pack/run.py")).args(line.split_whitespace()).arg("--small");
        match self.stub {
            None => command.args(["--target", "opencl"]),
            // Hides other devices, which would only take time.
            Some(stub) => {
                stub.set(&mut command).env("PATH", self.path_with_tools()).env("OPENCL_DYLIB_PATH", "/nowhere")
            }
        };
        command.current_dir(self.dir.path()).env("PYTHONPATH", self.path("python")).env_remove("AUTOTUNE_REQUIRE");
        // Temporary files of a killed call are removed with the test's folder.
        fs::create_dir_all(self.path("tmp")).unwrap();
        command.env("TMPDIR", self.path("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns `PATH` with a folder of imitated toolkit programs in front.
    fn path_with_tools(&self) -> OsString {
        let tools = self.path("tools");
        if fs::create_dir(&tools).is_ok() {
            for name in ["compute-sanitizer", "ncu", "nvdisasm"] {
                fs::write(tools.join(name), TOOL).unwrap();
                fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        let others = env::var_os("PATH").unwrap_or_default();
        env::join_paths(std::iter::once(tools).chain(env::split_paths(&others))).unwrap()
    }

    /// Runs a call to its end, and checks all the time that its output files are complete.
    fn call(&self, line: &str) -> (Output, Value) {
        let mut child = self.command(line).spawn().unwrap();
        let out = self.path(line.split_whitespace().nth(1).unwrap());
        let mut seen = BTreeSet::new();
        while child.try_wait().unwrap().is_none() {
            if let Some(state) = state(&out) {
                seen.insert(state["steps"].as_array().unwrap().len());
            }
            thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().unwrap();
        let state = state(&out).unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(seen.len() > 1, "written at the end only: {seen:?}");
        assert_eq!(names(&out), FILES);
        let call = state["calls"].as_array().unwrap().last().unwrap();
        assert_eq!(call["ended"], "done");
        assert!(call["seconds"].as_f64().unwrap() <= call["budget_secs"].as_f64().unwrap(), "{call}");
        (output, state)
    }

    /// Starts a call and waits until one of its steps has succeeded.
    fn start(&self, line: &str, step: &str) -> Child {
        let child = self.command(line).spawn().unwrap();
        let out = self.path(line.split_whitespace().nth(1).unwrap());
        let deadline = Instant::now() + Duration::from_secs(BUDGET_SECS);
        while state(&out).is_none_or(|state| status(&state, step) != "ok") {
            assert!(Instant::now() < deadline, "{step} has not come: {:?}", state(&out));
            thread::sleep(Duration::from_millis(20));
        }
        child
    }
}

/// Returns the programs of the pack in cargo's folders, relative to this test; the newest of
/// several.
fn neighbouring_programs() -> [(&'static str, Option<PathBuf>); 3] {
    let deps = env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let profile = deps.parent().unwrap().to_path_buf();
    let built = |path: PathBuf| path.is_file().then_some(path);
    let newest = |stem: &str| {
        let is_it = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            let executable = path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
            name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('-') && !rest.contains('.')) && executable
        };
        let found = fs::read_dir(&deps).unwrap().filter_map(|entry| Some(entry.ok()?.path())).filter(is_it);
        found.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
    };
    [
        ("autotune", built(profile.join("autotune"))),
        ("compare_peers", built(profile.join("examples/compare_peers"))),
        ("contract", newest("contract")),
    ]
}

fn names(out: &Path) -> Vec<String> {
    let entries = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

/// Reads the JSON file in the folder, which must be complete; `None` if there is none yet.
fn state(out: &Path) -> Option<Value> {
    let text = fs::read_to_string(out.join(FILES[0])).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// Returns the status of a step; empty if it has not begun.
fn status(state: &Value, step: &str) -> String {
    let found = state["steps"].as_array().unwrap().iter().find(|one| one["name"] == step);
    found.map_or(String::new(), |step| step["status"].as_str().unwrap().to_string())
}

/// Returns the content of a file in the archive, which must be complete.
fn archived(out: &Path, name: &str) -> String {
    let program = "import sys, tarfile\n\
                   archive = tarfile.open(sys.argv[1])\n\
                   files = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}\n\
                   sys.stdout.buffer.write(files[sys.argv[2]])";
    let read = Command::new("python3").arg("-c").arg(program).arg(out.join(FILES[2])).arg(name).output().unwrap();
    assert!(read.status.success(), "{read:?}");
    String::from_utf8(read.stdout).unwrap()
}

#[test]
fn results_travel_from_call_to_call() {
    let _cores = crate::quiet_cores();
    if let Err(reason) = opencl::devices() {
        return missing("opencl", &reason.to_string());
    }
    let Some(pack) = Pack::make(None) else { return };

    // The call is killed after the first of two tasks is tuned.
    let line = format!("first a --budget {BUDGET_SECS}");
    let mut killed = pack.start(&line, "tune f32 matmul:m=64,n=48,k=32,bias");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = state(&pack.path("a")).unwrap();
    assert_eq!(left["calls"][0]["ended"], "cut off");
    assert_eq!(status(&left, "generated kernels"), "ok", "{left:#}");
    let records = archived(&pack.path("a"), "log.jsonl").lines().count();
    assert!(records > 0 && fs::read_to_string(pack.path("a/gpu_run.md")).unwrap().contains("## Tuning"));

    // The next call does not repeat completed steps.
    let (output, first) = pack.call(&format!("first b --from a/gpu_run.tar.gz --budget {BUDGET_SECS}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("tune f32 matmul:m=64,n=48,k=32,bias: done before"), "{said}");
    assert_eq!(status(&first, "tune f32 matmul:m=32,n=32,k=32"), "ok", "{first:#}");
    let log = archived(&pack.path("b"), "log.jsonl");
    assert!(log.lines().count() > records);
    let text = fs::read_to_string(pack.path("b/gpu_run.md")).unwrap();
    assert!(text.contains("Not measured: torch: ImportError: kept away by the test"), "{text}");

    // Records of earlier calls count as this machine's own, not as untrusted.
    let comparison = &first["results"]["compare f32"]["compare"];
    let tables = comparison["tables"].as_array().unwrap();
    for row in tables.iter().flat_map(|table| table["comparisons"].as_array().unwrap()) {
        let ours = &row["contenders"][0];
        assert!(ours["name"] == "autotune" && ours["how"].as_str().unwrap().starts_with("tuned"), "{row:#}");
    }

    assert!(first["results"]["our networks"]["dqn"]["device_secs"]["median"].as_f64().unwrap() > 0.0);

    // Missing tools are reported as left out.
    let (_, second) = pack.call(&format!("second c --from b/gpu_run.tar.gz --budget {BUDGET_SECS}"));
    assert_eq!(archived(&pack.path("c"), "log.jsonl"), log);
    for step in ["memcheck", "racecheck", "ncu", "sass", "compiled networks"] {
        assert_eq!(status(&second, step), "left out", "{second:#}");
    }
}

#[test]
fn a_call_that_is_asked_to_end_says_so() {
    let _cores = crate::quiet_cores();
    if let Err(reason) = opencl::devices() {
        return missing("opencl", &reason.to_string());
    }
    let Some(pack) = Pack::make(None) else { return };
    let mut stopped = pack.start(&format!("first a --budget {BUDGET_SECS}"), "machine");
    // SAFETY: the process is a child that has not been waited for, so that its id is still its own.
    assert_eq!(unsafe { libc::kill(stopped.id() as libc::pid_t, libc::SIGTERM) }, 0);
    assert_eq!(stopped.wait().unwrap().code(), Some(143));
    let state = state(&pack.path("a")).unwrap();
    assert_eq!(state["calls"][0]["ended"], "stopped by a signal");
    assert_eq!(names(&pack.path("tmp")), Vec::<String>::new());
}

#[test]
fn a_call_without_time_or_device_names_what_it_leaves_out() {
    let _cores = crate::quiet_cores();
    let Some(pack) = Pack::make(None) else { return };
    let mut command = pack.command("first a --budget 9");
    let output = command.env("OPENCL_DYLIB_PATH", "/nowhere").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let state = state(&pack.path("a")).unwrap();
    assert!(state["calls"][0]["seconds"].as_f64().unwrap() <= 9.0, "{state:#}");
    let left_out = state["steps"].as_array().unwrap().iter().skip(1);
    for step in left_out {
        let why = step["why"].as_str().unwrap_or_default();
        assert!(why == "no time is left" || why.starts_with("there is no device: none"), "{step:#}");
    }
}

#[test]
fn both_calls_run_on_a_cuda_device_and_the_toolkits_programs_look_at_our_kernels() {
    let _cores = crate::quiet_cores();
    let stub = match Stub::find() {
        Ok(stub) => stub,
        Err(reason) => return missing("g++", &reason),
    };
    let Some(pack) = Pack::make(Some(stub)) else { return };
    let (_, first) = pack.call(&format!("first a --budget {BUDGET_SECS}"));
    for step in first["steps"].as_array().unwrap().iter().filter(|step| step["name"] != "networks") {
        assert_eq!(step["status"], "ok", "{step:#}");
    }
    // PyTorch is hidden, so that this step fails.
    assert_eq!(status(&first, "networks"), "failed");
    let tables = first["results"]["compare f32"]["compare"]["tables"].as_array().unwrap();
    for row in tables.iter().flat_map(|table| table["comparisons"].as_array().unwrap()) {
        assert!(row["contenders"][0]["how"].as_str().unwrap().starts_with("tuned"), "{row:#}");
    }

    let (_, second) = pack.call(&format!("second a --from a/gpu_run.tar.gz --budget {BUDGET_SECS}"));
    for step in ["memcheck", "racecheck", "ncu", "ncu table", "sass"] {
        assert_eq!(status(&second, step), "ok", "{second:#}");
    }
    let text = fs::read_to_string(pack.path("a/gpu_run.md")).unwrap();
    for line in [
        "- memcheck: ERROR SUMMARY: 0 errors; 1 kernels ran and were right, 0 failed",
        "- racecheck: ERROR SUMMARY: 0 errors; 1 kernels ran and were right, 0 failed",
        "| given_64x48x32_f32 | 0 | 1 | 1 | 0 |",
        "| kernel | registers (register/thread) |",
        "| 0 autotune_compute | 40 |",
    ] {
        assert!(text.contains(line), "'{line}' is not in:\n{text}");
    }
}
