//! Simulated annealing over the predictions of the cost model (AutoTVM paper, section 3.3).

use std::collections::{HashMap, HashSet};

use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, ScheduleSpace};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::batch::Batch;
use super::coverage::{Coverage, CoverageParams, Gaps, algorithm};
use super::searcher::{Ask, ScoreFn, Searcher};
use super::select::{select_diverse, standard_deviation};

/// How [`Annealing`] walks and picks.
#[derive(Clone, Debug, PartialEq)]
pub struct AnnealingParams {
    /// Chains that walk the space side by side.
    pub chains: usize,
    /// Candidates scored per candidate wanted, over all chains. It bounds what search costs against
    /// what it saves: scoring one takes some hundred microseconds, most of them lowering, measuring
    /// one some ten milliseconds.
    pub scored_per_config: usize,
    /// Temperature at the beginning of a walk, in standard deviations of the chains' scores; it
    /// falls to 0.
    pub temperature: f32,
    /// Moves without a better candidate among the best after which the walk ends.
    pub early_stop: usize,
    /// Chains that start from the best measured candidates instead of from where they were.
    pub elites: usize,
    /// Of those, the most of one algorithm: what is the best at first need not be the best in the
    /// end.
    pub elites_alike: usize,
    /// Chains that start anew, at most all.
    pub fresh: usize,
    /// Candidates per candidate wanted from which the diverse batch is picked: the paper's lambda.
    pub candidates_per_config: usize,
    /// Value of one more knob value in the batch, in standard deviations of the candidates' scores.
    pub diversity_weight: f32,
    /// What is tried whatever its score.
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
            elites_alike: 3,
            fresh: 2,
            candidates_per_config: 3,
            diversity_weight: 0.1,
            coverage: CoverageParams::default(),
        }
    }
}

/// Walks the space by single-knob moves, uphill in predicted score, and picks a diverse batch of
/// the best points seen. A part of it goes to what has hardly been tried.
///
/// The chains persist from ask to ask, so that the walk goes on under the refitted model; some of
/// them restart from the best candidates measured. Scores may be of any sign and scale: the
/// temperature is in units of their spread over the chains.
#[derive(Clone, Debug)]
pub struct Annealing {
    params: AnnealingParams,
    chains: Vec<Candidate>,
    /// The best measured candidates and their times, fastest first.
    elites: Vec<(Candidate, f64)>,
    coverage: Coverage,
    /// What was carried over from other workloads, on which chains start.
    carried: Vec<Candidate>,
}

impl Searcher for Annealing {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let Ask { space, score, explore, seen, n, rng } = ask;
        let mut batch = Batch::new(seen, n);
        let explored = (0..n).filter(|_| rng.random_bool(explore)).count();
        let Best { held, gaps, .. } = self.walk(space, score, seen, n, rng);

        for candidate in gaps.into_best(&self.coverage, self.coverage.quotas(n)) {
            batch.push(candidate);
        }
        // What is expected to be the best is measured first.
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
            *alike <= self.params.elites_alike
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
    /// A searcher that knows nothing yet.
    pub fn new(params: AnnealingParams) -> Self {
        let coverage = Coverage::new(params.coverage.clone());
        Self { params, chains: Vec::new(), elites: Vec::new(), coverage, carried: Vec::new() }
    }

    /// The best distinct unseen candidates met on the way, best first, from which `n` are to be
    /// picked. The temperature falls to 0 over the moves.
    fn walk<'s>(
        &mut self,
        space: &ScheduleSpace,
        score: &mut ScoreFn<'_>,
        seen: &'s HashSet<u64>,
        n: usize,
        rng: &mut ChaCha8Rng,
    ) -> Best<'s> {
        self.restart(space, rng);
        let params = &self.params;
        let steps = (n * params.scored_per_config).div_ceil(self.chains.len().max(1));
        let mut best = Best::new(seen, n * params.candidates_per_config);
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

    /// Brings the chains to their number, at first one of them on the default and others on what
    /// was carried over; puts the first of them onto the best measured candidates and the last onto
    /// random ones.
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

/// Metropolis' rule; a candidate that cannot be lowered has no score and loses against any that
/// can.
fn accepts(old: Option<f32>, new: Option<f32>, temperature: f32, rng: &mut ChaCha8Rng) -> bool {
    match (old, new) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => new >= old || rng.random::<f32>() < ((new - old) / temperature).exp(),
    }
}

/// The best distinct unseen candidates among those offered. Of those with the very same score,
/// between which the model sees no difference, it takes one: measuring that tells of the others.
struct Best<'a> {
    seen: &'a HashSet<u64>,
    met: HashSet<u32>,
    keep: usize,
    /// Candidates with their scores, best first; the first `keep` of them count.
    held: Vec<(Candidate, f32)>,
    /// Score to beat once `keep` are held.
    bar: f32,
    /// What else is worth a trial.
    gaps: Gaps,
}

impl<'a> Best<'a> {
    fn new(seen: &'a HashSet<u64>, keep: usize) -> Self {
        Self { seen, met: HashSet::new(), keep, held: Vec::new(), bar: f32::NEG_INFINITY, gaps: Gaps::default() }
    }

    /// Takes those that belong to the best so far; says whether there were any.
    fn offer(&mut self, candidates: &[Candidate], scores: &[Option<f32>], coverage: &Coverage) -> bool {
        let mut improved = false;
        for (candidate, score) in candidates.iter().zip(scores) {
            let Some(score) = score.filter(|score| !score.is_nan()) else { continue };
            if self.seen.contains(&candidate.stable_hash()) {
                continue;
            }
            self.gaps.offer(coverage, candidate, score);
            let counts = self.held.len() < self.keep || score > self.bar;
            if counts && self.met.insert(score.to_bits()) {
                self.held.push((candidate.clone(), score));
                improved = true;
            }
        }
        if improved {
            self.held.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.stable_hash().cmp(&b.0.stable_hash())));
            self.held.truncate(self.keep);
            self.bar = self.held.last().map_or(f32::NEG_INFINITY, |(_, score)| *score);
        }
        improved
    }
}
