//! Handwritten kernels, right and wrong, for one matrix product, on the CPU or a GPU.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use autotune_ir::plan::{Binding, PlanBuffer, PlanStage};
use autotune_ir::program::{Layout, Role, When};
use autotune_ir::{CpuTarget, KernelPlan, Launch, Target};
use autotune_measure::{Built, KernelBuilder, MeasureOptions};
use autotune_measurement::{Backend, CandidateError};
use autotune_workloads::Workload;

pub(crate) const M: usize = 24;
pub(crate) const N: usize = 40;
pub(crate) const K: usize = 16;
/// Threads per block on a GPU.
const THREADS: usize = 8;

/// Returns options with short limits, so that a hang delays a test only briefly.
pub(crate) fn options() -> MeasureOptions {
    // On a GPU kernels may be compiled when they are loaded, even on a busy machine.
    let run_limit_secs = if on_gpu() { 30.0 } else { 1.5 };
    let mut options = MeasureOptions { run_limit_secs, memory_slack_bytes: 64 << 20, ..MeasureOptions::default() };
    options.timing.floor_secs = 0.002;
    options.timing.warmup_secs = 0.0005;
    options
}

/// Device on which the kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Cpu,
    OpenCl,
    Cuda,
}

thread_local! {
    /// Device of the test that runs in this thread.
    static PLACE: Cell<Place> = const { Cell::new(Place::Cpu) };
}

pub(crate) fn set_place(place: Place) {
    PLACE.set(place);
}

pub(crate) fn place() -> Place {
    PLACE.get()
}

pub(crate) fn on_gpu() -> bool {
    place() != Place::Cpu
}

/// Returns the target: the CPU with `threads` threads, the OpenCL device with limits that most
/// devices support (one that is not a GPU may allow more threads than others), or the CUDA device.
pub(crate) fn target(threads: usize) -> Target {
    match place() {
        Place::OpenCl => return Target::detect("opencl", None).unwrap(),
        Place::Cuda => return Target::Gpu(autotune_measure::gpu::find("cuda").unwrap().target),
        Place::Cpu => {}
    }
    Target::Cpu(CpuTarget { threads, ..CpuTarget::detect(None).unwrap() })
}

pub(crate) fn workload() -> Workload {
    format!("matmul:m={M},n={N},k={K},bias,add,act=relu").parse().unwrap()
}

/// Returns the plan: input, weight, bias, residual, output, and the weight transposed ahead of
/// time; one task per row. On a GPU one block, and another buffer with one number per row.
pub(crate) fn plan() -> KernelPlan {
    let buffer = |name: &str, role, binding, shape: &[usize]| PlanBuffer {
        name: name.into(),
        role,
        binding,
        shape: shape.to_vec(),
        layout: Layout::Plain,
        dtype: Default::default(),
    };

    let launch = on_gpu().then_some(Launch { blocks: 1, threads: THREADS, shared_bytes: 0 });
    let stage =
        |name: &str, when, tasks| PlanStage { symbol: format!("autotune_{name}"), when, tasks, launch, boxes: vec![] };
    let mut plan = KernelPlan {
        buffers: vec![
            buffer("input", Role::Operand(0), Binding::Data, &[1, M, K]),
            buffer("weight", Role::Operand(1), Binding::Constant { read_in_runs: false }, &[1, K, N]),
            buffer("bias", Role::Operand(2), Binding::Constant { read_in_runs: true }, &[N]),
            buffer("residual", Role::Operand(3), Binding::Data, &[1, M, N]),
            buffer("output", Role::Output, Binding::Output, &[1, M, N]),
            buffer("packed", Role::Packed, Binding::Packed, &[N, K]),
        ],
        stages: vec![stage("pack", When::AheadOfTime, N), stage("main", When::EveryRun, M)],
        local_bytes: 4 * N,
        uses_tiles: false,
    };

    if on_gpu() {
        plan.buffers.push(buffer("rows", Role::Packed, Binding::Scratch, &[N]));
    }
    plan
}

/// Returns the source of the right kernel with inserted code: `ahead` at the end of the
/// ahead-of-time stage, `before` and `after` around the work of every row. `again()` is true in
/// every run but the first.
pub(crate) fn source(ahead: &str, before: &str, after: &str) -> String {
    match place() {
        Place::Cpu => c_source(ahead, before, after),
        Place::OpenCl => gpu_source(ahead, before, after),
        Place::Cuda => format!("{CUDA_WORDS}{}", gpu_source(ahead, before, after)),
    }
}

fn c_source(ahead: &str, before: &str, after: &str) -> String {
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
static int again(void) {{ return calls++ >= M; }}

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
        {ROW}
        {after}
    }}
}}
"#
    )
}

/// Returns a source that lacks the main entry point.
pub(crate) fn without_main() -> String {
    let kernel = match place() {
        Place::Cpu => "",
        Place::OpenCl => "__kernel",
        Place::Cuda => "extern \"C\" __global__",
    };
    format!("{kernel} void autotune_pack(void) {{}}")
}

/// Computation of row `m` of the output, in C and all its dialects.
const ROW: &str = "for (int n = 0; n < N; n++) {
            sum[n] = 0;
            for (int k = 0; k < K; k++) sum[n] += data[m * K + k] * weight[n * K + k];
        }
        for (int n = 0; n < N; n++) {
            float x = sum[n] + bias[n] + residual[m * N + n];
            out[n] = x > 0 ? x : 0;
        }";

/// Definitions of OpenCL's keywords and functions in CUDA.
const CUDA_WORDS: &str = r#"
#define __global
#define __kernel extern "C" __global__
#define get_global_id(dimension) (int)(blockIdx.x * blockDim.x + threadIdx.x)
#define get_global_size(dimension) (int)(gridDim.x * blockDim.x)
"#;

fn gpu_source(ahead: &str, before: &str, after: &str) -> String {
    let names = ["input", "weights", "biases", "residuals", "output", "packed", "rows"];
    let parameters = names.map(|name| format!("__global float *{name}")).join(", ");
    let buffers = format!("__global float *b[] = {{ {} }};", names.join(", "));

    format!(
        r#"
// What nobody wrote yet is -1.
#define again() (((__global int *)b[6])[m]++ >= 0)
enum {{ M = {M}, N = {N}, K = {K} }};
__kernel void autotune_pack({parameters}) {{
    {buffers}
    for (int n = get_global_id(0); n < N; n += get_global_size(0))
        for (int k = 0; k < K; k++) b[5][n * K + k] = b[1][k * N + n];
    {ahead}
}}
__kernel void autotune_main({parameters}) {{
    {buffers}
    volatile int sink = 0;
    for (int m = get_global_id(0); m < M; m += get_global_size(0)) {{
        __global float *data = b[0], *weight = b[5], *bias = b[2], *residual = b[3], *out = b[4] + m * N;
        float sum[N];
        {before}
        {ROW}
        {after}
    }}
}}
"#
    )
}

static BUILDER: Mutex<Option<KernelBuilder>> = Mutex::new(None);

/// Runs `f` with one builder for all tests, so that each kernel is compiled once.
fn with_builder<T>(f: impl FnOnce(&mut KernelBuilder) -> T) -> T {
    let mut builder = BUILDER.lock().unwrap_or_else(PoisonError::into_inner);
    f(builder.get_or_insert_with(|| KernelBuilder::new(Backend::C, 20.0)))
}

/// Removes all built files.
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

/// Returns the right kernel with code inserted before the work of every row.
pub(crate) fn with(before: &str) -> Built {
    build(1, &source("", before, ""))
}
