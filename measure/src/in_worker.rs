//! Measures kernels in a worker process.

use std::path::PathBuf;
use std::time::Duration;

use autotune_schedules::{GpuTarget, Target, Workload};
use tempfile::TempDir;

use crate::builder::{Builder, Built};
use crate::ceilings::Ceilings;
use crate::front::{Front, Runner};
use crate::host::{Loss, WorkerProcess};
use crate::location::WorkerCommand;
use crate::measurement::{Batches, Candidate, CandidateError, MeasureError, Measurement, Measurer, OnResult, RunSecs};
use crate::options::MeasureOptions;
use crate::problem::Problem;
use crate::process::duration;
use crate::protocol::{Job, Request, Response, Task};
use crate::scratch::scratch_dir;

/// Workers that may die before running a kernel, one after the other, until the infrastructure counts as broken.
const EARLY_DEATHS: usize = 3;

/// How long a GPU's ceilings may take.
const CEILINGS_LIMIT: Duration = Duration::from_secs(60);

/// Most bytes of operand files that are kept.
const PROBLEM_BYTES: u64 = 1 << 30;

/// Measures candidates on this machine's CPU or a GPU of it, whichever their target says, in a worker process that may crash, hang
/// or misbehave at no risk to the caller. The worker alone opens the GPU. Candidates are built in parallel, those for GPUs while
/// others run, and run one by one. NVRTC works in other processes of the worker program: a kernel that makes it crash, or that it
/// takes too long over, fails alone.
///
/// A failed candidate's worker is replaced. A candidate that fails in a worker which ran others before, unless by
/// running too long, is tried again in a fresh one, and that verdict counts: memory that an earlier kernel corrupted
/// is no fault of it.
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
        let workers =
            Workers { command, options, dir: scratch_dir()?, worker: None, problems: Vec::new(), problem_count: 0 };
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

    /// Sets the time against which candidates of a workload are stopped early. Without it, that is the fastest this
    /// measurer has measured.
    pub fn set_incumbent(&mut self, workload: &Workload, target: &Target, run_secs: f64) {
        self.front.set_incumbent(workload, target, run_secs);
    }

    /// Measures a kernel that is built already.
    pub fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
        self.front.run_built(built)
    }

    /// Races kernels that are built already; [`Measurer::race`].
    pub fn race_built(&mut self, built: &[Built]) -> Result<Vec<Measurement>, MeasureError> {
        self.front.race_built(&built.iter().cloned().map(Ok).collect::<Vec<_>>())
    }

    /// The target's ceilings: a CPU's measured here, a GPU's by the worker.
    pub fn ceilings(&mut self, target: &Target) -> Result<Ceilings, MeasureError> {
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

    fn race(&mut self, candidates: &[Candidate]) -> Result<Vec<Measurement>, MeasureError> {
        self.front.race(candidates)
    }
}

/// The worker, replaced as needed, and the files it reads.
struct Workers {
    command: WorkerCommand,
    options: MeasureOptions,
    dir: TempDir,
    worker: Option<WorkerProcess>,
    /// Operand files, oldest first, with their sizes.
    problems: Vec<(Workload, PathBuf, u64)>,
    problem_count: usize,
}

impl Workers {
    /// The job of running `built`; its machine code is added to the raw bytes.
    fn job(&mut self, built: &Built, raw: &mut Vec<u8>) -> Result<Job, MeasureError> {
        Ok(Job::new(built, self.problem_file(&built.workload)?, raw))
    }

    /// The file of a workload's operands and reference, made when first asked for.
    fn problem_file(&mut self, workload: &Workload) -> Result<PathBuf, MeasureError> {
        if let Some((_, path, _)) = self.problems.iter().find(|(w, _, _)| w == workload) {
            return Ok(path.clone());
        }
        let path = self.dir.path().join(format!("problem{}", self.problem_count));
        self.problem_count += 1;
        let io = |source| MeasureError::Io { what: format!("writing {}", path.display()), source };
        Problem::new(workload).write(&path).map_err(io)?;
        let bytes = std::fs::metadata(&path).map_err(io)?.len();
        while self.problems.iter().map(|(_, _, b)| b).sum::<u64>() + bytes > PROBLEM_BYTES && !self.problems.is_empty()
        {
            let (_, oldest, _) = self.problems.remove(0);
            std::fs::remove_file(&oldest).map_err(io)?;
        }
        self.problems.push((*workload, path.clone(), bytes));
        Ok(path)
    }

    fn request(&self, task: Task) -> Request {
        Request { timing: self.options.timing.clone(), memory_slack_bytes: self.options.memory_slack_bytes, task }
    }

    /// What a GPU can do at best, measured by the worker.
    fn ceilings(&mut self, target: &GpuTarget) -> Result<Ceilings, MeasureError> {
        let mut worker = self.worker.take().map_or_else(|| WorkerProcess::spawn(&self.command), Ok)?;
        let request = self.request(Task::Ceilings { target: target.clone() });
        let fault = |message: String| MeasureError::Ceilings { message };
        match worker.ask(&request, &[], CEILINGS_LIMIT) {
            Ok(Response::Ceilings { ceilings }) => {
                self.worker = Some(worker);
                Ok(ceilings)
            }
            Ok(_) => Err(fault("the worker answered something else".into())),
            Err(Loss::Kernel(error)) => Err(fault(error.to_string())),
            Err(Loss::Refused(message) | Loss::Early(message)) => Err(fault(message)),
        }
    }

    /// Has a task carried out by the worker; `Err` in the inner result if it killed the worker.
    fn ask(
        &mut self,
        task: Task,
        raw: &[u8],
        kernels: usize,
    ) -> Result<Result<Outcomes, CandidateError>, MeasureError> {
        let request = self.request(task);
        let limit = duration(self.options.run_limit_secs * kernels as f64);
        let mut early_deaths = 0;
        loop {
            let (mut worker, fresh) = match self.worker.take() {
                Some(worker) => (worker, false),
                None => (WorkerProcess::spawn(&self.command)?, true),
            };
            let answer = worker.ask(&request, raw, limit).map(|answer| match answer {
                Response::Done { outcomes } if outcomes.len() == kernels => Some(outcomes),
                _ => None,
            });
            let failed = match answer {
                Ok(None) => return Err(MeasureError::Worker { message: "it answered something else".into() }),
                Ok(Some(outcomes)) if outcomes.iter().all(is_harmless) => {
                    self.worker = Some(worker);
                    return Ok(Ok(outcomes));
                }
                Ok(Some(outcomes)) => Ok(outcomes),
                Err(Loss::Kernel(error @ CandidateError::Timeout { .. })) => return Ok(Err(error)),
                Err(Loss::Kernel(error)) => Err(error),
                Err(Loss::Refused(message)) => return Err(MeasureError::Worker { message }),
                Err(Loss::Early(message)) => {
                    early_deaths += 1;
                    if early_deaths >= EARLY_DEATHS {
                        return Err(MeasureError::Worker { message });
                    }
                    continue;
                }
            };
            if fresh {
                return Ok(failed);
            }
        }
    }
}

/// True for the outcome of a kernel that ran well, or not at all: the worker can run others.
pub(crate) fn is_harmless(outcome: &Result<RunSecs, CandidateError>) -> bool {
    matches!(outcome, Ok(_) | Err(CandidateError::Lower { .. } | CandidateError::Build { .. }))
}

/// One outcome per kernel.
type Outcomes = Vec<Result<RunSecs, CandidateError>>;

impl Runner for Workers {
    fn time(
        &mut self,
        built: &Built,
        incumbent_secs: Option<f64>,
    ) -> Result<Result<RunSecs, CandidateError>, MeasureError> {
        let mut raw = Vec::new();
        let task = Task::Time { job: Box::new(self.job(built, &mut raw)?), incumbent_secs };
        let outcome = self.ask(task, &raw, 1)?.map(|outcomes| outcomes.into_iter().next());
        match outcome {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => Err(MeasureError::Worker { message: "it answered nothing".into() }),
            Err(error) => Ok(Err(error)),
        }
    }

    fn race(&mut self, built: &[Built]) -> Result<Outcomes, MeasureError> {
        let mut raw = Vec::new();
        let jobs = built.iter().map(|b| self.job(b, &mut raw)).collect::<Result<_, _>>()?;
        self.ask(Task::Race { jobs }, &raw, built.len())?
            .map_err(|error| MeasureError::Worker { message: format!("in a race: {error}") })
    }
}
