//! Contract tests of measurers: both measurers with kernels on the CPU, on an OpenCL device (PoCL
//! runs OpenCL on the CPU), on a CUDA device and on a CUDA stub; and faults that the worker must
//! survive.
//!
//! If there is no such device, CUDA compiler, or C++ compiler for the stub, the tests that need it
//! report that and pass; `AUTOTUNE_REQUIRE=opencl,cuda,nvrtc,g++` makes them fail.
//!
//! The program is its own worker: it runs as a worker if started with the argument `worker`.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod both;
mod compiler;
#[path = "../common/damage.rs"]
mod damage;
mod device;
mod faults;
mod gpu;
mod kernels;
mod limits;
#[path = "../../../workloads/tests/common/long.rs"]
mod long;
#[cfg(target_arch = "x86_64")]
mod machine;
mod on_stub;
#[path = "../../../workloads/tests/common/random_value.rs"]
mod random_value;
mod relay;
#[path = "../stub/mod.rs"]
mod stub;
mod tensor_cores;

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Trial};

use kernels::Place;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("worker") => return autotune_measure::worker::serve(),
        Some(relay::RELAY_ARGUMENT) => return relay::run(std::env::args().nth(2)),
        Some(on_stub::RUNS_ARGUMENT) => return on_stub::measure_runs(std::env::args().nth(2)),
        Some(tensor_cores::INSTRUCTIONS_ARGUMENT) => return tensor_cores::serve(std::env::args().nth(2)),
        Some(limits::LIMITED_ARGUMENT) => return limits::measure_within_limits(std::env::args().nth(2)),
        Some(faults::HOLDER_ARGUMENT) => {
            kernels::set_place(match std::env::args().nth(2).as_deref() {
                Some("OpenCl") => Place::OpenCl,
                Some("Cuda") => Place::Cuda,
                _ => Place::Cpu,
            });
            faults::hold_an_endless_kernel()
        }
        _ => {}
    }

    let own_path = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => panic!("this program's path: {error}"),
    };
    let compiled = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => panic!("no temporary folder: {error}"),
    };

    // SAFETY: no other thread runs yet.
    unsafe {
        std::env::set_var("AUTOTUNE_WORKER", own_path);
        // Cache compiled kernels during the tests, and leave none on disk.
        std::env::set_var("POCL_CACHE_DIR", compiled.path());
        std::env::set_var("POCL_KERNEL_CACHE", "1");
    }
    // Others run together once the timed tests have run.
    let mut tests = tests();
    tests.sort_by_key(|test| !is_timed(test.name()));
    let conclusion = libtest_mimic::run(&Arguments::from_args(), tests);
    kernels::clean_up();
    drop(compiled);
    conclusion.exit_code()
}

/// Tests that compare times, during which no other test runs.
const TIMED: [&str; 5] = [
    "a_bench_takes_turns",
    "a_race_times_all_and_ranks_them",
    "a_right_kernel_is_timed",
    "ceilings_are_plausible",
    "clearly_slower_kernels_are_stopped_early",
];

/// Held for writing by timed tests and for reading by others.
static TIMING: RwLock<()> = RwLock::new(());

fn is_timed(name: &str) -> bool {
    TIMED.iter().any(|timed| name.ends_with(timed))
}

/// Runs a test while no timed one runs, or alone. A CUDA device is never shared.
fn in_turn(place: Place, name: &str, run: impl FnOnce()) {
    if is_timed(name) || (place == Place::Cuda && !on_stub::is_here()) {
        let _alone = TIMING.write().unwrap_or_else(PoisonError::into_inner);
        run();
    } else {
        let _together = TIMING.read().unwrap_or_else(PoisonError::into_inner);
        run();
    }
}

fn tests() -> Vec<Trial> {
    let test = |place: Place, name: String, run: fn()| {
        Trial::test(name.clone(), move || {
            if gpu::is_there(place) {
                kernels::set_place(place);
                in_turn(place, &name, run);
            }
            Ok(())
        })
    };

    let mut tests = Vec::new();
    for &(name, in_worker, here) in both::TESTS.iter().chain(both::CPU_TESTS) {
        tests.push(test(Place::Cpu, format!("worker::{name}"), in_worker));
        tests.push(test(Place::Cpu, format!("in_process::{name}"), here));
    }

    let mut faults: Vec<(&str, fn())> = [faults::TESTS, faults::COMMON_TESTS, limits::TESTS, relay::TESTS].concat();
    #[cfg(target_arch = "x86_64")]
    faults.extend(machine::TESTS);
    tests.extend(faults.iter().map(|&(name, run)| test(Place::Cpu, format!("faults::{name}"), run)));
    let compiler = gpu::COMPILER_TESTS.iter().chain(compiler::TESTS).chain(tensor_cores::COMPILER_TESTS);
    tests.extend(compiler.map(|&(name, run)| test(Place::Cpu, format!("compiler::{name}"), run)));
    tests.extend(on_stub::TESTS.iter().map(|&(name, run)| test(Place::Cpu, format!("stub::{name}"), run)));

    for (place, word) in [(Place::OpenCl, "opencl"), (Place::Cuda, "cuda")] {
        let first = tests.len();
        for &(name, in_worker, here) in both::TESTS {
            tests.push(test(place, format!("{word}::worker::{name}"), in_worker));
            if !both::ABOUT_WRONG_KERNELS.contains(&name) {
                tests.push(test(place, format!("{word}::in_process::{name}"), here));
            }
        }
        let others = faults::COMMON_TESTS.iter().chain(gpu::TESTS);
        tests.extend(others.map(|&(name, run)| test(place, format!("{word}::{name}"), run)));
        if place == Place::Cuda {
            let devices = device::TESTS.iter();
            tests.extend(devices.map(|&(name, run)| test(place, format!("{word}::device::{name}"), run)));
            let tensor_cores = tensor_cores::TESTS.iter();
            tests.extend(tensor_cores.map(|&(name, run)| test(place, format!("{word}::tensor_cores::{name}"), run)));
        }
        if place == Place::Cuda && !on_stub::is_here() {
            let names: Vec<String> = tests[first..].iter().map(|test| test.name().to_string()).collect();
            tests.extend(names.into_iter().map(|name| {
                Trial::test(name.replacen(word, "stub", 1), move || {
                    in_turn(Place::Cpu, &name, || on_stub::run(&name));
                    Ok(())
                })
            }));
        }
    }
    tests
}
