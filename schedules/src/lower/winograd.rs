//! Lowering of the Winograd sketch.
//!
//! Tiles that touch padding or stick out of the output are peeled off the ends of both axes into nests of their own, in which
//! taps outside are left out of the sums and outputs outside are not stored; the tiles between are one loop. Blocks of tiles
//! are grouped likewise: those that are cut into the same nests are iterations of one parallel loop.

use std::ops::Range;
use std::rc::Rc;

use super::nest::{Builder, Nest};
use super::{OperandBuffers, add, assign, load, nest};
use crate::winograd::matrices::{Matrices, Transform};
use crate::winograd::rewrite::{Tiles, rewrite};
use crate::winograd::{TAPS, Winograd};
use crate::workload::Workload;
use autotune_ir::affine::Affine;
use autotune_ir::program::{
    Access, AxisInfo, BufferId, Expr, Layout, LoopKind, Node, Program, Role, Scope, Stage, Store, StoreMode, When,
};

mod product;
pub(crate) mod transform;

/// The loop nests of a config.
pub(crate) fn lower(workload: &Workload, winograd: &Winograd) -> Program {
    Lowering::new(workload, winograd).run()
}

/// `count` neighbouring tiles of one axis that are alike, the first of them the block's tile `start`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    start: usize,
    count: usize,
    /// Inputs of the tile that are not padding.
    inputs: Range<usize>,
    /// Outputs of the tile that there are.
    outputs: usize,
}

/// `count` neighbouring blocks of one axis that are alike.
#[derive(Clone, Debug)]
struct BlockRun {
    first: usize,
    count: usize,
    /// Tiles of each block.
    tiles: usize,
    segments: Vec<Segment>,
}

/// Blocks of tiles: one per iteration of the parallel loops of a tree.
struct Blocks<'a> {
    image: Affine,
    runs: [&'a BlockRun; 2],
    /// Number of the block along each axis.
    number: [Affine; 2],
}

struct Transforms {
    weight: Transform,
    input: Trimmer,
    output: Trimmer,
}

/// A transform and what it was trimmed to: a range of inputs and a number of outputs.
struct Trimmer {
    whole: Transform,
    known: Vec<(Range<usize>, usize, Rc<Transform>)>,
}

impl Trimmer {
    fn new(whole: Transform) -> Self {
        Self { whole, known: Vec::new() }
    }

    fn trimmed(&mut self, inputs: Range<usize>, outputs: usize) -> Rc<Transform> {
        if let Some((.., known)) = self.known.iter().find(|k| k.0 == inputs && k.1 == outputs) {
            return Rc::clone(known);
        }
        let transform = Rc::new(self.whole.trimmed(inputs.clone(), outputs));
        self.known.push((inputs, outputs, Rc::clone(&transform)));
        transform
    }
}

struct Lowering<'a> {
    workload: &'a Workload,
    winograd: &'a Winograd,
    all: Nest,
    operands: OperandBuffers,
    /// Filters: `[xi, register tile of channels, c, channel block, lane]`.
    weights: BufferId,
    /// Inputs: [`Winograd::input_shape`], before it image and block where it is global.
    inputs: BufferId,
    /// [`Winograd::product_shape`].
    products: BufferId,
    /// Of a column or row of filters, inputs and products.
    transforms: Transforms,
}

impl Builder for Lowering<'_> {
    fn all(&mut self) -> &mut Nest {
        &mut self.all
    }
}

impl<'a> Lowering<'a> {
    fn new(workload: &'a Workload, winograd: &'a Winograd) -> Self {
        let mut all = Nest::new(workload.dtype());
        let Winograd { conv, block, .. } = *winograd;
        let [oh, ow] = conv.output_hw();
        let (c_blocks, o_blocks, xis) = (winograd.c_blocks(), winograd.o_blocks(), winograd.a() * winograd.a());
        let blocked = Layout::ChannelBlocked(block);
        let out_shape = vec![conv.n, o_blocks, oh, ow, block];
        let in_shape = vec![conv.n, c_blocks, conv.h, conv.w, block];
        let operands = OperandBuffers::new(&mut all, workload, (&in_shape, blocked), (&out_shape, blocked));
        let mut packed = |name: &str, scope, shape: Vec<usize>| all.buffer(name, Role::Packed, scope, shape);
        let channels = winograd.register[1];
        let weights_shape = vec![xis, o_blocks.div_ceil(channels), conv.c, channels, block];
        let weights = packed("weight_transformed", Scope::Global, weights_shape);
        let mut inputs_shape = winograd.input_shape().to_vec();
        if winograd.staged {
            let [rows, columns] = [0, 1].map(|d| winograd.grid()[d].div_ceil(winograd.tiles[d]));
            inputs_shape.splice(0..0, [conv.n, rows, columns]);
        }
        let inputs_scope = if winograd.staged { Scope::Global } else { Scope::Local };
        let inputs = packed("input_transformed", inputs_scope, inputs_shape);
        let products_shape = winograd.product_shape().to_vec();
        let products = packed("products", Scope::Local, products_shape);
        let matrices = Matrices::new(winograd.m);
        let transforms = Transforms {
            weight: Transform::plain(&matrices.weight),
            input: Trimmer::new(Transform::sharing_rows(&matrices.input)),
            output: Trimmer::new(Transform::sharing_columns(&matrices.output)),
        };
        Self { workload, winograd, all, operands, weights, inputs, products, transforms }
    }

    fn run(mut self) -> Program {
        let stage = |name: &str, when, body| Stage { name: name.into(), when, body };
        let mut stages = vec![stage("transform_weight", When::AheadOfTime, self.transform_weight())];
        let runs = [0, 1].map(|dim| self.block_runs(dim));
        if self.winograd.staged {
            let body = self.trees(&runs, Self::transform_input_stage);
            stages.push(stage("transform_input", When::EveryRun, body));
        }
        let body = self.trees(&runs, Self::compute);
        stages.push(stage("compute", When::EveryRun, body));
        let spec = self.workload.spec().clone();
        let algorithm = rewrite(&spec, &self.winograd.conv, self.winograd.m, Tiles::OfImage);
        let axes = algorithm.main().axes.iter().enumerate().map(|(id, axis)| AxisInfo::whole(id, axis)).collect();
        Program { spec, algorithm, axes, vars: self.all.vars, buffers: self.all.buffers, stages }
    }

    /// A private buffer by its name.
    fn private(&mut self, name: &str, scope: Scope, shape: Vec<usize>) -> BufferId {
        let role = if name.starts_with("acc") { Role::Accumulator } else { Role::Packed };
        self.all.buffer_named(name, role, scope, shape)
    }

    /// `for lane in 0..block { body }` as vectors.
    fn lanes(&mut self, body: impl FnOnce(&mut Self, Affine) -> Vec<Node>) -> Vec<Node> {
        self.repeat("lane", self.winograd.block, LoopKind::Vectorized, body)
    }

    /// The tiles `tiles` of axis `dim` (0 for rows), neighbours that are alike together, counted from the first.
    fn segments(&self, dim: usize, tiles: Range<usize>) -> Vec<Segment> {
        let Winograd { conv, m, .. } = *self.winograd;
        let (extent, output) = ([conv.h, conv.w][dim], conv.output_hw()[dim]);
        let a = self.winograd.a();
        let mut segments: Vec<Segment> = Vec::new();
        for tile in tiles.clone() {
            let before = conv.pad[dim].saturating_sub(tile * m).min(a);
            let behind = (extent + conv.pad[dim] - tile * m).clamp(before, a);
            let (inputs, outputs) = (before..behind, m.min(output - tile * m));
            match segments.last_mut() {
                Some(last) if last.inputs == inputs && last.outputs == outputs => last.count += 1,
                _ => segments.push(Segment { start: tile - tiles.start, count: 1, inputs, outputs }),
            }
        }
        segments
    }

    /// The blocks of axis `dim`, neighbours that are alike together.
    fn block_runs(&self, dim: usize) -> Vec<BlockRun> {
        let (size, count) = (self.winograd.tiles[dim], self.winograd.grid()[dim]);
        let mut runs: Vec<BlockRun> = Vec::new();
        for number in 0..count.div_ceil(size) {
            let tiles = number * size..count.min((number + 1) * size);
            let segments = self.segments(dim, tiles.clone());
            match runs.last_mut() {
                Some(last) if last.tiles == tiles.len() && last.segments == segments => last.count += 1,
                _ => runs.push(BlockRun { first: number, count: 1, tiles: tiles.len(), segments }),
            }
        }
        runs
    }

    /// A tree per combination of runs of blocks, its loops over images and blocks parallel. `body` may have parallel loops of
    /// its own.
    fn trees(
        &mut self,
        runs: &[Vec<BlockRun>; 2],
        mut body: impl FnMut(&mut Self, &Blocks) -> Vec<Vec<Node>>,
    ) -> Vec<Node> {
        let mut trees = Vec::new();
        for rows in &runs[0] {
            for columns in &runs[1] {
                let mut loops = Vec::new();
                let mut open = |name, extent| self.all.open_some(name, extent, LoopKind::Parallel, &mut loops);
                let image = open("n", self.winograd.conv.n);
                let number =
                    [("th.0", rows), ("tw.0", columns)].map(|(name, run)| open(name, run.count) + run.first as i64);
                if loops.is_empty() {
                    // A tree of its own, since the nodes within it depend on one another.
                    loops.push((self.all.var("task", 1), 1, LoopKind::Parallel));
                }
                let blocks = Blocks { image, runs: [rows, columns], number };
                for nodes in body(self, &blocks) {
                    trees.extend(nest(loops.clone(), nodes));
                }
            }
        }
        trees
    }

    /// One tree per run of chunks of output channels where they are tasks, else one tree.
    fn compute(&mut self, blocks: &Blocks) -> Vec<Vec<Node>> {
        let Winograd { chunk, staged, .. } = *self.winograd;
        let o_blocks = self.winograd.o_blocks();
        let kind = if staged { LoopKind::Parallel } else { LoopKind::Serial };
        let mut nests = Vec::new();
        for (first, count, size) in [(0, o_blocks / chunk, chunk), (o_blocks / chunk, 1, o_blocks % chunk)] {
            if count * size == 0 {
                continue;
            }
            nests.push(self.repeat("o.0", count, kind, |this, number| {
                let first_block = (number + first as i64) * chunk as i64;
                let mut body = this.multiply(blocks, &first_block, size);
                body.extend(this.transform_output(blocks, &first_block, size));
                vec![Node::Alloc { buffer: this.products, body }]
            }));
        }
        if staged {
            return nests;
        }
        let mut body = self.transform_input(blocks, None);
        body.extend(nests.into_iter().flatten());
        vec![vec![Node::Alloc { buffer: self.inputs, body }]]
    }

    /// An element of the transformed input of a block.
    fn inputs_index(&self, blocks: &Blocks, rest: [Affine; 4]) -> Vec<Affine> {
        let prefix = [&blocks.image, &blocks.number[0], &blocks.number[1]].into_iter().cloned();
        prefix.take(if self.winograd.staged { 3 } else { 0 }).chain(rest).collect()
    }
}
