//! Measures kernels in a worker process.

use std::sync::Arc;
use std::time::Duration;

use autotune_ir::{GpuTarget, Target};
use autotune_measurement::{CandidateError, Measurement};
use autotune_schedules::Candidate;
use autotune_workloads::Workload;

use crate::available;
use crate::builder::Builder;
use crate::built::Built;
use crate::ceilings::Ceilings;
use crate::error::MeasureError;
use crate::front::{Front, Runner};
use crate::host::{Loss, WorkerProcess};
use crate::interrupt::Interrupt;
use crate::location::WorkerCommand;
use crate::measurer::{Batches, Measurer, OnResult, RaceResult};
use crate::options::MeasureOptions;
use crate::process::duration;
use crate::protocol::{Job, Request, Response, Task};
use crate::station::Outcome;

/// Workers that may die before running a kernel, one after the other, until the infrastructure
/// counts as broken.
const EARLY_DEATHS: usize = 3;

/// Runs of a kernel that checking and timing it may take at most, where a run takes long.
const RUNS_IN_LIMIT: f64 = 10.0;

/// Operations per second, on each thread of a CPU or on a GPU, that the slowest of kernels worth
/// waiting for does.
const SLOW_FLOPS_PER_SEC: f64 = 2e9;

/// How long a GPU's ceilings may take.
const CEILINGS_LIMIT: Duration = Duration::from_secs(60);

/// Measures candidates on this machine's CPU or a GPU of it, whichever their target says, in a
/// worker process that may crash, hang or misbehave at no risk to the caller. The worker alone
/// opens the GPU. Candidates are built in parallel, those for GPUs while others run, and run one by
/// one. NVRTC works in other processes of the worker program: a kernel that makes it crash, or that
/// it takes too long over, fails alone.
///
/// A failed candidate's worker is replaced. A candidate that fails in a worker which ran others
/// before, unless by running too long, is tried again in a fresh one, and that verdict counts:
/// memory that an earlier kernel corrupted is no fault of it.
pub struct WorkerMeasurer {
    front: Front<Workers>,
}

impl WorkerMeasurer {
    /// A measurer with the worker program of this machine ([`WorkerCommand::find`]).
    pub fn new(options: MeasureOptions) -> Result<Self, MeasureError> {
        Self::with(WorkerCommand::find()?, options)
    }

    /// A measurer with a given worker program, which is started when it is first needed.
    pub fn with(command: WorkerCommand, options: MeasureOptions) -> Result<Self, MeasureError> {
        let builder = Builder::with_workers(options.backend, options.build_limit_secs, command.clone());
        let workers = Workers { command, options, worker: None, interrupt: Interrupt::default() };
        Ok(Self { front: Front::new(builder, workers) })
    }

    /// The builder.
    pub fn builder(&mut self) -> &mut Builder {
        &mut self.front.builder
    }

    /// The options.
    pub fn options(&self) -> &MeasureOptions {
        &self.front.runner().options
    }

    /// Sets the time against which candidates of a workload are stopped early. Without it, that is
    /// the fastest this measurer has measured.
    pub fn set_incumbent(&mut self, workload: &Workload, target: &Target, run_secs: f64) {
        self.front.set_incumbent(workload, target, run_secs);
    }

    /// Sets what is asked, several times a second while a worker is waited for, whether to stop.
    /// Then the worker is killed, whatever it does, and what was asked for ends with
    /// [`MeasureError::Interrupted`].
    pub fn set_interrupt(&mut self, is_wanted: Arc<dyn Fn() -> bool + Send + Sync>) {
        self.front.runner_mut().interrupt = Interrupt::new(is_wanted);
    }

    /// Fails with [`MeasureError::Memory`] if operands, reference and buffers of the workload need
    /// more memory than this process can have. That is known before anything is allocated; a worker
    /// refuses the workload for the same reason.
    pub fn foresee(&self, workload: &Workload) -> Result<(), MeasureError> {
        available::foresee(workload, available::available_bytes())
    }

    /// Measures a kernel that is built already.
    pub fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
        self.front.run_built(built)
    }

    /// Races kernels that are built already; [`Measurer::race`].
    pub fn race_built(&mut self, built: &[Built], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        self.front.race_built(&built.iter().cloned().map(Ok).collect::<Vec<_>>(), budget_secs)
    }

    /// The target's ceilings: those kept from an earlier time, else measured, a CPU's here, a GPU's
    /// by the worker; [`Ceilings::known_or_measure`].
    pub fn ceilings(&mut self, target: &Target) -> Result<Ceilings, MeasureError> {
        match target.gpu() {
            Some(gpu) => Ceilings::kept_or(target, || self.front.runner_mut().ceilings(gpu)),
            None => Ceilings::known_or_measure(target),
        }
    }

    /// The target's ceilings as measured now.
    pub fn measure_ceilings(&mut self, target: &Target) -> Result<Ceilings, MeasureError> {
        match target.gpu() {
            Some(gpu) => self.front.runner_mut().ceilings(gpu),
            None => Ceilings::measure(target),
        }
    }

    /// Process number of the worker, if one is running.
    pub fn worker_pid(&self) -> Option<u32> {
        self.front.runner().worker.as_ref().map(WorkerProcess::pid)
    }
}

impl Measurer for WorkerMeasurer {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        self.front.measure_batches(next_batch, on_result)
    }

    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        self.front.race(candidates, budget_secs)
    }
}

/// The worker, replaced as needed.
struct Workers {
    command: WorkerCommand,
    options: MeasureOptions,
    worker: Option<WorkerProcess>,
    interrupt: Interrupt,
}

impl Workers {
    fn request(&self, task: Task) -> Request {
        Request { timing: self.options.timing.clone(), memory_slack_bytes: self.options.memory_slack_bytes, task }
    }

    /// What a GPU can do at best, measured by the worker.
    fn ceilings(&mut self, target: &GpuTarget) -> Result<Ceilings, MeasureError> {
        let mut worker = self.worker.take().map_or_else(|| WorkerProcess::spawn(&self.command, &self.interrupt), Ok)?;
        let request = self.request(Task::Ceilings { target: target.clone() });
        let fault = |message: String| MeasureError::Ceilings { message };
        match worker.ask(&request, &[], CEILINGS_LIMIT, &self.interrupt) {
            Ok(Response::Ceilings { ceilings }) => {
                self.worker = Some(worker);
                Ok(ceilings)
            }
            Ok(_) => Err(fault("the worker answered something else".into())),
            Err(Loss::Refused(MeasureError::Worker { message })) => Err(fault(message)),
            Err(loss) => Err(loss.into_error(fault)),
        }
    }

    /// Seconds that checking and timing a kernel may take: those of the options, or more for one
    /// that is slow by what is known of its workload.
    fn limit_secs(&self, built: &Built, incumbent_secs: Option<f64>) -> f64 {
        let slowest_secs = built.workload.flops() / (SLOW_FLOPS_PER_SEC * built.artifact.target.threads() as f64);
        let run_secs = incumbent_secs.filter(|&secs| secs > 0.0).map_or(slowest_secs, |secs| secs.min(slowest_secs));
        self.options.run_limit_secs.max(RUNS_IN_LIMIT * run_secs)
    }

    /// Has a task carried out by the worker, within a limit of seconds; `Err` in the inner result
    /// if it killed the worker.
    fn ask(
        &mut self,
        task: Task,
        raw: &[u8],
        kernels: usize,
        limit_secs: f64,
    ) -> Result<Result<Outcomes, CandidateError>, MeasureError> {
        let request = self.request(task);
        let limit = duration(limit_secs);
        let mut early_deaths = 0;
        loop {
            let (mut worker, fresh) = match self.worker.take() {
                Some(worker) => (worker, false),
                None => (WorkerProcess::spawn(&self.command, &self.interrupt)?, true),
            };
            let answer = worker.ask(&request, raw, limit, &self.interrupt).map(|answer| match answer {
                Response::Done { outcomes, is_spoilt } if outcomes.len() == kernels => Some((outcomes, is_spoilt)),
                _ => None,
            });

            let failed = match answer {
                Ok(None) => return Err(MeasureError::Worker { message: "it answered something else".into() }),
                Ok(Some((outcomes, false))) => {
                    self.worker = Some(worker);
                    return Ok(Ok(outcomes));
                }
                Ok(Some((outcomes, true))) => Ok(outcomes),
                Err(Loss::Kernel(error @ CandidateError::Timeout { .. })) => return Ok(Err(error)),
                Err(Loss::Kernel(error)) => Err(error),
                Err(Loss::Refused(error)) => return Err(error),
                Err(Loss::Early(message)) => {
                    early_deaths += 1;
                    if early_deaths >= EARLY_DEATHS {
                        return Err(MeasureError::Worker { message });
                    }
                    continue;
                }
            };
            // What an earlier kernel left in a worker may have killed it: a fresh one is asked once
            // more.
            if fresh {
                return Ok(failed);
            }
        }
    }
}

/// One outcome per kernel.
type Outcomes = Vec<Outcome>;

impl Runner for Workers {
    fn time(&mut self, built: &Built, incumbent_secs: Option<f64>) -> Result<Outcome, MeasureError> {
        let mut raw = Vec::new();
        let task = Task::Time { job: Box::new(Job::new(built, &mut raw)), incumbent_secs };
        let limit_secs = self.limit_secs(built, incumbent_secs);
        let outcome = self.ask(task, &raw, 1, limit_secs)?.map(|outcomes| outcomes.into_iter().next());
        match outcome {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => Err(MeasureError::Worker { message: "it answered nothing".into() }),
            Err(error) => Ok(Err(error)),
        }
    }

    fn race(&mut self, built: &[Built], budget_secs: f64) -> Result<Outcomes, MeasureError> {
        let mut raw = Vec::new();
        let jobs = built.iter().map(|b| Job::new(b, &mut raw)).collect();
        let limit_secs = 2.0 * budget_secs + built.iter().map(|b| self.limit_secs(b, None)).sum::<f64>();
        let in_race = |error: &CandidateError| MeasureError::Worker { message: format!("in a race: {error}") };
        let outcomes = self.ask(Task::Race { jobs, budget_secs }, &raw, built.len(), limit_secs)?;
        let outcomes = outcomes.map_err(|error| in_race(&error))?;

        // On a device that a kernel broke, the others fail, too: which one it was is not known.
        let mut crashes = outcomes.iter().filter_map(|outcome| match outcome {
            Err(error @ CandidateError::Crash { .. }) => Some(error),
            _ => None,
        });
        match (crashes.next(), crashes.next()) {
            (Some(error), Some(_)) => Err(in_race(error)),
            _ => Ok(outcomes),
        }
    }
}
