//! Lowering of the tiled sketch.

use std::sync::Arc;

use crate::contraction::{AxisId, Contraction, divide};
use crate::lower::partial::{Sums, add_partial, fused};
use crate::lower::{OperandBuffers, assign, at, dtype_of, load, nest};
use crate::tiled::{SpatialTile, Tiled};
use crate::workload::Workload;
use autotune_ir::Spec;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{
    Access, Buffer, BufferId, Expr, InBounds, Layout, LoopKind, Node, Program, Role, Scope, Stage, Store, StoreMode,
    VarName, When,
};

mod chunks;
mod copy;
mod pixels;
pub(crate) mod winograd;

/// The loop nests of a config.
pub(crate) fn lower(workload: &Workload, tiled: &Tiled) -> Program {
    Lowering::new(workload, tiled).run()
}

struct Lowering<'a> {
    workload: &'a Workload,
    tiled: &'a Tiled,
    vars: Vec<VarName>,
    extents: Vec<usize>,
    buffers: Vec<Buffer>,
    /// Where the compute stage reads data and weights.
    sources: [BufferId; 2],
    shared: [BufferId; 2],
    fragments: [BufferId; 2],
    /// What is on its way to shared memory with two stages.
    prefetched: Vec<BufferId>,
    acc: BufferId,
    /// Sums of the parts of a split reduction, if it is split.
    partial: Option<BufferId>,
    operands: OperandBuffers,
    /// Linear number of the thread.
    thread: Affine,
    /// First element of the block, per spatial axis.
    block_base: Vec<Affine>,
    /// First element of the block along the innermost reduction axis.
    split_base: Affine,
    /// First element of the thread within the block's tile, per axis.
    thread_base: Vec<Affine>,
}

/// Position of an element in the tile of a thread, per axis: its virtual thread and its place within it.
type Place = Vec<(AxisId, [Affine; 2])>;

/// What a compute stage reads and writes.
struct Outside {
    sources: [BufferId; 2],
    partial: Option<BufferId>,
    operands: OperandBuffers,
}

impl<'a> Lowering<'a> {
    fn new(workload: &'a Workload, tiled: &'a Tiled) -> Self {
        let mut buffers = Vec::new();
        let own = tiled.own();
        let plain = |shape| (shape, Layout::Plain);
        let (inputs, outputs) = (plain(own.data.shape.as_slice()), plain(own.output.shape.as_slice()));
        let operands = OperandBuffers::new(&mut buffers, workload, inputs, outputs);
        let mut weight = operands.weight;
        let mut global = |name: &str, role, shape: &[usize]| {
            let (shape, scope, layout) = (shape.to_vec(), Scope::Global, Layout::Plain);
            buffers.push(Buffer { name: name.into(), role, scope, shape, layout, dtype: dtype_of(workload, role) });
            BufferId(buffers.len() as u32 - 1)
        };
        if tiled.packed_weights {
            weight = global("weight_packed", Role::Packed, &tiled.staged[1].source.shape);
        }
        let partial = (tiled.split > 1).then(|| {
            let shape = [&[tiled.split], &own.output.shape[..]].concat();
            global("partial", Role::Accumulator, &shape)
        });
        let outside = Outside { sources: [operands.input, weight], partial, operands };
        Self::within(workload, tiled, buffers, outside)
    }

    /// For a stage that reads and writes some of the buffers.
    fn within(workload: &'a Workload, tiled: &'a Tiled, mut buffers: Vec<Buffer>, outside: Outside) -> Self {
        let mut add = |name: &str, role, scope, shape: Vec<usize>| {
            let dtype = dtype_of(workload, role);
            buffers.push(Buffer { name: name.into(), role, scope, shape, layout: Layout::Plain, dtype });
            BufferId(buffers.len() as u32 - 1)
        };
        let slots = |which: usize| {
            let mut shape = tiled.staged[which].shape(tiled.pad);
            shape.insert(0, tiled.stages);
            shape
        };
        let shared = ["data_shared", "weight_shared"];
        let shared = [0, 1].map(|which| add(shared[which], Role::Packed, Scope::Shared, slots(which)));
        let tile = |tiles: &[SpatialTile]| tiles.iter().flat_map(|t| [t.strands(), t.register]).collect::<Vec<_>>();
        let fragments = ["data_frag", "weight_frag"];
        let fragments =
            [0, 1].map(|which| add(fragments[which], Role::Packed, Scope::Register, tile(&tiled.tiles_of(which))));
        let prefetched = ["data_next", "weight_next"];
        let rounds = |which: usize| tiled.staged[which].rounds(tiled.threads());
        let in_flight = if tiled.stages == 2 { 0..2 } else { 0..0 };
        let prefetched: Vec<BufferId> = in_flight
            .map(|which| {
                let shape = vec![rounds(which), tiled.staged[which].vector];
                add(prefetched[which], Role::Packed, Scope::Register, shape)
            })
            .collect();
        let acc = add("acc", Role::Accumulator, Scope::Register, tile(&tiled.spatial));
        let axes = tiled.contraction.axes.len();
        let Outside { sources, partial, operands } = outside;
        Self {
            workload,
            tiled,
            vars: Vec::new(),
            extents: Vec::new(),
            buffers,
            sources,
            shared,
            fragments,
            prefetched,
            acc,
            partial,
            operands,
            thread: Affine::default(),
            block_base: vec![Affine::default(); axes],
            split_base: Affine::default(),
            thread_base: vec![Affine::default(); axes],
        }
    }

    fn run(mut self) -> Program {
        let mut stages = Vec::new();
        if self.tiled.packed_weights {
            stages.push(Stage { name: "pack_weight".into(), when: When::AheadOfTime, body: self.pack_weight() });
        }
        stages.push(Stage { name: "compute".into(), when: When::EveryRun, body: self.compute() });
        if let Some(partial) = self.partial {
            let Contraction { output, bias, .. } = self.tiled.own();
            let channel = output.index.iter().position(|axis| axis == bias).unwrap_or(0);
            let sums =
                Sums { workload: self.workload, operands: &self.operands, partial, parts: self.tiled.split, channel };
            let body = add_partial(&sums, &mut self.vars, &mut self.buffers);
            stages.push(Stage { name: "add_partial".into(), when: When::EveryRun, body });
        }
        let spec = Arc::clone(&self.tiled.contraction.spec);
        self.program(Arc::clone(&spec), spec, stages)
    }

    fn program(self, spec: Arc<Spec>, algorithm: Arc<Spec>, stages: Vec<Stage>) -> Program {
        Program {
            spec,
            algorithm,
            axes: self.tiled.contraction.axes.clone(),
            vars: self.vars,
            buffers: self.buffers,
            stages,
        }
    }

    fn var(&mut self, name: String, extent: usize) -> VarId {
        self.vars.push(name.into());
        self.extents.push(extent);
        VarId(self.vars.len() as u32 - 1)
    }

    /// A variable with its loop pushed to `loops`, or zero where the extent is 1.
    fn open(&mut self, name: String, extent: usize, kind: LoopKind, loops: &mut Loops) -> Affine {
        if extent == 1 {
            return Affine::default();
        }
        let var = self.var(name, extent);
        loops.push((var, extent, kind));
        Affine::var(var)
    }

    fn name(&self, axis: AxisId) -> &'static str {
        self.tiled.contraction.axes[axis].name
    }

    fn extent(&self, axis: AxisId) -> usize {
        self.tiled.contraction.axes[axis].extent
    }

    /// True if the index can leave `0..extent`.
    fn leaves(&self, index: &Affine, extent: usize) -> bool {
        let (low, high) = index.range(|v| self.extents[v.0 as usize]);
        low < 0 || high >= extent as i64
    }

    fn guards(&self, bounds: impl IntoIterator<Item = (Affine, usize)>) -> Vec<InBounds> {
        let bounds = bounds.into_iter().filter(|(index, extent)| self.leaves(index, *extent));
        bounds.map(|(index, extent)| InBounds { index, extent }).collect()
    }

    fn compute(&mut self) -> Vec<Node> {
        let mut loops = Vec::new();
        self.open_blocks(&mut loops);
        self.open_threads(&mut loops);
        let mut body = self.clear();
        let reduce = self.tiled.reduce.clone();
        body.extend(self.chunks(&reduce, &mut Vec::new()));
        body.extend(match &self.tiled.pixels {
            Some(pixels) => self.write_pixels(pixels),
            None => self.write_output(),
        });
        let buffers = [&self.shared[..], &self.prefetched, &self.fragments, &[self.acc]].concat();
        let body = buffers.into_iter().rev().fold(body, |body, buffer| vec![Node::Alloc { buffer, body }]);
        nest(loops, body)
    }

    fn open_blocks(&mut self, loops: &mut Loops) {
        if let Some(&(axis, chunk)) = self.tiled.reduce.last() {
            let part = self.open(format!("{}.s", self.name(axis)), self.tiled.split, LoopKind::Block, loops);
            self.split_base = part * (self.tiled.chunks() * chunk) as i64;
        }
        for &axis in &self.tiled.batch {
            self.block_base[axis] =
                self.open(format!("{}.b", self.name(axis)), self.extent(axis), LoopKind::Block, loops);
        }
        for &axis in &self.tiled.order {
            let Some(&tile) = self.tiled.spatial.iter().find(|t| t.axis == axis) else {
                continue;
            };
            let count = self.extent(axis).div_ceil(tile.block);
            let block = self.open(format!("{}.b", self.name(axis)), count, LoopKind::Block, loops);
            self.block_base[axis] = block * tile.block as i64;
        }
    }

    /// Thread loops, at least one, so that what is within is a thread's.
    fn open_threads(&mut self, loops: &mut Loops) {
        let mut opened = Vec::new();
        for &tile in &self.tiled.spatial {
            let thread =
                self.open(format!("{}.t", self.name(tile.axis)), tile.threads(), LoopKind::Thread, &mut opened);
            self.thread = self.thread.clone() * tile.threads() as i64 + thread.clone();
            self.thread_base[tile.axis] = thread * tile.register as i64;
        }
        if opened.is_empty() {
            opened.push((self.var("t".into(), 1), 1, LoopKind::Thread));
        }
        loops.append(&mut opened);
    }

    /// Loops over a thread's elements of some tiles, written out, the last one `innermost`.
    fn tile_loops(&mut self, tiles: &[SpatialTile], innermost: LoopKind) -> (Loops, Place) {
        let (mut loops, mut place) = (Vec::new(), Vec::new());
        for tile in tiles {
            let name = self.name(tile.axis);
            let strand = self.open(format!("{name}.v"), tile.strands(), LoopKind::Unrolled, &mut loops);
            let register = self.open(format!("{name}.r"), tile.register, LoopKind::Unrolled, &mut loops);
            place.push((tile.axis, [strand, register]));
        }
        if let (Some(last), Some(tile)) = (loops.last_mut(), tiles.last())
            && tile.register > 1
        {
            last.2 = innermost;
        }
        (loops, place)
    }

    /// The element of a thread's tile, counted from the first of the block's.
    fn in_block(&self, place: &Place) -> Vec<Affine> {
        let mut values = vec![Affine::default(); self.tiled.contraction.axes.len()];
        for (axis, [strand, register]) in place {
            let tile = self.tiled.spatial.iter().find(|t| t.axis == *axis);
            let step = tile.map_or(0, |t| t.strand as i64);
            values[*axis] = strand.clone() * step + self.thread_base[*axis].clone() + register.clone();
        }
        values
    }

    /// `acc = 0`.
    fn clear(&mut self) -> Vec<Node> {
        let tiled = self.tiled;
        let (loops, place) = self.tile_loops(&tiled.spatial, LoopKind::Unrolled);
        nest(loops, vec![assign(self.acc, registers(&place), Expr::Const(0.0))])
    }

    /// Adds the products of a chunk, which lies in `slot`.
    fn multiply(&mut self, slot: &Affine, base: &[(AxisId, Affine)]) -> Vec<Node> {
        let (loops, steps) = self.step_loops();
        let mut nodes = Vec::new();
        for which in 0..2 {
            let tiles = self.tiled.tiles_of(which);
            let (loops, place) = self.tile_loops(&tiles, LoopKind::Vectorized);
            let mut values = self.in_block(&place);
            steps.iter().for_each(|(axis, step)| values[*axis] = step.clone());
            let source = &self.tiled.staged[which].source;
            let places: Vec<Affine> =
                source.index.iter().map(|index| at(&Affine { constant: 0, ..index.clone() }, &values)).collect();
            let value = load(self.shared[which], self.shared_index(which, slot, &places));
            nodes.extend(nest(loops, vec![assign(self.fragments[which], registers(&place), value)]));
        }
        nodes.extend(self.multiply_add(&steps, base));
        nest(loops, nodes)
    }

    /// Loops over the steps of a chunk, and the step along each axis. The innermost ones are written out while that makes
    /// `unroll` steps at most; a loop is split if a divisor of its extent fits.
    fn step_loops(&mut self) -> (Loops, Vec<(AxisId, Affine)>) {
        let mut budget = self.tiled.unroll;
        let mut split: Vec<(AxisId, usize, usize)> = Vec::new();
        for &(axis, chunk) in self.tiled.reduce.iter().rev() {
            let inner = (1..=chunk.min(budget)).rev().find(|d| chunk.is_multiple_of(*d)).unwrap_or(1);
            budget = if inner == chunk { budget / inner } else { 1 };
            split.push((axis, chunk / inner, inner));
        }
        let (mut loops, mut steps) = (Vec::new(), Vec::new());
        for &(axis, outer, inner) in split.iter().rev() {
            let name = self.name(axis);
            let serial = self.open(format!("{name}.1"), outer, LoopKind::Serial, &mut loops);
            let unrolled = self.open(format!("{name}.u"), inner, LoopKind::Unrolled, &mut loops);
            steps.push((axis, serial * inner as i64 + unrolled));
        }
        (loops, steps)
    }

    /// `acc += data_frag * weight_frag` over the tile of the thread.
    fn multiply_add(&mut self, steps: &[(AxisId, Affine)], base: &[(AxisId, Affine)]) -> Vec<Node> {
        let tiled = self.tiled;
        let (loops, place) = self.tile_loops(&tiled.spatial, LoopKind::Unrolled);
        let mut point = self.in_block(&place);
        for (axis, value) in point.iter_mut().enumerate() {
            *value = value.clone() + self.block_base[axis].clone();
        }
        for (axis, value) in steps.iter().chain(base) {
            point[*axis] = point[*axis].clone() + value.clone();
        }
        let operand = |which: usize| {
            let used: Place = place.iter().filter(|p| self.tiled.staged[which].source.uses(p.0)).cloned().collect();
            load(self.fragments[which], registers(&used))
        };
        let store = Node::Store(Store {
            dst: Access { buffer: self.acc, index: registers(&place) },
            mode: StoreMode::Accumulate,
            value: Expr::product(operand(0), operand(1)),
            point,
        });
        nest(loops, vec![store])
    }

    /// `output = act(acc + bias + residual)` or `partial[part] = acc` where the tile does not stick out.
    fn write_output(&mut self) -> Vec<Node> {
        let tiled = self.tiled;
        let (loops, place) = self.tile_loops(&tiled.spatial, LoopKind::Vectorized);
        let mut values = self.in_block(&place);
        for (axis, value) in values.iter_mut().enumerate() {
            *value = value.clone() + self.block_base[axis].clone();
        }
        let contraction = &self.tiled.contraction;
        let index: Vec<Affine> = contraction.output.index.iter().map(|i| at(i, &values)).collect();
        let sum = load(self.acc, registers(&place));
        let store = match self.partial {
            Some(partial) => assign(partial, [vec![self.part()], index].concat(), sum),
            None => {
                let bias = at(&contraction.bias, &values);
                let value = fused(self.workload, &self.operands, sum, bias, &index);
                assign(self.operands.output, index, value)
            }
        };
        let when = self.guards(self.tiled.spatial.iter().map(|t| (values[t.axis].clone(), self.extent(t.axis))));
        nest(loops, guarded(when, vec![store]))
    }

    /// Number of the part of the reduction that the block takes.
    fn part(&self) -> Affine {
        let elements = self.tiled.reduce.last().map_or(1, |&(_, chunk)| self.tiled.chunks() * chunk);
        divide(&self.split_base, elements)
    }
}

type Loops = Vec<(VarId, usize, LoopKind)>;

/// Index of a register buffer with two dimensions per axis.
fn registers(place: &Place) -> Vec<Affine> {
    place.iter().flat_map(|(_, index)| index.iter().cloned()).collect()
}

/// The body where the conditions hold.
fn guarded(when: Vec<InBounds>, body: Vec<Node>) -> Vec<Node> {
    if when.is_empty() { body } else { vec![Node::Guard { when, body }] }
}
