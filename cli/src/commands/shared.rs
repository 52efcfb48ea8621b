//! Functions that several subcommands use.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use autotune::{Cancel, LocalDevice, Setup};
use autotune_db::{DbError, SnapshotError, Source, TuningDb};
use autotune_ir::Target;
use autotune_measure::{Ceilings, MeasureError, WorkerMeasurer};
use autotune_measurement::Backend;
use autotune_workloads::Workload;
use serde::Serialize;

use super::file;
use crate::args::{DbArgs, Failure};
use crate::output::{print, say};

/// Opens the database for tuning, and creates a missing one.
pub(super) fn open_db(db: &DbArgs) -> Result<TuningDb> {
    let db = TuningDb::open(db.place()?.path).map_err(refusal)?;
    warn(&db);
    Ok(db)
}

/// Prints the warnings of a source, about damage and skipped records.
pub(super) fn warn(db: &dyn Source) {
    for warning in db.warnings() {
        say(format_args!("autotune: warning: {warning}"));
    }
}

/// Classifies a database error. A missing file or a file of another kind is a usage error; a
/// damaged, busy or incompatible database is not.
pub(super) fn refusal(error: DbError) -> anyhow::Error {
    match &error {
        DbError::NotFound { .. } => {
            Failure::Usage(format!("{error}: specify another (--db), or create one by tuning (autotune NETWORK)"))
                .into()
        }
        DbError::NotADirectory { .. }
        | DbError::NotADatabase { .. }
        | DbError::Log { .. }
        | DbError::Snapshot(
            SnapshotError::NotFound { .. } | SnapshotError::NotASnapshot { .. } | SnapshotError::InTheWay { .. },
        ) => Failure::Usage(error.to_string()).into(),
        DbError::Io { cause, .. } | DbError::Snapshot(SnapshotError::Io { cause, .. }) if is_bad_path(cause) => {
            Failure::Usage(error.to_string()).into()
        }
        _ => error.into(),
    }
}

/// True if the path itself is wrong: missing, through a file, or without permission.
fn is_bad_path(cause: &io::Error) -> bool {
    [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::PermissionDenied].contains(&cause.kind())
}

/// Opens this machine's device for a target. Ceilings that cannot be measured are reported and left
/// out.
pub(super) fn open_device(
    target: &Target,
    workloads: &[Workload],
    backend: Backend,
    cancel: &Cancel,
) -> Result<(WorkerMeasurer, Option<Ceilings>, Setup)> {
    let LocalDevice { measurer, ceilings, setup } = LocalDevice::open(target, workloads, backend, cancel)?;
    Ok((measurer, or_warn(ceilings), setup))
}

/// Calls a function with the device type of the target as its type argument.
macro_rules! on_device {
    ($target:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $target.gpu().map(|gpu| gpu.api) {
            None => $function::<autotune_runtime::Cpu>($($argument),*),
            Some(autotune_ir::GpuApi::Cuda { .. }) => $function::<autotune_runtime::CudaDevice>($($argument),*),
            Some(autotune_ir::GpuApi::OpenCl) => $function::<autotune_runtime::OpenClDevice>($($argument),*),
        }
    };
}
pub(super) use on_device;

/// Returns the ceilings; if they could not be measured, prints the reason.
pub(super) fn or_warn(ceilings: Result<Ceilings, MeasureError>) -> Option<Ceilings> {
    ceilings.map_err(|error| say(format_args!("{error}; continuing without them"))).ok()
}

/// Destination of `--json`: standard output, or a file that was found writable before the work
/// began.
pub(super) struct JsonSink(Option<PathBuf>);

impl JsonSink {
    pub(super) fn new(path: Option<PathBuf>) -> Result<Self> {
        if let Some(file) = path.as_deref().filter(|path| *path != Path::new("-")) {
            file::check_output("--json", file, "JSON object", |start| start.starts_with(b"{"))?;
        }
        Ok(Self(path))
    }

    /// True if the JSON goes to standard output, so that other text must go to standard error.
    pub(super) fn is_stdout(&self) -> bool {
        self.0.as_deref() == Some(Path::new("-"))
    }

    pub(super) fn write(&self, report: &impl Serialize) -> Result<()> {
        let Some(file) = &self.0 else { return Ok(()) };
        let json = serde_json::to_string_pretty(report)?;

        if self.is_stdout() {
            return print(&json);
        }
        let written = file::replace(file, |out| writeln!(out, "{json}"));
        written.with_context(|| format!("--json {}", file.display()))
    }

    /// Prints text for people: to standard output, or to standard error if the JSON goes to
    /// standard output.
    pub(super) fn say(&self, text: &str) -> Result<()> {
        if self.is_stdout() {
            say(text);
            Ok(())
        } else {
            print(text)
        }
    }

    /// Prints lines for people, each as [`JsonSink::say`] does.
    pub(super) fn say_all(&self, lines: impl IntoIterator<Item = String>) -> Result<()> {
        lines.into_iter().try_for_each(|line| self.say(&line))
    }
}
