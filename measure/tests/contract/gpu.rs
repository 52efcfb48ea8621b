//! Tests specific to GPUs: devices, generated kernels, the CUDA compiler.

use std::env;
use std::ops::ControlFlow;

use autotune_ir::DType;
use autotune_ir::{Launch, Target};
use autotune_measure::{
    Bench, Ceilings, InProcessMeasurer, KernelBuilder, MeasureError, MeasureOptions, Measurer, WorkerCommand,
    WorkerMeasurer,
};
use autotune_measure::{gpu, nvrtc};
use autotune_measurement::{CandidateError, Measurement, Resources};
use autotune_runtime::opencl;
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::faults::{DEATH, ENDLESS};
use crate::kernels::{Place, build, options, place, right, set_place, source, target, with, without_main};
use crate::on_stub;

/// Tests that need a device.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("generated_kernels_are_right_while_others_are_built", generated_kernels_are_right_while_others_are_built),
    ("kernels_for_another_device_are_refused", kernels_for_another_device_are_refused),
    ("a_cpu_after_a_gpu_is_refused", a_cpu_after_a_gpu_is_refused),
    ("a_wrong_or_refused_kernel_costs_no_worker", a_wrong_or_refused_kernel_costs_no_worker),
    ("operands_that_a_kernel_wrote_to_are_made_again", operands_that_a_kernel_wrote_to_are_made_again),
    ("large_outputs_are_compared_by_samples", large_outputs_are_compared_by_samples),
    ("only_cuda_records_graphs", only_cuda_records_graphs),
    ("ceilings_are_plausible", ceilings_are_plausible),
    ("a_bench_takes_turns", a_bench_takes_turns),
];

/// Tests that need no device.
pub(crate) const COMPILER_TESTS: &[(&str, fn())] = &[
    ("candidates_are_built_without_a_device", candidates_are_built_without_a_device),
    ("the_kernels_of_these_tests_are_cuda_too", the_kernels_of_these_tests_are_cuda_too),
    ("a_machine_without_a_device_says_what_to_install", a_machine_without_a_device_says_what_to_install),
];

pub(crate) fn missing(tool: &str, reason: impl std::fmt::Display) {
    let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    eprintln!("skipped, {tool} is missing: {reason}");
}

/// Returns true if this machine has the device on which the kernels are to run.
pub(crate) fn is_there(place: Place) -> bool {
    match place {
        Place::Cpu => true,
        Place::OpenCl => opencl::devices().map_err(|reason| missing("opencl", reason)).is_ok(),
        Place::Cuda => gpu::find("cuda").map_err(|reason| missing("cuda", reason)).is_ok(),
    }
}

fn measurer(options: MeasureOptions) -> WorkerMeasurer {
    WorkerMeasurer::with(WorkerCommand::find().unwrap(), options).unwrap()
}

fn candidates(text: &str, target: &Target, count: usize) -> Vec<Candidate> {
    let workload: Workload = text.parse().unwrap();
    let space = ScheduleSpace::new(&workload, target);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let default = space.default_candidate().clone();
    std::iter::once(default).chain((1..count).map(|_| space.sample(&mut rng))).collect()
}

fn generated_kernels_are_right_while_others_are_built() {
    let target = target(1);
    // Kernels take long to compile if the device is not a real GPU.
    let on_gpu = place() == Place::Cuda && !on_stub::is_here();
    let count = if on_gpu { 100 } else { 2 };
    let mut all = candidates("matmul:m=40,n=33,k=20,bias", &target, count);
    all.extend(candidates("conv2d:c=6,h=9,w=9,o=20,k=3,p=1,act=relu", &target, count));
    if place() == Place::Cuda {
        for dtype in ["tf32", "f16", "bf16"] {
            let count = if on_gpu { 30 } else { 2 };
            all.extend(candidates(&format!("matmul:m=72,n=88,k=80,dtype={dtype},bias"), &target, count));
            all.extend(candidates(&format!("conv2d:c=16,h=14,w=14,o=32,k=3,p=1,dtype={dtype}"), &target, count));
        }
    }

    let mut results: Vec<Measurement> = Vec::new();
    let mut on_result = |index, measurement| {
        assert_eq!(index, results.len());
        results.push(measurement);
        ControlFlow::Continue(())
    };
    measurer(options()).measure(&all, &mut on_result).unwrap();
    assert_eq!(results.len(), all.len());

    let mut failures = Vec::new();
    for (measurement, candidate) in results.iter().zip(&all) {
        let run = match &measurement.outcome {
            Ok(run) => run,
            Err(error) => {
                failures.push(format!("{}\n    {candidate}\n    {error}", candidate.workload()));
                continue;
            }
        };
        assert!(run.run_secs > 0.0 && run.run_secs.is_finite() && run.max_rel_error < 1e-2, "{run:?}");
        assert!(measurement.toolchain.as_ref().is_some_and(|t| t.backend.is_none()) && measurement.build_secs > 0.0);
        assert_eq!(measurement.resources.is_some(), place() == Place::Cuda);
    }
    assert!(failures.is_empty(), "{} of {} kernels are wrong:\n{}", failures.len(), all.len(), failures.join("\n"));
}

fn kernels_for_another_device_are_refused() {
    let mut elsewhere = right(1);
    let mut target = elsewhere.artifact.target.gpu().unwrap().clone();
    target.model = "no_such_model".into();
    elsewhere.artifact.target = Target::Gpu(target);
    let refused = measurer(options()).run_built(&elsewhere).unwrap_err();
    assert!(refused.to_string().contains("no_such_model"), "{refused}");
}

fn a_cpu_after_a_gpu_is_refused() {
    let text = "matmul:m=40,n=33,k=20";
    let cpu = Target::detect("cpu", None).unwrap();
    let mut batches = [&target(1), &cpu].map(|target| candidates(text, target, 1)).into_iter();
    let mut next_batch = || batches.next().unwrap_or_default();
    let mut measured = 0;
    let mut on_result = |_, _| {
        measured += 1;
        ControlFlow::Continue(())
    };
    let ended = measurer(options()).measure_batches(&mut next_batch, &mut on_result);
    assert!(matches!(ended, Err(MeasureError::MixedTargets)), "{ended:?}");
    assert_eq!(measured, 1);
}

fn a_wrong_or_refused_kernel_costs_no_worker() {
    let mut measurer = measurer(options());
    measurer.run_built(&right(1)).unwrap().outcome.unwrap();
    let worker = measurer.worker_pid();
    let wrong = with("if (m == 1) continue;");
    let outcome = measurer.run_built(&wrong).unwrap().outcome;
    assert!(matches!(outcome, Err(CandidateError::WrongResult { .. })), "{outcome:?}");
    assert_eq!(measurer.worker_pid(), worker);
    // More threads per block than any device supports.
    let mut refused = right(1);
    refused.artifact.plan.stages.iter_mut().for_each(|stage| {
        stage.launch = stage.launch.map(|launch| Launch { threads: 1 << 20, ..launch });
    });
    let outcome = measurer.run_built(&refused).unwrap().outcome;
    assert!(matches!(outcome, Err(CandidateError::Crash { .. })), "{outcome:?}");
    assert_eq!(measurer.worker_pid(), worker);
    measurer.run_built(&right(1)).unwrap().outcome.unwrap();
    assert_eq!(measurer.worker_pid(), worker);
}

fn operands_that_a_kernel_wrote_to_are_made_again() {
    // SAFETY: the kernels write only to their buffers.
    let mut measurer = unsafe { InProcessMeasurer::new(options()) };
    measurer.run_built(&right(1)).unwrap().outcome.unwrap();
    // The first change is found in the weight itself, the second by the wrong result.
    for stray in ["b[1][m] = 0;", "b[0][m] += 1;"] {
        let outcome = measurer.run_built(&build(1, &source("", "", stray))).unwrap().outcome;
        let is_found = matches!(outcome, Err(CandidateError::StrayWrite { .. } | CandidateError::WrongResult { .. }));
        assert!(is_found, "{stray}: {outcome:?}");
        measurer.run_built(&right(1)).unwrap().outcome.unwrap();
    }
}

/// Uses more multiply-adds than are computed for a full reference.
fn large_outputs_are_compared_by_samples() {
    if on_stub::is_here() {
        return eprintln!("not on the stub, where so many multiply-adds take minutes");
    }
    let text =
        if place() == Place::Cuda { "matmul:m=1040,n=1040,k=1040,dtype=f16" } else { "matmul:m=1040,n=1040,k=1040" };
    let candidates = candidates(text, &target(1), 1);
    let mut outcome = None;
    let mut on_result = |_, measurement: Measurement| {
        outcome = Some(measurement.outcome);
        ControlFlow::Continue(())
    };
    let mut options = options();
    options.run_limit_secs = 100.0;
    measurer(options).measure(&candidates, &mut on_result).unwrap();
    let run = outcome.unwrap().unwrap();
    assert!(run.max_rel_error < 1e-2 && run.run_secs > 0.0, "{run:?}");
}

fn only_cuda_records_graphs() {
    let mut options = options();
    // A repeat has more runs of the kernel than a graph.
    options.timing.repeat_secs = 0.01;
    let run = measurer(options).run_built(&right(1)).unwrap().outcome.unwrap();
    assert_eq!(run.graph_runs, if place() == Place::Cuda { 20 } else { 0 }, "{run:?}");
}

fn ceilings_are_plausible() {
    let word = if place() == Place::Cuda { "cuda" } else { "opencl" };
    let target = Target::Gpu(gpu::find(word).unwrap().target);
    let ceilings: Ceilings = measurer(options()).ceilings(&target).unwrap();
    assert!((1e8..1e15).contains(&ceilings.flops_per_sec), "{ceilings:?}");
    let tensor_cores = target.supports(DType::Tf32);
    for speed in [ceilings.half_flops_per_sec, ceilings.tf32_flops_per_sec] {
        let factor = speed / ceilings.flops_per_sec;
        assert!(if tensor_cores { (1.0..100.0).contains(&factor) } else { factor == 1.0 }, "{ceilings:?}");
    }
    assert!((1e7..1e14).contains(&ceilings.bytes_per_sec), "{ceilings:?}");
    assert!(ceilings.read_bytes_per_sec.iter().all(|rate| (1e7..1e15).contains(rate)), "{ceilings:?}");
    assert!((1e-9..1e-2).contains(&ceilings.fork_join_secs), "{ceilings:?}");
}

fn a_bench_takes_turns() {
    // SAFETY: the kernel is correct.
    let mut bench = unsafe { Bench::new(&right(1)) }.unwrap();
    for _ in 0..2 {
        let repeats = bench.turn(0.001).unwrap();
        assert!(repeats.len() >= 3 && repeats.iter().all(|secs| *secs > 0.0 && *secs < 1.0), "{repeats:?}");
    }
    bench.recheck().unwrap();
    assert!(bench.max_rel_error() < 1e-5);
}

fn candidates_are_built_without_a_device() {
    if let Err(reason) = nvrtc::compiler_for(90) {
        return missing("nvrtc", &reason);
    }
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let mut candidates = candidates("matmul:m=256,n=256,k=64,bias,act=relu", &target, 3);
    candidates.extend(self::candidates("matmul:m=256,n=256,k=64,dtype=f16", &target, 2));
    let builds = KernelBuilder::new(MeasureOptions::default().backend, 20.0).build(&candidates).unwrap();
    for build in builds {
        assert!(build.outcome.is_ok() && build.build_secs > 0.0);
        let Resources { registers, shared_bytes, .. } = build.resources.unwrap();
        assert!((8..=255).contains(&registers) && shared_bytes > 0, "{:?}", build.resources);
        let toolchain = build.toolchain.unwrap();
        assert!(toolchain.compiler.starts_with("NVRTC 1") && toolchain.flags.contains("sm_90"), "{toolchain:?}");
    }
    let broken = nvrtc::compile("__global__ void f() { int x = ; }", 90);
    assert!(matches!(&broken, Err(CandidateError::Build { message }) if message.contains("error")), "{broken:?}");
}

fn the_kernels_of_these_tests_are_cuda_too() {
    if let Err(reason) = nvrtc::compiler_for(90) {
        return missing("nvrtc", &reason);
    }
    set_place(Place::Cuda);
    let adding = "float old[N]; for (int n = 0; n < N; n++) old[n] = out[n];";
    let faults = ["", DEATH, ENDLESS, "if (again()) continue;", "usleep", adding];
    let compile = |code: &str| nvrtc::compile(&source("", code, ""), 90);
    for code in faults {
        assert_eq!(compile(code).is_ok(), code != "usleep", "{code}: {:?}", compile(code).map(|_| ()));
    }
    assert!(nvrtc::compile(&without_main(), 90).is_ok());
}

fn a_machine_without_a_device_says_what_to_install() {
    for word in ["cuda", "cuda:sm_70", "opencl"] {
        if let Err(error) = gpu::find(word) {
            let MeasureError::Device { message } = &error else { panic!("{error:?}") };
            assert!(["install", "finds no device", "is cuda:sm_"].iter().any(|w| message.contains(w)), "{message}");
            assert_eq!(message.lines().count(), 1);
        }
    }
}
