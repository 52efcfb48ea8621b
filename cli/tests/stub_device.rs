//! The `autotune` command on a stub of the CUDA driver that runs kernels on the CPU
//! (`measure/tests/stub`): tuning works, and missing, outdated or broken parts are reported.
//!
//! Without a C++ compiler for the stub, the tests print that and pass; `AUTOTUNE_REQUIRE=g++` makes
//! that a failure.

#[path = "../../measure/tests/stub/mod.rs"]
pub(crate) mod stub;

use std::fs;
use std::path::{Path, PathBuf};

use autotune_graph::operators::Sliding;
use autotune_graph::{Builder, ConvLayer, Seeded, onnx};
use serde_json::Value;

use stub::Stub;

use crate::sandbox::{Ended, Sandbox, TINY, finish};

/// Returns the stub; `None` without a compiler for it.
pub(crate) fn stub() -> Option<&'static Stub> {
    let missing = |reason: String| {
        let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
        assert!(required.split(',').all(|name| name != "g++"), "g++ is required: {reason}");
        eprintln!("skipped, g++ is missing: {reason}");
    };
    Stub::find().map_err(missing).ok()
}

/// Runs a command on the stub, with environment variables for it.
pub(crate) fn run(stub: &Stub, sandbox: &Sandbox, line: &str, variables: &[(&str, PathBuf)]) -> Ended {
    let mut command = sandbox.command(line);
    stub.set(&mut command).envs(variables.iter().map(|(name, value)| (name, value)));
    finish(command)
}

#[test]
fn the_device_is_listed() {
    let Some(stub) = stub() else { return };
    // The ceilings of OpenCL devices take long to measure.
    let hidden = [("OCL_ICD_VENDORS", "/nonexistent/".into())];
    let targets = run(stub, &Sandbox::new(), "targets", &hidden).expect(0).stdout;
    let mut lines = targets.lines().skip_while(|line| !line.starts_with("cuda: "));
    assert_eq!(lines.next(), Some("cuda: Stub of an H100 (CUDA driver 12.4)"), "{targets}");
    for words in [
        "cuda:sm_90:Stub_of_an_H100",
        "2 multiprocessors, 1024 threads and 227 KiB",
        "CUDA C, NVRTC 12.4",
        "GFLOP/s bf16",
        "us each",
    ] {
        let line = lines.next();
        assert!(line.is_some_and(|line| line.contains(words)), "'{words}' is not in {line:?} of:\n{targets}");
    }
}

#[test]
fn a_network_runs() {
    let Some(stub) = stub() else { return };
    let sandbox = Sandbox::new();
    let ran = run(stub, &sandbox, "run dqn --target cuda --check --repeat 1 --json run.json", &[]).expect(0);
    assert!(ran.stderr.contains("5 steps and 0 conversions compared"), "{}", ran.stderr);
    assert!(sandbox.json("run.json")["device_secs"]["median"].as_f64().unwrap() > 0.0);

    // Parts of its tensors are copied.
    let ran = run(stub, &sandbox, "run lstm --target cuda --check --repeat 1", &[]).expect(0);
    assert!(ran.stderr.contains("24 steps"), "{}", ran.stderr);
}

/// Returns a small network on images, with a concatenation whose parts are copied.
fn small() -> Vec<u8> {
    let net = Builder::new("small", Seeded { seed: 1 });
    let window = |k: usize| Sliding::new(k).pad(k / 2);
    let x = net.input("x", &[2, 16, 6, 6]).conv("first", ConvLayer::new(16, window(3)).bias()).relu();
    let both = x.conv("narrow", ConvLayer::new(16, window(1))).concat(&[x], 1);
    net.output("y", both.conv("both", ConvLayer::new(16, window(3))).global_average_pool().linear("fc", 10));
    onnx::write(&net.finish().unwrap()).unwrap()
}

/// Tensors and constants are stored in the type that kernels use, with casts of inputs and outputs.
#[test]
fn a_network_runs_in_reduced_precision() {
    let Some(stub) = stub() else { return };
    for (precision, least, most) in [("f16", 1e-6, 5e-3), ("tf32", 1e-6, 5e-3), ("bf16", 1e-4, 5e-2)] {
        let sandbox = Sandbox::new();
        fs::write(sandbox.path("small.onnx"), small()).unwrap();
        let line = format!("run small.onnx --target cuda --check --repeat 1 --precision {precision} --json run.json");
        let ran = run(stub, &sandbox, &line, &[]).expect(0);
        assert!(ran.stderr.contains("7 steps and "), "{}", ran.stderr);
        let rounding = &sandbox.json("run.json")["rounding"];
        assert_eq!(rounding["precision"], precision);
        let error = rounding["max_rel_error"].as_f64().unwrap();
        assert!((least..most).contains(&error), "{precision}: {error}");
    }
}

/// Every precision of the device is timed.
#[test]
fn precision_is_decided_on_the_device() {
    let Some(stub) = stub() else { return };
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("small.onnx"), small()).unwrap();
    let line = "run small.onnx --target cuda --repeat 1 --precision auto --max-error 0";
    let ran = run(stub, &sandbox, line, &[]).expect(0);
    for word in ["within an error of 0: timed interleaved, f32 ", ", tf32 ", ", f16 ", ", bf16 "] {
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
}

#[test]
fn a_workload_is_tuned() {
    let Some(stub) = stub() else { return };
    for dtype in ["f32", "f16"] {
        let sandbox = Sandbox::new();
        let workload = format!("matmul:m=32,n=32,k=32,dtype={dtype}");
        let tune = format!("{workload} --target cuda --trials 4 --tuner random --json out.json");
        run(stub, &sandbox, &tune, &[]).expect(0);
        let report = sandbox.json("out.json");
        let task = &report["tasks"][0];
        assert_eq!((&task["trials"], &task["failed_trials"]), (&4.into(), &0.into()), "{task}");
        assert!(task["max_rel_error"].as_f64().unwrap() < 1e-2 && task["best_secs"].as_f64().unwrap() > 0.0, "{task}");
        assert_eq!(report["target"], "cuda:sm_90:Stub_of_an_H100");

        assert_eq!(sandbox.searched(), 4);
        for record in sandbox.records() {
            let taken = &record["measurement"]["resources"];
            assert!(taken["registers"].as_u64().unwrap() >= 24 && taken["is_serialized"] == false, "{record}");
            assert_eq!(record["provenance"]["compiler"], "NVRTC 12.4");
        }

        let best = run(stub, &sandbox, &format!("best {workload} --target cuda"), &[]).expect(0).stdout;
        assert_eq!(serde_json::from_str::<Value>(&best).unwrap()["config"], task["config"]);

        let again = run(stub, &sandbox, &format!("{workload} --target cuda --trials 4"), &[]).expect(0);
        assert!(again.stderr.contains("nothing left to do"), "{}", again.stderr);
        assert_eq!(sandbox.searched(), 4);
    }
}

#[test]
fn missing_or_old_drivers_are_one_line() {
    let Some(stub) = stub() else { return };
    let (empty, newer) = (tempfile::tempdir().unwrap(), stub.nvrtc(13));
    let cases: [(&str, PathBuf, &[&str]); 7] = [
        (
            "STUB_CUDA_VERSION",
            "11080".into(),
            &["too old: it supports CUDA 11.8, 12.0 is required", "install NVIDIA driver 525"],
        ),
        ("STUB_CUDA_DEVICES", "0".into(), &["finds no device", "nvidia-smi must list one"]),
        (
            "STUB_CUDA_FAULT",
            "cuInit:1:803".into(),
            &["cannot initialise the CUDA driver", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reinstall the driver"],
        ),
        ("STUB_CUDA_FAULT", "cuDeviceGetName:1:999".into(), &["CUDA_ERROR_UNKNOWN"]),
        ("AUTOTUNE_NVRTC", empty.path().into(), &["has no libnvrtc.so", "install", "nvidia-cuda-nvrtc-cu12"]),
        (
            "AUTOTUNE_NVRTC",
            newer,
            &["NVRTC 13.0", "too new for the driver, which supports CUDA 12.4", "install NVRTC of CUDA 12 "],
        ),
        ("STUB_NVRTC_SMS", "75,80".into(), &["compiles for sm_75 to sm_80, not for sm_90", "install"]),
    ];

    for (name, value, words) in cases {
        let sandbox = Sandbox::new();
        let ended = run(stub, &sandbox, &format!("{TINY} --target cuda --trials 2"), &[(name, value.clone())]);
        for word in &words[1..] {
            assert!(ended.stderr.contains(word), "'{word}' is not in: {}", ended.stderr);
        }
        ended.expect_line(1, words[0]);
        assert!(!sandbox.path("db").exists() || sandbox.records().is_empty());
    }
}

/// Tunes on the stub with these variables, and returns the compiler that its record names.
fn tuned_by(stub: &Stub, variables: &[(&str, PathBuf)]) -> String {
    let sandbox = Sandbox::new();
    run(stub, &sandbox, &format!("{TINY} --target cuda --trials 1"), variables).expect(0);
    sandbox.records()[0]["provenance"]["compiler"].as_str().unwrap().to_string()
}

#[test]
fn of_two_compilers_the_one_that_driver_and_device_take_is_used() {
    let Some(stub) = stub() else { return };
    let folder = tempfile::tempdir().unwrap();
    for major in [12, 13] {
        let name = format!("libnvrtc.so.{major}");
        stub::link(stub.nvrtc(major).join(&name), &folder.path().join(name)).unwrap();
    }
    let tuned_by = |version: &str, sm: &str| {
        let variables = [("STUB_CUDA_VERSION", version.into()), ("STUB_CUDA_SM", sm.into())];
        tuned_by(stub, &[&[("AUTOTUNE_NVRTC", folder.path().into())], &variables[..]].concat())
    };
    assert_eq!(tuned_by("12020", "90"), "NVRTC 12.4");
    assert_eq!(tuned_by("13000", "90"), "NVRTC 13.0");
    // The newer compiler has dropped this architecture.
    assert_eq!(tuned_by("13010", "70"), "NVRTC 12.4");
}

#[test]
fn a_compiler_is_found_without_being_named() {
    let Some(stub) = stub() else { return };
    let (folder, toolkit) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tuned = |folders: &[&Path]| {
        let sandbox = Sandbox::new();
        let mut command = sandbox.command(&format!("{TINY} --target cuda --trials 1"));
        stub.set(&mut command).env_remove("AUTOTUNE_NVRTC").env("CUDA_HOME", toolkit.path());
        Stub::set_driver(&mut command, std::env::join_paths(folders).unwrap());
        (finish(command), sandbox)
    };
    let compiler = |(ended, sandbox): (Ended, Sandbox)| {
        ended.expect(0);
        sandbox.records()[0]["provenance"]["compiler"].as_str().unwrap().to_string()
    };
    // Found by the dynamic loader, although it finds an unsuitable newer version first.
    let (newer, older) = (stub.nvrtc(13), stub.nvrtc(12));
    assert_eq!(compiler(tuned(&[stub.folder(), &newer, &older])), "NVRTC 12.4");

    // Found in a toolkit if all libraries that the loader finds are broken.
    for name in ["libnvrtc.so.12", "libnvrtc.so"] {
        fs::write(folder.path().join(name), "no library").unwrap();
    }
    let folders = [stub.folder(), &newer, folder.path()];
    let (ended, _) = tuned(&folders);
    for words in [
        "libnvrtc.so.12: ",
        "code from NVRTC 13.0 is too new for the driver, which supports CUDA 12.4 (libnvrtc.so.13)",
    ] {
        assert!(ended.stderr.contains(words), "'{words}' is not in: {}", ended.stderr);
    }
    ended.expect_line(1, "install NVRTC of CUDA 12 or older");
    stub::link(&older, &toolkit.path().join("lib64")).unwrap();
    assert_eq!(compiler(tuned(&folders)), "NVRTC 12.4");
}

#[test]
fn a_context_that_is_lost_while_tuning_costs_nothing_else() {
    let Some(stub) = stub() else { return };
    for call in ["cuModuleLoadData:3", "cuLaunchKernel:3", "cuEventElapsedTime:4"] {
        let sandbox = Sandbox::new();
        let lost = sandbox.path("lost");
        let fault = format!("{call}:700:sticky:once={}", lost.display());
        let line = format!("{TINY} --target cuda --trials 4 --tuner random --json out.json");
        run(stub, &sandbox, &line, &[("STUB_CUDA_FAULT", fault.into())]).expect(0);
        assert!(fs::exists(lost).unwrap(), "{call} was not called");
        let task = sandbox.json("out.json")["tasks"][0].clone();
        assert!(task["failed_trials"].as_u64().unwrap() <= 1 && task["best_secs"].as_f64().unwrap() > 0.0, "{task}");
    }
}

#[test]
fn uncaptured_runs_are_launched_one_by_one_and_reported() {
    let Some(stub) = stub() else { return };
    for (fault, has_graphs) in
        [("", true), ("cuStreamBeginCapture_v2:1+:900", false), ("cuGraphInstantiateWithFlags:1+:801", false)]
    {
        let sandbox = Sandbox::new();
        let line = format!("{TINY} --target cuda --trials 2 --tuner random --json out.json");
        let ended = run(stub, &sandbox, &line, &[("STUB_CUDA_FAULT", fault.into())]).expect(0);
        let is_as_said = |graph_runs: &Value| (graph_runs.as_u64().unwrap() > 0) == has_graphs;
        assert!(is_as_said(&sandbox.json("out.json")["tasks"][0]["graph_runs"]), "{fault}");
        let records = sandbox.records();
        assert!(
            records.iter().all(|record| is_as_said(&record["measurement"]["outcome"]["Ok"]["graph_runs"])),
            "{fault}"
        );
        assert_eq!(ended.stdout.contains("was launched separately"), !has_graphs, "{}", ended.stdout);

        let shown = run(stub, &sandbox, &format!("show {TINY} --target cuda"), &[]).expect(0).stdout;
        assert_eq!(shown.contains("each run launched separately"), !has_graphs, "{shown}");
    }
}

#[test]
fn a_device_that_never_works_is_an_error() {
    let Some(stub) = stub() else { return };
    for (fault, words) in [
        ("cuDevicePrimaryCtxRetain:1:2", "autotune: the measuring worker failed: CUDA device 0: out of memory"),
        (
            "cuModuleLoadData:1:700:sticky",
            "cannot load the kernels that check outputs: build failed: an illegal memory access",
        ),
        ("cuModuleLoadData:2:700:sticky", "2 of 2: build failed: an illegal memory access"),
        ("cuLaunchKernel:1:719:sticky", "2 of 2: crashed: unspecified launch failure"),
        ("cuMemAllocAsync:1:2:sticky", "cannot load the kernels that check outputs: out of memory"),
        ("cuMemAllocAsync:2:2:sticky", "2 of 2: out of memory"),
    ] {
        let sandbox = Sandbox::new();
        let line = format!("{TINY} --target cuda --trials 2 --tuner random");
        let ended = run(stub, &sandbox, &line, &[("STUB_CUDA_FAULT", fault.into())]).expect(1);
        assert!(ended.stderr.contains(words) && !ended.stderr.contains("panicked"), "{fault}: {}", ended.stderr);
        let last = ended.stderr.lines().last();
        assert!(last.is_some_and(|line| line.starts_with("autotune: ")), "{fault}: {}", ended.stderr);
    }
}

/// Too little memory is refused before anything is loaded.
#[test]
fn a_network_that_cannot_run_is_one_line() {
    let Some(stub) = stub() else { return };
    let sandbox = Sandbox::new();
    let trace = sandbox.path("trace");
    let variables = [("STUB_CUDA_FREE", PathBuf::from("1000000")), ("STUB_CUDA_TRACE", trace.clone())];
    let ended = run(stub, &sandbox, "run dqn --target cuda --repeat 1", &variables);
    ended.expect_line(
        1,
        "a run needs at least 7.1 MB of device memory, 6.9 MB of them for constants, but CUDA has 1.0 MB free",
    );
    let calls = fs::read_to_string(trace).unwrap();
    assert!(calls.contains("cuMemGetInfo_v2") && !calls.contains("cuModuleLoadData"), "{calls}");

    let hang = [("STUB_CUDA_FAULT", "cuGraphLaunch:1:-1".into()), ("AUTOTUNE_DEVICE_LIMIT", "2".into())];
    let ended = run(stub, &sandbox, "run dqn --target cuda --repeat 1", &hang);
    ended.expect_line(1, "autotune: dqn: cuda:sm_90:Stub_of_an_H100 did not end a run within 2 s: a kernel hangs");

    for (fault, words) in [
        ("cuDevicePrimaryCtxRetain:1:2", "CUDA device 0: out of memory"),
        ("cuMemGetInfo_v2:1:700:sticky", "an illegal memory access"),
        ("cuMemAllocAsync:1:2", "out of memory (CUDA_ERROR_OUT_OF_MEMORY): "),
        ("cuMemAllocAsync:9:2", "bytes were asked for"),
        ("cuModuleLoadData:2:209", "no kernel image is available"),
        ("cuLaunchKernel:3:700:sticky", "an illegal memory access"),
        ("cuLaunchKernel:9:719:sticky", "unspecified launch failure"),
        ("cuGraphLaunch:2:702:sticky", "the launch timed out and was terminated (CUDA_ERROR_LAUNCH_TIMEOUT)"),
        ("cuStreamSynchronize:4:700:sticky", "an illegal memory access"),
        ("cuMemcpyDtoHAsync_v2:1:700:sticky", "an illegal memory access"),
    ] {
        let ended = run(stub, &sandbox, "run dqn --target cuda --repeat 1", &[("STUB_CUDA_FAULT", fault.into())]);
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.contains("are not tuned")).collect();
        assert!(
            lines.len() == 1 && lines[0].starts_with("autotune: ") && lines[0].contains(words),
            "{fault}: {lines:?}"
        );
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{fault}");
    }
}

/// Records and the report on the tasks are kept if the network as a whole fails.
#[test]
fn a_context_that_is_lost_in_the_whole_network_keeps_records() {
    let Some(stub) = stub() else { return };
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("small.onnx"), small()).unwrap();
    // Workers replay graphs, too, so the fault is one of a call that only the command makes.
    let fault = [("STUB_CUDA_FAULT", "cuMemGetInfo_v2:1:700:sticky".into())];
    let line = "small.onnx --target cuda --trials 5 --tuner random --json out.json";
    let ended = run(stub, &sandbox, line, &fault).expect(1);
    assert!(ended.stderr.contains("autotune: small as a whole: an illegal memory access"), "{}", ended.stderr);
    assert!(ended.stdout.contains("| task "), "{}", ended.stdout);
    assert_eq!(sandbox.searched(), 5);
    assert_eq!(sandbox.json("out.json")["network"], Value::Null);
}
