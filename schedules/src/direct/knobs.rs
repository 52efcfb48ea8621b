//! What may be chosen in the direct sketch, and what is chosen without measuring.

use super::{Direct, LoopNames, Roles, block_size, blockable, extent};
use crate::config::{Config, Value};
use crate::contraction::Contraction;
use crate::space::{Knob, Sketch};
use crate::target::CpuTarget;
use crate::workload::{Operator, Workload};

/// Every knob of the sketch with its values, for one workload and target.
pub fn knobs(workload: &Workload, target: &CpuTarget) -> Vec<Knob> {
    let contraction = Contraction::of(workload);
    let roles = Roles::of(workload);
    let (input_blocks, output_blocks) = blockable(workload, block_size(target));
    let layouts = |blocks: bool| {
        if blocks { &["plain", "blocked"][..] } else { &["plain"][..] }
    };
    let mut knobs = Vec::new();
    if let Operator::Conv2d(_) = workload.op {
        knobs.push(Knob::choice("layout.in", layouts(input_blocks)));
        knobs.push(Knob::choice("layout.data", layouts(input_blocks)));
        knobs.push(Knob::choice("layout.out", layouts(output_blocks)));
    }
    let copies = contraction.is_padded() || input_blocks;
    knobs.push(Knob::choice("data", if copies { &["inplace", "copy", "tile"] } else { &["inplace", "tile"] }));
    knobs.push(Knob::choice("weights", &["packed", "inplace"]));
    let vectors: Vec<&str> = [Some(roles.channel), roles.width].into_iter().flatten().collect();
    knobs.push(Knob::choice("vector", &vectors));
    for name in &roles.spatial {
        let vector = vectors.contains(name);
        let values = spatial_tiles(extent(&contraction, name), target.lanes(), vector);
        knobs.push(Knob::tile(&format!("tile.{name}"), values));
    }
    knobs.push(Knob::tile(&format!("tile.{}", roles.reduce), reduce_tiles(extent(&contraction, roles.reduce))));
    let names = LoopNames::of(&roles, &contraction, input_blocks);
    let orders = [("order", &names.cache), ("order.inner", &names.spatial), ("order.reduce", &names.reduce)];
    knobs.extend(orders.into_iter().filter(|(_, axes)| !axes.is_empty()).map(|(name, axes)| Knob::order(name, axes)));
    knobs.push(Knob::choice("unroll", &["1", "2", "4", "8", "16", "32"]));
    let parallel: &[&str] = if target.threads > 1 { &["1", "2", "3"] } else { &["1"] };
    knobs.push(Knob::choice("parallel", &parallel[..parallel.len().min(names.spatial.len().max(1))]));
    knobs
}

/// `[cache tile, register tile]` values: the cache tile is a multiple of the register tile, or covers the whole axis.
fn spatial_tiles(extent: usize, lanes: usize, vector: bool) -> Vec<Vec<usize>> {
    let mut registers: Vec<usize> = (1..=8).chain([10, 12, 14, 16, 28]).collect();
    if vector {
        registers.extend([1, 2, 3, 4].map(|v| v * lanes));
        registers.extend([extent, extent.div_ceil(2)].into_iter().filter(|&e| e <= 4 * lanes));
    }
    registers.retain(|&r| r <= extent);
    registers.sort_unstable();
    registers.dedup();
    let mut tiles = Vec::new();
    for register in registers {
        let whole = extent.div_ceil(register);
        let counts = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64].into_iter().filter(|&m| m < whole);
        tiles.extend(counts.chain([whole]).map(|m| vec![m * register, register]));
    }
    tiles
}

/// `[chunk]` values of the tiled reduction axis; the last covers it whole.
fn reduce_tiles(extent: usize) -> Vec<Vec<usize>> {
    let chunks = [4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048];
    chunks.into_iter().filter(|&c| c < extent).chain([extent]).map(|c| vec![c]).collect()
}

/// A fixed rule without measuring: vectors over the output channels (else the width), blocked layouts where they fit, data
/// read in place, weights packed, the largest register tile of up to two vectors by as many columns as the registers hold,
/// rows and channel tiles in parallel, the reduction whole.
pub fn default_config(workload: &Workload, target: &CpuTarget, sketch: &Sketch) -> Config {
    let roles = Roles::of(workload);
    let lanes = target.lanes();
    for channels in [2 * lanes, lanes, 4, 2, 1] {
        for vector in [Some(roles.channel), roles.width].into_iter().flatten() {
            for (layout, data) in DEFAULT_DATA {
                for width in (1..=28).rev() {
                    let words = [("vector", vector), ("data", data), ("layout", layout)];
                    let Some(config) = default_candidate(&roles, sketch, &words, channels, width) else {
                        continue;
                    };
                    if Direct::new(workload, target, &config).is_ok() {
                        return config;
                    }
                }
            }
        }
    }
    sketch.nth(0)
}

/// Layouts and data modes in the order in which the default tries them.
const DEFAULT_DATA: [(&str, &str); 6] = [
    ("blocked", "inplace"),
    ("blocked", "copy"),
    ("blocked", "tile"),
    ("plain", "inplace"),
    ("plain", "copy"),
    ("plain", "tile"),
];

/// The combination with the given words and register tile, if the knobs have it.
fn default_candidate(
    roles: &Roles,
    sketch: &Sketch,
    words: &[(&str, &str)],
    channels: usize,
    width: usize,
) -> Option<Config> {
    sketch.config_of(|knob| {
        let position = |word: &str| knob.values.iter().position(|v| *v == Value::Choice(word.into()));
        let (group, axis) = knob.name.split_once('.').unwrap_or((&knob.name, ""));
        match (group, axis) {
            ("tile", axis) if axis == roles.channel => widest(knob, channels),
            ("tile", "ow" | "m") => whole(knob, width),
            ("tile", axis) if axis == roles.reduce => Some(knob.values.len() - 1),
            ("weights", _) => position("packed"),
            ("unroll", _) => position("4"),
            ("parallel", _) => position("2").or(Some(0)),
            ("layout", _) => position(words[2].1).or(Some(0)),
            (name, _) => match words.iter().find(|w| w.0 == name) {
                Some((_, word)) => position(word),
                None => Some(0),
            },
        }
    })
}

/// The value whose register tile is the largest up to `limit` and whose cache tile is no larger.
fn widest(knob: &Knob, limit: usize) -> Option<usize> {
    let fits = |v: &Value| matches!(v, Value::Tile(t) if t.len() == 2 && t[0] == t[1] && t[1] <= limit);
    knob.values.iter().rposition(fits)
}

/// The value with the given register tile whose cache tile covers the axis.
fn whole(knob: &Knob, register: usize) -> Option<usize> {
    knob.values.iter().rposition(|v| matches!(v, Value::Tile(t) if t.len() == 2 && t[1] == register))
}
