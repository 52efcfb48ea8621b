//! Looking schedules up.

use std::collections::HashSet;

use anyhow::Result;
use autotune::{LookupError, Tuned};
use autotune_db::{DbError, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_schedules::{UnfitError, Workload};

use super::{refusal, warn};
use crate::args::{DbArgs, Failure};
use crate::output::say;

/// Opens the database for looking something up, be it in use or not; `None` where there is none.
pub(super) fn look_up_db(db: &DbArgs) -> Result<Option<TuningDb>> {
    match TuningDb::open_reading(db.path()?) {
        Ok(db) => Ok(Some(db)),
        Err(DbError::NotFound { .. }) => Ok(None),
        Err(error) => Err(refusal(error).into()),
    }
}

/// The schedule to deploy for a workload, and what the database has to say of damage. A workload that the target has no kernels for was
/// badly chosen.
pub(super) fn look_up(db: Option<&TuningDb>, workload: &Workload, target: &Target) -> Result<Tuned> {
    let tuned = match db {
        Some(db) => Tuned::lookup(db, workload, target),
        None => Tuned::untuned(workload, target),
    };
    db.iter().for_each(|db| warn(db));
    tuned.map_err(|error| match error {
        LookupError::Db(error) => error.into(),
        LookupError::Unfit { why: UnfitError::Refused(_), .. } => Failure::Usage(error.to_string()).into(),
        error => error.into(),
    })
}

/// Why a claim's time is not one that was measured here.
pub(super) fn claim(record: &TuningRecord, target: &Target) -> String {
    match record.imported {
        true => "imported, never measured here".into(),
        false if target.legacy_key().as_ref() == Some(&record.target) => {
            "kept under the key of an earlier version, by which other machines may have gone, too".into()
        }
        false => format!("made by another version's lowering ({})", record.provenance.lowering),
    }
}

/// Takes what is kept under the key that earlier versions gave the target as claims, where nothing is kept under its present one.
pub(super) fn adopt_legacy(db: &TuningDb, target: &Target) -> Result<()> {
    let Some(legacy_key) = target.legacy_key() else { return Ok(()) };
    let key = target.key();
    let known: HashSet<String> = db.tasks()?.into_iter().map(|task| task.target).collect();

    if !known.contains(&key) && known.contains(&legacy_key) {
        let records = db.adopt(&legacy_key, &key)?;
        say(format_args!(
            "{records} record(s) kept under '{legacy_key}', the key of earlier versions, are claims about '{key}': the fastest are \
             measured again"
        ));
    }
    Ok(())
}
