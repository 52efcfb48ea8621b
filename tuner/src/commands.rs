//! The subcommands, and what several of them need.

mod bench;
mod best;
mod log;
mod show;
mod targets;
mod tasks;
mod tune;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use autotune::{Cancel, Setup};
use autotune_db::{DbError, TuningDb, TuningRecord};
use autotune_measure::{Backend, Ceilings, MeasureOptions, TimingOptions, WorkerMeasurer};
use autotune_schedules::{ScheduleSpace, Target, Workload};

use crate::cli::{Cli, Command, DbArgs, Failure, TargetArgs};

/// How long a command that only looks something up waits for another process to let go of the database.
const LOOK_UP_WAIT: Duration = Duration::from_secs(2);

/// Runs what the command line asks for.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        None => tune::run(cli.tune)?,
        Some(Command::Tasks { network, target }) => tasks::run(&network, &target.detect()?)?,
        Some(Command::Best { workload, target, db }) => best::run(&workload, &target.detect()?, &db)?,
        Some(Command::Log { action }) => log::run(action)?,
        Some(Command::Bench { network, target, db, exact, backend, json }) => {
            let network = if exact { network.exact() } else { network };
            bench::run(&network, &target, &db, backend, json)?;
        }
        Some(Command::Show { workload, config, target, db, backend }) => {
            show::run(&workload, config, &target.detect()?, &db, backend)?;
        }
        Some(Command::Targets) => targets::run()?,
        Some(Command::Worker) => return Ok(autotune_measure::worker::serve()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output. A reader that has gone away (`| head`) is no failure.
fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("cannot write to standard output"),
        _ => Ok(()),
    }
}

/// Opens the database for tuning; makes it where there is none.
fn open_db(db: &DbArgs) -> Result<TuningDb> {
    Ok(TuningDb::open(db.path()?).map_err(refusal)?)
}

/// Opens the database for looking something up; `None` where there is none.
fn look_up_db(db: &DbArgs) -> Result<Option<TuningDb>> {
    let path = db.path()?;
    if !path.exists() {
        return Ok(None);
    }
    Ok(Some(TuningDb::open_waiting(path, LOOK_UP_WAIT).map_err(refusal)?))
}

/// A database that is busy may be free later; one that cannot be used was badly chosen.
fn refusal(error: DbError) -> Failure {
    match error {
        DbError::Held { .. } => Failure::Busy(error.to_string()),
        _ => Failure::Usage(error.to_string()),
    }
}

/// Turns the switch on the first Ctrl-C; the second ends the process.
fn cancel_on_ctrl_c() -> Result<Cancel> {
    let cancel = Cancel::default();
    let switch = cancel.clone();
    ctrlc::set_handler(move || {
        if switch.cancel() {
            std::process::exit(130);
        }
        eprintln!("stopping after the measurement in progress (Ctrl-C again to stop at once)");
    })
    .context("cannot watch for Ctrl-C")?;
    Ok(cancel)
}

/// What is measured on.
struct Place {
    target: Target,
    measurer: WorkerMeasurer,
    ceilings: Ceilings,
    setup: Setup,
}

impl Place {
    /// The device of this machine that the arguments name.
    fn find(target: &TargetArgs, backend: Backend) -> Result<Self> {
        let (target, gpu) = target.device()?;
        let timing = TimingOptions::for_target(&target);
        let harness = serde_json::to_string(&timing)?;
        let mut measurer = WorkerMeasurer::new(MeasureOptions { backend, timing, ..MeasureOptions::default() })?;
        let ceilings = measurer.ceilings(&target)?;
        let name = gpu.map(|gpu| gpu.title()).or_else(|| device_name(&target));
        let device = name.unwrap_or_else(|| target.device().to_string());
        Ok(Self { target, measurer, ceilings, setup: Setup { device, harness } })
    }
}

/// The best schedule that the database has for a workload, if it fits the schedule space. One for a GPU that is stated, not
/// detected, may have been found on any of its kind.
fn best(db: &TuningDb, workload: &Workload, target: &Target) -> Result<Option<TuningRecord>> {
    let keys = match target.gpu().filter(|gpu| gpu.is_stated()) {
        None => vec![target.key()],
        Some(gpu) => {
            let kind = format!("{}:", gpu.api);
            let tasks = db.tasks()?.into_iter().filter(|task| task.workload == *workload);
            tasks.map(|task| task.target).filter(|key| key.starts_with(&kind)).collect()
        }
    };
    let space = ScheduleSpace::new(workload, target);
    let mut best: Option<TuningRecord> = None;
    for key in keys {
        let secs = |record: &TuningRecord| record.measurement.run_secs().unwrap_or(f64::INFINITY);
        let record = db.best(workload, &key)?.filter(|record| space.contains(&record.config));
        best = best.into_iter().chain(record).min_by(|a, b| secs(a).total_cmp(&secs(b)));
    }
    Ok(best)
}

/// The processor as Linux names it.
fn device_name(target: &Target) -> Option<String> {
    target.cpu()?;
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Where `--json` goes: a file, known to be writable before the work begins, or standard output.
struct JsonSink(Option<PathBuf>);

impl JsonSink {
    fn new(path: Option<PathBuf>) -> Result<Self> {
        if let Some(file) = path.as_deref().filter(|path| *path != Path::new("-")) {
            let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
            opened.map_err(|e| Failure::Usage(format!("--json {}: {e}", file.display())))?;
        }
        Ok(Self(path))
    }

    /// True if standard output is for the JSON, so that other text must go elsewhere.
    fn is_stdout(&self) -> bool {
        self.0.as_deref() == Some(Path::new("-"))
    }

    fn write(&self, json: impl FnOnce() -> serde_json::Result<String>) -> Result<()> {
        match &self.0 {
            None => Ok(()),
            Some(_) if self.is_stdout() => print(&json()?),
            Some(file) => std::fs::write(file, json()? + "\n").with_context(|| format!("--json {}", file.display())),
        }
    }

    /// Prints text for people.
    fn say(&self, text: &str) -> Result<()> {
        if self.is_stdout() {
            eprintln!("{text}");
            Ok(())
        } else {
            print(text)
        }
    }
}
