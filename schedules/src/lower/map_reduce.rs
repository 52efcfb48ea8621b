//! Lowering of maps and reductions on a CPU: loops over tiles, each tile a nest whose results stay in registers.

use std::sync::Arc;

use super::nest::{Builder, Loops, Nest, allocated};
use super::{assign, at, load, nest};
use crate::map_reduce::{MapReduce, Piece};
use autotune_ir::affine::Affine;
use autotune_ir::program::{
    Access, AxisInfo, BufferId, Expr, Layout, LoopKind, Node, Program, Role, Scope, Stage, Store, StoreMode, When,
};
use autotune_ir::spec::{AxisId, Equation};

/// The loop nests of a plan.
pub(crate) fn lower(plan: &MapReduce) -> Program {
    let spec = &plan.spec;
    let mut all = Nest::new(spec.multiplied_dtype());
    for (number, tensor) in spec.operands().enumerate() {
        all.buffer(tensor.name.to_string(), Role::Operand(number), Scope::Global, tensor.shape.clone());
    }
    let shape = spec.find(Role::Output).map_or_else(Vec::new, |tensor| tensor.shape.clone());
    let output = all.buffer("output", Role::Output, Scope::Global, shape);
    debug_assert!(all.buffers.iter().all(|buffer| buffer.layout == Layout::Plain));

    let region = spec.main().axes.iter().map(|axis| Span { base: Affine::default(), extent: axis.extent });
    let region = region.collect();
    let mut lowering = Lowering { plan, all, output };
    let body = lowering.level(0, region, Enclosed { by_nothing: true, alone: true });
    let main = spec.main().axes.iter().enumerate();
    Program {
        axes: main.map(|(id, axis)| AxisInfo::whole(id, axis)).collect(),
        spec: Arc::clone(spec),
        algorithm: Arc::clone(spec),
        vars: lowering.all.vars,
        buffers: lowering.all.buffers,
        stages: vec![Stage { name: "main".into(), when: When::EveryRun, body }],
    }
}

/// What one axis covers at some depth of the nest: `base..base + extent`.
#[derive(Clone)]
struct Span {
    base: Affine,
    extent: usize,
}

/// What is around a loop.
#[derive(Clone, Copy)]
struct Enclosed {
    /// No loop: what stands beside it is a tree of its own.
    by_nothing: bool,
    /// Parallel loops only, in each of which the next one stands alone.
    alone: bool,
}

struct Lowering<'p> {
    plan: &'p MapReduce,
    all: Nest,
    output: BufferId,
}

impl Builder for Lowering<'_> {
    fn all(&mut self) -> &mut Nest {
        &mut self.all
    }
}

/// Loops of a tile that are written out, and the values of all axes within.
struct Tile {
    loops: Loops,
    /// By axis of the main equation.
    values: Vec<Affine>,
    /// Where in the buffer of results.
    place: Vec<Affine>,
}

impl Lowering<'_> {
    fn main(&self) -> &Equation {
        self.plan.spec.main()
    }

    /// The loops from so many of the order on. Only the outermost are parallel, as long as one stands alone in the other.
    fn level(&mut self, depth: usize, region: Vec<Span>, enclosed: Enclosed) -> Vec<Node> {
        let Some(&axis) = self.plan.order.get(depth) else { return self.tile(&region) };
        let (pieces, axes) = (self.plan.pieces(axis).unwrap_or_default(), &self.main().axes);
        let before = self.plan.order[..depth].iter().filter(|&&axis| axes[axis].extent > 1).count();
        let is_parallel = enclosed.alone && before < self.plan.parallel;
        let kind = if is_parallel { LoopKind::Parallel } else { LoopKind::Serial };
        let name = self.main().axes[axis].name;

        let next = self.plan.order.get(depth + 1).and_then(|&next| self.plan.pieces(next));
        let is_single = next.is_none_or(|pieces| pieces.len() == 1);
        let mut nodes = Vec::new();
        for Piece { start, count, tile, taps } in pieces {
            nodes.extend(self.repeat(format!("{name}.0"), count, kind, |lowering, number| {
                let mut region = region.clone();
                region[axis] = Span { base: number * tile as i64 + start as i64, extent: tile };
                if let Some((tap, first, behind)) = taps {
                    region[tap] = Span { base: Affine::constant(first as i64), extent: behind - first };
                }
                let by_nothing = enclosed.by_nothing && count == 1;
                lowering.level(
                    depth + 1,
                    region,
                    Enclosed { by_nothing, alone: is_parallel && (by_nothing || is_single) },
                )
            }));
        }
        nodes
    }

    fn tile(&mut self, region: &[Span]) -> Vec<Node> {
        match (self.main().reduces(), self.plan.reduced_lanes()) {
            (false, _) => self.map(region),
            (true, None) => self.reduction(region),
            (true, Some(lanes)) => self.reduction_of_lanes(region, lanes),
        }
    }

    /// Loops over the positions of a tile, the vector last; it is `lanes` wide where it goes along an axis that is reduced.
    fn open_tile(&mut self, region: &[Span], lanes: Option<usize>) -> Tile {
        let mut tile = Tile { loops: Loops::new(), values: Vec::new(), place: Vec::new() };
        tile.values.extend(region.iter().map(|span| span.base.clone()));
        let vector = self.plan.vector;
        let beside = (0..region.len()).filter(|&axis| !self.main().axes[axis].reduce && axis != vector);
        for axis in beside.collect::<Vec<_>>() {
            let name = self.main().axes[axis].name;
            let at = self.all.open_some(name, region[axis].extent, LoopKind::Unrolled, &mut tile.loops);
            tile.values[axis].add_scaled(&at, 1);
            tile.place.push(at);
        }

        let (name, extent) = (self.main().axes[vector].name, lanes.unwrap_or(region[vector].extent));
        let at = self.all.open_some(name, extent, LoopKind::Vectorized, &mut tile.loops);
        tile.values[vector].add_scaled(&at, 1);
        tile.place.push(at);
        tile
    }

    /// Registers for the results of a tile.
    fn results(&mut self, name: &str, region: &[Span], lanes: Option<usize>) -> BufferId {
        let vector = self.plan.vector;
        let beside = (0..region.len()).filter(|&axis| !self.main().axes[axis].reduce && axis != vector);
        let mut shape: Vec<usize> = beside.map(|axis| region[axis].extent).collect();
        shape.push(lanes.unwrap_or(region[vector].extent));
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        let name = format!("{name}_{}", sizes.join("x"));
        self.all.buffer_named(&name, Role::Accumulator, Scope::Register, shape)
    }

    /// `output = value`, at once.
    fn map(&mut self, region: &[Span]) -> Vec<Node> {
        let Tile { loops, values, .. } = self.open_tile(region, None);
        let value = self.main_value(&values);
        let dst = Access { buffer: self.output, index: self.output_index(&values) };
        let value = self.tail(value, &values);
        let store = Store { dst, mode: StoreMode::Assign, value, point: values };
        nest(loops, vec![Node::Store(store)])
    }

    /// ```text
    /// alloc acc { acc[..] = neutral; for taps { acc[..] = combined(acc[..], value) }; output[..] = tail(acc[..]) }
    /// ```
    fn reduction(&mut self, region: &[Span]) -> Vec<Node> {
        let acc = self.results("acc", region, None);
        let mut body = self.begin(acc, region, None);
        body.extend(self.steps(acc, region, None));
        body.extend(self.finish(acc, region));
        allocated([acc], body)
    }

    fn begin(&mut self, acc: BufferId, region: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let neutral = Expr::Const(self.main().reduction.neutral());
        let Tile { loops, place, .. } = self.open_tile(region, lanes);
        nest(loops, vec![assign(acc, place, neutral)])
    }

    /// `output = tail(acc)`.
    fn finish(&mut self, acc: BufferId, region: &[Span]) -> Vec<Node> {
        let Tile { loops, values, place } = self.open_tile(region, None);
        let value = self.tail(load(acc, place), &values);
        nest(loops, vec![assign(self.output, self.output_index(&values), value)])
    }

    /// ```text
    /// alloc lanes {
    ///   alloc acc { acc[..] = neutral; for steps { acc[..] = combined(acc[..], value) }; lanes[..] = acc[..] }
    ///   alloc sum { sum = neutral; for rest { sum = combined(sum, value) }; sum = combined(sum, lanes[..]); output = tail(sum) }
    /// }
    /// ```
    fn reduction_of_lanes(&mut self, region: &[Span], lanes: usize) -> Vec<Node> {
        let vector = self.plan.vector;
        let whole = region[vector].extent / lanes * lanes;
        let part = |start: usize, extent: usize| {
            let mut part = region.to_vec();
            part[vector] = Span { base: region[vector].base.clone() + start as i64, extent };
            part
        };
        let rest = part(whole, region[vector].extent - whole);
        let single = part(0, 1);

        // What is left over is combined one by one, with what the lanes hold.
        let sum = self.results("sum", &single, Some(1));
        let mut body = self.begin(sum, &single, Some(1));
        let mut stages = Vec::new();
        let mut local = None;
        if whole > 0 {
            let region = part(0, whole);
            let acc = self.results("acc", &region, Some(lanes));
            let shape = self.all.buffers[acc.0 as usize].shape.clone();
            let name = self.all.buffers[acc.0 as usize].name.replace("acc", "lanes");
            let all_lanes = self.all.buffer_named(&name, Role::Packed, Scope::Local, shape);
            let mut of_lanes = self.begin(acc, &region, Some(lanes));
            of_lanes.extend(self.steps(acc, &region, Some(lanes)));
            let Tile { loops, place, .. } = self.open_tile(&region, Some(lanes));
            of_lanes.extend(nest(loops, vec![assign(all_lanes, place.clone(), load(acc, place))]));
            stages.extend(allocated([acc], of_lanes));
            body.extend(self.combine_lanes(sum, all_lanes, &single, lanes));
            local = Some(all_lanes);
        }
        if rest[vector].extent > 0 {
            body.extend(self.steps(sum, &rest, Some(1)));
        }

        let Tile { loops, values, place } = self.open_tile(&single, Some(1));
        let value = self.tail(load(sum, place), &values);
        body.extend(nest(loops, vec![assign(self.output, self.output_index(&values), value)]));
        stages.extend(allocated([sum], body));
        allocated(local, stages)
    }

    fn combine_lanes(&mut self, sum: BufferId, lanes: BufferId, region: &[Span], count: usize) -> Vec<Node> {
        let Tile { mut loops, place, .. } = self.open_tile(region, Some(1));
        let lane = self.all.open_some("lane", count, LoopKind::Unrolled, &mut loops);
        let mut from = place.clone();
        if let Some(last) = from.last_mut() {
            *last = lane;
        }
        let dst = Access { buffer: sum, index: place };
        let store = self.main().reduction.store(dst, load(lanes, from), Vec::new());
        nest(loops, vec![Node::Store(store)])
    }

    /// Loops over what is combined, some iterations of the innermost written out.
    fn steps(&mut self, acc: BufferId, region: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let reduced: Vec<AxisId> = (0..region.len()).filter(|&axis| self.main().axes[axis].reduce).collect();
        self.step(acc, region.to_vec(), lanes, &reduced)
    }

    fn step(&mut self, acc: BufferId, region: Vec<Span>, lanes: Option<usize>, reduced: &[AxisId]) -> Vec<Node> {
        let [axis, rest @ ..] = reduced else { return self.statement(acc, &region, lanes) };
        let (axis, Span { base, extent }) = (*axis, region[*axis].clone());
        let name = self.main().axes[axis].name;
        let width = if axis == self.plan.vector { lanes.unwrap_or(1) } else { 1 };
        let iterations = extent / width;
        // What is within is written out already.
        let within: usize = rest.iter().map(|&axis| region[axis].extent).product();
        let unroll = (self.plan.unroll / within.max(1)).clamp(1, iterations.max(1));

        let mut nodes = Vec::new();
        for (start, count, tile) in
            [(0, iterations / unroll, unroll), (iterations / unroll * unroll, 1, iterations % unroll)]
        {
            if count * tile == 0 {
                continue;
            }
            nodes.extend(self.repeat(format!("{name}.0"), count, LoopKind::Serial, |lowering, number| {
                lowering.repeat(name, tile, LoopKind::Unrolled, |lowering, step| {
                    let at = (number * tile as i64 + step + start as i64) * width as i64 + base.clone();
                    let mut region = region.clone();
                    region[axis] = Span { base: at, extent: 1 };
                    lowering.step(acc, region, lanes, rest)
                })
            }));
        }
        nodes
    }

    fn statement(&mut self, acc: BufferId, region: &[Span], lanes: Option<usize>) -> Vec<Node> {
        let Tile { loops, values, place } = self.open_tile(region, lanes);
        let value = self.main_value(&values);
        let dst = Access { buffer: acc, index: place };
        let store = self.main().reduction.store(dst, value, values);
        nest(loops, vec![Node::Store(store)])
    }

    /// What the main equation combines.
    fn main_value(&self, values: &[Affine]) -> Expr {
        self.main().value.replaced(&mut |access| self.operand(access, values))
    }

    /// The result behind what was combined, by the last equation.
    fn tail(&self, combined: Expr, values: &[Affine]) -> Expr {
        let output = &self.main().output;
        let Some(tail) = self.plan.spec.equations.last() else { return combined };
        tail.value.replaced(&mut |access| match access == output {
            true => combined.clone(),
            false => self.operand(access, values),
        })
    }

    /// An element of an operand; the axes of the last equation are the first of the main one.
    fn operand(&self, access: &Access, values: &[Affine]) -> Expr {
        let buffer = match self.plan.spec.role(access.buffer) {
            Role::Operand(number) => BufferId(number as u32),
            _ => self.output,
        };
        load(buffer, access.index.iter().map(|index| at(index, values)).collect())
    }

    fn output_index(&self, values: &[Affine]) -> Vec<Affine> {
        self.main().output.index.iter().map(|index| at(index, values)).collect()
    }
}
