//! Results of a task by this run's measurements.

use autotune_db::Phase;
use autotune_measure::Ceilings;
use autotune_measurement::{Measurement, RunSecs};
use autotune_schedules::Config;
use autotune_workloads::Work;

use crate::network::Task;
use crate::report::{TaskReport, Timing};

/// Times of a task's default and best schedule, measured in this run. After a race both are from
/// the last race, so that they are comparable. Records that were only read from a database do not
/// count.
#[derive(Clone, Debug)]
pub(crate) struct TaskBest {
    default_config: Config,
    race: Option<u64>,
    /// Largest share of the threads' time that other programs used during a measurement.
    taken: f64,
    pub(crate) default_secs: Option<f64>,
    pub(crate) best: Option<(Config, RunSecs)>,
}

impl TaskBest {
    pub(crate) fn new(default_config: Config) -> Self {
        Self { default_config, race: None, taken: 0.0, default_secs: None, best: None }
    }

    /// Adds a measurement. The first one of a new race discards all earlier results.
    pub(crate) fn add(&mut self, config: &Config, measurement: &Measurement, phase: Phase) {
        match phase {
            Phase::Race { id } if self.race != Some(id) => {
                *self = Self { race: Some(id), ..Self::new(self.default_config.clone()) };
            }
            Phase::Search if self.race.is_some() => return,
            Phase::Search | Phase::Race { .. } => {}
        }

        let Ok(run) = measurement.outcome else { return };
        self.taken = self.taken.max(measurement.taken);
        if *config == self.default_config {
            self.default_secs = Some(run.run_secs);
        }
        if self.best.as_ref().is_none_or(|(_, best)| run.run_secs < best.run_secs) {
            self.best = Some((config.clone(), run));
        }
    }

    /// Returns the report of the task with 0 trials; the caller sets their number.
    pub(crate) fn into_report(self, task: &Task, ceilings: Option<Ceilings>) -> TaskReport {
        let workload = &task.workload;
        let (config, best) = self.best.unzip();
        let best_secs = best.map(|run| run.run_secs);
        let fraction = |work: Work| Some(ceilings?.min_secs(work, workload.dtype()) / best_secs?);
        let phase = self.race.map_or(Phase::Search, |id| Phase::Race { id });

        TaskReport {
            name: task.name.clone(),
            workload: workload.clone(),
            count: task.count,
            trials: 0,
            failed_trials: 0,
            timing: Timing::of(phase, self.taken),
            default_secs: self.default_secs,
            best_secs,
            gflops: best_secs.map(|secs| workload.flops() / secs / 1e9),
            roofline_fraction: config.as_ref().and_then(|config| fraction(config.work(workload))),
            direct_roofline_fraction: fraction(workload.work()),
            max_rel_error: best.map(|run| run.max_rel_error),
            graph_runs: best.map(|run| run.graph_runs),
            config,
            retired: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use autotune_workloads::Workload;

    use super::*;
    use crate::testing::ran;

    #[test]
    fn the_share_of_the_roofline_is_that_of_the_algorithm_that_runs() {
        let workload: Workload = "conv2d:c=64,h=56,w=56,o=64,k=3,p=1".parse().unwrap();

        // A machine whose memory is never the bottleneck.
        let ceilings = Ceilings {
            core_flops_per_sec: 1e9,
            flops_per_sec: 1e9,
            half_flops_per_sec: 1e9,
            byte_flops_per_sec: 1e9,
            tf32_flops_per_sec: 1e9,
            bytes_per_sec: f64::INFINITY,
            read_bytes_per_sec: [f64::INFINITY; 3],
            cache_bytes: [0.0; 2],
            fork_join_secs: 0.0,
        };
        let report = |sketch: &str| {
            let json = format!(r#"{{"sketch":"{sketch}","knobs":{{"m":"4"}}}}"#);
            let config: Config = serde_json::from_str(&json).unwrap();
            let mut standing = TaskBest::new(config.clone());
            standing.add(&config, &ran(1.0), Phase::Search);
            standing.into_report(&Task { name: "C".into(), workload: workload.clone(), count: 1 }, Some(ceilings))
        };
        let [direct, winograd] = ["direct", "winograd"].map(report);
        assert_eq!(direct.roofline_fraction, direct.direct_roofline_fraction);
        assert_eq!(winograd.direct_roofline_fraction, direct.direct_roofline_fraction);
        // Winograd's algorithm needs 36 multiplications for 16 outputs of 9 taps each.
        assert_eq!(direct.roofline_fraction.unwrap() / winograd.roofline_fraction.unwrap(), 4.0);
    }

    #[test]
    fn times_are_worth_what_was_done_for_them() {
        let task = Task::single("matmul:m=4,n=4,k=4".parse().unwrap());
        let config = Config { sketch: "direct".into(), knobs: Default::default() };
        let mut standing = TaskBest::new(config.clone());
        let mut timing = |phase, taken| {
            standing.add(&config, &Measurement { taken, ..ran(1.0) }, phase);
            standing.clone().into_report(&task, None).timing
        };
        assert_eq!(timing(Phase::Search, 0.0), Timing::Once);
        assert_eq!(timing(Phase::Race { id: 1 }, 0.05), Timing::Raced);
        assert_eq!(timing(Phase::Race { id: 2 }, 0.3), Timing::Disturbed);
        assert_eq!(timing(Phase::Race { id: 3 }, 0.05), Timing::Raced, "the last race counts");
    }
}
