//! The command `autotune NETWORK|WORKLOAD --target any`: tunes for every kind of device that the
//! workers of a fleet have, for all kinds at once.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use autotune::{Cancel, Network, Report, TuneParams, Tuner};
use autotune_db::TuningDb;
use autotune_fleet::kinds::finder_of;
use autotune_fleet::{DeviceWish, Fleet, FleetError, FleetOptions, FleetParams, WorkerKind};
use autotune_ir::Target;
use autotune_network::Subject;
use serde::Serialize;

use super::fleet::team::{Recalled, RunMemory, recalling};
use super::fleet::{dials, finder, summary as workers_of, tell_workers};
use super::lookup::adopt_legacy;
use super::shared::{JsonSink, open_db};
use super::trials::{continuing, known_trials, limits, trials_of, verdict};
use crate::args::{Failure, LoadedNetwork, TargetArgs, TuneArgs};
use crate::interrupt;
use crate::output::say;
use crate::progress::{KindDisplay, notice};
use crate::report::{summary, table};

/// Interval at which an interruption is passed on to the runs.
const POLL: Duration = Duration::from_millis(20);

/// Tunes for every kind of device.
pub(super) fn run(args: &TuneArgs, subject: &Subject, loaded: &[LoadedNetwork]) -> Result<()> {
    let start = Instant::now();
    if args.connect.is_empty() && args.nats.nats.is_none() {
        let why = "only a fleet has several kinds: name its workers by --connect ADDRESS or --nats URL";
        return Err(Failure::Usage(format!("--target any: {why}")).into());
    }
    let json = JsonSink::new(args.json.clone())?;
    // Until workers have answered, Ctrl-C ends the command at once.
    let kinds = kinds(args, subject, loaded)?;
    let cancel = interrupt::cancel();
    let mut runs = connect(args, kinds, &cancel)?;
    let mut memory = RunMemory::connect(args.collector.as_ref(), &args.nats, &cancel)?;
    let db = Arc::new(open_db(&args.db)?);
    let time_budget = args.time_budget.map(|budget| budget.saturating_sub(start.elapsed()));

    for run in &mut runs {
        adopt_legacy(&db, &run.target)?;
        if let Some(memory) = &mut memory {
            run.recalled = Some(memory.recall(&db, &run.network.workloads(), &run.target, &cancel)?);
        }
        let known = continuing(run.trials, known_trials(&db, &run.network, &run.target)?);
        let (tasks, limits) = (run.network.tasks.len(), limits(run.trials, time_budget));
        say(format_args!("tuning {} for {}: {tasks} task(s), {limits} in total{known}", run.network.name, run.target));
    }
    let (count, kind, seed) = (runs.len(), args.tuner, args.seed);
    say(format_args!("{count} kind(s) at once, tuner {kind}, seed {seed}; database {}", db.path().display()));

    let sharing = memory.map(|memory| memory.share(&db));
    let display = KindDisplay::start(&runs.iter().map(|run| run.target.key()).collect::<Vec<_>>());
    let reports = tune_all(args, &mut runs, time_budget, &db, &display, &cancel);
    drop(display);
    print_all(&json, &runs, &reports, !loaded.is_empty())?;
    json.say_all(sharing.map(|sharing| sharing.finish(&cancel)))?;
    conclude(&runs, reports, &cancel, &db)
}

/// Tuning for one kind of device.
struct KindRun {
    fleet: Fleet,
    target: Target,
    network: Network,
    trials: Option<usize>,
    recalled: Option<Recalled>,
    cancel: Cancel,
}

/// Kind of device with the tasks to tune on it.
type PlannedKind = (WorkerKind, Network);

/// Returns the kinds that the workers have, with their tasks. Kinds that do not support the tasks
/// are reported and left out.
fn kinds(args: &TuneArgs, subject: &Subject, loaded: &[LoadedNetwork]) -> Result<Vec<PlannedKind>> {
    let dials = dials(&args.connect, &args.nats)?;
    let mut left_out = |line: String| say(line);
    let found = WorkerKind::find_all(&dials, args.target.threads(), &FleetParams::default(), &mut left_out)?;
    let (mut kinds, mut failure) = (Vec::new(), None);
    for kind in found {
        let target = Target::of_key(&kind.key).with_context(|| format!("the target key {} is unknown here", kind.key));
        let planned = target.and_then(|target| {
            let tasks = TargetArgs::of_kind(&kind.key).tasks_for(subject, loaded, &target)?;
            Ok(args.variant.of(tasks)?)
        });
        match planned {
            Ok(network) => kinds.push((kind, network)),
            Err(error) => {
                let line = format!("{} is left out: {error:#}", kind.key);
                failure = failure.or(Some(error));
                say(line);
            }
        }
    }
    match (kinds.is_empty(), failure) {
        (true, Some(error)) => Err(error),
        _ => Ok(kinds),
    }
}

/// Opens the devices of all kinds at the same time. Kinds that cannot be opened are reported and
/// left out.
fn connect(args: &TuneArgs, kinds: Vec<PlannedKind>, cancel: &Cancel) -> Result<Vec<KindRun>> {
    let opened: Vec<Result<KindRun>> = thread::scope(|scope| {
        let open = |(kind, network)| scope.spawn(move || open(args, kind, network, cancel));
        let opening: Vec<_> = kinds.into_iter().map(open).collect();
        opening
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("connecting ended by a fault")))
            .collect()
    });
    if cancel.is_cancelled() {
        return Err(Failure::Interrupted.into());
    }

    let (mut runs, mut failures) = (Vec::new(), Vec::new());
    for opened in opened {
        match opened {
            Ok(run) => runs.push(run),
            Err(error) => failures.push(error),
        }
    }
    if runs.is_empty() {
        return Err(failures.into_iter().next().unwrap_or_else(|| FleetError::NoWorker.into()));
    }
    failures.iter().for_each(|error| say(format_args!("{error:#}")));
    Ok(runs)
}

fn open(args: &TuneArgs, kind: WorkerKind, network: Network, interrupted: &Cancel) -> Result<KindRun> {
    let cancel = Cancel::default();
    let (own, all) = (cancel.clone(), interrupted.clone());
    let threads = args.target.threads();
    let params = FleetParams::default();
    let find = finder(&args.nats)?.map(|find| finder_of(&kind.key, threads, &params, find));
    let options = FleetOptions {
        is_interrupted: Arc::new(move || own.is_due() || all.is_cancelled()),
        notice: Box::new(|line| notice(&line)),
        find,
        params,
        ..FleetOptions::default()
    };
    let wish = DeviceWish { target: kind.key.clone(), threads: None, backend: args.backend };
    let fleet = Fleet::connect(kind.dials, &wish, options)?;
    tell_workers(&fleet);
    let target = fleet.target().clone();
    let target = fleet.ceilings().map_or(target.clone(), |ceilings| ceilings.rated(&target));
    let trials = trials_of(args, &network);
    Ok(KindRun { fleet, target, network, trials, recalled: None, cancel })
}

/// Tunes for all kinds at the same time. The workers measure, so that this machine only proposes.
fn tune_all(
    args: &TuneArgs,
    runs: &mut [KindRun],
    time_budget: Option<Duration>,
    db: &TuningDb,
    display: &KindDisplay,
    cancel: &Cancel,
) -> Vec<Result<Report>> {
    let switches: Vec<Cancel> = runs.iter().map(|run| run.cancel.clone()).collect();
    thread::scope(|scope| {
        let tune = |(number, run)| scope.spawn(move || tune_one(args, run, time_budget, db, display, number));
        let threads: Vec<_> = runs.iter_mut().enumerate().map(tune).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            if cancel.is_cancelled() {
                switches.iter().for_each(|switch| {
                    switch.cancel();
                });
            }
            thread::sleep(POLL);
        }
        let lost = |_| Err(anyhow!("tuning ended by a fault of the program"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    })
}

fn tune_one(
    args: &TuneArgs,
    run: &mut KindRun,
    time_budget: Option<Duration>,
    db: &TuningDb,
    display: &KindDisplay,
    number: usize,
) -> Result<Report> {
    let KindRun { fleet, target, network, trials, recalled, cancel } = run;
    let mut observer = display.observer(number, time_budget);
    let (ceilings, setup) = (fleet.ceilings(), fleet.setup());
    let params = TuneParams { transfer: !args.no_transfer, ..TuneParams::default() };
    let report = recalling(recalled.take(), fleet, db, target, |measurer| {
        let tuner = Tuner::new(target).trials(*trials).time_budget(time_budget).seed(args.seed).params(params);
        let tuner = tuner.measurer(measurer).ceilings(ceilings).setup(setup).database(db).cancel(cancel);
        tuner.searcher(|_| args.tuner.searcher()).observer(&mut observer).tune(&network.tasks)
    });
    Ok(report?)
}

/// Output of `--json`.
#[derive(Serialize)]
struct KindsOutput<'a> {
    kinds: Vec<&'a Report>,
    failed: Vec<FailedKind>,
}

#[derive(Serialize)]
struct FailedKind {
    target: String,
    error: String,
}

fn print_all(json: &JsonSink, runs: &[KindRun], reports: &[Result<Report>], is_network: bool) -> Result<()> {
    let all = || runs.iter().zip(reports);
    let failed = |(run, report): (&KindRun, &Result<Report>)| {
        let error = report.as_ref().err()?;
        Some(FailedKind { target: run.target.key(), error: format!("{error:#}") })
    };
    json.write(&KindsOutput { kinds: reports.iter().flatten().collect(), failed: all().filter_map(failed).collect() })?;

    for (run, report) in all() {
        json.say(&format!("target {}", run.target.key()))?;
        match report {
            Ok(report) => {
                json.say(&table(&report.tasks))?;
                json.say_all(summary(report))?;
            }
            Err(error) => json.say(&format!("failed: {error:#}"))?,
        }
        json.say(&workers_of(&run.fleet, &run.target))?;
    }
    if is_network {
        json.say("the network as a whole was not run: run it on such machines with `autotune bench --profile`")?;
    }
    Ok(())
}

/// Fails if the run was interrupted, or with the failures of all kinds.
fn conclude(runs: &[KindRun], reports: Vec<Result<Report>>, cancel: &Cancel, db: &TuningDb) -> Result<()> {
    if cancel.is_cancelled() {
        return Err(Failure::Interrupted.into());
    }
    let mut failures = Vec::new();
    for (run, report) in runs.iter().zip(reports) {
        if let Err(error) = report.and_then(|report| verdict(&report, cancel, db)) {
            failures.push(format!("{}: {error:#}", run.target.key()));
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => bail!(failures.join("; ")),
    }
}
