//! Report of a run, as data.

use autotune_db::Phase;
use autotune_measure::Load;
use autotune_measure::load::DISTURBED;
use autotune_schedules::Config;
use autotune_workloads::Workload;
use serde::Serialize;

use crate::time::TimeShares;

/// Reason that a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The trial limit was reached.
    Trials,
    /// The time budget was used up.
    TimeBudget,
    /// No task is expected to gain more, or every config was measured.
    Plateau,
    /// The caller cancelled the run.
    Cancelled,
}

/// Reason that a task gets no more trials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retired {
    /// Every config of its space was measured.
    Exhausted,
    /// Every candidate of its first batch failed; the most frequent causes, one per line.
    Failing(String),
}

/// Point of the curve of best time against tuning time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Wall-clock seconds since the run began.
    pub elapsed_secs: f64,
    /// Number of trials of this run so far.
    pub trials: usize,
    /// Sum over the tasks of the best seconds per run so far, as the search measured them, times
    /// the occurrences in the network.
    pub network_secs: f64,
}

/// Reliability of a task's times, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// Measured with interleaving, on a machine with little other load.
    Raced,
    /// Measured with interleaving, but other programs used so much of the machine that times may be
    /// off by more than a tenth.
    Disturbed,
    /// Measured once, by a search. The fastest of many such times is biased by luck.
    Once,
}

impl Timing {
    /// Returns the reliability of a time measured in a phase, while other programs used the share
    /// `taken` of the threads' time ([`Load::taken`]).
    pub fn of(phase: Phase, taken: f64) -> Self {
        match phase {
            Phase::Search => Self::Once,
            Phase::Race { .. } => Self::interleaved(taken),
        }
    }

    /// Returns the reliability of interleaved times measured under a load; an unknown load counts
    /// as none.
    pub fn under_load(load: Option<Load>) -> Self {
        Self::interleaved(load.map_or(0.0, |load| load.taken))
    }

    fn interleaved(taken: f64) -> Self {
        if taken > DISTURBED { Self::Disturbed } else { Self::Raced }
    }

    /// Returns true if the time can be printed without a warning mark.
    pub fn is_reliable(self) -> bool {
        self == Self::Raced
    }
}

/// Disturbance of the machine during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Disturbance {
    /// Load of other programs and guests; `None` on GPUs, and if the system does not report it.
    pub load: Option<Load>,
    /// Slowdown relative to a quiet machine that one trial in ten exceeded, by the reference
    /// kernels; `None` if there are too few trials.
    pub slowdown: Option<f64>,
}

impl Disturbance {
    /// Slowdown of one trial in ten above which the machine counts as disturbed.
    const SLOW: f64 = 1.25;

    /// Returns true if the user should be told.
    pub fn is_notable(&self) -> bool {
        self.load.is_some_and(|load| load.is_disturbing())
            || self.slowdown.is_some_and(|slowdown| slowdown > Self::SLOW)
    }
}

/// Results of a run for one task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskReport {
    /// Name of the task in its network.
    #[serde(skip)]
    pub name: String,
    /// Workload that the task computes.
    pub workload: Workload,
    /// Occurrences in the network.
    pub count: usize,
    /// Number of trials, including those of earlier runs but not races.
    pub trials: usize,
    /// Number of trials without a run time.
    pub failed_trials: usize,
    /// Reliability of both times.
    pub timing: Timing,
    /// Seconds per run of the default schedule, as this run measured it.
    pub default_secs: Option<f64>,
    /// Seconds per run of the best schedule, as this run measured it.
    pub best_secs: Option<f64>,
    /// Throughput of the best schedule in GFLOP/s, counting the operations of the direct algorithm.
    pub gflops: Option<f64>,
    /// Fraction of the roofline (Williams et al., 2009) that the best schedule reaches: the
    /// roofline's time over its time. The roofline's time is that of all operations of its
    /// algorithm at the peak rate of the element type, or of moving every operand once, whichever
    /// is longer. Above 1 if a kernel skips operations on padding, which are counted.
    pub roofline_fraction: Option<f64>,
    /// Fraction of the roofline of the direct algorithm; above 1 if another algorithm needs fewer
    /// operations.
    pub direct_roofline_fraction: Option<f64>,
    /// Deviation of the best schedule's output from the reference, over the reference's largest
    /// magnitude.
    pub max_rel_error: Option<f64>,
    /// Runs in each timed CUDA graph of the best schedule, see
    /// [`autotune_measurement::RunSecs::graph_runs`].
    pub graph_runs: Option<usize>,
    /// Best schedule; `None` if none ran.
    pub config: Option<Config>,
    /// Reason that the task got no more trials.
    #[serde(skip)]
    pub retired: Option<Retired>,
}

impl TaskReport {
    /// Returns the speed-up of the best schedule over the default; [`TaskReport::timing`] tells how
    /// reliable it is.
    pub fn speed_up(&self) -> Option<f64> {
        Some(self.default_secs? / self.best_secs?)
    }
}

/// Accuracy of the model's ranking on held-out configs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranking {
    /// Number of held-out configs, in tasks with at least two of them.
    pub samples: usize,
    /// Share of pairs of the same task that are ordered correctly.
    pub pairwise_accuracy: f64,
    /// Share of a task's fastest fifth that is in the predicted fastest fifth.
    pub top_recall: f64,
}

/// Report of a tuning run. Its JSON form is the output of `autotune --json`: times in seconds,
/// `null` if unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Key of the target.
    pub target: String,
    /// One report per task, in the order given.
    pub tasks: Vec<TaskReport>,
    /// Wall-clock seconds of the run.
    pub tuning_secs: f64,
    /// Number of trials of this run.
    pub new_trials: usize,
    /// Trials per second of search, without the final race; `None` if there were none.
    pub trials_per_sec: Option<f64>,
    /// Distribution of the wall-clock time.
    #[serde(rename = "time")]
    pub shares: TimeShares,
    /// Disturbance by other programs and guests.
    pub disturbance: Disturbance,
    /// One point per improvement, from the first at which every task has a time.
    pub curve: Vec<CurvePoint>,
    /// Accuracy of the model's ranking, if there was a model.
    #[serde(skip)]
    pub ranking: Option<Ranking>,
    /// Reason that the search ended.
    #[serde(skip)]
    pub stop: Stop,
}

impl Report {
    /// Returns true if there are tasks, and no candidate of any task ran.
    pub fn found_nothing(&self) -> bool {
        !self.tasks.is_empty() && self.tasks.iter().all(|task| task.best_secs.is_none())
    }

    /// Returns the number of tasks on a CUDA device whose best schedule could not be timed as a
    /// graph of runs.
    pub fn timed_alone(&self) -> usize {
        let is_cuda = self.target.starts_with("cuda");
        self.tasks.iter().filter(|task| is_cuda && task.graph_runs == Some(0)).count()
    }
}

/// Results of measuring the best schedules again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// Key of the target.
    pub target: String,
    /// One report for each task that was measured before the run ended or was cancelled.
    pub tasks: Vec<TaskReport>,
    /// Wall-clock time of the run.
    pub tuning_secs: f64,
    /// Disturbance by other programs and guests.
    pub disturbance: Disturbance,
}
