//! The tuning loop.

use std::ops::ControlFlow;
use std::time::Instant;

use autotune_cost_model::ModelError;
use autotune_db::{DbError, Phase, TuningDb};
use autotune_measure::{Candidate, Ceilings, MeasureError, Measurement, Measurer, failure_summary};
use autotune_schedules::{Config, Target};
use thiserror::Error;

use crate::dtype_check::{UnsupportedDType, check_dtypes};
use crate::learner::Learner;
use crate::network::Task;
use crate::observer::{Event, Observer};
use crate::options::TuneOptions;
use crate::race::{RACERS, Recorder, Standing, is_settled, race};
use crate::report::{CurvePoint, Report, Stop, TaskReport, TimeShares};
use crate::scheduler::{batch_size, next_task};
use crate::search::SearchKind;
use crate::task::{Retired, TaskState};

/// Trials per task after which a run without any limit of its own is planned to end.
pub const DEFAULT_TRIALS_PER_TASK: usize = 64;
/// Share of the time budget that the search may use; the rest is for the final race. Where that is not enough, only the best
/// of a task races against its default.
const SEARCH_SHARE: f64 = 0.9;

/// Why a run cannot go on. Everything measured before is in the database.
#[derive(Debug, Error)]
pub enum TuneError {
    /// The target has no kernels for a workload's element type.
    #[error(transparent)]
    DType(#[from] UnsupportedDType),
    /// The measuring infrastructure is broken.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The database cannot be read or written.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The cost model cannot be fitted.
    #[error("the cost model cannot be fitted: {0}")]
    Model(#[from] ModelError),
}

/// Tunes `tasks` for `target` until the trials or the time are used up or the run is cancelled, and without either limit until no
/// task gains any more; then races the best few of each task against its default.
///
/// Every measurement is appended to `db` as it comes: an interrupted run loses nothing, a killed one a quarter of a second. Records that are in `db`
/// already count as trials, are not measured again, and teach the model, as do those of other workloads on the same target.
pub fn tune(
    tasks: &[Task],
    target: &Target,
    options: &TuneOptions,
    measurer: &mut dyn Measurer,
    db: &TuningDb,
    observer: &mut dyn Observer,
) -> Result<Report, TuneError> {
    check_dtypes(&tasks.iter().map(|task| task.workload).collect::<Vec<_>>(), target)?;
    let mut session = Session::resume(tasks, target, options, measurer, db, observer)?;
    let stop = loop {
        if let Some(stop) = session.limit_reached() {
            break stop;
        }
        let Some(task) = session.next_task() else {
            break Stop::Plateau;
        };
        let batch = session.propose(task);
        if batch.is_empty() {
            session.retire(task, Retired::Exhausted);
            continue;
        }
        let results = session.measure(task, batch)?;
        session.learn(task, &results)?;
    };
    session.finish(stop)
}

struct Session<'a> {
    target: &'a Target,
    options: &'a TuneOptions,
    measurer: &'a mut dyn Measurer,
    recorder: Recorder<'a>,
    observer: &'a mut dyn Observer,
    tasks: Vec<TaskState>,
    first_cost: Vec<f64>,
    learner: Learner,
    batch: usize,
    start: Instant,
    shares: TimeShares,
    curve: Vec<CurvePoint>,
}

impl<'a> Session<'a> {
    /// Takes in what the database knows of the target.
    fn resume(
        tasks: &[Task],
        target: &'a Target,
        options: &'a TuneOptions,
        measurer: &'a mut dyn Measurer,
        db: &'a TuningDb,
        observer: &'a mut dyn Observer,
    ) -> Result<Self, TuneError> {
        let start = Instant::now();
        let mut learner = Learner::new(target.clone());
        let floor = |task: &Task| {
            let speed = |c: Ceilings| c.dtype_flops_per_sec(task.workload.dtype);
            options.ceilings.map_or(0.0, |c| task.workload.flops() / speed(c))
        };
        let mut states = Vec::new();
        for task in tasks {
            let records = db.query(&task.workload, &target.key())?;
            states.push(TaskState::new(task.clone(), target, options.search, options.seed, floor(task), &records));
        }
        if options.search == SearchKind::Model {
            learner.tell_records(&db.query_target(&target.key())?);
            learner.refit()?;
        }
        let resumed = states.iter().map(|s| s.resumed).collect();
        observer.event(&Event::Started { tasks, resumed, trials: options.trials });
        let planned = options.trials.unwrap_or(DEFAULT_TRIALS_PER_TASK * tasks.len());
        Ok(Self {
            target,
            options,
            measurer,
            recorder: Recorder::new(db, target, options),
            observer,
            first_cost: tasks.iter().map(|t| t.weight() * t.workload.flops()).collect(),
            tasks: states,
            learner,
            batch: batch_size(planned, tasks.len()),
            start,
            shares: TimeShares { start_secs: start.elapsed().as_secs_f64(), ..TimeShares::default() },
            curve: Vec::new(),
        })
    }

    fn trials(&self) -> usize {
        self.tasks.iter().map(TaskState::trials).sum()
    }

    fn out_of_time(&self) -> bool {
        self.options.time_budget.is_some_and(|budget| self.start.elapsed() > budget.mul_f64(SEARCH_SHARE))
    }

    /// The limit that ends the search now, if one does.
    fn limit_reached(&self) -> Option<Stop> {
        if self.options.cancel.is_cancelled() {
            Some(Stop::Cancelled)
        } else if self.options.trials.is_some_and(|trials| self.trials() >= trials) {
            Some(Stop::Trials)
        } else if self.out_of_time() {
            Some(Stop::TimeBudget)
        } else {
            None
        }
    }

    /// The task with the most to gain. Who gives trials or time gets them used; without any limit, plateaus end the run.
    fn next_task(&self) -> Option<usize> {
        let progress: Vec<_> = self.tasks.iter().map(|t| &t.progress).collect();
        let limited = self.options.trials.is_some() || self.options.time_budget.is_some();
        next_task(&progress, &self.first_cost, self.batch, limited)
    }

    /// The next batch of a task, within the trials that are left.
    fn propose(&mut self, task: usize) -> Vec<Config> {
        let start = Instant::now();
        let left = self.options.trials.map_or(self.batch, |trials| trials.saturating_sub(self.trials()));
        let n = self.batch.min(left);
        let state = &mut self.tasks[task];
        let workload = state.task.workload;
        let learner = &mut self.learner;
        let explore = learner.explore_share();
        let batch = state.ask(n, &mut |configs: &[Config]| learner.score(&workload, configs), explore);
        self.shares.propose_secs += start.elapsed().as_secs_f64();
        batch
    }

    /// Measures a batch; each result is appended to the database as it comes. Fewer results than configs if the run is
    /// cancelled or out of time.
    fn measure(&mut self, task: usize, batch: Vec<Config>) -> Result<Vec<(Config, Measurement)>, TuneError> {
        let start = Instant::now();
        let workload = self.tasks[task].task.workload;
        let candidate = |config: &Config| Candidate { workload, target: self.target.clone(), config: config.clone() };
        let candidates: Vec<Candidate> = batch.iter().map(candidate).collect();
        let deadline = self.options.time_budget.map(|budget| self.start + budget.mul_f64(SEARCH_SHARE));
        let mut best_secs = self.tasks[task].progress.best_secs();
        let mut results: Vec<(Config, Measurement)> = Vec::new();
        let mut appended = Ok(());
        let mut record_secs = 0.0;
        self.measurer.measure(&candidates, &mut |i, measurement| {
            let record_start = Instant::now();
            appended = self.recorder.append(&candidates[i], &measurement, Phase::Search);
            record_secs += record_start.elapsed().as_secs_f64();
            best_secs = best_secs.min(measurement.run_secs().unwrap_or(f64::INFINITY));
            self.observer.event(&Event::Measured { task, measurement: &measurement, best_secs });
            results.push((candidates[i].config.clone(), measurement));
            let late = deadline.is_some_and(|deadline| Instant::now() > deadline);
            if appended.is_err() || late || self.options.cancel.is_cancelled() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        appended?;
        self.shares.measured(start.elapsed().as_secs_f64(), record_secs, results.iter().map(|(_, m)| m));
        Ok(results)
    }

    /// Hands results to the searcher and the model. A task of which nothing has run retires.
    fn learn(&mut self, task: usize, results: &[(Config, Measurement)]) -> Result<(), TuneError> {
        let start = Instant::now();
        self.tasks[task].tell(results);
        if !self.tasks[task].progress.best_secs().is_finite() && !results.is_empty() {
            let measurements: Vec<Measurement> = results.iter().map(|(_, m)| m.clone()).collect();
            self.retire(task, Retired::Failing(failure_summary(&measurements)));
        }
        if self.options.search == SearchKind::Model {
            let workload = self.tasks[task].task.workload;
            self.learner.tell(&workload, results);
            self.learner.refit()?;
        }
        self.shares.fit_secs += start.elapsed().as_secs_f64();
        self.note_progress();
        Ok(())
    }

    /// Adds a point to the curve if something got better.
    fn note_progress(&mut self) {
        let secs = |task: &TaskState| task.task.weight() * task.progress.best_secs();
        let network_secs: f64 = self.tasks.iter().map(secs).sum();
        let before = self.curve.last().map_or(f64::INFINITY, |point| point.network_secs);
        if network_secs < before {
            let elapsed_secs = self.start.elapsed().as_secs_f64();
            self.curve.push(CurvePoint { elapsed_secs, trials: self.new_trials(), network_secs });
        }
    }

    /// Trials of this run.
    fn new_trials(&self) -> usize {
        self.tasks.iter().map(|task| task.trials() - task.resumed).sum()
    }

    fn retire(&mut self, task: usize, why: Retired) {
        self.observer.event(&Event::Retired { task, why: &why });
        self.tasks[task].retire(why);
    }

    /// Races the best few of each task, unless the run is cancelled, and tells how it all went.
    fn finish(mut self, stop: Stop) -> Result<Report, TuneError> {
        let start = Instant::now();
        self.recorder.flush()?;
        let mut reports = Vec::new();
        let left = self.options.time_budget.map(|budget| budget.saturating_sub(self.start.elapsed()));
        for (task, state) in self.tasks.iter().enumerate() {
            let idle = self.options.cancel.is_cancelled() || matches!(state.retired, Some(Retired::Failing(_)));
            let standing = if idle || is_settled(&self.recorder, &state.task.workload)? {
                Standing::of(&self.recorder, &state.space)?
            } else {
                self.observer.event(&Event::Racing { task });
                let share = (task + 1) as f64 / self.tasks.len() as f64;
                let late = left.is_some_and(|left| start.elapsed() > left.mul_f64(share));
                race(&self.recorder, &state.space, if late { 0 } else { RACERS }, self.measurer)?
            };
            reports.push(TaskReport {
                trials: state.trials(),
                failed_trials: state.failed,
                retired: state.retired.clone(),
                ..TaskReport::new(&state.task, standing, self.options.ceilings)
            });
        }
        self.shares.race_secs = start.elapsed().as_secs_f64();
        Ok(Report {
            target: self.target.key(),
            tasks: reports,
            ranking: self.learner.ranking()?,
            tuning_time: self.start.elapsed(),
            new_trials: self.new_trials(),
            curve: std::mem::take(&mut self.curve),
            shares: self.shares,
            stop,
        })
    }
}
