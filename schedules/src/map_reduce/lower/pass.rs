//! Lowering of one pass over a tile of rows.

use super::{ChainLowering, RowSpan};
use crate::lower::nest::{Loops, StageBuilder};
use crate::lower::{at, load, nest};
use crate::map_reduce::{AxisTiles, Taps, axis_of};
use autotune_ir::affine::Affine;
use autotune_ir::program::{
    Access, BufferId, Expr, Index, Iteration, LoopKind, Node, PrefetchLevel, Role, Store, StoreMode,
};
use autotune_ir::spec::{AxisId, Equation};

/// f32 elements of a cache line.
const LINE: usize = 16;

/// Largest distance in f32 elements of prefetches to the first-level cache: a quarter of 32 KB.
const MOST_AHEAD_IN_L1: usize = 1 << 11;

/// A dimension of a buffer for a tile's intermediate values.
pub(super) struct Dim {
    /// Axis of the pass that computes the tensor.
    pub(super) axis: AxisId,
    /// Dimension of the tensor.
    of: usize,
}

/// Unrolled loops over a tile, and the values of all axes inside them.
pub(super) struct UnrolledTile {
    pub(super) loops: Loops,
    /// Value of each axis of the pass.
    pub(super) values: Vec<Affine>,
    /// Position within the tile along each row.
    rows: Vec<Affine>,
    /// Index into the buffer of accumulators.
    pub(super) place: Vec<Affine>,
}

impl ChainLowering<'_> {
    pub(super) fn equation(&self) -> &Equation {
        &self.plan.chain.passes()[self.number]
    }

    pub(super) fn vector(&self) -> AxisId {
        self.plan.vectors[self.number]
    }

    fn is_last(&self) -> bool {
        self.number + 1 == self.plan.chain.passes().len()
    }

    /// Returns the rows other than the vector axis.
    pub(super) fn other_rows(&self) -> Vec<AxisId> {
        (0..self.plan.chain.rows).filter(|&axis| axis != self.vector()).collect()
    }

    /// Builds the loops over the result's axes that are not rows, around the code of each position;
    /// the vector loop is innermost.
    pub(super) fn pass(&mut self, spans: Vec<RowSpan>) -> Vec<Node> {
        let (rows, vector) = (self.plan.chain.rows, self.vector());
        let is_own = |axis: &AxisId| !self.equation().axes[*axis].reduce && *axis != vector;
        let own: Vec<AxisId> = (rows..spans.len()).filter(is_own).collect();
        let Some((axis, pieces)) = self.plan.padded_pieces(self.number) else { return self.places(spans, &own) };

        // A window along an axis of the pass's own touches padding: one loop covers its whole
        // positions, and each other position is lowered separately.
        let mut nodes = Vec::new();
        for AxisTiles { start, count, tile, taps } in pieces {
            let mut spans = spans.clone();
            spans[axis] = RowSpan { base: Affine::constant(start as i64), extent: count * tile };
            if let Some(Taps { axis, first, end, .. }) = taps {
                spans[axis] = RowSpan { base: Affine::constant(first as i64), extent: end - first };
            }
            nodes.extend(self.places(spans, &own));
        }
        nodes
    }

    fn places(&mut self, spans: Vec<RowSpan>, own: &[AxisId]) -> Vec<Node> {
        let [axis, rest @ ..] = own else { return self.vectors(spans) };
        let (axis, name) = (*axis, self.equation().axes[*axis].name);
        self.repeat(name, spans[axis].extent, LoopKind::Serial, |lowering, value| {
            let mut spans = spans.clone();
            spans[axis] = RowSpan { base: spans[axis].base.clone() + value, extent: 1 };
            lowering.places(spans, rest)
        })
    }

    /// Builds the loop over vectors along an axis of the result that is not a row, unrolled, and
    /// the remainder.
    fn vectors(&mut self, spans: Vec<RowSpan>) -> Vec<Node> {
        let vector = self.vector();
        if vector < self.plan.chain.rows || self.equation().axes[vector].reduce {
            return self.place(&spans);
        }
        let (width, unroll) = (self.plan.width(self.number), self.plan.unroll);
        self.by_parts(vector, &spans, [width, unroll], |lowering, spans, _| lowering.place(spans))
    }

    /// Builds a loop over parts of `width` positions along an axis, unrolled by `unroll`, and the
    /// remainder. `body` builds one part from its ranges and its offset along the axis.
    pub(super) fn by_parts(
        &mut self,
        axis: AxisId,
        spans: &[RowSpan],
        [width, unroll]: [usize; 2],
        mut body: impl FnMut(&mut Self, &[RowSpan], Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        let (name, RowSpan { base, extent }) = (self.equation().axes[axis].name, spans[axis].clone());
        let mut part = |lowering: &mut Self, first: Affine, extent: usize| {
            let mut spans = spans.to_vec();
            spans[axis] = RowSpan { base: base.clone() + first.clone(), extent };
            body(lowering, &spans, first)
        };

        let (count, left) = (extent / width, extent % width);
        let mut nodes =
            self.unrolled(name, count, unroll, |lowering, number| part(lowering, number * width as i64, width));
        if left > 0 {
            nodes.extend(part(self, Affine::constant((count * width) as i64), left));
        }
        nodes
    }

    /// Builds `for number in 0..count { body }`, unrolled by `unroll`, and the remainder.
    pub(super) fn unrolled(
        &mut self,
        name: &'static str,
        count: usize,
        unroll: usize,
        mut body: impl FnMut(&mut Self, Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        let unroll = unroll.clamp(1, count.max(1));
        let mut nodes = Vec::new();
        // Whole groups of `unroll` iterations, then one smaller group for the remainder.
        for (start, count, tile) in [(0, count / unroll, unroll), (count / unroll * unroll, 1, count % unroll)] {
            if count * tile == 0 {
                continue;
            }
            nodes.extend(self.repeat(format!("{name}.0"), count, LoopKind::Serial, |lowering, number| {
                lowering.repeat(name, tile, LoopKind::Unrolled, |lowering, step| {
                    body(lowering, number * tile as i64 + step + start as i64)
                })
            }));
        }
        nodes
    }

    fn place(&mut self, spans: &[RowSpan]) -> Vec<Node> {
        match (self.equation().reduces(), self.plan.reduces_lanes(self.number)) {
            (false, _) => self.map(spans),
            (true, false) => self.reduction(spans),
            (true, true) => self.reduction_of_lanes(spans),
        }
    }

    /// Opens the loops over the positions of a tile, the vector loop innermost. Along a reduced
    /// axis the vector has `lanes` elements.
    pub(super) fn open_tile(&mut self, spans: &[RowSpan], lanes: Option<usize>) -> UnrolledTile {
        let mut tile = self.open_other_rows(spans, None);

        let vector = self.vector();
        let (name, extent) = (self.equation().axes[vector].name, lanes.unwrap_or(spans[vector].extent));
        let at = self.all.open_some(name, extent, LoopKind::Vectorized, &mut tile.loops);
        tile.values[vector].add_scaled(&at, 1);
        // An axis of the pass's own has no position among the tile's rows.
        if let Some(row) = tile.rows.get_mut(vector) {
            *row = at.clone();
        }
        tile.place.push(at);
        tile
    }

    /// Opens the loops over the rows of a tile other than its vector axis. The loop over `along`,
    /// if given, is vectorised. The vector axis has one position.
    pub(super) fn open_other_rows(&mut self, spans: &[RowSpan], along: Option<AxisId>) -> UnrolledTile {
        let mut tile = UnrolledTile {
            loops: Loops::new(),
            values: spans.iter().map(|span| span.base.clone()).collect(),
            rows: vec![Affine::default(); self.plan.chain.rows],
            place: Vec::new(),
        };
        for axis in self.other_rows() {
            let kind = if along == Some(axis) { LoopKind::Vectorized } else { LoopKind::Unrolled };
            let at = self.all.open_some(self.equation().axes[axis].name, spans[axis].extent, kind, &mut tile.loops);
            tile.values[axis].add_scaled(&at, 1);
            tile.rows[axis] = at.clone();
            tile.place.push(at);
        }
        tile
    }

    /// Builds a map: `result = value` in one statement.
    fn map(&mut self, spans: &[RowSpan]) -> Vec<Node> {
        let mut nodes = self.prefetches(spans, spans[self.vector()].extent);
        let tile = self.open_tile(spans, None);
        let value = self.result(self.value(&tile), &tile);
        let iteration = self.iteration(tile.values.clone());
        let store = Store { dst: self.destination(&tile), mode: StoreMode::Assign, value, iteration };
        nodes.extend(nest(tile.loops, vec![Node::Store(store)]));
        nodes
    }

    /// Builds prefetches, one per cache line, of the next tile's operand at the position of `lanes`
    /// lanes, and of the result's lines there.
    pub(super) fn prefetches(&mut self, spans: &[RowSpan], lanes: usize) -> Vec<Node> {
        let next = self.plan.next_tile(self.number).map(|(access, ahead)| (access.clone(), ahead));
        let stored_to = self.plan.stored_to(self.number).map(|access| (access, 0));
        let mut nodes = Vec::new();
        for (access, ahead) in next.into_iter().chain(stored_to) {
            // One lane per row: the statements below enumerate the lines along it.
            let tile = self.open_tile(spans, Some(1));
            let Expr::Load(access) = self.element(&access, &tile) else { continue };
            // The next tile is read soon, and few operations hide the latency of the second level.
            // A long row would evict the present one, which later passes read again.
            let level = if ahead > MOST_AHEAD_IN_L1 { PrefetchLevel::L2 } else { PrefetchLevel::L1 };
            let line = |line: usize| Node::Prefetch { access: access.clone(), ahead: ahead + line, level };
            nodes.extend(nest(tile.loops, (0..lanes).step_by(LINE).map(line).collect()));
        }
        nodes
    }

    /// Builds the preceding map that is fused with this pass, if there is one; it stores its value
    /// for later passes, too.
    pub(super) fn mapped(&mut self, spans: &[RowSpan], lanes: usize) -> Vec<Node> {
        let Some(before) = self.number.checked_sub(1).filter(|&before| self.plan.goes_with_next(before)) else {
            return Vec::new();
        };
        // Everything below refers to the pass `self.number`: the earlier one for a moment.
        let number = std::mem::replace(&mut self.number, before);
        let mut spans = spans.to_vec();
        spans[self.vector()].extent = lanes;
        let nodes = self.map(&spans);

        self.number = number;
        nodes
    }

    pub(super) fn iteration(&self, point: Vec<Affine>) -> Option<Iteration> {
        let point = match &self.plan.blocked_layout {
            Some(laid) => laid.point(point),
            None => point,
        };
        Some(Iteration { equation: self.plan.chain.numbers.start + self.number, point })
    }

    /// Returns the value that the pass combines or stores.
    pub(super) fn value(&self, tile: &UnrolledTile) -> Expr {
        self.equation().value.replaced(&mut |access| self.element(access, tile))
    }

    /// Returns the value to store for a combined one: in the last pass the tail is applied to it.
    pub(super) fn result(&self, combined: Expr, tile: &UnrolledTile) -> Expr {
        let chain = &self.plan.chain;
        let Some(tail) = chain.tail().filter(|_| self.is_last()) else { return combined };
        tail.value.replaced(&mut |access| match *access == chain.last().output {
            true => combined.clone(),
            false => self.element(access, tile),
        })
    }

    /// Returns the element that the pass stores to.
    pub(super) fn destination(&self, tile: &UnrolledTile) -> Access {
        let output = &self.equation().output;
        match self.is_last() {
            true => Access { buffer: self.output, index: output.index.iter().map(|i| at(i, &tile.values)).collect() },
            false => self.kept_element(output, tile),
        }
    }

    /// Returns an element of an operand, of the result, or of an earlier pass's output. Accesses of
    /// the tail can use the last pass's axes, since the tail's axes are the first of those.
    fn element(&self, access: &Access, tile: &UnrolledTile) -> Expr {
        let whole = match self.plan.chain.spec.role(access.buffer) {
            Role::Operand(number) => Some(BufferId(number as u32)),
            _ if access.buffer == self.plan.chain.last().output.buffer => Some(self.output),
            _ => self.made[access.buffer.0 as usize],
        };
        match whole {
            Some(buffer) => {
                let index = access.index.iter().map(|index| at(index, &tile.values));
                load(buffer, index.collect::<Index>())
            }
            None => Expr::Load(self.kept_element(access, tile)),
        }
    }

    /// Returns an element of the buffer in which the tile stores a pass's output.
    fn kept_element(&self, access: &Access, tile: &UnrolledTile) -> Access {
        let index = self.kept_dims(access.buffer).into_iter().map(|dim| match tile.rows.get(dim.axis) {
            Some(row) => row.clone(),
            None => at(&access.index[dim.of], &tile.values),
        });
        let buffer = self.kept[access.buffer.0 as usize].unwrap_or(self.output);
        Access { buffer, index: index.collect() }
    }

    /// Returns the dimensions of a tile's buffer for a tensor: those of the tensor, with the vector
    /// axis of its pass last.
    pub(super) fn kept_dims(&self, tensor: BufferId) -> Vec<Dim> {
        let chain = &self.plan.chain;
        let Some(number) = chain.passes().iter().position(|pass| pass.output.buffer == tensor) else {
            return Vec::new();
        };
        let index = chain.passes()[number].output.index.iter().enumerate();
        let mut dims: Vec<Dim> = index.map(|(of, index)| Dim { axis: axis_of(index).unwrap_or(0), of }).collect();
        // Stable: only the vector axis moves, so that vectors are contiguous.
        dims.sort_by_key(|dim| dim.axis == self.plan.vectors[number]);
        dims
    }
}
