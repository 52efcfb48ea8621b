//! The subcommands, and what several of them need.

mod bench;
mod best;
mod compile;
mod conversions;
mod file;
mod log;
mod lookup;
mod planned;
mod profile;
mod report;
mod run;
mod show;
mod snapshot;
mod targets;
mod tasks;
mod tune;

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use autotune::{Cancel, LocalDevice, Setup};
use autotune_db::{DbError, SnapshotError, Source, TuningDb};
use autotune_ir::Target;
use autotune_measure::{Ceilings, MeasureError, WorkerMeasurer, scratch};
use autotune_measurement::Backend;
use autotune_workloads::Workload;
use serde::Serialize;

use crate::args::{Cli, Command, DbArgs, Failure};
use crate::interrupt;
use crate::output::{print, say};

/// Runs what the command line asks for. What a killed run left in the folder for temporary files is removed first.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    if !matches!(cli.command, Some(Command::Worker)) {
        interrupt::watch()?;
        scratch::remove_left_behind();
    }

    match cli.command {
        None => tune::run(cli.tune)?,
        Some(Command::Tasks { subject, target }) => {
            let network = subject.tasks(&target)?;
            tasks::run(&network, &target.detect(&network.workloads())?)?;
        }
        Some(Command::Best { workload, target, db }) => {
            best::run(&workload, &target.detect(std::slice::from_ref(&workload))?, &db)?
        }
        Some(Command::Log { action }) => log::run(action)?,
        Some(Command::Bench { subject, target, db, profile: true, json, .. }) => {
            profile::run(&subject, &target, &db, json)?
        }
        Some(Command::Bench { subject, target, db, variant, backend, json, profile: false }) => {
            let network = variant.of(subject.tasks(&target)?)?;
            bench::run(&network, &target, &db, backend, json)?;
        }
        Some(Command::Show { workload, config, target, db, backend }) => {
            show::run(&workload, config, &target.detect(std::slice::from_ref(&workload))?, &db, backend)?;
        }
        Some(Command::Run(args)) => run::run(args)?,
        Some(Command::Compile(args)) => compile::run(args)?,
        Some(Command::Report(args)) => report::run(args)?,
        Some(Command::Snapshot { action }) => snapshot::run(action)?,
        Some(Command::Targets) => targets::run()?,
        Some(Command::Worker) => return Ok(autotune_measure::worker::serve()),
    }

    Ok(ExitCode::SUCCESS)
}

/// Opens the database for tuning; makes it where there is none.
fn open_db(db: &DbArgs) -> Result<TuningDb> {
    let db = TuningDb::open(db.place()?.path).map_err(refusal)?;
    warn(&db);
    Ok(db)
}

/// Tells what there is to say of damage, and of records that were passed over.
fn warn(db: &dyn Source) {
    for warning in db.warnings() {
        say(format_args!("autotune: warning: {warning}"));
    }
}

/// A database or a snapshot that is not there, or is something else, was badly chosen; one that is damaged, busy or of another version was not.
fn refusal(error: DbError) -> anyhow::Error {
    match &error {
        DbError::NotFound { .. } => {
            Failure::Usage(format!("{error}: name another (--db), or make one by tuning (autotune NETWORK)")).into()
        }
        DbError::NotADirectory { .. }
        | DbError::NotADatabase { .. }
        | DbError::Log { .. }
        | DbError::Snapshot(
            SnapshotError::NotFound { .. } | SnapshotError::NotASnapshot { .. } | SnapshotError::InTheWay { .. },
        ) => Failure::Usage(error.to_string()).into(),
        DbError::Io { cause, .. } | DbError::Snapshot(SnapshotError::Io { cause, .. }) if is_bad_place(cause) => {
            Failure::Usage(error.to_string()).into()
        }
        _ => error.into(),
    }
}

/// True if a path does not lead to where something can be.
fn is_bad_place(cause: &io::Error) -> bool {
    [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::PermissionDenied].contains(&cause.kind())
}

/// This machine's device for a target, or why there is none. Without ceilings it goes on, and says so.
fn open_device(
    target: &Target,
    workloads: &[Workload],
    backend: Backend,
    cancel: &Cancel,
) -> Result<(WorkerMeasurer, Option<Ceilings>, Setup)> {
    let LocalDevice { measurer, ceilings, setup } = LocalDevice::open(target, workloads, backend, cancel)?;
    Ok((measurer, or_without(ceilings), setup))
}

/// Ceilings, if they could be measured; else it is told why not.
fn or_without(ceilings: Result<Ceilings, MeasureError>) -> Option<Ceilings> {
    ceilings.map_err(|error| say(format_args!("{error}; going on without them"))).ok()
}

/// Where `--json` goes: a file, known to be writable before the work begins, or standard output.
struct JsonSink(Option<PathBuf>);

impl JsonSink {
    fn new(path: Option<PathBuf>) -> Result<Self> {
        if let Some(file) = path.as_deref().filter(|path| *path != Path::new("-")) {
            file::check_output("--json", file, "JSON object", |start| start.starts_with(b"{"))?;
        }
        Ok(Self(path))
    }

    /// True if standard output is for the JSON, so that other text must go elsewhere.
    fn is_stdout(&self) -> bool {
        self.0.as_deref() == Some(Path::new("-"))
    }

    fn write(&self, report: &impl Serialize) -> Result<()> {
        let Some(file) = &self.0 else { return Ok(()) };
        let json = serde_json::to_string_pretty(report)?;

        if self.is_stdout() {
            return print(&json);
        }
        let written = file::replace(file, |out| writeln!(out, "{json}"));
        written.with_context(|| format!("--json {}", file.display()))
    }

    /// Prints text for people.
    fn say(&self, text: &str) -> Result<()> {
        if self.is_stdout() {
            say(text);
            Ok(())
        } else {
            print(text)
        }
    }

    /// Prints lines for people.
    fn say_all(&self, lines: impl IntoIterator<Item = String>) -> Result<()> {
        lines.into_iter().try_for_each(|line| self.say(&line))
    }
}
