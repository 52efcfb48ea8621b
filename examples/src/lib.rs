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
//! | `plot_curve` | the best network time so far against tuning seconds, as an SVG |
//!
//! Run one with `cargo run --release -p autotune-examples --example tune_conv2d`.
//!
//! Candidates run in a worker process: a program that calls [`autotune::serve_if_worker`] first in `main` is its own.

pub mod test_bed;

use autotune_ir::Target;
use autotune_measure::{MeasureOptions, TimingOptions, WorkerMeasurer};

/// A measurer for a target with this very program as its worker.
pub fn measurer(target: &Target) -> anyhow::Result<WorkerMeasurer> {
    let timing = TimingOptions::for_target(target);
    Ok(WorkerMeasurer::with(autotune::worker_command()?, MeasureOptions { timing, ..MeasureOptions::default() })?)
}

/// The middle value, or the mean of the two in the middle; no number if there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => (values[len / 2 - 1] + values[len / 2]) / 2.0,
    }
}
