//! Tests of CUDA devices, run on a CUDA stub: each in its own process, which finds the stub's
//! driver and NVRTC.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use autotune_ir::Target;
use autotune_measure::{KernelBuilder, WorkerCommand, WorkerMeasurer, gpu};
use autotune_measurement::Backend;
use autotune_runtime::cuda::driver::{FUNCTIONS, TENSOR_MAP_FUNCTIONS};

use crate::gpu::missing;
use crate::kernels::{Place, options, plan, set_place, source, workload};
use crate::stub::Stub;

/// Environment variable that is set for processes on the stub.
const ON_STUB: &str = "STUB_FOLDER";

/// Returns true if the CUDA device is the stub, on which every kernel needs a run of the C++
/// compiler.
pub(crate) fn is_here() -> bool {
    std::env::var_os(ON_STUB).is_some()
}

/// Runs a test of this program with the stub as the CUDA device.
pub(crate) fn run(test: &str) {
    let stub = match Stub::find() {
        Ok(stub) => stub,
        Err(reason) => return missing("g++", &reason),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    // The stub's ceilings must not be cached for other processes.
    let cache = tempfile::tempdir().unwrap();
    stub.set(&mut command).args(["--exact", test]).env("AUTOTUNE_CACHE", cache.path());
    command.env("AUTOTUNE_REQUIRE", "cuda,nvrtc");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{test} on the stub:\n{text}");
}

/// Tests that run on the stub only.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("every_call_of_the_driver_may_fail", every_call_of_the_driver_may_fail),
    ("every_function_of_the_driver_is_asked_for_first", every_function_of_the_driver_is_asked_for_first),
    ("a_context_that_is_lost_costs_only_the_worker", a_context_that_is_lost_costs_only_the_worker),
];

/// Argument with which this program measures a right kernel several times on the CUDA device and
/// prints one line per result.
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
    let built = KernelBuilder::new(Backend::C, 20.0).build_source(&workload(), &target, &plan(), &source("", "", ""));
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

/// Runs a process that measures kernels on the stub, or with another driver, and returns the lines
/// that it prints.
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

/// Measures one kernel in another process and returns the line that it prints.
fn once(stub: &Stub, driver: Option<&Path>, variables: &[(&str, String)]) -> String {
    let mut lines = ended(stub, 1, driver, variables);
    assert_eq!(lines.len(), 1, "{variables:?}: {lines:?}");
    lines.remove(0)
}

/// Returns the stub, unless there is no compiler for it.
fn stub() -> Option<&'static Stub> {
    Stub::find().map_err(|reason| missing("g++", &reason)).ok()
}

fn every_call_of_the_driver_may_fail() {
    let Some(stub) = stub() else { return };
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let right = once(stub, None, &[("STUB_CUDA_TRACE", trace.display().to_string())]);
    assert!(right.starts_with("right: "), "{right}");

    // Use the calls of the process that made the most: the worker. Their number depends on the
    // timing.
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

/// Number of calls of each function that are made to fail.
const MOST_OF_EACH: usize = 4;

fn every_function_of_the_driver_is_asked_for_first() {
    let Some(stub) = stub() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (name, brought) in FUNCTIONS.iter().chain(&TENSOR_MAP_FUNCTIONS) {
        stub.driver_without(name, dir.path());
        let ended = once(stub, Some(dir.path()), &[]);
        let expected = format!(
            "the CUDA driver lacks {name}, which CUDA {brought} introduced: install NVIDIA driver 525 or newer"
        );
        assert_eq!(ended, format!("error: {expected}"));
    }
    // A driver may lack functions that no kernel for the device needs.
    let ended = once(stub, Some(dir.path()), &[("STUB_CUDA_SM", "80".into())]);
    assert!(ended.starts_with("right: "), "{ended}");
}

fn a_context_that_is_lost_costs_only_the_worker() {
    let Some(stub) = stub() else { return };
    let dir = tempfile::tempdir().unwrap();
    for call in ["cuModuleLoadData:2", "cuLaunchKernel:2", "cuGraphLaunch:1", "cuEventElapsedTime:2"] {
        let lost = dir.path().join(call.replace(':', "-"));
        let fault = format!("{call}:700:sticky:once={}", lost.display());
        // A fresh worker runs the kernel, so the kernel is blamed and not tried again.
        let lines = ended(stub, 2, None, &[("STUB_CUDA_FAULT", fault)]);
        let [first, second] = &lines[..] else { panic!("{call}: {lines:?}") };
        assert!(lost.is_file() && first.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{call}: {first}");
        assert!(second.starts_with("right: "), "{call}: {second}");
    }
}
