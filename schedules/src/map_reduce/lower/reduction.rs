//! What a pass combines: in registers, or in memory of the thread where registers do not hold a
//! tile or a sum is too long for one f32.

use super::pass::Tile;
use super::{Lowering, Span};
use crate::lower::nest::{Builder, allocated};
use crate::lower::{assign, load, nest};
use autotune_ir::affine::Affine;
use autotune_ir::program::{Access, BufferId, Expr, LoopKind, Node, Role, Scope, Store, StoreMode};
use autotune_ir::spec::AxisId;

use crate::map_reduce::LONGEST_SUM;

/// Elements that lie near each other, so that they may be read in any order: those of four pages.
const NEAR: usize = 1 << 12;

/// Where the results of a tile are combined: a buffer by the rows of a tile beside its vectors, and
/// by lanes.
#[derive(Clone)]
struct Results {
    buffer: BufferId,
    scope: Scope,
    /// By dimension: where what is lowered begins.
    first: Vec<Affine>,
}

impl Results {
    /// Those from a place on.
    fn from(&self, place: &[Affine]) -> Self {
        Self { first: self.first.iter().zip(place).map(|(first, at)| first.clone() + at.clone()).collect(), ..*self }
    }

    fn access(&self, place: &[Affine]) -> Access {
        Access { buffer: self.buffer, index: self.from(place).first.into() }
    }
}

/// Steps that are left to do.
#[derive(Clone, Copy)]
struct Steps<'a> {
    /// How many elements one combines where vectors go along what is combined.
    lanes: Option<usize>,
    /// The axes to go over: those that are combined, and rows between them.
    axes: &'a [AxisId],
}

impl Lowering<'_> {
    /// ```text
    /// alloc acc { acc[..] = neutral; for taps { acc[..] = combined(acc[..], value) }; result[..] = acc[..] }
    /// ```
    ///
    /// In memory, rows are gone over in the order in which the operand has them, and the innermost
    /// steps are done in registers:
    ///
    /// ```text
    /// alloc acc {
    ///   for k { for v { acc[k, v..] = neutral } }
    ///   for n { for k { alloc part { part[..] = neutral; for l { part[..] = combined(part[..], value) }; acc[k, ..] = combined(acc[k, ..], part[..]) } } }
    ///   for k { for v { result[k, v..] = acc[k, v..] } }
    /// }
    /// ```
    pub(super) fn reduction(&mut self, spans: &[Span]) -> Vec<Node> {
        let acc = self.results("acc", spans, None, self.scope());
        let mut body = self.clear(&acc, spans, None);
        body.extend(self.steps(&acc, spans, None));
        body.extend(
            self.each_vector(acc.scope, spans, |lowering, at, spans| lowering.finish(&acc.from(at), spans, None)),
        );
        allocated([acc.buffer], body)
    }

    /// ```text
    /// alloc acc {
    ///   acc[..] = neutral; for steps { acc[..] = combined(acc[..], value) }; acc[0..rest] = combined(acc[0..rest], value);
    ///   acc[0..8] = combined(acc[0..8], acc[8..16]); acc[0..4] = combined(acc[0..4], acc[4..8]); ..
    ///   result = acc[0]
    /// }
    /// ```
    ///
    /// What is in memory is brought to registers, row by row, before its lanes are combined.
    pub(super) fn reduction_of_lanes(&mut self, spans: &[Span]) -> Vec<Node> {
        let vector = self.vector();
        let extent = spans[vector].extent;
        let lanes = self.plan.width(self.number).min(extent);
        let part = |start: usize, extent: usize| {
            let mut part = spans.to_vec();
            part[vector] = Span { base: spans[vector].base.clone() + start as i64, extent };
            part
        };
        let (whole, rest) = (extent / lanes * lanes, extent % lanes);

        let acc = self.results("acc", spans, Some(lanes), self.scope());
        let mut body = self.clear(&acc, spans, Some(lanes));
        body.extend(self.steps(&acc, &part(0, whole), Some(lanes)));
        if rest > 0 {
            body.extend(self.steps(&acc, &part(whole, rest), Some(rest)));
        }
        body.extend(match acc.scope {
            Scope::Register => self.combine_rows(&acc, &part(0, 1), lanes),
            _ => self.each_vector(acc.scope, &part(0, 1), |lowering, at, spans| {
                let row = lowering.results("row", spans, Some(lanes), Scope::Register);
                let mut body = lowering.copy(&acc.from(at), &row, spans, lanes);
                body.extend(lowering.combine_rows(&row, spans, lanes));
                allocated([row.buffer], body)
            }),
        });
        allocated([acc.buffer], body)
    }

    /// Where the results of a tile are combined.
    fn scope(&self) -> Scope {
        if self.plan.combines_in_memory(self.number) { Scope::Local } else { Scope::Register }
    }

    fn results(&mut self, name: &str, spans: &[Span], lanes: Option<usize>, scope: Scope) -> Results {
        let name = if scope == Scope::Register { name.to_string() } else { format!("{name}_sums") };
        let buffer = self.buffer_of(&name, spans, Some(lanes.unwrap_or(spans[self.vector()].extent)), scope);
        Results { buffer, scope, first: self.origin() }
    }

    /// A buffer by the rows of a tile beside its vectors, and by lanes if there are some.
    fn buffer_of(&mut self, name: &str, spans: &[Span], lanes: Option<usize>, scope: Scope) -> BufferId {
        let shape: Vec<usize> = self.beside().into_iter().map(|axis| spans[axis].extent).chain(lanes).collect();
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        let name = format!("{name}_{}", sizes.join("x"));
        self.all.buffer_named(&name, Role::Accumulator, scope, shape)
    }

    /// The place where a tile begins in its results.
    fn origin(&self) -> Vec<Affine> {
        vec![Affine::default(); self.beside().len() + 1]
    }

    /// All of a tile at once where registers hold its results; else row by row, and along a row
    /// vector by vector, some of these written out. `body` makes the nodes by the place in the
    /// results and what is covered.
    fn each_vector(
        &mut self,
        scope: Scope,
        spans: &[Span],
        mut body: impl FnMut(&mut Self, &[Affine], &[Span]) -> Vec<Node>,
    ) -> Vec<Node> {
        let (origin, rows) = (self.origin(), self.beside());
        match scope == Scope::Register || !self.plan.adds_up_in_cache(self.number) {
            true => body(self, &origin, spans),
            false => self.each_row(&origin, spans, &rows, &mut body),
        }
    }

    fn each_row(
        &mut self,
        place: &[Affine],
        spans: &[Span],
        rows: &[AxisId],
        body: &mut impl FnMut(&mut Self, &[Affine], &[Span]) -> Vec<Node>,
    ) -> Vec<Node> {
        let [axis, rest @ ..] = rows else {
            let (lanes, unroll) = (self.plan.unit.lanes, self.plan.unroll);
            return self.by_lanes(place, spans, [lanes, unroll], body);
        };
        self.repeat(self.equation().axes[*axis].name, spans[*axis].extent, LoopKind::Serial, |lowering, at| {
            let (place, spans) = lowering.at_row(place, spans, *axis, at);
            lowering.each_row(&place, &spans, rest, body)
        })
    }

    /// A position of a row beside vectors.
    fn at_row(&self, place: &[Affine], spans: &[Span], axis: AxisId, at: Affine) -> (Vec<Affine>, Vec<Span>) {
        let (mut place, mut spans) = (place.to_vec(), spans.to_vec());
        if let Some(dim) = self.beside().iter().position(|&beside| beside == axis) {
            place[dim].add_scaled(&at, 1);
        }
        spans[axis] = Span { base: spans[axis].base.clone() + at, extent: 1 };
        (place, spans)
    }

    /// One row by `lanes` lanes at a time, `unroll` iterations of that written out; lanes that are
    /// combined are all done at once, and so is what registers hold.
    fn by_lanes(
        &mut self,
        place: &[Affine],
        spans: &[Span],
        [lanes, unroll]: [usize; 2],
        body: &mut impl FnMut(&mut Self, &[Affine], &[Span]) -> Vec<Node>,
    ) -> Vec<Node> {
        if self.plan.reduces_lanes(self.number) || !self.plan.adds_up_in_cache(self.number) {
            return body(self, place, spans);
        }
        self.by_parts(self.vector(), spans, [lanes, unroll], |lowering, spans, first| {
            let mut place = place.to_vec();
            if let Some(lane) = place.last_mut() {
                lane.add_scaled(&first, 1);
            }
            body(lowering, &place, spans)
        })
    }

    /// `results = neutral`.
    fn clear(&mut self, results: &Results, spans: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let neutral = self.equation().reduction.neutral();
        self.each_vector(results.scope, spans, |lowering, at, spans| {
            let Tile { loops, place, .. } = lowering.open_tile(spans, lanes);
            let dst = results.from(at).access(&place);
            nest(loops, vec![assign(dst.buffer, dst.index, Expr::Const(neutral))])
        })
    }

    /// `to = from`.
    fn copy(&mut self, from: &Results, to: &Results, spans: &[Span], lanes: usize) -> Vec<Node> {
        let Tile { loops, place, .. } = self.open_tile(spans, Some(lanes));
        let Access { buffer, index } = to.access(&place);
        nest(loops, vec![assign(buffer, index, Expr::Load(from.access(&place)))])
    }

    /// `result = acc`.
    fn finish(&mut self, acc: &Results, spans: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let tile = self.open_tile(spans, lanes);
        let combined = acc.access(&tile.place);
        self.finish_tile(combined, tile)
    }

    fn finish_tile(&self, combined: Access, tile: Tile) -> Vec<Node> {
        let value = self.result(Expr::Load(combined), &tile);
        let Access { buffer, index } = self.destination(&tile);
        nest(tile.loops, vec![assign(buffer, index, value)])
    }

    /// The lanes of results in registers combined, and what is stored of them.
    fn combine_rows(&mut self, acc: &Results, spans: &[Span], lanes: usize) -> Vec<Node> {
        let beside: Vec<AxisId> = self.beside().into_iter().filter(|&axis| spans[axis].extent > 1).collect();
        let results = beside.iter().map(|&axis| spans[axis].extent).product();
        match beside.last() {
            Some(&along) if self.plan.folds(results, spans[along].extent, lanes) => {
                let mut body = self.combine_lanes(acc.buffer, spans, [lanes, self.plan.unit.lanes]);
                body.extend(self.fold(acc.buffer, spans, along));
                body
            }
            _ => {
                let mut body = self.combine_lanes(acc.buffer, spans, [lanes, 1]);
                body.extend(self.finish(acc, spans, Some(1)));
                body
            }
        }
    }

    /// The lanes of the results that lie beside each other combined, of all results at once, and
    /// what is stored of them: vectors go along the results.
    ///
    /// ```text
    /// alloc folded { folded[0..8] = acc[0..8, 0]; for lane in 1.. { folded[0..8] = combined(folded[0..8], acc[0..8, lane]) }; result[0..8] = folded }
    /// ```
    fn fold(&mut self, acc: BufferId, spans: &[Span], along: AxisId) -> Vec<Node> {
        let folded = self.buffer_of("folded", spans, None, Scope::Register);
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
        let combined = Access { buffer: folded, index: tile.place.clone().into() };
        body.extend(self.finish_tile(combined, tile));
        allocated([folded], body)
    }

    /// The first `count` lanes combined into the first `wanted`, a power of two: those behind the
    /// largest power of two with the first ones, again and again.
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

    /// Loops over what is combined, and over the rows between.
    fn steps(&mut self, results: &Results, spans: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let axes = self.plan.steps(self.number);
        self.step(results, spans, Steps { lanes, axes: &axes })
    }

    fn step(&mut self, results: &Results, spans: &[Span], steps: Steps) -> Vec<Node> {
        let Steps { lanes, axes } = steps;
        let [axis, rest @ ..] = axes else {
            return self.each_vector(results.scope, spans, |lowering, at, spans| {
                lowering.statement(&results.from(at), spans, lanes)
            });
        };
        let (axis, next) = (*axis, Steps { axes: rest, ..steps });
        let (is_long, within) = (self.terms(spans, steps) > LONGEST_SUM, self.terms(spans, next));
        let is_memory = results.scope != Scope::Register;
        if is_memory && is_long && within <= LONGEST_SUM {
            let most = LONGEST_SUM / within.max(1) * self.width(axis, lanes);
            return self.by_parts(axis, spans, [most, 1], |lowering, spans, _| lowering.part(results, spans, steps));
        }
        if is_memory && !is_long && self.are_near(spans, steps) {
            let most = self.plan.lanes_in_registers();
            return self.by_lanes(&self.origin(), spans, [most, 1], &mut |lowering: &mut Self, at, spans| {
                lowering.part(&results.from(at), spans, steps)
            });
        }

        let (name, extent) = (self.equation().axes[axis].name, spans[axis].extent);
        if !self.equation().axes[axis].reduce {
            return self.repeat(name, extent, LoopKind::Serial, |lowering, at| {
                let (place, spans) = lowering.at_row(&lowering.origin(), spans, axis, at);
                lowering.step(&results.from(&place), &spans, next)
            });
        }
        // What is within is written out already, and so are vectors of a row in memory.
        let written_out: usize = rest.iter().map(|&axis| spans[axis].extent).product();
        let unroll = if is_memory { 1 } else { self.plan.unroll / written_out.max(1) };
        let width = self.width(axis, lanes);
        self.unrolled(name, extent / width, unroll, |lowering, number| {
            let mut part = spans.to_vec();
            part[axis] = Span { base: number * width as i64 + spans[axis].base.clone(), extent: 1 };
            lowering.step(results, &part, next)
        })
    }

    /// Elements along an axis that a step combines.
    fn width(&self, axis: AxisId, lanes: Option<usize>) -> usize {
        if axis == self.vector() { lanes.unwrap_or(1) } else { 1 }
    }

    /// Steps that are left for each result.
    fn terms(&self, spans: &[Span], Steps { lanes, axes }: Steps) -> usize {
        let combined = axes.iter().filter(|&&axis| self.equation().axes[axis].reduce);
        combined.map(|&axis| spans[axis].extent / self.width(axis, lanes)).product()
    }

    /// True if only steps of one row are left.
    fn are_rows_done(&self, axes: &[AxisId]) -> bool {
        axes.iter().all(|&axis| self.equation().axes[axis].reduce)
    }

    /// True if registers hold what a step combines of a row.
    fn is_short(&self, spans: &[Span], lanes: Option<usize>) -> bool {
        lanes.is_some() || spans[self.vector()].extent <= self.plan.lanes_in_registers()
    }

    /// True if only steps of one row are left, and registers hold the row or all that is read lies
    /// near.
    fn are_near(&self, spans: &[Span], Steps { lanes, axes }: Steps) -> bool {
        let row = spans[self.vector()].extent;
        let elements = axes.iter().map(|&axis| spans[axis].extent).fold(row, usize::saturating_mul);
        self.are_rows_done(axes) && (self.is_short(spans, lanes) || elements <= NEAR)
    }

    /// `alloc part { part[..] = neutral; steps; results[..] = combined(results[..], part[..]) }`,
    /// in registers if these hold the row that is left.
    fn part(&mut self, results: &Results, spans: &[Span], steps: Steps) -> Vec<Node> {
        let lanes = steps.lanes;
        let is_row_held = self.are_rows_done(steps.axes) && self.is_short(spans, lanes);
        let is_held = is_row_held || !self.plan.adds_up_in_cache(self.number);
        let scope = if is_held { Scope::Register } else { Scope::Local };
        let part = self.results("part", spans, lanes, scope);

        let mut body = self.clear(&part, spans, lanes);
        body.extend(self.step(&part, spans, steps));
        body.extend(self.each_vector(scope, spans, |lowering, at, spans| {
            let Tile { loops, place, .. } = lowering.open_tile(spans, lanes);
            let value = Expr::Load(part.from(at).access(&place));
            let store = lowering.equation().reduction.store(results.from(at).access(&place), value, None);
            nest(loops, vec![Node::Store(store)])
        }));
        allocated([part.buffer], body)
    }

    fn statement(&mut self, results: &Results, spans: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let width = lanes.unwrap_or(spans[self.vector()].extent);
        let mut nodes = self.prefetches(spans, width);
        nodes.extend(self.mapped(spans, width));

        let tile = self.open_tile(spans, lanes);
        let value = self.value(&tile);
        let dst = results.access(&tile.place);
        let iteration = self.iteration(tile.values);
        let store = self.equation().reduction.store(dst, value, iteration);
        nodes.extend(nest(tile.loops, vec![Node::Store(store)]));
        nodes
    }
}
