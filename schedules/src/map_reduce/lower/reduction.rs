//! Lowering of reductions: accumulators in registers, or in thread-private memory if registers
//! cannot hold a tile or a sum is too long for one f32.

use super::pass::UnrolledTile;
use super::{ChainLowering, RowSpan};
use crate::lower::nest::{StageBuilder, allocated, shaped_name};
use crate::lower::{assign, load, nest};
use autotune_ir::affine::Affine;
use autotune_ir::program::{Access, BufferId, Expr, LoopKind, Node, Role, Scope, Store, StoreMode};
use autotune_ir::spec::AxisId;

use crate::map_reduce::LONGEST_SUM;

/// Number of elements close enough to be read in any order: four pages.
const NEAR: usize = 1 << 12;

/// Accumulators of a tile: a buffer with a dimension for each row other than the vector axis, and
/// one for the lanes.
#[derive(Clone)]
struct Results {
    buffer: BufferId,
    scope: Scope,
    /// Index at which the part that is lowered begins, by dimension.
    first: Vec<Affine>,
}

impl Results {
    /// Returns the accumulators from `place` on.
    fn from(&self, place: &[Affine]) -> Self {
        Self { first: self.first.iter().zip(place).map(|(first, at)| first.clone() + at.clone()).collect(), ..*self }
    }

    fn access(&self, place: &[Affine]) -> Access {
        Access { buffer: self.buffer, index: self.from(place).first.into() }
    }
}

/// Remaining loops of a reduction.
#[derive(Clone, Copy)]
struct RemainingSteps<'a> {
    /// Elements that one step combines, if vectors go along a reduced axis.
    lanes: Option<usize>,
    /// Axes to loop over: reduced ones, and rows between them.
    axes: &'a [AxisId],
}

impl ChainLowering<'_> {
    /// Builds a reduction whose vectors go along a row or another axis of the result:
    ///
    /// ```text
    /// alloc acc {
    ///   acc[..] = neutral;
    ///   for taps { acc[..] = combined(acc[..], value) };
    ///   result[..] = acc[..]
    /// }
    /// ```
    ///
    /// With accumulators in memory, loops go over rows in the operand's order, and the innermost
    /// steps use registers:
    ///
    /// ```text
    /// alloc acc {
    ///   for k { for v { acc[k, v..] = neutral } }
    ///   for n { for k { alloc part {
    ///     part[..] = neutral;
    ///     for l { part[..] = combined(part[..], value) };
    ///     acc[k, ..] = combined(acc[k, ..], part[..])
    ///   } } }
    ///   for k { for v { result[k, v..] = acc[k, v..] } }
    /// }
    /// ```
    pub(super) fn reduction(&mut self, spans: &[RowSpan]) -> Vec<Node> {
        let acc = self.results("acc", spans, None, self.scope());
        let mut body = self.clear(&acc, spans, None);
        body.extend(self.steps(&acc, spans, None));
        body.extend(
            self.each_vector(acc.scope, spans, |lowering, at, spans| lowering.finish(&acc.from(at), spans, None)),
        );
        allocated([acc.buffer], body)
    }

    /// Builds a reduction whose vectors go along a reduced axis:
    ///
    /// ```text
    /// alloc acc {
    ///   acc[..] = neutral;
    ///   for steps { acc[..] = combined(acc[..], value) };
    ///   acc[0..rest] = combined(acc[0..rest], value);
    ///   acc[0..8] = combined(acc[0..8], acc[8..16]);
    ///   acc[0..4] = combined(acc[0..4], acc[4..8]); ..
    ///   result = acc[0]
    /// }
    /// ```
    ///
    /// Accumulators in memory are loaded into registers, row by row, before their lanes are
    /// combined.
    pub(super) fn reduction_of_lanes(&mut self, spans: &[RowSpan]) -> Vec<Node> {
        let vector = self.vector();
        let extent = spans[vector].extent;
        // A vector longer than the axis would have lanes without an element.
        let lanes = self.plan.width(self.number).min(extent);
        let part = |start: usize, extent: usize| {
            let mut part = spans.to_vec();
            part[vector] = RowSpan { base: spans[vector].base.clone() + start as i64, extent };
            part
        };
        // The remainder updates the first lanes only, so that no lane reads past the row.
        let (whole, rest) = (extent / lanes * lanes, extent % lanes);

        let acc = self.results("acc", spans, Some(lanes), self.scope());
        let mut body = self.clear(&acc, spans, Some(lanes));
        body.extend(self.steps(&acc, &part(0, whole), Some(lanes)));
        if rest > 0 {
            body.extend(self.steps(&acc, &part(whole, rest), Some(rest)));
        }
        body.extend(match acc.scope {
            Scope::Register => self.combine_rows(&acc, &part(0, 1), lanes),
            // Lanes are shuffled in registers only.
            _ => self.each_vector(acc.scope, &part(0, 1), |lowering, at, spans| {
                let row = lowering.results("row", spans, Some(lanes), Scope::Register);
                let mut body = lowering.copy(&acc.from(at), &row, spans, lanes);
                body.extend(lowering.combine_rows(&row, spans, lanes));
                allocated([row.buffer], body)
            }),
        });
        allocated([acc.buffer], body)
    }

    /// Returns the memory of the tile's accumulators.
    fn scope(&self) -> Scope {
        if self.plan.combines_in_memory(self.number) { Scope::Local } else { Scope::Register }
    }

    fn results(&mut self, name: &str, spans: &[RowSpan], lanes: Option<usize>, scope: Scope) -> Results {
        // Buffers are shared by name, so that names differ by scope, and below by shape.
        let name = if scope == Scope::Register { name.to_string() } else { format!("{name}_sums") };
        let buffer = self.buffer_of(&name, spans, Some(lanes.unwrap_or(spans[self.vector()].extent)), scope);
        Results { buffer, scope, first: self.origin() }
    }

    /// Returns a buffer with a dimension for each row of a tile other than the vector axis, and one
    /// for lanes if given.
    fn buffer_of(&mut self, name: &str, spans: &[RowSpan], lanes: Option<usize>, scope: Scope) -> BufferId {
        let shape: Vec<usize> = self.other_rows().into_iter().map(|axis| spans[axis].extent).chain(lanes).collect();
        self.all.buffer_named(&shaped_name(name, &shape), Role::Accumulator, scope, shape)
    }

    /// Returns the index at which a tile begins in its accumulators.
    fn origin(&self) -> Vec<Affine> {
        vec![Affine::default(); self.other_rows().len() + 1]
    }

    /// Calls `body` once if registers hold the accumulators of the tile; otherwise in loops over
    /// rows and, along a row, over unrolled vectors. `body` builds nodes from the index into the
    /// accumulators and the ranges of the axes.
    fn each_vector(
        &mut self,
        scope: Scope,
        spans: &[RowSpan],
        mut body: impl FnMut(&mut Self, &[Affine], &[RowSpan]) -> Vec<Node>,
    ) -> Vec<Node> {
        let (origin, rows) = (self.origin(), self.other_rows());
        match scope == Scope::Register || !self.plan.adds_up_in_cache(self.number) {
            true => body(self, &origin, spans),
            false => self.each_row(&origin, spans, &rows, &mut body),
        }
    }

    fn each_row(
        &mut self,
        place: &[Affine],
        spans: &[RowSpan],
        rows: &[AxisId],
        body: &mut impl FnMut(&mut Self, &[Affine], &[RowSpan]) -> Vec<Node>,
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

    /// Returns the index and ranges at position `at` of a row that is not the vector axis.
    fn at_row(&self, place: &[Affine], spans: &[RowSpan], axis: AxisId, at: Affine) -> (Vec<Affine>, Vec<RowSpan>) {
        let (mut place, mut spans) = (place.to_vec(), spans.to_vec());
        if let Some(dim) = self.other_rows().iter().position(|&beside| beside == axis) {
            place[dim].add_scaled(&at, 1);
        }
        spans[axis] = RowSpan { base: spans[axis].base.clone() + at, extent: 1 };
        (place, spans)
    }

    /// Builds a loop along one row, `lanes` lanes at a time and unrolled by `unroll`. Lanes of a
    /// reduced axis, and rows that registers hold, are processed in one piece.
    fn by_lanes(
        &mut self,
        place: &[Affine],
        spans: &[RowSpan],
        [lanes, unroll]: [usize; 2],
        body: &mut impl FnMut(&mut Self, &[Affine], &[RowSpan]) -> Vec<Node>,
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

    /// Builds `results = neutral`.
    fn clear(&mut self, results: &Results, spans: &[RowSpan], lanes: Option<usize>) -> Vec<Node> {
        let neutral = self.equation().reduction.neutral();
        self.each_vector(results.scope, spans, |lowering, at, spans| {
            let UnrolledTile { loops, place, .. } = lowering.open_tile(spans, lanes);
            let dst = results.from(at).access(&place);
            nest(loops, vec![assign(dst.buffer, dst.index, Expr::Const(neutral))])
        })
    }

    /// Builds `to = from`.
    fn copy(&mut self, from: &Results, to: &Results, spans: &[RowSpan], lanes: usize) -> Vec<Node> {
        let UnrolledTile { loops, place, .. } = self.open_tile(spans, Some(lanes));
        let Access { buffer, index } = to.access(&place);
        nest(loops, vec![assign(buffer, index, Expr::Load(from.access(&place)))])
    }

    /// Builds `result = acc`, with the tail applied.
    fn finish(&mut self, acc: &Results, spans: &[RowSpan], lanes: Option<usize>) -> Vec<Node> {
        let tile = self.open_tile(spans, lanes);
        let combined = acc.access(&tile.place);
        self.finish_tile(combined, tile)
    }

    fn finish_tile(&self, combined: Access, tile: UnrolledTile) -> Vec<Node> {
        let value = self.result(Expr::Load(combined), &tile);
        let Access { buffer, index } = self.destination(&tile);
        nest(tile.loops, vec![assign(buffer, index, value)])
    }

    /// Builds the reduction of the lanes of accumulators in registers, and the stores of the
    /// results.
    fn combine_rows(&mut self, acc: &Results, spans: &[RowSpan], lanes: usize) -> Vec<Node> {
        let beside: Vec<AxisId> = self.other_rows().into_iter().filter(|&axis| spans[axis].extent > 1).collect();
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

    /// Builds the joint reduction of the lanes of neighbouring results, and their stores. Vectors
    /// go along the results, so that lanes are combined by vector operations after a transpose.
    ///
    /// ```text
    /// alloc folded {
    ///   folded[0..8] = acc[0..8, 0];
    ///   for lane in 1.. { folded[0..8] = combined(folded[0..8], acc[0..8, lane]) };
    ///   result[0..8] = folded
    /// }
    /// ```
    fn fold(&mut self, acc: BufferId, spans: &[RowSpan], along: AxisId) -> Vec<Node> {
        let folded = self.buffer_of("folded", spans, None, Scope::Register);
        let mut body = Vec::new();
        for lane in 0..self.plan.unit.lanes {
            let UnrolledTile { loops, place, .. } = self.open_other_rows(spans, Some(along));
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

        let tile = self.open_other_rows(spans, Some(along));
        let combined = Access { buffer: folded, index: tile.place.clone().into() };
        body.extend(self.finish_tile(combined, tile));
        allocated([folded], body)
    }

    /// Builds the reduction of the first `count` lanes to the first `wanted`, a power of two. Each
    /// step combines the lanes from the largest smaller power of two on with the first ones.
    fn combine_lanes(&mut self, acc: BufferId, spans: &[RowSpan], [count, wanted]: [usize; 2]) -> Vec<Node> {
        let (mut nodes, mut left) = (Vec::new(), count);
        while left > wanted {
            let first = left.next_power_of_two() / 2;
            let UnrolledTile { loops, place, .. } = self.open_tile(spans, Some(left - first));
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

    /// Builds the loops over the reduced axes, and over the rows between them.
    fn steps(&mut self, results: &Results, spans: &[RowSpan], lanes: Option<usize>) -> Vec<Node> {
        let axes = self.plan.steps(self.number);
        self.step(results, spans, RemainingSteps { lanes, axes: &axes })
    }

    fn step(&mut self, results: &Results, spans: &[RowSpan], steps: RemainingSteps) -> Vec<Node> {
        let RemainingSteps { lanes, axes } = steps;
        let [axis, rest @ ..] = axes else {
            return self.each_vector(results.scope, spans, |lowering, at, spans| {
                lowering.statement(&results.from(at), spans, lanes)
            });
        };
        let (axis, next) = (*axis, RemainingSteps { axes: rest, ..steps });
        let (is_long, within) = (self.terms(spans, steps) > LONGEST_SUM, self.terms(spans, next));
        let is_memory = results.scope != Scope::Register;
        // A sum that is too long for one accumulator: split this loop into parts with partial sums.
        if is_memory && is_long && within <= LONGEST_SUM {
            let most = LONGEST_SUM / within.max(1) * self.width(axis, lanes);
            return self.by_parts(axis, spans, [most, 1], |lowering, spans, _| lowering.part(results, spans, steps));
        }
        // What is left is close together in memory: combine it in registers and add it to memory
        // once.
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
        // The inner steps are unrolled already, and so are vectors of a row in memory.
        let written_out: usize = rest.iter().map(|&axis| spans[axis].extent).product();
        let unroll = if is_memory { 1 } else { self.plan.unroll / written_out.max(1) };
        let width = self.width(axis, lanes);
        self.unrolled(name, extent / width, unroll, |lowering, number| {
            let mut part = spans.to_vec();
            part[axis] = RowSpan { base: number * width as i64 + spans[axis].base.clone(), extent: 1 };
            lowering.step(results, &part, next)
        })
    }

    /// Returns the number of elements along an axis that one step combines.
    fn width(&self, axis: AxisId, lanes: Option<usize>) -> usize {
        if axis == self.vector() { lanes.unwrap_or(1) } else { 1 }
    }

    /// Returns the number of steps that are left for each result.
    fn terms(&self, spans: &[RowSpan], RemainingSteps { lanes, axes }: RemainingSteps) -> usize {
        let combined = axes.iter().filter(|&&axis| self.equation().axes[axis].reduce);
        combined.map(|&axis| spans[axis].extent / self.width(axis, lanes)).product()
    }

    /// True if all remaining loops are over reduced axes.
    fn are_rows_done(&self, axes: &[AxisId]) -> bool {
        axes.iter().all(|&axis| self.equation().axes[axis].reduce)
    }

    /// True if registers hold the part of a row that one step combines.
    fn is_short(&self, spans: &[RowSpan], lanes: Option<usize>) -> bool {
        lanes.is_some() || spans[self.vector()].extent <= self.plan.lanes_in_registers()
    }

    /// True if all remaining loops are over reduced axes, and either registers hold the row or
    /// everything that is read is close together in memory.
    fn are_near(&self, spans: &[RowSpan], RemainingSteps { lanes, axes }: RemainingSteps) -> bool {
        let row = spans[self.vector()].extent;
        let elements = axes.iter().map(|&axis| spans[axis].extent).fold(row, usize::saturating_mul);
        self.are_rows_done(axes) && (self.is_short(spans, lanes) || elements <= NEAR)
    }

    /// Builds the remaining steps with a partial sum:
    /// `alloc part { part[..] = neutral; steps; results[..] = combined(results[..], part[..]) }`.
    /// It is in registers if these hold the rest of the row.
    fn part(&mut self, results: &Results, spans: &[RowSpan], steps: RemainingSteps) -> Vec<Node> {
        let lanes = steps.lanes;
        let is_row_held = self.are_rows_done(steps.axes) && self.is_short(spans, lanes);
        let is_held = is_row_held || !self.plan.adds_up_in_cache(self.number);
        let scope = if is_held { Scope::Register } else { Scope::Local };
        let part = self.results("part", spans, lanes, scope);

        let mut body = self.clear(&part, spans, lanes);
        body.extend(self.step(&part, spans, steps));
        body.extend(self.each_vector(scope, spans, |lowering, at, spans| {
            let UnrolledTile { loops, place, .. } = lowering.open_tile(spans, lanes);
            let value = Expr::Load(part.from(at).access(&place));
            let store = lowering.equation().reduction.store(results.from(at).access(&place), value, None);
            nest(loops, vec![Node::Store(store)])
        }));
        allocated([part.buffer], body)
    }

    fn statement(&mut self, results: &Results, spans: &[RowSpan], lanes: Option<usize>) -> Vec<Node> {
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
