//! The schedule that is chosen without measuring.

use std::sync::Arc;

use super::balance::MAX_SHARE;
use super::{Direct, Roles, block_size};
use crate::config::Value;
use crate::contraction::{AxisId, Contraction};
use crate::knob_space::{Knob, KnobSpace};
use crate::point::Point;
use autotune_ir::DType;
use autotune_ir::analyse::pieces;
use autotune_ir::instruction::Factors;
use autotune_ir::program::{BinaryOp, Expr};
use autotune_ir::target::CpuTarget;
use autotune_workloads::axes::{FEW, count};

/// Layouts and data modes in the order in which the default tries them.
const DEFAULT_DATA: [(&str, &str); 7] = [
    ("blocked", "inplace"),
    ("blocked", "copy"),
    ("blocked", "tile"),
    ("plain", "inplace"),
    ("plain", "copy"),
    ("plain", "tile"),
    DOT_DATA,
];
/// What only dot products need, whose steps lie apart elsewhere.
const DOT_DATA: (&str, &str) = ("plain", "panel");

/// Numbers of parallel loops in the order in which the default tries them.
const PARALLEL: [&str; 3] = ["2", "1", "3"];
/// Largest register tile along the width that leaves registers for steps on the sums.
const WIDTH_BESIDE_STEPS: usize = 8;
/// Share of lanes that vectors along rows use of those that vectors along channels do, from which
/// on rows are faster.
const ROWS_OVER_CHANNELS: f64 = 0.75;

/// Ways of first-level caches, at least.
const WAYS: usize = 8;
/// Rows of data up to which reading a matrix from memory takes longer than multiplying by it.
const LIGHT: usize = 4;

/// How a matrix is read in place: steps and columns of a cache tile, most vectors of a register
/// tile, and whether the next steps are prefetched.
struct Stream {
    steps: usize,
    columns: usize,
    vectors: usize,
    prefetches: bool,
}

/// Whole rows side by side, which hardware prefetching follows.
const STREAMED: Stream = Stream { steps: 8, columns: usize::MAX, vectors: 4, prefetches: false };
/// The same from memory, where hardware prefetching stops at the end of each page.
const FAR: Stream = Stream { steps: 4, columns: usize::MAX, vectors: 1, prefetches: true };
/// Parts of the matrix, so that more steps are added up in registers where arithmetic takes as long
/// as memory: of one within the second-level cache, the third-level cache, and from memory.
const NEAR_PART: Stream = Stream { steps: 512, columns: 128, vectors: 1, prefetches: false };
const PART: Stream = Stream { steps: 128, columns: 512, vectors: 1, prefetches: false };
const FAR_PART: Stream = Stream { steps: 32, columns: 512, vectors: 2, prefetches: true };

/// A fixed rule without measuring: vectors over the output channels (else the width), blocked
/// layouts where they fit, data read in place, constant weights packed, the largest register tile
/// of a few vectors by as many columns as the registers hold, tiles of columns and rows in
/// parallel, the reduction whole, rows of taps outermost in it. Of these the first that divides the
/// work among the threads evenly enough, else the one that does so most evenly.
///
/// The rule is near the least of what the analysis says: of all single knobs at given layouts, the
/// best change promises 3 % fewer cycles in the mean, and up to 12 %. Measured (AMD EPYC, family
/// 25, model 17, one thread, 2026-11-22, 28 layers and products of ResNet-18, MobileNet and the
/// matmul suite, 25 rounds in turns, medians) those choices were 1.003 times as fast, 0.991 to
/// 1.048, for hundreds of lowerings each; to go on from there as long as it promises 1 % was 1.003,
/// too, 0.984 to 1.068.
///
/// There is always one that keeps the rules: the last to be tried have a register tile of a single
/// vector, which fits the registers and the code, and a padded copy of the input, which any padding
/// can be written out to.
pub(super) fn default_point(roles: &Roles, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<Point> {
    let streaming = streaming_point(roles, target, space);
    streaming.or_else(|| row_point(roles, target, space)).or_else(|| usual_point(roles, target, space))
}

/// True for products of a few rows with a matrix that is read as it lies and exceeds the
/// first-level cache.
pub(super) fn streams(roles: &Roles, target: &CpuTarget) -> bool {
    let Contraction { weight, weight_is_constant, .. } = &roles.contraction;
    let rows = count(roles.contraction.equation(), &roles.axes.rows);
    let bytes = matrix_bytes(roles);
    let is_read_in_place = !weight_is_constant && weight.stride(roles.channel) == 1;
    let is_one_product = roles.is_product() && roles.batch.iter().all(|&axis| roles.extent(axis) == 1);
    is_one_product && is_read_in_place && rows <= FEW && bytes > target.l1d_bytes
}

fn matrix_bytes(roles: &Roles) -> usize {
    roles.factors[1].bytes() * roles.contraction.weight.shape.iter().product::<usize>()
}

/// A schedule that reads a few rows of the matrix side by side from beginning to end, and adds to
/// the output. A tile of a few columns and all steps would read a part of a page of every row.
fn streaming_point(roles: &Roles, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<Point> {
    if !streams(roles, target) {
        return None;
    }
    let rows = count(roles.contraction.equation(), &roles.axes.rows);
    let (columns, registers) = (roles.extent(roles.channel), target.isa.vector_registers());
    let bytes = matrix_bytes(roles);
    let is_far = bytes > target.l3_bytes / 2;
    let stream = match rows {
        ..=LIGHT if is_far => FAR,
        1 => STREAMED,
        ..=LIGHT if bytes <= target.l2_bytes => Stream { vectors: STREAMED.vectors, ..NEAR_PART },
        ..=LIGHT if rows == 2 || bytes > target.l3_bytes / 4 => STREAMED,
        ..=LIGHT => Stream { vectors: STREAMED.vectors, ..PART },
        _ if is_far => FAR_PART,
        _ if bytes <= target.l2_bytes => NEAR_PART,
        _ => PART,
    };
    let vectors = (1..=stream.vectors).rev().find(|vectors| (rows + 1) * vectors < registers)?;
    let of_thread = columns.div_ceil(target.threads).next_multiple_of(vectors * target.lanes());
    let most = if target.threads == 1 { stream.columns } else { stream.columns.min(of_thread) };

    let point = space.point_of(|knob| {
        let last = |fits: &dyn Fn(&[usize]) -> bool| {
            knob.values.iter().rposition(|value| matches!(value, Value::Tile(tile) if fits(tile)))
        };
        let (group, axis) = knob.name.split_once('.').unwrap_or((&knob.name, ""));
        let word = match (group, axis) {
            ("tile", axis) => {
                let axis = roles.contraction.axis(axis)?;
                return if axis == roles.channel {
                    last(&|tile| tile[1] == vectors * target.lanes() && tile[0] <= most)
                } else if roles.step == Some(axis) {
                    last(&|tile| tile[0] <= stream.steps)
                } else {
                    last(&|tile| tile[1] == roles.extent(axis))
                };
            }
            ("order", "") => {
                return order_of(knob, [Some(roles.channel), roles.step].map(|axis| Some(roles.name(axis?))));
            }
            ("order", _) => return Some(0),
            ("vector", _) => roles.name(roles.channel),
            ("unroll", _) => "8",
            ("parallel", _) => "1",
            ("prefetch", _) => {
                if stream.prefetches {
                    "1"
                } else {
                    "0"
                }
            }
            _ => "inplace",
        };
        knob.values.iter().position(|value| matches!(value, Value::Choice(other) if other == word))
    })?;
    Direct::with_roles(roles, target, &point).is_ok().then_some(point)
}

/// The first order that begins with some axes.
fn order_of(knob: &Knob, first: [Option<&str>; 2]) -> Option<usize> {
    let starts = |value: &Value| match value {
        Value::Order(names) => first.iter().flatten().zip(names).all(|(first, name)| first == name),
        _ => false,
    };
    knob.values.iter().position(starts)
}

/// A schedule of dot products of plain images whose vectors go along the rows, where the channels
/// of the result are no whole vectors. Vectors of channels would have unused lanes, too, and be
/// stored element by element.
fn row_point(roles: &Roles, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<Point> {
    let (lanes, (_, Factors { steps, .. })) = (target.lanes(), roles.dot(target)?);
    let width = roles.vectors(target).into_iter().find(|&axis| axis != roles.channel)?;
    if !roles.has_groups_of_channels(steps) || roles.blockable(block_size(target))[0] {
        return None;
    }
    let extent = roles.extent(width);
    let use_of_lanes = |extent: usize| extent as f64 / extent.next_multiple_of(lanes) as f64;
    if use_of_lanes(extent) < ROWS_OVER_CHANNELS * use_of_lanes(roles.extent(roles.channel)) {
        return None;
    }

    // The whole row, or vectors of it, a few if they divide it.
    let row = Some(extent).filter(|&extent| extent <= 4 * lanes);
    let vectors = [2 * lanes, lanes].into_iter().filter(|size| extent.is_multiple_of(*size));
    let tiles = row.into_iter().chain(vectors).chain([2 * lanes]);

    let rule = DefaultRule::of(roles, target, width);
    let of_rows = tiles.flat_map(|row| {
        let most = target.isa.vector_registers() / pieces(row, lanes);
        (1..=most).rev().flat_map(move |channels| PARALLEL.map(|parallel| (parallel, [channels, row])))
    });
    let mut points = of_rows.filter_map(|(parallel, tile)| {
        let vector = roles.name(width);
        rule.candidate(
            space,
            &[("vector", vector), ("data", "tile"), ("layout", "plain"), ("parallel", parallel)],
            tile,
        )
    });
    points.find(|point| {
        let direct = Direct::with_roles(roles, target, point);
        direct.is_ok_and(|direct| direct.largest_share(target) <= MAX_SHARE)
    })
}

fn usual_point(roles: &Roles, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<Point> {
    let lanes = target.lanes();
    let usual: Vec<DefaultRule> =
        roles.vectors(target).into_iter().map(|vector| DefaultRule::of(roles, target, vector)).collect();
    // Several rows of a tall kernel, each with its taps in the padding written out, may be too much
    // code.
    let flat: Vec<DefaultRule> =
        usual.iter().filter(|rule| rule.height > 1).map(|rule| DefaultRule { height: 1, ..rule.clone() }).collect();

    let mut best: Option<(f64, Point)> = None;
    let sizes = || [3 * lanes, 2 * lanes, lanes, 4, 2, 1].into_iter();
    for (rules, channels) in sizes().map(|size| (&usual, size)).chain(sizes().map(|size| (&flat, size))) {
        for rule in
            rules.iter().filter(|rule| channels <= rule.vectors * lanes && rule.is_whole(roles.channel, channels))
        {
            for alike in rule.candidates(space, channels) {
                for point in alike {
                    // What is wrong with a point is so however many loops are parallel.
                    let Ok(direct) = Direct::with_roles(roles, target, &point) else { break };
                    let share = direct.largest_share(target);
                    if share <= MAX_SHARE {
                        return Some(point);
                    }
                    if best.as_ref().is_none_or(|(least, _)| share < *least) {
                        best = Some((share, point));
                    }
                }
            }
        }
    }
    best.map(|(_, point)| point)
}

/// What the default schedule of a workload tries.
#[derive(Clone)]
struct DefaultRule<'a> {
    roles: &'a Roles,
    vector: AxisId,
    /// Most vectors of the register tile along the channels.
    vectors: usize,
    /// Largest register tile along the width (rows of a matrix product).
    width: usize,
    /// Register tile along the height.
    height: usize,
    /// Axis of the outermost loop over tiles.
    outermost: AxisId,
    unroll: &'static str,
    /// Elements of a vector register.
    lanes: usize,
    /// True if an instruction multiplies groups of steps.
    has_dot: bool,
    /// True if data is widened before it is multiplied.
    widens: bool,
}

impl<'r> DefaultRule<'r> {
    fn of(roles: &'r Roles, target: &CpuTarget, vector: AxisId) -> Self {
        // Neighbouring outputs of a depthwise convolution share what they read, those of others the
        // weights, too.
        let (vectors, width, height, unroll) = if roles.is_product() && target.isa.vector_registers() >= 32 {
            (3, 28, 1, "4")
        } else if roles.is_depthwise && vector == roles.channel {
            // The lanes of a blocked layout, whole.
            (block_size(target) / target.lanes(), 3, 3, "16")
        } else {
            (2, 28, 1, "4")
        };
        let width = if roles.is_product() { width.min(rows_in_ways(roles, target)) } else { width };
        let width = if has_steps_of_bf16(roles, target) { width.min(WIDTH_BESIDE_STEPS) } else { width };
        let outermost = if roles.contraction.weight_is_constant { roles.channel } else { roles.spatial[0] };
        let (lanes, has_dot, widens) = (target.lanes(), roles.dot(target).is_some(), roles.widens(target));
        Self { roles, vector, vectors, width, height, outermost, unroll, lanes, has_dot, widens }
    }

    /// False for `size` elements of an axis that vectors run along without being whole there.
    fn is_whole(&self, axis: AxisId, size: usize) -> bool {
        axis != self.vector || size.is_multiple_of(self.lanes) || size >= self.roles.contraction.axes[axis].extent
    }

    /// The combinations that the knobs have with a register tile of some channels, the best first;
    /// together those that differ only by how many loops are parallel.
    fn candidates<'a>(
        &'a self,
        space: &'a Arc<KnobSpace>,
        channels: usize,
    ) -> impl Iterator<Item = impl Iterator<Item = Point> + 'a> + 'a {
        let blocked = Value::Choice("blocked".into());
        let is_blockable = space.knobs.iter().any(|knob| knob.values.contains(&blocked));
        let fits = move |data: &(&str, &str)| is_blockable || data.0 == "plain";
        let mut data = DEFAULT_DATA.to_vec();
        data.retain(|data| fits(data) && (self.has_dot || *data != DOT_DATA));
        if self.widens {
            data.sort_by_key(|data| data.1 != "tile");
        }
        if self.has_dot {
            data.sort_by_key(|data| data.1 == "copy");
        }
        let is_whole = |width: &usize| self.roles.width.is_none_or(|axis| self.is_whole(axis, *width));
        let widths = data
            .into_iter()
            .flat_map(move |data| (1..=self.width).rev().filter(is_whole).map(move |width| (data, width)));
        widths.map(move |((layout, data), width)| {
            PARALLEL.into_iter().filter_map(move |parallel| {
                let vector = self.roles.name(self.vector);
                let words = [("vector", vector), ("data", data), ("layout", layout), ("parallel", parallel)];
                self.candidate(space, &words, [channels, width])
            })
        })
    }

    /// The combination with the given words and register tile, if the knobs have it.
    fn candidate(
        &self,
        space: &Arc<KnobSpace>,
        words: &[(&str, &str)],
        [channels, width]: [usize; 2],
    ) -> Option<Point> {
        let roles = self.roles;
        let outermost_tap = roles.axes.taps().next();
        space.point_of(|knob| {
            let position =
                |word: &str| knob.values.iter().position(|v| matches!(v, Value::Choice(other) if other == word));
            let (group, axis) = knob.name.split_once('.').unwrap_or((&knob.name, ""));
            match (group, axis) {
                ("tile", axis) => self.tile(knob, roles.contraction.axis(axis)?, [channels, width]),
                ("order", "reduce") => Some(outermost_tap.map_or(0, |tap| starting_with(knob, roles.name(tap)))),
                // What is copied to be multiplied is for all channels.
                ("order", "") if (self.has_dot || self.widens) && words[1].1 != "inplace" => {
                    let last = ending_with(knob, roles.name(roles.channel));
                    last.or_else(|| Some(starting_with(knob, roles.name(self.outermost))))
                }
                ("order", "") => Some(starting_with(knob, roles.name(self.outermost))),
                // Vectors need weights that lie side by side.
                ("weights", _) if self.has_dot || roles.contraction.weight.stride(self.vector) > 1 => {
                    position("packed")
                }
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

    /// The tile of an axis, if the knob has it.
    fn tile(&self, knob: &Knob, axis: AxisId, [channels, width]: [usize; 2]) -> Option<usize> {
        let roles = self.roles;
        if axis == roles.channel {
            widest(knob, channels)
        } else if roles.step == Some(axis) {
            Some(knob.values.len() - 1)
        } else if roles.width == Some(axis) {
            whole(knob, width)
        } else if roles.is_product() {
            widest(knob, width).filter(|&i| is_register_tile(&knob.values[i], width))
        } else {
            widest(knob, self.height)
        }
    }
}

/// True if a convolution's sums of dot products go through more than sums, products and maxima with
/// elements of bf16, which are loaded to registers of their own: where few are left, partial sums
/// would go to the stack and back for each vector that is stored.
fn has_steps_of_bf16(roles: &Roles, target: &CpuTarget) -> bool {
    let Contraction { spec, tail, .. } = &roles.contraction;
    let value = &spec.equations[*tail].value;
    let takes_steps = |value: &Expr| match value {
        Expr::Binary(op, _) => !matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max),
        Expr::Load(_) | Expr::Const(_) => false,
        _ => true,
    };
    let mut is_bf16 = false;
    value.for_each_load(&mut |access| is_bf16 |= spec.tensor(access).dtype == DType::Bf16);
    is_bf16 && !roles.is_product() && roles.dot(target).is_some() && value.any(&takes_steps)
}

/// Most rows of data that the first-level cache holds a line of each, read in place. Rows whose
/// distance is a large power of two compete for the same few lines.
fn rows_in_ways(roles: &Roles, target: &CpuTarget) -> usize {
    let data = &roles.contraction.data;
    let rows = roles.spatial.iter().filter(|&&axis| axis != roles.channel);
    let distance = rows.map(|&axis| roles.factors[0].bytes() * data.stride(axis).unsigned_abs() as usize).max();
    let way = (target.l1d_bytes / WAYS).max(1);
    // The power of two in the distance, at most a way.
    let shared = distance.map_or(1, |bytes| 1 << bytes.trailing_zeros().min(way.ilog2()));
    WAYS * (way / shared)
}

/// The first order whose outermost axis is `axis`. With `kh` outermost in the reduction the weights
/// are read in one go even where some rows of taps lie in the padding.
fn starting_with(knob: &Knob, axis: &str) -> usize {
    let first = |v: &Value| matches!(v, Value::Order(axes) if axes.first().is_some_and(|a| a == axis));
    knob.values.iter().position(first).unwrap_or(0)
}

/// The first order whose innermost axis is `axis`.
fn ending_with(knob: &Knob, axis: &str) -> Option<usize> {
    let last = |v: &Value| matches!(v, Value::Order(axes) if axes.last().is_some_and(|a| a == axis));
    knob.values.iter().position(last)
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
