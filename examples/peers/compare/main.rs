//! Tuned kernels beside the kernels of other libraries, measured interleaved in one run.
//!
//! `cargo run --release -p autotune-examples --features peers --example compare_peers -- --db tuning.db --suite resnet18,matmul --threads 1,2`
//!
//! `--target cuda` (or `opencl`) does so on a GPU, with PyTorch's cuBLAS and cuDNN for peers; `examples/gpu_run` prepares that for a
//! machine without a Rust toolchain.
//!
//! Kernels come from the tuning database; what it lacks is tuned into it first. The libraries are those that
//! `examples/peers/setup.sh` installed; without it there is the `gemm` crate alone. See `examples/peers/README.md`.

mod contender;
mod gemm_crate;
mod report;
mod server;
mod suites;

use std::path::PathBuf;

use anyhow::{Context, Result};
use autotune::{Setup, Silent, Task, TuneOptions, tune};
use autotune_db::TuningDb;
use autotune_measure::{Builder, Candidate, Ceilings, MeasureOptions, WorkerMeasurer, gpu, pin_to_core};
use autotune_schedules::{Config, ScheduleSpace, Target, Workload};
use clap::Parser;

use crate::contender::{Contender, race};
use crate::report::{Comparison, Run, Table};
use crate::server::Server;
use crate::suites::Subject;

/// Measures tuned kernels and other libraries' kernels interleaved.
#[derive(Parser)]
struct Args {
    /// Tuning database; a temporary one if not given.
    #[arg(long)]
    db: Option<PathBuf>,
    /// Suites (resnet18, resnet18-plain, matmul, mobilenet, vgg, extra, all; squares for GPUs) or workloads; several with a blank between.
    #[arg(long, num_args = 1.., default_value = "resnet18")]
    suite: Vec<String>,
    /// The device: cpu, cuda, opencl.
    #[arg(long, default_value = "cpu")]
    target: String,
    /// Numbers of threads on a CPU.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    threads: Vec<usize>,
    /// Trials for a task that the database lacks.
    #[arg(long, default_value_t = 64)]
    trials: usize,
    /// Rounds in which every contender has a turn.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Milliseconds of a turn.
    #[arg(long, default_value_t = 30)]
    turn_ms: u64,
    /// No Winograd, neither ours nor theirs.
    #[arg(long)]
    exact: bool,
    /// Folder that setup.sh made.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers-venv"))]
    peers: PathBuf,
    /// The program that runs them.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/server.py"))]
    server: PathBuf,
    /// Words added to every workload, such as dtype=f16.
    #[arg(long)]
    with: Option<String>,
    /// Where to write OUT.md and OUT.json.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    autotune_examples::serve_if_worker();
    let args = Args::parse();
    let subjects = suites::subjects(&args.suite, args.exact, args.with.as_deref())?;
    let db = match &args.db {
        Some(path) => TuningDb::open(path)?,
        None => TuningDb::temporary()?,
    };
    let devices = devices(&args)?;
    let mut run = Run::new(&devices[0].name, args.rounds, args.turn_ms, args.exact);
    for Device { target, name } in &devices {
        let mut measurer = autotune_examples::measurer(target)?;
        let ceilings = measurer.ceilings(target)?;
        tune_missing(&subjects, target, name, ceilings, &db, &mut measurer, args.trials)?;
        drop(measurer);
        let MeasureOptions { backend, build_limit_secs, .. } = MeasureOptions::default();
        let mut builder = Builder::new(backend, build_limit_secs);
        let gpu = target.gpu().is_some();
        let place = server::Place { program: &args.server, folder: &args.peers, threads: target.threads(), gpu };
        let mut servers = server::start_all(&place)?;
        let mut table = Table::new(target);
        let measure = || -> Result<()> {
            if !gpu {
                pin_to_core(0);
            }
            for subject in &subjects {
                let comparison = compare(subject, target, &ceilings, &db, &mut builder, &mut servers, &args);
                match comparison.with_context(|| subject.name.clone()) {
                    Ok(comparison) => {
                        eprintln!("{}", comparison.line());
                        table.comparisons.push(comparison);
                    }
                    Err(why) if gpu => eprintln!("left out: {why:#}"),
                    Err(why) => return Err(why),
                }
            }
            Ok(())
        };
        // The main thread stays free to run anywhere: what it starts inherits that.
        std::thread::scope(|scope| scope.spawn(measure).join())
            .map_err(|_| anyhow::anyhow!("measuring panicked"))??;
        run.tables.push(table);
    }
    println!("{}", run.markdown());
    if let Some(out) = &args.out {
        let write = |extension: &str, text: String| {
            let file = format!("{}.{extension}", out.display());
            std::fs::write(&file, text).with_context(|| file.clone())
        };
        write("md", run.markdown())?;
        write("json", serde_json::to_string_pretty(&run)? + "\n")?;
    }
    Ok(())
}

/// What is measured on.
struct Device {
    target: Target,
    name: String,
}

/// The CPU with each number of threads, or the GPU.
fn devices(args: &Args) -> Result<Vec<Device>> {
    if args.target == "cpu" {
        anyhow::ensure!(!args.threads.is_empty(), "no number of threads");
        let device =
            |&threads: &usize| Ok(Device { target: Target::detect("cpu", Some(threads))?, name: report::cpu_name() });
        return args.threads.iter().map(device).collect();
    }
    let found = gpu::find(&args.target)?;
    Ok(vec![Device { name: found.title(), target: Target::Gpu(found.target) }])
}

/// Tunes those workloads of which the database has no schedule.
fn tune_missing(
    subjects: &[Subject],
    target: &Target,
    device: &str,
    ceilings: Ceilings,
    db: &TuningDb,
    measurer: &mut WorkerMeasurer,
    trials: usize,
) -> Result<()> {
    let mut tasks = Vec::new();
    for Subject { name, workload, .. } in subjects {
        let space = ScheduleSpace::new(workload, target);
        if db.best(workload, &target.key(), &|config| space.contains(config))?.is_none() {
            tasks.push(Task { name: name.clone(), workload: *workload, count: 1 });
        }
    }
    if tasks.is_empty() || trials == 0 {
        return Ok(());
    }
    eprintln!("tuning {} task(s) with {trials} trials each for {target}", tasks.len());
    let setup = Setup { device: device.into(), harness: serde_json::to_string(&measurer.options().timing)? };
    let ceilings = Some(ceilings);
    let options = TuneOptions { trials: Some(trials * tasks.len()), ceilings, setup, ..TuneOptions::default() };
    tune(&tasks, target, &options, measurer, db, &mut Silent)?;
    Ok(())
}

/// The database's best schedule; the untuned one if it has none.
fn schedule(workload: &Workload, target: &Target, db: &TuningDb) -> Result<Config> {
    let space = ScheduleSpace::new(workload, target);
    let best = db.best(workload, &target.key(), &|config| space.contains(config))?;
    Ok(best.map_or_else(|| space.default_config(), |best| best.record.config))
}

/// Measures one workload with everything that has it.
fn compare(
    subject: &Subject,
    target: &Target,
    ceilings: &Ceilings,
    db: &TuningDb,
    builder: &mut Builder,
    servers: &mut [Server],
    args: &Args,
) -> Result<Comparison> {
    let workload = subject.workload;
    let config = schedule(&workload, target, db)?;
    let candidate = Candidate { workload, target: target.clone(), config: config.clone() };
    let build = builder.build(std::slice::from_ref(&candidate))?.pop().context("nothing was built")?;
    let ours = Contender::ours(&build.outcome?)?;
    let mut contenders = vec![ours];
    if target.cpu().is_some() {
        contenders.extend(Contender::gemm_crate(&workload, target.threads())?);
    }
    for server in servers {
        match Contender::peer(server, &workload) {
            Ok(peer) => contenders.extend(peer),
            Err(why) => eprintln!("{}: {why:#}", subject.name),
        }
    }
    let lanes = race(&mut contenders, args.rounds, args.turn_ms as f64 * 1e-3)?;
    Ok(Comparison::new(subject, config, ceilings, lanes))
}
