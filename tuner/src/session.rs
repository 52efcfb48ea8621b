//! The tuning loop.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use autotune_cost_model::ModelError;
use autotune_db::{DbError, Phase, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measure::{Ceilings, MeasureError, Measurer};
use autotune_schedules::{LowerError, ScheduleSpace, Workload};
use thiserror::Error;

use crate::dtype_check::{UnsupportedDType, check_dtypes};
use crate::learner::Learner;
use crate::network::Task;
use crate::observer::{Event, Observer};
use crate::options::TuneOptions;
use crate::planner::{Planner, WorkQueue};
use crate::race::{RACE_SECS, RACERS, is_settled, race};
use crate::recorder::Recorder;
use crate::report::{CurvePoint, Report, Stop, TaskReport, TimeShares};
use crate::scheduler::batch_size;
use crate::search::SearchKind;
use crate::task::{Retired, TaskState};

/// Part of the floor of a task's run time, which is measured, that a time from elsewhere may go below.
const CREDIBLE: f64 = 0.8;

/// Configs of a task that are measured first because records from elsewhere claim that they are the fastest.
const CLAIMS: usize = 8;

/// Trials per task after which a run without any limit of its own is planned to end.
pub const DEFAULT_TRIALS_PER_TASK: usize = 64;

/// Why a run cannot go on. Everything measured before is in the database.
#[derive(Debug, Error)]
pub enum TuneError {
    /// The target has no kernels for a workload's element type.
    #[error(transparent)]
    DType(#[from] UnsupportedDType),
    /// The target has no kernels for a workload.
    #[error("{workload}: {why}")]
    Refused {
        /// The workload.
        workload: Box<Workload>,
        /// Why.
        why: LowerError,
    },
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
        let recorder = Recorder::new(db, target, options);
        let mut learner = Learner::new(target.clone());
        let mut states = Vec::new();
        for task in tasks {
            let records = db.query(&task.workload, &target.key())?;
            let space = ScheduleSpace::new(&task.workload, target);
            check_space(&space)?;
            recorder.follow(&space);
            let floor_secs = options.ceilings.map_or(0.0, |ceilings| floor_secs(&space, &ceilings));
            let claims = db.claims(&task.workload, &target.key(), CLAIMS, &|config| space.contains(config))?;
            let claimed = claims.into_iter().map(|record| record.config);
            let claimed = claimed.filter(|config| space.checked_program(config).is_ok()).collect();
            let (search, seed) = (options.search, options.seed);
            states.push(TaskState::new(task.clone(), space, search, seed, floor_secs, &records, claimed));
        }
        if options.search == SearchKind::Model {
            let own: Vec<Workload> = tasks.iter().map(|task| task.workload).collect();
            let mut records = db.query_target(&target.key())?;
            drop_incredible(&mut records, target, options.ceilings.as_ref());
            learner.tell_records(&records, &own);
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
            recorder,
            observer,
            new_trials: 0,
            start,
            shares: TimeShares { start_secs: start.elapsed().as_secs_f64(), ..TimeShares::default() },
            curve: Vec::new(),
        })
    }

    /// Measures what the planner proposes; each result is appended to the database as it comes. Says why it ended.
    fn search(&mut self) -> Result<Stop, TuneError> {
        let queue = WorkQueue::default();
        let Self { planner, measurer, recorder, observer, best_secs, shares, curve, .. } = self;
        let (options, start) = (self.options, self.start);
        let weights: Vec<f64> = planner.tasks.iter().map(|state| state.task.weight()).collect();
        let mut appended = Ok(());
        let mut idle_since = Instant::now();
        let deadline = options.search_deadline(start);
        let measured = measurer.measure_batches(&mut || planner.next_batch(&queue), &mut |_, measurement| {
            let ran = Instant::now();
            let Some(proposal) = queue.lock().proposals.pop_front() else {
                return ControlFlow::Break(());
            };
            let (task, run_time) = (proposal.task, Duration::from_secs_f64(measurement.measure_secs));
            let began = ran.checked_sub(run_time).map_or(idle_since, |began| began.max(idle_since));
            shares.waited(idle_since, began, Some(proposal.planned));
            shares.measured(ran.duration_since(began).as_secs_f64(), &measurement);
            appended = recorder.append(&proposal.candidate, &measurement, Phase::Search);
            self.new_trials += 1;
            // Before the first result there is nothing to end with: it is waited for.
            options.cancel.set_deadline(deadline);
            best_secs[task] = best_secs[task].min(measurement.run_secs().unwrap_or(f64::INFINITY));
            let network_secs = weights.iter().zip(&*best_secs).map(|(weight, secs)| weight * secs).sum();
            if curve.last().map_or(f64::INFINITY, |point| point.network_secs) > network_secs {
                let elapsed_secs = start.elapsed().as_secs_f64();
                curve.push(CurvePoint { elapsed_secs, trials: self.new_trials, network_secs });
            }
            observer.event(&Event::Measured { task, measurement: &measurement, best_secs: best_secs[task] });
            announce(&queue, &mut **observer);
            queue.lock().results.push((task, proposal.candidate.config, measurement));
            idle_since = Instant::now();
            shares.record_secs += idle_since.duration_since(ran).as_secs_f64();
            if appended.is_err() || options.cancel.is_cancelled() || options.is_late(start) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        self.options.cancel.set_deadline(None);
        match measured {
            // What was being measured is given up: the limit that ended it is told below.
            Ok(()) | Err(MeasureError::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
        appended?;
        shares.waited(idle_since, Instant::now(), planner.last);
        let concluding = Instant::now();
        planner.conclude(&queue)?;
        announce(&queue, &mut **observer);
        shares.fit_secs += concluding.elapsed().as_secs_f64();
        Ok(planner.limit_reached().unwrap_or(Stop::Plateau))
    }

    /// Races the best few of each task, unless the run is cancelled, and tells how it all went.
    fn finish(mut self, stop: Stop) -> Result<Report, TuneError> {
        let start = Instant::now();
        self.recorder.flush()?;
        let mut reports = Vec::new();
        for task in 0..self.planner.tasks.len() {
            let is_failing = matches!(self.planner.tasks[task].retired, Some(Retired::Failing(_)));
            if !self.options.cancel.is_cancelled() && !is_failing {
                self.observer.event(&Event::Racing { task });
                match self.race(task) {
                    Err(TuneError::Measure(why)) if !self.options.cancel.is_cancelled() => {
                        self.observer.event(&Event::RaceFailed { task, why: &why });
                    }
                    Ok(()) | Err(TuneError::Measure(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            let state = &self.planner.tasks[task];
            reports.push(TaskReport {
                trials: state.trials(),
                failed_trials: state.failed,
                retired: state.retired.clone(),
                ..TaskReport::new(&state.task, self.recorder.standing(&state.space), self.options.ceilings)
            });
        }
        self.shares.race_secs = start.elapsed().as_secs_f64();
        Ok(Report {
            target: self.target.key(),
            tasks: reports,
            ranking: self.planner.learner.ranking()?,
            tuning_secs: self.start.elapsed().as_secs_f64(),
            new_trials: self.new_trials,
            trials_per_sec: (self.new_trials > 0)
                .then(|| self.new_trials as f64 / self.shares.search_secs().max(f64::MIN_POSITIVE)),
            curve: std::mem::take(&mut self.curve),
            shares: self.shares,
            stop,
        })
    }

    /// Races one task; so many have not raced yet and share what is left of the time budget. What was not measured since its last
    /// race only has that race's winner measured again.
    fn race(&mut self, task: usize) -> Result<(), TuneError> {
        let state = &self.planner.tasks[task];
        let waiting = (self.planner.tasks.len() - task) as f64;
        let share =
            self.options.time_budget.map(|budget| budget.saturating_sub(self.start.elapsed()).as_secs_f64() / waiting);
        let budget_secs = share.map_or(RACE_SECS, |share| share.clamp(LEAST_RACE_SECS, RACE_SECS));
        let more = if share == Some(0.0) || is_settled(&self.recorder, &state.task.workload)? { 0 } else { RACERS };

        // What was not measured yet is waited for, however late it is.
        if share.is_some() && self.recorder.standing(&state.space).best.is_some() {
            let limit = Duration::from_secs_f64(RACE_OVERRUN.0 * budget_secs + RACE_OVERRUN.1);
            self.options.cancel.set_deadline(Instant::now().checked_add(limit));
        }
        let raced = race(&self.recorder, &state.space, more, budget_secs, self.measurer);
        self.options.cancel.set_deadline(None);
        raced
    }
}

/// Seconds that a race takes where its share of the time budget is less: those of a dozen kernels of a millisecond.
const LEAST_RACE_SECS: f64 = 0.35;

/// Where a race's budget ends a run, how many times longer than it the race may take, and the seconds on top: loading and checking
/// kernels, of which some may be slow.
const RACE_OVERRUN: (f64, f64) = (2.0, 15.0);

/// Drops claims that no kernel can have reached: times below [`CREDIBLE`] of the floor, and all where the ceilings are not known.
fn drop_incredible(records: &mut Vec<TuningRecord>, target: &Target, ceilings: Option<&Ceilings>) {
    let mut floors: HashMap<Workload, f64> = HashMap::new();
    records.retain(|record| {
        let Some(claimed_secs) = record.measurement.run_secs().filter(|_| record.is_claim()) else {
            return true;
        };
        let floor = || ceilings.map(|ceilings| floor_secs(&ScheduleSpace::new(&record.workload, target), ceilings));
        let floor_secs = *floors.entry(record.workload).or_insert_with(|| floor().unwrap_or(f64::INFINITY));
        claimed_secs >= CREDIBLE * floor_secs
    });
}

/// Fails if the target has no kernels for the space's workload, whatever the schedule.
pub(crate) fn check_space(space: &ScheduleSpace) -> Result<(), TuneError> {
    let refused = |why: &LowerError| TuneError::Refused { workload: Box::new(*space.workload()), why: why.clone() };
    space.refusal().map_or(Ok(()), |why| Err(refused(why)))
}

/// The least seconds that any algorithm of the space takes.
fn floor_secs(space: &ScheduleSpace, ceilings: &Ceilings) -> f64 {
    let works = space.works().into_iter();
    works.map(|work| ceilings.min_secs(work, space.workload().dtype)).fold(f64::INFINITY, f64::min)
}

/// Tells of the tasks that were retired.
fn announce(queue: &WorkQueue, observer: &mut dyn Observer) {
    let retired = std::mem::take(&mut queue.lock().retired);
    for (task, why) in &retired {
        observer.event(&Event::Retired { task: *task, why });
    }
}
