//! Timing schedules where they run: within the network.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use autotune::Tuned;
use autotune_db::{DbError, Phase, Standing, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_schedules::Workload;
use thiserror::Error;

use crate::compiled::Compiled;
use crate::cut::{Cut, Work};
use crate::error::{CompileError, RunError};
use crate::graph::Graph;
use crate::tensor::Tensor;

/// Runs of the network with each choice of schedules.
const RUNS: usize = 10;

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

/// Races the best schedules of each [kind](Tuned::lookup_kinds) that a database has for a network's workloads, and appends their times as a race
/// of each workload; how many workloads have another best schedule now.
///
/// A search times a kernel again and again on the same tensors, whose weights then lie in the caches. In a network that has more weights than these hold,
/// they come from memory every time, and a schedule that reads fewer may be the faster: Winograd's with smaller tiles, or none. So the network runs once
/// with the best of each workload, once with the second kind of each, and so on, and every step is timed there.
pub fn race(graph: &Graph, db: &TuningDb, target: &Target, inputs: &[Tensor]) -> Result<usize, RaceError> {
    let kinds = kinds(graph, db, target)?;
    let most = kinds.values().map(Vec::len).max().unwrap_or(0);
    if most < 2 {
        return Ok(0);
    }

    let mut secs: HashMap<&Workload, Vec<f64>> = HashMap::new();
    for kind in 0..most {
        let mut choose = |workload: &Workload| match kinds.get(workload) {
            Some(kinds) => Ok(vec![kinds[kind.min(kinds.len() - 1)].clone()]),
            None => Ok(vec![Tuned::lookup(db, workload, target).map_err(CompileError::from)?]),
        };
        let network = Compiled::with(graph, target, &mut choose)?;
        let mut workspace = network.workspace()?;
        workspace.run_tensors(inputs)?;
        let times = workspace.profile(RUNS)?;
        for (workload, kinds) in kinds.iter().filter(|(_, kinds)| kind < kinds.len()) {
            let is_own = |kernel: usize| network.schedules()[kernel].workload() == workload;
            let own: Vec<f64> =
                times.iter().filter(|time| time.kernel.is_some_and(is_own)).map(|time| time.run_secs).collect();
            debug_assert!(!own.is_empty() && !kinds.is_empty());
            secs.entry(workload).or_default().push(own.iter().sum::<f64>() / own.len() as f64);
        }
    }

    let mut changed = 0;
    for (workload, kinds) in kinds.iter().filter(|(_, kinds)| kinds.len() > 1) {
        let Some(secs) = secs.get(workload).filter(|secs| secs.iter().all(|secs| secs.is_finite())) else { continue };
        db.append_all(&records(kinds, secs, graph.name()))?;
        changed += usize::from(secs.iter().any(|&other| other < secs[0]));
    }
    db.flush()?;
    Ok(changed)
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
