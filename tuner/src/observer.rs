//! Progress events of a run.

use autotune_measure::MeasureError;
use autotune_measurement::Measurement;

use crate::network::Task;
use crate::report::Retired;

/// Event during a run. Tasks are identified by their position.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Event<'a> {
    /// The run starts with these tasks.
    Started {
        tasks: &'a [Task],
        /// Trials of earlier runs, per task.
        resumed: Vec<usize>,
        /// Total number of trials at the end of the run, including those of earlier runs; `None` if
        /// there is no limit.
        trials: Option<usize>,
    },
    /// A candidate was measured, and its record is in the database.
    Measured {
        task: usize,
        measurement: &'a Measurement,
        /// Best seconds per run of the task so far; infinite if no candidate ran.
        best_secs: f64,
    },
    /// A task gets no more trials.
    Retired { task: usize, why: &'a Retired },
    /// The best schedules of a task are about to be raced against its default.
    Racing { task: usize },
    /// The race of a task failed. Its times, if any, were measured without interleaving.
    RaceFailed { task: usize, why: &'a MeasureError },
}

/// Receiver of progress events of a run.
pub trait Observer {
    /// Handles one event of the run.
    fn event(&mut self, event: &Event<'_>);
}

/// Observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _event: &Event<'_>) {}
}
