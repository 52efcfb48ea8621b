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

use crate::config::Config;
use crate::contraction::{AxisId, Contraction, Operand, lane_name, with_layout};
use crate::error::LowerError;
use crate::workload::{Known, Workload};
use autotune_ir::program::Layout;
use autotune_ir::target::CpuTarget;

mod balance;
mod default;
mod knobs;
pub(crate) mod reader;
mod rules;
mod sketch;

pub(crate) use balance::MAX_SHARE;
pub(crate) use sketch::DirectSketch;
pub use sketch::SKETCH;

use reader::Reader;

/// How the data operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMode {
    /// From the input itself; tiles that touch padding are peeled into nests of their own.
    InPlace,
    /// From a padded copy of the whole input, made by a stage of its own.
    Copy,
    /// From a padded copy of what the cache tile needs, made by each thread as it goes.
    Tile,
    /// From a copy of what the cache tile needs in the order in which its register tiles read it, made by each thread as it
    /// goes: reduction steps, and for each step the pixels (rows of a matrix product) of the register tile side by side.
    /// For a kernel of several taps it is the `im2col` of the cache tile; for a matrix product the packed panels of Goto and
    /// van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
    Panel,
}

/// A loop over tiles of one axis: `tile` elements of the axis each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileLoop {
    /// The axis.
    pub axis: AxisId,
    /// Elements per iteration; the last may be smaller.
    pub tile: usize,
}

/// The typed form of a config.
#[derive(Clone, Debug)]
pub struct Direct {
    /// The contraction with channel axes split as the layouts need; operands are in their plain layouts.
    pub contraction: Contraction,
    /// Data operand as the caller gives it.
    pub input: Operand,
    /// Its layout.
    pub in_layout: Layout,
    /// Data operand as the compute nest reads it.
    pub data: Operand,
    /// Output operand in its layout.
    pub output: Operand,
    /// Its layout.
    pub out_layout: Layout,
    /// How the data operand is read.
    pub data_mode: DataMode,
    /// True if weights are copied into the register tile's layout.
    pub packed_weights: bool,
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
}

/// The axes of a workload as the knobs name them.
#[derive(Clone)]
struct Roles {
    /// Spatial axes that are tiled.
    spatial: Vec<&'static str>,
    /// Spatial axes that are not: one element a loop, outermost.
    batch: Vec<&'static str>,
    /// The reduction axis that is tiled.
    reduce: &'static str,
    /// The axis of output channels (or columns), which vectors may run along.
    channel: &'static str,
    /// The other axis that vectors may run along.
    width: Option<&'static str>,
}

impl Roles {
    fn of(workload: &Workload) -> Self {
        match workload.known() {
            Known::Conv2d(c) if c.groups > 1 && c.o == c.groups => {
                Self { spatial: vec!["g", "oh", "ow"], batch: vec!["n"], reduce: "c", channel: "g", width: Some("ow") }
            }
            Known::Conv2d(_) => Self {
                spatial: vec!["o", "oh", "ow"],
                batch: vec!["n", "g"],
                reduce: "c",
                channel: "o",
                width: Some("ow"),
            },
            Known::Matmul(_) => {
                Self { spatial: vec!["m", "n"], batch: vec!["b"], reduce: "k", channel: "n", width: None }
            }
        }
    }
}

fn extent(contraction: &Contraction, name: &str) -> usize {
    contraction.axis(name).map_or(1, |a| contraction.axes[a].extent)
}

/// Whether the input and the output can be channel-blocked.
fn blockable(workload: &Workload, block: usize) -> (bool, bool) {
    match workload.known() {
        // Vectors run over the groups; an input of several channels a group has no lanes that go with them.
        Known::Conv2d(c) if c.groups > 1 && c.o == c.groups => {
            let output = c.o.is_multiple_of(block);
            (output && c.c == c.groups, output)
        }
        Known::Conv2d(c) => ((c.c / c.groups).is_multiple_of(block), (c.o / c.groups).is_multiple_of(block)),
        Known::Matmul(_) => (false, false),
    }
}

/// The block of channel-blocked layouts: one vector on AVX-512, at least 8.
pub(crate) fn block_size(target: &CpuTarget) -> usize {
    target.lanes().max(8)
}

/// Layouts of the activations.
struct Layouts {
    block: usize,
    /// True if the input's channels can be blocked.
    input_blocks: bool,
    input: Layout,
    data: Layout,
    output: Layout,
}

impl Layouts {
    fn read(reader: &Reader, workload: &Workload, block: usize) -> Result<Self, LowerError> {
        let (input_blocks, output_blocks) = blockable(workload, block);
        let layout = |name: &str, fits: bool| match reader.layout(name, block)? {
            Layout::ChannelBlocked(_) if !fits => {
                Err(LowerError::knob(name, format!("{block} does not divide the channels")))
            }
            layout => Ok(layout),
        };
        let data = if reader.has("layout.data") { "layout.data" } else { "layout.in" };
        Ok(Self {
            block,
            input_blocks,
            input: layout("layout.in", input_blocks)?,
            data: layout(data, input_blocks)?,
            output: layout("layout.out", output_blocks)?,
        })
    }
}

/// The axes that the order knobs permute: those with more than one element.
struct LoopNames {
    spatial: Vec<&'static str>,
    /// Spatial axes, then the tiled reduction axis.
    cache: Vec<&'static str>,
    /// Loops of the reduction.
    reduce: Vec<&'static str>,
}

impl LoopNames {
    fn of(roles: &Roles, contraction: &Contraction, input_blocks: bool) -> Self {
        let present = |names: &[&'static str]| -> Vec<&'static str> {
            names.iter().copied().filter(|n| extent(contraction, n) > 1).collect()
        };
        let spatial = present(&roles.spatial);
        let mut cache = spatial.clone();
        cache.extend(present(&[roles.reduce]));
        let mut reduce = present(&[roles.reduce, "kh", "kw"]);
        if input_blocks && roles.channel != "g" {
            reduce.push("ci");
        }
        Self { spatial, cache, reduce }
    }
}

/// The contraction with its channel axes split as the layouts need.
struct Split {
    contraction: Contraction,
    in_lane: Option<AxisId>,
    out_lane: Option<AxisId>,
}

impl Split {
    fn of(mut contraction: Contraction, roles: &Roles, layouts: &Layouts) -> Self {
        let blocked = |layout: Layout| layout != Layout::Plain;
        let (input, output) = (blocked(layouts.input) || blocked(layouts.data), blocked(layouts.output));
        let mut split = |name: &str| contraction.axis(name).map(|axis| contraction.split(axis, layouts.block));
        let (in_lane, out_lane) = if roles.channel == "g" {
            let lane = if input || output { split("g") } else { None };
            (lane, lane)
        } else {
            (input.then(|| split(roles.reduce)).flatten(), output.then(|| split(roles.channel)).flatten())
        };
        Self { contraction, in_lane, out_lane }
    }

    /// The axis over the lanes of a split axis.
    fn lane_of(&self, name: &str) -> Option<AxisId> {
        lane_name(name).and_then(|lane| self.contraction.axis(lane))
    }

    fn loops(&self, order: &[&str], tiles: &[(&str, usize)]) -> Vec<TileLoop> {
        let tile_of = |name: &str| tiles.iter().find(|t| t.0 == name).map_or(1, |t| t.1);
        let tile_loop = |name: &&str| {
            let axis = self.contraction.axis(name)?;
            Some(TileLoop { axis, tile: tile_of(name).min(self.contraction.axes[axis].extent) })
        };
        order.iter().filter_map(tile_loop).collect()
    }
}

/// Tile sizes by axis name: elements, or blocks of a split axis (whose knob counts elements of the unsplit one).
struct Tiles {
    cache: Vec<(&'static str, usize)>,
    register: Vec<(&'static str, usize)>,
}

impl Tiles {
    fn read(reader: &Reader, names: &LoopNames, split: &Split, block: usize) -> Result<Self, LowerError> {
        let (mut cache_tiles, mut register_tiles) = (Vec::new(), Vec::new());
        for &name in &names.cache {
            let knob = format!("tile.{name}");
            let unit = if split.lane_of(name).is_some() { block } else { 1 };
            let is_spatial = names.spatial.contains(&name);
            let (cache, smallest) = if is_spatial {
                let [cache, register] = reader.tile::<2>(&knob)?;
                register_tiles.push((name, register / unit));
                (cache, register)
            } else {
                let [chunk] = reader.tile::<1>(&knob)?;
                (chunk, chunk)
            };
            for (size, of) in [(smallest, unit), (cache, smallest)] {
                if !size.is_multiple_of(of) {
                    return Err(LowerError::knob(&knob, format!("{size} is no multiple of {of}")));
                }
            }
            cache_tiles.push((name, cache / unit));
        }
        Ok(Self { cache: cache_tiles, register: register_tiles })
    }
}

impl Direct {
    /// The typed form of `config`, or the first knob that is malformed, does not fit the workload, or breaks a limit of the
    /// target.
    pub fn new(workload: &Workload, target: &CpuTarget, config: &Config) -> Result<Self, LowerError> {
        let reader = Reader(config);
        let roles = Roles::of(workload);
        let layouts = Layouts::read(&reader, workload, block_size(target))?;
        let data_mode = match reader.choice("data")? {
            "inplace" => DataMode::InPlace,
            "copy" => DataMode::Copy,
            "tile" => DataMode::Tile,
            "panel" => DataMode::Panel,
            other => return Err(LowerError::knob("data", format!("'{other}' is not inplace, copy, tile or panel"))),
        };
        let packed_weights = match reader.choice("weights")? {
            "packed" => true,
            "inplace" => false,
            other => return Err(LowerError::knob("weights", format!("'{other}' is not packed or inplace"))),
        };
        let plain = Contraction::of(workload);
        let names = LoopNames::of(&roles, &plain, layouts.input_blocks);
        let split = Split::of(plain, &roles, &layouts);
        let tiles = Tiles::read(&reader, &names, &split, layouts.block)?;
        let vector = reader.choice("vector")?;
        if ![Some(roles.channel), roles.width].contains(&Some(vector)) {
            return Err(LowerError::knob("vector", format!("'{vector}' is not an axis that vectors run along")));
        }
        let axis_of = |name: &&str| split.contraction.axis(name);
        let direct = Self {
            input: with_layout(&split.contraction.data, layouts.input, split.in_lane),
            in_layout: layouts.input,
            data: with_layout(&split.contraction.data, layouts.data, split.in_lane),
            output: with_layout(&split.contraction.output, layouts.output, split.out_lane),
            out_layout: layouts.output,
            data_mode,
            packed_weights,
            vector: split.lane_of(vector).or(axis_of(&vector)).unwrap_or(0),
            batch: roles.batch.iter().filter_map(axis_of).collect(),
            cache: split.loops(&reader.order("order", &names.cache)?, &tiles.cache),
            parallel: reader.number("parallel")?,
            inner: split.loops(&reader.order("order.inner", &names.spatial)?, &tiles.register),
            reduce: reader.order("order.reduce", &names.reduce)?.iter().filter_map(axis_of).collect(),
            unroll: reader.number("unroll")?,
            contraction: split.contraction,
        };
        direct.check(target, layouts.data)?;
        Ok(direct)
    }

    /// Extent of the register tile along a spatial axis (1 for batch axes, the whole block for lanes).
    pub fn register_extent(&self, axis: AxisId) -> usize {
        if let Some(l) = self.inner.iter().find(|l| l.axis == axis) {
            return l.tile;
        }
        let is_lane = !self.batch.contains(&axis) && !self.contraction.axes[axis].reduce;
        if is_lane { self.contraction.axes[axis].extent } else { 1 }
    }

    /// Spatial axes of the register tile with their extents, outermost first, the vectorised one last.
    pub fn register_tile(&self) -> Vec<(AxisId, usize)> {
        let spatial =
            (0..self.contraction.axes.len()).filter(|&a| !self.contraction.axes[a].reduce && a != self.vector);
        let mut tile: Vec<_> = spatial.map(|a| (a, self.register_extent(a))).filter(|t| t.1 > 1).collect();
        tile.push((self.vector, self.register_extent(self.vector)));
        tile
    }

    /// The loops whose iterations are tasks, outermost first: the batch, then the leading cache loops.
    pub fn parallel_loops(&self) -> Vec<TileLoop> {
        let is_spatial = |l: &&TileLoop| !self.contraction.axes[l.axis].reduce;
        let leading = self.cache.iter().take_while(is_spatial).take(self.parallel).copied();
        self.batch.iter().map(|&axis| TileLoop { axis, tile: 1 }).chain(leading).collect()
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
        4 * used.map(extent).product::<usize>()
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
