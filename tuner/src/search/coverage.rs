//! Coverage of a space: trials of algorithms and knob values independent of the model.
//!
//! A model knows nothing about values that no candidate has had. What it learned from other
//! workloads, or from a few poor candidates, must not rule out the best choice for this one.
//! Therefore every algorithm and every knob value gets a few trials, each with the best-scored
//! candidate that has it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use autotune_schedules::Candidate;

use super::select::knob_values;

/// Parameters of coverage: trials that are made regardless of scores.
#[derive(Clone, Debug, PartialEq)]
pub struct CoverageParams {
    /// Least number of trials of each algorithm.
    pub algorithm_trials: usize,
    /// An algorithm gets at least one in this many trials of the space.
    pub algorithm_one_in: usize,
    /// At most one candidate in this number of a batch is for algorithms with too few trials.
    pub neglected_one_in: usize,
    /// At most one candidate in this number of a batch is for knob values without a trial.
    pub untried_one_in: usize,
}

impl Default for CoverageParams {
    fn default() -> Self {
        Self { algorithm_trials: 4, algorithm_one_in: 32, neglected_one_in: 2, untried_one_in: 8 }
    }
}

/// Numbers of trials of a space's algorithms and knob values, by their hashes.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    params: CoverageParams,
    algorithms: BTreeMap<u64, usize>,
    values: BTreeMap<u64, usize>,
    trials: usize,
}

impl Coverage {
    pub(super) fn new(params: CoverageParams) -> Self {
        Self { params, ..Self::default() }
    }

    /// Counts one trial of a candidate.
    pub(super) fn tell(&mut self, candidate: &Candidate) {
        self.trials += 1;
        *self.algorithms.entry(algorithm(candidate)).or_default() += 1;
        for value in values(candidate) {
            *self.values.entry(value).or_default() += 1;
        }
    }

    /// Returns the maximum numbers of candidates in a batch of `n` for neglected algorithms and for
    /// untried values.
    pub(super) fn quotas(&self, n: usize) -> [usize; 2] {
        [self.params.neglected_one_in, self.params.untried_one_in].map(|one_in| n / one_in.max(1))
    }

    /// Returns the number of trials of an algorithm if that is too small.
    fn neglected(&self, algorithm: u64) -> Option<usize> {
        let trials = self.algorithms.get(&algorithm).copied().unwrap_or(0);
        let least = self.params.algorithm_trials.max(self.trials / self.params.algorithm_one_in.max(1));
        (trials < least).then_some(trials)
    }
}

/// Best-scored candidate found for each neglected algorithm and for each untried knob value.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    algorithms: BTreeMap<u64, (Candidate, f32)>,
    values: BTreeMap<u64, (Candidate, f32)>,
}

impl Gaps {
    /// Considers an unmeasured candidate.
    pub(super) fn offer(&mut self, coverage: &Coverage, candidate: &Candidate, score: f32) {
        let algorithm = algorithm(candidate);
        if coverage.neglected(algorithm).is_some() {
            keep_better(&mut self.algorithms, algorithm, candidate, score);
        }
        for value in values(candidate).filter(|value| !coverage.values.contains_key(value)) {
            keep_better(&mut self.values, value, candidate, score);
        }
    }

    /// Returns the candidates for up to `algorithms` algorithms, least tried first, then those for
    /// up to `values` values, best-scored first. A candidate may occur twice.
    pub(super) fn into_best(self, coverage: &Coverage, [algorithms, values]: [usize; 2]) -> Vec<Candidate> {
        let mut of_algorithms = Vec::from_iter(self.algorithms);
        of_algorithms.sort_by_key(|(algorithm, _)| coverage.neglected(*algorithm));
        let mut of_values = Vec::from_iter(self.values);
        of_values.sort_by(|(_, a), (_, b)| b.1.total_cmp(&a.1));
        let chosen = of_algorithms.into_iter().take(algorithms).chain(of_values.into_iter().take(values));
        chosen.map(|(_, (candidate, _))| candidate).collect()
    }
}

fn keep_better(best: &mut BTreeMap<u64, (Candidate, f32)>, key: u64, candidate: &Candidate, score: f32) {
    if best.get(&key).is_none_or(|(_, known)| score > *known) {
        best.insert(key, (candidate.clone(), score));
    }
}

/// Returns a hash of the candidate's algorithm.
pub(super) fn algorithm(candidate: &Candidate) -> u64 {
    hash(candidate.algorithm())
}

fn values(candidate: &Candidate) -> impl Iterator<Item = u64> {
    knob_values(candidate).map(hash)
}

fn hash(item: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    item.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use autotune_schedules::{Config, KnobValue};

    use super::*;
    use crate::testing::synthetic;

    fn candidate(sketch: &str, m: usize, tile: usize) -> Candidate {
        let knobs = [("m", KnobValue::Choice(m.to_string())), ("tile", KnobValue::Tile(vec![tile]))];
        synthetic(Config { sketch: sketch.into(), knobs: knobs.map(|(name, value)| (name.to_string(), value)).into() })
    }

    /// Sketch with several algorithms, selected by its knob `m`, and one with a single algorithm.
    const WINOGRAD: &str = autotune_schedules::winograd::SKETCH;
    const OTHER: &str = "x";

    #[test]
    fn every_algorithm_gets_its_trials_and_every_value_one() {
        let mut coverage = Coverage::default();
        (0..100).for_each(|_| coverage.tell(&candidate(WINOGRAD, 2, 8)));
        let offers = [
            (candidate(WINOGRAD, 2, 16), 3.0),
            (candidate(WINOGRAD, 2, 16), 2.0),
            (candidate(WINOGRAD, 2, 32), 4.0),
            (candidate(WINOGRAD, 3, 8), 1.0),
            (candidate(OTHER, 2, 8), -1.0),
            (candidate(OTHER, 2, 16), -2.0),
        ];

        let best = |coverage: &Coverage, algorithms, values| {
            let mut gaps = Gaps::default();
            offers.iter().for_each(|(candidate, score)| gaps.offer(coverage, candidate, *score));
            gaps.into_best(coverage, [algorithms, values])
        };
        let mut chosen = best(&coverage, 9, 2);
        chosen[..2].sort_by_key(|chosen| chosen.to_string());
        assert_eq!(
            chosen,
            [candidate(WINOGRAD, 3, 8), candidate(OTHER, 2, 8), candidate(WINOGRAD, 2, 32), candidate(WINOGRAD, 2, 16)]
        );

        coverage.tell(&candidate(WINOGRAD, 3, 8));
        assert_eq!(best(&coverage, 1, 1), [candidate(OTHER, 2, 8), candidate(WINOGRAD, 2, 32)]);
        for (candidate, _) in offers.iter().cycle().take(6 * CoverageParams::default().algorithm_trials) {
            coverage.tell(candidate);
        }
        assert!(best(&coverage, 9, 9).is_empty());
        // With more trials in total, the few that an algorithm has had are too few again.
        (0..100).for_each(|_| coverage.tell(&candidate(WINOGRAD, 2, 8)));
        assert_eq!(best(&coverage, 9, 9), [candidate(WINOGRAD, 3, 8)]);
    }
}
