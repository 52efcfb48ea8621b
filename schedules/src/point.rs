//! One combination of the values of a sketch's knobs.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rand::{Rng, RngExt};
use smallvec::SmallVec;

use crate::config::{Config, KnobValue, KnobValues};
use crate::knob_space::KnobSpace;

/// One combination of a sketch's knob values, valid or not, stored as the position of each value in
/// its knob. A point is the form that a [`Config`] has inside its schedule space.
#[derive(Clone, Debug)]
pub struct KnobIndices {
    space: Arc<KnobSpace>,
    positions: SmallVec<[u32; 16]>,
}

impl KnobIndices {
    pub(crate) fn new(space: &Arc<KnobSpace>, positions: impl Iterator<Item = usize>) -> Self {
        Self { space: Arc::clone(space), positions: positions.map(|position| position as u32).collect() }
    }

    pub(crate) fn space(&self) -> &KnobSpace {
        &self.space
    }

    /// Returns names and values of the knobs, sorted by name.
    pub(crate) fn knobs(&self) -> impl Iterator<Item = (&str, &KnobValue)> {
        self.space.by_name.iter().map(|&knob| (self.space.knobs[knob].name.as_str(), self.value_at(knob)))
    }

    fn value_at(&self, knob: usize) -> &KnobValue {
        &self.space.knobs[knob].values[self.positions[knob] as usize]
    }

    pub(crate) fn to_config(&self) -> Config {
        let knobs = self.knobs().map(|(name, value)| (name.to_string(), value.clone())).collect();
        Config { sketch: self.space.name().into(), knobs }
    }

    /// Returns a copy in which `knob` has the value at `position`; `None` if it has that value
    /// already.
    pub(crate) fn moved(&self, knob: usize, position: usize) -> Option<Self> {
        (self.positions[knob] as usize != position).then(|| {
            let mut other = self.clone();
            other.positions[knob] = position as u32;
            other
        })
    }

    /// Yields all combinations that differ from this one in exactly one knob.
    pub(crate) fn single_moves(&self) -> impl Iterator<Item = Self> {
        let knobs = self.space.knobs.iter().enumerate();
        knobs.flat_map(move |(knob, it)| (0..it.values.len()).filter_map(move |position| self.moved(knob, position)))
    }

    /// Returns a copy in which one random knob has a random value. With probability 1/4 one more
    /// knob changes, and so on.
    pub(crate) fn random_move<R: Rng + ?Sized>(&self, rng: &mut R) -> Self {
        let mut other = self.clone();
        loop {
            let knob = rng.random_range(0..other.positions.len());
            other.positions[knob] = rng.random_range(0..self.space.knobs[knob].values.len()) as u32;
            if rng.random_ratio(3, 4) {
                return other;
            }
        }
    }

    /// Returns a combination of the same sketch in which each knob's value comes from one of the
    /// two parents at random.
    pub(crate) fn crossed<R: Rng + ?Sized>(&self, with: &Self, rng: &mut R) -> Self {
        let mut child = self.clone();
        // In the order of names, so that the child of a seed does not depend on the order of knobs.
        for &knob in &self.space.by_name {
            if rng.random_bool(0.5) {
                child.positions[knob] = with.positions[knob];
            }
        }
        child
    }
}

impl KnobValues for KnobIndices {
    fn sketch(&self) -> &str {
        self.space.name()
    }

    fn value(&self, knob: &str) -> Option<&KnobValue> {
        let knob = self.space.knobs.iter().position(|it| it.name == knob)?;
        Some(self.value_at(knob))
    }
}

/// Two points of one space are equal if their sketches and positions are equal.
impl PartialEq for KnobIndices {
    fn eq(&self, other: &Self) -> bool {
        self.space.name() == other.space.name() && self.positions == other.positions
    }
}

impl Eq for KnobIndices {}

impl Hash for KnobIndices {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.space.name().hash(state);
        self.positions.hash(state);
    }
}
