//! The schedule that is chosen without measuring.

use super::balance::MAX_SHARE;
use super::knobs::vectors;
use super::{Direct, Roles, block_size};
use crate::config::{Config, Value};
use crate::knob_space::{Knob, KnobSpace};
use crate::workload::{Known, Workload};
use autotune_ir::target::CpuTarget;

/// Layouts and data modes in the order in which the default tries them.
const DEFAULT_DATA: [(&str, &str); 6] = [
    ("blocked", "inplace"),
    ("blocked", "copy"),
    ("blocked", "tile"),
    ("plain", "inplace"),
    ("plain", "copy"),
    ("plain", "tile"),
];

/// A fixed rule without measuring: vectors over the output channels (else the width), blocked layouts where they fit, data
/// read in place, constant weights packed, the largest register tile of a few vectors by as many columns as the registers hold,
/// tiles of columns and rows in parallel, the reduction whole, rows of taps outermost in it. Of these the first that divides the
/// work among the threads evenly enough, else the one that does so most evenly.
///
/// There is always one that keeps the rules: the last to be tried have a register tile of a single vector, which fits the
/// registers and the code, and a padded copy of the input, which any padding can be written out to.
pub(super) fn default_config(workload: &Workload, target: &CpuTarget, sketch: &KnobSpace) -> Option<Config> {
    let lanes = target.lanes();
    let usual: Vec<DefaultRule> =
        vectors(workload, target).into_iter().map(|vector| DefaultRule::of(workload, target, vector)).collect();
    // Several rows of a tall kernel, each with its taps in the padding written out, may be too much code.
    let flat: Vec<DefaultRule> =
        usual.iter().filter(|rule| rule.height > 1).map(|rule| DefaultRule { height: 1, ..rule.clone() }).collect();
    let mut best: Option<(f64, Config)> = None;
    let sizes = || [3 * lanes, 2 * lanes, lanes, 4, 2, 1].into_iter();
    for (rules, channels) in sizes().map(|size| (&usual, size)).chain(sizes().map(|size| (&flat, size))) {
        for rule in rules.iter().filter(|rule| channels <= rule.vectors * lanes) {
            for config in rule.candidates(sketch, channels) {
                let Ok(direct) = Direct::new(workload, target, &config) else {
                    continue;
                };
                let share = direct.largest_share(target);
                if share <= MAX_SHARE {
                    return Some(config);
                }
                if best.as_ref().is_none_or(|(least, _)| share < *least) {
                    best = Some((share, config));
                }
            }
        }
    }
    best.map(|(_, config)| config)
}

/// What the default schedule of a workload tries.
#[derive(Clone)]
struct DefaultRule {
    vector: &'static str,
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
    fn of(workload: &Workload, target: &CpuTarget, vector: &'static str) -> Self {
        // Neighbouring outputs of a depthwise convolution share what they read, those of others the weights, too.
        let (vectors, width, height, unroll) = match workload.known() {
            Known::Matmul(_) if target.isa.vector_registers() >= 32 => (3, 28, 1, "4"),
            // The lanes of a blocked layout, whole.
            Known::Conv2d(_) if vector == "g" => (block_size(target) / target.lanes(), 3, 3, "16"),
            _ => (2, 28, 1, "4"),
        };
        let roles = Roles::of(workload);
        let outermost = if matches!(workload.known(), Known::Matmul(m) if m.b > 1) { "m" } else { roles.channel };
        Self { vector, roles, vectors, width, height, outermost, unroll }
    }

    /// The combinations that the knobs have with a register tile of so many channels, the best first.
    fn candidates<'a>(&'a self, sketch: &'a KnobSpace, channels: usize) -> impl Iterator<Item = Config> + 'a {
        let widths = DEFAULT_DATA.into_iter().flat_map(|data| (1..=self.width).rev().map(move |width| (data, width)));
        let all = widths.flat_map(|(data, width)| ["2", "1", "3"].map(|parallel| (data, width, parallel)));
        all.filter_map(move |((layout, data), width, parallel)| {
            let words = [("vector", self.vector), ("data", data), ("layout", layout), ("parallel", parallel)];
            self.candidate(sketch, &words, [channels, width])
        })
    }

    /// The combination with the given words and register tile, if the knobs have it.
    fn candidate(&self, sketch: &KnobSpace, words: &[(&str, &str)], [channels, width]: [usize; 2]) -> Option<Config> {
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
