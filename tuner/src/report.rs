//! How a run went, as data.

use autotune_db::Phase;
use autotune_measure::Load;
use autotune_measure::load::DISTURBED;
use autotune_schedules::Config;
use autotune_workloads::Workload;
use serde::Serialize;

use crate::time::TimeShares;

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The trials are used up.
    Trials,
    /// The time is used up.
    TimeBudget,
    /// No task gains any more, or every config was measured.
    Plateau,
    /// It was cancelled.
    Cancelled,
}

/// Why a task gets no more trials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retired {
    /// Every config of its space was measured.
    Exhausted,
    /// Every candidate of its first batch failed: the most frequent causes, one a line.
    Failing(String),
}

/// A step of the curve of what was found against time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Wall-clock seconds since the run began.
    pub elapsed_secs: f64,
    /// Trials of this run so far.
    pub trials: usize,
    /// Sum over the tasks of the best run time so far, as the search measured it, times the
    /// occurrences in the network.
    pub network_secs: f64,
}

/// What the times of a task are worth, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// Timed in turns with its rivals, while nothing else had much of the machine.
    Raced,
    /// Timed in turns, while others had so much of the machine that times may be off by more than a
    /// tenth.
    Disturbed,
    /// Timed once, in a search: of many such times the fastest is also a lucky one.
    Once,
}

impl Timing {
    /// What a time is worth that was measured in a phase, others having had a share of the machine
    /// ([`Load::taken`]).
    pub fn of(phase: Phase, taken: f64) -> Self {
        match phase {
            Phase::Search => Self::Once,
            Phase::Race { .. } => Self::in_turns(taken),
        }
    }

    /// What times of a moment are worth in which others had so much of the machine, if that is
    /// known.
    pub fn beside(load: Option<Load>) -> Self {
        Self::in_turns(load.map_or(0.0, |load| load.taken))
    }

    fn in_turns(taken: f64) -> Self {
        if taken > DISTURBED { Self::Disturbed } else { Self::Raced }
    }

    /// True if what is printed of it needs no mark.
    pub fn is_reliable(self) -> bool {
        self == Self::Raced
    }
}

/// How much others had of the machine during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Disturbance {
    /// What other programs and guests took; `None` on devices that are not the CPU, and where the
    /// system does not tell.
    pub load: Option<Load>,
    /// How many times slower than when it is quiet the machine was in one trial of ten, by the
    /// kernels that were timed beside them; `None` of few trials.
    pub slowdown: Option<f64>,
}

impl Disturbance {
    /// Slowdown of one trial in ten from which on the machine counts as disturbed.
    const SLOW: f64 = 1.25;

    /// True if it is to be told.
    pub fn is_notable(&self) -> bool {
        self.load.is_some_and(|load| load.is_disturbing())
            || self.slowdown.is_some_and(|slowdown| slowdown > Self::SLOW)
    }
}

/// What a run found for one task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskReport {
    /// The task's name in its network.
    #[serde(skip)]
    pub name: String,
    /// What it computes.
    pub workload: Workload,
    /// Occurrences in the network.
    pub count: usize,
    /// Measurements, those of earlier runs included, races not.
    pub trials: usize,
    /// Those without a run time.
    pub failed_trials: usize,
    /// What both run times are worth.
    pub timing: Timing,
    /// Run time of the default schedule, as this run measured it.
    pub default_secs: Option<f64>,
    /// Run time of the best schedule, as this run measured it.
    pub best_secs: Option<f64>,
    /// Throughput of the best schedule, operations of the direct algorithm counted.
    pub gflops: Option<f64>,
    /// The roofline's run time over that of the best schedule: every operation of its algorithm at
    /// the full speed of its element type, or every operand moved once, whichever takes longer
    /// (Williams et al., 2009). Beyond 1 where a kernel skips the taps in the padding, which count
    /// as operations.
    pub roofline_fraction: Option<f64>,
    /// The same for the operations of the direct algorithm: beyond 1 where another algorithm does
    /// fewer.
    pub direct_roofline_fraction: Option<f64>,
    /// Deviation of the best schedule's output from the reference, over the reference's largest
    /// magnitude.
    pub max_rel_error: Option<f64>,
    /// How the best schedule was timed: [`autotune_measurement::RunSecs::graph_runs`].
    pub graph_runs: Option<usize>,
    /// The best schedule.
    pub config: Option<Config>,
    /// Why the task got no more trials.
    #[serde(skip)]
    pub retired: Option<Retired>,
}

impl TaskReport {
    /// How many times faster the best schedule is than the default; what the ratio is worth,
    /// [`TaskReport::timing`] says.
    pub fn speed_up(&self) -> Option<f64> {
        Some(self.default_secs? / self.best_secs?)
    }
}

/// How well the model ranks configs it has not seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranking {
    /// Measured configs that the model was judged on, in tasks with at least two of them.
    pub samples: usize,
    /// Share of pairs of the same task that it puts in the right order.
    pub pairwise_accuracy: f64,
    /// Share of the task's fastest fifth that it puts among its own fastest fifth.
    pub top_recall: f64,
}

/// How a tuning run went. As JSON it is what `autotune --json` writes; times in seconds, `null`
/// where there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Key of the target.
    pub target: String,
    /// One for each task, in the order given.
    pub tasks: Vec<TaskReport>,
    /// Wall-clock time of the run.
    pub tuning_secs: f64,
    /// Trials of this run.
    pub new_trials: usize,
    /// Trials per second of search, the final race left out; `None` if there were none.
    pub trials_per_sec: Option<f64>,
    /// Where the time went.
    #[serde(rename = "time")]
    pub shares: TimeShares,
    /// What others had of the machine.
    pub disturbance: Disturbance,
    /// A point for every improvement, from the first at which something ran of every task.
    pub curve: Vec<CurvePoint>,
    /// How well the model ranks, if there was one.
    #[serde(skip)]
    pub ranking: Option<Ranking>,
    /// Why the search ended.
    #[serde(skip)]
    pub stop: Stop,
}

impl Report {
    /// True if there are tasks, and nothing ran of any.
    pub fn found_nothing(&self) -> bool {
        !self.tasks.is_empty() && self.tasks.iter().all(|task| task.best_secs.is_none())
    }

    /// Number of tasks on a CUDA device whose best schedule could not be timed as a graph of runs.
    pub fn timed_alone(&self) -> usize {
        let is_cuda = self.target.starts_with("cuda");
        self.tasks.iter().filter(|task| is_cuda && task.graph_runs == Some(0)).count()
    }
}

/// What measuring winners again showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// Key of the target.
    pub target: String,
    /// One for each task that was measured before the run was cancelled, if it was.
    pub tasks: Vec<TaskReport>,
    /// Wall-clock time of the run.
    pub tuning_secs: f64,
    /// What others had of the machine.
    pub disturbance: Disturbance,
}
