//! The worker process: runs kernels that may do anything.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use autotune_ir::GpuTarget;
use autotune_schedules::Workload;

use crate::affinity::{allowed_cores, pin_to_core};
use crate::allocation_cache::AllocationCache;
use crate::available;
use crate::gpu::trial::Loaded;
use crate::gpu::{self, Gpu, nvrtc};
use crate::measurement::{CandidateError, RunSecs, human_bytes};
use crate::memory;
use crate::problem::{self, Problem};
use crate::protocol::{self, Job, MemoryAtStart, Request, Response, Task};
use crate::race::race;
use crate::reference_kernel::ReferenceKernels;
use crate::team::Team;
use crate::trial::{self, Trial};

/// Serves a measurer over standard input and output until the input ends: the main function of a program that is
/// started as a worker, [`crate::WorkerCommand`]. Nothing else may use standard input and output before or after.
pub fn serve() -> ExitCode {
    match serve_requests() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measuring worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_requests() -> io::Result<()> {
    let (input, output) = take_standard_streams()?;
    let mut output = File::from(output);
    memory::forbid_core_files();
    memory::report_when_dying();
    let requests = read_in_background(input);
    allowed_cores();
    let mut worker = Worker {
        team: Team::new(1),
        problems: HashMap::new(),
        reference_kernels: ReferenceKernels::default(),
        cache: AllocationCache::default(),
        gpu: None,
    };
    protocol::send(&mut output, &Response::Hello { version: protocol::version() }, &[])?;
    while let Ok((request, raw)) = requests.recv() {
        let response = worker.answer(&request, &raw, &mut output)?;
        memory::lift();
        protocol::send(&mut output, &response, &[])?;
    }
    Ok(())
}

/// Moves the protocol away from the descriptors 0 and 1, which kernels may write to: input is empty from now on, and
/// output goes to standard error.
fn take_standard_streams() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    let empty = File::open("/dev/null")?;
    for (from, to) in [(empty.as_raw_fd(), 0), (2, 1)] {
        // SAFETY: both descriptors are open; nothing in this process relies on what `to` was.
        if unsafe { libc::dup2(from, to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok((input, output))
}

/// Reads requests in a thread that ends the process with the input, whatever the kernels are doing: no worker outlives
/// its measurer.
fn read_in_background(input: OwnedFd) -> Receiver<(Request, Vec<u8>)> {
    let (sender, receiver) = mpsc::channel();
    let mut input = File::from(input);
    thread::spawn(move || {
        while let Ok(Some(request)) = protocol::receive(&mut input) {
            if sender.send(request).is_err() {
                break;
            }
        }
        // SAFETY: `_exit` ends the process at once and runs nothing.
        unsafe { libc::_exit(0) };
    });
    receiver
}

/// How often the measurer is told that a problem is still being made.
const SIGN_OF_LIFE: Duration = Duration::from_millis(100);

/// Most bytes of problems that are kept.
const PROBLEM_BYTES: usize = 1 << 30;

struct Worker {
    team: Team,
    /// Those made so far: batches of candidates of several workloads come in turns.
    problems: HashMap<Workload, Problem>,
    reference_kernels: ReferenceKernels,
    /// What kernels packed, and memory of earlier trials' buffers.
    cache: AllocationCache,
    /// The device of the last job that was for a GPU.
    gpu: Option<(GpuTarget, Box<dyn Gpu>)>,
}

impl Worker {
    fn answer(&mut self, request: &Request, raw: &[u8], output: &mut File) -> io::Result<Response> {
        let jobs = match &request.task {
            Task::Time { job, .. } => std::slice::from_ref(&**job),
            Task::Race { jobs, .. } => jobs,
            Task::Ceilings { target } => return self.ceilings(target, output),
            Task::Compile { source, sm } => return compile(source, *sm, output),
        };
        // Problems are made before the jobs count as started: they are no part of a candidate's time.
        self.forget_problems(jobs);
        for job in jobs {
            if let Some(refusal) = self.prepare(&job.workload, output)? {
                return Ok(refusal);
            }
        }
        match jobs.first().and_then(|job| job.target.gpu()) {
            Some(target) => self.answer_on_gpu(request, jobs, target, raw, output),
            None => self.answer_on_cpu(request, jobs, raw, output),
        }
    }

    /// The device, opened unless it is open. From then on a death is the work's doing.
    fn start_on_gpu(&mut self, target: &GpuTarget, output: &mut File) -> io::Result<Result<(), String>> {
        if self.gpu.as_ref().is_none_or(|(open, _)| open != target) {
            self.gpu = match gpu::open(target) {
                Ok(device) => Some((target.clone(), device)),
                Err(error) => return Ok(Err(error.to_string())),
            };
        }
        protocol::send(output, &Response::Started { memory: MemoryAtStart::UNLIMITED }, &[])?;
        Ok(Ok(()))
    }

    fn ceilings(&mut self, target: &GpuTarget, output: &mut File) -> io::Result<Response> {
        let started = self.start_on_gpu(target, output)?;
        let measured = started.and_then(|()| match &self.gpu {
            Some((_, device)) => device.ceilings().map_err(|error| error.to_string()),
            None => Err("the device is not open".into()),
        });
        Ok(match measured {
            Ok(ceilings) => Response::Ceilings { ceilings },
            Err(message) => Response::Failed { message },
        })
    }

    fn answer_on_gpu(
        &mut self,
        request: &Request,
        jobs: &[Job],
        target: &GpuTarget,
        raw: &[u8],
        output: &mut File,
    ) -> io::Result<Response> {
        let failed = |message: String| Ok(Response::Failed { message });
        if let Err(message) = self.start_on_gpu(target, output)? {
            return failed(message);
        }
        let Some((_, device)) = &self.gpu else {
            return failed("the device is not open".into());
        };
        let mut trials = Vec::with_capacity(jobs.len());
        for job in jobs {
            let (Some(built), Some(problem)) = (job.built(raw), self.problems.get_mut(&job.workload)) else {
                return failed("a job's code or problem is missing".into());
            };
            trials.push(device.load(problem, &built, request.timing.cold));
        }
        let timing = &request.timing;
        let measure = |incumbent_secs| {
            move |trial: Result<Box<dyn Loaded>, CandidateError>| {
                gpu::trial::measure(&mut *trial?, timing, incumbent_secs)
            }
        };
        let outcomes = match request.task {
            Task::Time { incumbent_secs, .. } => trials.into_iter().map(measure(incumbent_secs)).collect(),
            Task::Race { budget_secs, .. } => race(trials, timing, budget_secs, &mut ()),
            Task::Ceilings { .. } | Task::Compile { .. } => Vec::new(),
        };
        let is_stray = |outcome: &Result<_, _>| matches!(outcome, Err(CandidateError::StrayWrite { .. }));
        let is_spoilt =
            outcomes.iter().any(is_stray) || (outcomes.iter().any(|outcome| outcome.is_err()) && !device.is_well());
        Ok(Response::Done { outcomes, is_spoilt })
    }

    fn answer_on_cpu(
        &mut self,
        request: &Request,
        jobs: &[Job],
        raw: &[u8],
        output: &mut File,
    ) -> io::Result<Response> {
        pin_to_core(0);
        if let Err(refusal) = self.start(request, jobs, output)? {
            return Ok(refusal);
        }
        let mut trials = Vec::with_capacity(jobs.len());
        for job in jobs {
            match self.load(job, raw, request.timing.cold) {
                Ok(trial) => trials.push(trial),
                Err(message) => return Ok(Response::Failed { message }),
            }
        }

        let (timing, team) = (&request.timing, &mut self.team);
        let outcomes = match (&request.task, trials.pop()) {
            (Task::Time { job, incumbent_secs }, Some(Ok(trial))) => {
                let (outcome, spare) =
                    self.reference_kernels.measure(&job.workload, trial, timing, *incumbent_secs, team);
                spare.into_iter().for_each(|trial| trial.give_back(&mut self.cache));
                vec![outcome]
            }
            (Task::Race { budget_secs, .. }, last) => {
                trials.extend(last);
                race(trials, timing, *budget_secs, team)
            }
            (_, last) => last.into_iter().filter_map(Result::err).map(Err).collect(),
        };
        Ok(Response::done(outcomes))
    }

    /// A job's kernel with its operands; the outer error is not the kernel's fault.
    fn load(&mut self, job: &Job, raw: &[u8], cold: bool) -> Result<Result<Trial, CandidateError>, String> {
        let built = job.built(raw).ok_or("machine code is missing")?;
        let problem = self.problems.get_mut(&job.workload).ok_or("the problem is missing")?;
        // SAFETY: this process is there to run code that nobody vouches for; if it breaks, it is replaced.
        Ok(unsafe { Trial::new(problem, &built, cold, &mut self.cache, &mut self.team) })
    }

    /// Makes room if problems take much: those of other jobs go first.
    fn forget_problems(&mut self, jobs: &[Job]) {
        let is_too_much =
            |problems: &HashMap<_, _>| problems.values().map(Problem::bytes).sum::<usize>() > PROBLEM_BYTES;
        if is_too_much(&self.problems) {
            self.problems.retain(|workload, _| jobs.iter().any(|job| job.workload == *workload));
        }
        if is_too_much(&self.problems) {
            self.problems.values_mut().for_each(Problem::forget_layouts);
        }
    }

    /// Makes a workload's operands and reference unless they are there; says why if that cannot be.
    fn prepare(&mut self, workload: &Workload, output: &mut File) -> io::Result<Option<Response>> {
        if self.problems.contains_key(workload) {
            return Ok(None);
        }
        let (workload, needed_bytes) = (*workload, problem::needed_bytes(workload));
        let available_bytes = available::available_bytes();
        let problem = match needed_bytes <= available_bytes {
            true => made_with_signs_of_life(&workload, output)?,
            false => None,
        };
        Ok(match problem {
            Some(problem) => {
                self.problems.insert(workload, problem);
                None
            }
            None => Some(Response::NoMemory { workload, needed_bytes, available_bytes }),
        })
    }

    /// Sets the memory limit and the team up for the jobs, and tells the measurer that from now on they are to blame. Kernels that fit
    /// memory one by one, but not together, are refused: no kernel's fault.
    fn start(&mut self, request: &Request, jobs: &[Job], output: &mut File) -> io::Result<Result<(), Response>> {
        let threads = jobs.iter().map(|job| job.target.threads()).max().unwrap_or(1);
        if self.team.threads() != threads {
            self.team = Team::new(threads);
        }

        let (available_bytes, mut together_bytes) = (available::available_bytes(), 0usize);
        for job in jobs {
            let needed = trial::needed_bytes(&job.plan, &job.target, request.timing.cold);
            // Beside its buffers, a trial keeps the operands, and an output that is compared: at most as much again.
            let bytes = needed.map_or(usize::MAX, |b| b.saturating_mul(2));
            if bytes > available_bytes {
                let message = format!("its buffers and their copies need {}", human_bytes(bytes));
                return Ok(Err(Response::done(vec![Err(CandidateError::OutOfMemory { message }); jobs.len()])));
            }
            together_bytes = together_bytes.saturating_add(bytes);
        }
        if together_bytes > available_bytes {
            let message = format!("the racers' buffers need {} together", human_bytes(together_bytes));
            return Ok(Err(Response::Failed { message }));
        }

        let memory = memory::limit_growth(request.memory_slack_bytes.saturating_add(together_bytes));
        protocol::send(output, &Response::Started { memory }, &[])?;
        Ok(Ok(()))
    }
}

/// Makes a problem and meanwhile tells the measurer that it is being made; `None` for want of memory.
fn made_with_signs_of_life(workload: &Workload, output: &mut File) -> io::Result<Option<Problem>> {
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || sender.send(Problem::new(workload)).is_ok());
        loop {
            match receiver.recv_timeout(SIGN_OF_LIFE) {
                Ok(problem) => return Ok(problem.ok()),
                Err(RecvTimeoutError::Timeout) => protocol::send(output, &Response::Preparing, &[])?,
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("operands could not be made")),
            }
        }
    })
}

impl Response {
    /// The outcomes of kernels on the CPU, where one that failed may have written to anything.
    fn done(outcomes: Vec<Result<RunSecs, CandidateError>>) -> Self {
        let is_spoilt = !outcomes.iter().all(is_harmless);
        Self::Done { outcomes, is_spoilt }
    }
}

/// True for the outcome of a kernel that ran well, or not at all: the process can run others.
pub(crate) fn is_harmless(outcome: &Result<RunSecs, CandidateError>) -> bool {
    matches!(outcome, Ok(_) | Err(CandidateError::Lower { .. } | CandidateError::Build { .. }))
}

fn compile(source: &str, sm: u32, output: &mut File) -> io::Result<Response> {
    protocol::send(output, &Response::Started { memory: MemoryAtStart::UNLIMITED }, &[])?;
    Ok(Response::Compiled { outcome: nvrtc::compile(source, sm) })
}
