//! Construction of a batch of candidates.

use std::collections::HashSet;

use autotune_schedules::{Candidate, ScheduleSpace};
use rand_chacha::ChaCha8Rng;

/// Number of unsuccessful random draws in a row after which a space counts as almost exhausted.
const DRAWS_PER_CONFIG: usize = 64;
/// Most knob combinations, valid or not, that are tested per batch in the order of the space. It
/// takes a fraction of a second.
pub(super) const TESTED_PER_BATCH: u128 = 30_000;

/// Growing batch of distinct candidates that were not seen before.
pub struct CandidateBatch<'a> {
    seen: &'a HashSet<u64>,
    proposed: HashSet<u64>,
    n: usize,
    candidates: Vec<Candidate>,
}

impl<'a> CandidateBatch<'a> {
    /// Returns an empty batch for `n` candidates.
    pub fn new(seen: &'a HashSet<u64>, n: usize) -> Self {
        Self { seen, proposed: HashSet::new(), n, candidates: Vec::new() }
    }

    /// Returns the candidates, in order.
    pub fn into_candidates(self) -> Vec<Candidate> {
        self.candidates
    }

    /// Returns the number of candidates so far.
    pub(super) fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Moves the first `first` candidates to the end.
    pub(super) fn put_last(&mut self, first: usize) {
        self.candidates.rotate_left(first);
    }

    /// Returns true if the batch has the requested number of candidates.
    pub fn is_full(&self) -> bool {
        self.candidates.len() >= self.n
    }

    /// Adds a candidate if it is new and there is room. Returns true if it was added.
    pub fn push(&mut self, candidate: Candidate) -> bool {
        let hash = candidate.stable_hash();
        let new = !self.is_full() && !self.seen.contains(&hash) && self.proposed.insert(hash);
        if new {
            self.candidates.push(candidate);
        }
        new
    }

    /// Fills the batch with random candidates. If many draws in a row find nothing new, takes
    /// candidates from the beginning of the space in its order instead, which exhausts a small
    /// space completely.
    pub fn fill(&mut self, space: &ScheduleSpace, rng: &mut ChaCha8Rng) {
        let mut vain = 0;
        while !self.is_full() && vain < DRAWS_PER_CONFIG {
            vain = if self.push(space.sample(rng)) { 0 } else { vain + 1 };
        }
        if !self.is_full() {
            self.walk(space);
        }
    }

    /// Fills the batch with the first new candidates in the order of the space.
    fn walk(&mut self, space: &ScheduleSpace) {
        for (_, candidate) in space.valid_among(0..TESTED_PER_BATCH) {
            if self.is_full() {
                break;
            }
            self.push(candidate);
        }
    }
}
