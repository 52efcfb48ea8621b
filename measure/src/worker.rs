//! Worker process, in which kernels run that may do anything.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use autotune_ir::Target;
use autotune_measurement::CandidateError;
use autotune_runtime::{allowed_cores, pin_to_core};
use autotune_workloads::Workload;

use crate::available;
use crate::built::Built;
use crate::error::human_bytes;
use crate::memory::{self, MemoryAtStart};
use crate::nvrtc;
use crate::problem::{self, TestProblem};
use crate::protocol::{self, Job, Request, Response, WorkerTask};
use crate::station::{self, Station};

/// Serves a measurer over standard input and output until the input ends. This is the main function
/// of a program started as a worker, see [`crate::WorkerCommand`]. Nothing else may use standard
/// input and output before or after.
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
    // Determine the allowed cores before any thread is pinned.
    allowed_cores();
    let mut worker = Worker { problems: HashMap::new(), station: None };
    protocol::send(&mut output, &Response::Hello { version: protocol::version() }, &[])?;
    while let Ok((request, raw)) = requests.recv() {
        let response = worker.answer(&request, &raw, &mut output)?;
        memory::restore_limit();
        protocol::send(&mut output, &response, &[])?;
    }
    Ok(())
}

/// Duplicates descriptors 0 and 1 for the protocol and redirects the originals, because kernels may
/// use them: standard input becomes empty, and standard output goes to standard error.
fn take_standard_streams() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    let empty = File::open("/dev/null")?;
    for (from, to) in [(empty.as_raw_fd(), 0), (2, 1)] {
        // SAFETY: both descriptors are open, and nothing in this process relies on the old target
        // of `to`.
        if unsafe { libc::dup2(from, to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok((input, output))
}

/// Reads requests in a thread that ends the process when the input ends, whatever the kernels are
/// doing: no worker outlives its measurer.
fn read_in_background(input: OwnedFd) -> Receiver<(Request, Vec<u8>)> {
    let (sender, receiver) = mpsc::channel();
    let mut input = File::from(input);
    thread::spawn(move || {
        while let Ok(Some(request)) = protocol::receive(&mut input) {
            if sender.send(request).is_err() {
                break;
            }
        }
        // SAFETY: `_exit` ends the process at once and runs no other code.
        unsafe { libc::_exit(0) };
    });
    receiver
}

/// Interval at which the worker reports that it is still making a problem.
const SIGN_OF_LIFE: Duration = Duration::from_millis(100);

/// Limit in bytes of cached problems.
const PROBLEM_BYTES: usize = 1 << 30;

struct Worker {
    /// Problems made so far, for each workload, since batches of several workloads may alternate.
    problems: HashMap<Workload, TestProblem>,
    /// Device of the last job.
    station: Option<(Target, Box<dyn Station>)>,
}

impl Worker {
    fn answer(&mut self, request: &Request, raw: &[u8], output: &mut File) -> io::Result<Response> {
        let jobs = match &request.task {
            WorkerTask::Time { job, .. } => std::slice::from_ref(&**job),
            WorkerTask::Race { jobs, .. } => jobs,
            WorkerTask::Ceilings { target } => return self.ceilings(&Target::Gpu(target.clone()), output),
            WorkerTask::Compile { source, sm } => return compile(source, *sm, output),
        };
        let Some(target) = jobs.first().map(|job| &job.target) else {
            return Ok(Response::Done { outcomes: Vec::new(), is_spoilt: false });
        };
        // Problems are made before the jobs count as started, so that this time is not counted as a
        // candidate's.
        self.forget_problems(jobs);
        for job in jobs {
            if let Some(refusal) = self.prepare(&job.workload, output)? {
                return Ok(refusal);
            }
        }
        if let Err(message) = self.open(target) {
            return Ok(Response::Failed { message });
        }
        match self.start(request, jobs, output)? {
            Some(refusal) => Ok(refusal),
            None => Ok(self.run(request, jobs, raw)),
        }
    }

    /// Opens the device unless it is open. On a CPU, pins this thread to the first core.
    fn open(&mut self, target: &Target) -> Result<&mut dyn Station, String> {
        if matches!(target, Target::Cpu(_)) {
            pin_to_core(0);
        }
        let open = match self.station.take() {
            Some((open, station)) if open == *target => (open, station),
            other => {
                // Close the other device first: the memory may not hold the data of both.
                drop(other);
                (target.clone(), station::open(target).map_err(|error| error.to_string())?)
            }
        };
        Ok(&mut *self.station.insert(open).1)
    }

    fn ceilings(&mut self, target: &Target, output: &mut File) -> io::Result<Response> {
        let station = match self.open(target) {
            Ok(station) => station,
            Err(message) => return Ok(Response::Failed { message }),
        };
        protocol::send(output, &Response::Started { memory: MemoryAtStart::UNLIMITED }, &[])?;
        Ok(match station.ceilings() {
            Ok(ceilings) => Response::Ceilings { ceilings },
            Err(error) => Response::Failed { message: error.to_string() },
        })
    }

    /// Runs the kernels of jobs that were reported as started. A kernel may break this process; the
    /// measurer then replaces it.
    fn run(&mut self, request: &Request, jobs: &[Job], raw: &[u8]) -> Response {
        let failed = |message: &str| Response::Failed { message: message.into() };
        let built: Option<Vec<Built>> = jobs.iter().map(|job| job.built(raw)).collect();
        let (Some(built), Some((_, station))) = (built, &mut self.station) else {
            return failed("a job's code or device is missing");
        };
        let timing = &request.timing;
        let outcomes = match (&request.task, &built[..]) {
            (WorkerTask::Time { incumbent_secs, .. }, [built]) => {
                let Some(problem) = self.problems.get(&built.workload) else {
                    return failed("the workload was not prepared");
                };
                // SAFETY: faults of the kernel are confined to this process, which exists for that
                // purpose.
                vec![unsafe { station.time(problem, built, timing, *incumbent_secs) }]
            }
            (WorkerTask::Race { budget_secs, .. }, built) => {
                // SAFETY: as above.
                unsafe { station.race(&self.problems, built, timing, *budget_secs) }
            }
            _ => Vec::new(),
        };
        let is_spoilt = station.is_spoilt(&outcomes);
        Response::Done { outcomes, is_spoilt }
    }

    /// Drops problems of workloads other than the jobs' if all cached data exceeds the limit.
    fn forget_problems(&mut self, jobs: &[Job]) {
        let resident_bytes = self.station.as_ref().map_or(0, |(_, station)| station.bytes());
        let problem_bytes: usize = self.problems.values().map(TestProblem::bytes).sum();
        if problem_bytes.saturating_add(resident_bytes) <= PROBLEM_BYTES {
            return;
        }
        let is_wanted = |workload: &Workload| jobs.iter().any(|job| job.workload == *workload);
        let unwanted: Vec<Workload> = self.problems.keys().filter(|workload| !is_wanted(workload)).cloned().collect();
        for workload in unwanted {
            self.problems.remove(&workload);
            if let Some((_, station)) = &mut self.station {
                station.forget(&workload);
            }
        }
    }

    /// Makes a workload's operands and reference unless they exist. Returns the refusal if memory
    /// is short.
    fn prepare(&mut self, workload: &Workload, output: &mut File) -> io::Result<Option<Response>> {
        if self.problems.contains_key(workload) {
            return Ok(None);
        }
        let (workload, needed_bytes) = (workload.clone(), problem::needed_bytes(workload));
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

    /// Sets the memory limit for the jobs and reports them as started, so that from now on a crash
    /// is their fault. Returns the response if they cannot run. Kernels that fit the memory one by
    /// one, but not together, are refused, which is not a kernel's fault.
    fn start(&mut self, request: &Request, jobs: &[Job], output: &mut File) -> io::Result<Option<Response>> {
        let Some((_, station)) = &self.station else {
            return Ok(Some(Response::Failed { message: "the device is not open".into() }));
        };
        let (available_bytes, mut together_bytes) = (available::available_bytes(), 0usize);
        for job in jobs {
            let needed = station.host_bytes(&job.plan);
            // In addition to its buffers a trial needs the operands and an expected output: at most
            // as much again.
            let bytes = needed.map_or(usize::MAX, |b| b.saturating_mul(2));
            if bytes > available_bytes {
                let message = format!("its buffers and their copies need {}", human_bytes(bytes));
                let outcomes = vec![Err(CandidateError::OutOfMemory { message }); jobs.len()];
                return Ok(Some(Response::Done { is_spoilt: station.is_spoilt(&outcomes), outcomes }));
            }
            together_bytes = together_bytes.saturating_add(bytes);
        }
        if together_bytes > available_bytes {
            let message = format!("the buffers of all candidates of the race need {}", human_bytes(together_bytes));
            return Ok(Some(Response::Failed { message }));
        }

        let memory = match together_bytes {
            0 => MemoryAtStart::UNLIMITED,
            bytes => memory::limit_growth(request.memory_slack_bytes.saturating_add(bytes)),
        };
        protocol::send(output, &Response::Started { memory }, &[])?;
        Ok(None)
    }
}

/// Makes a problem, and reports meanwhile that it is being made; `None` if memory is short.
fn made_with_signs_of_life(workload: &Workload, output: &mut File) -> io::Result<Option<TestProblem>> {
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || sender.send(TestProblem::new(workload)).is_ok());
        loop {
            match receiver.recv_timeout(SIGN_OF_LIFE) {
                Ok(problem) => return Ok(problem.ok()),
                Err(RecvTimeoutError::Timeout) => protocol::send(output, &Response::Preparing, &[])?,
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("cannot make the operands")),
            }
        }
    })
}

fn compile(source: &str, sm: u32, output: &mut File) -> io::Result<Response> {
    protocol::send(output, &Response::Started { memory: MemoryAtStart::UNLIMITED }, &[])?;
    Ok(Response::Compiled { outcome: nvrtc::compile(source, sm) })
}
