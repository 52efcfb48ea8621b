//! Measurer that runs kernels in a worker process.

use std::sync::Arc;
use std::time::Duration;

use autotune_ir::{GpuTarget, Target};
use autotune_measurement::{CandidateError, Measurement};
use autotune_schedules::Candidate;
use autotune_workloads::Workload;

use crate::available;
use crate::builder::KernelBuilder;
use crate::built::Built;
use crate::ceilings::Ceilings;
use crate::error::MeasureError;
use crate::front::{Front, KernelRunner};
use crate::host::{Loss, WorkerProcess};
use crate::interrupt::Interrupt;
use crate::location::WorkerCommand;
use crate::measurer::{Batches, Measurer, OnResult, RaceResult};
use crate::options::MeasureOptions;
use crate::process::duration;
use crate::protocol::{Job, Request, Response, WorkerTask};
use crate::station::Outcome;

/// Number of workers in a row that may die before they run a kernel; then the infrastructure counts
/// as broken.
const EARLY_DEATHS: usize = 3;

/// Runs of a slow kernel that checking and timing it may take.
const RUNS_IN_LIMIT: f64 = 10.0;

/// Least FLOP per second, per CPU thread or per GPU, of a kernel worth waiting for.
const SLOW_FLOPS_PER_SEC: f64 = 2e9;

/// Time limit of measuring a GPU's ceilings.
const CEILINGS_LIMIT: Duration = Duration::from_secs(60);

/// Measures candidates on this machine's CPU or GPU, as their target says, in a worker process that
/// may crash or hang at no risk to the caller. Only the worker opens the GPU. Candidates are built
/// in parallel, those for GPUs while others run, and run one by one. NVRTC runs in further worker
/// processes: a kernel that crashes it or takes too long to compile fails alone.
///
/// After a failed candidate the worker is replaced. A candidate that fails in a worker that had run
/// others before, except by a timeout, is tried again in a fresh worker, and that result counts: an
/// earlier kernel may have corrupted the first worker's memory.
pub struct WorkerMeasurer {
    front: Front<Workers>,
}

impl WorkerMeasurer {
    /// Returns a measurer with this machine's worker program, see [`WorkerCommand::find`].
    pub fn new(options: MeasureOptions) -> Result<Self, MeasureError> {
        Self::with(WorkerCommand::find()?, options)
    }

    /// Returns a measurer with a given worker program, which is started when first needed.
    pub fn with(command: WorkerCommand, options: MeasureOptions) -> Result<Self, MeasureError> {
        let builder = KernelBuilder::with_workers(options.backend, options.build_limit_secs, command.clone());
        let workers = Workers { command, options, worker: None, interrupt: Interrupt::default() };
        Ok(Self { front: Front::new(builder, workers) })
    }

    /// Returns the builder of candidates.
    pub fn builder(&mut self) -> &mut KernelBuilder {
        &mut self.front.builder
    }

    /// Returns the resource limits and timing parameters.
    pub fn options(&self) -> &MeasureOptions {
        &self.front.runner().options
    }

    /// Sets the seconds per run against which candidates of a workload are stopped early. By
    /// default that is the fastest time that this measurer has measured.
    pub fn set_incumbent(&mut self, workload: &Workload, target: &Target, run_secs: f64) {
        self.front.set_incumbent(workload, target, run_secs);
    }

    /// Sets a callback that is asked, several times a second while waiting for a worker, whether to
    /// stop. If it returns true, the worker is killed, and the call ends with
    /// [`MeasureError::Interrupted`].
    pub fn set_interrupt(&mut self, is_wanted: Arc<dyn Fn() -> bool + Send + Sync>) {
        self.front.runner_mut().interrupt = Interrupt::new(is_wanted);
    }

    /// Fails with [`MeasureError::Memory`] if operands, reference and buffers of the workload need
    /// more memory than this process can allocate. This is computed before anything is allocated; a
    /// worker refuses the workload for the same reason.
    pub fn foresee(&self, workload: &Workload) -> Result<(), MeasureError> {
        available::check_available(workload, available::available_bytes())
    }

    /// Measures a kernel that is already built.
    pub fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
        self.front.run_built(built)
    }

    /// Races kernels that are already built, as [`Measurer::race`] does.
    pub fn race_built(&mut self, built: &[Built], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        self.front.race_built(&built.iter().cloned().map(Ok).collect::<Vec<_>>(), budget_secs)
    }

    /// Returns the target's ceilings, cached or measured: a CPU's in this process, see
    /// [`Ceilings::known_or_measure`], a GPU's in the worker.
    pub fn ceilings(&mut self, target: &Target) -> Result<Ceilings, MeasureError> {
        match target.gpu() {
            Some(gpu) => Ceilings::cached_or(target, || self.front.runner_mut().ceilings(gpu)),
            None => Ceilings::known_or_measure(target),
        }
    }

    /// Measures the target's ceilings without using the cache.
    pub fn measure_ceilings(&mut self, target: &Target) -> Result<Ceilings, MeasureError> {
        match target.gpu() {
            Some(gpu) => self.front.runner_mut().ceilings(gpu),
            None => Ceilings::measure(target),
        }
    }

    /// Returns the process id of the worker, if one is running.
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

/// Runner that uses a worker process and replaces it when needed.
struct Workers {
    command: WorkerCommand,
    options: MeasureOptions,
    worker: Option<WorkerProcess>,
    interrupt: Interrupt,
}

impl Workers {
    fn request(&self, task: WorkerTask) -> Request {
        Request { timing: self.options.timing.clone(), memory_slack_bytes: self.options.memory_slack_bytes, task }
    }

    /// Measures a GPU's ceilings in the worker.
    fn ceilings(&mut self, target: &GpuTarget) -> Result<Ceilings, MeasureError> {
        let mut worker = self.worker.take().map_or_else(|| WorkerProcess::spawn(&self.command, &self.interrupt), Ok)?;
        let request = self.request(WorkerTask::Ceilings { target: target.clone() });
        let fault = |message: String| MeasureError::Ceilings { message };
        match worker.ask(&request, &[], CEILINGS_LIMIT, &self.interrupt) {
            Ok(Response::Ceilings { ceilings }) => {
                self.worker = Some(worker);
                Ok(ceilings)
            }
            Ok(_) => Err(fault("the worker sent an unexpected response".into())),
            Err(Loss::Refused(MeasureError::Worker { message })) => Err(fault(message)),
            Err(loss) => Err(loss.into_error(fault)),
        }
    }

    /// Returns the seconds that checking and timing a kernel may take: the limit of the options, or
    /// more if the workload is known to be slow.
    fn limit_secs(&self, built: &Built, incumbent_secs: Option<f64>) -> f64 {
        let slowest_secs = built.workload.flops() / (SLOW_FLOPS_PER_SEC * built.artifact.target.threads() as f64);
        let run_secs = incumbent_secs.filter(|&secs| secs > 0.0).map_or(slowest_secs, |secs| secs.min(slowest_secs));
        self.options.run_limit_secs.max(RUNS_IN_LIMIT * run_secs)
    }

    /// Sends a task to the worker and waits at most `limit_secs`. The inner result is an error if
    /// the kernel killed the worker.
    fn ask(
        &mut self,
        task: WorkerTask,
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
                Ok(None) => return Err(MeasureError::Worker { message: "it sent an unexpected response".into() }),
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
            // An earlier kernel may have corrupted the worker and so caused the failure: ask a
            // fresh worker once more.
            if fresh {
                return Ok(failed);
            }
        }
    }
}

/// One outcome per kernel.
type Outcomes = Vec<Outcome>;

impl KernelRunner for Workers {
    fn time(&mut self, built: &Built, incumbent_secs: Option<f64>) -> Result<Outcome, MeasureError> {
        let mut raw = Vec::new();
        let task = WorkerTask::Time { job: Box::new(Job::new(built, &mut raw)), incumbent_secs };
        let limit_secs = self.limit_secs(built, incumbent_secs);
        let outcome = self.ask(task, &raw, 1, limit_secs)?.map(|outcomes| outcomes.into_iter().next());
        match outcome {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => Err(MeasureError::Worker { message: "it sent no result".into() }),
            Err(error) => Ok(Err(error)),
        }
    }

    fn race(&mut self, built: &[Built], budget_secs: f64) -> Result<Outcomes, MeasureError> {
        let mut raw = Vec::new();
        let jobs = built.iter().map(|b| Job::new(b, &mut raw)).collect();
        let limit_secs = 2.0 * budget_secs + built.iter().map(|b| self.limit_secs(b, None)).sum::<f64>();
        let in_race = |error: &CandidateError| MeasureError::Worker { message: format!("in a race: {error}") };
        let outcomes = self.ask(WorkerTask::Race { jobs, budget_secs }, &raw, built.len(), limit_secs)?;
        let outcomes = outcomes.map_err(|error| in_race(&error))?;

        // After a kernel has broken the device, the others fail, too. With more than one crash the
        // culprit is not known.
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
