//! The valid configs of sketches that have next to none.

use std::collections::HashSet;

use rand::{Rng, RngExt};

use super::ScheduleSpace;
use crate::config::Config;
use crate::knob_space::KnobSpace;

/// Combinations that are looked at: all of a sketch, if it has no more, else those around the default.
const MAX_TESTED: usize = 20_000;
/// Valid configs that are kept.
const MAX_KEPT: usize = 256;
/// Moves tried from one of them to one that is not among them.
const MOVES: usize = 64;

/// What is known of a sketch of which a draw has failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Few {
    configs: Vec<Config>,
    /// True if moves of single knobs lead to no others.
    pub(super) is_closed: bool,
}

impl Few {
    /// All of a small sketch; of others the default and what single knobs lead to from it, and so on: none if the default is of
    /// another sketch. The same every time.
    pub(super) fn find(space: &ScheduleSpace, sketch: &KnobSpace) -> Self {
        if sketch.len() <= MAX_TESTED as u128 {
            let all = (0..sketch.len()).map(|number| sketch.nth(number));
            return Self { configs: all.filter(|config| space.is_valid(config)).collect(), is_closed: true };
        }
        let default = space.default_config();
        if default.sketch != sketch.name() || !space.is_valid(&default) {
            return Self { configs: Vec::new(), is_closed: true };
        }

        let mut met: HashSet<Config> = HashSet::from([default.clone()]);
        let mut configs = vec![default];
        let mut next = 0;
        while let Some(from) = configs.get(next).cloned() {
            for other in sketch.single_moves(&from) {
                if met.len() >= MAX_TESTED || configs.len() >= MAX_KEPT {
                    return Self { configs, is_closed: false };
                }
                if met.insert(other.clone()) && space.is_valid(&other) {
                    configs.push(other);
                }
            }
            next += 1;
        }
        Self { configs, is_closed: true }
    }

    /// One of them, or one that a random move leads to where there are others.
    pub(super) fn pick<R: Rng + ?Sized>(
        &self,
        space: &ScheduleSpace,
        sketch: &KnobSpace,
        rng: &mut R,
    ) -> Option<Config> {
        let from = self.configs.get(rng.random_range(0..self.configs.len().max(1)))?;
        let mut moves = (0..if self.is_closed { 0 } else { MOVES }).map(|_| sketch.random_move(from, rng));
        let moved = moves.find(|other| space.is_valid(other));
        Some(moved.unwrap_or_else(|| from.clone()))
    }
}
