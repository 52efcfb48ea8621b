//! A batch of candidates in the making.

use std::collections::HashSet;

use autotune_schedules::{Candidate, ScheduleSpace};
use rand_chacha::ChaCha8Rng;

/// Draws made in vain, per candidate wanted, before a space counts as used up.
const DRAWS_PER_CONFIG: usize = 64;
/// Combinations of knobs tested for a batch in the order of the space, valid or not: a fraction of
/// a second.
pub(super) const TESTED_PER_BATCH: u128 = 30_000;

/// A growing batch of distinct candidates that were not seen yet.
pub struct Batch<'a> {
    seen: &'a HashSet<u64>,
    taken: HashSet<u64>,
    n: usize,
    candidates: Vec<Candidate>,
}

impl<'a> Batch<'a> {
    /// An empty batch that takes `n` candidates.
    pub fn new(seen: &'a HashSet<u64>, n: usize) -> Self {
        Self { seen, taken: HashSet::new(), n, candidates: Vec::new() }
    }

    /// What it took, in order.
    pub fn into_candidates(self) -> Vec<Candidate> {
        self.candidates
    }

    /// Candidates that it took so far.
    pub(super) fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Has the first of them come last.
    pub(super) fn put_last(&mut self, first: usize) {
        self.candidates.rotate_left(first);
    }

    /// True once it holds what it takes.
    pub fn is_full(&self) -> bool {
        self.candidates.len() >= self.n
    }

    /// Takes a candidate that is new while there is room; says whether it did.
    pub fn push(&mut self, candidate: Candidate) -> bool {
        let hash = candidate.stable_hash();
        let new = !self.is_full() && !self.seen.contains(&hash) && self.taken.insert(hash);
        if new {
            self.candidates.push(candidate);
        }
        new
    }

    /// Fills up with random candidates. Where many draws in a row find nothing new, the beginning
    /// of the space is walked in its order instead: all of a space that is small enough to be used
    /// up.
    pub fn fill(&mut self, space: &ScheduleSpace, rng: &mut ChaCha8Rng) {
        let mut vain = 0;
        while !self.is_full() && vain < DRAWS_PER_CONFIG {
            vain = if self.push(space.sample(rng)) { 0 } else { vain + 1 };
        }
        if !self.is_full() {
            self.walk(space);
        }
    }

    /// Fills up with the first new candidates in the order of the space.
    fn walk(&mut self, space: &ScheduleSpace) {
        for (_, candidate) in space.valid_among(0..TESTED_PER_BATCH) {
            if self.is_full() {
                break;
            }
            self.push(candidate);
        }
    }
}
