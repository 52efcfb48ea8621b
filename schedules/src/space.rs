//! Schedule spaces: every schedule of one workload on one target, as a union of sketches, each a product of knobs.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::config::{Config, Value};
use crate::direct::{self, Direct};
use crate::mma::{self, Mma};
use crate::target::Target;
use crate::tiled::{self, Tiled};
use crate::winograd::gpu::GpuWinograd;
use crate::winograd::{self, Winograd};
use crate::workload::{DType, Work, Workload};

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

/// Structurally similar programs: a product of knobs, of which the valid combinations can be proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// Name in configs.
    pub name: &'static str,
    /// What may be chosen.
    pub knobs: Vec<Knob>,
}

impl Sketch {
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
        Config { sketch: self.name.into(), knobs }
    }

    /// The combination that `wanted` names by the position of each knob's value; none if it names none for some knob.
    pub(crate) fn config_of(&self, wanted: impl Fn(&Knob) -> Option<usize>) -> Option<Config> {
        let knobs = self
            .knobs
            .iter()
            .map(|k| Some((k.name.clone(), k.values.get(wanted(k)?)?.clone())))
            .collect::<Option<_>>()?;
        Some(Config { sketch: self.name.into(), knobs })
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
const STARTS: usize = 64;
const START_DRAWS: usize = 20_000;

impl Sketch {
    /// A combination of little `cost`, which is `None` for invalid ones: the best of some random combinations, improved knob by
    /// knob until no other value of a single knob is better. The same every time; `None` if no combination is found.
    pub(crate) fn least(&self, cost: impl Fn(&Config) -> Option<f64>) -> Option<Config> {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut best: Option<(f64, Config)> = None;
        let mut valid = 0;
        for _ in 0..START_DRAWS {
            let config = self.config(|knob| rng.random_range(0..knob.values.len()));
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
                    let mut other = config.clone();
                    other.knobs.insert(knob.name.clone(), value.clone());
                    if let Some(cost) = cost(&other).filter(|cost| *cost < least) {
                        (least, config) = (cost, other);
                    }
                }
            }
            if least == before {
                return Some(config);
            }
        }
    }
}

/// Every schedule of one workload on one target.
///
/// ```
/// use autotune_schedules::{CpuTarget, ScheduleSpace, Target, Workload};
/// let workload: Workload = "conv2d:c=64,h=56,w=56,o=64,k=3,p=1".parse().unwrap();
/// let space = ScheduleSpace::new(&workload, &Target::Cpu(CpuTarget::generic_avx2(1)));
/// assert!(space.len() > 1_000_000);
/// assert!(space.contains(&space.default_config()));
/// ```
#[derive(Clone, Debug)]
pub struct ScheduleSpace {
    workload: Workload,
    target: Target,
    sketches: Vec<Sketch>,
}

/// Draws after which sampling gives up on finding a valid combination of a sketch and falls back to the default.
const MAX_DRAWS: usize = 100_000;
/// One in so many neighbours is of another sketch where there are several.
const SKETCH_CHANGE: u32 = 32;

impl ScheduleSpace {
    /// The space of `workload` on `target`. Where the target does not support the workload's type ([`Target::supports`]),
    /// nothing in it is valid, and lowering says why.
    pub fn new(workload: &Workload, target: &Target) -> Self {
        let sketches = match target {
            Target::Cpu(cpu) => {
                let direct = Sketch { name: direct::SKETCH, knobs: direct::knobs(workload, cpu) };
                let winograd = winograd::knobs(workload, cpu).map(|knobs| Sketch { name: winograd::SKETCH, knobs });
                std::iter::once(direct).chain(winograd).collect()
            }
            Target::Gpu(gpu) => {
                let mma = mma::knobs(workload, gpu).map(|knobs| Sketch { name: mma::SKETCH, knobs });
                let groups = mma::group_knobs(workload, gpu).map(|knobs| Sketch { name: mma::GROUP_SKETCH, knobs });
                // Where there are enough columns for tensor cores, nothing else comes near them.
                let without = mma.is_none() || !mma::fills(workload) && workload.dtype != DType::Tf32;
                let tiled = [tiled::SKETCH, tiled::IMPLICIT_GEMM].into_iter();
                let tiled = tiled.filter_map(|name| Some(Sketch { name, knobs: tiled::knobs(workload, gpu, name)? }));
                let winograd =
                    winograd::gpu::knobs(workload, gpu).map(|knobs| Sketch { name: winograd::SKETCH, knobs });
                let others = tiled.chain(winograd).filter(|_| without);
                groups.into_iter().chain(mma).chain(others).collect()
            }
        };
        Self { workload: *workload, target: target.clone(), sketches }
    }

    /// The workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The sketches.
    pub fn sketches(&self) -> &[Sketch] {
        &self.sketches
    }

    /// What each algorithm that there is a sketch for has to do, the direct one first.
    pub fn works(&self) -> Vec<Work> {
        let winograd = self.sketches.iter().filter(|sketch| sketch.name == winograd::SKETCH);
        let sizes = winograd.flat_map(|sketch| &sketch.knobs).filter(|knob| knob.name == winograd::TILE_SIZE_KNOB);
        let others = sizes.flat_map(|knob| &knob.values).filter_map(|size| match size {
            Value::Choice(m) => winograd::work(&self.workload, m.parse().ok()?),
            _ => None,
        });
        std::iter::once(self.workload.work()).chain(others).collect()
    }

    /// Number of knob combinations, invalid ones included.
    pub fn len(&self) -> u128 {
        self.sketches.iter().map(Sketch::len).sum()
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// True if the combination keeps the rules between knobs and the limits of the target, and keeps every thread busy.
    fn is_valid(&self, config: &Config) -> bool {
        match (&self.target, config.sketch.as_str()) {
            (target, _) if !target.supports(self.workload.dtype) => false,
            (Target::Cpu(cpu), winograd::SKETCH) => Winograd::new(&self.workload, cpu, config).is_ok(),
            (Target::Cpu(cpu), _) => {
                Direct::new(&self.workload, cpu, config).is_ok_and(|direct| direct.is_balanced(cpu))
            }
            (Target::Gpu(gpu), winograd::SKETCH) => GpuWinograd::new(&self.workload, gpu, config).is_ok(),
            (Target::Gpu(gpu), mma::SKETCH | mma::GROUP_SKETCH) => Mma::new(&self.workload, gpu, config).is_ok(),
            (Target::Gpu(gpu), _) => Tiled::new(&self.workload, gpu, config).is_ok(),
        }
    }

    fn sketch(&self, config: &Config) -> Option<&Sketch> {
        self.sketches.iter().find(|s| s.name == config.sketch)
    }

    /// The untuned schedule: what a fixed rule picks without measuring; where that breaks a rule, the same sample every time.
    pub fn default_config(&self) -> Config {
        let first = &self.sketches[0];
        match &self.target {
            Target::Cpu(cpu) => direct::default_config(&self.workload, cpu, first),
            Target::Gpu(gpu) if first.name != tiled::SKETCH => mma::default_config(&self.workload, gpu, first),
            Target::Gpu(gpu) => tiled::default_config(&self.workload, gpu, &self.sketches),
        }
        .or_else(|| self.draw(first, &mut ChaCha8Rng::seed_from_u64(0)))
        .unwrap_or_else(|| first.nth(0))
    }

    /// A valid config: a sketch is drawn, then knobs uniformly, and invalid combinations are rejected.
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> Config {
        let sketch = &self.sketches[rng.random_range(0..self.sketches.len())];
        self.draw(sketch, rng).unwrap_or_else(|| self.default_config())
    }

    fn draw<R: Rng + ?Sized>(&self, sketch: &Sketch, rng: &mut R) -> Option<Config> {
        let mut draw = || sketch.config(|k| rng.random_range(0..k.values.len()));
        let draws = if self.target.supports(self.workload.dtype) { MAX_DRAWS } else { 0 };
        (0..draws).map(|_| draw()).find(|config| self.is_valid(config))
    }

    /// A valid config that differs from `config` in one knob, or in more, each one more with a quarter of the probability: good configs
    /// can be apart by knobs that must change together, a tile and the registers for it, say. A fresh sample if none is found, and
    /// now and then where there are several sketches.
    pub fn neighbor<R: Rng + ?Sized>(&self, config: &Config, rng: &mut R) -> Config {
        let moves_on = self.sketches.len() > 1 && rng.random_ratio(1, SKETCH_CHANGE);
        if let Some(sketch) = self.sketch(config).filter(|_| !moves_on) {
            for _ in 0..256 {
                let mut other = config.clone();
                loop {
                    let knob = &sketch.knobs[rng.random_range(0..sketch.knobs.len())];
                    let value = &knob.values[rng.random_range(0..knob.values.len())];
                    other.knobs.insert(knob.name.clone(), value.clone());
                    if rng.random_ratio(3, 4) {
                        break;
                    }
                }
                if other != *config && self.is_valid(&other) {
                    return other;
                }
            }
        }
        self.sample(rng)
    }

    /// A valid config with each knob from one of the parents; the first parent if none is found.
    pub fn crossover<R: Rng + ?Sized>(&self, a: &Config, b: &Config, rng: &mut R) -> Config {
        if a.sketch != b.sketch {
            return a.clone();
        }
        for _ in 0..64 {
            let mut child = a.clone();
            for (name, value) in &b.knobs {
                if rng.random_bool(0.5) {
                    child.knobs.insert(name.clone(), value.clone());
                }
            }
            if self.is_valid(&child) {
                return child;
            }
        }
        a.clone()
    }

    /// Every valid config, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = Config> + '_ {
        self.sketches
            .iter()
            .flat_map(|sketch| (0..sketch.len()).map(|i| sketch.nth(i)))
            .filter(|config| self.is_valid(config))
    }

    /// True if the config can be proposed: its sketch and every knob known, every value allowed, and the whole valid.
    pub fn contains(&self, config: &Config) -> bool {
        let Some(sketch) = self.sketch(config) else {
            return false;
        };
        let known = sketch.knobs.iter().all(|k| config.knobs.get(&k.name).is_some_and(|v| k.values.contains(v)));
        known && config.knobs.len() == sketch.knobs.len() && self.is_valid(config)
    }
}
