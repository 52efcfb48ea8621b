//! Compilation by NVRTC in worker processes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use autotune_measurement::CandidateError;

use crate::error::MeasureError;
use crate::host::{Loss, WorkerProcess};
use crate::interrupt::Interrupt;
use crate::location::WorkerCommand;
use crate::nvrtc::CompiledCuda;
use crate::options::TimingOptions;
use crate::protocol::{Request, Response, WorkerTask};

/// Worker processes that compile CUDA C, one kernel at a time each. There are as many as were ever
/// needed at the same time. A worker that its compiler crashes or blocks for too long is dropped,
/// and another is started when needed.
pub(crate) struct CompileWorkers {
    command: WorkerCommand,
    limit: Duration,
    idle: Mutex<Vec<WorkerProcess>>,
}

impl CompileWorkers {
    /// Returns a pool without workers; each compilation gets `limit` of wall-clock time.
    pub(crate) fn new(command: WorkerCommand, limit: Duration) -> Self {
        Self { command, limit, idle: Mutex::new(Vec::new()) }
    }

    /// Compiles CUDA C for compute capability `sm` (times ten). If a worker dies, the kernel is to
    /// blame only if the worker was fresh; otherwise another worker tries again.
    pub(crate) fn compile(&self, source: &str, sm: u32) -> Result<Result<CompiledCuda, CandidateError>, MeasureError> {
        let task = WorkerTask::Compile { source: source.to_string(), sm };
        let request = Request { timing: TimingOptions::default(), memory_slack_bytes: 0, task };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        loop {
            let is_fresh = idle.is_none();
            let mut worker =
                idle.take().map_or_else(|| WorkerProcess::spawn(&self.command, &Interrupt::default()), Ok)?;
            match worker.ask(&request, &[], self.limit, &Interrupt::default()) {
                Ok(Response::Compiled { outcome }) => {
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
                    return Ok(outcome);
                }
                Ok(_) => return Err(MeasureError::Worker { message: "it sent an unexpected response".into() }),
                Err(Loss::Kernel(CandidateError::Timeout { limit_secs })) => {
                    return Ok(Err(CandidateError::BuildTimeout { limit_secs }));
                }
                Err(_) if !is_fresh => {}
                Err(Loss::Kernel(error)) => {
                    return Ok(Err(CandidateError::Build { message: format!("the compiler {error}") }));
                }
                Err(loss) => return Err(loss.into_error(|message| MeasureError::Worker { message })),
            }
        }
    }
}
