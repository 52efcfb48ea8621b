//! A program flattened to its leaves, each with its loops and the operand that it serves.

use std::ops::Range;

use smallvec::SmallVec;

use super::footprint::Region;
use crate::affine::{Affine, VarId};
use crate::instruction::{Dot, SPLIT_PRODUCTS, TileProduct};
use crate::program::{
    Access, AxisInfo, Buffer, BufferId, Loop, LoopKind, Node, Program, Role, Scope, Stage, Store, StoreMode, When,
    parallel_prefix, preorder,
};

/// The side of the contraction that a buffer belongs to; a packed copy belongs to the side of its
/// source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandSide {
    /// The data operand and copies of it.
    Data,
    /// The weight operand and copies of it.
    Weight,
    /// The output and everything read or written with it: bias, residual, partial sums.
    Output,
}

/// Role of a contraction's axis, in the terms of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisClass {
    /// Indexes the weight and the output.
    Column,
    /// Indexes the data and the output.
    Row,
    /// Reduction axis: indexes data and weight, not the output.
    Reduce,
    /// Indexes data, weight and output.
    Batch,
}

/// A store that is executed in every run.
pub(super) struct RunStore<'a> {
    pub(super) store: &'a Store,
    /// Positions of the loops around it in [`RunNest::loops`], outermost first.
    pub(super) loops: Range<usize>,
    /// Position of its top-level tree in [`RunNest::trees`].
    pub(super) tree: usize,
    /// Number of loops around the allocation of the register buffer that it writes; `None` if it
    /// writes to memory.
    pub(super) register_depth: Option<usize>,
    /// Number of executions per run.
    pub(super) trips: f64,
    /// Executions that one instruction combines in one lane; 1 except for dots and tiles.
    pub(super) group: usize,
    /// Tiles that it is computed in, if a tile instruction computes it.
    pub(super) tiles: Option<TileCounts>,
}

/// Numbers of tiles that one reduction step of a tile product multiplies.
#[derive(Clone, Copy)]
pub(super) struct TileCounts {
    /// Number of tiles along the rows.
    pub(super) rows: usize,
    /// Tiles along the columns.
    pub(super) columns: usize,
    /// Words in a row of data, and rows of a tile of weights.
    pub(super) words: usize,
    /// Number of products of each pair of tiles: several of high and low parts.
    pub(super) products: usize,
}

impl TileCounts {
    fn of(product: &TileProduct, program: &Program) -> Option<Self> {
        let (rows, _) = product.row_tiles(program)?;
        let columns = product.column_tiles(program).len();
        let products = if product.low.is_some() { SPLIT_PRODUCTS } else { 1 };
        Some(Self { rows: rows.len(), columns, words: product.row_words(), products })
    }
}

impl<'a> RunStore<'a> {
    /// Calls `visit` with the access that is written, then with every access that is read.
    pub(super) fn for_each_access(&self, mut visit: impl FnMut(&'a Access)) {
        visit(&self.store.dst);
        self.store.value.for_each_load(&mut visit);
    }
}

/// A top-level tree of a stage.
pub(super) struct StageTree {
    /// Position of its stage among those executed in every run.
    pub(super) stage: usize,
    /// Number of tasks that may run in parallel.
    pub(super) tasks: f64,
}

/// The stages of a program that are executed in every run, flattened.
pub(super) struct RunNest<'a> {
    pub(super) program: &'a Program,
    pub(super) loops: Vec<&'a Loop>,
    pub(super) leaves: Vec<RunStore<'a>>,
    pub(super) trees: Vec<StageTree>,
    /// Number of stages that are executed in every run.
    pub(super) stages: usize,
    /// Number of prefetches executed per run.
    pub(super) prefetches: f64,
    /// Row-major strides of every buffer, in elements.
    strides: Vec<SmallVec<[i64; 6]>>,
    operands: Vec<OperandSide>,
    /// Axis of the contraction that each loop variable iterates over.
    axis_of: Vec<Option<u8>>,
}

impl<'a> RunNest<'a> {
    pub(super) fn new(program: &'a Program) -> Self {
        let mut nest = RunNest {
            program,
            loops: Vec::with_capacity(512),
            leaves: Vec::with_capacity(512),
            trees: Vec::with_capacity(16),
            stages: 0,
            prefetches: 0.0,
            strides: program.buffers.iter().map(Buffer::strides).collect(),
            operands: program.buffers.iter().map(|b| operand_of_role(b.role)).collect(),
            axis_of: vec![None; program.vars.len()],
        };

        let mut walk = NestWalk {
            stack: Vec::with_capacity(32),
            placed: None,
            trips: 1.0,
            alloc_depths: vec![0; program.buffers.len()],
            group: 1,
            tiles: None,
        };

        for stage in &program.stages {
            nest.add_stage(stage, &mut walk);
        }
        nest
    }

    fn add_stage(&mut self, stage: &'a Stage, walk: &mut NestWalk<'a>) {
        // Copies made ahead of time cost no time in a run, but tell which operand a packed buffer
        // holds.
        if stage.when == When::AheadOfTime {
            let stores = preorder(&stage.body).filter_map(|node| match node {
                Node::Store(store) => Some(store),
                _ => None,
            });
            stores.for_each(|store| self.follow_copy(store));
            return;
        }

        for node in &stage.body {
            let tasks = parallel_prefix(node).iter().map(|l| l.extent as f64).product();
            self.trees.push(StageTree { stage: self.stages, tasks });
            self.add_nodes(std::slice::from_ref(node), walk);
        }
        self.stages += 1;
    }

    fn add_nodes(&mut self, nodes: &'a [Node], walk: &mut NestWalk<'a>) {
        for node in nodes {
            match node {
                Node::Loop(l) => {
                    let outer = walk.trips;
                    // `placed` is valid only while the stack of loops stays the same.
                    walk.stack.push(l);
                    walk.placed = None;
                    walk.trips *= l.extent as f64;
                    self.add_nodes(&l.body, walk);
                    walk.stack.pop();
                    walk.placed = None;
                    walk.trips = outer;
                }

                Node::Alloc { buffer, body } => {
                    walk.alloc_depths[buffer.0 as usize] = walk.stack.len();
                    self.add_nodes(body, walk);
                }
                Node::Store(store) => {
                    self.follow_copy(store);
                    self.add_leaf(store, walk);
                }

                Node::Prefetch { .. } => self.prefetches += walk.trips,
                Node::Call { body, .. } => {
                    // One dot-product instruction executes a whole group of reduction steps, one
                    // row of a tile several groups.
                    let product = TileProduct::of(body);
                    walk.tiles = product.as_ref().and_then(|product| TileCounts::of(product, self.program));
                    walk.group = match product {
                        Some(product) => product.row_words() * product.steps.extent,
                        None => Dot::of(body).map_or(1, |dot| dot.steps.extent),
                    };
                    self.add_nodes(body, walk);
                    (walk.group, walk.tiles) = (1, None);
                }
                node => self.add_nodes(node.body(), walk),
            }
        }
    }

    fn add_leaf(&mut self, store: &'a Store, walk: &mut NestWalk<'a>) {
        let point = self.main_point(store);
        // Points of the main equation tell the axis of each loop variable.
        for (axis, along) in point.into_iter().flatten().enumerate() {
            for &(var, _) in &along.terms {
                self.axis_of[var.0 as usize] = Some(axis as u8);
            }
        }

        // Leaves of one loop body share one entry in `loops`.
        let loops = walk.placed.get_or_insert_with(|| {
            let start = self.loops.len();
            self.loops.extend_from_slice(&walk.stack);
            start..self.loops.len()
        });

        let dst = store.dst.buffer;
        let tiles = walk.tiles.filter(|_| store.mode == StoreMode::Accumulate);
        let in_registers = tiles.is_some() || self.program.buffer(dst).scope == Scope::Register;
        self.leaves.push(RunStore {
            store,
            loops: loops.clone(),
            tree: self.trees.len() - 1,
            register_depth: in_registers.then(|| walk.alloc_depths[dst.0 as usize]),
            trips: walk.trips,
            group: walk.group,
            tiles,
        });
    }

    fn follow_copy(&mut self, store: &Store) {
        if self.program.buffer(store.dst.buffer).role == Role::Packed
            && let Some(source) = store.value.first_load()
        {
            self.operands[store.dst.buffer.0 as usize] = self.operand(source.buffer);
        }
    }

    /// Returns the point of a statement of the main equation, such as the multiply-accumulate of
    /// the contraction: one index for each of [`Program::axes`]. `None` for every other store.
    pub(super) fn main_point(&self, store: &'a Store) -> Option<&'a [Affine]> {
        let iteration = store.iteration.as_ref().filter(|it| it.equation == self.program.algorithm.main)?;
        Some(&iteration.point)
    }

    /// Returns true for a statement of the main equation.
    pub(super) fn is_mac(&self, leaf: &RunStore<'a>) -> bool {
        self.main_point(leaf.store).is_some()
    }

    /// Returns the loops around a leaf, outermost first.
    pub(super) fn loops_of(&self, leaf: &RunStore<'a>) -> &[&'a Loop] {
        &self.loops[leaf.loops.clone()]
    }

    /// Returns the side of the contraction that a buffer belongs to.
    pub(super) fn operand(&self, buffer: BufferId) -> OperandSide {
        self.operands[buffer.0 as usize]
    }

    /// Returns the row-major strides of a buffer, in elements.
    pub(super) fn strides(&self, buffer: BufferId) -> &[i64] {
        &self.strides[buffer.0 as usize]
    }

    /// Returns the region of the single element that an access reads or writes while all loops are
    /// fixed.
    pub(super) fn region<'r>(&self, access: &'r Access) -> Region<'r> {
        Region::new(self.strides(access.buffer), self.program.dtype(access.buffer).bytes(), access)
    }

    pub(super) fn scope(&self, buffer: BufferId) -> Scope {
        self.program.buffer(buffer).scope
    }

    /// Returns the distance between the addresses of two neighbouring iterations of `var`, in
    /// elements.
    pub(super) fn stride_along(&self, access: &Access, var: VarId) -> i64 {
        let strides = self.strides(access.buffer);
        access.index.iter().zip(strides).map(|(index, stride)| index.coefficient(var) * stride).sum()
    }

    /// Returns the axis of the contraction that a variable iterates over; `None` for loops that
    /// only copies have.
    fn axis(&self, var: VarId) -> Option<usize> {
        self.axis_of[var.0 as usize].map(usize::from)
    }

    /// Classifies the axes of the contraction in the tree of a multiply-accumulate, by the accesses
    /// to both operands and to their copies.
    pub(super) fn classes(&self, leaf: &RunStore) -> Classes {
        let mut indexes = vec![[false; 2]; self.program.axes.len()];
        for other in self.leaves.iter().filter(|other| other.tree == leaf.tree) {
            other.for_each_access(|access| {
                let side = self.operand(access.buffer) as usize;
                let vars = access.index.iter().flat_map(|index| &index.terms).map(|&(var, _)| var);
                for axis in vars.filter_map(|var| self.axis(var)).filter(|_| side < 2) {
                    indexes[axis][side] = true;
                }
            });
        }

        let class = |(axis, [data, weight]): (&AxisInfo, [bool; 2])| match (data, weight) {
            _ if axis.reduce => AxisClass::Reduce,
            (true, true) => AxisClass::Batch,
            (false, true) => AxisClass::Column,
            (_, false) => AxisClass::Row,
        };
        Classes(self.program.axes.iter().zip(indexes).map(class).collect())
    }

    /// Returns true if `var` iterates over a reduction axis.
    pub(super) fn is_reduction(&self, var: VarId) -> bool {
        self.axis(var).is_some_and(|axis| self.program.axes[axis].reduce)
    }
}

/// Role of each axis of the contraction.
pub(super) struct Classes(Vec<AxisClass>);

impl Classes {
    /// Returns the role of the axis that `var` iterates over.
    pub(super) fn of(&self, nest: &RunNest, var: VarId) -> Option<AxisClass> {
        nest.axis(var).map(|axis| self.0[axis])
    }
}

/// State of the walk over a stage.
struct NestWalk<'a> {
    stack: Vec<&'a Loop>,
    /// Positions of exactly these loops in [`RunNest::loops`], once a leaf has been found in them.
    placed: Option<Range<usize>>,
    /// Number of executions of the current node.
    trips: f64,
    /// Number of loops around the latest allocation of each buffer, by [`BufferId`].
    alloc_depths: Vec<usize>,
    /// Reduction steps of the enclosing dot product or row of a tile; 1 outside of one.
    group: usize,
    /// Tiles of the enclosing product of tiles.
    tiles: Option<TileCounts>,
}

fn operand_of_role(role: Role) -> OperandSide {
    match role {
        Role::Operand(0) => OperandSide::Data,
        Role::Operand(1) => OperandSide::Weight,
        // The copy that fills a packed buffer corrects this later.
        Role::Packed | Role::Operand(_) | Role::Output | Role::Accumulator => OperandSide::Output,
    }
}

/// Returns the innermost loop if it is vectorised.
pub(super) fn vector_loop<'a>(loops: &[&'a Loop]) -> Option<&'a Loop> {
    loops.last().copied().filter(|l| l.kind == LoopKind::Vectorized)
}

/// Returns the loads of the data and of the weight operand in a multiply-accumulate.
pub(super) fn operand_accesses<'a>(nest: &RunNest, leaf: &RunStore<'a>) -> [Option<&'a Access>; 2] {
    let mut found = [None, None];
    leaf.store.value.for_each_load(&mut |load| {
        let slot = match nest.operand(load.buffer) {
            OperandSide::Data => 0,
            OperandSide::Weight => 1,
            OperandSide::Output => return,
        };
        found[slot] = found[slot].or(Some(load));
    });
    found
}
