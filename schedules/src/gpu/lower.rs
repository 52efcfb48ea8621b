//! Lowering of a tiling.

use std::sync::Arc;

use super::{Kernel, Level, Pipeline, Tiling};
use crate::contraction::AxisId;
use crate::lower::nest::{Loops, Nest, allocated};
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

/// The loop nests of a tiling of a workload.
pub(crate) fn lower(workload: &Workload, tiling: &Tiling) -> Program {
    let mut all = Nest::new(workload.spec(), workload.dtype());
    let (own, [input, output]) = (&tiling.roles.own, tiling.roles.in_memory());
    let operands = OperandBuffers::new(&mut all, workload, input, output);

    let weight = match &tiling.packing {
        Some(_) => all.buffer("weight_packed", Role::Packed, Scope::Global, tiling.staged[1].source.shape.clone()),
        None => operands.weight,
    };
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
            let mapped = all.buffer("mapped", Role::Packed, Scope::Global, own.data.shape.clone());
            add("map_input", When::EveryRun, map_input(&operands, map, mapped, input.1, &mut all));
            mapped
        }
    };
    let outside = Outside { sources: [data, weight], partial, operands: operands.clone() };
    add("compute", When::EveryRun, compute(tiling, outside, "", &mut all));
    if let Some(partial) = partial {
        let channel = own.output.index.iter().position(|index| *index == own.bias).unwrap_or(0);
        let body = add_partial(&operands, (partial, tiling.split), channel, &mut all);
        add("add_partial", When::EveryRun, body);
    }

    let axes = tiling.roles.axes.clone();
    let spec = Arc::clone(&tiling.roles.own.spec);
    Program { algorithm: Arc::clone(&spec), spec, axes, vars: all.vars, buffers: all.buffers, stages, cold: false }
}

/// `for every element of the input: mapped[..] = f(input[..])`, a thread each, in the layout of the
/// input.
fn map_input(operands: &OperandBuffers, map: &Equation, mapped: BufferId, layout: Layout, all: &mut Nest) -> Vec<Node> {
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

/// What a compute stage reads and writes.
pub(crate) struct Outside {
    /// Data and weights.
    pub(crate) sources: [BufferId; 2],
    /// Sums of the parts of a split reduction, if they are not the output.
    pub(crate) partial: Option<BufferId>,
    pub(crate) operands: OperandBuffers,
}

/// The stage that adds up the products of a tiling; its buffers have names that begin with
/// `prefix`.
pub(crate) fn compute(tiling: &Tiling, outside: Outside, prefix: &str, all: &mut Nest) -> Vec<Node> {
    Lowering::new(tiling, outside, prefix, all).compute()
}

/// A tiling that is being lowered.
pub(crate) struct Lowering<'a> {
    pub(crate) tiling: &'a Tiling,
    pub(crate) outside: Outside,
    pub(crate) all: &'a mut Nest,
    pub(crate) shared: [BufferId; 2],
    /// What a thread multiplies, of both operands; none where instructions read shared memory.
    fragments: Vec<BufferId>,
    /// What is on its way to shared memory in registers, of both operands.
    fetched: Vec<BufferId>,
    pub(crate) acc: BufferId,
    /// Where in what is staged of the data a chunk begins, along a dimension, if not at its first
    /// element.
    pub(crate) data_from: Option<(usize, Affine)>,
    /// True if there are chunks beyond the reduction.
    pub(crate) sticks_out: bool,
    /// The part of the reduction that the block takes.
    part: Affine,
    /// First element of the block, per axis.
    pub(crate) block_base: Vec<Affine>,
    /// Where a block goes from tile to tile: the loop, the number of the tile, and its digits.
    turns: Option<(Loops, Affine, Vec<Digit>)>,
    /// Linear number of the thread.
    pub(crate) thread: Affine,
    /// First element of the thread within the block's tile, per axis.
    pub(crate) thread_base: Vec<Affine>,
}

/// Values of reduction axes.
pub(crate) type Place = Vec<(AxisId, Affine)>;

impl<'a> Lowering<'a> {
    pub(crate) fn new(tiling: &'a Tiling, outside: Outside, prefix: &str, all: &'a mut Nest) -> Self {
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
        let by_threads = matches!(tiling.kernel, Kernel::Registers { .. });
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
            outside,
            all,
            shared,
            fragments,
            fetched,
            acc,
            data_from: None,
            sticks_out: false,
            part: Affine::default(),
            block_base: zeros(),
            turns: None,
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

    /// What a block and a thread have to themselves.
    pub(crate) fn buffers(&self) -> Vec<BufferId> {
        self.shared.iter().chain(&self.fetched).chain(&self.fragments).chain([&self.acc]).copied().collect()
    }

    /// `acc = 0`, what adds to it, and the end.
    fn tile(&mut self, add: impl FnOnce(&mut Self) -> Vec<Node>) -> Vec<Node> {
        let mut body = self.clear();
        body.extend(add(self));
        body.extend(self.write_output());
        body
    }

    /// A loop over the elements of a level and its variable; zero and no loop where there is one.
    fn open(&mut self, level: &Level, kind: LoopKind, loops: &mut Loops) -> Affine {
        if level.extent == 1 {
            return Affine::default();
        }
        let name: VarName = match level.name.starts_with('.') {
            true => [self.tiling.roles.name(level.axis), level.name].concat().into(),
            false => level.name.into(),
        };
        self.all.open(name, level.extent, kind, loops)
    }

    /// Parts of the reduction, batch, and tiles.
    pub(crate) fn open_blocks(&mut self, loops: &mut Loops) {
        let tiling = self.tiling;
        if let Some(&(axis, _)) = tiling.reduce.last() {
            self.part = self.open(&Level { axis, name: ".s", extent: tiling.split, step: 1 }, LoopKind::Block, loops);
        }
        for &axis in &tiling.roles.batch {
            let level = Level { axis, name: ".b", extent: tiling.roles.extent(axis), step: 1 };
            self.block_base[axis] = self.open(&level, LoopKind::Block, loops);
        }

        let mut tiles = Vec::new();
        for level in &tiling.blocks {
            let block = self.open(level, LoopKind::Block, &mut tiles);
            self.block_base[level.axis].add_scaled(&block, level.step as i64);
        }
        match tiling.persistent {
            Some(blocks) => self.open_turns(blocks, tiles, loops),
            None => loops.extend(tiles),
        }
    }

    /// `blocks` blocks that go from tile to tile, those of one turn to neighbouring ones.
    fn open_turns(&mut self, blocks: usize, tiles: Loops, loops: &mut Loops) {
        let block = self.all.open("w", blocks, LoopKind::Block, loops);
        let mut turns = Vec::new();
        let count = self.tiling.all_tiles().div_ceil(blocks);
        let turn = self.all.open("t", count, LoopKind::Serial, &mut turns);
        let digits = tiles.into_iter().map(|(var, extent, _)| Digit { var, extent }).collect();
        self.turns = Some((turns, turn * blocks as i64 + block, digits));
    }

    /// Thread loops, at least one, so that what is within is a thread's.
    pub(crate) fn open_threads(&mut self, loops: &mut Loops) {
        let around = loops.len();
        for level in &self.tiling.threads {
            let thread = self.open(level, LoopKind::Thread, loops);
            self.thread = self.thread.clone() * level.extent as i64 + thread.clone();
            self.thread_base[level.axis].add_scaled(&thread, level.step as i64);
        }
        if loops.len() == around {
            self.all.open("t", 1, LoopKind::Thread, loops);
        }
    }

    /// Loops over some of a thread's sums, written out, and the place of each along its level.
    pub(crate) fn open_sums<'l>(&mut self, levels: impl Iterator<Item = &'l Level>) -> (Loops, Vec<Affine>) {
        let mut loops = Vec::new();
        let index = levels.map(|level| self.open(level, LoopKind::Unrolled, &mut loops)).collect();
        (loops, index)
    }

    /// The element of a thread's tile at an index of some of its sums, counted from the first of
    /// the block's.
    pub(crate) fn in_block<'l>(&self, levels: impl Iterator<Item = &'l Level>, index: &[Affine]) -> Vec<Affine> {
        let mut values = self.thread_base.clone();
        levels.zip(index).for_each(|(level, place)| values[level.axis].add_scaled(place, level.step as i64));
        values
    }

    /// Values within a block's tile counted from the first of the tensor, in the chunk at a place.
    pub(crate) fn point(&self, mut values: Vec<Affine>, chunk: &Place) -> Vec<Affine> {
        values.iter_mut().zip(&self.block_base).for_each(|(value, base)| value.add_scaled(base, 1));
        chunk.iter().for_each(|(axis, value)| values[*axis].add_scaled(value, 1));
        values
    }

    /// `acc = 0`.
    pub(crate) fn clear(&mut self) -> Vec<Node> {
        let (loops, index) = self.open_sums(self.tiling.sums.iter());
        nest(loops, vec![assign(self.acc, index, Expr::Const(0.0))])
    }

    /// `acc[index] += value`, the product at values within the block's tile.
    fn accumulate(&self, index: Vec<Affine>, value: Expr, values: Vec<Affine>, chunk: &Place) -> Node {
        let dst = Access { buffer: self.acc, index: index.into() };
        let iteration = self.tiling.roles.own.iteration(self.point(values, chunk));
        Node::Store(Store { dst, mode: StoreMode::Accumulate, value, iteration })
    }

    /// Adds the products of the chunk at a place, which lies in `slot`.
    pub(crate) fn multiply(&mut self, slot: &Affine, chunk: &Place) -> Vec<Node> {
        match self.tiling.kernel {
            Kernel::Registers { unroll } => self.multiply_registers(unroll, slot, chunk),
            Kernel::Matrix { by, instructions, run } => self.multiply_matrix(by, instructions, run, slot, chunk),
        }
    }
}
