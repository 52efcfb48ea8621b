//! The register tile, the innermost part of the direct algorithm's loop nest: initialisation of the
//! accumulators, reduction, and final store.
//!
//! If the data is read in place, taps of a convolution may be in the padding. Such taps are left
//! out while lowering, so that no condition is checked at run time: a reduction loop is cut to the
//! taps inside, or written out tap by tap over the elements of the tile whose tap is inside.

use std::ops::Range;

use smallvec::SmallVec;

use super::{DirectLowering, Level, Region, assign, at, bases, load, nest};
use crate::contraction::AxisId;
use crate::direct::{DataMode, Group};
use crate::lower::nest::{StageBuilder, shaped_name};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{
    Access, BufferId, Expr, Index, LoopKind, Node, PrefetchLevel, Role, Scope, Store, StoreMode,
};

/// Number of f32 elements in a cache line.
const LINE: usize = 16;

/// Minimum number of elements in a row of a register tile that is worth a transposed copy.
const LEAST_ROW: usize = 4;

/// A part of the register tile along one axis: `start..start + len` within the tile.
#[derive(Clone, Copy)]
pub(super) struct TileRange {
    pub(super) axis: AxisId,
    pub(super) start: usize,
    pub(super) len: usize,
}

/// A reduction loop of a register tile: `start..start + extent` of its axis.
#[derive(Clone, Copy)]
struct ReductionLoop {
    axis: AxisId,
    start: usize,
    extent: usize,
    steps: ReductionMode,
}

/// Form of a reduction loop.
#[derive(Clone, Copy)]
enum ReductionMode {
    /// Written out while lowering: every value is a constant.
    Constants,
    Unrolled,
    Serial,
    /// A serial loop over unrolled groups of this size, with an unrolled remainder.
    Groups(usize),
}

/// Offset of each axis from the base of the region, at the current iteration.
pub(super) type Local = Vec<Affine>;

/// A register tile of the compute nest.
pub(super) struct Tile<'r> {
    pub(super) region: &'r Region,
    /// Axes of more than one element, and the vectorised axis, which is always the last.
    pub(super) parts: Vec<TileRange>,
    /// Accumulators of the tile's partial sums.
    pub(super) acc: BufferId,
    /// Padded dimensions of the data operand: read in place, and partly out of bounds in the
    /// region.
    pub(super) padded: SmallVec<[usize; 2]>,
}

impl Tile<'_> {
    pub(super) fn acc_access(&self, local: &Local) -> Access {
        Access { buffer: self.acc, index: self.parts.iter().map(|p| local[p.axis].clone()).collect() }
    }

    /// Returns an operand's index at `local`.
    fn at(&self, index: &Affine, local: &Local) -> Affine {
        let mut total = Affine::constant(index.constant);
        for &(axis, c) in &index.terms {
            total.add_scaled(&self.region[axis.0 as usize].base, c);
            total.add_scaled(&local[axis.0 as usize], c);
        }
        total
    }

    /// Returns the values of the axes at `local`.
    fn point(&self, local: &Local) -> Vec<Affine> {
        self.region.iter().zip(local).map(|(span, offset)| span.base.clone() + offset).collect()
    }
}

impl DirectLowering<'_> {
    /// Returns the nodes of a register tile:
    ///
    /// ```text
    /// alloc acc
    ///   acc[..] = 0, or the partial sums if this is not the first reduction chunk
    ///   reduction loops: acc[..] += data[..] * weight[..]
    ///   output[..] = act(acc[..] + bias + residual), or the partial sums before the last chunk
    /// ```
    pub(super) fn leaf(&mut self, region: &Region) -> Vec<Node> {
        if let Some(group) = self.direct.tile_group() {
            return self.tile_leaf(group, region);
        }
        let tile = self.register_tile(region);
        let axes = &self.direct.contraction.axes;
        let mut reduced = (0..axes.len()).filter(|&a| axes[a].reduce);
        let is_first = reduced.clone().all(|a| region[a].base.as_constant() == Some(0));
        let is_last = reduced
            .all(|a| region[a].base.as_constant().is_some_and(|b| b as usize + region[a].extent == axes[a].extent));

        let mut local: Local = vec![Affine::default(); region.len()];
        let mut body = self.over_parts(&tile.parts, &mut local, |this, local| {
            // Between chunks of the reduction, sums may be in a buffer of another type than the
            // output.
            let sums = this.partial.as_ref().unwrap_or(&this.sums);
            let partial = || load(sums.buffer, sums.at(|index| tile.at(index, local)));
            let start = if is_first { Expr::Const(0.0) } else { partial() };
            let Access { buffer, index } = tile.acc_access(local);
            vec![assign(buffer, index, start)]
        });

        let loops = self.reductions(&tile);
        // A tile with all its taps in the padding keeps zeros.
        if loops.iter().all(|l| l.extent > 0) {
            body.extend(self.reduction(&loops, &tile, &mut local));
        }

        // Storing columns element by element takes longer than transposing them.
        body.extend(match self.contiguous_row(&tile).filter(|row| is_last && row.len >= LEAST_ROW) {
            Some(row) => self.finish_by_rows(&tile, row, &mut local),
            None => self.over_parts(&tile.parts, &mut local, |this, local| vec![this.finish(&tile, local, is_last)]),
        });
        vec![Node::Alloc { buffer: tile.acc, body }]
    }

    /// Creates the register tile that covers a region.
    fn register_tile<'r>(&mut self, region: &'r Region) -> Tile<'r> {
        let parts = self.parts(region);
        let shape: Vec<usize> = parts.iter().map(|p| p.len).collect();

        // Tiles of the same shape share one accumulator buffer.
        let name = shaped_name("acc", &shape);
        let acc = self.all.buffer_named(&name, Role::Accumulator, Scope::Register, shape);

        let in_place = self.direct.data_mode == DataMode::InPlace;
        let dims = if in_place { 0..self.direct.contraction.data.shape.len() } else { 0..0 };
        let padded = dims.filter(|&dim| !self.dim_is_interior(region, dim)).collect();
        Tile { region, parts, acc, padded }
    }

    /// Returns the axes of more than one element that a register tile covers, and the vectorised
    /// axis, which is always the last.
    pub(super) fn parts(&self, region: &Region) -> Vec<TileRange> {
        let vector = self.direct.vector;
        let whole = |&(axis, _): &(AxisId, usize)| TileRange { axis, start: 0, len: region[axis].extent };
        let tile = self.direct.register_tile();
        tile.iter().map(whole).filter(|p| p.len > 1 || p.axis == vector).collect()
    }

    /// Returns unrolled loops over the parts, the last one vectorised. `body` gets the offset of
    /// every axis.
    pub(super) fn over_parts(
        &mut self,
        parts: &[TileRange],
        local: &mut Local,
        body: impl FnOnce(&mut Self, &Local) -> Vec<Node>,
    ) -> Vec<Node> {
        let mut vars: SmallVec<[(VarId, usize, LoopKind); 4]> = SmallVec::new();
        for part in parts {
            local[part.axis] = Affine::constant(part.start as i64);
            if part.len > 1 {
                let var = self.axis_var(part.axis, Level::Tile, part.len);
                local[part.axis] = Affine::var(var) + part.start as i64;
                let kind = if part.axis == self.direct.vector { LoopKind::Vectorized } else { LoopKind::Unrolled };
                vars.push((var, part.len, kind));
            }
        }
        let body = body(self, local);
        nest(vars, body)
    }

    /// Returns the reduction loops, outermost first. They are unrolled from the innermost outwards
    /// while the product of their extents is within the `unroll` knob. A kernel loop over a padded
    /// dimension is cut to the taps inside, if the tile is one element wide there; otherwise it is
    /// written out.
    fn reductions(&self, tile: &Tile) -> Vec<ReductionLoop> {
        let data = &self.direct.contraction.data;
        let mut budget = self.direct.unroll;
        let mut loops = Vec::new();
        for &axis in self.direct.reduce.iter().rev() {
            let concerns = |dim: usize, axis: AxisId| data.index[dim].uses(VarId(axis as u32));

            let mut taps = 0..tile.region[axis].extent;
            let mut constants = false;
            if let Some(&dim) = tile.padded.iter().find(|&&dim| concerns(dim, axis)) {
                // In a tile of several elements, each has other taps inside, so the taps are
                // lowered one by one.
                constants = tile.parts.iter().any(|p| p.len > 1 && concerns(dim, p.axis));
                if !constants {
                    taps = self.taps_inside(tile.region, dim, axis);
                }
            }

            let (start, extent) = (taps.start, taps.len());
            let steps = if constants {
                ReductionMode::Constants
            } else if extent <= budget {
                budget /= extent.max(1);
                ReductionMode::Unrolled
            } else if budget > 1 {
                ReductionMode::Groups(std::mem::replace(&mut budget, 1))
            } else {
                ReductionMode::Serial
            };
            loops.push(ReductionLoop { axis, start, extent, steps });
        }
        loops.reverse();
        loops
    }

    /// Returns the values of a kernel axis whose taps are inside the data, for a region of one
    /// element along dimension `dim`.
    fn taps_inside(&self, region: &Region, dim: usize, axis: AxisId) -> Range<usize> {
        let data = &self.direct.contraction.data;
        let step = data.index[dim].coefficient(VarId(axis as u32));
        let first = at(&data.index[dim], &bases(region)).constant;
        let (low, high) = inside(first, step, data.shape[dim]);
        let extent = region[axis].extent as i64;
        let (low, high) = (low.min(extent), high.min(extent));
        low as usize..high.max(low) as usize
    }

    /// Returns the given reduction loops, outermost first, around the multiply-accumulates.
    fn reduction(&mut self, loops: &[ReductionLoop], tile: &Tile, local: &mut Local) -> Vec<Node> {
        let Some((&ReductionLoop { axis, start, extent, steps }, rest)) = loops.split_first() else {
            return self.multiply_accumulate(tile, local);
        };
        let mut go = |this: &mut Self, value: Affine| {
            local[axis] = value + start as i64;
            this.reduction(rest, tile, local)
        };

        match steps {
            ReductionMode::Constants => (0..extent).flat_map(|k| go(self, Affine::constant(k as i64))).collect(),
            ReductionMode::Unrolled => self.repeat(self.axis_name(axis, Level::Reduce), extent, LoopKind::Unrolled, go),
            ReductionMode::Serial => self.repeat(self.axis_name(axis, Level::Reduce), extent, LoopKind::Serial, go),
            ReductionMode::Groups(group) => {
                let whole = extent / group * group;
                let inner = self.axis_name(axis, Level::Unroll);
                let mut nodes = self.repeat(
                    self.axis_name(axis, Level::Reduce),
                    extent / group,
                    LoopKind::Serial,
                    |this, outer| {
                        this.repeat(inner.clone(), group, LoopKind::Unrolled, |this, u| {
                            go(this, outer * group as i64 + u)
                        })
                    },
                );
                if whole < extent {
                    nodes.extend(
                        self.repeat(inner, extent - whole, LoopKind::Unrolled, |this, u| go(this, u + whole as i64)),
                    );
                }
                nodes
            }
        }
    }

    /// Returns `acc += data * weight` for the elements of the register tile whose taps are inside
    /// the data.
    fn multiply_accumulate(&mut self, tile: &Tile, local: &mut Local) -> Vec<Node> {
        let Some(valid) = self.valid_parts(tile, local) else {
            return Vec::new();
        };
        let prefetches = self.prefetches(tile, local);
        let mut nodes = match (self.direct.dot, valid.split_last()) {
            (Some(group), Some((vector, others))) => {
                self.over_parts(others, local, |this, local| vec![this.dot(group, *vector, tile, local)])
            }
            _ => self.over_parts(&valid, local, |this, local| vec![this.product(tile, local)]),
        };
        // Prefetches come first, so that they overlap with the multiply-adds.
        nodes.splice(0..0, prefetches);
        nodes
    }

    /// Returns `acc += data * weight` for one element of the register tile.
    pub(super) fn product(&self, tile: &Tile, local: &Local) -> Node {
        let point = tile.point(local);
        let data = self.data_access(tile.region, local, &point);
        let weight = self.weight_access(tile.region, local, &point);
        let value = self.product_of(data, weight);
        let (dst, iteration) = (tile.acc_access(local), self.direct.contraction.iteration(point));
        Node::Store(Store { dst, mode: StoreMode::Accumulate, value, iteration })
    }

    /// Returns the call of a dot-product instruction for a part of a vector and all steps of a
    /// group.
    fn dot(&mut self, Group { axis, instruction, .. }: Group, vector: TileRange, tile: &Tile, local: &Local) -> Node {
        let mut local = local.clone();
        let steps = self.direct.contraction.axes[axis].extent;
        let body = self.repeat(self.axis_name(axis, Level::Reduce), steps, LoopKind::Unrolled, |this, step| {
            local[axis] = step;
            this.over_parts(&[vector], &mut local, |this, local| vec![this.product(tile, local)])
        });
        Node::Call { instruction, body }
    }

    /// Prefetches as many cache lines of weights as one reduction step reads, at the plan's
    /// distance. With packed weights, this reaches the tile's next steps and then the next tile.
    /// With a matrix read in place, it reaches the same columns of the next steps. The last
    /// prefetches are never used.
    fn prefetches(&self, tile: &Tile, local: &Local) -> Vec<Node> {
        let ahead @ 1.. = self.direct.prefetch else { return Vec::new() };
        let mut first = local.clone();
        tile.parts.iter().for_each(|part| first[part.axis] = Affine::default());
        let Expr::Load(access) = self.weight_access(tile.region, &first, &tile.point(&first)) else {
            return Vec::new();
        };

        let elements = match &self.packed_weight {
            Some(packed) => packed.step_len(),
            None => tile.parts.last().map_or(1, |part| part.len),
        };
        // A tile ahead may be as large as the first-level cache.
        let level = PrefetchLevel::L2;
        let line = |line: usize| Node::Prefetch { access: access.clone(), ahead: ahead + line, level };
        (0..elements).step_by(LINE).map(line).collect()
    }

    /// Returns the parts without the elements whose taps are in the padding, or `None` if no
    /// element is left. In a padded dimension, the bases of the region are constants. So are the
    /// reduction offsets, unless their loops were cut to the taps inside.
    fn valid_parts(&self, tile: &Tile, local: &Local) -> Option<SmallVec<[TileRange; 4]>> {
        let mut valid: SmallVec<[TileRange; 4]> = SmallVec::from_slice(&tile.parts);
        let data = &self.direct.contraction.data;
        for &dim in &tile.padded {
            // An index that is not a constant belongs to a loop that was cut to the taps inside.
            let Some(first) = first_element(&data.index[dim], tile, local) else { continue };
            let limit = data.shape[dim] as i64;
            match valid.iter_mut().find(|p| data.index[dim].uses(VarId(p.axis as u32))) {
                Some(part) => {
                    let stride = data.index[dim].coefficient(VarId(part.axis as u32));
                    let (low, high) = inside(first, stride, data.shape[dim]);
                    let high = high.min(part.len as i64);
                    if low >= high {
                        return None;
                    }
                    (part.start, part.len) = (low as usize, (high - low) as usize);
                }
                None if first < 0 || first >= limit => return None,
                None => {}
            }
        }
        Some(valid)
    }

    /// Returns the data operand at an iteration: from the panel, a copy, or the input.
    fn data_access(&self, region: &Region, local: &Local, point: &[Affine]) -> Expr {
        match &self.panel {
            Some(panel) => load(panel.buffer, panel.index(region, local, point)),
            None => load(self.data.buffer, self.data.at(|index| at(index, point))),
        }
    }

    fn weight_access(&self, region: &Region, local: &Local, point: &[Affine]) -> Expr {
        match &self.packed_weight {
            Some(packed) => {
                let index = packed.index(region, local, point);
                load(packed.buffer, self.part(0).into_iter().chain(index.iter().cloned()).collect::<Index>())
            }
            None => {
                let index = self.direct.contraction.weight.index.iter().map(|i| at(i, point));
                load(self.operands.weight, index.collect::<Index>())
            }
        }
    }

    /// Returns the store of a sum: a partial sum, or the result with its epilogue after the last
    /// chunk.
    pub(super) fn finish(&self, tile: &Tile, local: &Local, is_last: bool) -> Node {
        let place = self.partial.as_ref().filter(|_| !is_last).unwrap_or(&self.sums);
        let index = place.at(|index| tile.at(index, local));
        let sum = Expr::Load(tile.acc_access(local));
        // In a fused program, the first contraction's sums go to another buffer, without an
        // epilogue.
        let is_result = is_last && place.buffer == self.operands.output;
        let channel = || tile.at(&self.direct.contraction.bias, local);
        let value = if is_result { self.operands.fused(sum, &channel(), &index) } else { sum };
        assign(place.buffer, index, value)
    }
}

/// Returns the index of the register tile's first element, if it is a constant.
fn first_element(index: &Affine, tile: &Tile, local: &Local) -> Option<i64> {
    index.terms.iter().try_fold(index.constant, |sum, &(axis, c)| {
        let axis = axis.0 as usize;
        let offset = if tile.parts.iter().any(|p| p.axis == axis) { 0 } else { local[axis].as_constant()? };
        Some(sum + c * (tile.region[axis].base.as_constant()? + offset))
    })
}

/// Returns the range of `i >= 0` with `0 <= first + step * i < limit`, for a positive step. The
/// range is empty if its end is not greater than its start.
fn inside(first: i64, step: i64, limit: usize) -> (i64, i64) {
    let low = -first.min(0).div_euclid(step);
    let high = (limit as i64 - 1 - first).div_euclid(step) + 1;
    (low, high)
}
