//! Schedule that is chosen without measuring.

use std::sync::Arc;

use super::chain::Chain;
use super::storing::{self, Storing};
use super::tasks::{TASKS, parallel_loops};
use super::{MapReduce, SPARE_REGISTERS, knobs, layouts};
use crate::config::KnobValue;
use crate::direct::block_size;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use autotune_ir::program::{Access, Expr};
use autotune_ir::spec::{Axis, AxisId, Equation, Spec, TensorSource};
use autotune_ir::target::CpuTarget;
use autotune_ir::{Affine, VarId};
use autotune_workloads::axes::{Axes, FEW};

/// Results of a tile along the last row of plain tensors.
const RESULTS: usize = 4;
/// Vectors of a tile whose results are looked up in a table: as many as are packed.
const LOOKED_UP: usize = 4;
/// Results of a tile of channel-blocked images, as blocks of channels, rows and columns; the first
/// that fits into registers is chosen.
const NEIGHBOURS: [[usize; 3]; 3] = [[2, 2, 4], [1, 2, 4], [1, 2, 2]];
/// Unroll factors of loops inside a tile. For channel-blocked images the first that covers the
/// window is chosen, or the largest.
const UNROLLED: [usize; 3] = [4, 8, 16];
/// Least extent of the written axis for which the inner loop goes over blocks that are adjacent in
/// the result.
const LEAST_SQUARE: usize = 8;
/// Numbers of rows that permutations interleave.
const WOVEN: [usize; 3] = [3, 5, 7];
/// f32 elements of a memory page, at whose end hardware prefetching stops.
const PAGE: usize = 1 << 10;
/// Accumulators of a tile in cache.
const IN_CACHE: usize = 1 << 13;
/// Reduction steps of a product with several vectors from which on the final reduction of lanes no
/// longer matters.
const LEAST_STEPS: usize = 64;
/// Rows of a matrix that are read concurrently if several vectors are in the first-level cache.
const STREAMS: usize = 3;

/// Returns the default schedule of a chain: the first valid one of these rules.
///
/// - Images whose channels are a multiple of a block have blocked layouts. A tile is two by four
///   results of two blocks, whose windows share most elements.
/// - A transpose has square blocks of a vector's lanes.
/// - Vectors go along the result's contiguous axis if an operand is contiguous there, too, in tiles
///   of up to two vectors, or four if they are looked up in a table. Column sums larger than the
///   cache have tiles of whole rows, and of several rows if the reduction has further axes around
///   them.
/// - Otherwise vectors go along a reduced axis, for four results at a time; larger than the cache
///   for one, unless rows are short. A window row that is not a multiple of a vector is one wide
///   vector.
///
/// As many loops are parallel as keep every thread busy, none if there is little work. Operands
/// that exceed the second-level cache are prefetched a tile ahead.
pub(super) fn default_point(spec: &Arc<Spec>, cpu: &CpuTarget, space: &Arc<KnobSpace>) -> Option<KnobIndices> {
    let chain = Chain::of(spec)?;
    let blocked = layouts::blockable(&chain, block_size(cpu)).into_iter();
    let blocked =
        blocked.flat_map(|channel| NEIGHBOURS.map(|tile| ChainDefault::of_blocks(&chain, channel, tile, cpu)));
    let plain =
        || if chain.is_product() { ChainDefault::of_product(&chain, cpu) } else { ChainDefault::plain(&chain, cpu) };
    let transposing = transposed(&chain).map(|axes| ChainDefault::of_transpose(&chain, axes, cpu));
    let rules = blocked.chain(transposing).chain([plain(), ChainDefault { width: 1, ..plain() }]);
    let mut points = rules.filter_map(|rule| rule.point(&chain, cpu, space));
    points.find(|point| is_valid(spec, cpu, point)).or_else(|| Some(space.point(|_| 0)))
}

/// True for copies that read along another axis than they write.
pub(super) fn is_transpose(spec: &Arc<Spec>) -> bool {
    Chain::of(spec).is_some_and(|chain| transposed(&chain).is_some())
}

/// True for products with a few vectors that are slower with the register tiles of the direct
/// sketch. These are products with a single column, for which a register tile has one lane, and
/// products along a long reduction axis whose columns fill no register or whose matrix is not
/// packed ahead of time.
pub(super) fn beats_direct(spec: &Arc<Spec>, cpu: &CpuTarget) -> bool {
    let Some(chain) = Chain::of(spec).filter(Chain::is_product) else { return false };
    let (Some(axes), [_, weight]) = (Axes::of(spec), &chain.last().loads()[..]) else { return false };
    let main = spec.main();
    let is_of_columns = axes.few(main) == Some(1);
    let is_of_vector = axes.is_of_vector(main);
    if is_of_columns && is_of_vector {
        return true;
    }
    // Only vectors along the reduction axis outdo register tiles.
    let goes_along_row = chain.row_axes().iter().any(|axis| axis.name == vector_of(&chain));
    let is_long = is_of_vector || main.reduction_len() >= LEAST_STEPS;
    // Transposed columns that exceed the second-level cache would be loaded again for every few
    // rows.
    let weight = spec.tensor(weight);
    let bytes = weight.bytes();
    let is_far = weight.source == TensorSource::Computed && bytes > cpu.l2_bytes;
    !goes_along_row && is_long && !is_far && (is_of_columns || !weight.is_constant())
}

/// Returns the rows along which a copy writes and reads, if they differ.
fn transposed(chain: &Chain) -> Option<[AxisId; 2]> {
    let is_copy = matches!(chain.passes(), [pass] if !pass.reduces() && matches!(pass.value, Expr::Load(_)));
    let named = |name: &str| chain.row_axes().iter().position(|axis| axis.name == name);
    let written = named(vector_of(chain)).filter(|_| is_copy)?;
    let read = knobs::tiled(chain).find(|&axis| reads_along(chain, chain.row_axes()[axis].name))?;
    (written != read).then_some([written, read])
}

fn is_valid(spec: &Arc<Spec>, cpu: &CpuTarget, point: &KnobIndices) -> bool {
    matches!(MapReduce::new(spec, cpu, point), Ok(Some(_)))
}

/// Returns the point with tiles of `positions` along the last two rows and vectors of `width`
/// registers; [`default_point`] if that is not valid.
pub(super) fn point_of_rows(
    spec: &Arc<Spec>,
    cpu: &CpuTarget,
    space: &Arc<KnobSpace>,
    (positions, width): ([usize; 2], usize),
) -> Option<KnobIndices> {
    let chain = Chain::of(spec)?;
    let mut rule = ChainDefault { width, tiles: vec![1; chain.rows], ..ChainDefault::plain(&chain, cpu) };
    let tiled: Vec<AxisId> = knobs::tiled(&chain).collect();
    tiled.iter().rev().zip(positions.iter().rev()).for_each(|(&axis, &most)| rule.tiles[axis] = most);

    let loops = chain.row_axes().iter().zip(&rule.tiles).map(|(axis, tile)| axis.extent.div_ceil(*tile));
    rule.parallel = parallel_loops(&chain, loops, cpu);
    let point = rule.point(&chain, cpu, space).filter(|point| is_valid(spec, cpu, point));
    point.or_else(|| default_point(spec, cpu, space))
}

/// Wanted values of the knobs of a default schedule.
struct ChainDefault {
    vector: &'static str,
    layout: &'static str,
    /// Row of the outermost loop among those whose order is a knob; `None` keeps the first.
    outermost: Option<AxisId>,
    /// Largest number of positions of a tile along each row.
    tiles: Vec<usize>,
    parallel: usize,
    /// Registers of a vector along a reduced axis.
    width: usize,
    unroll: usize,
    /// True if the next tile is prefetched.
    prefetches: bool,
}

impl ChainDefault {
    /// Returns the rule for channel-blocked images: tiles of neighbouring results along the
    /// channels and the last two rows. If there are too few blocks for the threads, the loop over
    /// image rows is outermost: anywhere else, padding would split it into several loops, which
    /// cannot be parallel together.
    fn of_blocks(chain: &Chain, channel: AxisId, [blocks, above, beside]: [usize; 3], cpu: &CpuTarget) -> Self {
        let (rows, block) = (chain.row_axes(), block_size(cpu));
        let pixels: Vec<AxisId> = knobs::tiled(chain).filter(|&axis| axis > channel).collect();
        let of_channels = rows[..=channel].iter().map(|axis| axis.extent).product::<usize>() / block;
        let (is_few, is_scarce) = match cpu.threads {
            1 => (false, false),
            threads => (of_channels < TASKS * threads, of_channels < blocks * TASKS * threads),
        };

        let mut tiles = vec![1; chain.rows];
        pixels.iter().rev().zip([beside, above]).for_each(|(&axis, most)| tiles[axis] = most);
        tiles[channel] = if is_scarce { block } else { blocks * block };
        let outermost = pixels.first().copied().filter(|_| is_few);
        let mut order: Vec<AxisId> = (0..chain.rows).collect();
        order.sort_by_key(|&axis| Some(axis) != outermost);
        let parallel = parallel_loops(chain, order.iter().map(|&axis| rows[axis].extent.div_ceil(tiles[axis])), cpu);
        let own = &chain.last().axes[chain.rows..];
        let taps: usize = own.iter().filter(|axis| axis.reduce).map(|axis| axis.extent).product();
        let unroll = UNROLLED.into_iter().find(|&unroll| unroll >= taps).unwrap_or(UNROLLED[2]);
        let (vector, prefetches) = (rows[channel].name, is_beyond_cache(chain, cpu));
        Self { vector, layout: "blocked", outermost, tiles, parallel, width: 1, unroll, prefetches }
    }

    fn plain(chain: &Chain, cpu: &CpuTarget) -> Self {
        let (rows, vector, is_beyond_cache) = (chain.row_axes(), vector_of(chain), is_beyond_cache(chain, cpu));
        let of_rows = rows.iter().any(|axis| axis.name == vector);
        let last = knobs::tiled(chain).last().map(|axis| rows[axis].name);
        let reads_whole_rows = is_beyond_cache && reads_whole_rows(chain, vector, cpu);
        let is_scattered = of_rows && !reads_along(chain, vector);
        // Consecutive rows are read in order; for a few vectors the sums of several rows share one
        // reduction of lanes.
        let is_short = row_elements(chain) <= RESULTS * cpu.lanes();
        let most = |(number, axis): (AxisId, &'static str)| match axis == vector {
            true if is_scattered => cpu.lanes(),
            true if reads_whole_rows => usize::MAX,
            true if looks_up(chain) => LOOKED_UP * cpu.lanes(),
            true => 2 * cpu.lanes(),
            false if is_beyond_cache && knobs::is_inside(chain, number) => rows_of_tile(chain, vector, cpu),
            false if is_scattered && reads_along(chain, axis) => cpu.lanes(),
            false if !of_rows && last == Some(axis) && (!is_beyond_cache || is_short) => RESULTS,
            false => 1,
        };

        let tiles = rows.iter().map(|axis| axis.name).enumerate().map(most).collect();
        let parallel = parallel_loops(chain, rows.iter().map(|axis| axis.extent), cpu);
        let width = width(chain, vector, cpu.lanes());
        // Hardware prefetching serves a single pass over long rows already.
        let is_one_pass = matches!(chain.passes(), [pass] if pass.reduces());
        let prefetches = is_beyond_cache && (of_rows || !is_one_pass || row_elements(chain) <= PAGE);
        let unroll = UNROLLED[0];
        Self { vector, layout: "plain", outermost: None, tiles, parallel, width, unroll, prefetches }
    }

    /// Returns the rule for a product with a few vectors. With vectors along the reduction axis, a
    /// tile has all vectors and as many rows of the matrix as registers hold sums for. Long rows
    /// from memory each start on a page of their own, where hardware prefetching starts anew, so
    /// that the next tile's rows are prefetched. Shorter rows are read in sequence.
    fn of_product(chain: &Chain, cpu: &CpuTarget) -> Self {
        let mut rule = Self { prefetches: false, ..Self::plain(chain, cpu) };
        let rows = chain.row_axes();
        if let Some(axis) = rows.iter().position(|axis| axis.name == rule.vector) {
            let of_task = rows[axis].extent / (TASKS * cpu.threads);
            rule.tiles[axis] = if cpu.threads == 1 { usize::MAX } else { of_task.max(2 * cpu.lanes()) };
            return rule;
        }

        let Some(many) = (0..rows.len()).max_by_key(|&axis| rows[axis].extent) else { return rule };
        let others = rows.iter().enumerate().filter(|(axis, _)| *axis != many);
        let few: usize = others.map(|(_, axis)| axis.extent).product();
        let widest = chain.spec.operands().map(|tensor| tensor.dtype.bytes()).max().unwrap_or(1);
        let row_bytes = widest * chain.last().reduction_len();
        let (bytes, is_near) = (row_bytes * rows[many].extent, row_bytes * few < cpu.l1d_bytes / 2);
        let is_far = bytes > cpu.l3_bytes / 2;
        let is_short = chain.last().reduction_len() < PAGE;
        let registers = cpu.isa.vector_registers();
        // Largest numbers of results and of matrix rows of a tile.
        let (results, most) = match few {
            _ if is_far && is_short => (few, 1),
            1 if is_far => (FEW, FEW),
            1 if bytes > 2 * cpu.l2_bytes => (1, 1),
            1 => (RESULTS, RESULTS),
            _ if is_near && !is_far => (registers / 2, STREAMS),
            _ => (registers - SPARE_REGISTERS - RESULTS, FEW),
        };
        let tile = (results / few).min(most).min(rows[many].extent / (TASKS * cpu.threads)).max(1);
        rule.tiles = (0..rows.len()).map(|axis| if axis == many { tile } else { rows[axis].extent }).collect();
        rule.prefetches = is_far && !is_short;
        rule.width = (2 * RESULTS / (tile * few)).clamp(1, RESULTS);
        rule.unroll = if few == 1 { UNROLLED[2] } else { UNROLLED[1] };
        rule
    }

    /// Returns the rule for a transpose: square blocks of a vector's lanes, with neighbouring
    /// blocks of the result in sequence. Fewer elements than lanes are transposed as a power of
    /// two, and 3, 5 or 7 rows are interleaved whole.
    fn of_transpose(chain: &Chain, [written, read]: [AxisId; 2], cpu: &CpuTarget) -> Self {
        let (rows, lanes) = (chain.row_axes(), cpu.lanes());
        let extent = rows[written].extent;
        let (vector, of_written, of_read) = match WOVEN.contains(&extent) {
            true => (read, extent, 2 * lanes),
            false => (written, lanes.min(1 << extent.ilog2()), lanes),
        };
        let mut tiles = vec![1; chain.rows];
        (tiles[written], tiles[read]) = (of_written, of_read);

        // A loop with a single tile still counts as a loop with two iterations, unless the axis has
        // one.
        let tiles_along = |(axis, tile): (&Axis, &usize)| axis.extent.div_ceil(*tile).max(2).min(axis.extent);
        let parallel = parallel_loops(chain, rows.iter().zip(&tiles).map(tiles_along), cpu);
        // On one thread, all blocks next to a narrow axis form one loop.
        let is_narrow = extent == of_written || extent < LEAST_SQUARE;
        let first = if is_narrow && (cpu.threads == 1 || parallel == 0) { written } else { read };
        let outermost = Some(first).filter(|_| knobs::tiled(chain).count() == 2);
        let (vector, unroll, prefetches) = (rows[vector].name, UNROLLED[0], is_beyond_cache(chain, cpu));
        Self { vector, layout: "plain", outermost, tiles, parallel, width: 1, unroll, prefetches }
    }

    /// Returns the point of the rule, with the largest offered tiles that are not larger than its
    /// own.
    fn point(&self, chain: &Chain, cpu: &CpuTarget, space: &Arc<KnobSpace>) -> Option<KnobIndices> {
        space.point_of(|knob| {
            let word = match knob.name.as_str() {
                "vector" => self.vector.to_string(),
                "parallel" => self.parallel.to_string(),
                "layout.in" | "layout.out" => self.layout.to_string(),
                "unroll" => self.unroll.to_string(),
                "width" => self.width.to_string(),
                "prefetch" => u8::from(self.prefetches).to_string(),
                storing::KNOB => Storing::unmeasured(chain, cpu).word().to_string(),
                "order" => {
                    return Some(self.outermost.map_or(0, |axis| starting_with(knob, chain.row_axes()[axis].name)));
                }
                name => {
                    let is_named = |axis: &AxisId| name.strip_prefix("tile.") == Some(chain.row_axes()[*axis].name);
                    let most = (0..chain.rows).find(is_named).map_or(1, |axis| self.tiles[axis]);
                    let fits = |value: &KnobValue| matches!(value, KnobValue::Tile(tile) if tile[0] <= most);
                    return Some(knob.values.iter().rposition(fits).unwrap_or(0));
                }
            };
            Some(knob.values.iter().position(|value| *value == KnobValue::Choice(word.clone())).unwrap_or(0))
        })
    }
}

/// True if results are looked up in a table.
fn looks_up(chain: &Chain) -> bool {
    chain.tail().is_some_and(|tail| matches!(tail.value, Expr::Gather(_)))
}

/// True if vectors along the axis sum up columns, and the other rows are enough for all threads.
fn reads_whole_rows(chain: &Chain, vector: &str, cpu: &CpuTarget) -> bool {
    let rows = chain.row_axes();
    let axis = rows.iter().position(|axis| axis.name == vector).filter(|&axis| knobs::is_inside(chain, axis));
    let others =
        |axis: usize| rows.iter().enumerate().filter(|row| row.0 != axis).map(|row| row.1.extent).product::<usize>();
    axis.is_some_and(|axis| cpu.threads == 1 || others(axis) >= cpu.threads)
}

/// Returns the positions per tile, along rows other than the vector axis, whose accumulators share
/// the cache; fewer if there would not be a tile for each thread.
fn rows_of_tile(chain: &Chain, vector: &str, cpu: &CpuTarget) -> usize {
    let rows = chain.row_axes();
    let row = rows.iter().find(|axis| axis.name == vector).map_or(cpu.lanes(), |axis| axis.extent);
    let beside: usize = rows.iter().filter(|axis| axis.name != vector).map(|axis| axis.extent).product();
    (IN_CACHE / row).min(beside / cpu.threads).max(1)
}

/// Returns the number of elements of an operand per position of the rows.
fn row_elements(chain: &Chain) -> usize {
    let own = |pass: &Equation| pass.axes[chain.rows..].iter().map(|axis| axis.extent).product();
    chain.passes().iter().map(own).max().unwrap_or(1)
}

/// True if operands and result together exceed the second-level cache.
fn is_beyond_cache(chain: &Chain, cpu: &CpuTarget) -> bool {
    let given = chain.spec.tensors.iter().filter(|tensor| tensor.is_given());
    let all = given.chain([storing::result(chain)]);
    all.map(|tensor| tensor.dtype.bytes() * tensor.shape.iter().product::<usize>()).sum::<usize>() > cpu.l2_bytes
}

/// Returns the position of the first order whose outermost loop is over axis `name`.
fn starting_with(knob: &Knob, name: &str) -> usize {
    let starts = |value: &KnobValue| matches!(value, KnobValue::Order(names) if names.first().is_some_and(|first| first == name));
    knob.values.iter().position(starts).unwrap_or(0)
}

/// Returns the vector axis. The row of pairs comes first. Next is the axis along which the result
/// is contiguous, if an operand is, too, or if nothing is reduced. Otherwise it is the axis along
/// which most accesses are contiguous.
fn vector_of(chain: &Chain) -> &'static str {
    let vectors = knobs::vectors(chain);
    let is_of_result = |name: &&'static str| {
        let axis = chain.row_axes().iter().position(|axis| axis.name == *name);
        axis.is_some_and(|axis| uses(chain.last().output.index.last(), axis))
    };
    let of_result = vectors.iter().copied().rfind(is_of_result);
    let best = of_result.filter(|&name| reads_along(chain, name) || !chain.reduces());
    knobs::row_of_pairs(chain).or(best).unwrap_or_else(|| knobs::most_contiguous(chain))
}

/// Returns the number of registers that hold a whole row of a window, if the row is no multiple of
/// a vector and the knob offers as many; otherwise 1.
fn width(chain: &Chain, vector: &str, lanes: usize) -> usize {
    let [pass] = chain.passes() else { return 1 };
    let reduced: Vec<&Axis> = pass.axes.iter().filter(|axis| axis.reduce && axis.extent > 1).collect();
    let Some(row) = reduced.iter().find(|axis| axis.name == vector).filter(|_| reduced.len() > 1) else { return 1 };
    let is_whole = row.extent.is_multiple_of(lanes);
    [1, 2, 4].into_iter().find(|width| !is_whole && width * lanes >= row.extent).unwrap_or(1)
}

/// True if the last dimension of some operand depends on axis `name`.
fn reads_along(chain: &Chain, name: &str) -> bool {
    chain.passes().iter().any(|pass| {
        let axis = pass.axes.iter().position(|axis| axis.name == name);
        let is_read_along = |axis| {
            let reads = |access: &Access| chain.is_at_hand(access) && uses(access.index.last(), axis);
            pass.loads().into_iter().any(reads)
        };
        axis.is_some_and(is_read_along)
    })
}

fn uses(index: Option<&Affine>, axis: AxisId) -> bool {
    index.is_some_and(|index| index.uses(VarId(axis as u32)))
}
