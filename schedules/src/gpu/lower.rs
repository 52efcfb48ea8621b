//! Lowering of tilings to loop nests for a GPU.

use std::sync::Arc;

use super::{MicroKernel, Pipeline, TileLevel, Tiling};
use crate::contraction::AxisId;
use crate::lower::nest::{Loops, NestParts, allocated};
use crate::lower::partial::{COPY_THREADS, DIMENSIONS, add_partial};
use crate::lower::{OperandBuffers, assign, nest, without_blocks};
use autotune_ir::affine::Affine;
use autotune_ir::program::{
    Access, BufferId, Digit, Expr, Layout, LoopKind, Node, Program, Role, Scope, Stage, Store, StoreMode, VarName, When,
};
use autotune_ir::spec::Equation;
use autotune_workloads::Workload;

pub(crate) mod copy;
mod matrix;
mod output;
pub(crate) mod pack;
mod pipeline;
mod registers;

/// Lowers a tiling of a workload to loop nests.
pub(crate) fn lower(workload: &Workload, tiling: &Tiling) -> Program {
    let mut all = NestParts::new(workload.spec(), workload.dtype());
    let (own, [input, output]) = (&tiling.roles.own, tiling.roles.in_memory());
    let operands = OperandBuffers::new(&mut all, workload, input, output);

    let weight = match &tiling.packing {
        Some(_) => all.buffer("weight_packed", Role::Packed, Scope::Global, tiling.staged[1].source.shape.clone()),
        None => operands.weight,
    };
    // Blocks cannot wait for each other, so parts of a reduction are added by a later stage.
    let partial = (tiling.split > 1).then(|| {
        let shape = [&[tiling.split], &own.output.shape[..]].concat();
        all.buffer("partial", Role::Accumulator, Scope::Global, shape)
    });

    let mut stages = Vec::new();
    let mut add = |name: &str, when, body| stages.push(Stage { name: name.into(), when, body });
    if let Some(packing) = &tiling.packing {
        let when = if own.weight_is_constant { When::AheadOfTime } else { When::EveryRun };
        add("pack_weight", when, pack::pack_weight(tiling, packing, [operands.weight, weight], &mut all));
    }
    let data = match own.prologue() {
        None => operands.input,
        Some(map) => {
            // Asynchronous copies to shared memory cannot compute, so a stage of its own applies
            // the prologue.
            let mapped = all.buffer("mapped", Role::Packed, Scope::Global, own.data.shape.clone());
            add("map_input", When::EveryRun, map_input(&operands, map, mapped, input.1, &mut all));
            mapped
        }
    };
    let outside = StageOperands { sources: [data, weight], partial, operands: operands.clone() };
    add("compute", When::EveryRun, compute(tiling, outside, "", &mut all));
    if let Some(partial) = partial {
        // The bias is indexed by the output's channel dimension.
        let channel = own.output.index.iter().position(|index| *index == own.bias).unwrap_or(0);
        let body = add_partial(&operands, (partial, tiling.split), channel, &mut all);
        add("add_partial", When::EveryRun, body);
    }

    let axes = tiling.roles.axes.clone();
    let spec = Arc::clone(&tiling.roles.own.spec);
    Program { algorithm: Arc::clone(&spec), spec, axes, vars: all.vars, buffers: all.buffers, stages, cold: false }
}

/// Returns the stage that applies a prologue, with one thread per element of the input:
/// `mapped[..] = f(input[..])`. The result has the layout of the input.
fn map_input(
    operands: &OperandBuffers,
    map: &Equation,
    mapped: BufferId,
    layout: Layout,
    all: &mut NestParts,
) -> Vec<Node> {
    let extents = all.buffers[mapped.0 as usize].shape.clone();
    let shape: Vec<(&str, usize)> = DIMENSIONS.into_iter().zip(extents).collect();
    let block = match layout {
        Layout::ChannelBlocked(block) => Some(block),
        Layout::Plain => None,
    };
    all.each(COPY_THREADS, &shape, &[], |_, index| {
        let logical = without_blocks(index.clone(), block);
        let value = operands.mapped(map, &index, &logical);
        vec![assign(mapped, index, value)]
    })
}

/// Buffers that a compute stage reads and writes.
pub(crate) struct StageOperands {
    /// Data and weights, as the compute stage reads them.
    pub(crate) sources: [BufferId; 2],
    /// Partial sums of a split reduction; `None` without a split.
    pub(crate) partial: Option<BufferId>,
    pub(crate) operands: OperandBuffers,
}

/// Returns the compute stage of a tiling. The names of its buffers begin with `prefix`.
pub(crate) fn compute(tiling: &Tiling, outside: StageOperands, prefix: &str, all: &mut NestParts) -> Vec<Node> {
    GpuLowering::new(tiling, outside, prefix, all).compute()
}

/// State of lowering one tiling.
pub(crate) struct GpuLowering<'a> {
    pub(crate) tiling: &'a Tiling,
    pub(crate) operands: StageOperands,
    pub(crate) all: &'a mut NestParts,
    pub(crate) shared: [BufferId; 2],
    /// Register buffers for the factors of both operands; empty if instructions read shared memory.
    fragments: Vec<BufferId>,
    /// Register buffers for elements of both operands in flight to shared memory.
    fetched: Vec<BufferId>,
    pub(crate) acc: BufferId,
    /// Dimension of the data and offset along it at which a chunk begins in shared memory; `None`
    /// for the first element.
    pub(crate) data_from: Option<(usize, Affine)>,
    /// True if some chunk may exceed the reduction.
    pub(crate) has_partial_chunk: bool,
    /// Number of the part of the reduction that the block computes.
    part: Affine,
    /// First element of the block's tile along each axis.
    pub(crate) block_base: Vec<Affine>,
    /// On a persistent grid, the loop over the tiles of a block, the number of a tile, and its
    /// digits.
    tile_loops: Option<(Loops, Affine, Vec<Digit>)>,
    /// Linear index of the thread in the block.
    pub(crate) thread: Affine,
    /// First element of the thread along each axis, within the block's tile.
    pub(crate) thread_base: Vec<Affine>,
}

/// Position of a chunk: values of the reduction axes at its first element.
pub(crate) type Place = Vec<(AxisId, Affine)>;

impl<'a> GpuLowering<'a> {
    pub(crate) fn new(tiling: &'a Tiling, operands: StageOperands, prefix: &str, all: &'a mut NestParts) -> Self {
        let mut buffer = |which: usize, name: &str, scope, shape| {
            let id = all.buffer(format!("{prefix}{name}"), Role::Packed, scope, shape);
            all.buffers[id.0 as usize].dtype = tiling.staged[which].dtype;
            id
        };
        let shared = ["data_shared", "weight_shared"];
        let slots = |which: usize| [vec![tiling.slots], tiling.staged[which].shape()].concat();
        let shared = [0, 1].map(|which| buffer(which, shared[which], Scope::Shared, slots(which)));

        let mut registers = |names: [&str; 2], is_used: bool, shape: &dyn Fn(usize) -> Vec<usize>| {
            let used = (0..2).filter(|_| is_used);
            used.map(|which| buffer(which, names[which], Scope::Register, shape(which))).collect()
        };
        // Matrix instructions load their factors from shared memory by themselves.
        let by_threads = matches!(tiling.kernel, MicroKernel::Registers { .. });
        let fragments = registers(["data_frag", "weight_frag"], by_threads, &|which| {
            tiling.sums_of(which).map(|(_, level)| level.extent).collect()
        });
        let rounds = tiling.rounds();
        let fetched = registers(["data_next", "weight_next"], tiling.pipeline == Pipeline::Fetched, &|which| {
            vec![rounds[which], tiling.staged[which].vector]
        });

        let sums = tiling.sums.iter().map(|level| level.extent).collect();
        let acc = all.buffer(format!("{prefix}acc"), Role::Accumulator, Scope::Register, sums);
        let zeros = || vec![Affine::default(); tiling.roles.axes.len()];
        Self {
            tiling,
            operands,
            all,
            shared,
            fragments,
            fetched,
            acc,
            data_from: None,
            has_partial_chunk: false,
            part: Affine::default(),
            block_base: zeros(),
            tile_loops: None,
            thread: Affine::default(),
            thread_base: zeros(),
        }
    }

    fn compute(mut self) -> Vec<Node> {
        let mut loops = Vec::new();
        self.open_blocks(&mut loops);
        self.open_threads(&mut loops);
        let body = match self.tiling.pipeline {
            Pipeline::Producer => self.roles(),
            _ => self.tile(|this| this.chunks()),
        };
        nest(loops, allocated(self.buffers(), body))
    }

    /// Returns the buffers that are private to a block or thread.
    pub(crate) fn buffers(&self) -> Vec<BufferId> {
        self.shared.iter().chain(&self.fetched).chain(&self.fragments).chain([&self.acc]).copied().collect()
    }

    /// Returns the nodes for a tile: `acc = 0`, the additions of `add`, and the store of the
    /// output.
    fn tile(&mut self, add: impl FnOnce(&mut Self) -> Vec<Node>) -> Vec<Node> {
        let mut body = self.clear();
        body.extend(add(self));
        body.extend(self.write_output());
        body
    }

    /// Opens a loop over the elements of a level and returns its variable; zero without a loop for
    /// one element.
    fn open(&mut self, level: &TileLevel, kind: LoopKind, loops: &mut Loops) -> Affine {
        if level.extent == 1 {
            return Affine::default();
        }
        let name: VarName = match level.name.starts_with('.') {
            true => [self.tiling.roles.name(level.axis), level.name].concat().into(),
            false => level.name.into(),
        };
        self.all.open(name, level.extent, kind, loops)
    }

    /// Opens the block loops over parts of the reduction, batch, and tiles.
    pub(crate) fn open_blocks(&mut self, loops: &mut Loops) {
        let tiling = self.tiling;
        if let Some(&(axis, _)) = tiling.reduce.last() {
            self.part =
                self.open(&TileLevel { axis, name: ".s", extent: tiling.split, step: 1 }, LoopKind::Block, loops);
        }
        for &axis in &tiling.roles.batch {
            let level = TileLevel { axis, name: ".b", extent: tiling.roles.extent(axis), step: 1 };
            self.block_base[axis] = self.open(&level, LoopKind::Block, loops);
        }

        let mut tiles = Vec::new();
        for level in &tiling.blocks {
            let block = self.open(level, LoopKind::Block, &mut tiles);
            // Several loops may number the tiles of one axis, and their offsets add up.
            self.block_base[level.axis].add_scaled(&block, level.step as i64);
        }
        match tiling.persistent {
            Some(blocks) => self.open_turns(blocks, tiles, loops),
            None => loops.extend(tiles),
        }
    }

    /// Opens a persistent grid. Its blocks iterate over tiles; in each iteration, adjacent blocks
    /// compute adjacent tiles.
    fn open_turns(&mut self, blocks: usize, tiles: Loops, loops: &mut Loops) {
        let block = self.all.open("w", blocks, LoopKind::Block, loops);
        let mut turns = Vec::new();
        let count = self.tiling.all_tiles().div_ceil(blocks);
        let turn = self.all.open("t", count, LoopKind::Serial, &mut turns);
        let digits = tiles.into_iter().map(|(var, extent, _)| Digit { var, extent }).collect();
        self.tile_loops = Some((turns, turn * blocks as i64 + block, digits));
    }

    /// Opens the thread loops. There is at least one, as only nodes inside belong to a thread.
    pub(crate) fn open_threads(&mut self, loops: &mut Loops) {
        let around = loops.len();
        for level in &self.tiling.threads {
            let thread = self.open(level, LoopKind::Thread, loops);
            // The linear index has one digit for each level, the first being the most significant.
            self.thread = self.thread.clone() * level.extent as i64 + thread.clone();
            self.thread_base[level.axis].add_scaled(&thread, level.step as i64);
        }
        if loops.len() == around {
            self.all.open("t", 1, LoopKind::Thread, loops);
        }
    }

    /// Opens unrolled loops over some of a thread's sums. Returns the index along each level.
    pub(crate) fn open_sums<'l>(&mut self, levels: impl Iterator<Item = &'l TileLevel>) -> (Loops, Vec<Affine>) {
        let mut loops = Vec::new();
        let index = levels.map(|level| self.open(level, LoopKind::Unrolled, &mut loops)).collect();
        (loops, index)
    }

    /// Returns the element of a thread's tile at an index of some of its sums, relative to the
    /// block's tile.
    pub(crate) fn in_block<'l>(&self, levels: impl Iterator<Item = &'l TileLevel>, index: &[Affine]) -> Vec<Affine> {
        let mut values = self.thread_base.clone();
        levels.zip(index).for_each(|(level, place)| values[level.axis].add_scaled(place, level.step as i64));
        values
    }

    /// Converts values within a block's tile to values in the iteration space, for the chunk at a
    /// position.
    pub(crate) fn point(&self, mut values: Vec<Affine>, chunk: &Place) -> Vec<Affine> {
        values.iter_mut().zip(&self.block_base).for_each(|(value, base)| value.add_scaled(base, 1));
        chunk.iter().for_each(|(axis, value)| values[*axis].add_scaled(value, 1));
        values
    }

    /// Returns `acc = 0` for all sums of the thread.
    pub(crate) fn clear(&mut self) -> Vec<Node> {
        let (loops, index) = self.open_sums(self.tiling.sums.iter());
        nest(loops, vec![assign(self.acc, index, Expr::Const(0.0))])
    }

    /// Returns `acc[index] += value`; `values` are the axes of the product, relative to the block's
    /// tile.
    fn accumulate(&self, index: Vec<Affine>, value: Expr, values: Vec<Affine>, chunk: &Place) -> Node {
        let dst = Access { buffer: self.acc, index: index.into() };
        let iteration = self.tiling.roles.own.iteration(self.point(values, chunk));
        Node::Store(Store { dst, mode: StoreMode::Accumulate, value, iteration })
    }

    /// Adds the products of a chunk, which is in `slot` of shared memory.
    pub(crate) fn multiply(&mut self, slot: &Affine, chunk: &Place) -> Vec<Node> {
        match self.tiling.kernel {
            MicroKernel::Registers { unroll } => self.multiply_registers(unroll, slot, chunk),
            MicroKernel::Matrix { by, instructions, run } => self.multiply_matrix(by, instructions, run, slot, chunk),
        }
    }
}
