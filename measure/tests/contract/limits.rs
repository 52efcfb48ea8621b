//! Large workloads on machines with little memory, and interruption by callers.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use autotune_measure::{
    Built, Ceilings, InProcessMeasurer, KernelBuilder, MeasureError, MeasureOptions, WorkerCommand, WorkerMeasurer,
};
use autotune_measurement::Backend;
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;

use crate::kernels::{options, right, target};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("making_a_large_reference_can_be_interrupted", making_a_large_reference_can_be_interrupted),
    ("a_kernel_can_be_interrupted", a_kernel_can_be_interrupted),
    ("workloads_that_exceed_memory_are_refused", workloads_that_exceed_memory_are_refused),
    ("small_workloads_are_measured_in_a_gigabyte", small_workloads_are_measured_in_a_gigabyte),
    ("a_large_product_is_checked_by_samples", a_large_product_is_checked_by_samples),
];

/// Argument with which this program measures a workload, in a worker and in itself, and prints the
/// results.
pub(crate) const LIMITED_ARGUMENT: &str = "measure-within-limits";

fn default_kernel(workload: &str) -> Built {
    let workload: Workload = workload.parse().unwrap();
    let target = target(1);
    let config = ScheduleSpace::new(&workload, &target).default_config();
    let mut builds =
        KernelBuilder::new(Backend::Assembler, 20.0).build(&[Candidate::new(&workload, &target, config)]).unwrap();
    builds.remove(0).outcome.unwrap()
}

fn measurer_with(run_limit_secs: f64) -> WorkerMeasurer {
    let options = MeasureOptions { run_limit_secs, ..options() };
    WorkerMeasurer::with(WorkerCommand::find().unwrap(), options).unwrap()
}

/// Returns how long after `patience` the measurement ends.
fn overdue(measurer: &mut WorkerMeasurer, built: &Built, patience: Duration) -> Duration {
    let start = Instant::now();
    measurer.set_interrupt(Arc::new(move || start.elapsed() > patience));
    let ended = measurer.run_built(built);
    assert!(matches!(ended, Err(MeasureError::Interrupted)), "{ended:?}");
    assert_eq!(measurer.worker_pid(), None, "the worker goes on");
    measurer.set_interrupt(Arc::new(|| false));
    start.elapsed().saturating_sub(patience)
}

fn making_a_large_reference_can_be_interrupted() {
    let large = default_kernel("matmul:m=6144,n=6144,k=6144");
    let mut measurer = measurer_with(600.0);
    let overdue = overdue(&mut measurer, &large, Duration::from_millis(200));
    assert!(overdue < Duration::from_secs(1), "{overdue:?}");
    measurer.run_built(&right(1)).unwrap().outcome.unwrap();
}

fn a_kernel_can_be_interrupted() {
    let endless = crate::kernels::with(crate::faults::ENDLESS);
    let overdue = overdue(&mut measurer_with(600.0), &endless, Duration::from_millis(500));
    assert!(overdue < Duration::from_secs(1), "{overdue:?}");
}

/// Returns the output of this program run with `limit_kib` of address space.
fn within(limit_kib: usize, workload: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("ulimit -v {limit_kib} && exec \"$0\" {LIMITED_ARGUMENT} '{workload}'")).arg(program);
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

pub(crate) fn measure_within_limits(workload: Option<String>) -> ExitCode {
    let built = default_kernel(&workload.unwrap_or_default());
    let mut measurer = measurer_with(15.0);
    println!(
        "foreseen: {}",
        measurer.foresee(&built.workload).map_or_else(|error| error.to_string(), |()| "fits".into())
    );
    // SAFETY: the kernel was made by the code generator from the default schedule.
    let mut here = unsafe { InProcessMeasurer::new(options()) };
    for measured in [measurer.run_built(&built), here.run_built(&built)] {
        match measured {
            Ok(measurement) => println!("measured: {:?}", measurement.outcome.map(|run| run.max_rel_error)),
            Err(error) => println!("refused: {error}"),
        }
    }
    println!("ceilings: {}", Ceilings::measure(&target(1)).map_or_else(|error| error.to_string(), |_| "known".into()));
    ExitCode::SUCCESS
}

fn workloads_that_exceed_memory_are_refused() {
    let text = within(6 << 20, "conv2d:c=4096,h=512,w=512,o=64,k=1");
    for (line, start) in text.lines().zip(["foreseen: conv2d:", "refused: conv2d:", "refused: conv2d:", "ceilings: "]) {
        assert!(line.starts_with(start), "{text}");
        assert!(start == "ceilings: " || (line.contains(" needs ") && line.ends_with(" GB available")), "{text}");
    }
    assert_eq!(text.lines().count(), 4, "{text}");
}

fn small_workloads_are_measured_in_a_gigabyte() {
    let text = within(1_000_000, "matmul:m=32,n=32,k=32");
    assert!(text.starts_with("foreseen: fits\nmeasured: Ok("), "{text}");
    assert_eq!(text.matches("measured: Ok(").count(), 2, "{text}");
}

/// Uses the samples of several workers. The unit tests of the comparison cover planted errors.
fn a_large_product_is_checked_by_samples() {
    for epilogue in ["bias", "add,act=relu"] {
        let built = default_kernel(&format!("matmul:m=1100,n=1100,k=1100,{epilogue}"));
        let mut measurer = measurer_with(60.0);
        let run = measurer.run_built(&built).unwrap().outcome.unwrap();
        assert!(run.max_rel_error > 0.0 && run.max_rel_error < 1e-5, "{epilogue}: {}", run.max_rel_error);
    }
}
