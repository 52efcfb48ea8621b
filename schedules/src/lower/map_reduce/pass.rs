//! One pass over a tile of rows.

use super::super::nest::{Builder, Loops, allocated};
use super::super::{assign, at, load, nest};
use super::{Lowering, Span};
use crate::map_reduce::axis_of;
use autotune_ir::affine::Affine;
use autotune_ir::program::{Access, BufferId, Expr, Index, Iteration, LoopKind, Node, Role, Scope, Store, StoreMode};
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
struct Tile {
    loops: Loops,
    /// By axis of the pass.
    values: Vec<Affine>,
    /// By row: the position in the tile.
    rows: Vec<Affine>,
    /// Where in the buffer of results.
    place: Vec<Affine>,
}

impl Lowering<'_> {
    fn equation(&self) -> &Equation {
        &self.plan.chain.passes()[self.number]
    }

    fn vector(&self) -> AxisId {
        self.plan.vectors[self.number]
    }

    fn is_last(&self) -> bool {
        self.number + 1 == self.plan.chain.passes().len()
    }

    /// Rows beside the one that vectors go along.
    fn beside(&self) -> Vec<AxisId> {
        (0..self.plan.chain.rows).filter(|&axis| axis != self.vector()).collect()
    }

    /// Loops over the axes of the result that are no rows, around what is done at each place; the vector innermost.
    pub(super) fn pass(&mut self, spans: Vec<Span>) -> Vec<Node> {
        let (rows, vector) = (self.plan.chain.rows, self.vector());
        let is_own = |axis: &AxisId| !self.equation().axes[*axis].reduce && *axis != vector;
        let own: Vec<AxisId> = (rows..spans.len()).filter(is_own).collect();
        self.places(spans, &own)
    }

    fn places(&mut self, spans: Vec<Span>, own: &[AxisId]) -> Vec<Node> {
        let [axis, rest @ ..] = own else { return self.vectors(spans) };
        let (axis, name) = (*axis, self.equation().axes[*axis].name);
        self.repeat(name, spans[axis].extent, LoopKind::Serial, |lowering, value| {
            let mut spans = spans.clone();
            spans[axis] = Span { base: value, extent: 1 };
            lowering.places(spans, rest)
        })
    }

    /// A loop over the vectors along an axis of the result that is no row, some iterations written out, and what is left over.
    fn vectors(&mut self, spans: Vec<Span>) -> Vec<Node> {
        let vector = self.vector();
        if vector < self.plan.chain.rows || self.equation().axes[vector].reduce {
            return self.place(&spans);
        }
        self.by_vectors(&spans, self.plan.width(self.number), |lowering, spans, _| lowering.place(spans))
    }

    /// A loop over vectors of `width` lanes along the pass's axis of vectors, some iterations written out, and what is left over; `body` makes the nodes
    /// of one by what it covers and where it begins in the whole.
    fn by_vectors(
        &mut self,
        spans: &[Span],
        width: usize,
        mut body: impl FnMut(&mut Self, &[Span], Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        let vector = self.vector();
        let (name, Span { base, extent }) = (self.equation().axes[vector].name, spans[vector].clone());
        let mut part = |lowering: &mut Self, first: Affine, extent: usize| {
            let mut spans = spans.to_vec();
            spans[vector] = Span { base: base.clone() + first.clone(), extent };
            body(lowering, &spans, first)
        };

        let (count, left) = (extent / width, extent % width);
        let mut nodes = self
            .unrolled(name, count, self.plan.unroll, |lowering, number| part(lowering, number * width as i64, width));
        if left > 0 {
            nodes.extend(part(self, Affine::constant((count * width) as i64), left));
        }
        nodes
    }

    /// `for number in 0..count { body }`, `unroll` iterations at a time written out.
    fn unrolled(
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

    /// Loops over the positions of a tile, the vector last; it is `lanes` wide where it goes along an axis that is reduced.
    fn open_tile(&mut self, spans: &[Span], lanes: Option<usize>) -> Tile {
        let mut tile = self.open_beside(spans, None);

        let vector = self.vector();
        let (name, extent) = (self.equation().axes[vector].name, lanes.unwrap_or(spans[vector].extent));
        let at = self.all.open_some(name, extent, LoopKind::Vectorized, &mut tile.loops);
        tile.values[vector].add_scaled(&at, 1);
        if let Some(row) = tile.rows.get_mut(vector) {
            *row = at.clone();
        }
        tile.place.push(at + self.part.clone());
        tile
    }

    /// Loops over the rows of a tile [beside](Self::beside) its vectors, one of them a vector itself if it is named; the axis of the
    /// pass's vectors has one position.
    fn open_beside(&mut self, spans: &[Span], along: Option<AxisId>) -> Tile {
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

    /// Registers for the results of a tile.
    fn results(&mut self, name: &str, spans: &[Span], lanes: Option<usize>) -> BufferId {
        self.registers(name, spans, Some(lanes.unwrap_or(spans[self.vector()].extent)))
    }

    /// Registers by the rows of a tile beside its vectors, and by lanes if there are some.
    fn registers(&mut self, name: &str, spans: &[Span], lanes: Option<usize>) -> BufferId {
        let shape: Vec<usize> = self.beside().into_iter().map(|axis| spans[axis].extent).chain(lanes).collect();
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        let name = format!("{name}_{}", sizes.join("x"));
        self.all.buffer_named(&name, Role::Accumulator, Scope::Register, shape)
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

    /// Asks, a line at a time, for what the next tile reads at the places of `lanes` lanes, and for what this one stores to there.
    fn prefetches(&mut self, spans: &[Span], lanes: usize) -> Vec<Node> {
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
    fn mapped(&mut self, spans: &[Span], lanes: usize) -> Vec<Node> {
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

    /// ```text
    /// alloc acc { acc[..] = neutral; for taps { acc[..] = combined(acc[..], value) }; result[..] = acc[..] }
    /// ```
    fn reduction(&mut self, spans: &[Span]) -> Vec<Node> {
        if self.plan.adds_up_in_cache(self.number) {
            return self.reduction_in_cache(spans);
        }
        let acc = self.results("acc", spans, None);
        let mut body = self.clear(acc, spans, None);
        body.extend(self.steps(acc, spans, None));
        body.extend(self.finish(acc, spans, None));
        allocated([acc], body)
    }

    /// The same of a row that registers do not hold, vector by vector for each tap, `sums` in memory of the thread.
    ///
    /// ```text
    /// alloc sums { for v { sums[v..] = neutral }; for taps { for v { sums[v..] = combined(sums[v..], value) } }; for v { result[v..] = sums[v..] } }
    /// ```
    fn reduction_in_cache(&mut self, spans: &[Span]) -> Vec<Node> {
        let extent = spans[self.vector()].extent;
        let shape = self.beside().into_iter().map(|axis| spans[axis].extent).chain([extent]).collect();
        let sums = self.all.buffer_named(&format!("sums_{extent}"), Role::Accumulator, Scope::Local, shape);
        let mut body = self.parts(spans, |lowering, spans| lowering.clear(sums, spans, None));
        body.extend(self.steps(sums, spans, None));
        body.extend(self.parts(spans, |lowering, spans| lowering.finish(sums, spans, None)));
        allocated([sums], body)
    }

    /// A loop over the vectors of a tile that is added up in the cache, some iterations written out; what else is lowered is one part.
    fn parts(&mut self, spans: &[Span], mut body: impl FnMut(&mut Self, &[Span]) -> Vec<Node>) -> Vec<Node> {
        if !self.plan.adds_up_in_cache(self.number) {
            return body(self, spans);
        }
        self.by_vectors(spans, self.plan.unit.lanes, |lowering, spans, first| {
            lowering.part = first;
            let nodes = body(lowering, spans);
            lowering.part = Affine::default();
            nodes
        })
    }

    fn clear(&mut self, acc: BufferId, spans: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let neutral = Expr::Const(self.equation().reduction.neutral());
        let Tile { loops, place, .. } = self.open_tile(spans, lanes);
        nest(loops, vec![assign(acc, place, neutral)])
    }

    /// `result = acc`.
    fn finish(&mut self, acc: BufferId, spans: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let tile = self.open_tile(spans, lanes);
        self.finish_tile(acc, tile)
    }

    fn finish_tile(&self, acc: BufferId, tile: Tile) -> Vec<Node> {
        let value = self.result(load(acc, tile.place.clone()), &tile);
        let Access { buffer, index } = self.destination(&tile);
        nest(tile.loops, vec![assign(buffer, index, value)])
    }

    /// ```text
    /// alloc acc {
    ///   acc[..] = neutral; for steps { acc[..] = combined(acc[..], value) }; acc[0..rest] = combined(acc[0..rest], value);
    ///   acc[0..8] = combined(acc[0..8], acc[8..16]); acc[0..4] = combined(acc[0..4], acc[4..8]); ..
    ///   result = acc[0]
    /// }
    /// ```
    fn reduction_of_lanes(&mut self, spans: &[Span]) -> Vec<Node> {
        let vector = self.vector();
        let extent = spans[vector].extent;
        let beside: Vec<AxisId> = self.beside().into_iter().filter(|&axis| spans[axis].extent > 1).collect();
        let results = beside.iter().map(|&axis| spans[axis].extent).product();
        let (lanes, of_register) = (self.plan.width(self.number).min(extent), self.plan.unit.lanes);
        let part = |start: usize, extent: usize| {
            let mut part = spans.to_vec();
            part[vector] = Span { base: spans[vector].base.clone() + start as i64, extent };
            part
        };
        let (whole, rest) = (extent / lanes * lanes, extent % lanes);
        let single = part(0, 1);

        let acc = self.results("acc", &single, Some(lanes));
        let mut body = self.clear(acc, &single, Some(lanes));
        body.extend(self.steps(acc, &part(0, whole), Some(lanes)));
        if rest > 0 {
            body.extend(self.steps(acc, &part(whole, rest), Some(rest)));
        }
        match beside.last() {
            Some(&along) if self.plan.folds(results, spans[along].extent, lanes) => {
                body.extend(self.combine_lanes(acc, &single, [lanes, of_register]));
                body.extend(self.fold(acc, &single, along));
            }
            _ => {
                body.extend(self.combine_lanes(acc, &single, [lanes, 1]));
                body.extend(self.finish(acc, &single, Some(1)));
            }
        }
        allocated([acc], body)
    }

    /// The lanes of the results that lie beside each other combined, of all results at once, and what is stored of them: vectors go along the
    /// results.
    ///
    /// ```text
    /// alloc folded { folded[0..8] = acc[0..8, 0]; for lane in 1.. { folded[0..8] = combined(folded[0..8], acc[0..8, lane]) }; result[0..8] = folded }
    /// ```
    fn fold(&mut self, acc: BufferId, spans: &[Span], along: AxisId) -> Vec<Node> {
        let folded = self.registers("folded", spans, None);
        let mut body = Vec::new();
        for lane in 0..self.plan.unit.lanes {
            let Tile { loops, place, .. } = self.open_beside(spans, Some(along));
            let mut of_row = place.clone();
            of_row.push(Affine::constant(lane as i64));
            let dst = Access { buffer: folded, index: place.into() };
            let value = load(acc, of_row);
            let store = match lane {
                0 => Store { dst, mode: StoreMode::Assign, value, iteration: None },
                _ => self.equation().reduction.store(dst, value, None),
            };
            body.extend(nest(loops, vec![Node::Store(store)]));
        }

        let tile = self.open_beside(spans, Some(along));
        body.extend(self.finish_tile(folded, tile));
        allocated([folded], body)
    }

    /// The first `count` lanes combined into the first `wanted`, a power of two: those behind the largest power of two with the first ones,
    /// again and again.
    fn combine_lanes(&mut self, acc: BufferId, spans: &[Span], [count, wanted]: [usize; 2]) -> Vec<Node> {
        let (mut nodes, mut left) = (Vec::new(), count);
        while left > wanted {
            let first = left.next_power_of_two() / 2;
            let Tile { loops, place, .. } = self.open_tile(spans, Some(left - first));
            let mut other = place.clone();
            if let Some(last) = other.last_mut() {
                *last = last.clone() + first as i64;
            }
            let dst = Access { buffer: acc, index: place.into() };
            let store = self.equation().reduction.store(dst, load(acc, other), None);
            nodes.extend(nest(loops, vec![Node::Store(store)]));
            left = first;
        }
        nodes
    }

    /// Loops over what is combined, some iterations of the innermost written out.
    fn steps(&mut self, acc: BufferId, spans: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let reduced: Vec<AxisId> = (0..spans.len()).filter(|&axis| self.equation().axes[axis].reduce).collect();
        self.step(acc, spans.to_vec(), lanes, &reduced)
    }

    fn step(&mut self, acc: BufferId, spans: Vec<Span>, lanes: Option<usize>, reduced: &[AxisId]) -> Vec<Node> {
        let [axis, rest @ ..] = reduced else {
            return self.parts(&spans, |lowering, spans| lowering.statement(acc, spans, lanes));
        };
        let (axis, Span { base, extent }) = (*axis, spans[*axis].clone());
        let name = self.equation().axes[axis].name;
        let width = if axis == self.vector() { lanes.unwrap_or(1) } else { 1 };
        // What is within is written out already.
        let within: usize = rest.iter().map(|&axis| spans[axis].extent).product();
        let unroll = if self.plan.adds_up_in_cache(self.number) { 1 } else { self.plan.unroll / within.max(1) };
        self.unrolled(name, extent / width, unroll, |lowering, number| {
            let mut spans = spans.clone();
            spans[axis] = Span { base: number * width as i64 + base.clone(), extent: 1 };
            lowering.step(acc, spans, lanes, rest)
        })
    }

    fn statement(&mut self, acc: BufferId, spans: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let width = lanes.unwrap_or(spans[self.vector()].extent);
        let mut nodes = self.prefetches(spans, width);
        nodes.extend(self.mapped(spans, width));

        let tile = self.open_tile(spans, lanes);
        let value = self.value(&tile);
        let dst = Access { buffer: acc, index: tile.place.into() };
        let iteration = self.iteration(tile.values);
        let store = self.equation().reduction.store(dst, value, iteration);
        nodes.extend(nest(tile.loops, vec![Node::Store(store)]));
        nodes
    }

    fn iteration(&self, point: Vec<Affine>) -> Option<Iteration> {
        let point = match &self.plan.laid {
            Some(laid) => laid.point(point),
            None => point,
        };
        Some(Iteration { equation: self.plan.chain.numbers.start + self.number, point })
    }

    /// What the pass combines.
    fn value(&self, tile: &Tile) -> Expr {
        self.equation().value.replaced(&mut |access| self.element(access, tile))
    }

    /// What is stored of what was combined: for the last pass what the last equation makes of it.
    fn result(&self, combined: Expr, tile: &Tile) -> Expr {
        let chain = &self.plan.chain;
        let Some(tail) = chain.tail().filter(|_| self.is_last()) else { return combined };
        tail.value.replaced(&mut |access| match *access == chain.last().output {
            true => combined.clone(),
            false => self.element(access, tile),
        })
    }

    /// Where the result goes.
    fn destination(&self, tile: &Tile) -> Access {
        let output = &self.equation().output;
        match self.is_last() {
            true => Access { buffer: self.output, index: output.index.iter().map(|i| at(i, &tile.values)).collect() },
            false => self.kept_element(output, tile),
        }
    }

    /// An element of an operand, of the result, or of what was computed before; the axes of the last equation are the first of the last pass.
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

    /// The dimensions of what a tile keeps of a tensor: those of the tensor, that along which it is computed by vectors last.
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
