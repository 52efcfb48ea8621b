//! What several subcommands need.

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

/// Opens the database for tuning; makes it where there is none.
pub(super) fn open_db(db: &DbArgs) -> Result<TuningDb> {
    let db = TuningDb::open(db.place()?.path).map_err(refusal)?;
    warn(&db);
    Ok(db)
}

/// Tells what there is to say of damage, and of records that were passed over.
pub(super) fn warn(db: &dyn Source) {
    for warning in db.warnings() {
        say(format_args!("autotune: warning: {warning}"));
    }
}

/// A database or a snapshot that is not there, or is something else, was badly chosen; one that is
/// damaged, busy or of another version was not.
pub(super) fn refusal(error: DbError) -> anyhow::Error {
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

/// This machine's device for a target, or why there is none. Without ceilings it goes on, and says
/// so.
pub(super) fn open_device(
    target: &Target,
    workloads: &[Workload],
    backend: Backend,
    cancel: &Cancel,
) -> Result<(WorkerMeasurer, Option<Ceilings>, Setup)> {
    let LocalDevice { measurer, ceilings, setup } = LocalDevice::open(target, workloads, backend, cancel)?;
    Ok((measurer, or_without(ceilings), setup))
}

/// Calls a function of the kind of device that networks for a target run on.
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

/// Ceilings, if they could be measured; else it is told why not.
pub(super) fn or_without(ceilings: Result<Ceilings, MeasureError>) -> Option<Ceilings> {
    ceilings.map_err(|error| say(format_args!("{error}; going on without them"))).ok()
}

/// Where `--json` goes: a file, known to be writable before the work begins, or standard output.
pub(super) struct JsonSink(Option<PathBuf>);

impl JsonSink {
    pub(super) fn new(path: Option<PathBuf>) -> Result<Self> {
        if let Some(file) = path.as_deref().filter(|path| *path != Path::new("-")) {
            file::check_output("--json", file, "JSON object", |start| start.starts_with(b"{"))?;
        }
        Ok(Self(path))
    }

    /// True if standard output is for the JSON, so that other text must go elsewhere.
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

    /// Prints text for people.
    pub(super) fn say(&self, text: &str) -> Result<()> {
        if self.is_stdout() {
            say(text);
            Ok(())
        } else {
            print(text)
        }
    }

    /// Prints lines for people.
    pub(super) fn say_all(&self, lines: impl IntoIterator<Item = String>) -> Result<()> {
        lines.into_iter().try_for_each(|line| self.say(&line))
    }
}
