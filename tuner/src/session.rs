//! The tuning loop.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use autotune_cost_model::ModelError;
use autotune_db::{DbError, Phase, TuningDb};
use autotune_measure::{Ceilings, MeasureError, Measurer};
use autotune_schedules::{ScheduleSpace, Target, Workload};
use thiserror::Error;

use crate::dtype_check::{UnsupportedDType, check_dtypes};
use crate::learner::Learner;
use crate::network::Task;
use crate::observer::{Event, Observer};
use crate::options::TuneOptions;
use crate::planner::{Desk, Planner};
use crate::race::{RACERS, Recorder, Standing, is_settled, race};
use crate::report::{CurvePoint, Report, Stop, TaskReport, TimeShares};
use crate::scheduler::batch_size;
use crate::search::SearchKind;
use crate::task::{Retired, TaskState};

/// Trials per task after which a run without any limit of its own is planned to end.
pub const DEFAULT_TRIALS_PER_TASK: usize = 64;

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
/// On a GPU the next batch is proposed and built while the device runs: it comes from what was known until then.
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
    let stop = session.search()?;
    session.finish(stop)
}

struct Session<'a> {
    planner: Planner<'a>,
    target: &'a Target,
    options: &'a TuneOptions,
    measurer: &'a mut dyn Measurer,
    recorder: Recorder<'a>,
    observer: &'a mut dyn Observer,
    /// Best run time of each task.
    best_secs: Vec<f64>,
    new_trials: usize,
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
        let mut states = Vec::new();
        for task in tasks {
            let records = db.query(&task.workload, &target.key())?;
            let space = ScheduleSpace::new(&task.workload, target);
            let floor_secs = options.ceilings.map_or(0.0, |ceilings| floor_secs(&space, &ceilings));
            states.push(TaskState::new(task.clone(), space, options.search, options.seed, floor_secs, &records));
        }
        if options.search == SearchKind::Model {
            let own: Vec<Workload> = tasks.iter().map(|task| task.workload).collect();
            learner.tell_records(&db.query_target(&target.key())?, &own);
            learner.refit()?;
        }
        let resumed = states.iter().map(|s| s.resumed).collect();
        observer.event(&Event::Started { tasks, resumed, trials: options.trials });
        let planned = options.trials.unwrap_or(DEFAULT_TRIALS_PER_TASK * tasks.len());
        let batch = batch_size(planned, tasks.len());
        Ok(Self {
            best_secs: states.iter().map(|state| state.progress.best_secs()).collect(),
            planner: Planner::new(target, options, states, learner, batch, start),
            target,
            options,
            measurer,
            recorder: Recorder::new(db, target, options),
            observer,
            new_trials: 0,
            start,
            shares: TimeShares { start_secs: start.elapsed().as_secs_f64(), ..TimeShares::default() },
            curve: Vec::new(),
        })
    }

    /// Measures what the planner proposes; each result is appended to the database as it comes. Says why it ended.
    fn search(&mut self) -> Result<Stop, TuneError> {
        let desk = Desk::default();
        let Self { planner, measurer, recorder, observer, best_secs, shares, curve, .. } = self;
        let (options, start) = (self.options, self.start);
        let weights: Vec<f64> = planner.tasks.iter().map(|state| state.task.weight()).collect();
        let mut appended = Ok(());
        let mut idle_since = Instant::now();
        measurer.measure_batches(&mut || planner.next_batch(&desk), &mut |_, measurement| {
            let ran = Instant::now();
            let Some(proposal) = desk.papers().proposals.pop_front() else {
                return ControlFlow::Break(());
            };
            let (task, run_time) = (proposal.task, Duration::from_secs_f64(measurement.measure_secs));
            let began = ran.checked_sub(run_time).map_or(idle_since, |began| began.max(idle_since));
            shares.waited(idle_since, began, Some(proposal.planned));
            shares.measured(ran.duration_since(began).as_secs_f64(), &measurement);
            appended = recorder.append(&proposal.candidate, &measurement, Phase::Search);
            self.new_trials += 1;
            best_secs[task] = best_secs[task].min(measurement.run_secs().unwrap_or(f64::INFINITY));
            let network_secs = weights.iter().zip(&*best_secs).map(|(weight, secs)| weight * secs).sum();
            if curve.last().map_or(f64::INFINITY, |point| point.network_secs) > network_secs {
                let elapsed_secs = start.elapsed().as_secs_f64();
                curve.push(CurvePoint { elapsed_secs, trials: self.new_trials, network_secs });
            }
            observer.event(&Event::Measured { task, measurement: &measurement, best_secs: best_secs[task] });
            announce(&desk, &mut **observer);
            desk.papers().results.push((task, proposal.candidate.config, measurement));
            idle_since = Instant::now();
            shares.record_secs += idle_since.duration_since(ran).as_secs_f64();
            if appended.is_err() || options.cancel.is_cancelled() || options.is_late(start) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        appended?;
        shares.waited(idle_since, Instant::now(), planner.last);
        let concluding = Instant::now();
        planner.conclude(&desk)?;
        announce(&desk, &mut **observer);
        shares.fit_secs += concluding.elapsed().as_secs_f64();
        Ok(planner.limit_reached().unwrap_or(Stop::Plateau))
    }

    /// Races the best few of each task, unless the run is cancelled, and tells how it all went.
    fn finish(mut self, stop: Stop) -> Result<Report, TuneError> {
        let start = Instant::now();
        self.recorder.flush()?;
        let mut reports = Vec::new();
        let left = self.options.time_budget.map(|budget| budget.saturating_sub(self.start.elapsed()));
        for (task, state) in self.planner.tasks.iter().enumerate() {
            let idle = self.options.cancel.is_cancelled() || matches!(state.retired, Some(Retired::Failing(_)));
            let standing = if idle || is_settled(&self.recorder, &state.task.workload)? {
                Standing::of(&self.recorder, &state.space)?
            } else {
                self.observer.event(&Event::Racing { task });
                let share = (task + 1) as f64 / self.best_secs.len() as f64;
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
            ranking: self.planner.learner.ranking()?,
            tuning_time: self.start.elapsed(),
            new_trials: self.new_trials,
            curve: std::mem::take(&mut self.curve),
            shares: self.shares,
            stop,
        })
    }
}

/// The least seconds that any algorithm of the space takes.
fn floor_secs(space: &ScheduleSpace, ceilings: &Ceilings) -> f64 {
    let works = space.works().into_iter();
    works.map(|work| ceilings.min_secs(work, space.workload().dtype)).fold(f64::INFINITY, f64::min)
}

/// Tells of the tasks that were retired.
fn announce(desk: &Desk, observer: &mut dyn Observer) {
    let retired = std::mem::take(&mut desk.papers().retired);
    for (task, why) in &retired {
        observer.event(&Event::Retired { task: *task, why });
    }
}
