//! What every measurer must do, run on both of them with kernels on the CPU and on an OpenCL device (PoCL is the CPU in the
//! guise of one), and what the worker must survive.
//!
//! Where there is no OpenCL device or no CUDA compiler, the tests that need them say so and pass; `AUTOTUNE_REQUIRE=opencl,nvrtc`
//! makes that a failure.
//!
//! The program is its own worker: started with the argument `worker` it serves.
#![allow(clippy::unwrap_used)]

mod both;
mod faults;
mod gpu;
mod kernels;
#[cfg(target_arch = "x86_64")]
mod machine;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("worker") => return autotune_measure::worker::serve(),
        Some(faults::HOLDER_ARGUMENT) => {
            kernels::set_on_gpu(std::env::args().nth(2).is_some());
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
        // Kernels are compiled once, and nothing of them is left on disk.
        std::env::set_var("POCL_CACHE_DIR", compiled.path());
        std::env::set_var("POCL_KERNEL_CACHE", "1");
    }
    let mut arguments = Arguments::from_args();
    // Kernels are timed: one test at a time.
    arguments.test_threads = Some(1);
    let conclusion = libtest_mimic::run(&arguments, tests());
    kernels::clean_up();
    drop(compiled);
    conclusion.exit_code()
}

fn tests() -> Vec<Trial> {
    let test = |name: String, run: fn()| {
        Trial::test(name, move || {
            kernels::set_on_gpu(false);
            run();
            Ok(())
        })
    };
    let on_gpu = |name: String, run: fn()| {
        Trial::test(name, move || {
            if gpu::is_there() {
                kernels::set_on_gpu(true);
                run();
            }
            Ok(())
        })
    };
    let mut tests = Vec::new();
    for &(name, in_worker, here) in both::TESTS.iter().chain(both::CPU_TESTS) {
        tests.extend([test(format!("worker::{name}"), in_worker), test(format!("in_process::{name}"), here)]);
    }
    for &(name, in_worker, here) in both::TESTS {
        tests.push(on_gpu(format!("gpu::worker::{name}"), in_worker));
        if !both::ABOUT_WRONG_KERNELS.contains(&name) {
            tests.push(on_gpu(format!("gpu::in_process::{name}"), here));
        }
    }
    let mut faults: Vec<(&str, fn())> = [faults::TESTS, faults::COMMON_TESTS].concat();
    #[cfg(target_arch = "x86_64")]
    faults.extend(machine::TESTS);
    tests.extend(faults.iter().map(|&(name, run)| test(format!("faults::{name}"), run)));
    tests.extend(faults::COMMON_TESTS.iter().map(|&(name, run)| on_gpu(format!("gpu::faults::{name}"), run)));
    tests.extend(gpu::TESTS.iter().map(|&(name, run)| on_gpu(format!("gpu::{name}"), run)));
    tests.extend(gpu::CUDA_TESTS.iter().map(|&(name, run)| test(format!("cuda::{name}"), run)));
    tests
}
