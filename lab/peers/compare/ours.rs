//! Our kernels, in a process of their own: this program, started with the argument `ours`. It
//! speaks server.py's protocol, but a workload is its text, with what else an [`Order`] says, and
//! `"recheck"` has the output checked again and tells how the turns were timed:
//!
//! ```sh
//! echo '{"prepare": {"workload": "matmul:m=64,n=64,k=64", "target": "cuda"}}' | compare_peers ours
//! ```
//!
//! It ends with 1 if anything failed. Tools that look at kernels run it, too: it runs them in
//! itself, and nothing else.

use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow};
use autotune_ir::{Code, Target};
use autotune_measure::{Bench, Builder, Built, MeasureOptions, gpu};
use autotune_runtime::{allowed_cores, pin_to_core};
use autotune_schedules::{Config, ScheduleSpace};
use autotune_workloads::Workload;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::server::Server;

/// The argument that makes this program serve.
pub(crate) const ARGUMENT: &str = "ours";

/// Whose kernels they are.
pub(crate) const NAME: &str = "autotune";

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Prepare(Order),
    Turn(f64),
    Recheck,
}

/// A kernel to build, to run once and to check.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) workload: String,
    /// The device: cpu, cuda, opencl.
    pub(crate) target: String,
    /// Threads on a CPU.
    #[serde(default)]
    pub(crate) threads: Option<usize>,
    /// The schedule; without it the untuned one.
    #[serde(default)]
    pub(crate) config: Option<Config>,
    /// Instead of a schedule, the seed that draws one.
    #[serde(default)]
    pub(crate) sample: Option<u64>,
    /// Where the code is written to, less the extension that tells what it is.
    #[serde(default)]
    pub(crate) code: Option<PathBuf>,
}

/// Starts a process for our kernels.
pub(crate) fn start() -> Result<Server> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ARGUMENT);
    Server::start(command)
}

/// The device that a word means.
pub(crate) fn target(word: &str, threads: Option<usize>) -> Result<Target> {
    match word {
        "cpu" => Ok(Target::detect("cpu", threads)?),
        word => Ok(Target::Gpu(gpu::find(word)?.target)),
    }
}

/// Serves until there are no more requests.
pub(crate) fn serve() -> ExitCode {
    // As long as the thread may run on all of them.
    allowed_cores();
    let mut bench = None;
    let mut code = ExitCode::SUCCESS;
    if answer(json!({"name": NAME, "version": ""})).is_err() {
        return ExitCode::FAILURE;
    }
    for line in stdin().lock().lines() {
        let done = line.map_err(anyhow::Error::from).and_then(|line| carry_out(&line, &mut bench));
        let message = done.unwrap_or_else(|error| {
            code = ExitCode::FAILURE;
            json!({"error": format!("{error:#}")})
        });
        if answer(message).is_err() {
            return ExitCode::FAILURE;
        }
    }
    code
}

fn answer(message: Value) -> std::io::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{message}")?;
    out.flush()
}

fn carry_out(line: &str, bench: &mut Option<Bench>) -> Result<Value> {
    let request: Request = serde_json::from_str(line).context("no request")?;
    let prepared = "nothing is prepared";
    Ok(match request {
        Request::Prepare(order) => {
            *bench = None;
            let (made, sketch) = prepare(&order)?;
            json!({"how": sketch, "max_rel_error": bench.insert(made).max_rel_error()})
        }
        Request::Turn(secs) => json!({"run_secs": bench.as_mut().context(prepared)?.turn(secs)?}),
        Request::Recheck => {
            let bench = bench.as_mut().context(prepared)?;
            bench.recheck()?;
            json!({"max_rel_error": bench.max_rel_error(), "graph_runs": bench.graph_runs()})
        }
    })
}

/// The kernel, checked, and the name of its sketch.
fn prepare(order: &Order) -> Result<(Bench, String)> {
    let workload: Workload = order.workload.parse()?;
    let target = target(&order.target, order.threads)?;
    let space = ScheduleSpace::new(&workload, &target);
    let config = match (&order.config, order.sample) {
        (Some(config), _) => config.clone(),
        (None, Some(seed)) => space.sample(&mut ChaCha8Rng::seed_from_u64(seed)).config().clone(),
        (None, None) => space.default_config(),
    };
    let of_config = |why: String| anyhow!("{why}, of {config}");
    let candidate = space.checked(&config).map_err(|e| of_config(e.to_string()))?;

    let MeasureOptions { backend, build_limit_secs, .. } = MeasureOptions::default();
    let mut builds = Builder::new(backend, build_limit_secs).build(&[candidate])?;
    let built = builds.pop().context("nothing was built")?.outcome.map_err(|e| of_config(e.to_string()))?;
    if let Some(stem) = &order.code {
        write_code(&built, stem)?;
    }

    // The kernel's own thread takes part in its runs.
    if target.cpu().is_some() {
        pin_to_core(0);
    }
    // SAFETY: the loop nests are proven, and this process is there to run them.
    let bench = unsafe { Bench::new(&built) }.map_err(|e| of_config(e.to_string()))?;
    Ok((bench, config.sketch))
}

fn write_code(built: &Built, stem: &std::path::Path) -> Result<()> {
    let (extension, code) = match &built.artifact.code {
        Code::Cubin(code) => ("cubin", code.as_slice()),
        Code::OpenCl(source) => ("cl", source.as_bytes()),
        Code::Library(_) | Code::Machine(_) => return Ok(()),
    };
    let file = stem.with_extension(extension);
    std::fs::write(&file, code).with_context(|| file.display().to_string())
}
