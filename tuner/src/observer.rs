//! What a run tells while it goes on.

use autotune_measure::MeasureError;
use autotune_measurement::Measurement;

use crate::network::Task;
use crate::report::Retired;

/// Something that happened during a run. Tasks are named by their position.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Event<'a> {
    /// The run begins.
    Started {
        tasks: &'a [Task],
        /// Trials of earlier runs, per task.
        resumed: Vec<usize>,
        /// Trials in total when the run is over, those of earlier runs included; `None` if there is
        /// no limit.
        trials: Option<usize>,
    },
    /// A candidate was measured and its record is in the database.
    Measured {
        task: usize,
        measurement: &'a Measurement,
        /// The task's best run time so far; infinite if nothing ran.
        best_secs: f64,
    },
    /// A task gets no more trials.
    Retired { task: usize, why: &'a Retired },
    /// The best of a task are about to be raced against its default.
    Racing { task: usize },
    /// The race of a task came to nothing: its times, if it has any, were taken one by one.
    RaceFailed { task: usize, why: &'a MeasureError },
}

/// Follows a run.
pub trait Observer {
    /// Takes note of something that happened.
    fn event(&mut self, event: &Event<'_>);
}

/// Takes note of nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _event: &Event<'_>) {}
}
