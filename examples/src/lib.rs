//! What the examples share. Each is a file beside this crate's manifest:
//!
//! | example | what it shows |
//! |---|---|
//! | `tune_conv2d` | tuning one convolution through the library |
//! | `query_database` | what a compiler does at deploy time: look up the best schedule, build it, run it |
//! | `custom_search` | a searcher and a cost model from outside, in one file, that keep the contracts |
//! | `custom_operator` | an operator from outside, in one file: registered, tuned, deployed |
//! | `compare_search` | the learned search against random search at equal trials |
//! | `compare_databases` | what several searches found, raced against each other |
//! | `compare_peers` | tuned kernels beside other libraries' kernels, interleaved (`peers/README.md`) |
//! | `record_test_bed` | records what schedules of many workloads take, for experiments without the machine |
//! | `bench_snapshot` | what a snapshot of a million schedules takes, and 64 processes that read while it is replaced |
//! | `paper_figures` | the experiments of the AutoTVM paper on such a record: how searches, models and features compare, as CSV, SVG and a page |
//! | `plot_curve` | the best network time so far against tuning seconds, as an SVG |
//!
//! Run one with `cargo run --release -p autotune-examples --example tune_conv2d`.
//!
//! Candidates run in a worker process: a program that calls [`autotune::serve_if_worker`] first in
//! `main` is its own.

pub mod ensemble;
pub mod gru;
pub mod replay;
pub mod test_bed;

use anyhow::bail;
use autotune_cost_model::XgbParams;
use autotune_ir::Target;
use autotune_measure::{MeasureOptions, TimingOptions, WorkerMeasurer};

/// This machine's processor with `threads` threads, all if nothing is said, and with the
/// instruction set that is asked for: its own, or `avx2` on a machine that has more than that,
/// whose kernels then do without the rest.
pub fn cpu_target(threads: Option<usize>, isa: Option<&str>) -> anyhow::Result<Target> {
    let target = Target::detect("cpu", threads)?;
    match (isa, target.cpu()) {
        (Some("avx2"), _) => Ok(Target::detect("cpu:avx2", threads)?),
        (Some(isa), Some(cpu)) if cpu.isa.to_string() != isa => bail!("this machine's is {}, not '{isa}'", cpu.isa),
        _ => Ok(target),
    }
}

/// How a model learns that ships: more than one that learns while measuring.
pub fn pretraining() -> XgbParams {
    XgbParams { rounds: 300, depth: 6, eta: 0.1, max_bin: 256, ..XgbParams::default() }
}

/// A measurer for a target with this very program as its worker.
pub fn measurer(target: &Target) -> anyhow::Result<WorkerMeasurer> {
    let timing = TimingOptions::for_target(target);
    Ok(WorkerMeasurer::with(autotune::worker_command()?, MeasureOptions { timing, ..MeasureOptions::default() })?)
}

/// The value below which a share of the others lie, from 0 to 1, between two of them as far as it
/// is; no number if there are none.
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = share * values.len().saturating_sub(1) as f64;
    let value = |at: f64| values.get(at as usize).copied().unwrap_or(f64::NAN);
    match at.fract() {
        0.0 => value(at),
        part => value(at.floor()) * (1.0 - part) + value(at.ceil()) * part,
    }
}

/// The mean of the logarithms, as a number; none if there are no values.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (count, sum) = values.into_iter().fold((0, 0.0), |(count, sum), value| (count + 1, sum + value.ln()));
    (sum / f64::from(count)).exp()
}

/// The middle value, or the mean of the two in the middle; no number if there are none.
pub fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}
