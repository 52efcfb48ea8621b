//! The direct sketch for contractions on a CPU: register tiles inside cache tiles.
//!
//! ```text
//! parallel n, g, first loops of `order`             (cache tiles)
//!   loops of `order`                                (cache tiles, reduction chunks among them)
//!     [copy of the data tile]                       data=tile, data=panel
//!       loops of `order.inner`                      (register tiles)
//!         acc = 0 or the partial sums in the output
//!         loops of `order.reduce`                   (unrolled up to `unroll` steps)
//!           unrolled register tile, one vectorised axis: acc += data * weight
//!         output = act(acc + bias + residual) or the partial sums
//! ```
//!
//! [`Direct`] is a config of this sketch, parsed and checked against its rules.

use std::sync::Arc;

use crate::config::KnobValues;
use crate::contraction::{AxisId, Contraction, Operand};
use crate::error::LowerError;
use autotune_ir::DType;
use autotune_ir::instruction::{Factors, Instruction, Registers, TILE_ROWS};
use autotune_ir::program::Layout;
use autotune_ir::target::CpuTarget;
use autotune_workloads::Workload;

mod balance;
mod default;
pub(crate) mod knobs;
pub(crate) mod layouts;
pub(crate) mod lower;
pub(crate) mod reader;
pub(crate) mod roles;
mod rules;
mod sketch;
mod tile_default;

pub(crate) use balance::MAX_SHARE;
pub use reader::DataMode;
pub(crate) use roles::block_size;
pub(crate) use sketch::DirectSketch;

use layouts::{DataLayouts, Groups, SplitContraction};
use reader::KnobReader;
use roles::Roles;

/// Name of the sketch in configs.
pub const SKETCH: &str = "direct";

/// Number of parts of a split value.
const PARTS: usize = 2;

/// A loop over tiles of one axis: `tile` elements of the axis each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileLoop {
    /// Axis of the contraction.
    pub axis: AxisId,
    /// Elements per iteration; the last may be smaller.
    pub tile: usize,
}

/// Reduction steps that one instruction multiplies. They are adjacent in the copies of both
/// operands.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Axis over the steps of one group; its extent is the size of the group.
    pub axis: AxisId,
    /// Instruction that multiplies and sums groups.
    pub instruction: &'static Instruction,
    /// Axes over the groups in a row of a tile, outermost first: taps along the width, and groups
    /// of channels. Both are `None` for instructions without tiles.
    pub row: [Option<AxisId>; 2],
}

impl Group {
    /// Returns the axes over the groups in a row of a tile, outermost first.
    pub(crate) fn row_axes(&self) -> impl Iterator<Item = AxisId> {
        self.row.into_iter().flatten()
    }
}

/// A config of the sketch, parsed: layouts, tiles and loop orders of one contraction.
#[derive(Clone, Debug)]
pub struct Direct {
    /// The contraction, its channel axes split into blocks where a layout needs it. Its operands
    /// are in plain layouts.
    pub contraction: Arc<Contraction>,
    /// Data operand in the layout of the caller.
    pub input: Arc<Operand>,
    /// Layout of the input.
    pub in_layout: Layout,
    /// Data operand in the layout that the compute nest reads.
    pub data: Arc<Operand>,
    /// Output operand in its layout.
    pub output: Arc<Operand>,
    /// Layout of the output.
    pub out_layout: Layout,
    /// Data mode: read in place, or one of several copies.
    pub data_mode: DataMode,
    /// True if weights are copied into the register tile's layout.
    pub packed_weights: bool,
    /// Groups of reduction steps for a dot-product or tile instruction; `None` if steps are
    /// multiplied one by one.
    pub dot: Option<Group>,
    /// Element types of the copies of data and weights.
    pub copied: [DType; 2],
    /// True if copies have two parts of each f32: the nearest value of their type, and the nearest
    /// to what is left. Parts are the outermost dimension.
    pub is_split: bool,
    /// Axis of the vector lanes.
    pub vector: AxisId,
    /// Parallel outermost loops, one element per iteration.
    pub batch: Vec<AxisId>,
    /// Cache-level loops, outermost first.
    pub cache: Vec<TileLoop>,
    /// Number of outermost cache-level loops that are parallel.
    pub parallel: usize,
    /// Loops over register tiles within a cache tile, outermost first.
    pub inner: Vec<TileLoop>,
    /// Reduction loops within a register tile, outermost first.
    pub reduce: Vec<AxisId>,
    /// Maximum number of reduction steps in one straight-line body.
    pub unroll: usize,
    /// Prefetch distance of weights in f32 elements; 0 for no prefetches.
    pub prefetch: usize,
}

/// Tile sizes of the axes with more than one element. A split axis counts in blocks here, although
/// its knob counts elements.
struct Tiles {
    cache: Vec<(AxisId, usize)>,
    register: Vec<(AxisId, usize)>,
}

impl Tiles {
    fn read(reader: &KnobReader, roles: &Roles, laid: &SplitContraction, block: usize) -> Result<Self, LowerError> {
        let mut tiles = Self { cache: Vec::new(), register: Vec::new() };
        let axes = roles.spatial.iter().copied().chain(roles.step);
        for axis in axes.filter(|&axis| roles.extent(axis) > 1) {
            let knob = format!("tile.{}", roles.name(axis));

            // Knobs give sizes in elements, but the loop over a split axis counts blocks or groups.
            let unit = match laid.lane_of(axis) {
                Some(_) => block,
                None if roles.step == Some(axis) => laid.adjacent_steps(),
                None => 1,
            };

            let (cache, smallest) = if roles.step == Some(axis) {
                let [chunk] = reader.tile::<1>(&knob)?;
                (chunk, chunk)
            } else {
                let [cache, register] = reader.tile::<2>(&knob)?;
                tiles.register.push((axis, register / unit));
                (cache, register)
            };

            // A chunk of all steps is rounded up to whole groups: the last group may be incomplete.
            let whole = |size: usize| if size == roles.extent(axis) { size.next_multiple_of(unit) } else { size };
            let is_step = roles.step == Some(axis);
            let [smallest, cache] = [smallest, cache].map(|size| if is_step { whole(size) } else { size });
            for (size, of) in [(smallest, unit), (cache, smallest)] {
                if !size.is_multiple_of(of) {
                    return Err(LowerError::knob(&knob, format!("{size} is not a multiple of {of}")));
                }
            }

            tiles.cache.push((axis, cache / unit));
        }
        Ok(tiles)
    }
}

/// True if a tile instruction of `cpu` multiplies the operands of a workload.
pub fn has_tile_instruction(workload: &Workload, cpu: &CpuTarget) -> bool {
    Roles::of_workload(workload).is_some_and(|roles| roles.tile(cpu).is_some())
}

/// Returns the factors of the dot-product instruction of `cpu` that multiplies the operands of a
/// workload; `None` if no such instruction does.
pub(crate) fn dot_factors(workload: &Workload, cpu: &CpuTarget) -> Option<Factors> {
    Roles::of_workload(workload)?.dot(cpu).map(|(_, factors)| factors)
}

/// Returns the loops over tiles, in the given order of axis names.
fn loops(contraction: &Contraction, order: &[&str], tiles: &[(AxisId, usize)]) -> Vec<TileLoop> {
    let tile_loop = |name: &&str| {
        let axis = contraction.axis(name)?;
        let tile = tiles.iter().find(|tile| tile.0 == axis).map_or(1, |tile| tile.1);
        Some(TileLoop { axis, tile: tile.min(contraction.axes[axis].extent) })
    };
    order.iter().filter_map(tile_loop).collect()
}

/// Returns the distance in elements between a weight and the one in the same column, one cache tile
/// of steps later.
fn next_steps(roles: &Roles, contraction: &Contraction, tiles: &Tiles) -> usize {
    let steps = tiles.cache.iter().find(|tile| roles.step == Some(tile.0));
    steps.map_or(0, |&(step, size)| size * contraction.weight.stride(step).unsigned_abs() as usize)
}

/// Returns the number of words, groups of `steps` reduction steps, in a row of a tile: as many as
/// fit, if their steps are adjacent in the data.
///
/// Copies fill the last row with zeros, so that the rows are as few and as equal as possible. Other
/// rows are all whole; only the last word may be incomplete if all words fit one row.
fn words(roles: &Roles, steps: usize, (input, mode): (Layout, DataMode)) -> usize {
    let is_copied = mode.copies();
    let all = roles.step.map_or(1, |step| roles.extent(step));
    let (adjacent, unit) = match input {
        Layout::ChannelBlocked(block) if !is_copied => (block, 1),
        // A copy moves whole blocks.
        Layout::ChannelBlocked(block) => (all, block),
        Layout::Plain => (all, 1),
    };
    let groups = adjacent.div_ceil(steps);
    if groups <= TILE_ROWS && unit == 1 {
        return groups;
    }
    if roles.pads_rows(mode) {
        let rows = groups.div_ceil(TILE_ROWS);
        return groups.div_ceil(rows).next_multiple_of(unit.div_ceil(steps));
    }
    let fits = |words: &usize| groups.is_multiple_of(*words) && (words * steps).is_multiple_of(unit);
    (1..=TILE_ROWS).rev().find(fits).unwrap_or(1)
}

impl Direct {
    /// Parses the knobs of a config. Fails with the first knob that is malformed, does not fit the
    /// workload, or breaks a limit of the target.
    pub fn new(workload: &Workload, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let roles = Roles::of_workload(workload).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        Self::with_roles(&roles, target, knobs)
    }

    /// Parses the knobs for a workload whose roles are known.
    fn with_roles(roles: &Roles, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let reader = KnobReader(knobs);
        let block = block_size(target);
        let layouts = DataLayouts::read(&reader, roles.blockable(block), block)?;
        let data_mode = reader.data_mode()?;
        let packed_weights = reader.packs_weights()?;

        let has_tiles = reader.has_tiles()?;
        let dot = if has_tiles { roles.tile(target) } else { roles.dot(target) };
        if has_tiles && dot.is_none() {
            return Err(LowerError::knob("instruction", "no tile instruction multiplies these operands"));
        }
        let groups = dot.map_or(Groups::NONE, |(_, Factors { steps, .. })| {
            let words = if has_tiles { words(roles, steps, (layouts.input, data_mode)) } else { 1 };
            // A copy in the plain layout can interleave the channels of a group; data read in place
            // cannot. Tiles need more channels next to each other than blocked layouts have.
            let interleaves = data_mode.copies() && (has_tiles || layouts.data == Layout::Plain);
            let in_rows = has_tiles && roles.pads_rows(data_mode) || roles.has_images(steps * words);
            Groups { steps, words, in_images: interleaves && in_rows }
        });
        let laid = roles.in_layouts(layouts, block, groups);
        let tiles = Tiles::read(&reader, roles, &laid, block)?;
        let vector = roles.vector_of(reader.choice("vector")?)?;

        let SplitContraction { contraction, names, .. } = &*laid;
        let reduce = reader.order("order.reduce", &names.reduce)?;
        let mut reduce: Vec<AxisId> = reduce.iter().filter_map(|name| contraction.axis(name)).collect();
        // Taps in a row of a tile are innermost.
        let taps = if has_tiles && groups.in_images { roles.adjacent_taps() } else { None };
        let taps = taps.filter(|&(_, taps)| taps * groups.words <= TILE_ROWS).map(|(axis, _)| axis);
        reduce.sort_by_key(|&axis| taps == Some(axis));
        let direct = Self {
            contraction: Arc::clone(contraction),
            input: Arc::clone(&laid.input),
            in_layout: layouts.input,
            data: Arc::clone(&laid.data),
            output: Arc::clone(&laid.output),
            out_layout: layouts.output,
            data_mode,
            packed_weights,
            dot: laid.group.zip(dot).map(|(axis, (instruction, _))| Group {
                axis,
                instruction,
                row: [taps, laid.words],
            }),
            copied: roles.copied(dot.map(|(_, factors)| factors)),
            is_split: has_tiles && roles.splits(),
            // In a blocked layout, vectors run along the lanes of a block.
            vector: laid.lane_of(vector).unwrap_or(vector),
            cache: loops(contraction, &reader.order("order", &names.cache)?, &tiles.cache),
            parallel: reader.number("parallel")?,
            inner: loops(contraction, &reader.order("order.inner", &names.spatial)?, &tiles.register),
            reduce,
            unroll: reader.number("unroll")?,
            prefetch: if reader.prefetches_next_steps()? { next_steps(roles, contraction, &tiles) } else { 0 },
            batch: roles.batch.clone(),
        };
        direct.check(&roles.axes, target, layouts.data)?;
        Ok(direct)
    }

    /// Extent of the register tile along a spatial axis: 1 for batch axes, the whole block for
    /// lanes.
    pub fn register_extent(&self, axis: AxisId) -> usize {
        if let Some(l) = self.inner.iter().find(|l| l.axis == axis) {
            return l.tile;
        }
        // An axis without a loop over register tiles is in the tile as a whole, unless it is a
        // batch or reduction axis.
        let is_lane = !self.batch.contains(&axis) && !self.contraction.axes[axis].reduce;
        if is_lane { self.contraction.axes[axis].extent } else { 1 }
    }

    /// Spatial axes of the register tile with their extents. The order is outermost first, and the
    /// vectorised axis is last.
    pub fn register_tile(&self) -> Vec<(AxisId, usize)> {
        let spatial =
            (0..self.contraction.axes.len()).filter(|&a| !self.contraction.axes[a].reduce && a != self.vector);
        let mut tile: Vec<_> = spatial.map(|a| (a, self.register_extent(a))).filter(|t| t.1 > 1).collect();
        tile.push((self.vector, self.register_extent(self.vector)));
        tile
    }

    /// Loops whose iterations are tasks, outermost first: batch loops, then the leading cache
    /// loops.
    pub fn parallel_loops(&self) -> Vec<TileLoop> {
        let is_spatial = |l: &&TileLoop| !self.contraction.axes[l.axis].reduce;
        // Parallel iterations of a reduction loop would race on the sums, so parallel loops end
        // before it.
        let leading = self.cache.iter().take_while(is_spatial).take(self.parallel).copied();
        self.batch.iter().map(|&axis| TileLoop { axis, tile: 1 }).chain(leading).collect()
    }

    /// Returns the number of bytes of each element in copies of the data.
    pub(crate) fn copied_bytes(&self) -> usize {
        self.copied[0].bytes() * if self.is_split { PARTS } else { 1 }
    }

    /// Returns the groups of a tile instruction, if one multiplies.
    pub(crate) fn tile_group(&self) -> Option<Group> {
        self.dot.filter(|group| group.instruction.registers == Registers::Tile)
    }

    /// True if partial sums between chunks of the reduction need a buffer of their own, because the
    /// output has another element type than the sums.
    pub(crate) fn keeps_partial_sums(&self) -> bool {
        let spec = &self.contraction.spec;
        let [sums, result] = [self.contraction.number, self.contraction.tail]
            .map(|number| spec.tensor(&spec.equations[number].output).dtype);
        let is_cut = |tiles: &TileLoop| {
            let axis = &self.contraction.axes[tiles.axis];
            axis.reduce && tiles.tile < axis.extent
        };
        result != sums && self.cache.iter().any(is_cut)
    }

    /// Extent of `axis` within one cache tile.
    pub fn cache_extent(&self, axis: AxisId) -> usize {
        if self.batch.contains(&axis) {
            return 1;
        }
        self.cache.iter().find(|l| l.axis == axis).map_or(self.contraction.axes[axis].extent, |l| l.tile)
    }

    /// Number of output channels (columns) that are computed from a panel before the next panel is
    /// copied.
    fn panel_reuse(&self) -> usize {
        // The panel is copied just inside the innermost cache loop that its elements depend on.
        let copy = self.cache.iter().rposition(|l| self.data.uses(l.axis)).map_or(0, |last| last + 1);
        let axes = &self.contraction.axes;
        let shares = |&a: &AxisId| !axes[a].reduce && !self.batch.contains(&a) && !self.data.uses(a);
        let extent = |a: AxisId| self.cache[..copy].iter().find(|l| l.axis == a).map_or(axes[a].extent, |l| l.tile);
        (0..axes.len()).filter(shares).map(extent).product()
    }

    /// Size of a panel in bytes, with whole register tiles.
    fn panel_bytes(&self) -> usize {
        let used = (0..self.contraction.axes.len()).filter(|&a| self.data.uses(a));
        // The last register tile of a panel is padded to a whole one.
        let extent = |a: AxisId| match self.contraction.axes[a].reduce {
            true => self.cache_extent(a),
            false => self.cache_extent(a).next_multiple_of(self.register_extent(a)),
        };
        self.copied_bytes() * used.map(extent).product::<usize>()
    }

    /// Shape of the copied data tile: the elements that the largest cache tile reads.
    pub fn tile_shape(&self) -> Vec<usize> {
        self.shape_of(|axis| self.cache_extent(axis))
    }

    /// Returns the data operand with the shape of the buffer that register tiles read, other than a
    /// panel.
    fn data_read(&self) -> Operand {
        let shape = match self.data_mode {
            DataMode::InPlace | DataMode::Panel => self.data.shape.clone(),
            DataMode::Copy => self.shape_of(|axis| self.contraction.axes[axis].extent),
            DataMode::Tile => self.tile_shape(),
        };
        Operand { shape, index: self.data.index.clone() }
    }

    /// Returns the number of elements along each dimension of the data that a region of these
    /// extents reads.
    fn shape_of(&self, extent: impl Fn(AxisId) -> usize) -> Vec<usize> {
        self.data
            .index
            .iter()
            .map(|index| {
                // Overlapping windows share elements, so the shape is the range of the index.
                let (low, high) = index.range(|v| extent(v.0 as usize));
                (high - low + 1) as usize
            })
            .collect()
    }
}
