//! Lowering of maps and reductions for CPUs: loops over tiles of rows, and in each tile the passes
//! in sequence.

use std::sync::Arc;

use crate::lower::nest::{NestParts, StageBuilder, allocated, shaped_name};
use crate::lower::tables::tables;
use crate::map_reduce::{AxisTiles, MapReduce, Storing, Taps};
use autotune_ir::DType;
use autotune_ir::affine::Affine;
use autotune_ir::program::{AxisInfo, BufferId, Layout, LoopKind, Node, Program, Role, Scope, Stage, When};
use autotune_ir::spec::{Equation, TensorSpec};

mod pass;
mod reduction;

/// Lowers a plan to loop nests.
pub(crate) fn lower(plan: &MapReduce) -> Program {
    let (spec, mut all) = (plan.spec(), NestParts::new(plan.spec(), DType::F32));
    let output = operands(plan, &mut all);
    all.buffers[output.0 as usize].streamed = plan.storing == Storing::Streamed;

    let (mut made, tables) = tables(spec, &mut all, &[("task", LoopKind::Parallel)]);
    let mut stages: Vec<Stage> = tables.into_iter().collect();
    // Tables and maps that run before have stages of their own; those of constants run ahead of
    // time.
    let mut add = |name: &str, when, body| stages.push(Stage { name: name.into(), when, body });
    for before in &plan.before {
        let tensor = before.chain.last().output.buffer;
        let TensorSpec { name, shape, .. } = &spec.tensors[tensor.0 as usize];
        let buffer = all.buffer(name.to_string(), Role::Packed, Scope::Global, shape.clone());
        let is_constant = before.chain.last().loads().into_iter().all(|access| spec.tensor(access).is_constant());
        let when = if is_constant { When::AheadOfTime } else { When::EveryRun };
        add(&format!("make_{name}"), when, stage(before, &mut all, &made, buffer));
        made[tensor.0 as usize] = Some(buffer);
    }
    add("main", When::EveryRun, stage(plan, &mut all, &made, output));
    Program {
        axes: spec.main().axes.iter().enumerate().map(|(id, axis)| AxisInfo::whole(id, axis)).collect(),
        spec: Arc::clone(spec),
        algorithm: Arc::clone(spec),
        vars: all.vars,
        buffers: all.buffers,
        stages,
        cold: false,
    }
}

/// Adds buffers for the operands and the result, in their layouts; returns the result's.
fn operands(plan: &MapReduce, all: &mut NestParts) -> BufferId {
    let spec = &plan.chain.spec;
    let mut add = |name: String, role, tensor: BufferId| {
        let id = all.buffer(name, role, Scope::Global, spec.tensors[tensor.0 as usize].shape.clone());
        all.buffers[id.0 as usize].layout =
            plan.blocked_layout.as_ref().map_or(Layout::Plain, |laid| laid.layout(tensor));
        id
    };
    let tensors = (0..).map(BufferId).zip(&spec.tensors);
    for (id, tensor) in tensors.filter(|(_, tensor)| tensor.is_given()) {
        add(tensor.name.to_string(), spec.role(id), id);
    }
    add("output".into(), Role::Output, spec.result().unwrap_or(plan.chain.last().output.buffer))
}

/// Lowers one chain, which stores its result to `output`. `made` has, by tensor, the buffers that
/// earlier stages have stored.
fn stage(plan: &MapReduce, all: &mut NestParts, made: &[Option<BufferId>], output: BufferId) -> Vec<Node> {
    let rows =
        plan.chain.row_axes().iter().map(|axis| RowSpan { base: Affine::default(), extent: axis.extent }).collect();
    let mut lowering = ChainLowering { plan, all, output, made, kept: vec![None; made.len()], number: 0 };
    let whole = TileRegion { rows, taps: Vec::new() };
    lowering.level(0, &whole, Enclosed { is_outermost: true, alone: true })
}

/// Range of an axis at some depth of the nest: `base..base + extent`.
#[derive(Clone)]
struct RowSpan {
    base: Affine,
    extent: usize,
}

/// Range of a tile: its rows, and the taps of windows that touch padding there.
#[derive(Clone)]
struct TileRegion {
    rows: Vec<RowSpan>,
    taps: Vec<Taps>,
}

/// Loops around the loop that is lowered.
#[derive(Clone, Copy)]
struct Enclosed {
    /// True if there is no enclosing loop, so that neighbouring loops are trees of their own.
    is_outermost: bool,
    /// True if all enclosing loops are parallel and perfectly nested.
    alone: bool,
}

struct ChainLowering<'p> {
    plan: &'p MapReduce,
    all: &'p mut NestParts,
    output: BufferId,
    /// Buffers of whole tensors, by tensor.
    made: &'p [Option<BufferId>],
    /// Buffers in which the tile stores what passes have computed, by tensor.
    kept: Vec<Option<BufferId>>,
    /// Position of the pass that is lowered.
    number: usize,
}

impl StageBuilder for ChainLowering<'_> {
    fn all(&mut self) -> &mut NestParts {
        self.all
    }
}

impl ChainLowering<'_> {
    /// Builds the loops from position `depth` of the order on. Outermost loops are parallel only as
    /// long as they are perfectly nested.
    fn level(&mut self, depth: usize, region: &TileRegion, enclosed: Enclosed) -> Vec<Node> {
        let Some(&axis) = self.plan.order.get(depth) else { return self.tile(region) };
        let (pieces, rows) = (self.plan.pieces(axis).unwrap_or_default(), self.plan.chain.row_axes());
        // Loops of one iteration do not count towards the number of parallel loops.
        let before = self.plan.order[..depth].iter().filter(|&&axis| rows[axis].extent > 1).count();
        let is_parallel = enclosed.alone && before < self.plan.parallel;
        let kind = if is_parallel { LoopKind::Parallel } else { LoopKind::Serial };
        let name = rows[axis].name;

        let next = self.plan.order.get(depth + 1).and_then(|&next| self.plan.pieces(next));
        // Several pieces of the next loop are separate nests, which cannot share one parallel loop.
        let is_single = next.is_none_or(|pieces| pieces.len() == 1);
        let mut nodes = Vec::new();
        for AxisTiles { start, count, tile, taps } in pieces {
            nodes.extend(self.repeat(format!("{name}.0"), count, kind, |lowering, number| {
                let mut region = region.clone();
                region.rows[axis] = RowSpan { base: number * tile as i64 + start as i64, extent: tile };
                region.taps.extend(taps);
                let is_outermost = enclosed.is_outermost && count == 1;
                let alone = is_parallel && (is_outermost || is_single);
                lowering.level(depth + 1, &region, Enclosed { is_outermost, alone })
            }));
        }
        nodes
    }

    /// Builds the passes of a tile: `alloc kept .. { pass 0; pass 1; .. }`.
    fn tile(&mut self, region: &TileRegion) -> Vec<Node> {
        let passes = self.plan.chain.passes();
        let (mut nodes, mut kept) = (Vec::new(), Vec::new());
        for (number, pass) in passes.iter().enumerate() {
            self.number = number;
            let spans = spans(pass, number, region);
            // The last pass stores to the output, all others to buffers of the tile.
            if number + 1 < passes.len() {
                let buffer = self.keep(pass, &spans);
                self.kept[pass.output.buffer.0 as usize] = Some(buffer);
                kept.push(buffer);
            }
            // A map that is fused with the next pass has no loops of its own.
            if !self.plan.goes_with_next(number) {
                nodes.extend(self.pass(spans));
            }
        }
        allocated(kept, nodes)
    }

    /// Adds a thread-private buffer for a pass's output of one tile, contiguous along the pass's
    /// vectors.
    fn keep(&mut self, pass: &Equation, spans: &[RowSpan]) -> BufferId {
        let shape: Vec<usize> = self.kept_dims(pass.output.buffer).iter().map(|dim| spans[dim.axis].extent).collect();
        let name = shaped_name(&self.plan.chain.spec.tensor(&pass.output).name, &shape);
        self.all.buffer_named(&name, Role::Packed, Scope::Local, shape)
    }
}

/// Returns the range of each axis of a pass: the tile's rows, and its own axes in full, without
/// taps that are outside the tensor.
fn spans(pass: &Equation, number: usize, region: &TileRegion) -> Vec<RowSpan> {
    let own =
        pass.axes[region.rows.len()..].iter().map(|axis| RowSpan { base: Affine::default(), extent: axis.extent });
    let mut spans: Vec<RowSpan> = region.rows.iter().cloned().chain(own).collect();
    for taps in region.taps.iter().filter(|taps| taps.pass == number) {
        spans[taps.axis] = RowSpan { base: Affine::constant(taps.first as i64), extent: taps.end - taps.first };
    }
    spans
}
