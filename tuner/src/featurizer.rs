//! Features of candidates, computed once each.

use std::collections::HashMap;
use std::sync::Arc;

use autotune_cost_model::features;
use autotune_schedules::Candidate;
use autotune_workloads::Workload;
use rayon::prelude::*;

/// Feature rows kept, in each of two generations.
const GENERATION: usize = 40_000;

/// One row of features; `None` for a candidate that cannot be lowered.
pub(crate) type Row = Option<Arc<[f32]>>;

/// Lowers candidates and extracts their features, in parallel.
///
/// Annealing chains come back to candidates they have left, and features never change: rows are
/// kept until [`GENERATION`] younger ones have come, and longer if asked for again.
#[derive(Default)]
pub(crate) struct Featurizer {
    young: HashMap<(Workload, u64), Row>,
    old: HashMap<(Workload, u64), Row>,
}

impl Featurizer {
    /// A row per candidate, in order.
    pub(crate) fn rows(&mut self, candidates: &[Candidate]) -> Vec<Row> {
        let key = |candidate: &Candidate| (candidate.workload().clone(), candidate.stable_hash());
        let keys: Vec<_> = candidates.iter().map(key).collect();
        let mut missing: HashMap<(Workload, u64), &Candidate> = HashMap::new();
        for (key, candidate) in keys.iter().zip(candidates) {
            if !self.young.contains_key(key) {
                match self.old.remove(key) {
                    Some(row) => drop(self.young.insert(key.clone(), row)),
                    None => drop(missing.insert(key.clone(), candidate)),
                }
            }
        }
        let fresh: Vec<_> =
            missing.into_par_iter().map(|(key, candidate)| (key, features::of(candidate).map(Arc::from))).collect();
        self.young.extend(fresh);
        let rows = keys.iter().map(|key| self.young.get(key).cloned().flatten()).collect();
        if self.young.len() > GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        rows
    }
}
