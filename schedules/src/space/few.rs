//! Known valid points of sketches in which next to no combination is valid.

use std::collections::HashSet;
use std::sync::Arc;

use rand::{Rng, RngExt};

use crate::candidate::Candidate;
use crate::knob_space::KnobSpace;
use crate::point::KnobIndices;

/// Number of combinations that are tested: all of a small sketch, otherwise those around the
/// default schedule.
const MAX_TESTED: usize = 20_000;
/// Number of valid points that are stored.
const MAX_KEPT: usize = 256;
/// Random moves tried from a stored point to find one that is not stored.
const MOVES: usize = 64;

/// Known valid points of a sketch in which random draws failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Few {
    points: Vec<KnobIndices>,
    /// True if no other valid point can be reached by changing one knob at a time.
    pub(super) is_closed: bool,
}

impl Few {
    /// Collects valid points. Of a small sketch it tests all combinations. Of others it explores,
    /// breadth first and changing one knob at a time, from the default schedule; it finds nothing
    /// if the default belongs to another sketch. Deterministic.
    pub(super) fn find(
        sketch: &Arc<KnobSpace>,
        default: Option<&KnobIndices>,
        is_valid: impl Fn(&KnobIndices) -> bool,
    ) -> Self {
        if sketch.len() <= MAX_TESTED as u128 {
            let all = (0..sketch.len()).map(|number| sketch.nth(number));
            return Self { points: all.filter(is_valid).collect(), is_closed: true };
        }
        let Some(default) = default.filter(|point| point.space().name() == sketch.name() && is_valid(point)) else {
            return Self { points: Vec::new(), is_closed: true };
        };

        // Breadth first: if there are too many points, those nearest to the default are stored.
        let mut met: HashSet<KnobIndices> = HashSet::from([default.clone()]);
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

    /// Returns one of the points, or a valid point that a random move from it reaches if there may
    /// be others. `admit` turns valid points into candidates.
    pub(super) fn pick<R: Rng + ?Sized>(
        &self,
        admit: impl Fn(KnobIndices) -> Option<Candidate>,
        rng: &mut R,
    ) -> Option<Candidate> {
        let from = self.points.get(rng.random_range(0..self.points.len().max(1)))?;
        let mut moves = (0..if self.is_closed { 0 } else { MOVES }).map(|_| from.random_move(rng));
        let moved = moves.find_map(&admit);
        moved.or_else(|| admit(from.clone()))
    }
}
