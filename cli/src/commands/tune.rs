//! The command `autotune NETWORK|WORKLOAD`: tunes the tasks, then races schedules in the whole
//! network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use autotune::{Cancel, Report, Stop, Timing, TuneParams, Tuner};
use autotune_db::TuningDb;
use autotune_fleet::Fleet;
use autotune_ir::Target;
use autotune_measure::{Load, LoadWatch, Measurer, WorkerMeasurer};
use autotune_network::{CompileError, Compiled, NetworkDevice, RaceError, quantile, race};
use autotune_runtime::Cpu;
use serde::Serialize;

use super::conversions::{Budget, ConversionBench};
use super::fleet;
use super::fleet::team::{RunMemory, recalling};
use super::kinds;
use super::lookup::adopt_legacy;
use super::planned;
use super::rounded::{RoundingEffect, in_f32, warn_if_slow};
use super::run::{RUNS_IN_A_ROW, inputs, latencies};
use super::shared::{JsonSink, on_device, open_db, open_device};
use super::trials::{continuing, known_trials, limits, trials_of, verdict};
use crate::args::{Failure, LoadedNetwork, TuneArgs};
use crate::device_limit::DeviceLimit;
use crate::output::say;
use crate::report::{caveat, compared, compared_with_f32, summary, table};
use crate::{interrupt, progress};

/// Fewest and most rounds of the final comparison between a network's untuned and best schedules,
/// and the seconds of it that decide the number in between. A network that takes seconds gets fewer
/// rounds than the fewest.
const NETWORK_ROUNDS: [usize; 2] = [7, 60];
const NETWORK_SECS: f64 = 2.0;

/// Quantile of the run times that is reported on a GPU: this share of the runs is faster.
const LOW: f64 = 0.1;

/// Time budgets of the whole network's race. `SEARCH_SHARE` is the share of the budget for the
/// tasks if such a race follows, `RACE_SHARE` the race's share of the time left then, and
/// `RACE_SECS` its length without a budget, for all shapes together.
const SEARCH_SHARE: f64 = 0.82;
const RACE_SHARE: f64 = 0.85;
const RACE_SECS: f64 = 10.0;

pub(super) fn run(args: TuneArgs) -> Result<()> {
    let start = Instant::now();
    let Some(subject) = &args.subject else {
        return Err(Failure::Usage("no network or workload specified".into()).into());
    };
    let loaded = args.inputs.load_all(subject)?;
    loaded.iter().try_for_each(LoadedNetwork::check_precision)?;
    if args.target.is_any() {
        return kinds::run(&args, subject, &loaded);
    }
    let graphs = || loaded.iter().map(|loaded| &loaded.graph);
    let fleet = fleet::connect(&args.connect, &args.nats, &args.target.wish(args.backend))?;
    let tasks = match &fleet {
        Some(fleet) => args.target.tasks_for(subject, &loaded, fleet.target())?,
        None => args.target.tasks(subject, &loaded)?,
    };
    let network = &args.variant.of(tasks)?;
    if !loaded.is_empty()
        && fleet.is_none()
        && let Some((target, absent)) = args.target.absent(&network.workloads())?
    {
        // Without the device nothing can be measured, so only the plan is printed.
        return graphs().try_for_each(|graph| planned::run(graph, &target, &args.variant, &args.db, &absent));
    }
    let json = JsonSink::new(args.json.clone())?;
    let cancel = interrupt::cancel();
    let memory = RunMemory::connect(args.collector.as_ref(), &args.nats, &cancel)?;
    let db = Arc::new(open_db(&args.db)?);
    let (mut device, target, ceilings, setup) = match fleet {
        Some(fleet) => {
            let (target, ceilings, setup) = (fleet.target().clone(), fleet.ceilings(), fleet.setup());
            (TuneDevice::Fleet(Box::new(fleet)), target, ceilings, setup)
        }
        None => {
            let target = args.target.device(&network.workloads())?;
            let (measurer, ceilings, setup) = open_device(&target, &network.workloads(), args.backend, &cancel)?;
            (TuneDevice::Local(Box::new(measurer)), target, ceilings, setup)
        }
    };
    if let Some(graph) = graphs().next() {
        warn_if_slow(graph, &target);
    }
    let target = ceilings.map_or(target.clone(), |ceilings| ceilings.rated(&target));

    let params = TuneParams { transfer: !args.no_transfer, ..TuneParams::default() };
    let trials = trials_of(&args, network);
    // The budget counts from the start of the command, including import and detection.
    let is_timed = target.cpu().is_some() || args.variant.is_none();
    let is_local = matches!(device, TuneDevice::Local(_));
    let is_network = !loaded.is_empty();
    let timed = if is_timed && is_local { loaded } else { Vec::new() };
    let time_budget = args.time_budget.map(|budget| search_budget(budget, !timed.is_empty(), start.elapsed()));
    // Records of earlier versions become untrusted; tuning measures the fastest of them again.
    adopt_legacy(&db, &target)?;
    let (recalled, sharing) = match memory {
        Some(mut memory) => {
            let recalled = memory.recall(&db, &network.workloads(), &target, &cancel)?;
            (Some(recalled), Some(memory.share(&db)))
        }
        None => (None, None),
    };
    say(format_args!("tuning {} for {target}; database {}", network.name, db.path().display()));
    let limits = limits(trials, time_budget);
    let known = continuing(trials, known_trials(&db, network, &target)?);
    let (tasks, kind, seed) = (network.tasks.len(), args.tuner, args.seed);
    match tasks {
        0 => say(format_args!("{} has no tasks: none of its steps is a tunable kernel", network.name)),
        _ => say(format_args!("{tasks} task(s), {limits} in total, tuner {kind}, seed {seed}{known}")),
    }

    let mut observer = progress::observer(args.time_budget);
    let report = recalling(recalled, device.measurer(), &db, &target, |measurer| {
        let tuner = Tuner::new(&target).trials(trials).time_budget(time_budget).seed(seed).params(params.clone());
        let tuner = tuner.measurer(measurer).ceilings(ceilings).setup(setup.clone()).database(&db).cancel(&cancel);
        tuner.searcher(|_| kind.searcher()).observer(&mut *observer).tune(&network.tasks)
    })?;
    drop(observer);

    let (mut latencies, mut failed) = (Vec::new(), None);
    for (number, loaded) in timed.iter().enumerate() {
        if report.stop == Stop::Cancelled || cancel.is_cancelled() {
            break;
        }
        if target.gpu().is_some() {
            match on_device!(target, timed_on(loaded, &db, &target, &cancel)) {
                Ok(latency) => latencies.extend(latency.map(|latency| (latency, loaded.calls))),
                // The report on the tasks is printed first.
                Err(error) => failed = failed.or(Some(error.context(format!("{} as a whole", loaded.graph.name())))),
            }
            continue;
        }
        // Each shape of a network has an equal part of the time that is left.
        let parts = (timed.len() - number) as u32;
        let left = || args.time_budget.map(|budget| budget.saturating_sub(start.elapsed()) / parts);
        let (setup, params) = (setup.clone(), params.clone());
        let TuneDevice::Local(measurer) = &mut device else { break };
        let measurer = &mut **measurer;
        let (db, target) = (&db, &target);
        let bench = ConversionBench { target, measurer, ceilings, setup, db, cancel: &cancel, params, kind, seed };
        bench.measure(&loaded.graph, &Budget { trials, left: left() })?;
        if !cancel.is_cancelled() {
            let unlimited = Duration::from_secs_f64(RACE_SECS) / timed.len() as u32;
            let limit = left().map_or(unlimited, |left| left.mul_f64(RACE_SHARE));
            let latency = raced(loaded, db, target, (limit, left()), &cancel, report.disturbance.load)?;
            latencies.extend(latency.map(|latency| (latency, loaded.calls)));
        }
    }
    let runs = latencies.len();
    let in_phases = timed.iter().any(|loaded| loaded.is_phase);
    let calls: usize = latencies.iter().map(|(_, calls)| calls).sum();
    let latency = if in_phases { NetworkLatency::sum(latencies) } else { NetworkLatency::mean(latencies) };
    let latency = latency.filter(|_| !cancel.is_cancelled());
    json.write(&TuneOutput { report: &report, network: latency.as_ref() })?;
    json.say(&table(&report.tasks))?;
    json.say_all(summary(&report))?;
    json.say_all(sharing.map(|sharing| sharing.finish(&cancel)))?;
    if let TuneDevice::Fleet(fleet) = &device {
        json.say(&fleet::summary(fleet, &target))?;
        if is_network {
            json.say("the network as a whole was not run: run it on such a machine with `autotune bench --profile`")?;
        }
    }
    if let Some(NetworkLatency { default_secs, best_secs, f32_secs, rounding, timing, load }) = latency {
        let what = match runs {
            _ if in_phases => format!("sum of {runs} phases, each run once"),
            1 => "whole network, run".into(),
            _ if calls > runs => format!("whole network, run, mean of {calls} calls, for which {runs} shapes stand"),
            _ => format!("whole network, run, mean of {runs} shapes"),
        };
        json.say(&format!("{what}: {}", compared(default_secs, best_secs, timing)))?;
        json.say_all(f32_secs.map(|secs| compared_with_f32(secs, best_secs, timing)))?;
        json.say_all(rounding.map(|rounding| rounding.summary()))?;
        if !report.disturbance.is_notable() {
            json.say_all(caveat(load))?;
        }
    }
    verdict(&report, &cancel, &db)?;
    failed.map_or(Ok(()), Err)
}

/// Device that is tuned on: this machine's, or that of fleet workers.
enum TuneDevice {
    Local(Box<WorkerMeasurer>),
    Fleet(Box<Fleet>),
}

impl TuneDevice {
    fn measurer(&mut self) -> &mut dyn Measurer {
        match self {
            Self::Local(measurer) => &mut **measurer,
            Self::Fleet(fleet) => &mut **fleet,
        }
    }
}

/// Returns the time left for the tasks, including their own races, from a budget of which `spent`
/// is used. If the whole network races afterwards, its share is reserved.
fn search_budget(budget: Duration, networks_race: bool, spent: Duration) -> Duration {
    let share = if networks_race { SEARCH_SHARE } else { 1.0 };
    budget.mul_f64(share).saturating_sub(spent)
}

/// Output of `--json`: the report and, for a network, its latency as a whole.
#[derive(Serialize)]
struct TuneOutput<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a NetworkLatency>,
}

/// Run times of the whole network in seconds: low quantiles of interleaved runs.
#[derive(Serialize)]
struct NetworkLatency {
    default_secs: f64,
    best_secs: f64,
    /// Seconds in f32 with the best known schedules, for a network in another precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    f32_secs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rounding: Option<RoundingEffect>,
    timing: Timing,
    /// Load by other programs during the runs.
    load: Option<Load>,
}

impl NetworkLatency {
    /// Returns the mean of calls of a network, with the worst rounding, from the latency of each
    /// shape and the number of its calls; `None` if there is none.
    fn mean(all: Vec<(Self, usize)>) -> Option<Self> {
        let count = all.iter().map(|(_, calls)| calls).sum::<usize>() as f64;
        Some(Self::sum(all)?.times(1.0 / count))
    }

    /// Multiplies the times by a factor.
    fn times(self, factor: f64) -> Self {
        let [default_secs, best_secs] = [self.default_secs, self.best_secs].map(|secs| secs * factor);
        Self { default_secs, best_secs, f32_secs: self.f32_secs.map(|secs| secs * factor), ..self }
    }

    /// Returns the sum of calls of a network or its parts, with the worst rounding, from the
    /// latency of each and the number of its calls; `None` if there is none.
    fn sum(all: Vec<(Self, usize)>) -> Option<Self> {
        let sum = |a: Self, b: Self| Self {
            default_secs: a.default_secs + b.default_secs,
            best_secs: a.best_secs + b.best_secs,
            f32_secs: a.f32_secs.zip(b.f32_secs).map(|(a, b)| a + b),
            rounding: a.rounding.into_iter().chain(b.rounding).reduce(RoundingEffect::worse),
            timing: if a.timing.is_reliable() { b.timing } else { a.timing },
            load: a.load.or(b.load),
        };
        all.into_iter().map(|(latency, calls)| latency.times(calls as f64)).reduce(sum)
    }
}

/// Races schedules within the whole network, then compares its untuned schedules with the best
/// known ones. Returns `None` if cancelled. The race ends after `limit`, and both after the time
/// that is left. `before` is the load by other programs up to now.
fn raced(
    loaded: &LoadedNetwork,
    db: &TuningDb,
    target: &Target,
    (limit, left): (Duration, Option<Duration>),
    cancel: &Cancel,
    before: Option<Load>,
) -> Result<Option<NetworkLatency>> {
    let (start, watch) = (Instant::now(), LoadWatch::start(target.threads()));
    let (graph, inputs) = (&loaded.graph, &inputs(loaded)?);
    let network = match race(graph, db, target, inputs, limit, cancel) {
        Err(RaceError::Interrupted) => return Ok(None),
        raced => raced?.network,
    };

    let exact = in_f32::<Cpu>(graph, db, target)?;
    let networks = [network.untuned_sharing(target)?, network].into_iter().chain(exact);
    let mut workspaces = networks.map(|network| network.workspace()).collect::<Result<Vec<_>, _>>()?;

    // These runs give the outputs to compare, and the time of a round.
    let run = Instant::now();
    let outputs = workspaces.iter_mut().map(|workspace| workspace.run_tensors(inputs));
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    let run_secs = run.elapsed().as_secs_f64();

    let most_secs =
        left.map_or(NETWORK_SECS, |left| left.saturating_sub(start.elapsed()).as_secs_f64().min(NETWORK_SECS));
    let latencies = latencies(&mut workspaces, inputs, rounds(run_secs, most_secs), &|| cancel.is_cancelled())?;

    let load = watch.load().or(before);

    let timing = Timing::under_load(load);
    let [default_secs, best_secs] = [0, 1].map(|network| latencies[network].p10);
    let f32_secs = latencies.get(2).map(|latency| latency.p10);
    let rounding = outputs.get(2).map(|exact| RoundingEffect::of(graph, &outputs[1], exact));
    let latency = NetworkLatency { default_secs, best_secs, f32_secs, rounding, timing, load };
    Ok((!cancel.is_cancelled()).then_some(latency))
}

/// Times a network on a GPU by the device's clock, with interleaved runs of its untuned and its
/// best known schedules. Returns `None` if cancelled, or if the device has no kernel for a step.
fn timed_on<D: NetworkDevice>(
    loaded: &LoadedNetwork,
    db: &TuningDb,
    target: &Target,
    cancel: &Cancel,
) -> Result<Option<NetworkLatency>> {
    let watch = LoadWatch::start(target.threads());
    let (graph, inputs) = (&loaded.graph, inputs(loaded)?);
    let network = Compiled::<D>::on_device(graph, Some(db), target)?;
    let exact = in_f32::<D>(graph, db, target)?;
    let limit = DeviceLimit::start(graph.name(), target);
    let mut workspaces = Vec::new();
    for network in [network.untuned_sharing(target)?, network].into_iter().chain(exact) {
        match network.workspace() {
            Err(error @ CompileError::NoKernel { .. }) => {
                say(format_args!("cannot run the whole network: {error}"));
                return Ok(None);
            }
            workspace => workspaces.push(workspace?),
        }
    }
    // These runs upload the inputs, and keep one-time setup out of the timing.
    let outputs = workspaces.iter_mut().map(|workspace| workspace.run_tensors(&inputs));
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    drop(limit);

    let mut secs = vec![Vec::new(); workspaces.len()];
    for _ in 0..NETWORK_ROUNDS[1] {
        if cancel.is_cancelled() {
            return Ok(None);
        }
        for (secs, workspace) in secs.iter_mut().zip(&mut workspaces) {
            secs.push(workspace.run_secs(RUNS_IN_A_ROW)?);
        }
    }
    let secs: Vec<f64> = secs.into_iter().map(|secs| quantile(secs, LOW)).collect();
    let load = watch.load();
    let (default_secs, best_secs, f32_secs) = (secs[0], secs[1], secs.get(2).copied());
    let rounding = outputs.get(2).map(|exact| RoundingEffect::of(graph, &outputs[1], exact));
    let timing = Timing::under_load(load);
    Ok(Some(NetworkLatency { default_secs, best_secs, f32_secs, rounding, timing, load }))
}

/// Returns the number of rounds that fit into `most_secs` if one takes `run_secs`, within the
/// limits of [`NETWORK_ROUNDS`].
fn rounds(run_secs: f64, most_secs: f64) -> usize {
    let [least, most] = NETWORK_ROUNDS;
    let fitting = |secs: f64| (secs / run_secs) as usize;
    // The minimum must itself fit into `NETWORK_SECS`, so slow networks lower it.
    fitting(most_secs).clamp(fitting(NETWORK_SECS).clamp(1, least), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_networks_race_time_is_kept_for_that() {
        let secs = Duration::from_secs;
        assert_eq!(search_budget(secs(100), false, secs(1)), secs(99));
        assert_eq!(search_budget(secs(100), true, secs(2)), secs(80));
        assert_eq!(search_budget(secs(1), true, secs(2)), secs(0));
    }

    #[test]
    fn slow_networks_have_few_rounds() {
        assert_eq!(rounds(1e-3, 2.0), 60);
        assert_eq!(rounds(0.1, 2.0), 20);
        assert_eq!(rounds(0.1, 0.0), 7, "late");
        assert_eq!([rounds(1.0, 2.0), rounds(5.0, 0.0)], [2, 1]);
    }
}
