//! Looking schedules up.

use std::collections::HashSet;

use anyhow::{Context, Result};
use autotune_db::{Best, DbError, Standing, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_schedules::{ScheduleSpace, Workload};

use super::{refusal, warn};
use crate::args::DbArgs;
use crate::output::say;

/// Opens the database for looking something up, be it in use or not; `None` where there is none.
pub(super) fn look_up_db(db: &DbArgs) -> Result<Option<TuningDb>> {
    match TuningDb::open_reading(db.path()?) {
        Ok(db) => Ok(Some(db)),
        Err(DbError::NotFound { .. }) => Ok(None),
        Err(error) => Err(refusal(error).into()),
    }
}

/// The best schedule that the database has for a workload, if it fits the schedule space, its loop nests proven right. One for a GPU
/// that is stated, not detected, may have been found on any of its kind; one that is kept under the key that earlier versions gave the
/// target is a claim.
pub(super) fn best(db: &TuningDb, workload: &Workload, target: &Target) -> Result<Option<Best>> {
    let space = ScheduleSpace::new(workload, target);
    let is_claim = |best: &Best| best.standing == Standing::Claimed;
    let secs = |best: &Best| best.record.measurement.run_secs().unwrap_or(f64::INFINITY);
    let legacy_key = target.legacy_key();

    let mut best: Option<Best> = None;
    for key in keys(db, workload, target)?.iter().chain(&legacy_key) {
        let mut of_key = db.best(workload, key, &|config| space.contains(config))?;
        if let Some(found) = of_key.as_mut().filter(|_| legacy_key.as_ref() == Some(key)) {
            found.standing = Standing::Claimed;
        }
        let both = best.into_iter().chain(of_key);
        best = both.min_by(|a, b| is_claim(a).cmp(&is_claim(b)).then(secs(a).total_cmp(&secs(b))));
    }
    warn(db);

    if let Some(Best { record, .. }) = &best {
        space.checked_program(&record.config).with_context(|| format!("the best schedule known for {workload}"))?;
    }
    Ok(best)
}

/// The keys that records for a target may be kept under.
fn keys(db: &TuningDb, workload: &Workload, target: &Target) -> Result<Vec<String>> {
    let Some(gpu) = target.gpu().filter(|gpu| gpu.is_stated()) else {
        return Ok(vec![target.key()]);
    };
    let kind = format!("{}:", gpu.api);
    let tasks = db.tasks()?.into_iter().filter(|task| task.workload == *workload);
    Ok(tasks.map(|task| task.target).filter(|key| key.starts_with(&kind)).collect())
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
