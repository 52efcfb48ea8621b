//! How a run went, as data.

use std::time::Instant;

use autotune_measure::{Ceilings, Measurement};
use autotune_schedules::workload::Work;
use autotune_schedules::{Config, Workload};
use serde::Serialize;

use crate::network::Task;
use crate::planner::Planned;
use crate::standing::Standing;
use crate::task::Retired;

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

/// Where the wall-clock time of a run went, in seconds. Their sum is no more than the whole: what is done while the device runs counts
/// only as far as the device waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeShares {
    /// Reading the database, and fitting the model on what it knows.
    pub start_secs: f64,
    /// Waiting for proposals: search, lowering, features, predictions.
    pub propose_secs: f64,
    /// Waiting for builds, and at the end for those that came too late.
    pub build_secs: f64,
    /// Runs of kernels, in checks and for timing: [`autotune_measure::RunSecs::kernel_secs`].
    pub run_secs: f64,
    /// What else measuring takes: loading kernels, packing weights ahead of time, comparing outputs, talking to the worker; failed
    /// candidates too.
    pub trial_secs: f64,
    /// Writing results to the database.
    pub record_secs: f64,
    /// Waiting for the model to learn: features of the results, fitting.
    pub fit_secs: f64,
    /// The final race.
    pub race_secs: f64,
}

impl TimeShares {
    /// Takes in that the device waited from one moment to another for what was planned then.
    pub(crate) fn waited(&mut self, from: Instant, to: Instant, planned: Option<Planned>) {
        let within =
            |start: Instant, end: Instant| end.min(to).saturating_duration_since(start.max(from)).as_secs_f64();
        let fit_secs = planned.map_or(0.0, |planned| within(planned.begun, planned.learnt));
        let propose_secs = planned.map_or(0.0, |planned| within(planned.learnt, planned.proposed));
        self.fit_secs += fit_secs;
        self.propose_secs += propose_secs;
        self.build_secs += (within(from, to) - fit_secs - propose_secs).max(0.0);
    }

    /// Takes in that a candidate was measured for so long.
    pub(crate) fn measured(&mut self, measure_secs: f64, measurement: &Measurement) {
        let run_secs = measurement.outcome.as_ref().map_or(0.0, |run| run.kernel_secs).min(measure_secs);
        self.run_secs += run_secs;
        self.trial_secs += measure_secs - run_secs;
    }

    /// Seconds of the search, from the first proposal to the last fit.
    pub fn search_secs(&self) -> f64 {
        self.propose_secs + self.build_secs + self.run_secs + self.trial_secs + self.record_secs + self.fit_secs
    }
}

/// A step of the curve of what was found against time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Wall-clock seconds since the run began.
    pub elapsed_secs: f64,
    /// Trials of this run so far.
    pub trials: usize,
    /// Sum over the tasks of the best run time so far, as the search measured it, times the occurrences in the network.
    pub network_secs: f64,
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
    /// Run time of the default schedule, as this run measured it.
    pub default_secs: Option<f64>,
    /// Run time of the best schedule, as this run measured it.
    pub best_secs: Option<f64>,
    /// Throughput of the best schedule, operations of the direct algorithm counted.
    pub gflops: Option<f64>,
    /// The roofline's run time over that of the best schedule: every operation of its algorithm at the full speed of its element type, or
    /// every operand moved once, whichever takes longer (Williams et al., 2009). Beyond 1 where a kernel skips the taps in the padding,
    /// which count as operations.
    pub roofline_fraction: Option<f64>,
    /// The same for the operations of the direct algorithm: beyond 1 where another algorithm does fewer.
    pub direct_roofline_fraction: Option<f64>,
    /// Deviation of the best schedule's output from the reference, over the reference's largest magnitude.
    pub max_rel_error: Option<f64>,
    /// How the best schedule was timed: [`autotune_measure::RunSecs::graph_runs`].
    pub graph_runs: Option<usize>,
    /// The best schedule.
    pub config: Option<Config>,
    /// Why the task got no more trials.
    #[serde(skip)]
    pub retired: Option<Retired>,
}

impl TaskReport {
    /// The report of a task without trials; whoever made some adds them.
    pub(crate) fn new(task: &Task, standing: Standing, ceilings: Option<Ceilings>) -> Self {
        let workload = task.workload;
        let (config, best) = standing.best.unzip();
        let best_secs = best.map(|run| run.run_secs);
        let fraction = |work: Work| Some(ceilings?.min_secs(work, workload.dtype) / best_secs?);
        Self {
            name: task.name.clone(),
            workload,
            count: task.count,
            trials: 0,
            failed_trials: 0,
            default_secs: standing.default_secs,
            best_secs,
            gflops: best_secs.map(|secs| workload.flops() / secs / 1e9),
            roofline_fraction: config.as_ref().and_then(|config| fraction(config.work(&workload))),
            direct_roofline_fraction: fraction(workload.work()),
            max_rel_error: best.map(|run| run.max_rel_error),
            graph_runs: best.map(|run| run.graph_runs),
            config,
            retired: None,
        }
    }

    /// How many times faster the best schedule is than the default.
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

/// How a tuning run went. As JSON it is what `autotune --json` writes; times in seconds, `null` where there is none.
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
    /// True if nothing ran of any task.
    pub fn found_nothing(&self) -> bool {
        self.tasks.iter().all(|task| task.best_secs.is_none())
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use autotune_db::Phase;

    use super::*;

    #[test]
    fn the_share_of_the_roofline_is_that_of_the_algorithm_that_runs() {
        let workload: Workload = "conv2d:c=64,h=56,w=56,o=64,k=3,p=1".parse().unwrap();
        // A machine that only operations keep busy.
        let ceilings = Ceilings {
            core_flops_per_sec: 1e9,
            flops_per_sec: 1e9,
            half_flops_per_sec: 1e9,
            tf32_flops_per_sec: 1e9,
            bytes_per_sec: f64::INFINITY,
            read_bytes_per_sec: [f64::INFINITY; 3],
            cache_bytes: [0.0; 2],
            fork_join_secs: 0.0,
        };
        let report = |sketch: &str| {
            let json = format!(r#"{{"sketch":"{sketch}","knobs":{{"m":"4"}}}}"#);
            let config: Config = serde_json::from_str(&json).unwrap();
            let mut standing = Standing::new(config.clone());
            standing.take_in(&config, &crate::race::tests::ran(1.0), Phase::Search);
            TaskReport::new(&Task { name: "C".into(), workload, count: 1 }, standing, Some(ceilings))
        };
        let [direct, winograd] = ["direct", "winograd"].map(report);
        assert_eq!(direct.roofline_fraction, direct.direct_roofline_fraction);
        assert_eq!(winograd.direct_roofline_fraction, direct.direct_roofline_fraction);
        // 36 multiply-adds for 16 outputs of 9 taps.
        assert_eq!(direct.roofline_fraction.unwrap() / winograd.roofline_fraction.unwrap(), 4.0);
    }

    #[test]
    fn only_what_the_device_waited_for_counts() {
        let start = Instant::now();
        let at = |secs: f64| start + Duration::from_secs_f64(secs);
        let planned = Some(Planned { begun: at(1.0), learnt: at(3.0), proposed: at(4.0) });
        let shares = |from: f64, to: f64, planned| {
            let mut shares = TimeShares::default();
            shares.waited(at(from), at(to), planned);
            [shares.fit_secs, shares.propose_secs, shares.build_secs].map(|secs| (secs * 1e6).round() / 1e6)
        };
        assert_eq!(shares(1.0, 6.0, planned), [2.0, 1.0, 2.0], "planned and built in sequence");
        assert_eq!(shares(2.5, 6.0, planned), [0.5, 1.0, 2.0], "the device ran until 2.5");
        assert_eq!(shares(5.0, 6.0, planned), [0.0, 0.0, 1.0], "it was being built already");
        assert_eq!(shares(0.0, 2.0, planned), [1.0, 0.0, 1.0], "nothing was being planned at first");
        assert_eq!(shares(6.0, 6.0, planned), [0.0; 3], "it was ready");
        assert_eq!(shares(1.0, 2.0, None), [0.0, 0.0, 1.0]);
    }
}
