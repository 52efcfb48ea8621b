//! Tuned kernels beside the kernels of other libraries, measured interleaved in one run.
//!
//! `cargo run --release -p autotune-examples --features peers --example compare_peers -- --db tuning.db --suite resnet18,matmul --threads 1,2`
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
use autotune_measure::{Builder, Candidate, Ceilings, MeasureOptions, Measurer, pin_to_core};
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
    /// Suites (resnet18, resnet18-plain, matmul, mobilenet, vgg, extra, all) or workloads; several with a blank between.
    #[arg(long, num_args = 1.., default_value = "resnet18")]
    suite: Vec<String>,
    /// Numbers of threads.
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
    /// Where to write OUT.md and OUT.json.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    autotune_examples::serve_if_worker();
    let args = Args::parse();
    let subjects = suites::subjects(&args.suite, args.exact)?;
    let db = match &args.db {
        Some(path) => TuningDb::open(path)?,
        None => TuningDb::temporary()?,
    };
    let mut run = Run::new(args.rounds, args.turn_ms, args.exact);
    for &threads in &args.threads {
        let target = Target::detect("cpu", Some(threads))?;
        tune_missing(&subjects, &target, &db, args.trials)?;
        let ceilings = Ceilings::measure(&target)?;
        let MeasureOptions { backend, build_limit_secs, .. } = MeasureOptions::default();
        let mut builder = Builder::new(backend, build_limit_secs);
        let mut servers = server::start_all(&args.peers, threads)?;
        let mut table = Table::new(&target, &ceilings);
        let measure = || -> Result<()> {
            pin_to_core(0);
            for subject in &subjects {
                let comparison = compare(subject, &target, &db, &mut builder, &mut servers, &args)?;
                eprintln!("{}", comparison.line());
                table.comparisons.push(comparison);
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

/// Tunes those workloads of which the database has no schedule.
fn tune_missing(subjects: &[Subject], target: &Target, db: &TuningDb, trials: usize) -> Result<()> {
    let mut tasks = Vec::new();
    for Subject { name, workload, .. } in subjects {
        if db.best(workload, &target.key())?.is_none() {
            tasks.push(Task { name: name.clone(), workload: *workload, count: 1 });
        }
    }
    if tasks.is_empty() || trials == 0 {
        return Ok(());
    }
    eprintln!("tuning {} task(s) with {trials} trials each for {target}", tasks.len());
    let mut measurer = autotune_examples::measurer()?;
    let ceilings = Some(Ceilings::measure(target)?);
    let setup = Setup { device: report::device_name(), harness: serde_json::to_string(&measurer.options().timing)? };
    let options = TuneOptions { trials: Some(trials * tasks.len()), ceilings, setup, ..TuneOptions::default() };
    tune(&tasks, target, &options, &mut measurer as &mut dyn Measurer, db, &mut Silent)?;
    Ok(())
}

/// The database's best schedule; the untuned one if it has none.
fn schedule(workload: &Workload, target: &Target, db: &TuningDb) -> Result<Config> {
    let space = ScheduleSpace::new(workload, target);
    let best = db.best(workload, &target.key())?.map(|record| record.config);
    Ok(best.filter(|config| space.contains(config)).unwrap_or_else(|| space.default_config()))
}

/// Measures one workload with everything that has it.
fn compare(
    subject: &Subject,
    target: &Target,
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
    contenders.extend(Contender::gemm_crate(&workload, target.threads())?);
    for server in servers {
        match Contender::peer(server, &workload) {
            Ok(peer) => contenders.extend(peer),
            Err(why) => eprintln!("{}: {why:#}", subject.name),
        }
    }
    let lanes = race(&mut contenders, args.rounds, args.turn_ms as f64 * 1e-3)?;
    Ok(Comparison::new(subject, config, lanes))
}
