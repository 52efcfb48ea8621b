//! The register tile: start, reduction, final store.

use std::ops::Range;

use super::{Level, Lowering, Region, assign, at, bases, epilogue, load, nest};
use crate::affine::{Affine, VarId};
use crate::contraction::AxisId;
use crate::direct::DataMode;
use crate::program::{Access, BufferId, Expr, LoopKind, Node, Role, Scope, Store, StoreMode};

/// A part of the register tile along one axis: `start..start + len` within the tile.
#[derive(Clone, Copy)]
struct Part {
    axis: AxisId,
    start: usize,
    len: usize,
}

/// One reduction loop of a register tile: `start..start + extent` of its axis.
#[derive(Clone, Copy)]
struct Reduction {
    axis: AxisId,
    start: usize,
    extent: usize,
    steps: Steps,
}

/// How a reduction loop is run.
#[derive(Clone, Copy)]
enum Steps {
    /// Every value written out as a constant while lowering.
    Constants,
    /// An unrolled loop.
    Unrolled,
    /// A serial loop.
    Serial,
    /// A serial loop over unrolled groups of this size, and the remainder unrolled.
    Groups(usize),
}

/// The offsets of the axes within the register tile.
type Local = Vec<Affine>;

impl Lowering<'_> {
    /// ```text
    /// alloc acc
    ///   acc[..] = 0, or the partial sums in the output if this is not the first reduction chunk
    ///   reduction loops: acc[..] += data[..] * weight[..]
    ///   output[..] = act(acc[..] + bias + residual), or the partial sums if this is not the last chunk
    /// ```
    pub(super) fn leaf(&mut self, region: &Region) -> Vec<Node> {
        let parts = self.parts(region);
        let shape: Vec<usize> = parts.iter().map(|p| p.len).collect();
        let words: Vec<String> = shape.iter().map(usize::to_string).collect();
        let acc = self.buffer(format!("acc_{}", words.join("x")), Role::Accumulator, Scope::Register, shape);
        let axes = &self.direct.contraction.axes;
        let mut reduced = (0..axes.len()).filter(|&a| axes[a].reduce);
        let is_first = reduced.clone().all(|a| region[a].base.as_constant() == Some(0));
        let is_last = reduced
            .all(|a| region[a].base.as_constant().is_some_and(|b| b as usize + region[a].extent == axes[a].extent));

        let mut body = self.over_parts(&parts, |this, local| {
            let start = if is_first { Expr::Const(0.0) } else { load(this.output, this.output_index(region, local)) };
            vec![assign(acc, acc_index(&parts, local), start)]
        });
        let loops = self.reductions(region, &parts);
        if loops.iter().all(|l| l.extent > 0) {
            let mut local: Local = vec![Affine::default(); region.len()];
            body.extend(self.reduction(&loops, region, &mut local, acc, &parts));
        }
        body.extend(self.over_parts(&parts, |this, local| vec![this.finish(region, local, acc, &parts, is_last)]));
        vec![Node::Alloc { buffer: acc, body }]
    }

    /// Axes of the register tile in this region, the vectorised one last (always present).
    fn parts(&self, region: &Region) -> Vec<Part> {
        let tile = self.direct.register_tile();
        let whole = |&(axis, _): &(AxisId, usize)| Part { axis, start: 0, len: region[axis].extent };
        let vector = self.direct.vector;
        tile.iter().map(whole).filter(|p| p.len > 1 || p.axis == vector).collect()
    }

    /// Unrolled loops over the parts, the last vectorised; `body` gets the offset of every axis.
    fn over_parts(&mut self, parts: &[Part], body: impl FnOnce(&mut Self, &Local) -> Vec<Node>) -> Vec<Node> {
        let local = vec![Affine::default(); self.direct.contraction.axes.len()];
        self.over_parts_from(parts, local, body)
    }

    fn over_parts_from(
        &mut self,
        parts: &[Part],
        mut local: Local,
        body: impl FnOnce(&mut Self, &Local) -> Vec<Node>,
    ) -> Vec<Node> {
        let mut vars = Vec::new();
        for part in parts {
            local[part.axis] = Affine::constant(part.start as i64);
            if part.len > 1 {
                let var = self.axis_var(part.axis, Level::Tile, part.len);
                local[part.axis] = Affine::var(var) + part.start as i64;
                let kind = if part.axis == self.direct.vector { LoopKind::Vectorized } else { LoopKind::Unrolled };
                vars.push((var, part.len, kind));
            }
        }
        let body = body(self, &local);
        nest(vars, body)
    }

    /// The reduction loops, outermost first. They are unrolled from the innermost outwards while their product stays within
    /// the knob. A kernel loop over a padded dimension is cut to the taps that are not padding where the tile is one element
    /// wide there, and written out where it is wider.
    fn reductions(&self, region: &Region, parts: &[Part]) -> Vec<Reduction> {
        let data = &self.direct.contraction.data;
        let mut budget = self.direct.unroll;
        let mut loops = Vec::new();
        for &axis in self.direct.reduce.iter().rev() {
            let mut taps = 0..region[axis].extent;
            let mut constants = false;
            if let Some(dim) = self.padded_dim(region, axis) {
                constants = parts.iter().any(|p| p.len > 1 && data.index[dim].coefficient(VarId(p.axis as u32)) != 0);
                if !constants {
                    taps = self.taps_inside(region, dim, axis);
                }
            }
            let (start, extent) = (taps.start, taps.len());
            let steps = if constants {
                Steps::Constants
            } else if extent <= budget {
                budget /= extent.max(1);
                Steps::Unrolled
            } else if budget > 1 {
                Steps::Groups(std::mem::replace(&mut budget, 1))
            } else {
                Steps::Serial
            };
            loops.push(Reduction { axis, start, extent, steps });
        }
        loops.reverse();
        loops
    }

    /// The dimension with padding in this region that a reduction axis runs over, where data is read in place.
    fn padded_dim(&self, region: &Region, axis: AxisId) -> Option<usize> {
        let data = &self.direct.contraction.data;
        let concerned = |&dim: &usize| data.index[dim].coefficient(VarId(axis as u32)) != 0;
        let in_place = self.direct.data_mode == DataMode::InPlace;
        (0..data.shape.len()).filter(concerned).find(|&dim| in_place && !self.dim_is_interior(region, dim))
    }

    /// The values of a kernel axis whose tap is not padding, for a region of one element along dimension `dim`.
    fn taps_inside(&self, region: &Region, dim: usize, axis: AxisId) -> Range<usize> {
        let data = &self.direct.contraction.data;
        let step = data.index[dim].coefficient(VarId(axis as u32));
        let first = at(&data.index[dim], &bases(region)).constant;
        let (low, high) = inside(first, step, data.shape[dim]);
        let extent = region[axis].extent as i64;
        let (low, high) = (low.min(extent), high.min(extent));
        low as usize..high.max(low) as usize
    }

    /// The given reduction loops, outermost first, and the multiply-accumulates in them.
    fn reduction(
        &mut self,
        loops: &[Reduction],
        region: &Region,
        local: &mut Local,
        acc: BufferId,
        parts: &[Part],
    ) -> Vec<Node> {
        let Some((&Reduction { axis, start, extent, steps }, rest)) = loops.split_first() else {
            return self.multiply_accumulate(region, local, acc, parts);
        };
        let mut go = |this: &mut Self, value: Affine| {
            local[axis] = value + start as i64;
            this.reduction(rest, region, local, acc, parts)
        };
        match steps {
            Steps::Constants => (0..extent).flat_map(|k| go(self, Affine::constant(k as i64))).collect(),
            Steps::Unrolled => self.repeat((axis, Level::Reduce), extent, LoopKind::Unrolled, go),
            Steps::Serial => self.repeat((axis, Level::Reduce), extent, LoopKind::Serial, go),
            Steps::Groups(group) => {
                let whole = extent / group * group;
                let inner = (axis, Level::Unroll);
                let mut nodes = self.repeat((axis, Level::Reduce), extent / group, LoopKind::Serial, |this, outer| {
                    this.repeat(inner, group, LoopKind::Unrolled, |this, u| go(this, outer * group as i64 + u))
                });
                if whole < extent {
                    nodes.extend(
                        self.repeat(inner, extent - whole, LoopKind::Unrolled, |this, u| go(this, u + whole as i64)),
                    );
                }
                nodes
            }
        }
    }

    /// `acc += data * weight` over the part of the register tile whose taps are not padding.
    fn multiply_accumulate(&mut self, region: &Region, local: &Local, acc: BufferId, parts: &[Part]) -> Vec<Node> {
        let Some(valid) = self.valid_parts(region, local, parts) else {
            return Vec::new();
        };
        self.over_parts_from(&valid, local.clone(), |this, local| {
            let point = point(region, local);
            let data = this.data_access(region, local, &point);
            let weight = this.weight_access(region, local, &point);
            let dst = Access { buffer: acc, index: acc_index(parts, local) };
            let value = Expr::Mul(Box::new(data), Box::new(weight));
            vec![Node::Store(Store { dst, mode: StoreMode::Accumulate, value, point })]
        })
    }

    /// The parts without the elements whose taps lie in the padding; none if nothing is left. Where data is read in place and
    /// a dimension is not interior, the bases that concern it are constants, and so are the reduction offsets unless they were
    /// cut to taps inside.
    fn valid_parts(&self, region: &Region, local: &Local, parts: &[Part]) -> Option<Vec<Part>> {
        let mut valid = parts.to_vec();
        if self.direct.data_mode != DataMode::InPlace {
            return Some(valid);
        }
        let data = &self.direct.contraction.data;
        for dim in 0..data.shape.len() {
            if self.dim_is_interior(region, dim) {
                continue;
            }
            let Some(first) = first_element(&data.index[dim], region, local, parts) else { continue };
            let limit = data.shape[dim] as i64;
            match valid.iter_mut().find(|p| data.index[dim].coefficient(VarId(p.axis as u32)) != 0) {
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

    /// What the compute nest reads the data operand from.
    fn data_access(&self, region: &Region, local: &Local, point: &[Affine]) -> Expr {
        if let Some(panel) = &self.panel {
            return load(panel.buffer, panel.index(region, local, point));
        }
        let data = &self.direct.data;
        let mut indices: Vec<Affine> = data.index.iter().map(|index| at(index, point)).collect();
        match (self.direct.data_mode, &self.tile_region) {
            (DataMode::Tile, Some(tile)) => {
                let origin = bases(tile);
                indices.iter_mut().zip(&data.index).for_each(|(i, index)| i.add_scaled(&at(index, &origin), -1));
            }
            (DataMode::Copy, _) => {
                let axes = &self.direct.contraction.axes;
                let low = |index: &Affine| index.range(|v| axes[v.0 as usize].extent).0;
                indices.iter_mut().zip(&data.index).for_each(|(i, index)| i.constant -= low(index));
            }
            _ => {}
        }
        load(self.copied_data.unwrap_or(self.input), indices)
    }

    fn weight_access(&self, region: &Region, local: &Local, point: &[Affine]) -> Expr {
        match &self.packed_weight {
            Some(packed) => load(packed.buffer, packed.index(region, local, point)),
            None => load(self.weight, self.direct.contraction.weight.index.iter().map(|i| at(i, point)).collect()),
        }
    }

    fn output_index(&self, region: &Region, local: &Local) -> Vec<Affine> {
        let point = point(region, local);
        self.direct.output.index.iter().map(|i| at(i, &point)).collect()
    }

    fn finish(&self, region: &Region, local: &Local, acc: BufferId, parts: &[Part], is_last: bool) -> Node {
        let index = self.output_index(region, local);
        let sum = load(acc, acc_index(parts, local));
        if !is_last {
            return assign(self.output, index, sum);
        }
        let channel = at(&self.direct.contraction.bias, &point(region, local));
        let bias = self.bias.map(|b| load(b, vec![channel]));
        let residual = self.residual.map(|r| load(r, index.clone()));
        assign(self.output, index, epilogue(self.workload.epilogue.activation, sum, bias, residual))
    }
}

/// The index of the register tile's first element, if it is a constant.
fn first_element(index: &Affine, region: &Region, local: &Local, parts: &[Part]) -> Option<i64> {
    index.terms.iter().try_fold(index.constant, |sum, &(axis, c)| {
        let axis = axis.0 as usize;
        let offset = if parts.iter().any(|p| p.axis == axis) { 0 } else { local[axis].as_constant()? };
        Some(sum + c * (region[axis].base.as_constant()? + offset))
    })
}

/// The value of every axis.
fn point(region: &Region, local: &Local) -> Vec<Affine> {
    region.iter().zip(local).map(|(span, offset)| span.base.clone() + offset.clone()).collect()
}

fn acc_index(parts: &[Part], local: &Local) -> Vec<Affine> {
    parts.iter().map(|p| local[p.axis].clone()).collect()
}

/// The range of `i >= 0` with `0 <= first + step * i < limit`, for a positive step; empty if its end is not beyond its start.
fn inside(first: i64, step: i64, limit: usize) -> (i64, i64) {
    let low = -first.min(0).div_euclid(step);
    let high = (limit as i64 - 1 - first).div_euclid(step) + 1;
    (low, high)
}
