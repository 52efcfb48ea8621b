//! Worker process as the measurer controls it.

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

/// Time limit for a worker's greeting.
const HELLO_LIMIT: Duration = Duration::from_secs(20);

/// Interval at which the caller is asked whether to stop.
const POLL: Duration = Duration::from_millis(50);

/// Time that a worker gets to exit on its own after it closed its output.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

/// Bytes of the worker's standard error that are remembered.
const WORDS_BYTES: usize = 4096;

/// Most characters of standard error that a message quotes.
const QUOTE_CHARS: usize = 200;

/// Running worker in its own process group. It is killed when this value is dropped.
pub(crate) struct WorkerProcess {
    child: Child,
    /// True once the child was waited for: its process id may belong to another process then.
    reaped: bool,
    input: ChildStdin,
    responses: Receiver<Response>,
    words: StderrTail,
}

/// Exit of a worker process.
struct End {
    /// Exit status; `None` if the system does not report it.
    status: Option<ExitStatus>,
    /// True if the process was killed by this one.
    killed: bool,
}

/// Reason that a worker gave no outcome.
pub(crate) enum Loss {
    /// The worker died or stopped responding before a kernel ran.
    Early(String),
    /// The kernel killed the worker or ran too long.
    Kernel(CandidateError),
    /// The worker reported that it cannot carry out the request.
    Refused(MeasureError),
}

impl Loss {
    /// Converts the reason to an error, for requests in which no kernel is to blame.
    pub(crate) fn into_error(self, fault: impl FnOnce(String) -> MeasureError) -> MeasureError {
        match self {
            Self::Early(message) => fault(message),
            Self::Kernel(error) => fault(error.to_string()),
            Self::Refused(error) => error,
        }
    }
}

/// Reason that no response arrived.
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
        let mut worker = Self { child, reaped: false, input, responses, words: StderrTail::collect(errors) };
        let fault = match worker.next(Instant::now() + HELLO_LIMIT, interrupt) {
            Ok(Response::Hello { version }) if version == protocol::version() => return Ok(worker),
            Ok(Response::Hello { .. }) => "its version differs from that of this program".to_string(),
            Ok(_) => "its first message is not a greeting".to_string(),
            Err(Silence::Late) => "it did not respond after it was started".to_string(),
            Err(Silence::HungUp) => worker.last_words(),
            Err(Silence::Interrupted) => return Err(MeasureError::Interrupted),
        };
        Err(MeasureError::Worker { message: format!("'{command}': {fault}") })
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request with its raw bytes and waits at most `limit`, not counting the time to make
    /// operands and reference. Returns `Done`, `Ceilings` or `CompiledCuda`. After an error the
    /// worker must not be used again.
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
                Ok(Response::Hello { .. }) => return Err(Loss::Early("it restarted".into())),
                Err(Silence::Interrupted) => return Err(Loss::Refused(MeasureError::Interrupted)),
                Err(Silence::Late) if started.is_some() => {
                    return Err(Loss::Kernel(CandidateError::Timeout { limit_secs: limit.as_secs_f64() }));
                }
                Err(Silence::Late) => return Err(Loss::Early("it does not respond".into())),
                Err(Silence::HungUp) => {
                    return Err(match started {
                        Some(memory) => Loss::Kernel(self.cause_of_death(memory)),
                        None => Loss::Early(self.last_words()),
                    });
                }
            }
        }
    }

    /// Waits for the next response until `deadline`.
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

    /// Returns the error of a kernel that killed the worker, judged by exit status and memory use.
    fn cause_of_death(&mut self, memory: MemoryAtStart) -> CandidateError {
        let end = self.end();
        let message = self.describe(&end);
        let full_bytes = memory.data_bytes.saturating_add(memory.allowance_bytes / 10 * 9);
        // A failed allocation often ends in a crash: count it as out of memory if the limit was
        // almost reached.
        let filled = self.words.reported_bytes().is_some_and(|bytes| bytes >= full_bytes);
        let killed_by_system = !end.killed && end.status.is_some_and(|s| s.signal() == Some(libc::SIGKILL));
        if filled || killed_by_system || message.contains("memory allocation of") {
            let allowed = memory.allowance_bytes >> 20;
            return CandidateError::OutOfMemory { message: format!("{message}; its limit was {allowed} MiB") };
        }
        CandidateError::Crash { message }
    }

    /// Waits for the exit and describes it.
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
            (None, None) => "it exited".to_string(),
        };
        match self.words.last_line() {
            Some(line) => format!("{how}; last line of its error output: {line}"),
            None => how,
        }
    }

    /// Waits for the process to exit, kills it if necessary, and kills the rest of its process
    /// group.
    fn end(&mut self) -> End {
        let deadline = Instant::now() + EXIT_LIMIT;
        while !self.has_exited() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let killed = !self.has_exited();
        End { status: self.kill_and_reap(), killed }
    }

    /// Returns true if the process ended, whether or not it was waited for.
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

/// Returns true if the child ended or does not exist, without reaping it.
fn has_exited(pid: u32) -> bool {
    // SAFETY: an all-zero siginfo_t is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid siginfo_t to write to.
    let status = unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, options) };
    // SAFETY: waitid filled `info` in or left it all-zero.
    status != 0 || unsafe { info.si_pid() } != 0
}

/// Reads responses in a thread, so that waiting for one can have a time limit. The channel closes
/// when the stream ends or has an invalid message.
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

/// Last bytes that a worker wrote to its standard error.
struct StderrTail {
    tail: Arc<Mutex<Vec<u8>>>,
    /// Channel that closes once the stream has ended.
    done: Receiver<()>,
}

impl StderrTail {
    fn collect(mut errors: ChildStderr) -> Self {
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
        // A descendant outside the process group may keep the stream open, so do not wait for long.
        let _ = self.done.recv_timeout(Duration::from_millis(200));
        String::from_utf8_lossy(&self.tail.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Returns the memory use that the dying worker reported.
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
