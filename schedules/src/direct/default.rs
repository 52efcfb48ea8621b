//! The default schedule of the direct sketch, chosen without measuring.

use std::sync::Arc;

use super::balance::{BalancedChoice, MAX_SHARE};
use super::tile_default::tile_point;
use super::{Direct, Roles, block_size};
use crate::config::KnobValue;
use crate::contraction::{AxisId, Contraction};
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use autotune_ir::DType;
use autotune_ir::analyse::pieces;
use autotune_ir::instruction::Factors;
use autotune_ir::program::{BinaryOp, Expr};
use autotune_ir::target::CpuTarget;
use autotune_workloads::axes::{FEW, count};

/// Layouts and data modes, in the order in which the default tries them.
const DEFAULT_DATA: [(&str, &str); 7] = [
    ("blocked", "inplace"),
    ("blocked", "copy"),
    ("blocked", "tile"),
    ("plain", "inplace"),
    ("plain", "copy"),
    ("plain", "tile"),
    DOT_DATA,
];
/// Layout and data mode for dot products only, whose reduction steps are not adjacent in the plain
/// layout.
const DOT_DATA: (&str, &str) = ("plain", "panel");

/// Numbers of parallel loops, in the order in which the default tries them.
pub(super) const PARALLEL: [&str; 3] = ["2", "1", "3"];
/// Largest register tile along the width that leaves registers for the epilogue's operands.
const WIDTH_BESIDE_STEPS: usize = 8;
/// Ratio of lane utilisation, vectors along rows over vectors along channels, from which on rows
/// are faster.
const ROWS_OVER_CHANNELS: f64 = 0.75;

/// Lower bound of the associativity (ways) of first-level caches.
const WAYS: usize = 8;
/// Maximum number of data rows for which reading a matrix from memory takes longer than multiplying
/// by it.
const LIGHT: usize = 4;

/// Parameters for reading a matrix in place: steps and columns of a cache tile, maximum vectors of
/// a register tile, and whether the next steps are prefetched.
struct Stream {
    steps: usize,
    columns: usize,
    vectors: usize,
    prefetches: bool,
}

/// Several whole rows at once, which hardware prefetching follows.
const STREAMED: Stream = Stream { steps: 8, columns: usize::MAX, vectors: 4, prefetches: false };
/// Whole rows from memory with software prefetches, because hardware prefetching stops at page
/// boundaries.
const FAR: Stream = Stream { steps: 4, columns: usize::MAX, vectors: 1, prefetches: true };
/// Parts of the matrix, so that more steps are summed in registers where arithmetic takes as long
/// as memory. The three are for a matrix in the second-level cache, in the third-level cache, and
/// in memory.
const NEAR_PART: Stream = Stream { steps: 512, columns: 128, vectors: 1, prefetches: false };
const PART: Stream = Stream { steps: 128, columns: 512, vectors: 1, prefetches: false };
const FAR_PART: Stream = Stream { steps: 32, columns: 512, vectors: 2, prefetches: true };

/// Returns the default schedule by a fixed rule without measuring. The rule vectorises over the
/// output channels (else the width) and uses blocked layouts where they fit. It reads data in place
/// and packs constant weights. The register tile is the largest one of a few vectors by as many
/// columns as the registers hold. Tiles of columns and rows are parallel; the reduction is whole,
/// with rows of taps outermost. The rule takes the first such schedule that divides the work evenly
/// among the threads, else the most even one.
///
/// The rule is near the minimum of the analysis: of all changes to a single knob at given layouts,
/// the best one predicts 3 % fewer cycles on average and 12 % at most. Measured, those changes were
/// 1.003 times as fast (0.991 to 1.048), for hundreds of lowerings each. Repeating such changes
/// while they predict a gain of 1 % was 1.003 times as fast, too (0.984 to 1.068). The measurements
/// are medians of 25 rounds of interleaved timing, for 28 layers and products of ResNet-18,
/// MobileNet and the matmul suite, on one thread of an AMD EPYC (family 25, model 17), 2026-11-22.
///
/// At least one schedule keeps the rules. The last ones to be tried have a register tile of a
/// single vector, which fits the registers and the code size, and a padded copy of the input, which
/// supports any padding.
pub(super) fn default_point(roles: &Roles, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<KnobIndices> {
    let streaming = streaming_point(roles, target, space).or_else(|| tile_point(roles, target, space));
    streaming.or_else(|| row_point(roles, target, space)).or_else(|| usual_point(roles, target, space))
}

/// True for products of a few rows with a matrix that is read in place and exceeds the first-level
/// cache.
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

/// Returns a schedule that reads a few rows of the matrix at once from beginning to end, and adds
/// to the output. A tile of a few columns and all steps would read only a part of a page from every
/// row.
fn streaming_point(roles: &Roles, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<KnobIndices> {
    if !streams(roles, target) {
        return None;
    }
    let rows = count(roles.contraction.equation(), &roles.axes.rows);
    let (columns, registers) = (roles.extent(roles.channel), target.isa.vector_registers());
    let bytes = matrix_bytes(roles);
    let is_far = bytes > target.l3_bytes / 2;

    // Few rows are bound by memory: long contiguous reads matter. More rows are bound by
    // arithmetic: sums should stay in registers.
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

    // The sums, and one weight vector per vector of columns, must fit the registers.
    let vectors = (1..=stream.vectors).rev().find(|vectors| (rows + 1) * vectors < registers)?;
    let of_thread = columns.div_ceil(target.threads).next_multiple_of(vectors * target.lanes());
    let most = if target.threads == 1 { stream.columns } else { stream.columns.min(of_thread) };

    let point = space.point_of(|knob| {
        let last = |fits: &dyn Fn(&[usize]) -> bool| {
            knob.values.iter().rposition(|value| matches!(value, KnobValue::Tile(tile) if fits(tile)))
        };
        let (group, axis) = knob.parts();
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
        knob.position_of(word)
    })?;
    Direct::with_roles(roles, target, &point).is_ok().then_some(point)
}

/// Returns the first order that begins with the given axes.
fn order_of(knob: &Knob, first: [Option<&str>; 2]) -> Option<usize> {
    let starts = |value: &KnobValue| match value {
        KnobValue::Order(names) => first.iter().flatten().zip(names).all(|(first, name)| first == name),
        _ => false,
    };
    knob.values.iter().position(starts)
}

/// Returns a schedule of dot products of plain images that is vectorised along the rows, for output
/// channels that are not whole vectors. Vectors along such channels would also have unused lanes,
/// and they would be stored element by element.
fn row_point(roles: &Roles, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<KnobIndices> {
    let (lanes, (_, Factors { steps, .. })) = (target.lanes(), roles.dot(target)?);
    let width = roles.vectors(target).into_iter().find(|&axis| axis != roles.channel)?;
    if !roles.has_images(steps) || roles.blockable(block_size(target))[0] {
        return None;
    }
    let extent = roles.extent(width);
    let use_of_lanes = |extent: usize| extent as f64 / extent.next_multiple_of(lanes) as f64;
    if use_of_lanes(extent) < ROWS_OVER_CHANNELS * use_of_lanes(roles.extent(roles.channel)) {
        return None;
    }

    // Candidates are the whole row, one or two vectors that divide it, and last two vectors in any
    // case.
    let row = Some(extent).filter(|&extent| extent <= 4 * lanes);
    let vectors = [2 * lanes, lanes].into_iter().filter(|size| extent.is_multiple_of(*size));
    let tiles = row.into_iter().chain(vectors).chain([2 * lanes]);

    let rule = DefaultRule::of(roles, target, width);
    let of_rows = tiles.flat_map(|row| {
        // The tile has a row of sums in registers for each channel.
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

/// Returns the usual schedule: the first that balances the load, else the one that balances it
/// best.
fn usual_point(roles: &Roles, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<KnobIndices> {
    let lanes = target.lanes();
    let usual: Vec<DefaultRule> =
        roles.vectors(target).into_iter().map(|vector| DefaultRule::of(roles, target, vector)).collect();
    // Fallback: several rows of a tall kernel may be too much code, as each row has its padding
    // taps written out.
    let flat: Vec<DefaultRule> =
        usual.iter().filter(|rule| rule.height > 1).map(|rule| DefaultRule { height: 1, ..rule.clone() }).collect();

    let mut choice = BalancedChoice::new(roles, target);
    // Wide register tiles reuse data best; a single channel always fits.
    let sizes = || [3 * lanes, 2 * lanes, lanes, 4, 2, 1].into_iter();
    for (rules, channels) in sizes().map(|size| (&usual, size)).chain(sizes().map(|size| (&flat, size))) {
        for rule in
            rules.iter().filter(|rule| channels <= rule.vectors * lanes && rule.is_whole(roles.channel, channels))
        {
            for alike in rule.candidates(space, channels) {
                if let Some(point) = choice.first(alike, |_| true) {
                    return Some(point);
                }
            }
        }
    }
    choice.best()
}

/// Parameters of the usual default schedule of a workload.
#[derive(Clone)]
struct DefaultRule<'a> {
    roles: &'a Roles,
    vector: AxisId,
    /// Maximum vectors of the register tile along the channels.
    vectors: usize,
    /// Largest register tile along the width (rows of a matrix product).
    width: usize,
    /// Largest register tile along the height.
    height: usize,
    /// Axis of the outermost loop over cache tiles.
    outermost: AxisId,
    unroll: &'static str,
    /// Number of f32 elements in a vector register.
    lanes: usize,
    /// True if an instruction multiplies groups of steps.
    has_dot: bool,
    /// True if data is widened before it is multiplied.
    widens: bool,
}

impl<'r> DefaultRule<'r> {
    fn of(roles: &'r Roles, target: &CpuTarget, vector: AxisId) -> Self {
        // Adjacent outputs of a depthwise convolution share inputs, so that square tiles pay.
        // Outputs of other convolutions also share weights, so that long tiles pay.
        let (vectors, width, height, unroll) = if roles.is_product() && target.isa.vector_registers() >= 32 {
            (3, 28, 1, "4")
        } else if roles.is_depthwise && vector == roles.channel {
            // A tile along the channels is a whole block of the blocked layout.
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

    /// True unless vectors run along `axis` and `size` elements are neither whole vectors nor the
    /// whole axis.
    fn is_whole(&self, axis: AxisId, size: usize) -> bool {
        axis != self.vector || size.is_multiple_of(self.lanes) || size >= self.roles.contraction.axes[axis].extent
    }

    /// Returns the points with a register tile of some channels, the best first. Points that differ
    /// only in the number of parallel loops are grouped.
    fn candidates<'a>(
        &'a self,
        space: &'a Arc<KnobSpace>,
        channels: usize,
    ) -> impl Iterator<Item = impl Iterator<Item = KnobIndices> + 'a> + 'a {
        let blocked = KnobValue::Choice("blocked".into());
        let is_blockable = space.knobs.iter().any(|knob| knob.values.contains(&blocked));
        let fits = move |data: &(&str, &str)| is_blockable || data.0 == "plain";

        let mut data = DEFAULT_DATA.to_vec();
        data.retain(|data| fits(data) && (self.has_dot || *data != DOT_DATA));
        // A copy widens each element once, and a tile's copy stays in the cache.
        if self.widens {
            data.sort_by_key(|data| data.1 != "tile");
        }
        // The sort is stable: copies of the whole input come last.
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

    /// Returns the point with the given words and register tile, if the space has it.
    fn candidate(
        &self,
        space: &Arc<KnobSpace>,
        words: &[(&str, &str)],
        [channels, width]: [usize; 2],
    ) -> Option<KnobIndices> {
        let roles = self.roles;
        let outermost_tap = roles.axes.taps().next();

        space.point_of(|knob| {
            let position = |word: &str| knob.position_of(word);
            match knob.parts() {
                ("tile", axis) => self.tile(knob, roles.contraction.axis(axis)?, [channels, width]),
                ("order", "reduce") => Some(outermost_tap.map_or(0, |tap| starting_with(knob, roles.name(tap)))),
                // A copied tile is reused by all channels if their loop is innermost.
                ("order", "") if (self.has_dot || self.widens) && words[1].1 != "inplace" => {
                    let last = ending_with(knob, roles.name(roles.channel));
                    last.or_else(|| Some(starting_with(knob, roles.name(self.outermost))))
                }
                ("order", "") => Some(starting_with(knob, roles.name(self.outermost))),
                // Vector loads need weights that are contiguous along the vectorised axis.
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

    /// Returns the index of an axis's tile among the values of its knob.
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

/// True if the epilogue of a convolution by dot products has bf16 operands and operations other
/// than sum, product and max. Such operands are loaded into registers of their own. With few
/// registers left, partial sums would be spilled to the stack for each stored vector.
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

/// Returns the maximum number of data rows of which the first-level cache holds one line each. Rows
/// whose distance is a multiple of a large power of two compete for the same few lines.
fn rows_in_ways(roles: &Roles, target: &CpuTarget) -> usize {
    let data = &roles.contraction.data;
    let rows = roles.spatial.iter().filter(|&&axis| axis != roles.channel);
    let distance = rows.map(|&axis| roles.factors[0].bytes() * data.stride(axis).unsigned_abs() as usize).max();
    let way = (target.l1d_bytes / WAYS).max(1);
    // The largest power of two that divides the distance, at most the size of one way.
    let shared = distance.map_or(1, |bytes| 1 << bytes.trailing_zeros().min(way.ilog2()));
    WAYS * (way / shared)
}

/// Returns the index of the first order whose outermost axis is `axis`. With `kh` outermost in the
/// reduction, the weights are read sequentially even where some rows of taps are in the padding.
pub(super) fn starting_with(knob: &Knob, axis: &str) -> usize {
    let first = |v: &KnobValue| matches!(v, KnobValue::Order(axes) if axes.first().is_some_and(|a| a == axis));
    knob.values.iter().position(first).unwrap_or(0)
}

/// Returns the index of the first order whose innermost axis is `axis`.
pub(super) fn ending_with(knob: &Knob, axis: &str) -> Option<usize> {
    let last = |v: &KnobValue| matches!(v, KnobValue::Order(axes) if axes.last().is_some_and(|a| a == axis));
    knob.values.iter().position(last)
}

fn is_register_tile(value: &KnobValue, size: usize) -> bool {
    matches!(value, KnobValue::Tile(t) if t.last() == Some(&size))
}

/// Returns the index of the largest register tile up to `limit` whose cache tile has the same size.
fn widest(knob: &Knob, limit: usize) -> Option<usize> {
    let fits = |v: &KnobValue| matches!(v, KnobValue::Tile(t) if t.len() == 2 && t[0] == t[1] && t[1] <= limit);
    knob.values.iter().rposition(fits)
}

/// Returns the index of the given register tile with the cache tile that covers the axis.
fn whole(knob: &Knob, register: usize) -> Option<usize> {
    knob.values.iter().rposition(|v| matches!(v, KnobValue::Tile(t) if t.len() == 2 && t[1] == register))
}
