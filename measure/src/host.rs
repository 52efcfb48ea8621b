//! One worker process, seen from the measurer.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use autotune_measurement::CandidateError;

use crate::error::MeasureError;
use crate::interrupt::Interrupt;
use crate::location::WorkerCommand;
use crate::memory::{MemoryAtStart, reported_bytes};
use crate::process::kill_group;
use crate::protocol::{self, Request, Response};

/// How long a worker may take to report for duty.
const HELLO_LIMIT: Duration = Duration::from_secs(20);

/// How often it is asked whether to go on waiting.
const POLL: Duration = Duration::from_millis(50);

/// How long a worker that hung up may take to end by itself.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

/// Bytes of the worker's standard error that are kept.
const WORDS_BYTES: usize = 4096;

/// Characters of them that are quoted.
const QUOTE_CHARS: usize = 200;

/// A running worker in a process group of its own. It dies with this value.
pub(crate) struct WorkerProcess {
    child: Child,
    /// True once the child was waited for: its number may belong to another process then.
    reaped: bool,
    input: ChildStdin,
    responses: Receiver<Response>,
    words: Words,
}

/// How a worker ended.
struct End {
    /// `None` if the system does not tell.
    status: Option<ExitStatus>,
    /// True if it had to be killed from here.
    killed: bool,
}

/// Why a worker gave no outcome.
pub(crate) enum Loss {
    /// It died or fell silent before a kernel ran.
    Early(String),
    /// The kernel made it die, or ran too long.
    Kernel(CandidateError),
    /// It says that the request cannot be carried out.
    Refused(MeasureError),
}

impl Loss {
    /// What that means where no kernel is to blame.
    pub(crate) fn into_error(self, fault: impl FnOnce(String) -> MeasureError) -> MeasureError {
        match self {
            Self::Early(message) => fault(message),
            Self::Kernel(error) => fault(error.to_string()),
            Self::Refused(error) => error,
        }
    }
}

/// Why no response came.
enum Silence {
    Late,
    HungUp,
    Interrupted,
}

impl WorkerProcess {
    /// Starts a worker and waits until it is ready.
    pub(crate) fn spawn(command: &WorkerCommand, interrupt: &Interrupt) -> Result<Self, MeasureError> {
        let spawn_error = |source| MeasureError::Spawn { command: command.to_string(), source };
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(spawn_error)?;
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(spawn_error(io::Error::other("its standard streams are missing")));
        };
        let responses = read_responses(output);
        let mut worker = Self { child, reaped: false, input, responses, words: Words::listen(errors) };
        let fault = match worker.next(Instant::now() + HELLO_LIMIT, interrupt) {
            Ok(Response::Hello { version }) if version == protocol::version() => return Ok(worker),
            Ok(Response::Hello { .. }) => "it is of another version".to_string(),
            Ok(_) => "its first message is not a greeting".to_string(),
            Err(Silence::Late) => "it does not report for duty".to_string(),
            Err(Silence::HungUp) => worker.last_words(),
            Err(Silence::Interrupted) => return Err(MeasureError::Interrupted),
        };
        Err(MeasureError::Worker { message: format!("'{command}': {fault}") })
    }

    /// Process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has a request, sent with its raw bytes, carried out within `limit`, what operands and
    /// reference take apart: `Done`, `Ceilings` or `Compiled`. After any error the worker is of no
    /// more use.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        raw: &[u8],
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Response, Loss> {
        if protocol::send(&mut self.input, request, raw).is_err() {
            return Err(Loss::Early(self.last_words()));
        }

        let mut deadline = Instant::now() + limit;
        let mut started: Option<MemoryAtStart> = None;
        loop {
            match self.next(deadline, interrupt) {
                Ok(Response::Preparing) => deadline = Instant::now() + limit,
                Ok(Response::Started { memory }) => {
                    started = Some(memory);
                    deadline = Instant::now() + limit;
                }
                Ok(done @ (Response::Done { .. } | Response::Ceilings { .. } | Response::Compiled { .. })) => {
                    return Ok(done);
                }
                Ok(Response::NoMemory { workload, needed_bytes, available_bytes }) => {
                    let workload = Box::new(workload);
                    return Err(Loss::Refused(MeasureError::Memory { workload, needed_bytes, available_bytes }));
                }
                Ok(Response::Failed { message }) => return Err(Loss::Refused(MeasureError::Worker { message })),
                Ok(Response::Hello { .. }) => return Err(Loss::Early("it started anew".into())),
                Err(Silence::Interrupted) => return Err(Loss::Refused(MeasureError::Interrupted)),
                Err(Silence::Late) if started.is_some() => {
                    return Err(Loss::Kernel(CandidateError::Timeout { limit_secs: limit.as_secs_f64() }));
                }
                Err(Silence::Late) => return Err(Loss::Early("it does not answer".into())),
                Err(Silence::HungUp) => {
                    return Err(match started {
                        Some(memory) => Loss::Kernel(self.blame(memory)),
                        None => Loss::Early(self.last_words()),
                    });
                }
            }
        }
    }

    /// The next response.
    fn next(&self, deadline: Instant, interrupt: &Interrupt) -> Result<Response, Silence> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.responses.recv_timeout(left.min(POLL)) {
                Ok(response) => return Ok(response),
                Err(RecvTimeoutError::Disconnected) => return Err(Silence::HungUp),
                Err(RecvTimeoutError::Timeout) if interrupt.is_wanted() => return Err(Silence::Interrupted),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(Silence::Late),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// What a kernel did that the worker died of.
    fn blame(&mut self, memory: MemoryAtStart) -> CandidateError {
        let end = self.end();
        let message = self.describe(&end);
        let full_bytes = memory.data_bytes.saturating_add(memory.allowance_bytes / 10 * 9);
        let filled = self.words.reported_bytes().is_some_and(|bytes| bytes >= full_bytes);
        let killed_by_system = !end.killed && end.status.is_some_and(|s| s.signal() == Some(libc::SIGKILL));
        if filled || killed_by_system || message.contains("memory allocation of") {
            let allowed = memory.allowance_bytes >> 20;
            return CandidateError::OutOfMemory { message: format!("{message}; it might allocate {allowed} MiB") };
        }
        CandidateError::Crash { message }
    }

    /// Waits for the end and puts it into words.
    fn last_words(&mut self) -> String {
        let end = self.end();
        self.describe(&end)
    }

    fn describe(&self, end: &End) -> String {
        let status = end.status;
        let how = match (status.and_then(|s| s.signal()), status.and_then(|s| s.code())) {
            _ if end.killed => "it closed its connection but kept running".to_string(),
            (Some(signal), _) => format!("signal {signal}{}", signal_name(signal)),
            (None, Some(code)) => format!("it exited with status {code}"),
            (None, None) => "it ended".to_string(),
        };
        match self.words.last_line() {
            Some(line) => format!("{how}; its last words: {line}"),
            None => how,
        }
    }

    /// Waits for the process, if need be with force, and kills what it left in its group.
    fn end(&mut self) -> End {
        let deadline = Instant::now() + EXIT_LIMIT;
        while !self.has_exited() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let killed = !self.has_exited();
        End { status: self.kill_and_reap(), killed }
    }

    /// True if the process ended; it need not have been waited for.
    fn has_exited(&self) -> bool {
        self.reaped || has_exited(self.child.id())
    }

    fn kill_and_reap(&mut self) -> Option<ExitStatus> {
        if !self.reaped {
            kill_group(self.child.id());
        }
        let status = self.child.wait().ok();
        self.reaped = true;
        status
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill_and_reap();
    }
}

/// True if the child ended (or is none); it can still be waited for.
fn has_exited(pid: u32) -> bool {
    // SAFETY: an all-zero siginfo_t is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid siginfo_t to write to.
    let status = unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, options) };
    // SAFETY: waitid filled `info` in or left it zero.
    status != 0 || unsafe { info.si_pid() } != 0
}

/// Receives in a thread, so that waiting can have a limit. The channel closes with the stream, or
/// at the first noise.
fn read_responses(mut output: ChildStdout) -> Receiver<Response> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        while let Ok(Some((response, _))) = protocol::receive(&mut output) {
            if sender.send(response).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The end of what a worker wrote to its standard error.
struct Words {
    tail: Arc<Mutex<Vec<u8>>>,
    /// Closed once everything is read.
    done: Receiver<()>,
}

impl Words {
    fn listen(mut errors: ChildStderr) -> Self {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let (open, done) = mpsc::channel();
        let kept = Arc::clone(&tail);
        thread::spawn(move || {
            let _open: mpsc::Sender<()> = open;
            let mut chunk = [0; WORDS_BYTES];
            while let Ok(len @ 1..) = errors.read(&mut chunk) {
                let mut tail = kept.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend_from_slice(&chunk[..len]);
                let excess = tail.len().saturating_sub(WORDS_BYTES);
                tail.drain(..excess);
            }
        });
        Self { tail, done }
    }

    fn text(&self) -> String {
        // A process that left the group may hold the stream open: do not wait for it.
        let _ = self.done.recv_timeout(Duration::from_millis(200));
        String::from_utf8_lossy(&self.tail.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// The memory use that the dying worker reported.
    fn reported_bytes(&self) -> Option<usize> {
        self.text().lines().rev().find_map(reported_bytes)
    }

    fn last_line(&self) -> Option<String> {
        let text = self.text();
        let spoken = |line: &&str| !line.is_empty() && reported_bytes(line).is_none();
        Some(text.lines().map(str::trim).rfind(spoken)?.chars().take(QUOTE_CHARS).collect())
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => " (SIGSEGV, invalid memory access)",
        libc::SIGBUS => " (SIGBUS, invalid memory access)",
        libc::SIGILL => " (SIGILL, illegal instruction)",
        libc::SIGFPE => " (SIGFPE, arithmetic error)",
        libc::SIGABRT => " (SIGABRT, abort)",
        libc::SIGKILL => " (SIGKILL, as sent by the system when memory runs out)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
    }
}
