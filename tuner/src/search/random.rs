//! Searcher by uniform random sampling.

use autotune_measurement::Measurement;
use autotune_schedules::Candidate;

use super::batch::CandidateBatch;
use super::searcher::{Ask, Searcher};

/// Searcher that draws candidates uniformly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Searcher for Random {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let mut batch = CandidateBatch::new(ask.seen, ask.n);
        batch.fill(ask.space, ask.rng);
        batch.into_candidates()
    }

    fn tell(&mut self, _results: &[(Candidate, Measurement)]) {}

    fn uses_scores(&self) -> bool {
        false
    }
}
