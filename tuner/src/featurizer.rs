//! Feature extraction of candidates with a cache.

use std::collections::HashMap;
use std::sync::Arc;

use autotune_cost_model::features;
use autotune_schedules::Candidate;
use autotune_workloads::Workload;
use rayon::prelude::*;

/// Number of feature rows in each of the two generations of the cache.
const GENERATION: usize = 40_000;

/// Features of a candidate; `None` if it cannot be lowered.
pub(crate) type Row = Option<Arc<[f32]>>;

/// Lowers candidates and extracts their features, in parallel.
///
/// Features are cached because annealing chains return to candidates that they have left. A row
/// stays until [`GENERATION`] newer rows have come, and longer if it is used again.
#[derive(Default)]
pub(crate) struct Featurizer {
    newer: HashMap<(Workload, u64), Row>,
    older: HashMap<(Workload, u64), Row>,
}

impl Featurizer {
    /// Returns one row per candidate, in order.
    pub(crate) fn rows(&mut self, candidates: &[Candidate]) -> Vec<Row> {
        let key = |candidate: &Candidate| (candidate.workload().clone(), candidate.stable_hash());
        let keys: Vec<_> = candidates.iter().map(key).collect();
        let mut missing: HashMap<(Workload, u64), &Candidate> = HashMap::new();
        for (key, candidate) in keys.iter().zip(candidates) {
            if !self.newer.contains_key(key) {
                match self.older.remove(key) {
                    Some(row) => drop(self.newer.insert(key.clone(), row)),
                    None => drop(missing.insert(key.clone(), candidate)),
                }
            }
        }
        let fresh: Vec<_> =
            missing.into_par_iter().map(|(key, candidate)| (key, features::of(candidate).map(Arc::from))).collect();
        self.newer.extend(fresh);
        let rows = keys.iter().map(|key| self.newer.get(key).cloned().flatten()).collect();
        if self.newer.len() > GENERATION {
            self.older = std::mem::take(&mut self.newer);
        }
        rows
    }
}
