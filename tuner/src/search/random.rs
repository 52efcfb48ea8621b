//! Uniform sampling.

use autotune_measure::Measurement;
use autotune_schedules::Config;

use super::batch::Batch;
use super::searcher::{Ask, Searcher};

/// Draws configs uniformly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Searcher for Random {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Config> {
        let mut batch = Batch::new(ask.seen, ask.n);
        batch.fill(ask.space, ask.rng);
        batch.into_configs()
    }

    fn tell(&mut self, _results: &[(Config, Measurement)]) {}

    fn uses_scores(&self) -> bool {
        false
    }
}
