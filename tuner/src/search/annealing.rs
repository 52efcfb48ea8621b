//! Simulated annealing over the predictions of the cost model (AutoTVM paper, section 3.3).

use std::collections::{HashMap, HashSet};

use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, ScheduleSpace};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::batch::CandidateBatch;
use super::coverage::{Coverage, CoverageParams, Gaps, algorithm};
use super::searcher::{Ask, ScoreFn, Searcher};
use super::select::{select_diverse, standard_deviation};

/// Numeric parameters of [`Annealing`].
#[derive(Clone, Debug, PartialEq)]
pub struct AnnealingParams {
    /// Number of parallel chains.
    pub chains: usize,
    /// Number of candidates scored per requested candidate, over all chains. It limits the cost of
    /// the search relative to its gain: scoring takes some hundred microseconds, mostly for
    /// lowering, measuring some ten milliseconds.
    pub scored_per_config: usize,
    /// Initial temperature in standard deviations of the chains' scores; it falls to 0 during a
    /// walk.
    pub temperature: f32,
    /// Number of moves without a new candidate among the best after which a walk ends.
    pub early_stop: usize,
    /// Number of chains that restart from the best measured candidates.
    pub elites: usize,
    /// Most of these candidates with the same algorithm, because the algorithm that is best at
    /// first need not be the best in the end.
    pub elites_per_algorithm: usize,
    /// Number of chains that restart from random candidates; at most all.
    pub fresh: usize,
    /// Number of candidates per requested one from which the diverse batch is selected: the paper's
    /// lambda.
    pub candidates_per_config: usize,
    /// Value of one more distinct knob value in the batch, in standard deviations of the
    /// candidates' scores.
    pub diversity_weight: f32,
    /// Trials that are made regardless of scores.
    pub coverage: CoverageParams,
}

impl Default for AnnealingParams {
    fn default() -> Self {
        Self {
            chains: 12,
            scored_per_config: 12,
            temperature: 1.0,
            early_stop: 8,
            elites: 6,
            elites_per_algorithm: 3,
            fresh: 2,
            candidates_per_config: 3,
            diversity_weight: 0.1,
            coverage: CoverageParams::default(),
        }
    }
}

/// Searcher by simulated annealing. It walks the space by single-knob moves towards higher
/// predicted scores and selects a diverse batch of the best candidates found. Part of the batch
/// goes to algorithms and knob values with few trials.
///
/// The chains persist between calls of `ask`, so that the walk continues under the refitted model;
/// some of them restart from the best measured candidates. Scores may have any sign and scale,
/// because the temperature is relative to their standard deviation over the chains.
#[derive(Clone, Debug)]
pub struct Annealing {
    params: AnnealingParams,
    chains: Vec<Candidate>,
    /// Best measured candidates and their times, fastest first.
    elites: Vec<(Candidate, f64)>,
    coverage: Coverage,
    /// Candidates transferred from other workloads, on which chains start.
    carried: Vec<Candidate>,
}

impl Searcher for Annealing {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let Ask { space, score, explore, seen, n, rng } = ask;
        let mut batch = CandidateBatch::new(seen, n);
        let explored = (0..n).filter(|_| rng.random_bool(explore)).count();
        let TopCandidates { held, gaps, .. } = self.walk(space, score, seen, n, rng);

        for candidate in gaps.into_best(&self.coverage, self.coverage.quotas(n)) {
            batch.push(candidate);
        }
        // Candidates with the best scores are measured first, those for coverage last.
        let sought = batch.len();
        let wanted = (n - explored).saturating_sub(sought);
        for i in select_diverse(&held, wanted, self.params.diversity_weight) {
            batch.push(held[i].0.clone());
        }
        batch.put_last(sought);

        batch.fill(space, rng);
        batch.into_candidates()
    }

    fn begin_with(&mut self, carried: Vec<Candidate>) -> Vec<Candidate> {
        self.carried.clone_from(&carried);
        carried
    }

    fn tell(&mut self, results: &[(Candidate, Measurement)]) {
        results.iter().for_each(|(candidate, _)| self.coverage.tell(candidate));
        let ran = results.iter().filter_map(|(candidate, m)| Some((candidate.clone(), m.run_secs()?)));
        self.elites.extend(ran);
        self.elites.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut alike: HashMap<u64, usize> = HashMap::new();
        self.elites.retain(|(candidate, _)| {
            let alike = alike.entry(algorithm(candidate)).or_default();
            *alike += 1;
            *alike <= self.params.elites_per_algorithm
        });
        self.elites.truncate(self.params.elites);
    }
}

impl Default for Annealing {
    fn default() -> Self {
        Self::new(AnnealingParams::default())
    }
}

impl Annealing {
    /// Returns a searcher without any results.
    pub fn new(params: AnnealingParams) -> Self {
        let coverage = Coverage::new(params.coverage.clone());
        Self { params, chains: Vec::new(), elites: Vec::new(), coverage, carried: Vec::new() }
    }

    /// Walks the chains and returns the best distinct unseen candidates found, best first, from
    /// which `n` are to be selected. The temperature falls to 0 over the moves.
    fn walk<'s>(
        &mut self,
        space: &ScheduleSpace,
        score: &mut ScoreFn<'_>,
        seen: &'s HashSet<u64>,
        n: usize,
        rng: &mut ChaCha8Rng,
    ) -> TopCandidates<'s> {
        self.restart(space, rng);
        let params = &self.params;
        let steps = (n * params.scored_per_config).div_ceil(self.chains.len().max(1));
        let mut best = TopCandidates::new(seen, n * params.candidates_per_config);
        let mut scores = score(&self.chains);
        best.offer(&self.chains, &scores, &self.coverage);
        let spread = standard_deviation(scores.iter().copied().flatten()).max(f32::MIN_POSITIVE);

        let mut idle = 0;
        for step in 0..steps {
            let temperature = params.temperature * (1.0 - step as f32 / steps as f32);
            let moved: Vec<Candidate> = self.chains.iter().map(|chain| space.neighbor(chain, rng)).collect();
            let moved_scores = score(&moved);
            idle = if best.offer(&moved, &moved_scores, &self.coverage) { 0 } else { idle + 1 };
            if idle >= params.early_stop {
                break;
            }

            for (chain, (candidate, new)) in moved.into_iter().zip(moved_scores).enumerate() {
                if accepts(scores[chain], new, spread * temperature, rng) {
                    self.chains[chain] = candidate;
                    scores[chain] = new;
                }
            }
        }
        best
    }

    /// Restores the number of chains. Initially one starts on the default and others on transferred
    /// candidates. The first chains are moved to the best measured candidates, and missing ones
    /// start on random candidates.
    fn restart(&mut self, space: &ScheduleSpace, rng: &mut ChaCha8Rng) {
        if self.chains.is_empty() {
            self.chains.push(space.default_candidate().clone());
            self.chains.append(&mut self.carried);
        }
        self.chains.truncate(self.params.chains.saturating_sub(self.params.fresh));
        while self.chains.len() < self.params.chains {
            self.chains.push(space.sample(rng));
        }
        for (chain, (elite, _)) in self.chains.iter_mut().zip(&self.elites) {
            chain.clone_from(elite);
        }
    }
}

/// Decides by the Metropolis rule whether a chain moves. A candidate without a score, which cannot
/// be lowered, loses against any with one.
fn accepts(old: Option<f32>, new: Option<f32>, temperature: f32, rng: &mut ChaCha8Rng) -> bool {
    match (old, new) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => new >= old || rng.random::<f32>() < ((new - old) / temperature).exp(),
    }
}

/// Best distinct unseen candidates among those offered. Of candidates with exactly the same score,
/// which the model cannot distinguish, only one is taken: measuring it tells about the others.
struct TopCandidates<'a> {
    seen: &'a HashSet<u64>,
    met: HashSet<u32>,
    keep: usize,
    /// Candidates with their scores, best first, at most `keep` after sorting.
    held: Vec<(Candidate, f32)>,
    /// Score to exceed once there are `keep` candidates.
    threshold: f32,
    /// Best candidates for coverage.
    gaps: Gaps,
}

impl<'a> TopCandidates<'a> {
    fn new(seen: &'a HashSet<u64>, keep: usize) -> Self {
        Self { seen, met: HashSet::new(), keep, held: Vec::new(), threshold: f32::NEG_INFINITY, gaps: Gaps::default() }
    }

    /// Adds the candidates that belong to the best so far. Returns true if there were any.
    fn offer(&mut self, candidates: &[Candidate], scores: &[Option<f32>], coverage: &Coverage) -> bool {
        let mut improved = false;
        for (candidate, score) in candidates.iter().zip(scores) {
            let Some(score) = score.filter(|score| !score.is_nan()) else { continue };
            if self.seen.contains(&candidate.stable_hash()) {
                continue;
            }
            self.gaps.offer(coverage, candidate, score);
            let counts = self.held.len() < self.keep || score > self.threshold;
            if counts && self.met.insert(score.to_bits()) {
                self.held.push((candidate.clone(), score));
                improved = true;
            }
        }
        if improved {
            self.held.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.stable_hash().cmp(&b.0.stable_hash())));
            self.held.truncate(self.keep);
            self.threshold = self.held.last().map_or(f32::NEG_INFINITY, |(_, score)| *score);
        }
        improved
    }
}
