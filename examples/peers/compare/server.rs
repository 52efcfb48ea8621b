//! Other libraries, each in a process of its own that sleeps outside its turns.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use autotune_measure::allowed_cores;
use autotune_schedules::Workload;
use autotune_schedules::workload::{Activation, Operator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One library as `peers.json` of setup.sh lists it.
#[derive(Deserialize)]
struct Listed {
    /// What server.py is asked for.
    peer: String,
    /// Environment that it needs.
    #[serde(default)]
    env: HashMap<String, String>,
    /// The Python it runs in, if not the folder's own.
    python: Option<PathBuf>,
}

/// Where server.py is, and what of it is wanted.
pub(crate) struct Place<'a> {
    /// The program.
    pub(crate) program: &'a Path,
    /// Folder that setup.sh made: what is installed.
    pub(crate) folder: &'a Path,
    /// Threads of a library that runs on the CPU.
    pub(crate) threads: usize,
    /// True for libraries that run on a GPU.
    pub(crate) gpu: bool,
}

/// What a library says of a prepared operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// The variant that was fastest.
    pub(crate) how: String,
    /// Largest deviation from the reference over the reference's largest magnitude.
    pub(crate) max_rel_error: f64,
}

/// A running server.py.
pub(crate) struct Server {
    /// Name and version.
    pub(crate) name: String,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Starts every library that is installed and runs on the device; those that do not start are named and left out.
pub(crate) fn start_all(place: &Place<'_>) -> Result<Vec<Server>> {
    let list = place.folder.join("peers.json");
    let Ok(text) = std::fs::read_to_string(&list) else {
        eprintln!("no libraries to compare with: {} is missing; examples/peers/setup.sh makes it", list.display());
        return Ok(Vec::new());
    };
    let listed: Vec<Listed> = serde_json::from_str(&text).with_context(|| list.display().to_string())?;
    let mut servers = Vec::new();
    for (i, peer) in listed.iter().enumerate().filter(|(_, peer)| (peer.peer == GPU_PEER) == place.gpu) {
        let log = place.folder.join(format!("server{i}.log"));
        match Server::start(place, peer, &log) {
            Ok(server) => servers.push(server),
            Err(why) => eprintln!("{} is left out: {why:#}; see {}", peer.peer, log.display()),
        }
    }
    Ok(servers)
}

/// The peer that runs on a GPU.
const GPU_PEER: &str = "torch";

impl Server {
    fn start(place: &Place<'_>, peer: &Listed, log: &Path) -> Result<Self> {
        // What drives a GPU may run anywhere.
        let wanted = if place.gpu { usize::MAX } else { place.threads };
        let cores: Vec<String> = allowed_cores().iter().take(wanted).map(usize::to_string).collect();
        let own = place.folder.join("bin/python");
        let mut command = Command::new(peer.python.as_ref().unwrap_or(&own));
        command.arg(place.program).arg(&peer.peer).arg(cores.join(","));
        command.envs(&peer.env).env("PEERS_TIMING", place.folder.join("timing.so")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(std::fs::File::create(log)?);
        let mut child = command.spawn().with_context(|| format!("{:?}", command.get_program()))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("no pipes");
        };
        let mut server = Self { name: String::new(), child, requests, answers: BufReader::new(answers) };
        let hello = server.answer()?;
        let word = |key: &str| hello[key].as_str().unwrap_or_default().to_string();
        server.name = format!("{} {}", word("name"), word("version"));
        server.stop();
        Ok(server)
    }

    /// Builds an operator, tries its variants and checks its output; `None` if the library has no such operator.
    pub(crate) fn prepare(&mut self, workload: &Workload) -> Result<Option<Prepared>> {
        let answer = self.ask(&json!({"prepare": fields(workload), "exact": workload.exact}))?;
        if answer["absent"] == true {
            return Ok(None);
        }
        Ok(Some(serde_json::from_value(answer)?))
    }

    /// Runs the prepared operator for `secs`: seconds a run of each repeat.
    pub(crate) fn turn(&mut self, secs: f64) -> Result<Vec<f64>> {
        let answer = self.ask(&json!({ "turn": secs }))?;
        Ok(serde_json::from_value(answer["run_secs"].clone())?)
    }

    /// Wakes the process, asks, and puts it to sleep again, so that its threads spin in its turns only.
    fn ask(&mut self, request: &Value) -> Result<Value> {
        self.signal(libc::SIGCONT);
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        let answer = sent.map_err(anyhow::Error::from).and_then(|()| self.answer());
        self.stop();
        answer
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the process ended");
        }
        let answer: Value = serde_json::from_str(&line)?;
        match answer["error"].as_str() {
            Some(why) => bail!("{why}"),
            None => Ok(answer),
        }
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

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A workload as server.py reads it.
fn fields(workload: &Workload) -> Value {
    let mut fields = match workload.op {
        Operator::Conv2d(c) => json!({
            "op": "conv2d", "n": c.n, "c": c.c, "h": c.h, "w": c.w, "o": c.o, "kh": c.kh, "kw": c.kw,
            "sh": c.stride[0], "sw": c.stride[1], "ph": c.pad[0], "pw": c.pad[1],
            "dh": c.dilation[0], "dw": c.dilation[1], "groups": c.groups,
        }),
        Operator::Matmul(m) => json!({"op": "matmul", "b": m.b, "m": m.m, "n": m.n, "k": m.k}),
    };
    fields["dtype"] = workload.dtype.word().into();
    fields["bias"] = workload.epilogue.bias.into();
    fields["add"] = workload.epilogue.residual.into();
    fields["relu"] = (workload.epilogue.activation == Activation::Relu).into();
    fields
}
