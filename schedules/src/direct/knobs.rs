//! What may be chosen in the direct sketch, and what is chosen without measuring.

use super::rules::{MIN_PANEL_CHANNELS, MIN_PANEL_COLUMNS};
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
    let vectors = vectors(workload, target);
    let layouts =
        |name: &str, blocks: bool| Knob::choice(name, if blocks { &["plain", "blocked"] } else { &["plain"] });
    // Vectors along the channels read single elements of the data, for which a copy is no better.
    let is_matmul = matches!(workload.op, Operator::Matmul(_));
    let copies = !is_matmul && vectors.len() > 1;
    let mut data = vec!["inplace"];
    data.extend((copies && (contraction.is_padded() || input_blocks)).then_some("copy"));
    data.extend((copies || is_matmul).then_some("tile"));
    data.extend(panels_pay(workload, copies).then_some("panel"));
    let mut knobs = vec![Knob::choice("data", &data)];
    if !is_matmul {
        knobs.push(layouts("layout.in", input_blocks));
        knobs.push(layouts("layout.out", output_blocks));
    }
    if copies {
        knobs.push(layouts("layout.data", input_blocks));
    }
    // Constant weights are packed for nothing.
    let weights = if contraction.weight_is_constant { &["packed"][..] } else { &["packed", "inplace"][..] };
    knobs.push(Knob::choice("weights", weights));
    knobs.push(Knob::choice("vector", &vectors));
    for name in &roles.spatial {
        let extent = extent(&contraction, name);
        let registers = register_tiles(extent, name, &vectors, target.lanes());
        knobs.push(Knob::tile(&format!("tile.{name}"), spatial_tiles(extent, &registers)));
    }
    knobs.push(Knob::tile(&format!("tile.{}", roles.reduce), reduce_tiles(extent(&contraction, roles.reduce))));
    let names = LoopNames::of(&roles, &contraction, input_blocks);
    let orders = [("order", &names.cache), ("order.inner", &names.spatial), ("order.reduce", &names.reduce)];
    knobs.extend(orders.into_iter().filter(|(_, axes)| !axes.is_empty()).map(|(name, axes)| Knob::order(name, axes)));
    knobs.push(Knob::choice("unroll", &["1", "2", "4", "8", "16"]));
    let parallel: &[&str] = if target.threads > 1 { &["1", "2", "3"] } else { &["1"] };
    knobs.push(Knob::choice("parallel", &parallel[..parallel.len().min(names.spatial.len().max(1))]));
    knobs
}

/// Whether some schedule may have panels: of matrices with many columns, and of strided convolutions that vectors may run along
/// the width of.
fn panels_pay(workload: &Workload, copies: bool) -> bool {
    match workload.op {
        Operator::Matmul(m) => m.n >= MIN_PANEL_COLUMNS,
        Operator::Conv2d(c) => copies && c.stride[1] > 1 && c.o / c.groups >= MIN_PANEL_CHANNELS,
    }
}

/// Axes that vectors may run along: the channels; the width, too, where the channels are not whole vectors or the input has no
/// lanes that go with them.
fn vectors(workload: &Workload, target: &CpuTarget) -> Vec<&'static str> {
    let roles = Roles::of(workload);
    let whole = extent(&Contraction::of(workload), roles.channel).is_multiple_of(target.lanes());
    let lanes_match = roles.channel != "g" || blockable(workload, block_size(target)).0;
    let width = roles.width.filter(|_| !whole || !lanes_match);
    [Some(roles.channel), width].into_iter().flatten().collect()
}

/// Register tiles of an axis: whole vectors or the whole axis where the vector may run along it, single elements where it may
/// run along another.
fn register_tiles(extent: usize, name: &str, vectors: &[&str], lanes: usize) -> Vec<usize> {
    let mut tiles = Vec::new();
    if vectors.contains(&name) {
        tiles.extend([1, 2, 3, 4].map(|v| v * lanes));
        tiles.extend((extent <= 4 * lanes).then_some(extent));
    }
    if vectors != [name] {
        tiles.extend(1..=8);
        tiles.extend(if name == "oh" { &[][..] } else { &[9, 10, 12, 13, 14, 16, 20, 24, 28][..] });
    }
    tiles.retain(|&t| t <= extent);
    tiles.sort_unstable();
    tiles.dedup();
    tiles
}

/// `[cache tile, register tile]` values: the cache tile is a multiple of the register tile, or covers the whole axis.
fn spatial_tiles(extent: usize, registers: &[usize]) -> Vec<Vec<usize>> {
    let mut tiles = Vec::new();
    for &register in registers {
        let whole = extent.div_ceil(register);
        let counts = [1, 2, 3, 4, 6, 8, 12, 16, 32, 64].into_iter().filter(|&m| m < whole);
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
/// read in place, constant weights packed, the largest register tile of a few vectors by as many columns as the registers hold,
/// tiles of columns and rows in parallel, the reduction whole, rows of taps outermost in it.
///
/// None if no such schedule keeps the rules.
pub fn default_config(workload: &Workload, target: &CpuTarget, sketch: &Sketch) -> Option<Config> {
    let lanes = target.lanes();
    for channels in [3 * lanes, 2 * lanes, lanes, 4, 2, 1] {
        for vector in vectors(workload, target) {
            let rule = DefaultRule::of(workload, target, vector);
            if channels > rule.vectors * lanes {
                continue;
            }
            for (layout, data) in DEFAULT_DATA {
                for width in (1..=rule.width).rev() {
                    for parallel in ["2", "1", "3"] {
                        let words = [("vector", vector), ("data", data), ("layout", layout), ("parallel", parallel)];
                        let Some(config) = rule.candidate(sketch, &words, [channels, width]) else {
                            continue;
                        };
                        if Direct::new(workload, target, &config).is_ok_and(|direct| direct.is_balanced(target)) {
                            return Some(config);
                        }
                    }
                }
            }
        }
    }
    None
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

/// What the default schedule of a workload tries.
struct DefaultRule {
    roles: Roles,
    /// Most vectors of the register tile along the channels.
    vectors: usize,
    /// Largest register tile along the width (rows of a matrix product).
    width: usize,
    /// Register tile along the height.
    height: usize,
    /// Axis of the outermost loop over tiles.
    outermost: &'static str,
    unroll: &'static str,
}

impl DefaultRule {
    fn of(workload: &Workload, target: &CpuTarget, vector: &str) -> Self {
        // Neighbouring outputs of a depthwise convolution share what they read, those of others the weights, too.
        let (vectors, width, height, unroll) = match workload.op {
            Operator::Matmul(_) if target.isa.vector_registers() >= 32 => (3, 28, 1, "4"),
            Operator::Conv2d(_) if vector == "g" => (1, 3, 3, "16"),
            _ => (2, 28, 1, "4"),
        };
        let roles = Roles::of(workload);
        let outermost = if matches!(workload.op, Operator::Matmul(m) if m.b > 1) { "m" } else { roles.channel };
        Self { roles, vectors, width, height, outermost, unroll }
    }

    /// The combination with the given words and register tile, if the knobs have it.
    fn candidate(&self, sketch: &Sketch, words: &[(&str, &str)], [channels, width]: [usize; 2]) -> Option<Config> {
        sketch.config_of(|knob| {
            let position = |word: &str| knob.values.iter().position(|v| *v == Value::Choice(word.into()));
            let (group, axis) = knob.name.split_once('.').unwrap_or((&knob.name, ""));
            match (group, axis) {
                ("tile", axis) if axis == self.roles.channel => widest(knob, channels),
                ("tile", "ow") => whole(knob, width),
                ("tile", "m") => widest(knob, width).filter(|&i| is_register_tile(&knob.values[i], width)),
                ("tile", "oh") => widest(knob, self.height),
                ("tile", axis) if axis == self.roles.reduce => Some(knob.values.len() - 1),
                ("order", "reduce") => Some(starting_with(knob, "kh")),
                ("order", "") => Some(starting_with(knob, self.outermost)),
                ("weights", _) => position("inplace").or(Some(0)),
                ("unroll", _) => position(self.unroll),
                ("layout", _) => position(words[2].1).or(Some(0)),
                (name, _) => match words.iter().find(|w| w.0 == name) {
                    Some((_, word)) => position(word),
                    None => Some(0),
                },
            }
        })
    }
}

/// The first order whose outermost axis is `axis`. With `kh` outermost in the reduction the weights are read in one go even
/// where some rows of taps lie in the padding.
fn starting_with(knob: &Knob, axis: &str) -> usize {
    let first = |v: &Value| matches!(v, Value::Order(axes) if axes.first().is_some_and(|a| a == axis));
    knob.values.iter().position(first).unwrap_or(0)
}

fn is_register_tile(value: &Value, size: usize) -> bool {
    matches!(value, Value::Tile(t) if t.last() == Some(&size))
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
