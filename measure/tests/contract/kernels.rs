//! Kernels written by hand, right and wrong, for one matmul.

use std::sync::{Mutex, PoisonError};

use autotune_measure::{Backend, Builder, Built, CandidateError, MeasureOptions};
use autotune_schedules::plan::{PlanBuffer, PlanStage};
use autotune_schedules::program::{Layout, Role, When};
use autotune_schedules::{CpuTarget, KernelPlan, Target, Workload};

pub(crate) const M: usize = 24;
pub(crate) const N: usize = 40;
pub(crate) const K: usize = 16;

/// Short limits, so that a hang costs a test little.
pub(crate) fn options() -> MeasureOptions {
    let mut options = MeasureOptions { run_limit_secs: 1.5, memory_slack_bytes: 64 << 20, ..MeasureOptions::default() };
    options.timing.floor_secs = 0.002;
    options.timing.warmup_secs = 0.0005;
    options
}

pub(crate) fn target(threads: usize) -> Target {
    Target::Cpu(CpuTarget { threads, ..CpuTarget::detect(None).unwrap() })
}

pub(crate) fn workload() -> Workload {
    format!("matmul:m={M},n={N},k={K},bias,add,act=relu").parse().unwrap()
}

/// Input, weight, bias, residual, output, and the weight transposed ahead of time; one task a row.
pub(crate) fn plan() -> KernelPlan {
    let buffer = |role, shape: &[usize]| PlanBuffer {
        role,
        global: true,
        shape: shape.to_vec(),
        layout: Layout::Plain,
        dtype: Default::default(),
    };
    let stage = |name: &str, when, tasks| PlanStage {
        symbol: format!("autotune_{name}"),
        when,
        tasks,
        launch: None,
        boxes: vec![],
    };
    KernelPlan {
        buffers: vec![
            buffer(Role::Input, &[1, M, K]),
            buffer(Role::Weight, &[1, K, N]),
            buffer(Role::Bias, &[N]),
            buffer(Role::Residual, &[1, M, N]),
            buffer(Role::Output, &[1, M, N]),
            buffer(Role::Packed, &[N, K]),
        ],
        stages: vec![stage("pack", When::AheadOfTime, N), stage("main", When::EveryRun, M)],
        local_bytes: 4 * N,
    }
}

/// The right kernel with C code put in: `ahead` at the end of the stage that runs ahead of time, `before` and `after`
/// around every row's work.
pub(crate) fn source(ahead: &str, before: &str, after: &str) -> String {
    format!(
        r#"
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <signal.h>
#include <pthread.h>
enum {{ M = {M}, N = {N}, K = {K} }};
static int calls, touched;
static volatile int sink;
void autotune_pack(float *const *b, char *local, long begin, long end) {{
    for (long n = begin; n < end; n++)
        for (int k = 0; k < K; k++) b[5][n * K + k] = b[1][k * N + n];
    {ahead}
}}
void autotune_main(float *const *b, char *local, long begin, long end) {{
    for (long m = begin; m < end; m++) {{
        const float *data = b[0], *weight = b[5], *bias = b[2], *residual = b[3];
        float *out = b[4] + m * N, *sum = (float *)local;
        {before}
        for (int n = 0; n < N; n++) {{
            sum[n] = 0;
            for (int k = 0; k < K; k++) sum[n] += data[m * K + k] * weight[n * K + k];
        }}
        for (int n = 0; n < N; n++) {{
            float x = sum[n] + bias[n] + residual[m * N + n];
            out[n] = x > 0 ? x : 0;
        }}
        {after}
    }}
}}
"#
    )
}

static BUILDER: Mutex<Option<Builder>> = Mutex::new(None);

/// One builder for all tests, so that each kernel is compiled once.
fn with_builder<T>(f: impl FnOnce(&mut Builder) -> T) -> T {
    let mut builder = BUILDER.lock().unwrap_or_else(PoisonError::into_inner);
    f(builder.get_or_insert_with(|| Builder::new(Backend::C, 20.0)))
}

/// Removes what was built.
pub(crate) fn clean_up() {
    BUILDER.lock().unwrap_or_else(PoisonError::into_inner).take();
}

pub(crate) fn try_build(threads: usize, source: &str) -> Result<Built, CandidateError> {
    with_builder(|builder| builder.build_source(&workload(), &target(threads), &plan(), source))
}

pub(crate) fn build(threads: usize, source: &str) -> Built {
    try_build(threads, source).unwrap()
}

pub(crate) fn right(threads: usize) -> Built {
    build(threads, &source("", "", ""))
}

/// The right kernel with code before every row's work.
pub(crate) fn with(before: &str) -> Built {
    build(1, &source("", before, ""))
}
