//! Timing schedules where they run: within the network.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use autotune::Tuned;
use autotune_db::{DbError, Phase, Standing, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_schedules::Workload;
use thiserror::Error;

use crate::compiled::{Compiled, Workspace};
use crate::cut::{Cut, Work};
use crate::error::{CompileError, RunError};
use crate::graph::Graph;
use crate::tensor::Tensor;
use crate::turns::{QUIET, quantile, time_in_turns};

/// Rounds in which two choices of schedules run once each, at least and at most.
const ROUNDS: [usize; 2] = [5, 60];
/// Kinds that race: those whose time in the search is at most this multiple of the best one's, and at most [`MOST_KINDS`] of them.
const SLOWER: f64 = 1.5;
const MOST_KINDS: usize = 4;
/// How much faster the whole network has to be for what was measured to be kept.
const GAIN: f64 = 0.995;

/// Why schedules were not raced.
#[derive(Debug, Error)]
pub enum RaceError {
    /// A network cannot be made of them.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// It does not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// What was measured cannot be kept.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Races the best schedules of each [kind](Tuned::lookup_kinds) that a database has for a network's workloads, and the untuned ones, within the
/// network, and, if that makes it faster, appends their times as a race of each workload. True if it does.
///
/// A search times a kernel by itself. In a network its operands lie elsewhere and what it leaves in the caches matters, so that another schedule
/// may be the faster. So the network runs with the best of each workload, with the second choice of each, and so on, in turns, and every
/// step is timed there. What comes of these times runs beside what there was before: sums of steps may mislead.
///
/// No choice is begun when `limit` has passed.
pub fn race(
    graph: &Graph,
    db: &TuningDb,
    target: &Target,
    inputs: &[Tensor],
    limit: Duration,
) -> Result<bool, RaceError> {
    let start = Instant::now();
    let racers = racers(graph, db, target)?;
    let most = racers.values().map(Vec::len).max().unwrap_or(0);
    if most < 2 {
        return Ok(false);
    }
    let workspace = |choice: usize| -> Result<Workspace, RaceError> {
        let mut choose = |workload: &Workload| match racers.get(workload) {
            Some(racers) => Ok(vec![racers[choice.min(racers.len() - 1)].clone()]),
            None => Ok(vec![Tuned::lookup(db, workload, target).map_err(CompileError::from)?]),
        };
        let mut workspace = Compiled::with(graph, target, &mut choose)?.workspace()?;
        workspace.run_tensors(inputs)?;
        Ok(workspace)
    };

    let mut best = workspace(0)?;
    let run = Instant::now();
    best.step_secs(false)?;
    let rounds = limit.as_secs_f64() / (4 * most) as f64 / run.elapsed().as_secs_f64();
    let rounds = (rounds as usize).clamp(ROUNDS[0], ROUNDS[1]);
    let mut secs: HashMap<&Workload, Vec<f64>> = HashMap::new();
    for choice in 1..most {
        if choice > 1 && start.elapsed() > limit {
            break;
        }
        add_secs(&mut secs, [&mut best, &mut workspace(choice)?], &racers, choice, rounds)?;
    }
    drop(best);

    let of_racers = |(workload, racers): (&Workload, &Vec<Tuned>)| {
        let harness = format!("{{\"within\":\"{}\",\"rounds\":{rounds}}}", graph.name().escape_default());
        Some(records(racers, secs.get(workload)?, rounds, &harness))
    };
    let races: Vec<Vec<TuningRecord>> = racers.iter().filter_map(of_racers).collect();
    let found = TuningDb::temporary()?;
    races.iter().try_for_each(|race| found.append_all(race).map(drop))?;
    if !is_faster(graph, target, [db, &found], inputs, rounds)? {
        return Ok(false);
    }
    for race in races.iter().filter(|race| race.len() > 1) {
        db.append_all(race)?;
    }
    db.flush()?;
    Ok(true)
}

/// Adds for each workload the seconds of one of its racers within the network, the mean over its steps, and of its best before the first.
///
/// Both networks are compared round by round, and the median of these comparisons counts: what disturbs the machine for longer than a round
/// disturbs both.
fn add_secs<'r>(
    secs: &mut HashMap<&'r Workload, Vec<f64>>,
    mut workspaces: [&mut Workspace; 2],
    racers: &'r HashMap<Workload, Vec<Tuned>>,
    choice: usize,
    rounds: usize,
) -> Result<(), RunError> {
    let networks = workspaces.each_ref().map(|workspace| Arc::clone(workspace.network()));
    let mut of_rounds = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let mut round = Vec::with_capacity(2);
        for (workspace, network) in workspaces.iter_mut().zip(&networks) {
            // Behind another network nothing of this one is in the caches.
            workspace.step_secs(false)?;
            let steps = workspace.step_secs(false)?;
            round.push(by_workload(network, &steps));
        }
        of_rounds.push(round);
    }

    for (workload, _) in racers.iter().filter(|(_, racers)| choice < racers.len()) {
        let of = |round: &[HashMap<&Workload, f64>], place: usize| round[place].get(workload).copied();
        let best_secs: Vec<f64> = of_rounds.iter().filter_map(|round| of(round, 0)).collect();
        let ratios = of_rounds.iter().filter_map(|round| Some(of(round, 1)? / of(round, 0)?)).collect();
        let known = secs.entry(workload).or_insert_with(|| vec![quantile(best_secs, QUIET)]);
        known.push(known[0] * quantile(ratios, 0.5));
    }
    Ok(())
}

/// The mean seconds of the steps of each workload.
fn by_workload<'n>(network: &'n Compiled, step_secs: &[f64]) -> HashMap<&'n Workload, f64> {
    let mut sums: HashMap<&Workload, (f64, f64)> = HashMap::new();
    for (step, secs) in step_secs.iter().enumerate() {
        if let Some(workload) = network.workload(step) {
            let (sum, count) = sums.entry(workload).or_default();
            (*sum, *count) = (*sum + secs, *count + 1.0);
        }
    }
    sums.into_iter().map(|(workload, (sum, count))| (workload, sum / count)).collect()
}

/// Whether a network is faster by the second database than by the first.
fn is_faster(
    graph: &Graph,
    target: &Target,
    sources: [&TuningDb; 2],
    inputs: &[Tensor],
    rounds: usize,
) -> Result<bool, RaceError> {
    let [before, after] = sources.map(|db| Compiled::new(graph, Some(db), target));
    let mut workspaces = [before?.workspace()?, after?.workspace()?];
    let secs = time_in_turns(&mut workspaces, inputs, rounds)?;
    let [before, after] = [0, 1].map(|network| quantile(secs[network].clone(), QUIET));
    Ok(after < GAIN * before)
}

/// The schedules that the database has of the network's workloads: the best first, then the untuned one, then the
/// best of the other kinds.
fn racers(graph: &Graph, db: &TuningDb, target: &Target) -> Result<HashMap<Workload, Vec<Tuned>>, CompileError> {
    let mut racers = HashMap::new();
    for step in Cut::of(graph).steps {
        let Work::Kernel(workload) = step.work else { continue };
        if racers.contains_key(&workload) {
            continue;
        }
        let mut found = Tuned::lookup_kinds(db, &workload, target)?;
        // Only what was measured of it on this very machine can be compared with what is measured now.
        let is_own = |tuned: &Tuned| {
            tuned.workload() == &workload && tuned.best().is_some_and(|best| best.standing != Standing::Claimed)
        };
        found.retain(is_own);

        let secs = |tuned: &Tuned| tuned.best().and_then(|best| best.record.measurement.run_secs());
        let least = found.first().and_then(secs).unwrap_or(f64::INFINITY);
        found.retain(|tuned| secs(tuned).is_some_and(|secs| secs <= SLOWER * least));
        found.truncate(MOST_KINDS);

        let default = Tuned::untuned(&workload, target)?;
        let untuned = Tuned::lookup_among(db, &workload, target, &|config| config == default.config())?;
        let is_in = |tuned: &Tuned| found.iter().any(|known| known.config() == tuned.config());
        if let Some(untuned) = untuned.filter(|tuned| is_own(tuned) && !is_in(tuned)) {
            found.insert(found.len().min(1), untuned);
        }

        if !found.is_empty() {
            racers.insert(workload, found);
        }
    }
    Ok(racers)
}

/// A race of some schedules, as records.
fn records(racers: &[Tuned], secs: &[f64], rounds: usize, harness: &str) -> Vec<TuningRecord> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = now.as_nanos() as u64;
    let record = |(tuned, &run_secs): (&Tuned, &f64)| {
        let mut record = tuned.best()?.record.clone();
        let times = record.measurement.outcome.as_mut().ok()?;
        (times.run_secs, times.median_secs, times.spread) = (run_secs, run_secs, 0.0);
        (times.repeats, times.slowdown) = (rounds, 1.0);
        record.phase = Phase::Race { id };
        record.provenance.unix_secs = now.as_secs();
        record.provenance.harness = harness.into();
        Some(record)
    };
    racers.iter().zip(secs).filter_map(record).collect()
}
