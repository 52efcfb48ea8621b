//! One pass over a tile of rows.

use super::{Lowering, Span};
use crate::lower::nest::{Builder, Loops};
use crate::lower::{at, load, nest};
use crate::map_reduce::{Piece, Taps, axis_of};
use autotune_ir::affine::Affine;
use autotune_ir::program::{Access, BufferId, Expr, Index, Iteration, LoopKind, Node, Role, Store, StoreMode};
use autotune_ir::spec::{AxisId, Equation};

/// Elements of a cache line.
const LINE: usize = 16;

/// A dimension of what a tile keeps.
pub(super) struct Dim {
    /// The axis of the pass that computes it.
    pub(super) axis: AxisId,
    /// The dimension of the tensor.
    of: usize,
}

/// Loops of a tile that are written out, and the values of all axes within.
pub(super) struct Tile {
    pub(super) loops: Loops,
    /// By axis of the pass.
    pub(super) values: Vec<Affine>,
    /// By row: the position in the tile.
    rows: Vec<Affine>,
    /// Where in the buffer of results.
    pub(super) place: Vec<Affine>,
}

impl Lowering<'_> {
    pub(super) fn equation(&self) -> &Equation {
        &self.plan.chain.passes()[self.number]
    }

    pub(super) fn vector(&self) -> AxisId {
        self.plan.vectors[self.number]
    }

    fn is_last(&self) -> bool {
        self.number + 1 == self.plan.chain.passes().len()
    }

    /// Rows beside the one that vectors go along.
    pub(super) fn beside(&self) -> Vec<AxisId> {
        (0..self.plan.chain.rows).filter(|&axis| axis != self.vector()).collect()
    }

    /// Loops over the axes of the result that are no rows, around what is done at each place; the
    /// vector innermost.
    pub(super) fn pass(&mut self, spans: Vec<Span>) -> Vec<Node> {
        let (rows, vector) = (self.plan.chain.rows, self.vector());
        let is_own = |axis: &AxisId| !self.equation().axes[*axis].reduce && *axis != vector;
        let own: Vec<AxisId> = (rows..spans.len()).filter(is_own).collect();
        let Some((axis, pieces)) = self.plan.own_pieces(self.number) else { return self.places(spans, &own) };

        // A window that moves along an axis of the pass's own: where it is whole, and each position
        // where it is not.
        let mut nodes = Vec::new();
        for Piece { start, count, tile, taps } in pieces {
            let mut spans = spans.clone();
            spans[axis] = Span { base: Affine::constant(start as i64), extent: count * tile };
            if let Some(Taps { axis, first, behind, .. }) = taps {
                spans[axis] = Span { base: Affine::constant(first as i64), extent: behind - first };
            }
            nodes.extend(self.places(spans, &own));
        }
        nodes
    }

    fn places(&mut self, spans: Vec<Span>, own: &[AxisId]) -> Vec<Node> {
        let [axis, rest @ ..] = own else { return self.vectors(spans) };
        let (axis, name) = (*axis, self.equation().axes[*axis].name);
        self.repeat(name, spans[axis].extent, LoopKind::Serial, |lowering, value| {
            let mut spans = spans.clone();
            spans[axis] = Span { base: spans[axis].base.clone() + value, extent: 1 };
            lowering.places(spans, rest)
        })
    }

    /// A loop over the vectors along an axis of the result that is no row, some iterations written
    /// out, and what is left over.
    fn vectors(&mut self, spans: Vec<Span>) -> Vec<Node> {
        let vector = self.vector();
        if vector < self.plan.chain.rows || self.equation().axes[vector].reduce {
            return self.place(&spans);
        }
        let (width, unroll) = (self.plan.width(self.number), self.plan.unroll);
        self.by_parts(vector, &spans, [width, unroll], |lowering, spans, _| lowering.place(spans))
    }

    /// A loop over parts of `width` positions along an axis, `unroll` iterations at a time written
    /// out, and what is left over; `body` makes the nodes of one by what it covers and where it
    /// begins in the whole.
    pub(super) fn by_parts(
        &mut self,
        axis: AxisId,
        spans: &[Span],
        [width, unroll]: [usize; 2],
        mut body: impl FnMut(&mut Self, &[Span], Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        let (name, Span { base, extent }) = (self.equation().axes[axis].name, spans[axis].clone());
        let mut part = |lowering: &mut Self, first: Affine, extent: usize| {
            let mut spans = spans.to_vec();
            spans[axis] = Span { base: base.clone() + first.clone(), extent };
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

    /// `for number in 0..count { body }`, `unroll` iterations at a time written out.
    pub(super) fn unrolled(
        &mut self,
        name: &'static str,
        count: usize,
        unroll: usize,
        mut body: impl FnMut(&mut Self, Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        let unroll = unroll.clamp(1, count.max(1));
        let mut nodes = Vec::new();
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

    fn place(&mut self, spans: &[Span]) -> Vec<Node> {
        match (self.equation().reduces(), self.plan.reduces_lanes(self.number)) {
            (false, _) => self.map(spans),
            (true, false) => self.reduction(spans),
            (true, true) => self.reduction_of_lanes(spans),
        }
    }

    /// Loops over the positions of a tile, the vector last; it is `lanes` wide where it goes along
    /// an axis that is reduced.
    pub(super) fn open_tile(&mut self, spans: &[Span], lanes: Option<usize>) -> Tile {
        let mut tile = self.open_beside(spans, None);

        let vector = self.vector();
        let (name, extent) = (self.equation().axes[vector].name, lanes.unwrap_or(spans[vector].extent));
        let at = self.all.open_some(name, extent, LoopKind::Vectorized, &mut tile.loops);
        tile.values[vector].add_scaled(&at, 1);
        if let Some(row) = tile.rows.get_mut(vector) {
            *row = at.clone();
        }
        tile.place.push(at);
        tile
    }

    /// Loops over the rows of a tile [beside](Self::beside) its vectors, one of them a vector
    /// itself if it is named; the axis of the pass's vectors has one position.
    pub(super) fn open_beside(&mut self, spans: &[Span], along: Option<AxisId>) -> Tile {
        let mut tile = Tile {
            loops: Loops::new(),
            values: spans.iter().map(|span| span.base.clone()).collect(),
            rows: vec![Affine::default(); self.plan.chain.rows],
            place: Vec::new(),
        };
        for axis in self.beside() {
            let kind = if along == Some(axis) { LoopKind::Vectorized } else { LoopKind::Unrolled };
            let at = self.all.open_some(self.equation().axes[axis].name, spans[axis].extent, kind, &mut tile.loops);
            tile.values[axis].add_scaled(&at, 1);
            tile.rows[axis] = at.clone();
            tile.place.push(at);
        }
        tile
    }

    /// `result = value`, at once.
    fn map(&mut self, spans: &[Span]) -> Vec<Node> {
        let mut nodes = self.prefetches(spans, spans[self.vector()].extent);
        let tile = self.open_tile(spans, None);
        let value = self.result(self.value(&tile), &tile);
        let iteration = self.iteration(tile.values.clone());
        let store = Store { dst: self.destination(&tile), mode: StoreMode::Assign, value, iteration };
        nodes.extend(nest(tile.loops, vec![Node::Store(store)]));
        nodes
    }

    /// Asks, a line at a time, for what the next tile reads at the places of `lanes` lanes, and for
    /// what this one stores to there.
    pub(super) fn prefetches(&mut self, spans: &[Span], lanes: usize) -> Vec<Node> {
        let next = self.plan.next_tile(self.number).map(|(access, ahead)| (access.clone(), ahead));
        let stored_to = self.plan.stored_to(self.number).map(|access| (access, 0));
        let mut nodes = Vec::new();
        for (access, ahead) in next.into_iter().chain(stored_to) {
            let tile = self.open_tile(spans, Some(1));
            let Expr::Load(access) = self.element(&access, &tile) else { continue };
            let line = |line: usize| Node::Prefetch { access: access.clone(), ahead: ahead + line };
            nodes.extend(nest(tile.loops, (0..lanes).step_by(LINE).map(line).collect()));
        }
        nodes
    }

    /// What the pass combines, where that is a map that is done with it: stored where it is kept.
    pub(super) fn mapped(&mut self, spans: &[Span], lanes: usize) -> Vec<Node> {
        let Some(before) = self.number.checked_sub(1).filter(|&before| self.plan.goes_with_next(before)) else {
            return Vec::new();
        };
        let number = std::mem::replace(&mut self.number, before);
        let mut spans = spans.to_vec();
        spans[self.vector()].extent = lanes;
        let nodes = self.map(&spans);
        self.number = number;
        nodes
    }

    pub(super) fn iteration(&self, point: Vec<Affine>) -> Option<Iteration> {
        let point = match &self.plan.laid {
            Some(laid) => laid.point(point),
            None => point,
        };
        Some(Iteration { equation: self.plan.chain.numbers.start + self.number, point })
    }

    /// What the pass combines.
    pub(super) fn value(&self, tile: &Tile) -> Expr {
        self.equation().value.replaced(&mut |access| self.element(access, tile))
    }

    /// What is stored of what was combined: for the last pass what the last equation makes of it.
    pub(super) fn result(&self, combined: Expr, tile: &Tile) -> Expr {
        let chain = &self.plan.chain;
        let Some(tail) = chain.tail().filter(|_| self.is_last()) else { return combined };
        tail.value.replaced(&mut |access| match *access == chain.last().output {
            true => combined.clone(),
            false => self.element(access, tile),
        })
    }

    /// Where the result goes.
    pub(super) fn destination(&self, tile: &Tile) -> Access {
        let output = &self.equation().output;
        match self.is_last() {
            true => Access { buffer: self.output, index: output.index.iter().map(|i| at(i, &tile.values)).collect() },
            false => self.kept_element(output, tile),
        }
    }

    /// An element of an operand, of the result, or of what was computed before; the axes of the
    /// last equation are the first of the last pass.
    fn element(&self, access: &Access, tile: &Tile) -> Expr {
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

    /// Where the tile keeps an element.
    fn kept_element(&self, access: &Access, tile: &Tile) -> Access {
        let index = self.kept_dims(access.buffer).into_iter().map(|dim| match tile.rows.get(dim.axis) {
            Some(row) => row.clone(),
            None => at(&access.index[dim.of], &tile.values),
        });
        let buffer = self.kept[access.buffer.0 as usize].unwrap_or(self.output);
        Access { buffer, index: index.collect() }
    }

    /// The dimensions of what a tile keeps of a tensor: those of the tensor, that along which it is
    /// computed by vectors last.
    pub(super) fn kept_dims(&self, tensor: BufferId) -> Vec<Dim> {
        let chain = &self.plan.chain;
        let Some(number) = chain.passes().iter().position(|pass| pass.output.buffer == tensor) else {
            return Vec::new();
        };
        let index = chain.passes()[number].output.index.iter().enumerate();
        let mut dims: Vec<Dim> = index.map(|(of, index)| Dim { axis: axis_of(index).unwrap_or(0), of }).collect();
        dims.sort_by_key(|dim| dim.axis == self.plan.vectors[number]);
        dims
    }
}
