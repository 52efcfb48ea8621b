//! The space in its own order.

use autotune_measurement::Measurement;
use autotune_schedules::Candidate;

use super::batch::{Batch, TESTED_PER_BATCH};
use super::searcher::{Ask, Searcher};

/// Walks the space in its fixed order. Candidates already measured are stepped over, so a resumed
/// walk goes on where it ended. Where a batch is not full when as many combinations as may be were
/// tested for it, the rest is drawn at random: spaces are far larger than their valid part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grid {
    /// Number of the next combination.
    next: u128,
}

impl Searcher for Grid {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let mut batch = Batch::new(ask.seen, ask.n);
        let end = self.next + TESTED_PER_BATCH;

        for (number, candidate) in ask.space.valid_among(self.next..end) {
            if batch.is_full() {
                break;
            }
            batch.push(candidate);
            self.next = number + 1;
        }

        if !batch.is_full() {
            self.next = end.min(ask.space.len());
            batch.fill(ask.space, ask.rng);
        }
        batch.into_candidates()
    }

    fn tell(&mut self, _results: &[(Candidate, Measurement)]) {}

    fn uses_scores(&self) -> bool {
        false
    }
}
