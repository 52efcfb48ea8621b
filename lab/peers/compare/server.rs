//! Process that prepares operators and runs them in turns, controlled by lines of JSON (the
//! protocol is in server.py). It is stopped outside its turns. If it crashes, hangs or loses its
//! device, the next workload gets a new process.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Time limit for a start, and for preparing an operator with its reference and its variants.
const PREPARE_LIMIT: Duration = Duration::from_secs(240);

/// Time that a turn may exceed the requested seconds.
const TURN_LIMIT: Duration = Duration::from_secs(60);

/// Answer about a prepared operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// Variant of the operator that the library selected.
    pub(crate) how: String,
    /// Largest deviation from the reference over the reference's largest magnitude.
    pub(crate) max_rel_error: f64,
}

/// Answer about this library's kernel after its turns.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Rechecked {
    /// Largest error so far, as in [`Prepared`].
    pub(crate) max_rel_error: f64,
    /// Number of runs in the replayed graph; 0 if each run was launched alone.
    pub(crate) graph_runs: usize,
}

/// Process that is restarted on demand after it ended.
pub(crate) struct Server {
    /// Name and version of the library.
    pub(crate) name: String,
    command: Command,
    running: Option<Running>,
}

impl Server {
    /// Starts a process; `command` must leave standard input and output unset.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = Self { name: String::new(), command, running: None };
        server.begin()?;
        Ok(server)
    }

    fn begin(&mut self) -> Result<()> {
        let mut running = Running::start(&mut self.command)?;
        let hello = checked(running.answer(PREPARE_LIMIT)?)?;
        running.stop();
        let word = |key: &str| hello[key].as_str().unwrap_or_default();
        self.name = format!("{} {}", word("name"), word("version")).trim().to_string();
        self.running = Some(running);
        Ok(())
    }

    /// Ends the process, so that the next operator starts in a fresh one.
    pub(crate) fn renew(&mut self) {
        self.running = None;
    }

    /// Builds an operator and checks its output; returns `None` if the library lacks the operator.
    pub(crate) fn prepare(&mut self, order: Value) -> Result<Option<Prepared>> {
        if self.running.is_none() {
            self.begin()?;
        }
        let answer = self.ask(&json!({ "prepare": order }), PREPARE_LIMIT)?;
        if answer["absent"] == true {
            return Ok(None);
        }
        Ok(Some(serde_json::from_value(answer)?))
    }

    /// Runs the prepared operator for `secs` and returns the seconds per run of each repeat.
    pub(crate) fn turn(&mut self, secs: f64) -> Result<Vec<f64>> {
        let answer = self.ask(&json!({ "turn": secs }), TURN_LIMIT + Duration::from_secs_f64(secs))?;
        Ok(serde_json::from_value(answer["run_secs"].clone())?)
    }

    /// Checks the output of the prepared operator again.
    pub(crate) fn recheck(&mut self) -> Result<Rechecked> {
        Ok(serde_json::from_value(self.ask(&json!("recheck"), PREPARE_LIMIT)?)?)
    }

    /// Sends a request to the running process. Ends the process if it does not answer in time, or
    /// reports its device as lost.
    fn ask(&mut self, request: &Value, limit: Duration) -> Result<Value> {
        let running = self.running.as_mut().context("the process ended before")?;
        let answer = running.ask(request, limit);
        if answer.as_ref().map_or(true, |answer| answer["lost"] == true) {
            self.running = None;
        }
        checked(answer?)
    }
}

fn checked(answer: Value) -> Result<Value> {
    match answer["error"].as_str() {
        Some(why) => bail!("{why}"),
        None => Ok(answer),
    }
}

struct Running {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.spawn().with_context(|| format!("{:?}", command.get_program()))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("no pipes");
        };
        Ok(Self { child, requests, answers: BufReader::new(answers) })
    }

    /// Resumes the process, sends a request, and stops the process after the answer, so that its
    /// threads spin during its own turns only.
    fn ask(&mut self, request: &Value, limit: Duration) -> Result<Value> {
        self.signal(libc::SIGCONT);
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        // If writing fails, the process has ended, and its exit status is the better error.
        let answer = self.answer(limit).and_then(|answer| sent.map(|()| answer).map_err(anyhow::Error::from))?;
        self.stop();
        Ok(answer)
    }

    fn answer(&mut self, limit: Duration) -> Result<Value> {
        ensure!(self.is_readable(limit)?, "no answer within {} s", limit.as_secs());
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the process ended{}", self.end());
        }
        serde_json::from_str(&line).with_context(|| format!("no answer: {}", line.trim_end()))
    }

    /// Waits until the pipe is readable or closed; returns false after the time limit.
    fn is_readable(&self, limit: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut wanted = libc::pollfd { fd: self.answers.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let millis = libc::c_int::try_from(left.as_millis() + 1).unwrap_or(libc::c_int::MAX);
            // SAFETY: the pointer is to one `pollfd`, as the count says, which outlives the call.
            match unsafe { libc::poll(&mut wanted, 1, millis) } {
                0 if left.is_zero() => return Ok(false),
                0 => {}
                -1 => {
                    let error = std::io::Error::last_os_error();
                    if error.kind() != std::io::ErrorKind::Interrupted {
                        return Err(error.into());
                    }
                }
                _ => return Ok(true),
            }
        }
    }

    /// Describes how a process that closed its output ended, in brackets; empty if it is still
    /// running after a second.
    fn end(&mut self) -> String {
        for _ in 0..40 {
            if let Ok(Some(status)) = self.child.try_wait() {
                return format!(" ({status})");
            }
            thread::sleep(Duration::from_millis(25));
        }
        String::new()
    }

    /// Stops the process and waits until it has stopped or ended.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        // SAFETY: all-zero bytes are a valid `siginfo_t`, which the call overwrites.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let states = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: the process is a child of this one, and `info` is a live local. `WNOWAIT` leaves
        // the child to be waited for later.
        unsafe { libc::waitid(libc::P_PID, self.child.id(), &mut info, states) };
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the process is a child that has not been waited for, so that its id is still its
        // own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors mean that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
