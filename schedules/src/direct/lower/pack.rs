//! Packing of operands into the order in which register tiles read them. A separate stage packs the
//! weights; each thread packs panels of the data operand just before it reads them.

use std::cmp::Reverse;
use std::rc::Rc;

use smallvec::SmallVec;

use super::packed::{InnerAxis, PackedOperand};
use super::{DirectLowering, Level, Region, Segment, at, bases, load, nest};
use crate::contraction::{AxisId, Operand};
use crate::direct::{Group, TileLoop};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{BufferId, Expr, LoopKind, Node, Role, Scope};

/// A combination of whole and remainder register tiles.
#[derive(Clone)]
struct TileCombination {
    /// Segment of tiles along each axis with several tiles.
    tiles: SmallVec<[Segment; 2]>,
    /// Axes that one of these tiles reads.
    inner: Vec<InnerAxis>,
}

/// Operand that is packed.
struct PackSource {
    /// Buffer to read; `None` for the input, to which a prologue may apply.
    buffer: Option<BufferId>,
    operand: Operand,
    /// First packed element along every axis.
    base: Vec<Affine>,
}

/// A loop of a copy: `count` steps of `step` elements each along an axis, from `start` on.
#[derive(Clone, Copy)]
struct CopyLoop {
    axis: AxisId,
    start: usize,
    step: usize,
    count: usize,
    level: Level,
    kind: LoopKind,
}

impl CopyLoop {
    /// Returns the loop over every element of an axis.
    fn each(inner: &InnerAxis, kind: LoopKind) -> Self {
        let level = if inner.is_reduced { Level::Reduce } else { Level::Tile };
        Self { axis: inner.axis, start: 0, step: 1, count: inner.extent, level, kind }
    }
}

/// Maximum number of vector copies that are written out in a row.
const MAX_COPIES: usize = 16;
/// Maximum number of elements in a run that is written out as vectors.
const MAX_RUN: usize = 64;
/// Reduction steps of the blocks in which a panel is transposed.
const ROWS: usize = 4;
/// Pixels of these blocks; also of the groups in which a panel takes every other pixel.
const BLOCK: [usize; 2] = [4, 8];

impl DirectLowering<'_> {
    /// Packs the weights:
    ///
    /// ```text
    /// for each register tile: for each reduction step: for each output channel of the tile
    ///   weight_packed[tile, step, channel] = weight[tile * size + channel, step]
    /// ```
    /// Channels after the last are left undefined. Weights that are read out of bounds are zeros,
    /// which separate nests write.
    pub(super) fn pack_weight(&mut self, name: &str) -> Vec<Node> {
        let packed = self.open_packed_weight(name);
        let region = self.whole_region();
        let operand = self.direct.contraction.weight.clone();
        let source = PackSource { buffer: Some(self.operands.weight), operand, base: bases(&region) };

        // The elements of a tile are contiguous along its vectorised axis.
        let vector = self.direct.vector;
        let kind = |i: &InnerAxis| if i.axis == vector { LoopKind::Vectorized } else { LoopKind::Serial };

        let mut nodes = Vec::new();
        for part in self.combinations(&packed, &region) {
            let (group, inner) = self.without_group(&part.inner);
            let steps = with_group(inner.iter().map(|i| CopyLoop::each(i, kind(i))).collect(), group);
            for steps in self.at_end_of_groups(steps) {
                for (tiles, steps) in self.split_at_bounds(&packed, &part.tiles, steps) {
                    nodes.extend(self.pack_nest(&packed, &source, &tiles, &steps, LoopKind::Parallel));
                }
            }
        }
        nodes
    }

    /// Returns the index and the extent of the weights' dimension that has the steps of a group.
    pub(super) fn dim_of_groups(&self, group: AxisId) -> Option<(&Affine, usize)> {
        let weight = &self.direct.contraction.weight;
        let mut dims = weight.index.iter().zip(weight.shape.iter().copied());
        dims.find(|(index, _)| index.uses(VarId(group as u32)))
    }

    /// Returns the axes along which weights are read out of bounds, except those of groups of
    /// steps.
    fn axes_beyond(&self) -> Vec<AxisId> {
        let of_groups = self.direct.dot.and_then(|group| self.dim_of_groups(group.axis));
        let mut axes = self.direct.contraction.axes_beyond_weights();
        axes.retain(|&axis| of_groups.is_none_or(|(index, _)| !index.uses(VarId(axis as u32))));
        axes
    }

    /// Returns the loops over groups of steps. If the last group, or the last row of a tile, is
    /// incomplete, its steps have loops of their own, which are inside or out of bounds as a whole.
    fn at_end_of_groups(&self, steps: Vec<CopyLoop>) -> Vec<Vec<CopyLoop>> {
        let Some((index, extent)) = self.direct.dot.and_then(|group| self.dim_of_groups(group.axis)) else {
            return vec![steps];
        };
        let span = |step: &CopyLoop| index.coefficient(VarId(step.axis as u32)).max(0) as usize;
        let mut places: Vec<usize> = (0..steps.len()).filter(|&place| span(&steps[place]) > 0).collect();
        // From rows over words to single steps.
        places.sort_by_key(|&place| Reverse(span(&steps[place])));

        let (mut nests, mut open, mut left) = (Vec::new(), steps, extent);
        for place in places {
            let (span, count) = (span(&open[place]), open[place].count);
            let whole = left / span;
            if whole >= count {
                break;
            }
            let part = |start: usize, count: usize| {
                let mut part = open.clone();
                (part[place].start, part[place].count) = (start, count);
                part
            };
            left -= whole * span;
            let is_cut = left > 0;
            let ends = [(0, whole), (whole + usize::from(is_cut), count - whole - usize::from(is_cut))];
            nests.extend(ends.into_iter().filter(|end| end.1 > 0).map(|(start, count)| part(start, count)));
            if !is_cut {
                return nests;
            }
            open = part(whole, 1);
        }
        nests.push(open);
        nests
    }

    /// Splits loops along the axes in which weights are read out of bounds, one nest per value.
    /// Each nest is then either entirely in bounds or entirely out of bounds.
    fn split_at_bounds(
        &self,
        packed: &PackedOperand,
        tiles: &[Segment],
        steps: Vec<CopyLoop>,
    ) -> Vec<(SmallVec<[Segment; 2]>, Vec<CopyLoop>)> {
        let beyond = self.axes_beyond();
        let mut nests = vec![(SmallVec::from_slice(tiles), steps)];

        // Indices of tiles come first, then those within a tile.
        for (place, (axis, _)) in packed.tiles.iter().enumerate().filter(|(_, (axis, _))| beyond.contains(axis)) {
            let Segment { start, count, extent } = tiles[place];
            let number = |number: usize| Segment { start: start + number * extent, count: 1, extent };
            let with = |nest: &(SmallVec<[Segment; 2]>, Vec<CopyLoop>), number| {
                let mut nest = nest.clone();
                nest.0[place] = number;
                nest
            };
            debug_assert!(packed.tiles.iter().filter(|(other, _)| other == axis).count() == 1);
            nests = nests.iter().flat_map(|nest| (0..count).map(move |at| with(nest, number(at)))).collect();
        }

        for place in 0..nests[0].1.len() {
            let CopyLoop { axis, count, .. } = nests[0].1[place];
            if !beyond.contains(&axis) {
                continue;
            }
            let with = |nest: &(SmallVec<[Segment; 2]>, Vec<CopyLoop>), at| {
                let mut nest = nest.clone();
                let step = &mut nest.1[place];
                (step.start, step.count, step.kind) = (at, 1, LoopKind::Serial);
                nest
            };
            nests = nests.iter().flat_map(|nest| (0..count).map(move |at| with(nest, at))).collect();
        }
        nests
    }

    /// Adds a buffer for packed weights, and makes register tiles read it.
    pub(crate) fn open_packed_weight(&mut self, name: &str) -> Rc<PackedOperand> {
        let packed = Rc::new(self.packed(name, Scope::Global, &self.direct.contraction.weight, None));
        self.packed_weight = Some(Rc::clone(&packed));
        packed
    }

    /// Packs a panel of the data that a region reads:
    ///
    /// ```text
    /// for each register tile: for each reduction step: for each pixel of the register tile
    ///   data_panel[tile, step, pixel] = input[tile * size * stride + pixel * stride + step]
    /// ```
    /// Pixels after the last are left undefined. `tile` is a copy of what the region reads, with
    /// its padding; `None` if the region has none.
    pub(super) fn pack_panel(&mut self, region: &Region, tile: Option<BufferId>) -> (BufferId, Vec<Node>) {
        let data = &self.direct.data;
        let packed = self.packed("data_panel", Scope::Local, data, Some(region.clone()));
        let source = match tile {
            None => PackSource { buffer: None, operand: Operand::clone(data), base: bases(region) },
            Some(buffer) => {
                // The copy begins at the first element that the region reads.
                let linear = |index: &Affine| index.clone() + -index.constant;
                let index = data.index.iter().map(linear).collect();
                let operand = Operand { shape: self.direct.tile_shape(), index };
                PackSource { buffer: Some(buffer), operand, base: vec![Affine::default(); region.len()] }
            }
        };

        let mut nodes = Vec::new();
        for part in self.combinations(&packed, region) {
            let (group, inner) = self.without_group(&part.inner);
            for steps in panel_nests(&source.operand, inner, self.lanes) {
                let steps = with_group(steps, group);
                nodes.extend(self.pack_nest(&packed, &source, &part.tiles, &steps, LoopKind::Serial));
            }
        }
        let buffer = packed.buffer;
        self.panel = Some(Rc::new(packed));
        (buffer, nodes)
    }

    /// Splits the innermost axis off, as a loop over the steps of a group, if there are groups.
    fn without_group<'i>(&self, inner: &'i [InnerAxis]) -> (Option<CopyLoop>, &'i [InnerAxis]) {
        match (inner.split_last(), self.direct.dot) {
            (Some((last, others)), Some(group)) if last.axis == group.axis => {
                (Some(CopyLoop::each(last, LoopKind::Unrolled)), others)
            }
            _ => (None, inner),
        }
    }

    /// Adds a buffer for an operand. It holds all of the operand, or, for a region, as much as any
    /// cache tile reads.
    fn packed(&mut self, name: &str, scope: Scope, operand: &Operand, region: Option<Region>) -> PackedOperand {
        let direct = self.direct;
        let axes = &direct.contraction.axes;
        let covers = |a: AxisId| if region.is_some() { direct.cache_extent(a) } else { axes[a].extent };
        let tiles: Vec<(AxisId, usize)> = (0..axes.len())
            .filter(|&a| !axes[a].reduce && operand.uses(a))
            .map(|a| (a, direct.register_extent(a)))
            // An axis with a single tile needs no dimension for the tile's number.
            .filter(|&(a, tile)| covers(a) > tile)
            .collect();

        let reduce = direct.reduce.iter().map(|&axis| InnerAxis { axis, extent: covers(axis), is_reduced: true });
        let registers = direct.register_tile().into_iter();
        let registers = registers.map(|(axis, extent)| InnerAxis { axis, extent, is_reduced: false });
        let group =
            direct.dot.map(|Group { axis, .. }| InnerAxis { axis, extent: axes[axis].extent, is_reduced: true });
        let words = direct.tile_group().and_then(|group| group.row[1]).map(|axis| InnerAxis {
            axis,
            extent: axes[axis].extent,
            is_reduced: true,
        });
        let inner = reduce.chain(words).chain(registers).chain(group);
        let inner: Vec<InnerAxis> = inner.filter(|i| operand.uses(i.axis)).collect();

        let counts = tiles.iter().map(|&(axis, tile)| covers(axis).div_ceil(tile));
        let shape = counts.chain(inner.iter().map(|i| i.extent)).collect();
        let buffer = match region {
            Some(_) => self.data_buffer(name, scope, shape),
            None => self.weight_buffer(name, scope, shape),
        };
        PackedOperand { buffer, tiles, inner, region }
    }

    /// Adds a buffer for a copy of weights.
    fn weight_buffer(&mut self, name: &str, scope: Scope, shape: Vec<usize>) -> BufferId {
        let shape = self.with_parts(shape);
        let id = self.all.buffer_named(name, Role::Packed, scope, shape);
        self.all.buffers[id.0 as usize].dtype = self.direct.copied[1];
        id
    }

    /// Returns each combination of whole and remainder tiles in `region`, with the extents along
    /// the inner axes.
    fn combinations(&self, packed: &PackedOperand, region: &Region) -> Vec<TileCombination> {
        let mut combinations: Vec<TileCombination> =
            vec![TileCombination { tiles: SmallVec::new(), inner: packed.inner.clone() }];
        for &(axis, tile) in &packed.tiles {
            let segments = self.segments(TileLoop { axis, tile }, region, false);
            let with = |part: &TileCombination, segment: &Segment| {
                let mut part = part.clone();
                part.tiles.push(*segment);
                part.inner.iter_mut().filter(|i| i.axis == axis).for_each(|i| i.extent = segment.extent);
                part
            };
            combinations = combinations.iter().flat_map(|p| segments.iter().map(move |s| with(p, s))).collect();
        }
        // The last chunk of a reduction axis may be smaller than the others.
        let cut = |i: &mut InnerAxis| i.extent = i.extent.min(region[i.axis].extent);
        combinations.iter_mut().for_each(|p| p.inner.iter_mut().for_each(cut));
        combinations
    }

    fn pack_nest(
        &mut self,
        packed: &PackedOperand,
        source: &PackSource,
        chosen: &[Segment],
        steps: &[CopyLoop],
        kind: LoopKind,
    ) -> Vec<Node> {
        let mut value = source.base.clone();
        let mut index = Vec::new();
        let mut loops = Vec::new();
        for (&(axis, tile), segment) in packed.tiles.iter().zip(chosen) {
            let mut number = Affine::constant((segment.start / tile) as i64);
            if segment.count > 1 || kind == LoopKind::Parallel {
                let level = if kind == LoopKind::Parallel { Level::Cache } else { Level::Register };
                let var = self.axis_var(axis, level, segment.count);
                loops.push((var, segment.count, kind));
                number = Affine::var(var) + number.constant;
            }
            value[axis].add_scaled(&number, tile as i64);
            index.push(number);
        }
        // Each tree of a parallel stage needs a parallel loop.
        if loops.is_empty() && kind == LoopKind::Parallel {
            loops.push((self.all.var("task", 1), 1, kind));
        }

        let mut local = vec![Affine::default(); value.len()];
        for step in steps {
            local[step.axis].constant += step.start as i64;
            if step.count > 1 || step.kind == LoopKind::Vectorized {
                let var = self.axis_var(step.axis, step.level, step.count);
                loops.push((var, step.count, step.kind));
                local[step.axis].add_scaled(&Affine::var(var), step.step as i64);
            }
        }
        for inner in &packed.inner {
            value[inner.axis].add_scaled(&local[inner.axis], 1);
            index.push(std::mem::take(&mut local[inner.axis]));
        }

        let from: Vec<Affine> = source.operand.index.iter().map(|i| at(i, &value)).collect();
        // Nests are split such that each is in bounds or out of bounds as a whole.
        let is_beyond = |(index, extent): (&Affine, &usize)| {
            let (low, high) = index.range(|var| self.all.extents[var.0 as usize]);
            high < 0 || low >= *extent as i64
        };
        let from = match (source.buffer, from.iter().zip(&source.operand.shape).any(is_beyond)) {
            (_, true) => Expr::Const(0.0),
            (Some(buffer), false) => load(buffer, from),
            (None, false) => self.datum(from),
        };
        nest(loops, self.copy_of(packed.buffer, index, from))
    }
}

/// Inserts the loop over the steps of a group just outside the innermost, vectorised loop. A vector
/// of each step is written, so that the steps are interleaved into words.
fn with_group(mut steps: Vec<CopyLoop>, group: Option<CopyLoop>) -> Vec<CopyLoop> {
    let place = steps.len().saturating_sub(1);
    steps.splice(place..place, group);
    steps
}

/// Returns the nests that copy one register tile of a panel. If the innermost axis has a large
/// stride in the source and a reduction axis has stride 1, they transpose blocks of both:
///
/// ```text
/// serial m.u in 0..2 { serial k.r in 0..64 { unrolled k.u in 0..4 { vectorized m.t in 0..8 {
///   data_panel[4*k.r + k.u, 8*m.u + m.t] = input[8*m.u + m.t, 4*k.r + k.u] } } } }
/// ```
fn panel_nests(source: &Operand, inner: &[InnerAxis], lanes: usize) -> Vec<Vec<CopyLoop>> {
    let Some((last, outer)) = inner.split_last() else {
        return vec![Vec::new()];
    };
    let each = |i: &InnerAxis| CopyLoop::each(i, LoopKind::Serial);
    let stride = source.stride(last.axis);
    let row = outer.iter().find(|i| i.extent >= ROWS && source.stride(i.axis) == 1);

    if let Some(row) = row.filter(|_| last.extent >= ROWS && stride > 2) {
        let around = || outer.iter().filter(|i| i.axis != row.axis).map(each);
        let block = |[over_rows, rows]: [CopyLoop; 2], [over_columns, columns]: [CopyLoop; 2]| {
            let rows = CopyLoop { kind: LoopKind::Unrolled, ..rows };
            around().chain([over_columns, over_rows, rows, columns]).collect()
        };
        let rows = runs(row, &[ROWS]);
        return runs(last, &BLOCK).iter().flat_map(|c| rows.iter().map(|r| block(*r, *c))).collect();
    }

    // Otherwise the innermost axis is copied in runs, and outer loops are unrolled while the code
    // stays small.
    let whole = [if last.extent <= MAX_RUN { last.extent } else { lanes }];
    let mut runs = runs(last, if stride == 2 { &BLOCK } else { &whole });
    let mut copies = 1;
    let mut unroll = |step: &mut CopyLoop, vectors: usize| {
        copies *= step.count * vectors;
        if copies <= MAX_COPIES {
            step.kind = LoopKind::Unrolled;
        }
    };
    let mut around: Vec<CopyLoop> = outer.iter().map(each).collect();
    let [over, within] = &mut runs[0];
    unroll(over, within.count.div_ceil(lanes));
    around.iter_mut().rev().for_each(|step| unroll(step, 1));
    runs.iter().map(|run| around.iter().chain(run).copied().collect()).collect()
}

/// Splits an axis into groups of the largest of `sizes` that fits, and one more group for the
/// remainder, which may overlap the others. Each group is a serial loop over vector loops.
fn runs(inner: &InnerAxis, sizes: &[usize]) -> SmallVec<[[CopyLoop; 2]; 2]> {
    let InnerAxis { axis, extent, is_reduced } = *inner;
    let levels = if is_reduced { [Level::Reduce, Level::Unroll] } else { [Level::Unroll, Level::Tile] };
    let run = |start: usize, count: usize, size: usize| {
        [
            CopyLoop { axis, start, step: size, count, level: levels[0], kind: LoopKind::Serial },
            CopyLoop { axis, start: 0, step: 1, count: size, level: levels[1], kind: LoopKind::Vectorized },
        ]
    };
    let fits = || sizes.iter().copied().filter(|&size| size <= extent);
    let whole = fits().max().unwrap_or(extent);
    let rest = extent % whole;
    let last = fits().filter(|&size| size >= rest).min().unwrap_or(rest);
    let runs = [run(0, extent / whole, whole), run(extent - last, 1, last)];
    runs.into_iter().take(if rest > 0 { 2 } else { 1 }).collect()
}
