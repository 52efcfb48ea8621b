//! Contract of [`Measurer`], tested on every implementation.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use autotune_ir::{Code, Target};
use autotune_measure::{
    Build, Built, InProcessMeasurer, KernelBuilder, MeasureError, MeasureOptions, Measurer, RaceResult, WorkerCommand,
    WorkerMeasurer,
};
use autotune_measurement::{Backend, CandidateError, Measurement};
use autotune_schedules::{Candidate, Config, ScheduleSpace};
use autotune_workloads::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::kernels::{self, Place, build, options, right, source, target};

/// Functions that the tests need in addition to [`Measurer`].
pub(crate) trait Subject: Measurer + Sized {
    fn make(options: MeasureOptions) -> Self;
    fn builder(&mut self) -> &mut KernelBuilder;
    fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError>;
    fn race_built(&mut self, built: &[Built], budget_secs: f64) -> Result<RaceResult, MeasureError>;
    fn set_incumbent(&mut self, workload: &Workload, run_secs: f64);
}

macro_rules! subject {
    ($type:ty, $make:expr) => {
        impl Subject for $type {
            fn make(options: MeasureOptions) -> Self {
                $make(options)
            }
            fn builder(&mut self) -> &mut KernelBuilder {
                self.builder()
            }
            fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
                self.run_built(built)
            }
            fn race_built(&mut self, built: &[Built], budget_secs: f64) -> Result<RaceResult, MeasureError> {
                self.race_built(built, budget_secs)
            }
            fn set_incumbent(&mut self, workload: &Workload, run_secs: f64) {
                self.set_incumbent(workload, &target(1), run_secs);
            }
        }
    };
}

subject!(WorkerMeasurer, |options| WorkerMeasurer::with(WorkerCommand::find().unwrap(), options).unwrap());
subject!(InProcessMeasurer, |options| {
    // SAFETY: the kernels of this file are wrong, but they write only to their buffers and guards.
    unsafe { InProcessMeasurer::new(options) }
});

macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), $name::<WorkerMeasurer>, $name::<InProcessMeasurer>)),*]
    };
}

/// Name of a test, and its functions for the worker and for this process.
pub(crate) type Test = (&'static str, fn(), fn());

pub(crate) const TESTS: &[Test] = on_both![
    a_right_kernel_is_timed,
    wrong_kernels_are_rejected,
    a_kernel_that_is_right_only_at_first_is_rejected,
    writes_to_operands_and_outside_buffers_are_found,
    a_plan_of_another_workload_is_refused,
    a_missing_entry_point_is_a_build_error,
    clearly_slower_kernels_are_stopped_early,
    a_race_times_all_and_ranks_them,
    candidates_come_back_in_order,
    a_batch_ends_where_it_is_told_to,
    batches_follow_each_other,
    an_endless_stream_of_batches_ends_with_a_break,
];

/// Tests that run many kernels, which takes long with a GPU's compiler. On GPUs only the worker
/// runs them.
pub(crate) const ABOUT_WRONG_KERNELS: [&str; 3] = [
    "wrong_kernels_are_rejected",
    "a_kernel_that_is_right_only_at_first_is_rejected",
    "writes_to_operands_and_outside_buffers_are_found",
];

/// Tests for CPUs only.
pub(crate) const CPU_TESTS: &[Test] = on_both![
    threads_divide_the_tasks,
    kernels_with_cold_constants_are_timed_and_checked,
    work_on_the_data_ahead_of_time_is_found,
    equal_sources_are_compiled_once,
    both_backends_make_right_kernels,
];

fn outcome<S: Subject>(subject: &mut S, built: &Built) -> Result<autotune_measurement::RunSecs, CandidateError> {
    subject.run_built(built).unwrap().outcome
}

fn a_right_kernel_is_timed<S: Subject>() {
    let mut subject = S::make(options());
    let built = right(1);
    let measurement = subject.run_built(&built).unwrap();
    let run = measurement.outcome.clone().unwrap();
    assert_eq!(measurement.run_secs(), Some(run.run_secs));
    assert!(run.run_secs > 0.0 && run.run_secs <= run.median_secs && run.median_secs < 1e-2, "{run:?}");
    assert!(run.repeats >= options().timing.min_repeats && run.spread >= 0.0 && !run.stopped_early, "{run:?}");
    assert!(run.max_rel_error < 1e-5, "{run:?}");
    assert!(measurement.measure_secs >= options().timing.floor_secs);
}

fn threads_divide_the_tasks<S: Subject>() {
    let mut subject = S::make(options());
    for threads in [2, 3, 5] {
        let built = right(threads);
        outcome(&mut subject, &built).unwrap();
    }
}

fn kernels_with_cold_constants_are_timed_and_checked<S: Subject>() {
    let cold = |source: &str| Built { workload: kernels::workload().with_cold(true), ..build(1, source) };
    let mut subject = S::make(options());
    let run = outcome(&mut subject, &cold(&source("", "", ""))).unwrap();
    assert!(run.run_secs > 0.0 && run.max_rel_error < 1e-5, "{run:?}");

    // This kernel is right only in its first run. The measurer has no incumbent, because a kernel
    // that is stopped early need not run twice on the same buffers.
    let mut subject = S::make(options());
    let accumulating = cold(&source("", "", "out[0] += again() ? 1 : 0;"));
    assert!(matches!(outcome(&mut subject, &accumulating), Err(CandidateError::WrongResult { .. })));
}

fn wrong_kernels_are_rejected<S: Subject>() {
    let mut subject = S::make(options());
    let faults = [
        ("one product lost", "sum[7] -= 0", "if (m == 3) out[5] = residual[m * N + 5];"),
        ("a constant", "", "for (int n = 0; n < N; n++) out[n] = 1;"),
        ("zeros", "", "for (int n = 0; n < N; n++) out[n] = 0;"),
        ("not a number", "", "if (m == M - 1) out[N - 1] = 0.0f / (float)sink;"),
        ("infinite", "", "if (m == 0) out[0] = 1.0f / (float)sink;"),
        ("a row left out", "if (m == 5) continue;", ""),
        ("nothing done", "continue;", ""),
        ("slightly off", "", "for (int n = 0; n < N; n++) out[n] *= 1.001f;"),
        ("neighbours swapped", "", "float t = out[0]; out[0] = out[1]; out[1] = t;"),
    ];
    // Test only some where compiling takes long.
    let step = if kernels::place() == Place::OpenCl { 2 } else { 1 };
    for (name, before, after) in faults.into_iter().step_by(step) {
        let before = if name == "one product lost" { "" } else { before };
        let built = build(1, &source("", before, after));
        let result = outcome(&mut subject, &built);
        assert!(matches!(result, Err(CandidateError::WrongResult { .. })), "{name}: {result:?}");
    }
    let built = right(1);
    outcome(&mut subject, &built).unwrap();
}

fn a_kernel_that_is_right_only_at_first_is_rejected<S: Subject>() {
    let mut subject = S::make(options());
    let faults = [
        ("keeps the first output", "if (again()) continue;", ""),
        (
            "adds to its output",
            "float old[N]; for (int n = 0; n < N; n++) old[n] = out[n];",
            "if (again()) for (int n = 0; n < N; n++) out[n] += old[n];",
        ),
        ("adds to its packed weights", "if (again()) b[5][m] += 1;", ""),
    ];
    for (name, before, after) in faults {
        let built = build(1, &source("", before, after));
        let result = outcome(&mut subject, &built);
        assert!(matches!(result, Err(CandidateError::WrongResult { .. })), "{name}: {result:?}");
    }
}

fn writes_to_operands_and_outside_buffers_are_found<S: Subject>() {
    let mut subject = S::make(options());
    let faults = [
        ("input", "", "b[0][m * K + 1] = 0;"),
        ("residual", "", "residual == b[3] ? (void)(b[3][m * N] = 0) : (void)0;"),
        ("behind the output", "", "if (m == M - 1) out[N] = 0;"),
        ("before the output", "", "if (m == 0) out[-1] = 0;"),
        ("behind the local memory", "((float *)local)[N] = 0;", ""),
    ];

    let only_on_cpu = ["before the output", "behind the local memory"];
    for (name, before, after) in faults {
        if kernels::on_gpu() && only_on_cpu.contains(&name) {
            continue;
        }
        let built = build(1, &source("", before, after));
        let result = outcome(&mut subject, &built);
        let found = match name {
            // The next run reads the changed operand, so a wrong result may be found first.
            "input" | "residual" => {
                matches!(result, Err(CandidateError::WrongResult { .. } | CandidateError::StrayWrite { .. }))
            }
            _ => matches!(result, Err(CandidateError::StrayWrite { .. })),
        };
        assert!(found, "{name}: {result:?}");
    }

    // The weight is only read ahead of time, so no result shows that it changed.
    let built = build(1, &source("", "", "b[1][m] = 0;"));
    let result = outcome(&mut subject, &built);
    let Err(CandidateError::StrayWrite { message }) = result else { panic!("{result:?}") };
    assert!(message.contains("weight"), "{message}");
}

fn work_on_the_data_ahead_of_time_is_found<S: Subject>() {
    let mut subject = S::make(options());
    let ahead = "static float kept[M * K]; memcpy(kept, b[0], sizeof kept); extern float *keep; keep = kept;";
    let text = format!("float *keep;{}", source(ahead, "extern float *keep; data = keep;", ""));
    let built = build(1, &text);
    let result = outcome(&mut subject, &built);
    assert!(matches!(result, Err(CandidateError::WrongResult { .. })), "{result:?}");
}

fn a_plan_of_another_workload_is_refused<S: Subject>() {
    let mut subject = S::make(options());
    let mut built = right(1);
    built.artifact.plan.buffers[0].shape = vec![1, kernels::M, kernels::K + 1];
    assert!(matches!(outcome(&mut subject, &built), Err(CandidateError::Lower { .. })));
    built.artifact.plan.buffers.remove(0);
    built.artifact.plan.buffers[3].shape = vec![3];
    assert!(matches!(outcome(&mut subject, &built), Err(CandidateError::Lower { .. })));
}

fn a_missing_entry_point_is_a_build_error<S: Subject>() {
    let mut subject = S::make(options());
    let built = build(1, &kernels::without_main());
    let result = outcome(&mut subject, &built);
    let Err(CandidateError::Build { message }) = result else { panic!("{result:?}") };
    assert!(message.contains("autotune_"), "{message}");
    let refused = kernels::try_build(1, "int x = undefined_name;").and_then(|built| outcome(&mut subject, &built));
    let Err(CandidateError::Build { message }) = refused else { panic!("{refused:?}") };
    assert!(message.contains("undefined_name"), "{message}");
}

fn clearly_slower_kernels_are_stopped_early<S: Subject>() {
    let mut subject = S::make(options());
    let built = right(1);
    subject.set_incumbent(&kernels::workload(), 1e-9);
    let run = outcome(&mut subject, &built).unwrap();
    assert!(run.stopped_early, "{run:?}");
    let mut fresh = S::make(options());
    let built = right(1);
    assert!(!outcome(&mut fresh, &built).unwrap().stopped_early);
    let slow = kernels::with("for (int i = 0; i < 100000; i++) sink = i;");
    assert!(outcome(&mut fresh, &slow).unwrap().stopped_early, "the fastest so far is the incumbent");
}

/// Budget in seconds for the rounds of a race.
const BUDGET_SECS: f64 = 10.0;

fn a_race_times_all_and_ranks_them<S: Subject>() {
    let mut subject = S::make(options());
    let fast = right(1);
    let slow = kernels::with("for (int i = 0; i < 20000; i++) sink = i;");
    let wrong = kernels::with("continue;");
    let race = subject.race_built(&[slow, wrong, fast], BUDGET_SECS).unwrap();
    assert!(race.failure.is_none(), "{race:?}");
    let results = race.measurements;
    let times: Vec<Option<f64>> = results.iter().map(Measurement::run_secs).collect();
    let [Some(slow_secs), None, Some(fast_secs)] = times[..] else { panic!("{results:?}") };
    assert!(slow_secs > 2.0 * fast_secs, "{results:?}");
    assert!(results[0].outcome.as_ref().unwrap().repeats >= 20 && !results[0].outcome.as_ref().unwrap().stopped_early);
    assert!(subject.race_built(&[], BUDGET_SECS).unwrap().measurements.is_empty());
    let mut elsewhere = right(1);
    elsewhere.artifact.target = Target::detect("cuda:sm_90", None).unwrap();
    assert!(matches!(subject.race_built(&[right(1), elsewhere], BUDGET_SECS), Err(MeasureError::MixedTargets)));
}

/// Returns random schedules of a small convolution, and among them one that cannot be lowered.
fn candidates(count: usize) -> Vec<Candidate> {
    let workload: Workload = "conv2d:n=1,c=4,h=6,w=6,o=8,k=1,bias,act=relu".parse().unwrap();
    let target = target(2);
    let space = ScheduleSpace::new(&workload, &target);
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let mut candidates: Vec<_> = (0..count).map(|_| space.sample(&mut rng)).collect();
    let impossible = Config { sketch: "no such sketch".into(), knobs: Default::default() };
    candidates.insert(count / 2, space.candidate(&impossible));
    candidates
}

fn candidates_come_back_in_order<S: Subject>() {
    let mut subject = S::make(options());
    let candidates = candidates(6);
    let mut results = Vec::new();
    let mut on_result = |index, measurement: Measurement| {
        assert_eq!(index, results.len());
        results.push(measurement);
        ControlFlow::Continue(())
    };
    subject.measure(&candidates, &mut on_result).unwrap();
    assert_eq!(results.len(), candidates.len());
    for (index, (result, candidate)) in results.iter().zip(&candidates).enumerate() {
        match &result.outcome {
            Ok(run) => assert!(index != 3 && run.run_secs > 0.0 && result.build_secs > 0.0, "{result:?}"),
            Err(error) => {
                assert!(index == 3 && matches!(error, CandidateError::Lower { .. }), "{candidate}: {error}");
            }
        }
    }
    let raced = subject.race(&candidates[2..5], BUDGET_SECS).unwrap().measurements;
    assert!(raced[0].outcome.is_ok() && raced[2].outcome.is_ok());
    assert!(matches!(raced[1].outcome, Err(CandidateError::Lower { .. })));
}

fn a_batch_ends_where_it_is_told_to<S: Subject>() {
    let mut subject = S::make(options());
    let mut seen = Vec::new();
    let mut on_result = |index, _| {
        seen.push(index);
        if index == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    subject.measure(&candidates(4), &mut on_result).unwrap();
    assert_eq!(seen, [0, 1]);
    subject.measure(&[], &mut |_, _| panic!("nothing to measure")).unwrap();
}

/// Checks when batches are requested: on a GPU the second one before the first has a result, on a
/// CPU only after the first was measured. Results come in order in both cases.
fn batches_follow_each_other<S: Subject>() {
    let mut subject = S::make(options());
    let all = candidates(4);
    let (sender, asked) = mpsc::channel();
    let measured = AtomicUsize::new(0);
    let mut batches = all.chunks(2);
    let mut next_batch = || {
        let _ = sender.send(measured.load(Ordering::SeqCst));
        batches.next().unwrap_or_default().to_vec()
    };

    let mut results = Vec::new();
    let mut on_result = |index, measurement: Measurement| {
        assert_eq!(index, results.len());
        if index == 0 && kernels::on_gpu() {
            let first = asked.recv_timeout(Duration::from_secs(60)).unwrap();
            let second = asked.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_eq!((first, second), (0, 0));
        }
        results.push(measurement);
        measured.store(results.len(), Ordering::SeqCst);
        ControlFlow::Continue(())
    };

    subject.measure_batches(&mut next_batch, &mut on_result).unwrap();
    assert_eq!(results.len(), all.len());
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result.outcome.is_err(), index == 2, "{result:?}");
    }
    if !kernels::on_gpu() {
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [0, 2, 4, 5], "asked for behind these numbers of results");
    }
}

fn an_endless_stream_of_batches_ends_with_a_break<S: Subject>() {
    let mut subject = S::make(options());
    let one = vec![candidates(1).pop().unwrap()];
    let mut seen = 0;
    let mut on_result = |index, _| {
        assert_eq!(index, seen);
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    subject.measure_batches(&mut || one.clone(), &mut on_result).unwrap();
    assert_eq!(seen, 3);
}

fn equal_sources_are_compiled_once<S: Subject>() {
    let mut subject = S::make(MeasureOptions { backend: Backend::C, ..options() });
    let one = candidates(1).pop().unwrap();
    let builds = subject.builder().build(&[one.clone(), one.clone()]).unwrap();
    let again = subject.builder().build(&[one]).unwrap();
    let code = |build: &Build| build.outcome.as_ref().unwrap().artifact.code.clone();
    assert!(matches!(code(&builds[0]), Code::Library(_)));
    assert_eq!(code(&builds[0]), code(&builds[1]));
    assert_eq!(code(&builds[0]), code(&again[0]));
    assert!(again[0].build_secs < builds[0].build_secs);
    assert!(builds.iter().all(|build| build.toolchain.as_ref().is_some_and(|t| t.backend == Some(Backend::C))));
}

fn both_backends_make_right_kernels<S: Subject>() {
    for backend in [Backend::Assembler, Backend::C] {
        let mut subject = S::make(MeasureOptions { backend, ..options() });
        let mut ran = 0;
        let mut on_result = |_, measurement: Measurement| {
            if let Ok(run) = &measurement.outcome {
                let expected = match backend {
                    Backend::Assembler => Backend::default_for(target(1).cpu().unwrap().isa),
                    Backend::C => Backend::C,
                };
                assert_eq!(measurement.toolchain.as_ref().unwrap().backend, Some(expected));
                assert!(run.max_rel_error < 1e-5 && run.run_secs > 0.0, "{backend}: {run:?}");
                ran += 1;
            }
            ControlFlow::Continue(())
        };
        subject.measure(&candidates(4), &mut on_result).unwrap();
        assert_eq!(ran, 4, "{backend}");
    }
}
