//! One combination of a sketch's knobs.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rand::{Rng, RngExt};
use smallvec::SmallVec;

use crate::config::{Config, KnobValues, Value};
use crate::knob_space::KnobSpace;

/// A combination of a sketch's knobs, valid or not, by the positions of their values: what a
/// [`Config`] is inside its space.
#[derive(Clone, Debug)]
pub struct Point {
    space: Arc<KnobSpace>,
    positions: SmallVec<[u32; 16]>,
}

impl Point {
    pub(crate) fn new(space: &Arc<KnobSpace>, positions: impl Iterator<Item = usize>) -> Self {
        Self { space: Arc::clone(space), positions: positions.map(|position| position as u32).collect() }
    }

    pub(crate) fn space(&self) -> &KnobSpace {
        &self.space
    }

    /// Names and values of the knobs, in the order of the names.
    pub(crate) fn knobs(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.space.by_name.iter().map(|&knob| (self.space.knobs[knob].name.as_str(), self.value_at(knob)))
    }

    fn value_at(&self, knob: usize) -> &Value {
        &self.space.knobs[knob].values[self.positions[knob] as usize]
    }

    pub(crate) fn to_config(&self) -> Config {
        let knobs = self.knobs().map(|(name, value)| (name.to_string(), value.clone())).collect();
        Config { sketch: self.space.name().into(), knobs }
    }

    /// The same with another value of a knob; `None` if it has that value.
    pub(crate) fn moved(&self, knob: usize, position: usize) -> Option<Self> {
        (self.positions[knob] as usize != position).then(|| {
            let mut other = self.clone();
            other.positions[knob] = position as u32;
            other
        })
    }

    /// The combinations that differ from this one in one knob.
    pub(crate) fn single_moves(&self) -> impl Iterator<Item = Self> {
        let knobs = self.space.knobs.iter().enumerate();
        knobs.flat_map(move |(knob, it)| (0..it.values.len()).filter_map(move |position| self.moved(knob, position)))
    }

    /// This one with a knob set at random, or with more, each one more with a quarter of the
    /// probability.
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

    /// A combination of the same sketch with each knob from either of the two.
    pub(crate) fn crossed<R: Rng + ?Sized>(&self, with: &Self, rng: &mut R) -> Self {
        let mut child = self.clone();
        for &knob in &self.space.by_name {
            if rng.random_bool(0.5) {
                child.positions[knob] = with.positions[knob];
            }
        }
        child
    }
}

impl KnobValues for Point {
    fn sketch(&self) -> &str {
        self.space.name()
    }

    fn value(&self, knob: &str) -> Option<&Value> {
        let knob = self.space.knobs.iter().position(|it| it.name == knob)?;
        Some(self.value_at(knob))
    }
}

/// Points of one space are the same if their sketches and positions are.
impl PartialEq for Point {
    fn eq(&self, other: &Self) -> bool {
        self.space.name() == other.space.name() && self.positions == other.positions
    }
}

impl Eq for Point {}

impl Hash for Point {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.space.name().hash(state);
        self.positions.hash(state);
    }
}
