//! Runs this library's kernels in a process of their own: this program, started with the argument
//! `ours`. It speaks server.py's protocol, with two differences: a request has the fields of an
//! [`Order`], where the workload is a text, and `"recheck"` checks the output again and tells how
//! the turns were timed:
//!
//! ```sh
//! echo '{"prepare": {"workload": "matmul:m=64,n=64,k=64", "target": "cuda"}}' | compare_peers ours
//! ```
//!
//! Its exit code is 1 if anything failed. Profilers and sanitizers run this program as well, as it
//! executes only the requested kernels.

use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow};
use autotune_ir::{Code, Target};
use autotune_measure::{Bench, Built, KernelBuilder, MeasureOptions, gpu};
use autotune_runtime::{allowed_cores, pin_to_core};
use autotune_schedules::{Config, ScheduleSpace};
use autotune_workloads::Workload;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::server::Server;

/// Argument that makes this program serve kernels.
pub(crate) const ARGUMENT: &str = "ours";

/// Name of this library among the contenders.
pub(crate) const NAME: &str = "autotune";

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Prepare(Order),
    Turn(f64),
    Recheck,
}

/// Kernel to build, run once and check.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) workload: String,
    /// Device: cpu, cuda or opencl.
    pub(crate) target: String,
    /// Number of threads on a CPU.
    #[serde(default)]
    pub(crate) threads: Option<usize>,
    /// Schedule; the untuned one if absent.
    #[serde(default)]
    pub(crate) config: Option<Config>,
    /// Seed that draws a random schedule, if none is given.
    #[serde(default)]
    pub(crate) sample: Option<u64>,
    /// Path for the generated code, without its extension.
    #[serde(default)]
    pub(crate) code: Option<PathBuf>,
}

/// Starts a process that serves this library's kernels.
pub(crate) fn start() -> Result<Server> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ARGUMENT);
    Server::start(command)
}

/// Returns the target of a device's name.
pub(crate) fn target(word: &str, threads: Option<usize>) -> Result<Target> {
    match word {
        "cpu" => Ok(Target::detect("cpu", threads)?),
        word => Ok(Target::Gpu(gpu::find(word)?.target)),
    }
}

/// Serves requests until standard input ends.
pub(crate) fn serve() -> ExitCode {
    // Records the allowed cores before any thread is pinned.
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

/// Builds, loads and checks a kernel; returns it with the name of its sketch.
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
    let mut builds = KernelBuilder::new(backend, build_limit_secs).build(&[candidate])?;
    let built = builds.pop().context("nothing was built")?.outcome.map_err(|e| of_config(e.to_string()))?;
    if let Some(stem) = &order.code {
        write_code(&built, stem)?;
    }

    // This thread takes part in the kernel's runs.
    if target.cpu().is_some() {
        pin_to_core(0);
    }
    // SAFETY: `checked` has verified the loop nests, and this process exists only to run them.
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
