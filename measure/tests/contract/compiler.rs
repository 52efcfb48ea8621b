//! Compiler of CUDA C that crashes, hangs or exits: this costs only the kernel being compiled.
//! Needs neither a device nor NVRTC: a fake library misbehaves as the source tells it to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Instant;

use autotune_ir::{Code, Target};
use autotune_measure::{Build, Compiler, KernelBuilder, MeasureError, WorkerCommand};
use autotune_measurement::{Backend, CandidateError};
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;
use tempfile::TempDir;

use crate::kernels::{Place, plan, set_place, workload};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("kernels_that_kill_or_hang_the_compiler_fail_alone", kernels_that_kill_or_hang_the_compiler_fail_alone),
    ("every_end_of_it_is_told", every_end_of_it_is_told),
    (
        "an_older_device_than_it_knows_is_refused_with_its_version",
        an_older_device_than_it_knows_is_refused_with_its_version,
    ),
    ("workers_that_do_not_work_are_broken_infrastructure", workers_that_do_not_work_are_broken_infrastructure),
];

/// Fake NVRTC 12.99, which supports compute capabilities 7.5 and 9.0.
const STAND_IN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int calls;
int nvrtcVersion(int *major, int *minor) { *major = 12; *minor = 99; return 0; }
int nvrtcGetNumSupportedArchs(int *count) { *count = 2; return 0; }
int nvrtcGetSupportedArchs(int *list) { list[0] = 75; list[1] = 90; return 0; }
int nvrtcCreateProgram(void **p, const char *source, const char *name, int n, const char *const *h, const char *const *i) {
    *p = strdup(source);
    return 0;
}
int nvrtcCompileProgram(void *p, int count, const char *const *flags) {
    calls++;
    if (strstr(p, "to_f16(")) { fprintf(stderr, "cannot go on\n"); abort(); }
    if (strstr(p, "to_tf32(")) for (;;) pause();
    if (strstr(p, "EXIT")) exit(3);
    if (strstr(p, "TIRED") && calls > 1) abort();
    return strstr(p, "WRONG") != 0;
}
int nvrtcDestroyProgram(void **p) { free(*p); return 0; }
static const char log_text[] = "ptxas info : Used 40 registers";
int nvrtcGetProgramLogSize(void *p, size_t *bytes) { *bytes = sizeof log_text; return 0; }
int nvrtcGetProgramLog(void *p, char *log) { memcpy(log, log_text, sizeof log_text); return 0; }
int nvrtcGetCUBINSize(void *p, size_t *bytes) { *bytes = 5; return 0; }
int nvrtcGetCUBIN(void *p, char *cubin) { memcpy(cubin, "cubin", 5); return 0; }
"#;

/// Makes a folder with the fake library and a worker program that uses it.
fn stand_in() -> (TempDir, WorkerCommand) {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("nvrtc.c"), folder.path().join("libnvrtc.so.12"));
    fs::write(&source, STAND_IN).unwrap();
    let compiler = Compiler::find().unwrap();
    let status = Command::new(&compiler.path).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(status.unwrap().success());
    let program = folder.path().join("worker");
    let own = WorkerCommand::find().unwrap().program;
    let script = format!("#!/bin/sh\nAUTOTUNE_NVRTC={} exec {} \"$@\"\n", folder.path().display(), own.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (folder, WorkerCommand::new(program))
}

fn candidate(text: &str) -> Candidate {
    let (workload, target): (Workload, _) = (text.parse().unwrap(), Target::detect("cuda:sm_90", None).unwrap());
    let config = ScheduleSpace::new(&workload, &target).default_config();
    Candidate::new(&workload, &target, config)
}

fn assert_built(build: &Build) {
    let built = build.outcome.as_ref().unwrap();
    assert_eq!(built.artifact.code, Code::Cubin(b"cubin".to_vec()));
    assert_eq!(build.toolchain.as_ref().unwrap().compiler, "NVRTC 12.99");
    assert_eq!(build.resources.unwrap().registers, 40);
}

fn kernels_that_kill_or_hang_the_compiler_fail_alone() {
    let (_folder, command) = stand_in();
    let limit_secs = 0.5;
    let mut builder = KernelBuilder::with_workers(Backend::Assembler, limit_secs, command);
    let good = candidate("matmul:m=64,n=64,k=64");
    let [crash, hang] = ["f16", "tf32"].map(|dtype| candidate(&format!("matmul:m=64,n=64,k=64,dtype={dtype}")));
    let all = [&good, &crash, &good, &hang, &good, &crash, &hang, &good].map(Candidate::clone);
    let start = Instant::now();
    let builds = builder.build(&all).unwrap();
    assert!(start.elapsed().as_secs_f64() >= limit_secs);
    for (build, candidate) in builds.iter().zip(&all) {
        if *candidate == good {
            assert_built(build);
        } else if *candidate == crash {
            let Err(CandidateError::Build { message }) = &build.outcome else { panic!("{build:?}") };
            assert!(message.contains("SIGABRT") && message.contains("cannot go on"), "{message}");
        } else {
            assert_eq!(build.outcome, Err(CandidateError::BuildTimeout { limit_secs }));
        }
    }
}

fn every_end_of_it_is_told() {
    let (_folder, command) = stand_in();
    set_place(Place::Cuda);
    let plan = plan();
    set_place(Place::Cpu);
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let mut builder = KernelBuilder::with_workers(Backend::Assembler, 20.0, command);
    let mut build = |source: &str| builder.build_source(&workload(), &target, &plan, source);
    let says = |outcome: Result<_, CandidateError>, words: &str| match outcome {
        Err(CandidateError::Build { message }) => assert!(message.contains(words), "{message}"),
        other => panic!("{other:?}"),
    };
    build("").unwrap();
    says(build("EXIT"), "status 3");
    says(build("WRONG"), "Used 40 registers");
    build("TIRED").unwrap();
    // The crash occurs in a used worker, so it is tried again in a fresh one.
    build("TIRED").unwrap();
    says(build("a\0b"), "nul byte");
    build("").unwrap();
}

fn an_older_device_than_it_knows_is_refused_with_its_version() {
    let (_folder, command) = stand_in();
    let older = Target::detect("cuda:sm_70", None).unwrap();
    let space = ScheduleSpace::new(&"matmul:m=64,n=64,k=64".parse().unwrap(), &older);
    let default = space.default_candidate().clone();
    let built = KernelBuilder::with_workers(Backend::Assembler, 20.0, command).build(&[default]);
    let Err(CandidateError::Build { message }) = &built.unwrap()[0].outcome else { panic!() };
    for words in ["NVRTC 12.99", "sm_75 to sm_90", "not for sm_70", "AUTOTUNE_NVRTC"] {
        assert!(message.contains(words), "{message}");
    }
}

fn workers_that_do_not_work_are_broken_infrastructure() {
    for (program, is_told) in [
        ("/no/such/worker", (|e| matches!(e, MeasureError::Spawn { .. })) as fn(&MeasureError) -> bool),
        ("true", |e| matches!(e, MeasureError::Worker { .. })),
    ] {
        let mut builder = KernelBuilder::with_workers(Backend::Assembler, 20.0, WorkerCommand::new(program));
        let error = builder.build(&[candidate("matmul:m=64,n=64,k=64")]).unwrap_err();
        assert!(is_told(&error), "{error:?}");
    }
}
