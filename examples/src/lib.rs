//! What the examples share. Each is a file beside this crate's manifest:
//!
//! | example | what it shows |
//! |---|---|
//! | `tune_conv2d` | tuning one convolution through the library |
//! | `query_database` | what a compiler does at deploy time: look up the best schedule, build it, run it |
//! | `custom_search` | a search loop of one's own on the parts: space, lowering, features, cost model, measurer |
//! | `compare_search` | the learned search against random search at equal trials |
//! | `compare_databases` | what several searches found, raced against each other |
//! | `compare_peers` | tuned kernels beside other libraries' kernels, interleaved (`peers/README.md`) |
//! | `plot_curve` | the best network time so far against tuning seconds, as an SVG |
//!
//! Run one with `cargo run --release -p autotune-examples --example tune_conv2d`.
//!
//! Candidates run in a worker process. A program that has no `autotune` command beside it can be its own worker:
//!
//! ```no_run
//! fn main() -> anyhow::Result<()> {
//!     autotune_examples::serve_if_worker();
//!     let target = autotune_ir::Target::detect("cpu", None)?;
//!     let measurer = autotune_examples::measurer(&target)?;
//! #   drop(measurer);
//!     Ok(())
//! }
//! ```

use autotune_ir::Target;
use autotune_measure::location::{WORKER_ARGUMENT, WorkerCommand};
use autotune_measure::{MeasureOptions, TimingOptions, WorkerMeasurer};

/// Serves a measurer and ends the process if it was started as a worker; call it first in `main`.
pub fn serve_if_worker() {
    if std::env::args().nth(1).as_deref() == Some(WORKER_ARGUMENT) {
        let _ = autotune_measure::worker::serve();
        std::process::exit(0);
    }
}

/// A measurer for a target whose worker is this very program.
pub fn measurer(target: &Target) -> anyhow::Result<WorkerMeasurer> {
    let command = WorkerCommand { program: std::env::current_exe()? };
    let timing = TimingOptions::for_target(target);
    Ok(WorkerMeasurer::with(command, MeasureOptions { timing, ..MeasureOptions::default() })?)
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
