//! Lowering of the direct sketch to loop nests for a CPU.
//!
//! Each level of tiles splits an axis, which covers `extent` elements from `base`:
//!
//! ```text
//! for x in 0..50 { body(x) }          →   for t in 0..6 { for i in 0..8 { body(8*t + i) } }
//!                                         for i in 0..2 { body(48 + i) }
//! ```
//!
//! Remainders are separate nests. Where data is read in place, tiles that touch padding are also
//! peeled off the ends. Their kernel loops are written out, and taps in the padding are left out:
//!
//! ```text
//! for x in 0..56 { for k in 0..3 { acc[x] += in[x + k - 1] * w[k] } }    (56 elements, padding 1)
//!   →  acc[0] += in[0] * w[1];  acc[0] += in[1] * w[2]
//!      for x in 0..54 { for k in 0..3 { acc[1 + x] += in[x + k] * w[k] } }
//!      acc[55] += in[54] * w[0];  acc[55] += in[55] * w[1]
//! ```
//!
//! A reduction that is split over cache tiles has a first chunk (accumulators start at zero),
//! middle chunks, and a last chunk (with the epilogue). Partial sums are stored in the output
//! buffer in between, or in a buffer of their own if the output has another type.

use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::contraction::{AxisId, Operand};
use crate::direct::{DataMode, Direct, TileLoop};
use crate::lower::nest::{EqualRun, NestParts, Segment, StageBuilder, runs};
use crate::lower::{OperandBuffers, assign, at, load, nest};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{BufferId, Index, LoopKind, Node, Program, Scope, Stage, VarName, When};
use autotune_workloads::Workload;

mod copy;
mod leaf;
mod pack;
mod packed;
mod region;
mod split;
mod tiles;
mod transposed;

pub(crate) use packed::PackedOperand;
pub(crate) use region::{Region, Span, bases};

/// Lowers a config to loop nests, for vectors of `lanes` f32 lanes.
pub(crate) fn lower(workload: &Workload, direct: &Direct, lanes: usize) -> Program {
    DirectLowering::new(workload, direct, lanes).run()
}

/// Callback that emits the nodes of a region.
pub(crate) type Body<'b, L> = dyn FnMut(&mut L, &mut Region) -> Vec<Node> + 'b;

/// Location of an operand that register tiles read, or of the sums that they write.
pub(crate) struct TileOperand {
    pub(crate) buffer: BufferId,
    /// Leading indices, the same for all elements.
    pub(crate) leading: Vec<Affine>,
    /// Remaining indices, affine in the axes.
    pub(crate) index: Vec<Affine>,
    /// Values of the axes at the first element of the buffer; `None` if they are all zero.
    pub(crate) origin: Option<Vec<Affine>>,
}

impl TileOperand {
    /// Returns the index of an element; `value` evaluates one index at the current iteration.
    fn at(&self, value: impl Fn(&Affine) -> Affine) -> Index {
        let element = |index: &Affine| {
            let mut element = value(index);
            if let Some(origin) = &self.origin {
                element.add_scaled(&at(index, origin), -1);
            }
            element
        };
        self.leading.iter().cloned().chain(self.index.iter().map(element)).collect()
    }
}

/// Range of the elements of an axis with `low <= step * element <= high`.
struct Bounds {
    step: i64,
    low: i64,
    high: i64,
}

/// Depth of a loop over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Loop over cache tiles.
    Cache,
    /// Loop over register tiles.
    Register,
    /// Loop over reduction steps.
    Reduce,
    /// Unrolled loop inside a serial loop over reduction steps.
    Unroll,
    /// Loop within the register tile.
    Tile,
}

/// Suffix of a loop's name, by level.
const LEVELS: [&str; 5] = ["0", "1", "r", "u", "t"];

/// Returns the names of the loops over an axis, by level. The names of the axes that
/// [`crate::contraction`] knows are compile-time constants.
fn loop_names(axis: &str) -> [VarName; LEVELS.len()] {
    macro_rules! names {
        ($($known:literal)*) => {
            match axis {
                $($known => [
                    concat!($known, ".0"),
                    concat!($known, ".1"),
                    concat!($known, ".r"),
                    concat!($known, ".u"),
                    concat!($known, ".t"),
                ].map(VarName::Borrowed),)*
                other => LEVELS.map(|level| format!("{other}.{level}").into()),
            }
        };
    }
    names!["b" "m" "n" "k" "g" "o" "oh" "ow" "c" "kh" "kw" "gi" "oi" "ci" "xi" "t" "od" "kd" "uh" "uw" "vh" "vw"]
}

pub(crate) struct DirectLowering<'a> {
    direct: &'a Direct,
    lanes: usize,
    pub(crate) all: NestParts,
    /// Name of a loop over each axis at each [`Level`].
    names: Vec<[VarName; LEVELS.len()]>,
    pub(crate) operands: OperandBuffers,
    packed_weight: Option<Rc<PackedOperand>>,
    /// Panel that the compute nest reads, if there is one.
    panel: Option<Rc<PackedOperand>>,
    /// Location of the data without a panel: the input, or a padded copy of all or a tile of it.
    pub(crate) data: TileOperand,
    /// Destination of the sums of register tiles.
    pub(crate) sums: TileOperand,
    /// Location of partial sums between chunks of the reduction, if it is not `sums`.
    partial: Option<TileOperand>,
    /// True inside the copy of a data tile, where no other copy is made.
    is_copied: bool,
    /// Channels by which the rows of steps in the copy of a tile run ahead of the input.
    missing_channels: Affine,
}

impl StageBuilder for DirectLowering<'_> {
    fn all(&mut self) -> &mut NestParts {
        &mut self.all
    }
}

impl<'a> DirectLowering<'a> {
    pub(crate) fn new(workload: &Workload, direct: &'a Direct, lanes: usize) -> Self {
        let mut all = NestParts::new(workload.spec(), direct.copied[0]);
        let inputs = (direct.input.shape.as_slice(), direct.in_layout);
        let outputs = (direct.output.shape.as_slice(), direct.out_layout);
        let operands = OperandBuffers::new(&mut all, workload, inputs, outputs);
        Self::of_part(all, operands, direct, lanes)
    }

    /// Creates the lowering of one contraction in a program of several.
    pub(crate) fn of_part(mut all: NestParts, operands: OperandBuffers, direct: &'a Direct, lanes: usize) -> Self {
        let axes = direct.contraction.axes.iter();
        let place =
            |buffer, of: &Operand| TileOperand { buffer, leading: Vec::new(), index: of.index.clone(), origin: None };
        let partial = direct.keeps_partial_sums().then(|| {
            let shape = direct.output.shape.clone();
            place(all.partial_sums("partial_sums", Scope::Global, shape), &direct.output)
        });
        Self {
            direct,
            lanes,
            all,
            names: axes.map(|a| loop_names(a.name)).collect(),
            data: place(operands.input, &direct.data),
            sums: place(operands.output, &direct.output),
            operands,
            packed_weight: None,
            panel: None,
            partial,
            is_copied: false,
            missing_channels: Affine::default(),
        }
    }

    fn run(mut self) -> Program {
        let mut stages = self.copies();
        let body = self.compute();
        stages.push(Stage { name: "compute".into(), when: When::EveryRun, body });
        let spec = Arc::clone(&self.direct.contraction.spec);
        Program {
            algorithm: Arc::clone(&spec),
            spec,
            axes: self.direct.contraction.axes.clone(),
            vars: self.all.vars,
            buffers: self.all.buffers,
            stages,
            cold: false,
        }
    }

    /// Returns the stages that copy operands before the compute stage.
    pub(crate) fn copies(&mut self) -> Vec<Stage> {
        let mut stages = Vec::new();
        if self.direct.packed_weights {
            let name = self.all.buffers[self.operands.weight.0 as usize].name.clone();
            let body = self.pack_weight(&format!("{name}_packed"));
            let when = if self.direct.contraction.weight_is_constant { When::AheadOfTime } else { When::EveryRun };
            stages.push(Stage { name: format!("pack_{name}"), when, body });
        }
        if self.direct.data_mode == DataMode::Copy {
            let body = self.copy_input();
            stages.push(Stage { name: "copy_input".into(), when: When::EveryRun, body });
        }
        stages
    }

    /// Returns the region of the whole iteration space.
    pub(crate) fn whole_region(&self) -> Region {
        let axes = &self.direct.contraction.axes;
        axes.iter().map(|a| Span { base: Affine::default(), extent: a.extent }).collect()
    }

    /// Returns the name of a loop over an axis.
    fn axis_name(&self, axis: AxisId, level: Level) -> VarName {
        self.names[axis][level as usize].clone()
    }

    /// Returns the name of a loop over cache tiles of an axis.
    pub(crate) fn cache_loop(&self, axis: AxisId) -> VarName {
        self.axis_name(axis, Level::Cache)
    }

    /// Creates the variable of a loop over an axis.
    fn axis_var(&mut self, axis: AxisId, level: Level, extent: usize) -> VarId {
        let name = self.axis_name(axis, level);
        self.all.var(name, extent)
    }

    /// Returns the trees of the compute stage. There is one per combination of segments of the
    /// parallel loops, and its parallel loops are perfectly nested.
    pub(crate) fn compute(&mut self) -> Vec<Node> {
        let (levels, direct) = (self.direct.parallel_loops(), self.direct);
        let serial = &direct.cache[levels.len() - direct.batch.len()..];
        self.trees(&levels, &mut |this, region| this.cache_nest(serial, region))
    }

    /// Returns one tree per combination of segments of the parallel loops.
    pub(crate) fn trees(&mut self, levels: &[TileLoop], body: &mut Body<Self>) -> Vec<Node> {
        let (mut region, mut roots) = (self.whole_region(), Vec::new());
        self.roots(levels, body, &mut region, &mut Vec::new(), &mut roots);
        roots
    }

    /// Appends the trees of the parallel loops `levels`, given the parallel loops around them.
    fn roots(
        &mut self,
        levels: &[TileLoop],
        body: &mut Body<Self>,
        region: &mut Region,
        loops: &mut Vec<(VarId, usize)>,
        roots: &mut Vec<Node>,
    ) {
        let Some((level, rest)) = levels.split_first() else {
            if loops.is_empty() {
                // Parallel loops separate trees. This one needs such a loop, since nodes within it
                // depend on each other.
                loops.push((self.all.var("task", 1), 1));
            }
            let body = body(self, region);
            let parallel = loops.iter().map(|&(var, extent)| (var, extent, LoopKind::Parallel));
            roots.extend(nest(parallel, body));
            return;
        };

        let outer = region[level.axis].clone();
        for segment in self.segments(*level, region, self.peels_cache_tiles()) {
            let depth = loops.len();
            let mut index = Affine::default();
            if segment.count > 1 {
                let var = self.axis_var(level.axis, Level::Cache, segment.count);
                loops.push((var, segment.count));
                index = Affine::var(var);
            }
            region[level.axis] = outer.tile(segment, index);
            self.roots(rest, body, region, loops, roots);
            loops.truncate(depth);
        }
        region[level.axis] = outer;
    }

    /// Returns the serial loops over cache tiles. The copy of the data tile is outside of the loops
    /// that do not index the data.
    pub(crate) fn cache_nest(&mut self, levels: &[TileLoop], region: &mut Region) -> Vec<Node> {
        let copies = matches!(self.direct.data_mode, DataMode::Tile | DataMode::Panel);
        // The copy is just inside the last loop that indexes the data, so that all loops within
        // reuse it.
        if copies && !self.is_copied && !levels.iter().any(|l| self.direct.data.uses(l.axis)) {
            return self.copying_nest(levels, region);
        }
        let Some((level, rest)) = levels.split_first() else {
            return self.register_nest(region);
        };
        let peel = self.peels_cache_tiles() && !self.is_copied;
        self.tiled(*level, region, peel, Level::Cache, &mut |this, inner| this.cache_nest(rest, inner))
    }

    /// Returns the copies of what a region reads, and the loops that read the copies. A panel is
    /// packed from the input itself, or from a padded copy if the region touches padding.
    fn copying_nest(&mut self, levels: &[TileLoop], region: &mut Region) -> Vec<Node> {
        let is_panel = self.direct.data_mode == DataMode::Panel;
        let is_interior = (0..self.direct.contraction.data.shape.len()).all(|dim| self.dim_is_interior(region, dim));
        let tile = (!is_panel || !is_interior).then(|| self.copy_tile(region));
        let panel = is_panel.then(|| self.pack_panel(region, tile.as_ref().map(|t| t.0)));
        self.is_copied = true;
        let nest = self.cache_nest(levels, region);
        self.is_copied = false;
        // A panel is packed from the copied tile, so the tile is outside.
        [panel, tile].into_iter().flatten().fold(nest, |nest, (buffer, mut body)| {
            body.extend(nest);
            vec![Node::Alloc { buffer, body }]
        })
    }

    /// Serial loops over the register tiles of a cache tile.
    pub(crate) fn register_nest(&mut self, region: &mut Region) -> Vec<Node> {
        let direct = self.direct;
        self.register_loops(&direct.inner, region)
    }

    /// Returns the loops over register tiles `levels`, around the register tile itself.
    fn register_loops(&mut self, levels: &[TileLoop], region: &mut Region) -> Vec<Node> {
        let Some((level, rest)) = levels.split_first() else {
            return self.leaf(region);
        };
        // Copies contain the padding, so only data that is read in place needs peeling.
        let peel = self.direct.data_mode == DataMode::InPlace;
        self.tiled(*level, region, peel, Level::Register, &mut |this, inner| this.register_loops(rest, inner))
    }

    /// Returns one level of tiles: a nest per segment.
    fn tiled(
        &mut self,
        tiles: TileLoop,
        region: &mut Region,
        peel: bool,
        level: Level,
        body: &mut Body<Self>,
    ) -> Vec<Node> {
        let mut nodes = Vec::new();
        let outer = region[tiles.axis].clone();
        for segment in self.segments(tiles, region, peel) {
            let inner = &mut *region;
            nodes.extend(self.repeat(
                self.axis_name(tiles.axis, level),
                segment.count,
                LoopKind::Serial,
                |this, index| {
                    inner[tiles.axis] = outer.tile(segment, index);
                    body(this, inner)
                },
            ));
        }
        // All levels share the region, so each restores its axis.
        region[tiles.axis] = outer;
        nodes
    }

    fn peels_cache_tiles(&self) -> bool {
        self.direct.data_mode != DataMode::Copy
    }

    /// Returns the tiles of an axis as runs of equal tiles. Whole tiles are one run, and the
    /// remainder is a run of its own. The first and the last tile of a reduction axis are separate,
    /// too. With `peel`, so is each tile that touches padding.
    pub(crate) fn segments(&self, level: TileLoop, region: &Region, peel: bool) -> SmallVec<[Segment; 4]> {
        let TileLoop { axis, tile } = level;
        let extent = region[axis].extent;
        let count = extent.div_ceil(tile);
        let is_reduction = self.direct.contraction.axes[axis].reduce;
        let bounds = if peel && !is_reduction { self.bounds_along(axis, region) } else { SmallVec::new() };
        if !is_reduction && bounds.is_empty() {
            return Segment::tiles(extent, tile).collect();
        }

        let each = |t: usize| {
            let size = tile.min(extent - t * tile);
            let (first, last) = ((t * tile) as i64, (t * tile + size - 1) as i64);
            let is_inside = |b: &Bounds| b.step * first >= b.low && b.step * last <= b.high;
            // The first chunk starts from zero, and the last one applies the epilogue.
            let is_end = is_reduction && (t == 0 || t + 1 == count);
            let is_single = size < tile || is_end || !bounds.iter().all(is_inside);
            (is_single.then_some(t), size)
        };
        let segment =
            |run: EqualRun<(_, usize)>| Segment { start: run.first * tile, count: run.count, extent: run.each.1 };
        runs((0..count).map(each)).map(segment).collect()
    }

    /// Returns the bounds that keep tiles of a spatial axis out of the padding. There is one for
    /// each dimension that the axis indexes and in which some tile of the region touches padding.
    fn bounds_along(&self, axis: AxisId, region: &Region) -> SmallVec<[Bounds; 2]> {
        let data = &self.direct.contraction.data;
        let mut bounds = SmallVec::new();
        for (dim, index) in data.index.iter().enumerate() {
            let step = index.coefficient(VarId(axis as u32));
            let (low, high) = self.dim_range(region, dim);
            let limit = data.shape[dim] as i64 - 1;
            if step != 0 && (low < 0 || high > limit) {
                // The bound is on the elements of this axis, whatever the other axes of the region
                // add to the index.
                let reach = step * (region[axis].extent as i64 - 1);
                bounds.push(Bounds { step, low: -low, high: limit - (high - reach) });
            }
        }
        bounds
    }

    fn dim_is_interior(&self, region: &Region, dim: usize) -> bool {
        let (low, high) = self.dim_range(region, dim);
        low >= 0 && high < self.direct.contraction.data.shape[dim] as i64
    }

    /// Returns the lowest and the highest index that a region reads along a dimension of the data
    /// operand.
    fn dim_range(&self, region: &Region, dim: usize) -> (i64, i64) {
        let index = &self.direct.contraction.data.index[dim];
        let (mut low, mut high) = (index.constant, index.constant);
        for &(axis, c) in &index.terms {
            let span = &region[axis.0 as usize];
            let (first, last) = span.base.range(|v| self.all.extents[v.0 as usize]);
            low += c * first;
            high += c * (last + span.extent as i64 - 1);
        }
        (low, high)
    }
}
