//! The worker process: runs kernels that may do anything.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};

use autotune_schedules::{GpuTarget, Workload};

use crate::affinity::{allowed_cores, pin_to_core};
use crate::gpu::{self, Gpu, nvrtc};
use crate::measurement::CandidateError;
use crate::memory;
use crate::packed::Kept;
use crate::problem::Problem;
use crate::protocol::{self, Job, MemoryAtStart, Request, Response, Task};
use crate::team::Team;
use crate::trial::{self, Trial};
use crate::yardstick::Yardsticks;

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
        yardsticks: Yardsticks::default(),
        kept: Kept::default(),
        gpu: None,
    };
    protocol::send(&mut output, &Response::Hello { version: protocol::VERSION }, &[])?;
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
    std::thread::spawn(move || {
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

/// Most bytes of problems that are kept.
const PROBLEM_BYTES: usize = 1 << 30;

struct Worker {
    team: Team,
    /// Those read so far: batches of candidates of several workloads come in turns.
    problems: HashMap<Workload, Problem>,
    yardsticks: Yardsticks,
    /// What kernels packed, and memory of earlier trials' buffers.
    kept: Kept,
    /// The device of the last job that was for a GPU.
    gpu: Option<(GpuTarget, Box<dyn Gpu>)>,
}

impl Worker {
    fn answer(&mut self, request: &Request, raw: &[u8], output: &mut File) -> io::Result<Response> {
        let jobs = match &request.task {
            Task::Time { job, .. } => std::slice::from_ref(&**job),
            Task::Race { jobs } => jobs,
            Task::Ceilings { target } => return self.ceilings(target, output),
            Task::Compile { source, sm } => return compile(source, *sm, output),
        };
        // Problems are read before the jobs count as started: they are no part of a candidate's time.
        if self.problems.values().map(Problem::bytes).sum::<usize>() > PROBLEM_BYTES {
            self.problems.clear();
        }
        for job in jobs {
            if let Err(message) = self.read_problem(job) {
                return Ok(Response::Failed { message });
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
            match device.load(problem, &built, request.timing.cold) {
                Ok(trial) => trials.push(trial),
                Err(error) => return Ok(Response::Done { outcomes: vec![Err(error); jobs.len()] }),
            }
        }
        let timing = &request.timing;
        let outcomes = match &request.task {
            Task::Time { incumbent_secs, .. } => {
                trials.iter_mut().map(|trial| gpu::trial::measure(&mut **trial, timing, *incumbent_secs)).collect()
            }
            _ => gpu::trial::race(trials, timing),
        };
        Ok(Response::Done { outcomes })
    }

    fn answer_on_cpu(
        &mut self,
        request: &Request,
        jobs: &[Job],
        raw: &[u8],
        output: &mut File,
    ) -> io::Result<Response> {
        pin_to_core(0);
        if let Err(error) = self.start(request, jobs, output)? {
            return Ok(Response::Done { outcomes: vec![Err(error); jobs.len()] });
        }
        let mut trials = Vec::with_capacity(jobs.len());
        for job in jobs {
            match (self.load(job, raw, request.timing.cold), &request.task) {
                (Ok(Ok(trial)), _) => trials.push(trial),
                (Ok(Err(error)), Task::Time { .. }) => return Ok(Response::Done { outcomes: vec![Err(error)] }),
                (Ok(Err(error)), _) => return Ok(Response::Failed { message: error.to_string() }),
                (Err(message), _) => return Ok(Response::Failed { message }),
            }
        }
        let (timing, team) = (&request.timing, &mut self.team);
        let outcomes = match (&request.task, trials.pop()) {
            (Task::Time { job, incumbent_secs }, Some(trial)) => {
                let (outcome, spare) = self.yardsticks.measure(&job.workload, trial, timing, *incumbent_secs, team);
                trials.extend(spare);
                vec![outcome]
            }
            (_, last) => {
                trials.extend(last);
                trial::race(&mut trials, timing, team)
            }
        };
        trials.into_iter().for_each(|trial| trial.give_back(&mut self.kept));
        Ok(Response::Done { outcomes })
    }

    /// A job's kernel with its operands; the outer error is not the kernel's fault.
    fn load(&mut self, job: &Job, raw: &[u8], cold: bool) -> Result<Result<Trial, CandidateError>, String> {
        let built = job.built(raw).ok_or("machine code is missing")?;
        let problem = self.problems.get_mut(&job.workload).ok_or("the problem is missing")?;
        // SAFETY: this process is there to run code that nobody vouches for; if it breaks, it is replaced.
        Ok(unsafe { Trial::new(problem, &built, cold, &mut self.kept, &mut self.team) })
    }

    /// Reads the job's problem unless it is there.
    fn read_problem(&mut self, job: &Job) -> Result<(), String> {
        if self.problems.contains_key(&job.workload) {
            return Ok(());
        }
        let read = Problem::read(&job.problem, &job.workload);
        self.problems.insert(job.workload, read.map_err(|e| format!("{}: {e}", job.problem.display()))?);
        Ok(())
    }

    /// Sets the memory limit and the team up for the jobs, and tells the measurer that from now on they are to blame.
    fn start(&mut self, request: &Request, jobs: &[Job], output: &mut File) -> io::Result<Result<(), CandidateError>> {
        let threads = jobs.iter().map(|job| job.target.threads()).max().unwrap_or(1);
        if self.team.threads() != threads {
            self.team = Team::new(threads);
        }
        let mut allowance = request.memory_slack_bytes;
        for job in jobs {
            let needed = trial::needed_bytes(&job.plan, &job.target, request.timing.cold);
            // Beside its buffers, a trial keeps the operands, and an output that is compared: at most as much again.
            let bytes = needed.map_or(usize::MAX, |b| b.saturating_mul(2));
            if bytes > memory::physical_bytes() {
                let message = format!("its buffers and their copies need {bytes} bytes");
                return Ok(Err(CandidateError::OutOfMemory { message }));
            }
            allowance = allowance.saturating_add(bytes);
        }
        let memory = memory::limit_growth(allowance);
        protocol::send(output, &Response::Started { memory }, &[])?;
        Ok(Ok(()))
    }
}

fn compile(source: &str, sm: u32, output: &mut File) -> io::Result<Response> {
    protocol::send(output, &Response::Started { memory: MemoryAtStart::UNLIMITED }, &[])?;
    Ok(Response::Compiled { outcome: nvrtc::compile(source, sm) })
}
