//! `autotune NETWORK|WORKLOAD`.

use std::time::Instant;

use anyhow::Result;
use autotune::session::DEFAULT_TRIALS_PER_TASK;
use autotune::{Report, Retired, Stop, TuneOptions, tune};
use autotune_db::{Phase, TuningDb};
use autotune_ir::Target;

use super::lookup::adopt_legacy;
use super::{JsonSink, Place, cancel_on_ctrl_c, open_db};
use crate::args::{Failure, TuneArgs};
use crate::output::say;
use crate::progress;
use crate::report::{summary, table};

pub(super) fn run(mut args: TuneArgs) -> Result<()> {
    let start = Instant::now();
    args.network = args.network.map(|network| args.variant.of(network));
    let Some(network) = &args.network else {
        return Err(Failure::Usage("no network or workload given".into()).into());
    };
    let json = JsonSink::new(args.json.clone())?;
    let db = open_db(&args.db)?;
    let cancel = cancel_on_ctrl_c()?;
    let Place { target, mut measurer, ceilings, setup } =
        Place::find(&args.target, &network.workloads(), args.backend, &cancel)?;
    let trials = match (args.trials, args.time_budget) {
        (None, None) => Some(DEFAULT_TRIALS_PER_TASK * network.tasks.len()),
        (trials, _) => trials,
    };
    let options = TuneOptions {
        trials,
        // Everything since the command began counts.
        time_budget: args.time_budget.map(|budget| budget.saturating_sub(start.elapsed())),
        search: args.tuner,
        seed: args.seed,
        cancel,
        ceilings,
        setup,
    };
    adopt_legacy(&db, &target)?;
    say(format_args!("tuning {} for {target}; database {}", network.name, db.path().display()));
    say(plan(&options, network.tasks.len(), known_trials(&db, &args, &target)?));
    let mut observer = progress::observer(args.time_budget);
    let report = tune(&network.tasks, &target, &options, &mut measurer, &db, &mut *observer)?;
    drop(observer);
    json.write(&report)?;
    json.say(&table(&report.tasks))?;
    for line in summary(&report) {
        json.say(&line)?;
    }
    verdict(&report)
}

/// Trials that the database has of the network already.
fn known_trials(db: &TuningDb, args: &TuneArgs, target: &Target) -> Result<usize> {
    let mut known = 0;
    for task in args.network.iter().flat_map(|network| &network.tasks) {
        known += db
            .query(&task.workload, &target.key())?
            .iter()
            .filter(|r| !r.is_claim() && r.phase == Phase::Search)
            .count();
    }
    Ok(known)
}

/// What the run is going to do, in one line.
fn plan(options: &TuneOptions, tasks: usize, known: usize) -> String {
    let limit = match (options.trials, options.time_budget) {
        (Some(trials), Some(time)) => format!("{trials} trials or {:.1} s", time.as_secs_f64()),
        (Some(trials), None) => format!("{trials} trials"),
        (None, Some(time)) => format!("{:.1} s", time.as_secs_f64()),
        (None, None) => "no limit".into(),
    };
    let of = options.trials.map_or(String::new(), |trials| format!(" of {trials}"));
    let start = match (known, options.trials) {
        (0, _) => String::new(),
        (known, Some(trials)) if known >= trials => {
            format!("; nothing left to do: {known}{of} trials already measured")
        }
        (known, _) => format!("; continuing: {known}{of} trials already measured"),
    };
    format!("{tasks} task(s), {limit} in total, tuner {}, seed {}{start}", options.search, options.seed)
}

fn verdict(report: &Report) -> Result<()> {
    if report.stop == Stop::Cancelled {
        return Err(Failure::Interrupted.into());
    }
    let failing = report.tasks.iter().filter(|task| matches!(task.retired, Some(Retired::Failing(_))));
    let names: Vec<&str> = failing.map(|task| task.name.as_str()).collect();
    anyhow::ensure!(names.is_empty(), "no schedule of {} ran; the causes are above", names.join(", "));
    anyhow::ensure!(!report.found_nothing(), "nothing was measured: give more time or trials");
    Ok(())
}
