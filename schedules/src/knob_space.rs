//! The choices that a sketch offers for one workload on one target: a product of knobs.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::config::{Config, KnobValue};
use crate::point::KnobIndices;
use crate::sketch::Sketch;

/// A named choice from a list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Name of the knob in configs.
    pub name: String,
    /// Allowed values: at least one, without repetition.
    pub values: Vec<KnobValue>,
    /// True if a config may omit the knob, which then has its first value. Configs that were
    /// written before the knob existed omit it.
    pub is_optional: bool,
}

impl Knob {
    /// Returns a knob that chooses one of `words`.
    pub fn choice(name: &str, words: &[&str]) -> Self {
        Self::of(name, words.iter().map(|w| KnobValue::Choice(w.to_string())).collect())
    }

    /// Returns a knob that chooses one of `tiles`.
    pub fn tile(name: &str, tiles: Vec<Vec<usize>>) -> Self {
        Self::of(name, tiles.into_iter().map(KnobValue::Tile).collect())
    }

    /// Returns a knob that chooses any order of the loops over `axes`.
    pub fn order(name: &str, axes: &[&str]) -> Self {
        let mut values = Vec::new();
        permutations(axes, &mut Vec::with_capacity(axes.len()), &mut values);
        Self::of(name, values)
    }

    fn of(name: &str, values: Vec<KnobValue>) -> Self {
        Self { name: name.into(), values, is_optional: false }
    }

    /// Returns the knob with [`Knob::is_optional`] set.
    pub fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// Returns the parts of the name around its dot, such as `tile` and `oh`; without a dot, the
    /// second is empty.
    pub(crate) fn parts(&self) -> (&str, &str) {
        self.name.split_once('.').unwrap_or((&self.name, ""))
    }

    /// Returns the position of a word among the allowed values.
    pub(crate) fn position_of(&self, word: &str) -> Option<usize> {
        self.values.iter().position(|value| matches!(value, KnobValue::Choice(other) if other == word))
    }

    /// Returns the position of a config's value among the allowed ones. A missing value of an
    /// optional knob has position 0.
    pub(crate) fn position(&self, value: Option<&KnobValue>) -> Option<usize> {
        match value {
            Some(value) => self.values.iter().position(|offered| offered == value),
            None => self.is_optional.then_some(0),
        }
    }
}

/// Collects every order of `axes` that begins with `chosen`.
fn permutations<'a>(axes: &[&'a str], chosen: &mut Vec<&'a str>, all: &mut Vec<KnobValue>) {
    if chosen.len() == axes.len() {
        all.push(KnobValue::Order(chosen.iter().map(|axis| axis.to_string()).collect()));
        return;
    }
    for axis in axes {
        if !chosen.contains(axis) {
            chosen.push(axis);
            permutations(axes, chosen, all);
            chosen.pop();
        }
    }
}

/// The knobs of one sketch for one workload on one target. The space is the product of their
/// values; only valid combinations are proposed.
#[derive(Clone, Debug)]
pub struct KnobSpace {
    /// Sketch that the knobs belong to.
    pub sketch: &'static dyn Sketch,
    /// Tier of the sketch. The default schedule comes from the first tier in which some sketch has
    /// one.
    pub tier: usize,
    /// Knobs in the order of the sketch.
    pub knobs: Vec<Knob>,
    /// Positions of the knobs, sorted by name.
    pub(crate) by_name: Vec<usize>,
}

impl KnobSpace {
    pub(crate) fn new(sketch: &'static dyn Sketch, tier: usize, knobs: Vec<Knob>) -> Self {
        let mut by_name: Vec<usize> = (0..knobs.len()).collect();
        by_name.sort_by_key(|&i| &knobs[i].name);
        Self { sketch, tier, knobs, by_name }
    }

    /// Returns the sketch's name, as written in configs.
    pub fn name(&self) -> &'static str {
        self.sketch.name()
    }

    /// Returns the number of combinations, invalid ones included.
    pub fn len(&self) -> u128 {
        self.knobs.iter().map(|k| k.values.len() as u128).product()
    }

    /// Returns false: every knob has at least one value.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the combination in which each knob has the value at the position that `pick`
    /// returns.
    pub(crate) fn point(self: &Arc<Self>, pick: impl FnMut(&Knob) -> usize) -> KnobIndices {
        KnobIndices::new(self, self.knobs.iter().map(pick))
    }

    /// Returns the combination in which each knob has the value at the position that `wanted`
    /// returns; `None` if that is no position of some knob.
    pub fn point_of(self: &Arc<Self>, wanted: impl Fn(&Knob) -> Option<usize>) -> Option<KnobIndices> {
        let offered = |knob: &Knob| wanted(knob).filter(|&position| position < knob.values.len());
        let positions: Option<Vec<usize>> = self.knobs.iter().map(offered).collect();
        Some(KnobIndices::new(self, positions?.into_iter()))
    }

    /// Returns the point of a config; `None` if the config has other knobs or values.
    pub fn locate(self: &Arc<Self>, config: &Config) -> Option<KnobIndices> {
        // Optional knobs may be missing, but a config must not have unknown ones.
        let known = self.knobs.iter().filter(|knob| config.knobs.contains_key(&knob.name)).count();
        let is_alike = config.sketch == self.name() && config.knobs.len() == known;
        self.point_of(|knob| knob.position(config.knobs.get(&knob.name))).filter(|_| is_alike)
    }

    /// Returns combination number `index`: a mixed-radix number whose last knob varies fastest.
    pub(crate) fn nth(self: &Arc<Self>, mut index: u128) -> KnobIndices {
        let mut digits = vec![0; self.knobs.len()];
        for (digit, knob) in digits.iter_mut().zip(&self.knobs).rev() {
            *digit = (index % knob.values.len() as u128) as usize;
            index /= knob.values.len() as u128;
        }
        KnobIndices::new(self, digits.into_iter())
    }
}

/// Random sampling stops after this many valid combinations.
const STARTS: usize = 24;
/// Random sampling stops after this many draws.
const START_DRAWS: usize = 20_000;
/// The search ends when a pass over all knobs improves the cost by less than 1 %.
const STANDSTILL: f64 = 0.99;
/// In a sparse draw, a knob has a random value with probability one in this number, and else its
/// first value.
const DRAWN_ONE_IN: u32 = 4;

impl KnobSpace {
    /// Searches a combination of low `cost` and returns it with its cost. `cost` returns `None` for
    /// invalid combinations. The search starts from the best of some random combinations and then
    /// runs coordinate descent: it improves one knob after the other until a pass over all knobs
    /// gains less than 1 %. The seed is fixed, so that the result is deterministic; it is `None` if
    /// no valid combination is found.
    pub fn least(self: &Arc<Self>, cost: impl Fn(&KnobIndices) -> Option<f64>) -> Option<(f64, KnobIndices)> {
        self.least_of(1, cost)
    }

    /// Like [`KnobSpace::least`], with a descent from each of several groups of random
    /// combinations. Knobs that improve a schedule only together, such as a tile and the split of
    /// the reduction, stop a single one.
    pub fn least_of(
        self: &Arc<Self>,
        groups: usize,
        cost: impl Fn(&KnobIndices) -> Option<f64>,
    ) -> Option<(f64, KnobIndices)> {
        let starts = self.starts(groups, &cost);
        let least = |a: &&(f64, KnobIndices), b: &&(f64, KnobIndices)| a.0.total_cmp(&b.0);
        let best = starts.chunks(STARTS).filter_map(|group| group.iter().min_by(least));
        let ends = best.map(|start| self.descend(start.clone(), &cost));
        ends.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Draws random valid combinations, with their costs. Uniform draws rarely have several knobs
    /// at their first value, such as no split and a small tile, so later groups are sparse.
    fn starts(self: &Arc<Self>, groups: usize, cost: &impl Fn(&KnobIndices) -> Option<f64>) -> Vec<(f64, KnobIndices)> {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut starts = Vec::new();
        for draw in 0..2 * START_DRAWS {
            let is_sparse = draw >= START_DRAWS || starts.len() >= STARTS * groups.div_ceil(2);
            // Sparse draws are needed for a single group only if uniform ones met no valid
            // combination.
            if draw == START_DRAWS && !starts.is_empty() {
                break;
            }
            let point = self.point(|knob| match is_sparse && !rng.random_ratio(1, DRAWN_ONE_IN) {
                true => 0,
                false => rng.random_range(0..knob.values.len()),
            });
            starts.extend(cost(&point).map(|cost| (cost, point)));
            if starts.len() == STARTS * groups {
                break;
            }
        }
        starts
    }

    /// Moves one knob at a time to its best value given all others.
    fn descend(
        &self,
        (mut least, mut point): (f64, KnobIndices),
        cost: &impl Fn(&KnobIndices) -> Option<f64>,
    ) -> (f64, KnobIndices) {
        loop {
            let before = least;
            for knob in 0..self.knobs.len() {
                for position in 0..self.knobs[knob].values.len() {
                    let Some(other) = point.moved(knob, position) else { continue };
                    if let Some(cost) = cost(&other).filter(|cost| *cost < least) {
                        (least, point) = (cost, other);
                    }
                }
            }
            if least > STANDSTILL * before {
                return (least, point);
            }
        }
    }
}
