//! Assignment of a task's trials to searches.

use std::collections::HashSet;

use autotune_db::TuningRecord;

use super::history::History;

/// Trials of one search of a task.
pub(crate) struct SearchRun<'h> {
    /// Seed of the search, followed by the seeds that continued it.
    pub(crate) seeds: Vec<u64>,
    /// Trials in the order of the database.
    pub(crate) trials: Vec<&'h TuningRecord>,
}

/// Returns the searches of a task in the order in which they began. A seed begins a search of its
/// own if it measured a configuration that an earlier one had measured. A search never repeats a
/// measurement of its database, so such a seed had another database. All other seeds continue the
/// search before them.
pub(crate) fn runs(history: &History) -> Vec<SearchRun<'_>> {
    let mut by_seed: Vec<SearchRun<'_>> = Vec::new();
    for trial in history.trials() {
        let seed = trial.provenance.seed;
        match by_seed.iter_mut().find(|run| run.seeds[0] == seed) {
            Some(run) => run.trials.push(trial),
            None => by_seed.push(SearchRun { seeds: vec![seed], trials: vec![trial] }),
        }
    }

    let mut runs: Vec<SearchRun<'_>> = Vec::new();
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
