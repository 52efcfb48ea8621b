//! Kernels that crash, hang, exit or misbehave: each fault is classified, and the next kernel is
//! measured normally.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use autotune_measure::{Built, MeasureError, MeasureOptions, WorkerCommand, WorkerMeasurer};
use autotune_measurement::CandidateError;

use crate::kernels::{build, on_gpu, options, place, right, source, with};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("every_fault_is_classified", every_fault_is_classified),
    ("a_hang_is_killed_with_its_children", a_hang_is_killed_with_its_children),
    ("too_much_memory_is_told_from_a_crash", too_much_memory_is_told_from_a_crash),
    ("a_kernel_that_hangs_in_a_race_costs_the_others_nothing", a_kernel_that_hangs_in_a_race_costs_the_others_nothing),
    ("noise_on_standard_output_is_ignored", noise_on_standard_output_is_ignored),
    ("the_innocent_are_tried_again", the_innocent_are_tried_again),
    ("broken_infrastructure_is_an_error", broken_infrastructure_is_an_error),
    ("a_worker_is_started_with_the_arguments_of_its_command", a_worker_is_started_with_the_arguments_of_its_command),
];

/// Tests that are the same for kernels on GPUs.
pub(crate) const COMMON_TESTS: &[(&str, fn())] = &[
    ("deaths_and_hangs_cost_only_the_worker", deaths_and_hangs_cost_only_the_worker),
    ("a_worker_killed_between_candidates_is_replaced", a_worker_killed_between_candidates_is_replaced),
    ("a_kernel_that_dies_in_a_race_does_not_spoil_it", a_kernel_that_dies_in_a_race_does_not_spoil_it),
    ("no_worker_outlives_its_measurer", no_worker_outlives_its_measurer),
    ("no_worker_outlives_a_killed_parent", no_worker_outlives_a_killed_parent),
];

/// Code of a kernel that crashes.
pub(crate) const DEATH: &str = "*(volatile float *)8 = 1;";
/// Code of a kernel that never ends.
pub(crate) const ENDLESS: &str = "for (;;) sink++;";

/// Argument with which this program measures an endless kernel; the place follows as another
/// argument.
pub(crate) const HOLDER_ARGUMENT: &str = "hold-an-endless-kernel";

fn measurer_with(options: MeasureOptions) -> WorkerMeasurer {
    WorkerMeasurer::with(WorkerCommand::find().unwrap(), options).unwrap()
}

fn measurer() -> WorkerMeasurer {
    measurer_with(options())
}

fn fault(measurer: &mut WorkerMeasurer, built: &Built) -> CandidateError {
    measurer.run_built(built).unwrap().outcome.unwrap_err()
}

fn assert_well(measurer: &mut WorkerMeasurer) {
    let built = right(1);
    measurer.run_built(&built).unwrap().outcome.unwrap();
}

fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|s| s != 'Z')
}

fn await_death(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while alive(pid) {
        assert!(Instant::now() < deadline, "process {pid} lives on");
        thread::sleep(Duration::from_millis(5));
    }
}

fn every_fault_is_classified() {
    let mut measurer = measurer();
    let faults = [
        (DEATH, "SIGSEGV"),
        ("fprintf(stderr, \"cannot go on\\n\"); abort();", "cannot go on"),
        ("sink = (9 + sink) % sink;", "SIGFPE"),
        ("__builtin_trap();", "SIG"),
        ("raise(SIGTERM);", "SIGTERM"),
        ("exit(0);", "status 0"),
        ("_exit(3);", "status 3"),
        ("free(out);", "signal"),
        ("volatile char big[1 << 26]; for (int i = 0; i < 1 << 26; i += 4096) big[i] = 1;", "SIGSEGV"),
    ];

    for (code, words) in faults {
        let built = with(code);
        let outcome = measurer.run_built(&built).unwrap().outcome;
        let Err(CandidateError::Crash { message }) = &outcome else { panic!("{code}: {outcome:?}") };
        assert!(message.contains(words), "{code}: {message}");
        assert_well(&mut measurer);
    }

    let ahead = build(1, &source("abort();", "", ""));
    assert!(matches!(fault(&mut measurer, &ahead), CandidateError::Crash { .. }));
    let loading = format!("{}\n__attribute__((constructor)) static void f(void) {{ abort(); }}", source("", "", ""));
    let loading = build(1, &loading);
    assert!(matches!(fault(&mut measurer, &loading), CandidateError::Crash { .. }));
    let late = with("if (calls++ > 2 * M) abort();");
    assert!(matches!(fault(&mut measurer, &late), CandidateError::Crash { .. }));
    let helper = build(2, &source("", "if (m == M - 1) abort();", ""));
    assert!(matches!(fault(&mut measurer, &helper), CandidateError::Crash { .. }));
    assert_well(&mut measurer);
}

fn a_hang_is_killed_with_its_children() {
    let mut options = options();
    options.run_limit_secs = 0.4;
    let mut measurer = measurer_with(options);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("child");
    let code = format!(
        "pid_t child = fork(); if (child == 0) for (;;) pause();
         FILE *f = fopen(\"{}\", \"w\"); fprintf(f, \"%d\", (int)child); fclose(f); for (;;) sink++;",
        file.display()
    );
    let built = with(&code);
    assert_well(&mut measurer);
    let worker = measurer.worker_pid().unwrap();
    assert_eq!(fault(&mut measurer, &built), CandidateError::Timeout { limit_secs: 0.4 });
    await_death(worker);
    await_death(std::fs::read_to_string(file).unwrap().parse().unwrap());
    let asleep = with("for (;;) pause();");
    assert!(matches!(fault(&mut measurer, &asleep), CandidateError::Timeout { .. }));
    let deaf = with("for (int i = 3; i < 64; i++) close(i); for (;;) pause();");
    let error = fault(&mut measurer, &deaf);
    assert!(matches!(error, CandidateError::Crash { .. } | CandidateError::Timeout { .. }), "{error:?}");
    assert_well(&mut measurer);
}

fn too_much_memory_is_told_from_a_crash() {
    let mut measurer = measurer();
    let hungry = with("for (;;) { char *p = malloc(1 << 20); memset(p, 1, 1 << 20); sink += p[9]; }");
    let error = fault(&mut measurer, &hungry);
    assert!(matches!(error, CandidateError::OutOfMemory { .. }), "{error:?}");
    let mut vast = right(1);
    vast.artifact.plan.buffers[5].shape = vec![1 << 40];
    let error = fault(&mut measurer, &vast);
    assert!(matches!(error, CandidateError::OutOfMemory { .. }), "{error:?}");
    vast.artifact.plan.buffers[5].shape = vec![1 << 40, 1 << 40];
    assert!(matches!(fault(&mut measurer, &vast), CandidateError::OutOfMemory { .. }));
    let killed = with("kill(getpid(), SIGKILL);");
    assert!(matches!(fault(&mut measurer, &killed), CandidateError::OutOfMemory { .. }));
    let modest = with("char *p = malloc(1 << 20); memset(p, 1, 1 << 20); sink += p[9]; free(p);");
    measurer.run_built(&modest).unwrap().outcome.unwrap();
}

fn noise_on_standard_output_is_ignored() {
    let mut measurer = measurer();
    let code = "if (m == 0 && calls++ < 50) { char x[300]; memset(x, 65, sizeof x); write(1, x, sizeof x); puts(\"{}\"); \
                fflush(stdout); while (read(0, x, sizeof x) > 0) sink++; }";
    let built = with(code);
    let worker = {
        assert_well(&mut measurer);
        measurer.worker_pid()
    };
    measurer.run_built(&built).unwrap().outcome.unwrap();
    assert_well(&mut measurer);
    assert_eq!(measurer.worker_pid(), worker, "nothing was wrong with the worker");
    let endless = with("for (;;) { write(2, \"noise \", 6); }");
    assert!(matches!(fault(&mut measurer, &endless), CandidateError::Timeout { .. }));
    assert_well(&mut measurer);
}

fn deaths_and_hangs_cost_only_the_worker() {
    let mut measurer = measurer();
    assert_well(&mut measurer);
    let worker = measurer.worker_pid().unwrap();
    let error = fault(&mut measurer, &with(DEATH));
    let CandidateError::Crash { message } = &error else { panic!("{error:?}") };
    assert!(message.contains("SIGSEGV") || (on_gpu() && message.contains("ILLEGAL")), "{message}");
    await_death(worker);
    let late = with(&format!("if (again()) {DEATH}"));
    assert!(matches!(fault(&mut measurer, &late), CandidateError::Crash { .. }));
    assert_well(&mut measurer);

    let limit_secs = if on_gpu() { 3.0 } else { 0.4 };
    let mut impatient = measurer_with(MeasureOptions { run_limit_secs: limit_secs, ..options() });
    assert_well(&mut impatient);
    let worker = impatient.worker_pid().unwrap();
    assert_eq!(fault(&mut impatient, &with(ENDLESS)), CandidateError::Timeout { limit_secs });
    await_death(worker);
    assert_well(&mut impatient);
}

fn a_worker_killed_between_candidates_is_replaced() {
    let mut measurer = measurer();
    for pause_ms in [0, 30] {
        assert_well(&mut measurer);
        let pid = measurer.worker_pid().unwrap();
        let status = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
        assert!(status.success());
        thread::sleep(Duration::from_millis(pause_ms));
        assert_well(&mut measurer);
        assert_ne!(measurer.worker_pid(), Some(pid));
    }
}

fn the_innocent_are_tried_again() {
    let mut measurer = measurer();
    let bomb = "static void *bomb(void *x) { usleep(60000); abort(); }";
    let source = source("", "if (!touched++) { pthread_t t; pthread_create(&t, 0, bomb, 0); }", "");
    let planted = build(1, &source.replace("static int calls", &format!("{bomb}\nstatic int calls")));
    let slow = with("usleep(2000);");
    measurer.run_built(&planted).unwrap().outcome.unwrap();
    measurer.run_built(&slow).unwrap().outcome.unwrap();
}

fn a_kernel_that_dies_in_a_race_does_not_spoil_it() {
    let mut measurer = measurer();
    let good = right(1);
    let bad = with(DEATH);
    let race = measurer.race_built(&[good.clone(), bad, good], 10.0).unwrap();
    assert!(race.failure.is_none(), "the survivors race: {race:?}");
    let results = race.measurements;
    assert!(results[0].outcome.is_ok() && results[2].outcome.is_ok());
    assert!(matches!(results[1].outcome, Err(CandidateError::Crash { .. })));
}

fn a_kernel_that_hangs_in_a_race_costs_the_others_nothing() {
    let mut options = options();
    options.run_limit_secs = 0.5;
    let mut measurer = measurer_with(options);
    let good = right(1);
    let race = measurer.race_built(&[good.clone(), with(ENDLESS), good.clone()], 0.2).unwrap();
    assert!(race.failure.is_none(), "{race:?}");
    let results = race.measurements;
    assert!(results[0].outcome.is_ok() && results[2].outcome.is_ok(), "{results:?}");
    assert!(matches!(results[1].outcome, Err(CandidateError::Timeout { .. })), "{results:?}");

    // A kernel that crashes only once another kernel has run in its process succeeds alone but
    // breaks every race. All candidates then keep the times they had alone.
    let late = with("if (getenv(\"AUTOTUNE_TEST_OTHER\")) *(volatile float *)8 = 1;");
    let other = with("if (!touched++) setenv(\"AUTOTUNE_TEST_OTHER\", \"1\", 1);");
    let race = measurer.race_built(&[good, late, other], 10.0).unwrap();
    assert!(matches!(&race.failure, Some(MeasureError::Worker { .. })), "{race:?}");
    assert!(race.measurements[0].outcome.is_ok() && race.measurements[2].outcome.is_ok(), "{race:?}");
}

fn no_worker_outlives_its_measurer() {
    let mut measurer = measurer();
    assert_well(&mut measurer);
    let pid = measurer.worker_pid().unwrap();
    assert!(alive(pid));
    drop(measurer);
    assert!(!alive(pid));
}

/// Measures an endless kernel in a worker process; never returns.
pub(crate) fn hold_an_endless_kernel() -> ! {
    let mut options = options();
    options.run_limit_secs = 600.0;
    let mut measurer = measurer_with(options);
    assert_well(&mut measurer);
    println!("{}", measurer.worker_pid().unwrap());
    std::io::stdout().flush().unwrap();
    let endless = with(ENDLESS);
    panic!("it ended: {:?}", measurer.run_built(&endless));
}

fn no_worker_outlives_a_killed_parent() {
    let program = std::env::current_exe().unwrap();
    // A killed process cannot remove its temporary files.
    let files = tempfile::tempdir().unwrap();
    let mut holder = Command::new(program);
    holder.arg(HOLDER_ARGUMENT).arg(format!("{:?}", place())).env("TMPDIR", files.path()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let worker: u32 = line.trim().parse().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(alive(worker));
    holder.kill().unwrap();
    holder.wait().unwrap();
    await_death(worker);
}

fn broken_infrastructure_is_an_error() {
    let with_program = |program: &str| {
        let command = WorkerCommand::new(program);
        let mut measurer = WorkerMeasurer::with(command, options()).unwrap();
        measurer.run_built(&right(1)).unwrap_err()
    };
    assert!(matches!(with_program("/no/such/worker"), MeasureError::Spawn { .. }));
    let mute = with_program("true");
    assert!(matches!(&mute, MeasureError::Worker { message } if message.contains("status 0")), "{mute}");
    let chatty = with_program("echo");
    assert!(matches!(&chatty, MeasureError::Worker { .. }), "{chatty}");
}

fn a_worker_is_started_with_the_arguments_of_its_command() {
    let own = WorkerCommand::find().unwrap();
    let (mark, program) = ("AUTOTUNE_TEST_MARK=it came through", own.program.to_str().unwrap());
    let command = WorkerCommand::new("env").with_arguments([mark, program, "worker"]);
    let mut measurer = WorkerMeasurer::with(command, options()).unwrap();
    let measurement = measurer.run_built(&right(1)).unwrap();
    assert!(measurement.outcome.is_ok(), "{measurement:?}");

    let environment = std::fs::read(format!("/proc/{}/environ", measurer.worker_pid().unwrap())).unwrap();
    assert!(environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes()));

    let idle = WorkerCommand::new(program).with_arguments(["no such", "argument"]);
    let error = WorkerMeasurer::with(idle, options()).unwrap().run_built(&right(1)).unwrap_err();
    assert!(error.to_string().contains(&format!("'{program} no such argument'")), "{error}");
}
