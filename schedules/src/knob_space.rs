//! What a sketch offers for one workload on one target: a product of knobs.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::config::{Config, Value};
use crate::point::Point;
use crate::sketch::Sketch;

/// A named choice among values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Name in configs.
    pub name: String,
    /// What it may be, at least one value, without repetition.
    pub values: Vec<Value>,
    /// True if configs from before there was the knob, which lack it, have its first value.
    pub is_optional: bool,
}

impl Knob {
    /// One of some words.
    pub fn choice(name: &str, words: &[&str]) -> Self {
        Self::of(name, words.iter().map(|w| Value::Choice(w.to_string())).collect())
    }

    /// One of some tiles.
    pub fn tile(name: &str, tiles: Vec<Vec<usize>>) -> Self {
        Self::of(name, tiles.into_iter().map(Value::Tile).collect())
    }

    /// Any order of some loops.
    pub fn order(name: &str, axes: &[&str]) -> Self {
        let mut values = Vec::new();
        permutations(axes, &mut Vec::with_capacity(axes.len()), &mut values);
        Self::of(name, values)
    }

    fn of(name: &str, values: Vec<Value>) -> Self {
        Self { name: name.into(), values, is_optional: false }
    }

    /// The same, which configs may lack that have its first value.
    pub fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// The position of a config's value, which may lack if that is optional.
    pub(crate) fn position(&self, value: Option<&Value>) -> Option<usize> {
        match value {
            Some(value) => self.values.iter().position(|offered| offered == value),
            None => self.is_optional.then_some(0),
        }
    }
}

/// Every order of the axes that begins with those chosen.
fn permutations<'a>(axes: &[&'a str], chosen: &mut Vec<&'a str>, all: &mut Vec<Value>) {
    if chosen.len() == axes.len() {
        all.push(Value::Order(chosen.iter().map(|axis| axis.to_string()).collect()));
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

/// The knobs of a sketch: structurally similar programs, of which the valid combinations can be
/// proposed.
#[derive(Clone, Debug)]
pub struct KnobSpace {
    /// Whose knobs they are.
    pub sketch: &'static dyn Sketch,
    /// Its place: the default schedule is that of a sketch of the first tier that has one.
    pub tier: usize,
    /// What may be chosen.
    pub knobs: Vec<Knob>,
    /// The positions of the knobs in the order of their names.
    pub(crate) by_name: Vec<usize>,
}

impl KnobSpace {
    pub(crate) fn new(sketch: &'static dyn Sketch, tier: usize, knobs: Vec<Knob>) -> Self {
        let mut by_name: Vec<usize> = (0..knobs.len()).collect();
        by_name.sort_by_key(|&i| &knobs[i].name);
        Self { sketch, tier, knobs, by_name }
    }

    /// The sketch's name, as configs have it.
    pub fn name(&self) -> &'static str {
        self.sketch.name()
    }

    /// Number of combinations, invalid ones included.
    pub fn len(&self) -> u128 {
        self.knobs.iter().map(|k| k.values.len() as u128).product()
    }

    /// Never true: every knob has a value.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The combination of picked values, each by its position.
    pub(crate) fn point(self: &Arc<Self>, pick: impl FnMut(&Knob) -> usize) -> Point {
        Point::new(self, self.knobs.iter().map(pick))
    }

    /// The combination that `wanted` names by the position of each knob's value; none if it names
    /// none for some knob.
    pub fn point_of(self: &Arc<Self>, wanted: impl Fn(&Knob) -> Option<usize>) -> Option<Point> {
        let offered = |knob: &Knob| wanted(knob).filter(|&position| position < knob.values.len());
        let positions: Option<Vec<usize>> = self.knobs.iter().map(offered).collect();
        Some(Point::new(self, positions?.into_iter()))
    }

    /// The combination that a config is; none if it has other knobs or values.
    pub fn locate(self: &Arc<Self>, config: &Config) -> Option<Point> {
        let known = self.knobs.iter().filter(|knob| config.knobs.contains_key(&knob.name)).count();
        let is_alike = config.sketch == self.name() && config.knobs.len() == known;
        self.point_of(|knob| knob.position(config.knobs.get(&knob.name))).filter(|_| is_alike)
    }

    /// Combination number `index` in mixed radix, the last knob fastest.
    pub(crate) fn nth(self: &Arc<Self>, mut index: u128) -> Point {
        let mut digits = vec![0; self.knobs.len()];
        for (digit, knob) in digits.iter_mut().zip(&self.knobs).rev() {
            *digit = (index % knob.values.len() as u128) as usize;
            index /= knob.values.len() as u128;
        }
        Point::new(self, digits.into_iter())
    }
}

/// Valid combinations that a search for the least cost starts from, and draws to find them in.
const STARTS: usize = 24;
const START_DRAWS: usize = 20_000;
/// The search ends when all knobs together improve the cost by less than a hundredth.
const STANDSTILL: f64 = 0.99;
/// Where none is found, as many draws are made again in which one knob in this number has any
/// value, and the others have their least.
const DRAWN_ONE_IN: u32 = 4;

impl KnobSpace {
    /// A combination of little `cost`, which is `None` for invalid ones: the best of some random
    /// combinations, improved knob by knob until no other value of a single knob is much better;
    /// with its cost. The same every time; `None` if no combination is found.
    pub fn least(self: &Arc<Self>, cost: impl Fn(&Point) -> Option<f64>) -> Option<(f64, Point)> {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut best: Option<(f64, Point)> = None;
        let mut valid = 0;
        for draw in 0..2 * START_DRAWS {
            let is_sparse = draw >= START_DRAWS;
            if draw == START_DRAWS && valid > 0 {
                break;
            }
            let point = self.point(|knob| match is_sparse && !rng.random_ratio(1, DRAWN_ONE_IN) {
                true => 0,
                false => rng.random_range(0..knob.values.len()),
            });
            if let Some(cost) = cost(&point) {
                valid += 1;
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    best = Some((cost, point));
                }
            }
            if valid == STARTS {
                break;
            }
        }

        let (mut least, mut point) = best?;
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
                return Some((least, point));
            }
        }
    }
}
