//! The variants of the sketches for tensor cores: producer, grid, stages, splits and weights. They
//! are derived from the spaces, so that new values of a knob are covered.

use std::collections::BTreeMap;

use super::tiling;
use autotune_ir::{GpuTarget, Target};
use autotune_schedules::gpu::{MMA, Tiling, WGMMA};
use autotune_schedules::{Config, KnobValue, ScheduleSpace};
use autotune_workloads::Workload;

/// Values of the knobs that define a variant.
pub type Variant = BTreeMap<String, String>;

/// Choice knobs that do not define a variant.
const OTHERS: [&str; 1] = ["raster"];

/// Returns every combination of the choices that a sketch has for a workload, valid or not.
pub fn combinations(workload: &Workload, target: &Target, sketch: &str) -> Vec<Variant> {
    let space = ScheduleSpace::new(workload, target);
    let Some(sketch) = space.sketches().iter().find(|one| one.name() == sketch) else { return Vec::new() };
    let mut all = vec![Variant::new()];
    for knob in &sketch.knobs {
        let words: Vec<&String> = knob.values.iter().filter_map(word).collect();
        if words.is_empty() || OTHERS.contains(&knob.name.as_str()) {
            continue;
        }
        let with = |variant: &Variant| {
            let word =
                |word: &&String| variant.clone().into_iter().chain([(knob.name.clone(), (*word).clone())]).collect();
            words.iter().map(word).collect::<Vec<Variant>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

fn word(value: &KnobValue) -> Option<&String> {
    match value {
        KnobValue::Choice(word) => Some(word),
        _ => None,
    }
}

/// Returns a valid config of a variant. `turn` selects its tiles and orders among all that there
/// are.
pub fn config(
    workload: &Workload,
    gpu: &GpuTarget,
    (sketch, variant): (&str, &Variant),
    turn: usize,
    is_wanted: impl Fn(&Tiling) -> bool,
) -> Option<Config> {
    let space = ScheduleSpace::new(workload, &Target::Gpu(gpu.clone()));
    let sketch = space.sketches().iter().find(|one| one.name() == sketch)?;
    let (fixed, free): (Vec<_>, Vec<_>) = sketch.knobs.iter().partition(|knob| variant.contains_key(&knob.name));

    let mut config = Config { sketch: sketch.name().into(), knobs: Default::default() };
    for knob in fixed {
        let value = KnobValue::Choice(variant[&knob.name].clone());
        config.knobs.insert(knob.name.clone(), knob.values.contains(&value).then_some(value)?);
    }

    let count: usize = free.iter().map(|knob| knob.values.len()).product();
    (0..count).find_map(|i| {
        // A large prime step spreads the tries, and reaches all positions eventually, since it
        // shares no factor with their number.
        let mut place = (turn + i) * STEP % count;
        for knob in &free {
            config.knobs.insert(knob.name.clone(), knob.values[place % knob.values.len()].clone());
            place /= knob.values.len();
        }
        tiling(workload, gpu, &config).is_ok_and(|tiling| is_wanted(&tiling)).then(|| config.clone())
    })
}

/// Prime step; numbers of positions are smaller, hence not multiples of it.
const STEP: usize = 7919;

/// Returns the combinations with two splits each, so that all splits occur.
pub fn spread(combinations: Vec<Variant>) -> Vec<Variant> {
    let mut splits: Vec<String> = combinations.iter().map(|one| one["split"].clone()).collect();
    splits.sort_by_key(|split| split.parse::<usize>().unwrap());
    splits.dedup();
    let number = |split: &String| splits.iter().position(|one| one == split).unwrap();
    let mut others: Vec<Variant> = Vec::new();
    let mut kept = Vec::new();
    for variant in combinations {
        let rest = Variant::from_iter(variant.clone().into_iter().filter(|(name, _)| name != "split"));
        let place = others.iter().position(|one| *one == rest).unwrap_or_else(|| {
            others.push(rest);
            others.len() - 1
        });
        let persistent = variant.get("grid").is_some_and(|grid| grid == "persistent");
        let turns = [2 * place, 2 * place + 1].map(|turn| turn % splits.len());
        let split = number(&variant["split"]);
        // A persistent grid does not support splits.
        if if persistent { split == 0 } else { turns.contains(&split) } {
            kept.push(variant);
        }
    }
    kept
}

/// Names of the sketches for tensor cores.
pub const SKETCHES: [&str; 2] = [MMA.name, WGMMA.name];
