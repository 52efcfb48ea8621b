//! Help texts that follow the options: examples, formats and exit codes.

use autotune_workloads::{OperatorKind, operators};

const EXAMPLES: &str = "\
Examples:
  autotune resnet18 --target cpu --trials 256        tune a network
  autotune conv2d:c=64,h=56,w=56,o=64,k=3,p=1        tune one workload
  autotune matmul:m=512,n=512,k=512 --threads 1 --time-budget 60s
  autotune resnet18 --trials 512                     continue after the last run
  autotune resnet18 --trials 0                       only time the predicted schedules
  autotune resnet18 --target cuda                    for this machine's GPU; or opencl
  autotune resnet18 --target cuda --precision f16    half precision, on tensor cores
  autotune model.onnx --shape image=1x3x480x640      a network in an ONNX file
  autotune bert.onnx --shapes calls.txt              for the shapes of calls: ids=1x12 in each line
  autotune resnet18 --precision bf16                 tensors of half the size: faster, less exact
  autotune model.int8.onnx --quantised float         a quantised file, computed in floating point
  autotune run resnet18 --input x.npy --output out   run it in this process
  autotune compile resnet18 -o resnet18.so           compile it to a C library with a header
  autotune quantize model.onnx --data images -o model.int8.onnx
                                                     8-bit integers, by example inputs
  autotune bench resnet18 --profile                  its steps: times, layouts, schedules
  autotune tasks resnet18                            list its tasks
  autotune best matmul:m=512,n=512,k=512             the best schedule found so far
  autotune show matmul:m=512,n=512,k=512             its loop nest and generated code
  autotune report resnet18 -o report.html            results of the searches as one HTML page
  autotune log export tuned.jsonl                    the database as JSON Lines
  autotune snapshot write tuned.snapshot             a file that deployed programs read
  autotune fleet worker --listen 10.0.0.7:9631       measure here for tuners elsewhere
  autotune resnet18 --connect 10.0.0.7:9631          tune on that machine

A network is an ONNX file or one of {networks}.

A workload is an operator and its sizes (all fields are on the line below it):
{operators}
Convolutions, products and reductions may have a prologue, applied to their data first: pre=scale+bias+relu or parts of it. Each may have an \
epilogue: scale and bias of each channel, add (a residual), act=relu, clip:LO:HI, leaky_relu[:ALPHA], prelu, sigmoid, tanh, \
hard_sigmoid[:ALPHA:BETA], hard_swish, elu[:ALPHA], softplus, silu, mish, gelu or gelu_tanh. Further fields: exact (no Winograd, no parts of bf16); weights=data \
(weights are passed to every run); cold (weights come from memory, not from caches, as in a network; cpu); dtype=f16|bf16|tf32 (element type, \
default f32).

A target is cpu (f32, bf16, i8, u8), cpu:avx2 (without AVX-512), cpu:avx512 (without its extensions), opencl (f32), cuda or cuda:sm_70|75|80|86|89|90|100|103|120 (f32, f16; from sm_80 on bf16, tf32, \
tensor cores). Looking up schedules and printing code require no GPU on this machine.

Ctrl-C discards the current measurement; all earlier measurements are stored, and the next run continues from there. A second Ctrl-C stops at \
once. Other commands stop at the first, leave no unfinished file, and print the files that they wrote.

Exit codes: 0 done; 1 failure, such as a database or snapshot that is damaged, in use, or lacks the requested schedule; 2 bad usage, such as a \
path that does not exist or has another kind of file; 130 interrupted by Ctrl-C.";

pub(super) const TASKS: &str = "\
Examples:
  autotune tasks resnet18
  autotune tasks model.onnx --shape image=1x3x480x640
  autotune tasks resnet50 --target cuda:sm_90        schedule spaces of a GPU, present or not";

pub(super) const BEST: &str = "\
Examples:
  autotune best matmul:m=512,n=512,k=512
  autotune best matmul:m=512,n=512,k=512 --db tuned.snapshot
  autotune best conv2d:c=64,h=56,w=56,o=64,k=3,p=1 --target cuda:sm_90";

pub(super) const LOG_EXPORT: &str = "\
Examples:
  autotune log export tuned.jsonl
  autotune log export - --db tuning.db | gzip > tuned.jsonl.gz
  autotune log export saved.jsonl --salvage          the readable part of a damaged database";

pub(super) const LOG_IMPORT: &str = "\
Examples:
  autotune log import tuned.jsonl
  gunzip -c tuned.jsonl.gz | autotune log import - --db tuning.db";

pub(super) const BENCH: &str = "\
Examples:
  autotune bench resnet18                            every task: best schedule against the default
  autotune bench resnet18 --profile                  the network, step by step
  autotune bench matmul:m=512,n=512,k=512 --threads 1 --json -";

pub(super) const SHOW: &str = "\
Examples:
  autotune show matmul:m=512,n=512,k=512             loop nest and machine code
  autotune show conv2d:c=64,h=56,w=56,o=64,k=3,p=1 --backend c
  autotune show matmul:m=512,n=512,k=512,dtype=bf16 --target cuda:sm_80";

pub(super) const SNAPSHOT_WRITE: &str = "\
Examples:
  autotune snapshot write tuned.snapshot                     all tuned schedules
  autotune snapshot write tuned.snapshot --target cpu        for this machine's CPU
  autotune snapshot write h100.snapshot --target cuda:sm_90 --db tuning.db

For a machine without schedules of its own, a lookup in the snapshot returns schedules tuned on the same CPU model, else on the same family, \
else on the same instruction set (for a GPU: compute capability), for the same number of threads, and reports that origin.";

pub(super) const SNAPSHOT_CHECK: &str = "\
Examples:
  autotune snapshot check tuned.snapshot
  autotune best matmul:m=512,n=512,k=512 --db tuned.snapshot       look up a schedule in it";

/// Returns [`EXAMPLES`] with the names of all networks, and for every operator an example workload
/// and its fields.
pub(super) fn examples() -> String {
    let line = |kind: &OperatorKind| format!("  {}\n      {}\n", kind.example, kind.fields);
    let examples = EXAMPLES.replace("{networks}", &autotune_network::zoo::NAMES.join(", "));
    examples.replace("{operators}", &operators().into_iter().map(line).collect::<String>())
}
