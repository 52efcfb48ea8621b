//! The valid points of sketches that have next to none.

use std::collections::HashSet;
use std::sync::Arc;

use rand::{Rng, RngExt};

use crate::candidate::Candidate;
use crate::knob_space::KnobSpace;
use crate::point::Point;

/// Combinations that are looked at: all of a sketch, if it has no more, else those around the
/// default.
const MAX_TESTED: usize = 20_000;
/// Valid points that are kept.
const MAX_KEPT: usize = 256;
/// Moves tried from one of them to one that is not among them.
const MOVES: usize = 64;

/// What is known of a sketch of which a draw has failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Few {
    points: Vec<Point>,
    /// True if moves of single knobs lead to no others.
    pub(super) is_closed: bool,
}

impl Few {
    /// All of a small sketch; of others the default and what single knobs lead to from it, and so
    /// on: none if the default is of another sketch. The same every time.
    pub(super) fn find(sketch: &Arc<KnobSpace>, default: Option<&Point>, is_valid: impl Fn(&Point) -> bool) -> Self {
        if sketch.len() <= MAX_TESTED as u128 {
            let all = (0..sketch.len()).map(|number| sketch.nth(number));
            return Self { points: all.filter(is_valid).collect(), is_closed: true };
        }
        let Some(default) = default.filter(|point| point.space().name() == sketch.name() && is_valid(point)) else {
            return Self { points: Vec::new(), is_closed: true };
        };

        let mut met: HashSet<Point> = HashSet::from([default.clone()]);
        let mut points = vec![default.clone()];
        let mut next = 0;
        while let Some(from) = points.get(next).cloned() {
            for other in from.single_moves() {
                if met.len() >= MAX_TESTED || points.len() >= MAX_KEPT {
                    return Self { points, is_closed: false };
                }
                if met.insert(other.clone()) && is_valid(&other) {
                    points.push(other);
                }
            }
            next += 1;
        }
        Self { points, is_closed: true }
    }

    /// One of them, or one that a random move leads to where there are others; `admit` makes
    /// candidates of valid points.
    pub(super) fn pick<R: Rng + ?Sized>(
        &self,
        admit: impl Fn(Point) -> Option<Candidate>,
        rng: &mut R,
    ) -> Option<Candidate> {
        let from = self.points.get(rng.random_range(0..self.points.len().max(1)))?;
        let mut moves = (0..if self.is_closed { 0 } else { MOVES }).map(|_| from.random_move(rng));
        let moved = moves.find_map(&admit);
        moved.or_else(|| admit(from.clone()))
    }
}
