//! The commands `autotune snapshot write|follow|check`: write or check the file of best schedules
//! that deployed programs read.

use std::path::Path;

use anyhow::{Context, Result, bail};
use autotune_db::{Snapshot, SnapshotWriter, TuningDb};
use autotune_ir::{KeyParts, KeyScope, Target, TargetError};
use autotune_measure::gpu;

use super::fleet::team::follow;
use super::shared::{refusal, warn};
use crate::args::{Failure, RecordsArgs, SnapshotAction};
use crate::interrupt;
use crate::output::{print, say};

/// Maximum number of tasks without a schedule, or of invalid schedules, that are listed by name.
const NAMED: usize = 10;

pub(super) fn run(action: SnapshotAction) -> Result<()> {
    match action {
        SnapshotAction::Write { file, target, db } => write(&file, target.as_deref(), &db),
        SnapshotAction::Follow(args) => follow(args),
        SnapshotAction::Check { file } => check(&file),
    }
}

fn write(file: &Path, target: Option<&str>, db: &RecordsArgs) -> Result<()> {
    let selection = target.map(TargetSelection::of).transpose()?;
    let db = TuningDb::open_reading(db.place()?.path).map_err(refusal)?;

    let mut writer = SnapshotWriter::default();
    let keeps = |key: &str| selection.as_ref().is_none_or(|selection| selection.holds(key));
    let left_out = writer.add_best_of(&db, &keeps)?;
    warn(&db);
    for task in left_out.iter().take(NAMED) {
        say(format_args!("autotune: warning: {} on {} is left out: {}", task.workload, task.target, task.reason));
    }
    if left_out.len() > NAMED {
        say(format_args!("autotune: warning: left out {} tasks in total", left_out.len()));
    }
    if writer.is_empty() {
        let of = target.map_or(String::new(), |word| format!(" for {word}"));
        bail!("{} has no schedule{of} to write: tune first", db.path().display());
    }

    // The database crate renames the file itself; an interrupt meanwhile must not leave the
    // temporary file.
    let written = interrupt::uninterrupted(file, || writer.write(file)).map_err(|error| refusal(error.into()))?;
    print(&format!(
        "wrote {} schedule(s) of {} target(s) to {}, {} bytes",
        written.schedules,
        written.targets,
        file.display(),
        written.file_bytes
    ))
}

fn check(file: &Path) -> Result<()> {
    let snapshot = Snapshot::open(file).map_err(|error| refusal(error.into()))?;
    let report = snapshot.check()?;

    for flaw in report.flaws.iter().take(NAMED) {
        say(format_args!("autotune: {} on {}: {}", flaw.workload, flaw.target, flaw.reason));
    }
    if !report.flaws.is_empty() {
        bail!("{}: {} of {} schedule(s) would not be served", file.display(), report.flaws.len(), report.schedules);
    }
    let claims = if report.untrusted > 0 { format!(", {} of them untrusted", report.untrusted) } else { String::new() };
    let targets: Vec<&str> = report.targets.iter().map(String::as_str).collect();
    print(&format!("{}: {} schedule(s) are valid{claims}\n{}", file.display(), report.schedules, targets.join("\n")))
}

/// Targets whose schedules are written.
enum TargetSelection {
    /// This machine's CPU with any number of threads.
    Cpu(String),
    /// One device, by its key.
    Device(String),
    /// All devices of a kind.
    Kind(Target),
}

impl TargetSelection {
    fn of(word: &str) -> Result<Self> {
        if word == "cuda" {
            return Ok(Self::Device(gpu::find(word)?.target.key()));
        }
        let target = Target::detect(word, None).map_err(|error: TargetError| Failure::Usage(error.to_string()))?;
        match target {
            Target::Cpu(_) => {
                Ok(Self::Cpu(without_threads(&target.key()).context("the key of this CPU has no threads")?.into()))
            }
            Target::Gpu(_) => Ok(Self::Kind(target)),
        }
    }

    fn holds(&self, key: &str) -> bool {
        match self {
            Self::Cpu(cpu) => without_threads(key) == Some(cpu),
            Self::Device(device) => key == device,
            Self::Kind(kind) => KeyParts::of(key).shares(&KeyParts::of(&kind.key()), KeyScope::Isa),
        }
    }
}

fn without_threads(key: &str) -> Option<&str> {
    key.rsplit_once(":threads=").map(|(cpu, _)| cpu)
}
