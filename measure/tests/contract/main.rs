//! What every measurer must do, run on both of them, and what the worker must survive.
//!
//! The program is its own worker: started with the argument `worker` it serves.
#![allow(clippy::unwrap_used)]

mod both;
mod faults;
mod kernels;
#[cfg(target_arch = "x86_64")]
mod machine;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("worker") => return autotune_measure::worker::serve(),
        Some(faults::HOLDER_ARGUMENT) => faults::hold_an_endless_kernel(),
        _ => {}
    }
    let own_path = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => panic!("this program's path: {error}"),
    };
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("AUTOTUNE_WORKER", own_path) };
    let mut arguments = Arguments::from_args();
    // Kernels are timed: one test at a time.
    arguments.test_threads = Some(1);
    let conclusion = libtest_mimic::run(&arguments, tests());
    kernels::clean_up();
    conclusion.exit_code()
}

fn tests() -> Vec<Trial> {
    let test = |name: &str, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
    };
    let both = both::TESTS.iter().flat_map(|&(name, in_worker, here)| {
        [test(&format!("worker::{name}"), in_worker), test(&format!("in_process::{name}"), here)]
    });
    #[cfg(target_arch = "x86_64")]
    let faults = || faults::TESTS.iter().chain(machine::TESTS);
    #[cfg(not(target_arch = "x86_64"))]
    let faults = || faults::TESTS.iter();
    both.chain(faults().map(|&(name, run)| test(&format!("faults::{name}"), run))).collect()
}
