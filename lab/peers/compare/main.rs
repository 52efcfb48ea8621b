//! Compares tuned kernels with the kernels of other libraries, measured interleaved in one run.
//!
//! ```sh
//! cargo run --release -p autotune-lab --features peers --example compare_peers -- \
//!     --db tuning.db --suite resnet18 matmul --threads 1,2
//! ```
//!
//! `--target cuda` (or `opencl`) measures on a GPU, with PyTorch's cuBLAS and cuDNN as peers;
//! `lab/gpu_run` prepares that for a machine without a Rust toolchain.
//!
//! Kernels come from the tuning database; missing workloads are tuned first. The peers are the
//! libraries that `lab/peers/setup.sh` installed, and with the feature `peers` the `gemm` crate.
//! See `lab/peers/README.md`.

mod contender;
mod copying;
#[cfg(feature = "peers")]
mod gemm_crate;
mod ours;
mod peers;
mod report;
mod server;
mod suites;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use autotune::{Query, Setup, Task, Tuner};
use autotune_db::{TimeProvenance, TuningDb};
use autotune_ir::{GpuApi, Target};
use autotune_measure::{Ceilings, WorkerMeasurer, gpu};
use autotune_schedules::Config;
use autotune_workloads::Workload;
use clap::Parser;

use crate::contender::{Contender, Turns, race};
use crate::copying::Copying;
use crate::report::{Comparison, LeftOut, Run, Table};
use crate::server::Server;
use crate::suites::Subject;

/// Measures tuned kernels and other libraries' kernels interleaved.
#[derive(Parser)]
struct Args {
    /// Tuning database; a temporary one if not given.
    #[arg(long)]
    db: Option<PathBuf>,
    /// Suites (resnet18, resnet18-plain, matmul, mobilenet, vgg, extra, operators, all; an operator
    /// of operators; squares for GPUs) or workloads; several with a blank between.
    #[arg(long, num_args = 1.., default_value = "resnet18")]
    suite: Vec<String>,
    /// The device: cpu, cuda, opencl.
    #[arg(long, default_value = "cpu")]
    target: String,
    /// Numbers of threads on a CPU.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    threads: Vec<usize>,
    /// Trials for a task that the database lacks; with 0 its untuned schedule is measured.
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
    /// Path of the files OUT.md and OUT.json, which are written after every workload.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Folder for the code of our kernels on a GPU.
    #[arg(long)]
    code: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    autotune::serve_if_worker();
    if std::env::args().nth(1).as_deref() == Some(ours::ARGUMENT) {
        return Ok(ours::serve());
    }
    let args = Args::parse();
    let subjects = suites::subjects(&args.suite, args.exact, args.with.as_deref())?;
    // Fails early for workloads that the peers do not support.
    for subject in &subjects {
        peers::order(&subject.workload)?;
    }

    let db = match &args.db {
        Some(path) => TuningDb::open(path)?,
        None => TuningDb::temporary()?,
    };

    let devices = devices(&args)?;
    let mut run = Run::new(&devices[0].name, args.rounds, args.turn_ms, args.exact);
    for Device { target, name } in &devices {
        let mut measurer = autotune_lab::measurer(target)?;
        let ceilings = measurer.ceilings(target)?;
        tune_missing(&subjects, target, name, ceilings, &db, &mut measurer, args.trials)?;
        drop(measurer);
        let place = peers::Place {
            program: &args.server,
            folder: &args.peers,
            threads: target.threads(),
            gpu: target.gpu().is_some(),
        };
        let (peers, left_out) = peers::start_all(&place)?;
        run.begin(Table::new(target), left_out);
        let field = Field { target, ceilings, db: &db, args: &args };
        measure(&subjects, &field, peers, &mut run)?;
    }
    println!("{}", run.markdown());
    Ok(ExitCode::SUCCESS)
}

/// Device that is measured.
struct Device {
    target: Target,
    name: String,
}

/// Returns the CPU with each number of threads, or the GPU.
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

/// Tunes the workloads for which the database has no schedule.
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
        if !Query::new(workload, target).source(db).best()?.is_tuned() {
            tasks.push(Task { name: name.clone(), workload: workload.clone(), count: 1 });
        }
    }
    if tasks.is_empty() || trials == 0 {
        return Ok(());
    }
    eprintln!("tuning {} task(s) with {trials} trials each for {target}", tasks.len());
    let setup = Setup { device: device.into(), harness: serde_json::to_string(&measurer.options().timing)? };
    let tuner = Tuner::new(target).trials(trials * tasks.len()).measurer(measurer).ceilings(ceilings).setup(setup);
    tuner.database(db).tune(&tasks)?;
    Ok(())
}

/// Context of all comparisons on a device.
struct Field<'a> {
    target: &'a Target,
    ceilings: Ceilings,
    db: &'a TuningDb,
    args: &'a Args,
}

/// Measures the workloads one after another, and writes the results so far after each. This thread
/// is not pinned, as child processes inherit its affinity.
fn measure(subjects: &[Subject], field: &Field<'_>, mut peers: Vec<Server>, run: &mut Run) -> Result<()> {
    let mut ours = ours::start()?;
    for subject in subjects {
        let comparison = compare(subject, field, &mut ours, &mut peers).with_context(|| subject.name.clone())?;
        eprintln!("{}", comparison.line());
        run.add(comparison);
        if let Some(out) = &field.args.out {
            run.write(out)?;
        }
    }
    Ok(())
}

/// Measures one workload with all contenders that support it.
fn compare(subject: &Subject, field: &Field<'_>, ours: &mut Server, peers: &mut [Server]) -> Result<Comparison> {
    let Field { target, ceilings, db, args } = field;
    let workload = subject.workload.clone();
    let (config, worth) = schedule(&workload, target, db)?;
    let (mut contenders, mut left_out) = (Vec::new(), Vec::new());
    let mut leave_out = |name: &str, why: anyhow::Error| {
        left_out.push(LeftOut { name: name.into(), why: format!("{why:#}") });
    };

    let order = ours::Order {
        workload: workload.to_string(),
        target: args.target.clone(),
        threads: target.cpu().map(|_| target.threads()),
        config: Some(config.clone()),
        sample: None,
        code: args.code.as_deref().map(|folder| folder.join(file_stem(subject))),
    };
    // A new process: the previous kernel may have broken its device.
    ours.renew();
    match ours.prepare(serde_json::to_value(&order)?) {
        Ok(Some(mut prepared)) => {
            prepared.how = format!("{worth}, {}", prepared.how);
            contenders.push(Contender::Served(ours, prepared));
        }
        Ok(None) => {}
        Err(why) => leave_out(ours::NAME, why),
    }

    #[cfg(feature = "peers")]
    if target.cpu().is_some() {
        let made = gemm_crate::GemmCrate::new(&workload, target.threads())?;
        contenders.extend(made.map(|made| Contender::GemmCrate(Box::new(made))));
    }
    if target.cpu().is_some() {
        contenders.extend(Copying::new(&workload, target.threads())?.map(Contender::Copying));
    }
    for server in peers {
        match server.prepare(peers::order(&workload)?) {
            Ok(prepared) => contenders.extend(prepared.map(|prepared| Contender::Served(server, prepared))),
            Err(why) => leave_out(&server.name, why),
        }
    }

    let has_graphs = target.gpu().is_some_and(|gpu| gpu.api != GpuApi::OpenCl);
    let turns = Turns { rounds: args.rounds, secs: args.turn_ms as f64 * 1e-3, has_graphs };
    let (lanes, failed) = race(&mut contenders, &turns);
    left_out.extend(failed);
    Ok(Comparison::new(subject, config, ceilings, lanes, left_out))
}

/// Returns the best schedule in the database with a word for its provenance; the untuned schedule
/// if there is none.
fn schedule(workload: &Workload, target: &Target, db: &TuningDb) -> Result<(Config, &'static str)> {
    let tuned = Query::new(workload, target).source(db).best()?;
    let worth = match tuned.best().map(|best| best.standing) {
        None => "untuned",
        Some(TimeProvenance::Raced | TimeProvenance::Searched) => "tuned",
        Some(TimeProvenance::Claimed) => "claimed",
    };
    Ok((tuned.config().clone(), worth))
}

/// Returns a file name from a subject's suite, name and element type.
fn file_stem(subject: &Subject) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("{} {} {}", subject.suite, subject.name, subject.workload.dtype().word()).chars().map(word).collect()
}
