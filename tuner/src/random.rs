//! Uniform sampling.

use std::collections::HashSet;

use autotune_measure::Measurement;
use autotune_schedules::{Config, ScheduleSpace};
use rand_chacha::ChaCha8Rng;

use crate::search::{Ask, Searcher};

/// Draws made in vain, per config wanted, before a space counts as used up.
const DRAWS_PER_CONFIG: usize = 64;
/// Combinations of knobs tested for a batch in the order of the space, valid or not: a fraction of a second.
pub(crate) const TESTED_PER_BATCH: u128 = 30_000;

/// Draws configs uniformly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Random;

impl Searcher for Random {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Config> {
        let mut batch = Batch::new(ask.seen, ask.n);
        batch.fill(ask.space, ask.rng);
        batch.configs
    }

    fn tell(&mut self, _results: &[(Config, Measurement)]) {}
}

/// A growing batch of distinct unseen configs.
pub(crate) struct Batch<'a> {
    seen: &'a HashSet<u64>,
    taken: HashSet<u64>,
    n: usize,
    pub(crate) configs: Vec<Config>,
}

impl<'a> Batch<'a> {
    /// An empty batch that takes `n` configs.
    pub(crate) fn new(seen: &'a HashSet<u64>, n: usize) -> Self {
        Self { seen, taken: HashSet::new(), n, configs: Vec::new() }
    }

    /// True once it holds what it takes.
    pub(crate) fn is_full(&self) -> bool {
        self.configs.len() >= self.n
    }

    /// Takes a config that is new while there is room; says whether it did.
    pub(crate) fn push(&mut self, config: Config) -> bool {
        let hash = config.stable_hash();
        let new = !self.is_full() && !self.seen.contains(&hash) && self.taken.insert(hash);
        if new {
            self.configs.push(config);
        }
        new
    }

    /// Fills up with random configs. Where many draws in a row find nothing new, the beginning of the space is walked in its order
    /// instead: all of a space that is small enough to be used up.
    pub(crate) fn fill(&mut self, space: &ScheduleSpace, rng: &mut ChaCha8Rng) {
        let mut vain = 0;
        while !self.is_full() && vain < DRAWS_PER_CONFIG {
            vain = if self.push(space.sample(rng)) { 0 } else { vain + 1 };
        }
        if !self.is_full() {
            self.walk(space);
        }
    }

    /// Fills up with the first new configs in the order of the space.
    fn walk(&mut self, space: &ScheduleSpace) {
        for (_, config) in space.valid_among(0..TESTED_PER_BATCH) {
            if self.is_full() {
                break;
            }
            self.push(config);
        }
    }
}
