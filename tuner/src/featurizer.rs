//! Features of configs, computed once each.

use std::collections::HashMap;
use std::sync::Arc;

use autotune_cost_model::features;
use autotune_ir::Target;
use autotune_schedules::{Config, Workload, lower};
use rayon::prelude::*;

/// Feature rows kept, in each of two generations.
const GENERATION: usize = 40_000;

/// One row of features; `None` for a config that cannot be lowered.
pub(crate) type Row = Option<Arc<[f32]>>;

/// Lowers configs and extracts their features, in parallel.
///
/// Annealing chains come back to configs they have left, and features never change: rows are kept by config until
/// [`GENERATION`] younger ones have come, and longer if asked for again.
pub(crate) struct Featurizer {
    target: Target,
    young: HashMap<(Workload, u64), Row>,
    old: HashMap<(Workload, u64), Row>,
}

impl Featurizer {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, young: HashMap::new(), old: HashMap::new() }
    }

    /// A row per config, in order.
    pub(crate) fn rows(&mut self, workload: &Workload, configs: &[Config]) -> Vec<Row> {
        let keys: Vec<_> = configs.iter().map(|config| (workload.clone(), config.stable_hash())).collect();
        let mut missing: HashMap<(Workload, u64), &Config> = HashMap::new();
        for (key, config) in keys.iter().zip(configs) {
            if !self.young.contains_key(key) {
                match self.old.remove(key) {
                    Some(row) => drop(self.young.insert(key.clone(), row)),
                    None => drop(missing.insert(key.clone(), config)),
                }
            }
        }
        let fresh: Vec<_> =
            missing.into_par_iter().map(|(key, config)| (key, self.extract(workload, config))).collect();
        self.young.extend(fresh);
        let rows = keys.iter().map(|key| self.young.get(key).cloned().flatten()).collect();
        if self.young.len() > GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        rows
    }

    fn extract(&self, workload: &Workload, config: &Config) -> Row {
        let program = lower(workload, &self.target, config).ok()?;
        Some(features::extract(&program, &self.target).into())
    }
}
