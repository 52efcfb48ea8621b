//! Tuning loop of a run: the planner proposes batches, the measurer measures them, results are
//! recorded and reported, and the best schedules race at the end.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use autotune_cost_model::CostModel;
use autotune_db::{Phase, TuningDb, TuningRecord};
use autotune_deploy::PredictParams;
use autotune_deploy::predict;
use autotune_ir::Target;
use autotune_measure::{Ceilings, MeasureError, Measurer};
use autotune_schedules::portfolio::{self, Portfolio};
use autotune_schedules::{Candidate, Config, ScheduleSpace};
use autotune_workloads::Workload;
use rayon::prelude::*;

use crate::error::TuneError;
use crate::learner::Learner;
use crate::network::Task;
use crate::observer::{Event, Observer};
use crate::planner::{Planner, WorkQueue};
use crate::race::{is_raced, race};
use crate::recorder::Recorder;
use crate::report::{CurvePoint, Disturbance, Report, Retired, Stop};
use crate::scheduler::batch_size;
use crate::search::NewSearcher;
use crate::settings::Settings;
use crate::task::TaskState;
use crate::time::TimeShares;

/// Quantile of the trials' slowdowns that is reported, and the least number of trials for it.
const SLOWEST_SHARE: f64 = 0.9;
const LEAST_SLOWDOWNS: usize = 16;

/// State of a tuning run.
pub(crate) struct TuningRun<'a> {
    planner: Planner<'a>,
    target: &'a Target,
    settings: &'a Settings,
    measurer: &'a mut dyn Measurer,
    recorder: Recorder<'a>,
    observer: &'a mut dyn Observer,
    /// Best seconds per run of each task.
    best_secs: Vec<f64>,
    new_trials: usize,
    start: Instant,
    shares: TimeShares,
    curve: Vec<CurvePoint>,
    /// Slowdown of the machine in each trial that ran.
    slowdowns: Vec<f64>,
}

/// Exchangeable parts of a run.
pub(crate) struct TuningRunParts<'a> {
    pub(crate) new_searcher: &'a NewSearcher<'a>,
    pub(crate) cost_model: Box<dyn CostModel>,
    pub(crate) measurer: &'a mut dyn Measurer,
    pub(crate) db: &'a TuningDb,
    pub(crate) observer: &'a mut dyn Observer,
}

impl<'a> TuningRun<'a> {
    /// Starts a run with the records that the database has of the target.
    pub(crate) fn resume(
        tasks: &[Task],
        target: &'a Target,
        settings: &'a Settings,
        parts: TuningRunParts<'a>,
    ) -> Result<Self, TuneError> {
        let start = Instant::now();
        let TuningRunParts { new_searcher, cost_model, measurer, db, observer } = parts;
        let params = &settings.params;
        let recorder = Recorder::new(db, target, settings);
        let spaces: Vec<ScheduleSpace> = tasks.par_iter().map(|task| space(task, target, settings, start)).collect();
        let states = tasks.iter().zip(spaces).map(|(task, space)| resume_task(task, space, &recorder, new_searcher));
        let mut states = states.collect::<Result<Vec<TaskState>, TuneError>>()?;

        let mut learner = Learner::new(target.clone(), cost_model, params.learning.clone());
        if states.iter().any(TaskState::uses_scores) {
            let own: Vec<Workload> = tasks.iter().map(|task| task.workload.clone()).collect();
            let mut records = db.query_target(&target.key())?;
            records.retain(|record| params.transfer || own.contains(&record.workload));
            drop_implausible(&mut records, target, settings);
            learner.tell_records(&records, &own)?;
            let history = history_of(&records, &own);
            for state in states.iter_mut().take_while(|_| !settings.is_in_a_hurry(start)) {
                begin(state, &history, &mut learner, &recorder);
            }
        }

        let resumed = states.iter().map(|s| s.resumed).collect();
        observer.event(&Event::Started { tasks, resumed, trials: settings.trials });
        let planned = settings.trials.unwrap_or(params.trials_per_task * tasks.len());
        let batch = batch_size(planned, tasks.len(), &params.scheduling);
        Ok(Self {
            best_secs: states.iter().map(|state| state.progress.best_secs()).collect(),
            planner: Planner::new(settings, states, learner, batch, start),
            target,
            settings,
            measurer,
            recorder,
            observer,
            new_trials: 0,
            start,
            shares: TimeShares { start_secs: start.elapsed().as_secs_f64(), ..TimeShares::default() },
            curve: Vec::new(),
            slowdowns: Vec::new(),
        })
    }

    /// Measures the candidates that the planner proposes and appends each result to the database
    /// immediately. Returns the reason for the end.
    pub(crate) fn search(&mut self) -> Result<Stop, TuneError> {
        let queue = WorkQueue::default();
        let Self { planner, measurer, recorder, observer, best_secs, shares, curve, slowdowns, .. } = self;
        let (settings, start) = (self.settings, self.start);
        let weights: Vec<f64> = planner.tasks.iter().map(|state| state.task.weight()).collect();
        let mut appended = Ok(());
        // Time since which the device has been idle.
        let mut idle_since = Instant::now();
        let deadline = settings.search_deadline(start);
        let measured = measurer.measure_batches(&mut || planner.next_batch(&queue), &mut |position, measurement| {
            let ran = Instant::now();
            // Ignore a second result of the same candidate.
            let Some(proposal) = queue.lock().proposals.remove(&position) else {
                return ControlFlow::Continue(());
            };

            // The time before the measurement began is idle time of the device.
            let (task, run_time) = (proposal.task, Duration::from_secs_f64(measurement.measure_secs));
            let began = ran.checked_sub(run_time).map_or(idle_since, |began| began.max(idle_since));
            shares.waited(idle_since, began, Some(proposal.planned));
            shares.measured(ran.duration_since(began).as_secs_f64(), &measurement);
            slowdowns.extend(measurement.outcome.iter().map(|run| run.slowdown));

            appended = recorder.append(&proposal.candidate, &measurement, Phase::Search);
            self.new_trials += 1;
            // Default schedules without a first result are waited for even beyond the deadline.
            let is_needed = queue.lock().is_needed() && !settings.is_far_over(start);
            settings.cancel.set_deadline(deadline.filter(|_| !is_needed));
            best_secs[task] = best_secs[task].min(measurement.run_secs().unwrap_or(f64::INFINITY));
            let network_secs = weights.iter().zip(&*best_secs).map(|(weight, secs)| weight * secs).sum();
            if curve.last().map_or(f64::INFINITY, |point| point.network_secs) > network_secs {
                let elapsed_secs = start.elapsed().as_secs_f64();
                curve.push(CurvePoint { elapsed_secs, trials: self.new_trials, network_secs });
            }

            observer.event(&Event::Measured { task, measurement: &measurement, best_secs: best_secs[task] });
            announce(&queue, &mut **observer);
            queue.lock().results.push((task, proposal.candidate, measurement));
            idle_since = Instant::now();
            shares.record_secs += idle_since.duration_since(ran).as_secs_f64();

            let is_late = settings.is_late(start) && !is_needed;
            if appended.is_err() || settings.cancel.is_cancelled() || is_late {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });

        self.settings.cancel.set_deadline(None);
        match measured {
            // An interrupted measurement is abandoned; the limit that caused it is returned below.
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

    /// Races the best few schedules of each task, unless the run is cancelled, and makes the
    /// report.
    pub(crate) fn finish(mut self, stop: Stop) -> Result<Report, TuneError> {
        let start = Instant::now();
        self.recorder.flush()?;
        self.race_all()?;
        self.shares.race_secs = start.elapsed().as_secs_f64();

        let report = |state: &TaskState| {
            let mut report = self.recorder.best_of(&state.space).into_report(&state.task, self.settings.ceilings);
            (report.trials, report.failed_trials) = (state.trials(), state.failed);
            report.retired = state.retired.clone();
            report
        };
        let slowdown = quantile(std::mem::take(&mut self.slowdowns), SLOWEST_SHARE);
        Ok(Report {
            target: self.target.key(),
            tasks: self.planner.tasks.iter().map(report).collect(),
            ranking: self.planner.learner.into_ranking()?,
            tuning_secs: self.start.elapsed().as_secs_f64(),
            new_trials: self.new_trials,
            trials_per_sec: (self.new_trials > 0)
                .then(|| self.new_trials as f64 / self.shares.search_secs().max(f64::MIN_POSITIVE)),
            curve: std::mem::take(&mut self.curve),
            shares: self.shares,
            disturbance: Disturbance { load: self.recorder.load(), slowdown },
            stop,
        })
    }

    /// Races the tasks in the order of their share of the network's time, because the time may not
    /// be enough for all.
    fn race_all(&mut self) -> Result<(), TuneError> {
        let tasks = &self.planner.tasks;
        let runs = |&task: &usize| !matches!(tasks[task].retired, Some(Retired::Failing(_)));
        let mut waiting: Vec<usize> = (0..tasks.len()).filter(runs).collect();
        let secs = |task: usize| tasks[task].task.weight() * tasks[task].progress.best_secs();
        waiting.sort_by(|&a, &b| secs(b).total_cmp(&secs(a)));

        for (raced, &task) in waiting.iter().enumerate() {
            if self.settings.cancel.is_cancelled() {
                break;
            }
            if self.is_too_late_for(task) {
                continue;
            }
            self.observer.event(&Event::Racing { task });
            match self.race(task, waiting.len() - raced) {
                Err(TuneError::Measure(why)) if !self.settings.cancel.is_cancelled() => {
                    self.observer.event(&Event::RaceFailed { task, why: &why });
                }
                Ok(()) | Err(TuneError::Measure(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns true if the time budget was exceeded by too much to race a task. A task without a
    /// measurement is waited for longer.
    fn is_too_late_for(&self, task: usize) -> bool {
        let late_share = self.settings.params.race.late_share;
        let is_over = |budget: Duration| self.start.elapsed() > budget.mul_f64(1.0 + late_share);
        let standing = self.recorder.best_of(&self.planner.tasks[task].space);
        let is_measured = standing.default_secs.is_some();
        is_measured && self.settings.time_budget.is_some_and(is_over) || self.settings.is_far_over(self.start)
    }

    /// Races one task. It gets an equal share of the remaining time budget, which `waiting` tasks
    /// have to share. If the share is too short, only the best and the default race. If nothing was
    /// measured since the task's last race, only that race's winner is measured again.
    fn race(&mut self, task: usize, waiting: usize) -> Result<(), TuneError> {
        let state = &self.planner.tasks[task];
        let params = &self.settings.params.race;
        let standing = self.recorder.best_of(&state.space);
        let left = self.settings.time_budget.map(|budget| budget.saturating_sub(self.start.elapsed()));
        let share = left.map(|left| left.as_secs_f64() / waiting as f64);
        let [least_secs, most_secs] = params.budget_secs;
        let budget_secs = share.map_or(most_secs, |share| share.max(least_secs).min(most_secs));
        let is_short = share.is_some_and(|share| share < least_secs);
        let more = if is_short || is_raced(&self.recorder, &state.task.workload)? { 0 } else { params.racers };

        // A task without a measurement is waited for, however late it is.
        if share.is_some() && standing.best.is_some() {
            let limit = Duration::from_secs_f64(params.overrun.0 * budget_secs + params.overrun.1);
            self.settings.cancel.set_deadline(Instant::now().checked_add(limit));
        }
        let raced = race(&self.recorder, &state.space, more, budget_secs, self.measurer);
        self.settings.cancel.set_deadline(None);
        raced
    }
}

/// Returns the space of a task with the predicted fastest schedule as its default. Uses the fast
/// prediction once too much time is spent.
fn space(task: &Task, target: &Target, settings: &Settings, start: Instant) -> ScheduleSpace {
    let hurried = settings.is_in_a_hurry(start).then_some(PredictParams::QUICK);
    predict::space_within(&task.workload, target, settings.params.predicts_by(), hurried)
}

/// Initialises a task from the database: its records, and those untrusted schedules that are
/// verified to be correct.
fn resume_task(
    task: &Task,
    space: ScheduleSpace,
    recorder: &Recorder<'_>,
    new_searcher: &NewSearcher<'_>,
) -> Result<TaskState, TuneError> {
    let Recorder { db, target, settings, .. } = recorder;
    let records = db.query(&task.workload, &target.key())?;
    TuneError::of_space(&space)?;
    recorder.follow(&space);

    let floor_secs = settings.ceilings.map_or(0.0, |ceilings| floor_secs(&space, &ceilings));
    let fits = |config: &Config| space.contains(config);
    let claims = db.untrusted(&task.workload, &target.key(), settings.params.untrusted_configs, &fits)?;
    let claimed = claims.iter().filter_map(|record| space.checked(&record.config).ok()).collect();
    let searcher = new_searcher(&space);
    Ok(TaskState::new(task.clone(), space, searcher, settings.seed, floor_secs, &records, claimed))
}

/// Returns the fastest schedule of each workload that the run does not tune.
fn history_of(records: &[TuningRecord], own: &[Workload]) -> Portfolio {
    let others = records.iter().filter(|record| !own.contains(&record.workload));
    let ran = others.filter_map(|record| Some((&record.workload, &record.config, record.measurement.run_secs()?)));
    Portfolio::of_fastest(ran)
}

/// Lets a task begin with schedules transferred from the history. The best-scored of them and the
/// default becomes the new default schedule.
fn begin(state: &mut TaskState, history: &Portfolio, learner: &mut Learner, recorder: &Recorder<'_>) {
    let params = &recorder.settings.params;
    let nearest = history.nearest(&state.task.workload, params.neighbors);
    let carried = portfolio::transferred_schedules(&state.space, nearest, PredictParams::QUICK.tries);
    let carried = state.begin_with(carried);
    if carried.is_empty() {
        return;
    }

    let offered: Vec<Candidate> = [state.space.default_candidate().clone()].into_iter().chain(carried).collect();
    let scored = learner.score(&offered).into_iter().zip(offered);
    let scored = scored.filter_map(|(score, candidate)| Some((score?, candidate)));
    if let Some((_, best)) = scored.max_by(|a, b| a.0.total_cmp(&b.0)) {
        state.space = state.space.clone().with_default(best);
        recorder.follow(&state.space);
    }
}

/// Removes implausible untrusted records: those with times too far below the floor, or all if the
/// ceilings are unknown.
fn drop_implausible(records: &mut Vec<TuningRecord>, target: &Target, settings: &Settings) {
    let credible_share = settings.params.credible_share;
    let mut floors: HashMap<Workload, f64> = HashMap::new();
    records.retain(|record| {
        let Some(claimed_secs) = record.measurement.run_secs().filter(|_| record.is_untrusted()) else {
            return true;
        };
        let floor =
            || settings.ceilings.map(|ceilings| floor_secs(&ScheduleSpace::new(&record.workload, target), &ceilings));
        let floor_secs = *floors.entry(record.workload.clone()).or_insert_with(|| floor().unwrap_or(f64::INFINITY));
        claimed_secs >= credible_share * floor_secs
    });
}

/// Returns the least seconds per run over all algorithms of the space, by the roofline.
fn floor_secs(space: &ScheduleSpace, ceilings: &Ceilings) -> f64 {
    let works = space.works().into_iter();
    works.map(|work| ceilings.min_secs(work, space.workload().dtype())).fold(f64::INFINITY, f64::min)
}

/// Returns the quantile at `share` (0 to 1) of the values; `None` for too few values.
fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let is_enough = values.len() >= LEAST_SLOWDOWNS;
    values.get((values.len() as f64 * share) as usize).copied().filter(|_| is_enough)
}

/// Reports retired tasks to the observer.
fn announce(queue: &WorkQueue, observer: &mut dyn Observer) {
    let retired = std::mem::take(&mut queue.lock().retired);
    for (task, why) in &retired {
        observer.event(&Event::Retired { task: *task, why });
    }
}
