//! Default schedule of two fused contractions on CPUs.

use std::sync::Arc;

use autotune_ir::target::CpuTarget;

use super::Fused;
use super::pair::Pair;
use super::part::PARTS;
use crate::config::KnobValue;
use crate::contraction::AxisId;
use crate::direct::roles::Roles;
use crate::direct::{MAX_SHARE, block_size};
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;

/// Layouts and data modes of the first contraction, in the order in which the default tries them.
const DATA: [(&str, &str); 6] = [
    ("blocked", "inplace"),
    ("blocked", "copy"),
    ("blocked", "tile"),
    ("plain", "inplace"),
    ("plain", "copy"),
    ("plain", "tile"),
];
/// Largest register tile along a row.
const WIDEST: usize = 28;
/// Register tiles of a depthwise convolution, as width and height: neighbouring results share
/// inputs. The first was the fastest of a dozen for 32 and 64 channels of 112 x 112 (AMD EPYC,
/// family 25, model 17, one thread of a loaded machine, minimum of 50 runs with interleaved
/// timing).
const SHARED_READS: [[usize; 2]; 3] = [[4, 2], [3, 3], [3, 1]];
/// The intermediate tile gets this fraction of the second-level cache at first, and half as much
/// with each further try.
const CACHE_SHARE: usize = 4;
/// Number of cache budgets that are tried.
const TRIES: usize = 16;

/// Largest register tile: channels, the row along which vectors may go, other rows.
type Registers = [usize; 3];

/// Returns the default point by a fixed rule. Intermediate values are stored per tile, with all
/// channels and as many rows as fit into a quarter of the second-level cache. Both contractions
/// have the largest register tile that fits, like the direct sketch's default. If that divides the
/// work unevenly among threads, smaller cache budgets are tried; without an even one, the least
/// uneven is returned.
pub(super) fn default_point(pair: &Arc<Pair>, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<KnobIndices> {
    let mut best: Option<(f64, KnobIndices)> = None;
    for budget in (0..TRIES).map(|tries| (target.l2_bytes / CACHE_SHARE) >> tries) {
        let Some((point, fused)) = FusedDefault::find(pair, target, space, budget) else { continue };
        let share = fused.first.largest_share(target);
        if share <= MAX_SHARE {
            return Some(point);
        }
        if best.as_ref().is_none_or(|(least, _)| share < *least) {
            best = Some((share, point));
        }
    }
    best.map(|(_, point)| point)
}

/// Wanted values of the knobs of a default schedule.
#[derive(Clone)]
struct FusedDefault<'a> {
    pair: &'a Pair,
    /// Layout of all tensors, and data mode of the first contraction.
    words: (&'static str, &'static str),
    vectors: [AxisId; 2],
    registers: [Registers; 2],
    /// Bytes available for the intermediate tile.
    budget: usize,
}

impl<'a> FusedDefault<'a> {
    /// Returns the first valid rule. It looks for register tiles of the first contraction with the
    /// smallest ones of the second, and then for those of the second.
    fn find(
        pair: &'a Arc<Pair>,
        target: &CpuTarget,
        space: &Arc<KnobSpace>,
        budget: usize,
    ) -> Option<(KnobIndices, Fused)> {
        let valid = |rule: &Self| {
            let point = rule.point(space)?;
            let fused = Fused::of_pair(pair, target, &point).ok()?;
            Some((point, fused))
        };
        let least = Self {
            pair,
            words: DATA[0],
            vectors: [pair.first.channel, pair.second.channel],
            registers: [[block_size(target), 1, 1]; 2],
            budget,
        };
        // One register tile after the other, since all pairs of tiles would be too many.
        let firsts = DATA.into_iter().flat_map(|words| of_part(&pair.first, target).map(move |own| (words, own)));
        let mut firsts = firsts.map(|(words, (vector, registers))| Self {
            words,
            vectors: [vector, least.vectors[1]],
            registers: [registers, least.registers[1]],
            ..least.clone()
        });
        let first = firsts.find(|rule| valid(rule).is_some())?;

        let mut seconds = of_part(&pair.second, target).map(|(vector, registers)| Self {
            vectors: [first.vectors[0], vector],
            registers: [first.registers[0], registers],
            ..first.clone()
        });
        seconds.find_map(|rule| valid(&rule)).or_else(|| valid(&first))
    }

    /// Returns the point with the values of the rule, as far as the knobs offer them.
    fn point(&self, space: &Arc<KnobSpace>) -> Option<KnobIndices> {
        space.point_of(|knob| {
            let position = |word: &str| knob.values.iter().position(|v| *v == KnobValue::Choice(word.into()));
            let (part, name) = match knob.name.split_once('.') {
                Some((part, name)) if PARTS.contains(&part) => (PARTS.iter().position(|own| *own == part), name),
                _ => (None, knob.name.as_str()),
            };
            // A depthwise step has few multiply-adds, so that more steps are unrolled.
            let is_depthwise = part == Some(0) && self.pair.first.is_depthwise;
            match (part, name.split_once('.').unwrap_or((name, ""))) {
                (Some(part), ("tile", axis)) => self.register(part, knob, axis),
                (None, ("tile", row)) => Some(self.tile(knob, row)),
                (_, ("layout", _)) => position(self.words.0).or(Some(0)),
                (_, ("data", _)) => position(self.words.1),
                (Some(part), ("vector", _)) => position(self.roles(part).name(self.vectors[part])),
                (_, ("unroll", _)) => position(if is_depthwise { "16" } else { "4" }),
                _ => Some(0),
            }
        })
    }

    fn roles(&self, part: usize) -> &Roles {
        if part == 0 { &self.pair.first } else { &self.pair.second }
    }

    /// Returns the position of the largest register tile along an axis within the limit; of a
    /// reduction axis that of all steps.
    fn register(&self, part: usize, knob: &Knob, axis: &str) -> Option<usize> {
        let (roles, [channels, width, height]) = (self.roles(part), self.registers[part]);
        let axis = roles.contraction.axis(axis)?;
        let is_width = roles.width == Some(axis) || roles.is_product();
        match axis {
            _ if axis == roles.channel => Some(largest(knob, channels, 1)),
            _ if roles.step == Some(axis) => Some(knob.values.len() - 1),
            _ => Some(largest(knob, if is_width { width } else { height }, 1)),
        }
    }

    /// Returns the position of a cache tile among the knob's values. The tile has all intermediate
    /// channels; along a row axis it has as many elements as the budget in bytes allows, innermost
    /// axis first.
    fn tile(&self, knob: &Knob, name: &str) -> usize {
        let (pair, last) = (self.pair, knob.values.len() - 1);
        // Positions of the rows for which the budget has room, with all intermediate channels.
        let mut room = self.budget / (pair.dtype.bytes() * pair.second.extent(pair.step));
        for &[_, row] in pair.rows.iter().rev() {
            let is_width = pair.second.width == Some(row) || pair.second.is_product();
            // Multiples of the register tile avoid a remainder in every cache tile.
            let register = self.registers[1][if is_width { 1 } else { 2 }];
            let extent = pair.second.extent(row);
            let size =
                if room >= extent { extent } else { (room / register * register).max(room.min(register)).max(1) };
            if pair.second.name(row) == name {
                return largest(knob, size, if size < extent { register } else { 1 });
            }
            room /= size;
        }
        last
    }
}

/// Yields pairs of vector axis and register tile, best first. The last tiles have a single element.
fn of_part<'a>(roles: &'a Roles, target: &CpuTarget) -> impl Iterator<Item = (AxisId, Registers)> + 'a {
    let (lanes, block) = (target.lanes(), block_size(target));
    let vectors = roles.vectors(target);
    let many = if roles.is_product() && target.isa.vector_registers() >= 32 { 3 } else { 2 };
    let shared = SHARED_READS.into_iter().filter(|_| roles.is_depthwise);
    let shared = shared.map(move |[width, height]| (roles.channel, [block, width, height]));
    let sizes = [many * lanes, lanes, 4, 2, 1].into_iter();
    let tiles = sizes.flat_map(|channels| (1..=WIDEST).rev().map(move |width| [channels, width, 1]));
    shared.chain(tiles.flat_map(move |registers| vectors.clone().into_iter().map(move |vector| (vector, registers))))
}

/// Returns the position of the largest tile up to `limit`, preferably a multiple of `of`; 0 if none
/// is small enough.
fn largest(knob: &Knob, limit: usize, of: usize) -> usize {
    let fits =
        |value: &KnobValue, of: usize| matches!(value, KnobValue::Tile(t) if t[0] <= limit && t[0].is_multiple_of(of));
    let find = |of| knob.values.iter().rposition(|value| fits(value, of));
    find(of).or_else(|| find(1)).unwrap_or(0)
}
