//! What a sketch offers for one workload on one target: a product of knobs.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::config::{Config, Value};
use crate::sketch::Sketch;

/// A named choice among values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Name in configs.
    pub name: String,
    /// What it may be, at least one value, without repetition.
    pub values: Vec<Value>,
}

impl Knob {
    /// One of some words.
    pub fn choice(name: &str, words: &[&str]) -> Self {
        Self { name: name.into(), values: words.iter().map(|w| Value::Choice(w.to_string())).collect() }
    }

    /// One of some tiles.
    pub fn tile(name: &str, tiles: Vec<Vec<usize>>) -> Self {
        Self { name: name.into(), values: tiles.into_iter().map(Value::Tile).collect() }
    }

    /// Any order of some loops.
    pub fn order(name: &str, axes: &[&str]) -> Self {
        let mut values = Vec::new();
        permutations(axes.iter().map(|a| a.to_string()).collect(), Vec::new(), &mut values);
        Self { name: name.into(), values: values.into_iter().map(Value::Order).collect() }
    }
}

fn permutations(rest: Vec<String>, chosen: Vec<String>, all: &mut Vec<Vec<String>>) {
    if rest.is_empty() {
        all.push(chosen);
        return;
    }
    for i in 0..rest.len() {
        let (mut rest, mut chosen) = (rest.clone(), chosen.clone());
        chosen.push(rest.remove(i));
        permutations(rest, chosen, all);
    }
}

/// The knobs of a sketch: structurally similar programs, of which the valid combinations can be proposed.
#[derive(Clone, Debug)]
pub struct KnobSpace {
    /// Whose knobs they are.
    pub sketch: &'static dyn Sketch,
    /// Its place: the default schedule is that of a sketch of the first tier that has one.
    pub tier: usize,
    /// What may be chosen.
    pub knobs: Vec<Knob>,
}

impl KnobSpace {
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

    pub(crate) fn config(&self, mut pick: impl FnMut(&Knob) -> usize) -> Config {
        let knobs = self.knobs.iter().map(|k| (k.name.clone(), k.values[pick(k)].clone())).collect();
        Config { sketch: self.name().into(), knobs }
    }

    /// The combination that `wanted` names by the position of each knob's value; none if it names none for some knob.
    pub(crate) fn config_of(&self, wanted: impl Fn(&Knob) -> Option<usize>) -> Option<Config> {
        let knobs = self
            .knobs
            .iter()
            .map(|k| Some((k.name.clone(), k.values.get(wanted(k)?)?.clone())))
            .collect::<Option<_>>()?;
        Some(Config { sketch: self.name().into(), knobs })
    }

    /// The combinations that differ from `config` in one knob.
    pub(super) fn single_moves<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = Config> + 'a {
        let values = self.knobs.iter().flat_map(|knob| knob.values.iter().map(move |value| (knob, value)));
        let others = values.filter(|(knob, value)| config.knobs.get(&knob.name) != Some(*value));
        others.map(|(knob, value)| {
            let mut other = config.clone();
            other.knobs.insert(knob.name.clone(), value.clone());
            other
        })
    }

    /// `config` with a knob set at random, or with more, each one more with a quarter of the probability.
    pub(super) fn random_move<R: Rng + ?Sized>(&self, config: &Config, rng: &mut R) -> Config {
        let mut other = config.clone();
        loop {
            let knob = &self.knobs[rng.random_range(0..self.knobs.len())];
            let value = &knob.values[rng.random_range(0..knob.values.len())];
            other.knobs.insert(knob.name.clone(), value.clone());
            if rng.random_ratio(3, 4) {
                return other;
            }
        }
    }

    /// Combination number `index` in mixed radix, the last knob fastest.
    pub(crate) fn nth(&self, mut index: u128) -> Config {
        let mut digits = vec![0; self.knobs.len()];
        for (digit, knob) in digits.iter_mut().zip(&self.knobs).rev() {
            *digit = (index % knob.values.len() as u128) as usize;
            index /= knob.values.len() as u128;
        }
        let mut digits = digits.into_iter();
        self.config(|_| digits.next().unwrap_or(0))
    }
}

/// Valid combinations that a search for the least cost starts from, and draws to find them in.
const STARTS: usize = 24;
const START_DRAWS: usize = 20_000;
/// The search ends when all knobs together improve the cost by less than a hundredth.
const STANDSTILL: f64 = 0.99;
/// Where none is found, of as many draws again one knob in so many has any value, and the others their least.
const DRAWN_ONE_IN: u32 = 4;

impl KnobSpace {
    /// A combination of little `cost`, which is `None` for invalid ones: the best of some random combinations, improved knob by
    /// knob until no other value of a single knob is much better; with its cost. The same every time; `None` if no combination is found.
    pub(crate) fn least(&self, cost: impl Fn(&Config) -> Option<f64>) -> Option<(f64, Config)> {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut best: Option<(f64, Config)> = None;
        let mut valid = 0;
        for draw in 0..2 * START_DRAWS {
            let is_sparse = draw >= START_DRAWS;
            if draw == START_DRAWS && valid > 0 {
                break;
            }
            let config = self.config(|knob| match is_sparse && !rng.random_ratio(1, DRAWN_ONE_IN) {
                true => 0,
                false => rng.random_range(0..knob.values.len()),
            });
            if let Some(cost) = cost(&config) {
                valid += 1;
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    best = Some((cost, config));
                }
            }
            if valid == STARTS {
                break;
            }
        }
        let (mut least, mut config) = best?;
        loop {
            let before = least;
            for knob in &self.knobs {
                for value in &knob.values {
                    if config.knobs.get(&knob.name) == Some(value) {
                        continue;
                    }
                    let mut other = config.clone();
                    other.knobs.insert(knob.name.clone(), value.clone());
                    if let Some(cost) = cost(&other).filter(|cost| *cost < least) {
                        (least, config) = (cost, other);
                    }
                }
            }
            if least > STANDSTILL * before {
                return Some((least, config));
            }
        }
    }
}
