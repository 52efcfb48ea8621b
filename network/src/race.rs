//! Timing schedules where they run: within the network.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use autotune::Tuned;
use autotune_db::{DbError, Phase, Standing, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_schedules::Workload;
use thiserror::Error;

use crate::compiled::{Compiled, StepTime, Workspace};
use crate::cut::{Cut, Work};
use crate::error::{CompileError, RunError};
use crate::graph::Graph;
use crate::tensor::Tensor;
use crate::turns::{quantile, time_in_turns};

/// Runs of the network with each choice of schedules, in turns.
const RUNS: usize = 12;
/// Share of a step's runs that are faster than what stands for them: disturbances only add time.
const QUANTILE: f64 = 0.25;
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

/// Races the best schedules of each [kind](Tuned::lookup_kinds) that a database has for a network's workloads within the network, and, if
/// that makes it faster, appends their times as a race of each workload. True if it does.
///
/// A search times a kernel again and again on the same tensors, whose weights then lie in the caches. In a network that has more weights than
/// these hold, they come from memory every time, and a schedule that reads fewer may be the faster: Winograd's with smaller tiles, or none.
/// So the network runs with the best of each workload, with the second kind of each, and so on, in turns, and every step is timed there. What
/// comes of these times runs beside what there was before: sums of steps may mislead.
pub fn race(graph: &Graph, db: &TuningDb, target: &Target, inputs: &[Tensor]) -> Result<bool, RaceError> {
    let kinds = kinds(graph, db, target)?;
    let most = kinds.values().map(Vec::len).max().unwrap_or(0);
    if most < 2 {
        return Ok(false);
    }
    let mut workspaces = Vec::new();
    for kind in 0..most {
        let mut choose = |workload: &Workload| match kinds.get(workload) {
            Some(kinds) => Ok(vec![kinds[kind.min(kinds.len() - 1)].clone()]),
            None => Ok(vec![Tuned::lookup(db, workload, target).map_err(CompileError::from)?]),
        };
        let mut workspace = Compiled::with(graph, target, &mut choose)?.workspace()?;
        workspace.run_tensors(inputs)?;
        workspaces.push(workspace);
    }
    let secs = step_secs(&mut workspaces, &kinds)?;
    drop(workspaces);

    let of_kinds =
        |(workload, kinds): (&Workload, &Vec<Tuned>)| Some(records(kinds, secs.get(workload)?, graph.name()));
    let races: Vec<Vec<TuningRecord>> = kinds.iter().filter_map(of_kinds).collect();
    let found = TuningDb::temporary()?;
    races.iter().try_for_each(|race| found.append_all(race).map(drop))?;
    if !is_faster(graph, target, [db, &found], inputs)? {
        return Ok(false);
    }
    for race in races.iter().filter(|race| race.len() > 1) {
        db.append_all(race)?;
    }
    db.flush()?;
    Ok(true)
}

/// For each workload the seconds of each of its kinds within the network, the mean over its steps.
fn step_secs<'k>(
    workspaces: &mut [Workspace],
    kinds: &'k HashMap<Workload, Vec<Tuned>>,
) -> Result<HashMap<&'k Workload, Vec<f64>>, RunError> {
    let mut runs: Vec<Vec<Vec<StepTime>>> = vec![Vec::new(); workspaces.len()];
    for _ in 0..RUNS {
        for (workspace, runs) in workspaces.iter_mut().zip(&mut runs) {
            runs.push(workspace.profile(1)?);
        }
    }

    let mut secs: HashMap<&Workload, Vec<f64>> = HashMap::new();
    for (kind, (workspace, runs)) in workspaces.iter().zip(&runs).enumerate() {
        let schedules = workspace.network().schedules();
        for (workload, _) in kinds.iter().filter(|(_, kinds)| kind < kinds.len()) {
            let is_own = |time: &StepTime| time.kernel.is_some_and(|kernel| schedules[kernel].workload() == workload);
            let own = (0..runs[0].len()).filter(|&step| is_own(&runs[0][step]));
            let of_steps: Vec<f64> =
                own.map(|step| quantile(runs.iter().map(|run| run[step].run_secs).collect(), QUANTILE)).collect();
            secs.entry(workload).or_default().push(of_steps.iter().sum::<f64>() / of_steps.len().max(1) as f64);
        }
    }
    Ok(secs)
}

/// Whether a network is faster by the second database than by the first.
fn is_faster(graph: &Graph, target: &Target, sources: [&TuningDb; 2], inputs: &[Tensor]) -> Result<bool, RaceError> {
    let [before, after] = sources.map(|db| Compiled::new(graph, Some(db), target));
    let mut workspaces = [before?.workspace()?, after?.workspace()?];
    let secs = time_in_turns(&mut workspaces, inputs, RUNS)?;
    let [before, after] = [0, 1].map(|network| quantile(secs[network].clone(), QUANTILE));
    Ok(after < GAIN * before)
}

/// The schedules that the database has of the network's workloads.
fn kinds(graph: &Graph, db: &TuningDb, target: &Target) -> Result<HashMap<Workload, Vec<Tuned>>, CompileError> {
    let mut kinds = HashMap::new();
    for step in Cut::of(graph).steps {
        let Work::Kernel(workload) = step.work else { continue };
        if kinds.contains_key(&workload) {
            continue;
        }
        let mut found = Tuned::lookup_kinds(db, &workload, target)?;
        // Only what was measured on this very machine can be compared with what is measured now.
        let is_own = |tuned: &Tuned| tuned.best().is_some_and(|best| best.standing != Standing::Claimed);
        found.retain(is_own);

        let secs = |tuned: &Tuned| tuned.best().and_then(|best| best.record.measurement.run_secs());
        let least = found.first().and_then(secs).unwrap_or(f64::INFINITY);
        found.retain(|tuned| secs(tuned).is_some_and(|secs| secs <= SLOWER * least));
        found.truncate(MOST_KINDS);

        if !found.is_empty() {
            kinds.insert(workload, found);
        }
    }
    Ok(kinds)
}

/// A race of some schedules, as records.
fn records(kinds: &[Tuned], secs: &[f64], network: &str) -> Vec<TuningRecord> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = now.as_nanos() as u64;
    let record = |(tuned, &run_secs): (&Tuned, &f64)| {
        let mut record = tuned.best()?.record.clone();
        let times = record.measurement.outcome.as_mut().ok()?;
        (times.run_secs, times.median_secs, times.spread) = (run_secs, run_secs, 0.0);
        (times.repeats, times.slowdown) = (RUNS, 1.0);
        record.phase = Phase::Race { id };
        record.provenance.unix_secs = now.as_secs();
        record.provenance.harness = format!("{{\"within\":\"{}\",\"runs\":{RUNS}}}", network.escape_default());
        Some(record)
    };
    kinds.iter().zip(secs).filter_map(record).collect()
}
