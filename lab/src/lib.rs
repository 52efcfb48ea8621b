//! Code that the experiments share. Each experiment is a file or a folder next to this crate's
//! manifest:
//!
//! | experiment | result |
//! |---|---|
//! | `compare_search` | learned search and random search at equal trials |
//! | `compare_databases` | winners of several searches, raced against each other |
//! | `compare_peers` | kernels of this and other libraries, interleaved (`peers/README.md`) |
//! | `record_test_bed` | recorded times of many schedules, for experiments without the machine |
//! | `pretrain` | the models that ship, trained on such a record, and their quality |
//! | `search_quality` | schedules and searches on workloads that no model was trained on |
//! | `paper_figures` | the experiments of the AutoTVM paper on such a record: CSV, SVG and a page |
//! | `bench_snapshot` | look-ups in a snapshot of a million schedules, by 64 processes |
//! | `gpu_estimates` | estimates of GPU kernels next to the measurements of a tuning log |
//! | `gpu_kernels` | machine code and estimates of default GPU kernels, for `gpu/sass.py` |
//! | `fleet_scale` | up to 1,000 simulated workers of one tuner: throughput, CPU time, messages |
//! | `timing_parts`, `verify_cost` | the parts of the timing method; the time that proofs take |
//! | `plot_curve`, `plot_networks`, `plot_peers` | figures in SVG, from the results of the others |
//!
//! Run one with `cargo run --release -p autotune-lab --example NAME`. The package is not a default
//! member of the workspace: `cargo test` leaves it out, `cargo test --workspace` runs its
//! tests.
//!
//! Candidates run in a worker process. A program that calls [`autotune::serve_if_worker`] first in
//! `main` serves as its own worker.

pub mod ensemble;
pub mod replay;
pub mod test_bed;

use anyhow::bail;
use autotune_cost_model::XgbParams;
use autotune_ir::Target;
use autotune_measure::{MeasureOptions, TimingOptions, WorkerMeasurer};

/// Clock frequency of an H200 under load in Hz, as shown by nvidia-smi.
pub const H200_HZ: f64 = 1.98e9;

/// Returns this machine's CPU with `threads` threads, by default all, and with the requested
/// instruction set: the machine's own, or `avx2` on a machine that has more. Fails for any other
/// instruction set.
pub fn cpu_target(threads: Option<usize>, isa: Option<&str>) -> anyhow::Result<Target> {
    let target = Target::detect("cpu", threads)?;
    match (isa, target.cpu()) {
        (Some("avx2"), _) => Ok(Target::detect("cpu:avx2", threads)?),
        (Some(isa), Some(cpu)) if cpu.isa.to_string() != isa => bail!("this machine's is {}, not '{isa}'", cpu.isa),
        _ => Ok(target),
    }
}

/// Returns the training parameters of the shipped models, which are larger than models that learn
/// during a search.
pub fn pretraining() -> XgbParams {
    XgbParams { rounds: 300, depth: 6, eta: 0.1, max_bin: 256, ..XgbParams::default() }
}

/// Returns a measurer for a target that runs this program as its worker.
pub fn measurer(target: &Target) -> anyhow::Result<WorkerMeasurer> {
    let timing = TimingOptions::for_target(target);
    Ok(WorkerMeasurer::with(autotune::worker_command()?, MeasureOptions { timing, ..MeasureOptions::default() })?)
}

/// Returns the quantile at `share` (0 to 1) with linear interpolation; NaN for no values.
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = share * values.len().saturating_sub(1) as f64;
    let value = |at: f64| values.get(at as usize).copied().unwrap_or(f64::NAN);
    match at.fract() {
        0.0 => value(at),
        part => value(at.floor()) * (1.0 - part) + value(at.ceil()) * part,
    }
}

/// Returns the geometric mean; NaN for no values.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (count, sum) = values.into_iter().fold((0, 0.0), |(count, sum), value| (count + 1, sum + value.ln()));
    (sum / f64::from(count)).exp()
}

/// Returns the median; NaN for no values.
pub fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}
