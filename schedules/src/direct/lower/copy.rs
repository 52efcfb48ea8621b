//! Padded copies of the input: of the whole input by a stage, or of one data tile by each thread.
//!
//! For dot products, the copy of plain images has the steps of a group (channels) adjacent, as one
//! 32-bit word. Steps after the last channel are zeros:
//!
//! ```text
//! serial d1 in 0..C/2 { serial d2 in 0..H { serial v.0 in 0..W/16 {
//!   vectorized v in 0..16 { tile[0, d1, d2, 16*v.0 + v, 0] = input[0, 2*d1, d2, 16*v.0 + v] }
//!   vectorized v in 0..16 { tile[0, d1, d2, 16*v.0 + v, 1] = input[0, 2*d1 + 1, d2, 16*v.0 + v] }
//! } } }
//! ```
//!
//! For tile instructions, all words of a tile's row are adjacent. A copy of a channel-blocked image
//! moves whole blocks:
//!
//! ```text
//! serial d1 in 0..C/32 { serial d2 in 0..H { serial d3 in 0..W { unrolled q in 0..2 {
//!   vectorized v in 0..16 { tile[0, d1, d2, d3, 16*q + v] = input[0, 2*d1 + q, d2, d3, v] }
//! } } } }
//! ```

use super::{DirectLowering, Region, TileOperand, at, bases, load, nest};
use crate::contraction::divide;
use crate::direct::Direct;
use crate::lower::without_blocks;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{BufferId, Expr, Layout, LoopKind, Node, Role, Scope};

/// A run of elements along one dimension of a copy: all inside the source, or all padding.
#[derive(Clone)]
struct CopyRun {
    start: usize,
    len: usize,
    /// Source index at `start`; `None` in the padding.
    source: Option<Affine>,
    /// Steps of each row in the source, if the dimension is over rows of steps: fewer in the last.
    steps: Option<usize>,
}

/// Loops of a copy, and the indices in its destination and in its source; no source in the padding.
struct CopyNest {
    loops: Vec<(VarId, usize, LoopKind)>,
    index: Vec<Affine>,
    source: Option<Vec<Affine>>,
}

impl CopyNest {
    /// Adds the indices of the next dimension, at an offset in a run.
    fn add(&mut self, run: &CopyRun, offset: Affine) {
        self.index.push(offset.clone() + run.start as i64);
        // A run that is padding in one dimension is zero as a whole.
        self.source = match (self.source.take(), &run.source) {
            (Some(mut indices), Some(base)) => {
                indices.push(base.clone() + offset);
                Some(indices)
            }
            _ => None,
        };
    }
}

/// Maximum number of outer dimensions that a copying stage runs in parallel.
const PARALLEL_DIMS: usize = 3;

impl DirectLowering<'_> {
    /// Copies the whole input with its padding:
    /// `data_copy[.., h + pad, w + pad, ..] = input[.., h, w, ..]`, zero in the padding.
    pub(super) fn copy_input(&mut self) -> Vec<Node> {
        let region = self.whole_region();
        let runs = self.runs(&region);
        let shape = runs.iter().map(|dim| dim.iter().map(|r| r.len).sum()).collect();
        let copy = self.data_buffer("data_copy", Scope::Global, shape);
        let axes = &self.direct.contraction.axes;
        let index = self.direct.data.index.iter().map(|index| {
            let (low, _) = index.range(|axis| axes[axis.0 as usize].extent);
            index.clone() + -low
        });
        self.data = TileOperand { buffer: copy, leading: self.part(0), index: index.collect(), origin: None };
        self.copy_nests(copy, &runs, true)
    }

    /// Adds a buffer for a copy of the data. Its type is the prologue's result type, if there is a
    /// prologue and the result is not split.
    pub(super) fn data_buffer(&mut self, name: &str, scope: Scope, shape: Vec<usize>) -> BufferId {
        let shape = self.with_parts(shape);
        let id = self.all.buffer_named(name, Role::Packed, scope, shape);
        let contraction = &self.direct.contraction;
        let map = contraction.prologue().filter(|_| !self.direct.is_split);
        let mapped = map.map(|map| contraction.spec.tensor(&map.output).dtype);
        self.all.buffers[id.0 as usize].dtype = mapped.unwrap_or(self.direct.copied[0]);
        id
    }

    /// Copies the input of one cache tile with its padding. Returns the buffer and the nodes that
    /// fill it.
    pub(super) fn copy_tile(&mut self, region: &Region) -> (BufferId, Vec<Node>) {
        let tile = self.data_buffer("data_tile", Scope::Local, self.direct.tile_shape());
        let index = self.direct.data.index.clone();
        let origin = bases(region);
        self.missing_channels = self.missing_channels(&origin);
        self.data = TileOperand { buffer: tile, leading: self.part(0), index, origin: Some(origin) };
        let runs = self.runs(region);
        (tile, self.copy_nests(tile, &runs, false))
    }

    /// Returns, for each dimension of the data operand, the runs that `region` reads: padding
    /// before, elements, and padding after.
    fn runs(&self, region: &Region) -> Vec<Vec<CopyRun>> {
        let data = &self.direct.data;
        let plain = &self.direct.contraction.data;
        let origin = bases(region);
        let mut dims = Vec::new();
        for (d, index) in data.index.iter().enumerate() {
            let base = at(index, &origin);
            let (low, high) = index.range(|v| region[v.0 as usize].extent);
            let len = (high - low + 1) as usize;
            let padded = d < plain.shape.len() && !self.dim_is_interior(region, d);
            if !padded {
                dims.push(vec![CopyRun { start: 0, len, source: Some(base), steps: None }]);
                continue;
            }

            if let Some((steps, all)) = self.steps_of_row(d) {
                // The last row is a separate run, because some of its steps may be after the last
                // channel.
                let first = self.first_step(&origin) / steps;
                let whole = all / steps - first;
                let run = |start: usize, len| CopyRun {
                    start,
                    len,
                    source: Some(base.clone() + start as i64),
                    steps: Some(steps.min(all - (first + start) * steps)),
                };
                dims.push(
                    [(0, whole), (whole, len - whole)].into_iter().filter(|r| r.1 > 0).map(|r| run(r.0, r.1)).collect(),
                );
                continue;
            }

            debug_assert!(base.as_constant().is_some(), "bases of boundary tiles are constants");
            let before = (-base.constant).clamp(0, len as i64) as usize;
            // The region may begin or end inside the padding, so both bounds are clamped.
            let end = (data.shape[d] as i64 - base.constant).clamp(before as i64, len as i64) as usize;
            let runs = [
                CopyRun { start: 0, len: before, source: None, steps: None },
                CopyRun { start: before, len: end - before, source: Some(base + before as i64), steps: None },
                CopyRun { start: end, len: len - end, source: None, steps: None },
            ];
            dims.push(runs.into_iter().filter(|r| r.len > 0).collect());
        }
        dims
    }

    /// Returns the number of adjacent steps, if a copy of plain images has the steps of a group or
    /// of a tile's row adjacent.
    fn copied_groups(&self) -> Option<usize> {
        let Direct { dot, data, contraction, in_layout, .. } = self.direct;
        let group = dot.map(|group| group.axis)?;
        let is_last = data.index.last().is_some_and(|index| index.uses(VarId(group as u32)));
        let is_block = is_last && data.index.len() > contraction.data.index.len() && *in_layout == Layout::Plain;
        let steps = data.shape.last().copied().unwrap_or(1);
        is_block.then_some(steps)
    }

    /// Returns the channels per block of the input, if the copy has other blocks for tiles.
    fn copied_blocks(&self) -> Option<usize> {
        let Direct { in_layout, .. } = self.direct;
        match in_layout {
            Layout::ChannelBlocked(block) if self.direct.tile_group().is_some() => Some(*block),
            _ => None,
        }
    }

    /// Returns the number of adjacent steps in a copy and the number of all steps, if dimension
    /// `dim` of the data has the groups or rows that consist of them.
    fn steps_of_row(&self, dim: usize) -> Option<(usize, usize)> {
        let Direct { data, contraction, .. } = self.direct;
        let group = self.direct.dot?.axis;
        let steps = self.copied_groups().or(self.copied_blocks().and(data.shape.last().copied()))?;
        let (_, all) = self.dim_of_groups(group)?;
        contraction.data.index[dim].uses(VarId(group as u32)).then_some((steps, all))
    }

    /// Returns the first reduction step of the groups at a point.
    fn first_step(&self, origin: &[Affine]) -> usize {
        let index = self.direct.dot.and_then(|group| self.dim_of_groups(group.axis));
        index.map_or(0, |(index, _)| at(index, origin).constant.max(0) as usize)
    }

    /// Returns the number of channels by which rows of steps run ahead of the input at a point: a
    /// group of channels that ends within a row is followed by zeros.
    fn missing_channels(&self, origin: &[Affine]) -> Affine {
        let Direct { data, contraction, .. } = self.direct;
        let in_rows = without_blocks(data.index.clone(), self.data_block());
        let channels = in_rows.get(1).zip(contraction.data.index.get(1));
        channels.map_or(Affine::default(), |(rows, plain)| at(&(rows.clone() + plain.clone() * -1), origin))
    }

    /// Returns a perfect nest per combination of runs. The innermost dimension is split into whole
    /// vectors and a remainder. The dimension of the group's steps has no loop: one vector per step
    /// is written, interleaved into words.
    fn copy_nests(&mut self, dst: BufferId, dims: &[Vec<CopyRun>], parallel: bool) -> Vec<Node> {
        let mut nests = Vec::new();
        let adjacent = self.copied_groups().is_some() || self.copied_blocks().is_some();
        let dims = if adjacent { &dims[..dims.len() - 1] } else { dims };

        let total: usize = dims.iter().map(Vec::len).product();
        for mut number in 0..total {
            // The number of a combination is in mixed radix, with a digit per dimension.
            let mut chosen = Vec::new();
            for dim in dims.iter().rev() {
                chosen.push(dim[number % dim.len()].clone());
                number /= dim.len();
            }
            chosen.reverse();
            if let Some(block) = self.copied_blocks() {
                nests.extend(self.block_nest((dst, block), &chosen, parallel));
                continue;
            }
            let Some(last) = chosen.pop() else { continue };
            let whole = last.len / self.lanes * self.lanes;
            for (start, len) in [(0, whole), (whole, last.len - whole)] {
                if len > 0 {
                    let source = last.source.clone().map(|s| s + start as i64);
                    let part = CopyRun { start: last.start + start, len, source, steps: None };
                    nests.extend(self.copy_nest(dst, &chosen, &part, parallel));
                }
            }
        }
        nests
    }

    /// Returns the nest that copies one combination of runs, vectorised along the last dimension.
    fn copy_nest(&mut self, dst: BufferId, outer: &[CopyRun], last: &CopyRun, parallel: bool) -> Vec<Node> {
        let mut copy = self.outer_loops(outer, parallel);

        // The last dimension is split into vectors, with a loop if there are several.
        let mut offset = Affine::default();
        let vector = last.len.min(self.lanes);
        if last.len > vector {
            let var = self.all.var("v.0", last.len / vector);
            copy.loops.push((var, last.len / vector, LoopKind::Serial));
            offset = Affine::var(var) * vector as i64;
        }
        let var = self.all.var("v", vector);
        copy.add(last, offset + Affine::var(var));

        let CopyNest { loops, index, source } = copy;
        let of_vector = |body| nest([(var, vector, LoopKind::Vectorized)], body);
        let Some(steps) = self.copied_groups() else {
            let value = source.map_or(Expr::Const(0.0), |indices| self.datum(indices));
            return nest(loops, of_vector(self.copy_of(dst, index, value)));
        };

        let present = outer.iter().find_map(|run| run.steps).unwrap_or(steps);
        let step = |step: usize| {
            let with_step = |of: &[Affine]| of.iter().cloned().chain([Affine::constant(step as i64)]).collect();
            let from = source.as_deref().filter(|_| step < present);
            let value = from.map_or(Expr::Const(0.0), |from| self.datum(with_step(from)));
            of_vector(self.copy_of(dst, with_step(&index), value))
        };
        let body = (0..steps).flat_map(step).collect();
        nest(loops, body)
    }

    /// Returns the loops over all dimensions but the last.
    fn outer_loops(&mut self, outer: &[CopyRun], parallel: bool) -> CopyNest {
        let mut copy = CopyNest { loops: Vec::new(), index: Vec::new(), source: Some(Vec::new()) };
        for (d, run) in outer.iter().enumerate() {
            let kind = if parallel && d < PARALLEL_DIMS { LoopKind::Parallel } else { LoopKind::Serial };
            // A parallel loop stays even with one iteration, so that each nest is a task.
            if run.len == 1 && kind == LoopKind::Serial {
                copy.add(run, Affine::default());
                continue;
            }
            let var = self.all.var(format!("d{d}"), run.len);
            copy.loops.push((var, run.len, kind));
            copy.add(run, Affine::var(var));
        }
        copy
    }

    /// Returns the nest that copies one combination of runs of an image in blocks of `block`
    /// channels to larger blocks.
    fn block_nest(&mut self, (dst, block): (BufferId, usize), runs: &[CopyRun], parallel: bool) -> Vec<Node> {
        let CopyNest { loops, index, source } = self.outer_loops(runs, parallel);
        let blocks = self.direct.data.shape.last().map_or(1, |channels| channels / block);
        let present = runs.iter().find_map(|run| run.steps).map_or(blocks, |steps| steps / block);
        let ahead = divide(&self.missing_channels, block);

        let mut nests = Vec::new();
        for (first, count) in [(0, present), (present, blocks - present)] {
            if count == 0 {
                continue;
            }
            let (number, lane) = (self.all.var("q", count), self.all.var("v", block));
            let (in_block, of_block) = (Affine::var(lane), Affine::var(number) + first as i64);
            let mut to = index.clone();
            to.push(of_block.clone() * block as i64 + in_block.clone());

            let source = source.clone().filter(|_| first < present);
            let value = source.map_or(Expr::Const(0.0), |mut from| {
                from[1] = from[1].clone() * blocks as i64 + of_block + ahead.clone() * -1;
                from.push(in_block);
                let logical = without_blocks(from.clone(), Some(block));
                self.datum_at(from, &logical)
            });
            let inner = [(number, count, LoopKind::Unrolled), (lane, block, LoopKind::Vectorized)];
            nests.extend(nest(loops.iter().copied().chain(inner), self.copy_of(dst, to, value)));
        }
        nests
    }

    /// Returns an element of the data: the input, or the result of the prologue. The index is in
    /// the layout of the compute nest.
    pub(super) fn datum(&self, index: Vec<Affine>) -> Expr {
        let logical = self.without_rows(index.clone(), self.data_block());
        self.datum_at(self.input_index(index), &logical)
    }

    /// Returns an element of the data, at an index in the input and at that of the plain layout.
    fn datum_at(&self, index: Vec<Affine>, logical: &[Affine]) -> Expr {
        match self.direct.contraction.prologue() {
            Some(map) => self.operands.mapped(map, &index, logical),
            None => load(self.operands.input, index),
        }
    }

    /// Returns the channels per block of the data in the layout of the compute nest, if it is
    /// blocked.
    fn data_block(&self) -> Option<usize> {
        let (data, plain) = (&self.direct.data.shape, &self.direct.contraction.data.shape);
        data.last().filter(|_| data.len() > plain.len()).copied()
    }

    /// Converts an index from the layout of the compute nest to the layout of the input.
    fn input_index(&self, data_index: Vec<Affine>) -> Vec<Affine> {
        self.without_rows(data_index, self.data_block().filter(|_| self.direct.in_layout == Layout::Plain))
    }

    /// Converts an index from rows of steps, or blocks of channels, to the plain layout. Without a
    /// block it stays as it is.
    fn without_rows(&self, index: Vec<Affine>, block: Option<usize>) -> Vec<Affine> {
        let mut plain = without_blocks(index, block);
        if block.is_some() {
            plain[1].add_scaled(&self.missing_channels, -1);
        }
        plain
    }
}
