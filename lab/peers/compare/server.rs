//! A process that prepares operators and runs them in turns, asked by lines of JSON (server.py
//! tells the protocol). It sleeps outside its turns, and may crash, hang or lose its device: the
//! next workload gets another.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How long a start, and an operator with its reference and its variants, may take.
const PREPARE_LIMIT: Duration = Duration::from_secs(240);

/// How much longer than asked for a turn may take.
const TURN_LIMIT: Duration = Duration::from_secs(60);

/// What is said of a prepared operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// The variant.
    pub(crate) how: String,
    /// Largest deviation from the reference over the reference's largest magnitude.
    pub(crate) max_rel_error: f64,
}

/// What is said of one of our kernels after its turns.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Rechecked {
    /// The largest deviation so far.
    pub(crate) max_rel_error: f64,
    /// Runs in the graph that was replayed; 0 where each was launched by itself.
    pub(crate) graph_runs: usize,
}

/// The process, started again where it ended.
pub(crate) struct Server {
    /// Name and version.
    pub(crate) name: String,
    command: Command,
    running: Option<Running>,
}

impl Server {
    /// Starts a process; `command` says nothing of standard input and output.
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

    /// Has the process do without whatever an earlier operator left in it.
    pub(crate) fn renew(&mut self) {
        self.running = None;
    }

    /// Has an operator built and its output checked; `None` if there is no such operator.
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

    /// Runs the prepared operator for `secs`: seconds a run of each repeat.
    pub(crate) fn turn(&mut self, secs: f64) -> Result<Vec<f64>> {
        let answer = self.ask(&json!({ "turn": secs }), TURN_LIMIT + Duration::from_secs_f64(secs))?;
        Ok(serde_json::from_value(answer["run_secs"].clone())?)
    }

    /// Has the prepared operator's output checked again.
    pub(crate) fn recheck(&mut self) -> Result<Rechecked> {
        Ok(serde_json::from_value(self.ask(&json!("recheck"), PREPARE_LIMIT)?)?)
    }

    /// Asks a process that runs. One that does not answer, not in time, or that its device is lost,
    /// is ended.
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

    /// Wakes the process, asks, and puts it to sleep again, so that its threads spin in its turns
    /// only.
    fn ask(&mut self, request: &Value, limit: Duration) -> Result<Value> {
        self.signal(libc::SIGCONT);
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        // Where it cannot be written to, what its end says is the reason.
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

    /// Waits until there is something to read, or the end of it; false if the limit passed.
    fn is_readable(&self, limit: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut wanted = libc::pollfd { fd: self.answers.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let millis = libc::c_int::try_from(left.as_millis() + 1).unwrap_or(libc::c_int::MAX);
            // SAFETY: one structure, which outlives the call.
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

    /// How a process that closed its output ended, in brackets.
    fn end(&mut self) -> String {
        for _ in 0..40 {
            if let Ok(Some(status)) = self.child.try_wait() {
                return format!(" ({status})");
            }
            thread::sleep(Duration::from_millis(25));
        }
        String::new()
    }

    /// Stops the process and waits until it has stopped (or ended).
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        // SAFETY: all zeros are a value of the type, which the call overwrites.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let states = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: the process is this one's child, and `info` lives. It is left to be waited for.
        unsafe { libc::waitid(libc::P_PID, self.child.id(), &mut info, states) };
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the process is a child that nobody has waited for, so its number is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
