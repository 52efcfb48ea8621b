//! Lookup of the best known schedules in databases and snapshots.

use std::collections::HashSet;

use anyhow::Result;
use autotune::{LookupError, Origin, Query, Tuned};
use autotune_db::{DbError, EmptySource, Found, Snapshot, Source, TuningDb, open_source};
use autotune_ir::{KeyScope, Target};
use autotune_schedules::UnfitError;
use autotune_workloads::Workload;

use super::shared::{refusal, warn};
use crate::args::{DatabasePath, Failure};
use crate::output::say;

/// Opens a database or a snapshot for lookups, even while another process uses it. Returns `None`
/// if the default path does not exist.
pub(super) fn look_up_source(place: DatabasePath) -> Result<Option<Box<dyn Source>>> {
    unless_missing(open_source(place.path), place.is_given)
}

/// Opens the source of schedules for a network; an empty source if the default path does not exist.
/// With an empty source, each kernel gets the schedule predicted for a missing record, within
/// milliseconds. `run`, `compile` and `bench --profile` all use this, so that they run the same
/// kernels.
pub(super) fn network_source(place: DatabasePath) -> Result<Box<dyn Source>> {
    Ok(look_up_source(place)?.unwrap_or_else(|| Box::new(EmptySource)))
}

/// Opens the database for reading its records, even while another process uses it. Returns `None`
/// if the default path does not exist.
pub(super) fn look_up_db(DatabasePath { path, is_given }: DatabasePath) -> Result<Option<TuningDb>> {
    if path.is_file() && Snapshot::open(&path).is_ok() {
        let why =
            "is a snapshot, which has the best schedules but no trials: use the database from which it was written";
        return Err(Failure::Usage(format!("{} {why}", path.display())).into());
    }
    unless_missing(TuningDb::open_reading(path), is_given)
}

fn unless_missing<T>(opened: Result<T, DbError>, is_given: bool) -> Result<Option<T>> {
    match opened {
        Err(error) if error.is_missing() && !is_given => Ok(None),
        opened => Ok(Some(opened.map_err(refusal)?)),
    }
}

/// Returns the schedule to deploy for a workload, and prints warnings about damaged records. A
/// workload without kernels on the target is a usage error.
pub(super) fn look_up(source: Option<&dyn Source>, workload: &Workload, target: &Target) -> Result<Tuned> {
    let query = Query::new(workload, target);
    let tuned = source.map_or(query, |source| query.source(source)).best();
    source.iter().for_each(|source| warn(*source));
    tuned.map_err(|error| match error {
        LookupError::Db(error) => refusal(error),
        LookupError::Unfit { why: UnfitError::Refused(_), .. } => Failure::Usage(error.to_string()).into(),
        error => error.into(),
    })
}

/// Names the origin of a schedule in one word.
pub(super) fn origin_word(tuned: &Tuned) -> &'static str {
    match tuned.origin() {
        Origin::Tuned(_) => "tuned",
        Origin::Predicted { .. } => "predicted",
        Origin::Default | Origin::Transferred => "default",
    }
}

/// Explains why the time of an untrusted record was not measured by this version on this machine.
pub(super) fn untrusted_note(found: &Found, target: &Target) -> String {
    let record = &found.best.record;
    let wider = |what: &str| format!("from another machine with the same {what}, {}", record.target);
    match found.reach {
        _ if record.imported => "imported, never measured here".into(),
        KeyScope::Model if target.legacy_key().as_ref() == Some(&record.target) => {
            "stored under the key of an earlier version, which other machines may share".into()
        }
        KeyScope::Model => wider("CPU model"),
        KeyScope::Family => wider("CPU family"),
        KeyScope::Isa if target.gpu().is_some() => wider("kind of GPU"),
        KeyScope::Isa => wider("instruction set"),
        KeyScope::Machine => format!("made by the lowering of another version ({})", record.provenance.lowering),
    }
}

/// Copies the records under the key that earlier versions gave the target to its present key, as
/// untrusted records. Does nothing if the present key has records.
pub(super) fn adopt_legacy(db: &TuningDb, target: &Target) -> Result<()> {
    let Some(legacy_key) = target.legacy_key() else { return Ok(()) };
    let key = target.key();
    let known: HashSet<String> = db.tasks()?.into_iter().map(|task| task.target).collect();

    if !known.contains(&key) && known.contains(&legacy_key) {
        let records = db.adopt(&legacy_key, &key)?;
        say(format_args!(
            "copied {records} record(s) from '{legacy_key}', the key of earlier versions, to '{key}' as untrusted records: the fastest are \
             measured again"
        ));
    }
    Ok(())
}
