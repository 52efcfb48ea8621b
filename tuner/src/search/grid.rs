//! Exhaustive enumeration of a space.

use autotune_measurement::Measurement;
use autotune_schedules::Candidate;

use super::batch::{CandidateBatch, TESTED_PER_BATCH};
use super::searcher::{Ask, Searcher};

/// Searcher that enumerates the space in its fixed order. Measured candidates are skipped, so a
/// resumed run continues where it ended. Valid combinations can be rare: if a batch is not full
/// after the limit of tested combinations, the rest is random.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grid {
    /// Index of the next knob combination.
    next: u128,
}

impl Searcher for Grid {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let mut batch = CandidateBatch::new(ask.seen, ask.n);
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
