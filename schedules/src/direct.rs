//! The direct sketch on a CPU: a register tile inside cache tiles.
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
//! [`Direct`] is the typed form of a config of this sketch.

use std::sync::Arc;

use crate::config::KnobValues;
use crate::contraction::{AxisId, Contraction, Operand};
use crate::error::LowerError;
use autotune_ir::DType;
use autotune_ir::instruction::{Factors, Instruction};
use autotune_ir::program::Layout;
use autotune_ir::target::CpuTarget;
use autotune_workloads::Workload;

mod balance;
mod default;
pub(crate) mod knobs;
pub(crate) mod laid;
pub(crate) mod lower;
pub(crate) mod reader;
pub(crate) mod roles;
mod rules;
mod sketch;

pub(crate) use balance::MAX_SHARE;
pub use reader::DataMode;
pub(crate) use roles::block_size;
pub(crate) use sketch::DirectSketch;

use laid::{Groups, Laid, Layouts};
use reader::Reader;
use roles::Roles;

/// Name of the sketch in configs.
pub const SKETCH: &str = "direct";

/// A loop over tiles of one axis: `tile` elements of the axis each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileLoop {
    /// The axis.
    pub axis: AxisId,
    /// Elements per iteration; the last may be smaller.
    pub tile: usize,
}

/// Groups of reduction steps, side by side in copies of both operands.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The axis over the steps of a group.
    pub axis: AxisId,
    /// What multiplies a group.
    pub instruction: &'static Instruction,
}

/// The typed form of a config.
#[derive(Clone, Debug)]
pub struct Direct {
    /// The contraction with channel axes split as the layouts need; operands are in their plain
    /// layouts.
    pub contraction: Arc<Contraction>,
    /// Data operand as the caller gives it.
    pub input: Arc<Operand>,
    /// Its layout.
    pub in_layout: Layout,
    /// Data operand as the compute nest reads it.
    pub data: Arc<Operand>,
    /// Output operand in its layout.
    pub output: Arc<Operand>,
    /// Its layout.
    pub out_layout: Layout,
    /// How the data operand is read.
    pub data_mode: DataMode,
    /// True if weights are copied into the register tile's layout.
    pub packed_weights: bool,
    /// Groups of reduction steps that an instruction multiplies at once, if there are such.
    pub dot: Option<Group>,
    /// Types of the elements of copies of data and weights.
    pub copied: [DType; 2],
    /// The vectorised axis.
    pub vector: AxisId,
    /// Loops of one element around everything, parallel.
    pub batch: Vec<AxisId>,
    /// Cache-level loops, outermost first.
    pub cache: Vec<TileLoop>,
    /// How many of the first cache-level loops are parallel.
    pub parallel: usize,
    /// Loops over register tiles within a cache tile, outermost first.
    pub inner: Vec<TileLoop>,
    /// Reduction loops within a register tile, outermost first.
    pub reduce: Vec<AxisId>,
    /// Most reduction steps in one straight-line body.
    pub unroll: usize,
    /// Distance in f32 elements at which weights are prefetched, 0 for none.
    pub prefetch: usize,
}

/// Tile sizes of the axes of more than one element: elements, or blocks of a split axis (whose knob
/// counts elements of the unsplit one).
struct Tiles {
    cache: Vec<(AxisId, usize)>,
    register: Vec<(AxisId, usize)>,
}

impl Tiles {
    fn read(reader: &Reader, roles: &Roles, laid: &Laid, block: usize) -> Result<Self, LowerError> {
        let mut tiles = Self { cache: Vec::new(), register: Vec::new() };
        let axes = roles.spatial.iter().copied().chain(roles.step);
        for axis in axes.filter(|&axis| roles.extent(axis) > 1) {
            let knob = format!("tile.{}", roles.name(axis));
            let unit = match laid.lane_of(axis) {
                Some(_) => block,
                None if roles.step == Some(axis) => laid.group.map_or(1, |group| laid.contraction.axes[group].extent),
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
            // The last group of all steps may not be whole.
            let whole = |size: usize| if size == roles.extent(axis) { size.next_multiple_of(unit) } else { size };
            let is_step = roles.step == Some(axis);
            let [smallest, cache] = [smallest, cache].map(|size| if is_step { whole(size) } else { size });
            for (size, of) in [(smallest, unit), (cache, smallest)] {
                if !size.is_multiple_of(of) {
                    return Err(LowerError::knob(&knob, format!("{size} is no multiple of {of}")));
                }
            }
            tiles.cache.push((axis, cache / unit));
        }
        Ok(tiles)
    }
}

/// Loops over tiles, in the order of their axes' names.
fn loops(contraction: &Contraction, order: &[&str], tiles: &[(AxisId, usize)]) -> Vec<TileLoop> {
    let tile_loop = |name: &&str| {
        let axis = contraction.axis(name)?;
        let tile = tiles.iter().find(|tile| tile.0 == axis).map_or(1, |tile| tile.1);
        Some(TileLoop { axis, tile: tile.min(contraction.axes[axis].extent) })
    };
    order.iter().filter_map(tile_loop).collect()
}

/// Elements from a weight to that of the same column in the next cache tile's steps.
fn next_steps(roles: &Roles, contraction: &Contraction, tiles: &Tiles) -> usize {
    let steps = tiles.cache.iter().find(|tile| roles.step == Some(tile.0));
    steps.map_or(0, |&(step, size)| size * contraction.weight.stride(step).unsigned_abs() as usize)
}

impl Direct {
    /// The typed form of `config`, or the first knob that is malformed, does not fit the workload,
    /// or breaks a limit of the target.
    pub fn new(workload: &Workload, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let roles = Roles::of_workload(workload).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        Self::with_roles(&roles, target, knobs)
    }

    /// The same for a workload whose roles are known.
    fn with_roles(roles: &Roles, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let reader = Reader(knobs);
        let block = block_size(target);
        let layouts = Layouts::read(&reader, roles.blockable(block), block)?;
        let data_mode = reader.data_mode()?;
        let packed_weights = reader.packs_weights()?;

        let dot = roles.dot(target);
        let is_copied = matches!(data_mode, DataMode::Copy | DataMode::Tile) && layouts.data == Layout::Plain;
        let groups = dot.map_or(Groups::NONE, |(_, Factors { steps, .. })| Groups {
            steps,
            in_images: is_copied && roles.has_groups_of_channels(steps),
        });
        let laid = roles.laid(layouts, block, groups);
        let tiles = Tiles::read(&reader, roles, &laid, block)?;
        let vector = roles.vector_of(reader.choice("vector")?)?;

        let Laid { contraction, names, .. } = &*laid;
        let reduce = reader.order("order.reduce", &names.reduce)?;
        let direct = Self {
            contraction: Arc::clone(contraction),
            input: Arc::clone(&laid.input),
            in_layout: layouts.input,
            data: Arc::clone(&laid.data),
            output: Arc::clone(&laid.output),
            out_layout: layouts.output,
            data_mode,
            packed_weights,
            dot: laid.group.zip(dot).map(|(axis, (instruction, _))| Group { axis, instruction }),
            copied: roles.copied(dot.map(|(_, factors)| factors)),
            vector: laid.lane_of(vector).unwrap_or(vector),
            cache: loops(contraction, &reader.order("order", &names.cache)?, &tiles.cache),
            parallel: reader.number("parallel")?,
            inner: loops(contraction, &reader.order("order.inner", &names.spatial)?, &tiles.register),
            reduce: reduce.iter().filter_map(|name| contraction.axis(name)).collect(),
            unroll: reader.number("unroll")?,
            prefetch: if reader.prefetches_next_steps()? { next_steps(roles, contraction, &tiles) } else { 0 },
            batch: roles.batch.clone(),
        };
        direct.check(&roles.axes, target, layouts.data)?;
        Ok(direct)
    }

    /// Extent of the register tile along a spatial axis (1 for batch axes, the whole block for
    /// lanes).
    pub fn register_extent(&self, axis: AxisId) -> usize {
        if let Some(l) = self.inner.iter().find(|l| l.axis == axis) {
            return l.tile;
        }
        let is_lane = !self.batch.contains(&axis) && !self.contraction.axes[axis].reduce;
        if is_lane { self.contraction.axes[axis].extent } else { 1 }
    }

    /// Spatial axes of the register tile with their extents, outermost first, the vectorised one
    /// last.
    pub fn register_tile(&self) -> Vec<(AxisId, usize)> {
        let spatial =
            (0..self.contraction.axes.len()).filter(|&a| !self.contraction.axes[a].reduce && a != self.vector);
        let mut tile: Vec<_> = spatial.map(|a| (a, self.register_extent(a))).filter(|t| t.1 > 1).collect();
        tile.push((self.vector, self.register_extent(self.vector)));
        tile
    }

    /// The loops whose iterations are tasks, outermost first: the batch, then the leading cache
    /// loops.
    pub fn parallel_loops(&self) -> Vec<TileLoop> {
        let is_spatial = |l: &&TileLoop| !self.contraction.axes[l.axis].reduce;
        let leading = self.cache.iter().take_while(is_spatial).take(self.parallel).copied();
        self.batch.iter().map(|&axis| TileLoop { axis, tile: 1 }).chain(leading).collect()
    }

    /// True if sums between chunks of the reduction need memory of their own, since the output has
    /// another type.
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

    /// Channels (columns) of outputs that are made of a panel before it is copied anew.
    fn panel_reuse(&self) -> usize {
        let copy = self.cache.iter().rposition(|l| self.data.uses(l.axis)).map_or(0, |last| last + 1);
        let axes = &self.contraction.axes;
        let shares = |&a: &AxisId| !axes[a].reduce && !self.batch.contains(&a) && !self.data.uses(a);
        let extent = |a: AxisId| self.cache[..copy].iter().find(|l| l.axis == a).map_or(axes[a].extent, |l| l.tile);
        (0..axes.len()).filter(shares).map(extent).product()
    }

    /// Bytes of a panel.
    fn panel_bytes(&self) -> usize {
        let used = (0..self.contraction.axes.len()).filter(|&a| self.data.uses(a));
        let extent = |a: AxisId| match self.contraction.axes[a].reduce {
            true => self.cache_extent(a),
            false => self.cache_extent(a).next_multiple_of(self.register_extent(a)),
        };
        self.copied[0].bytes() * used.map(extent).product::<usize>()
    }

    /// Shape of the copied data tile: what the largest cache tile reads.
    pub fn tile_shape(&self) -> Vec<usize> {
        self.data
            .index
            .iter()
            .map(|index| {
                let (low, high) = index.range(|v| self.cache_extent(v.0 as usize));
                (high - low + 1) as usize
            })
            .collect()
    }
}
