//! The tests of CUDA devices on the stub of one: each in a process of its own that finds the stub's
//! driver and NVRTC.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use autotune_ir::Target;
use autotune_measure::{Builder, WorkerCommand, WorkerMeasurer, gpu};
use autotune_measurement::Backend;
use autotune_runtime::cuda::driver::{FUNCTIONS, TENSOR_MAP_FUNCTIONS};

use crate::gpu::missing;
use crate::kernels::{Place, options, plan, set_place, source, workload};
use crate::stub::Stub;

/// The variable that tells a process that it is on the stub.
const ON_STUB: &str = "STUB_FOLDER";

/// True if the CUDA device is the stub, where every kernel costs a run of the C++ compiler.
pub(crate) fn is_here() -> bool {
    std::env::var_os(ON_STUB).is_some()
}

/// Runs a test of this program where the stub is the CUDA device.
pub(crate) fn run(test: &str) {
    let stub = match Stub::find() {
        Ok(stub) => stub,
        Err(reason) => return missing("g++", &reason),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    // What the stub can do at best is measured anew, and kept for nobody.
    let cache = tempfile::tempdir().unwrap();
    stub.set(&mut command).args(["--exact", test]).env("AUTOTUNE_CACHE", cache.path());
    command.env("AUTOTUNE_REQUIRE", "cuda,nvrtc");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{test} on the stub:\n{text}");
}

/// On the stub only.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("every_call_of_the_driver_may_fail", every_call_of_the_driver_may_fail),
    ("every_function_of_the_driver_is_asked_for_first", every_function_of_the_driver_is_asked_for_first),
    ("a_context_that_is_lost_costs_only_the_worker", a_context_that_is_lost_costs_only_the_worker),
];

/// The argument that makes this program measure a right kernel several times on the CUDA device,
/// and print a line on how each ended.
pub(crate) const RUNS_ARGUMENT: &str = "measure-on-stub";

pub(crate) fn measure_runs(runs: Option<String>) -> ExitCode {
    set_place(Place::Cuda);
    if let Err(error) = try_runs(runs.unwrap().parse().unwrap()) {
        println!("error: {error}");
    }
    ExitCode::SUCCESS
}

fn try_runs(runs: usize) -> Result<(), String> {
    let target = Target::Gpu(gpu::find("cuda").map_err(|e| e.to_string())?.target);
    let built = Builder::new(Backend::C, 20.0).build_source(&workload(), &target, &plan(), &source("", "", ""));
    let built = built.map_err(|e| e.to_string())?;
    let mut measurer = WorkerMeasurer::with(WorkerCommand::find().unwrap(), options()).map_err(|e| e.to_string())?;
    for _ in 0..runs {
        match measurer.run_built(&built).map_err(|e| e.to_string())?.outcome {
            Ok(run) => println!("right: {run:?}"),
            Err(error) => println!("error: {error}"),
        }
    }
    Ok(())
}

/// How a process ends that measures kernels on the stub, or on another driver: the lines that it
/// prints.
fn ended(stub: &Stub, runs: usize, driver: Option<&Path>, variables: &[(&str, String)]) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(&program);
    stub.set(&mut command).args([RUNS_ARGUMENT, &runs.to_string()]).env("AUTOTUNE_WORKER", &program);
    if let Some(driver) = driver {
        Stub::set_driver(&mut command, driver);
    }
    let output = command.envs(variables.iter().map(|(name, value)| (name, value))).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{variables:?}: {text}\n{errors}");
    text.lines().map(str::to_string).collect()
}

/// The same for one run.
fn once(stub: &Stub, driver: Option<&Path>, variables: &[(&str, String)]) -> String {
    let mut lines = ended(stub, 1, driver, variables);
    assert_eq!(lines.len(), 1, "{variables:?}: {lines:?}");
    lines.remove(0)
}

/// The stub, unless there is no compiler for it.
fn stub() -> Option<&'static Stub> {
    Stub::find().map_err(|reason| missing("g++", &reason)).ok()
}

fn every_call_of_the_driver_may_fail() {
    let Some(stub) = stub() else { return };
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let right = once(stub, None, &[("STUB_CUDA_TRACE", trace.display().to_string())]);
    assert!(right.starts_with("right: "), "{right}");

    // Those of the process that made the most calls: of the worker. Timing takes as many as it
    // takes.
    let trace = std::fs::read_to_string(trace).unwrap();
    let mut calls: HashMap<&str, Vec<&str>> = HashMap::new();
    trace.lines().filter_map(|line| line.split_once(' ')).for_each(|(pid, call)| {
        calls.entry(pid).or_default().push(call);
    });
    let calls = calls.into_values().max_by_key(Vec::len).unwrap();
    let mut earlier: HashMap<&str, usize> = HashMap::new();
    let mut errors = 0;
    for (index, call) in calls.iter().enumerate() {
        let seen = earlier.entry(call).or_default();
        *seen += 1;
        if *seen > MOST_OF_EACH {
            continue;
        }
        let sticky = if index % 2 == 0 { ":sticky" } else { "" };
        let fault = format!("{call}:{seen}:700{sticky}");
        let ended = once(stub, None, &[("STUB_CUDA_FAULT", fault.clone())]);
        let is_error = ended.starts_with("error: ");
        assert!(is_error || ended.starts_with("right: "), "{fault}: {ended}");
        assert!(!is_error || ended.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{fault}: {ended}");
        errors += usize::from(is_error);
    }
    assert!(errors > 20, "{errors} of {} calls matter", calls.len());
}

/// Calls of each function that are made to fail.
const MOST_OF_EACH: usize = 4;

fn every_function_of_the_driver_is_asked_for_first() {
    let Some(stub) = stub() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (name, brought) in FUNCTIONS.iter().chain(&TENSOR_MAP_FUNCTIONS) {
        stub.driver_without(name, dir.path());
        let ended = once(stub, Some(dir.path()), &[]);
        let expected =
            format!("the CUDA driver lacks {name}, which CUDA {brought} brought: install NVIDIA driver 525 or newer");
        assert_eq!(ended, format!("error: {expected}"));
    }
    // What no kernel of the device needs may be missing.
    let ended = once(stub, Some(dir.path()), &[("STUB_CUDA_SM", "80".into())]);
    assert!(ended.starts_with("right: "), "{ended}");
}

fn a_context_that_is_lost_costs_only_the_worker() {
    let Some(stub) = stub() else { return };
    let dir = tempfile::tempdir().unwrap();
    for call in ["cuModuleLoadData:2", "cuLaunchKernel:2", "cuGraphLaunch:1", "cuEventElapsedTime:2"] {
        let lost = dir.path().join(call.replace(':', "-"));
        let fault = format!("{call}:700:sticky:once={}", lost.display());
        // The kernel that runs in a new worker is guilty of what happens there.
        let lines = ended(stub, 2, None, &[("STUB_CUDA_FAULT", fault)]);
        let [first, second] = &lines[..] else { panic!("{call}: {lines:?}") };
        assert!(lost.is_file() && first.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{call}: {first}");
        assert!(second.starts_with("right: "), "{call}: {second}");
    }
}
