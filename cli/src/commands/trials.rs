//! Trials of a tuning run: their limits, those of earlier runs, and whether any of them ran.

use std::time::Duration;

use anyhow::{Result, bail};
use autotune::{Cancel, Network, Report, TaskReport, TuneParams};
use autotune_db::{Phase, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measure::failure_summary;
use autotune_workloads::Workload;

use crate::args::{Failure, TuneArgs};

/// Counts the trials of the network's tasks in the database.
pub(super) fn known_trials(db: &TuningDb, network: &Network, target: &Target) -> Result<usize> {
    let mut known = 0;
    for task in &network.tasks {
        known += searched(db, &task.workload, &target.key())?.count();
    }
    Ok(known)
}

/// Returns the number of trials of a run: the given one, or the default for its tasks without a
/// time budget.
pub(super) fn trials_of(args: &TuneArgs, network: &Network) -> Option<usize> {
    match (args.trials, args.time_budget) {
        (None, None) => Some(TuneParams::default().trials_per_task * network.tasks.len()),
        (trials, _) => trials,
    }
}

/// Describes the limits of the run.
pub(super) fn limits(trials: Option<usize>, time_budget: Option<Duration>) -> String {
    match (trials, time_budget) {
        (Some(trials), Some(time)) => format!("{trials} trials or {:.1} s", time.as_secs_f64()),
        (Some(trials), None) => format!("{trials} trials"),
        (None, Some(time)) => format!("{:.1} s", time.as_secs_f64()),
        (None, None) => "no limit".into(),
    }
}

/// Describes the trials of earlier runs; empty if there are none.
pub(super) fn continuing(trials: Option<usize>, known: usize) -> String {
    let of = trials.map_or(String::new(), |trials| format!(" of {trials}"));
    match (known, trials) {
        (0, _) => String::new(),
        (known, Some(trials)) if known >= trials => {
            format!("; nothing left to do: {known}{of} trials already measured")
        }
        (known, _) => format!("; continuing: {known}{of} trials already measured"),
    }
}

/// Fails if the run was interrupted, or measured nothing that ran.
pub(super) fn verdict(report: &Report, cancel: &Cancel, db: &TuningDb) -> Result<()> {
    if cancel.is_cancelled() {
        return Err(Failure::Interrupted.into());
    }
    let has_failed = |task: &&TaskReport| task.best_secs.is_none() && (1..=task.failed_trials).contains(&task.trials);
    let failed: Vec<&TaskReport> = report.tasks.iter().filter(has_failed).collect();
    if !failed.is_empty() {
        bail!(all_failed(&failed, &report.target, db)?);
    }
    anyhow::ensure!(!report.found_nothing(), "nothing was measured: increase the time or the trials");
    Ok(())
}

/// Builds the error message for tasks all of whose trials failed, including those of earlier runs:
/// the most frequent cause and the remedy.
fn all_failed(tasks: &[&TaskReport], target: &str, db: &TuningDb) -> Result<String> {
    let mut trials = Vec::new();
    for task in tasks {
        trials.extend(searched(db, &task.workload, target)?.map(|record| record.measurement));
    }
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    let summary = failure_summary(&trials);
    Ok(format!(
        "no schedule of {} ran, all {} trial(s) failed ({}): fix the cause, then use more trials (failed ones are not repeated) or another --db",
        names.join(", "),
        trials.len(),
        summary.lines().next().unwrap_or_default()
    ))
}

/// Returns the search trials of a workload that this machine measured.
fn searched(db: &TuningDb, workload: &Workload, target: &str) -> Result<impl Iterator<Item = TuningRecord>> {
    let records = db.query(workload, target)?;
    Ok(records.into_iter().filter(|record| !record.is_untrusted() && record.phase == Phase::Search))
}
