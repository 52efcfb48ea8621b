//! Which trials of a task belong to one search.

use std::collections::HashSet;

use autotune_db::TuningRecord;

use super::history::History;

/// The trials of one search of a task.
pub(crate) struct Run<'h> {
    /// Its seed, and those with which it was gone on with.
    pub(crate) seeds: Vec<u64>,
    /// In the order in which they were appended.
    pub(crate) trials: Vec<&'h TuningRecord>,
}

/// The searches of a task, in the order in which they began: one for each seed, but for seeds that
/// went on from what was there. No run measures again what is in its database, not even the
/// default: so one that measured what another had measured began anew, in a database of its own.
pub(crate) fn runs(history: &History) -> Vec<Run<'_>> {
    let mut by_seed: Vec<Run<'_>> = Vec::new();
    for trial in history.trials() {
        let seed = trial.provenance.seed;
        match by_seed.iter_mut().find(|run| run.seeds[0] == seed) {
            Some(run) => run.trials.push(trial),
            None => by_seed.push(Run { seeds: vec![seed], trials: vec![trial] }),
        }
    }

    let mut runs: Vec<Run<'_>> = Vec::new();
    let mut known: HashSet<u64> = HashSet::new();
    for of_seed in by_seed {
        let hashes: HashSet<u64> = of_seed.trials.iter().map(|trial| trial.config.stable_hash()).collect();
        let begins_anew = !hashes.is_disjoint(&known);
        known.extend(hashes);
        match runs.last_mut().filter(|_| !begins_anew) {
            Some(last) => {
                last.seeds.extend(of_seed.seeds);
                last.trials.extend(of_seed.trials);
            }
            None => runs.push(of_seed),
        }
    }
    runs
}
