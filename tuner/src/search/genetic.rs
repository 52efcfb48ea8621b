//! Genetic algorithm over measured times.

use autotune_measurement::Measurement;
use autotune_schedules::Candidate;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::batch::CandidateBatch;
use super::searcher::{Ask, Searcher};

/// Numeric parameters of [`Genetic`].
#[derive(Clone, Debug, PartialEq)]
pub struct GeneticParams {
    /// Number of measured candidates before breeding starts, at least 1; until then candidates are
    /// random.
    pub founders: usize,
    /// Number of fastest candidates from which parents are drawn.
    pub population: usize,
    /// Probability that a child is mutated in one knob.
    pub mutation: f64,
    /// Number of children bred per requested candidate before the rest of the batch is filled at
    /// random.
    pub children_per_config: usize,
}

impl Default for GeneticParams {
    fn default() -> Self {
        Self { founders: 16, population: 64, mutation: 0.4, children_per_config: 32 }
    }
}

/// Searcher by a steady-state genetic algorithm. Parents are drawn by rank from the fastest
/// measured candidates. A child takes each knob from either parent and is sometimes mutated in one
/// knob. It uses no model.
#[derive(Clone, Debug, Default)]
pub struct Genetic {
    params: GeneticParams,
    /// Fastest candidates and their times, fastest first.
    population: Vec<(Candidate, f64)>,
}

impl Searcher for Genetic {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let mut batch = CandidateBatch::new(ask.seen, ask.n);
        if self.population.len() >= self.params.founders.max(1) {
            for _ in 0..ask.n * self.params.children_per_config {
                if batch.is_full() {
                    break;
                }
                let child = ask.space.crossover(self.parent(ask.rng), self.parent(ask.rng), ask.rng);
                let mutated = ask.rng.random_bool(self.params.mutation);
                batch.push(if mutated { ask.space.neighbor(&child, ask.rng) } else { child });
            }
        }
        batch.fill(ask.space, ask.rng);
        batch.into_candidates()
    }

    fn tell(&mut self, results: &[(Candidate, Measurement)]) {
        let ran = results.iter().filter_map(|(candidate, m)| Some((candidate.clone(), m.run_secs()?)));
        self.population.extend(ran);
        self.population.sort_by(|a, b| a.1.total_cmp(&b.1));
        self.population.truncate(self.params.population);
    }

    fn uses_scores(&self) -> bool {
        false
    }
}

impl Genetic {
    /// Returns a searcher without any results.
    pub fn new(params: GeneticParams) -> Self {
        Self { params, population: Vec::new() }
    }

    /// Draws a parent: the faster of two drawn uniformly, so that faster candidates are drawn more
    /// often.
    fn parent(&self, rng: &mut ChaCha8Rng) -> &Candidate {
        let n = self.population.len();
        let rank = rng.random_range(0..n).min(rng.random_range(0..n));
        &self.population[rank].0
    }
}
