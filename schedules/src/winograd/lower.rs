//! Lowering of the Winograd sketch.
//!
//! Tiles that touch padding or stick out of the output are peeled off the ends of both axes into
//! nests of their own, in which taps outside are left out of the sums and outputs outside are not
//! stored; the tiles between are one loop. Blocks of tiles are grouped likewise: those that are cut
//! into the same nests are iterations of one parallel loop.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::direct::Direct;
use crate::direct::lower::{self as direct, Packed, Place};
use crate::lower::nest::{Builder, Nest, Run, Segment, allocated, runs};
use crate::lower::{assign, load, nest};
use crate::winograd::Winograd;
use crate::winograd::matrices::Transforms;
use crate::winograd::passes::{Cut, Passes};
use crate::winograd::rewrite::{Multiples, rewritten};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{BufferId, Expr, Index, Layout, LoopKind, Node, Program, Role, Scope, Stage, When};
use autotune_workloads::Workload;

mod phases;
mod product;
mod strip;
mod transform;

use product::{C, C_LANE, O, O_LANE, T, XI};

/// The loop nests of a config.
pub(crate) fn lower(workload: &Workload, winograd: &Winograd) -> Program {
    let spec = Arc::clone(workload.spec());
    let multiples = Multiples { tiles: 1, channels: winograd.block };
    let algorithm = rewritten(workload, &winograd.conv, winograd.m, multiples);
    let product = product::plan(workload, winograd, &algorithm);
    let mut lowering = Lowering::new(workload, winograd, &product);
    let stages = lowering.stages();
    let Nest { vars, buffers, .. } = lowering.product.all;
    Program { spec, algorithm, axes: product.contraction.axes.clone(), vars, buffers, stages, cold: false }
}

/// What there is of a tile along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Inside {
    /// Inputs that are not padding.
    inputs: Range<usize>,
    outputs: usize,
    /// Where phases are channels: those of each input that are not padding, neighbours that are
    /// alike together. The inputs are all there then, zeros in the padding.
    phases: Vec<Run<Range<usize>>>,
}

/// The tiles of a block along one axis, neighbours that are alike together.
type Row<T = Inside> = Vec<Run<T>>;

/// The outputs of each tile, of whatever inputs.
fn outputs(row: &Row) -> Row<usize> {
    runs(row.iter().flat_map(|run| std::iter::repeat_n(run.each.outputs, run.count))).collect()
}

/// Blocks of tiles: one per iteration of the parallel loops of a tree.
struct Blocks<'a> {
    image: Affine,
    rows: [&'a Row; 2],
    /// Number of the block along each axis.
    number: [Affine; 2],
}

impl Blocks<'_> {
    /// Rows and columns of tiles.
    fn tiles(&self) -> [usize; 2] {
        self.rows.map(|row| row.iter().map(|run| run.count).sum())
    }
}

/// Blocks of channels, one behind the other.
#[derive(Clone)]
struct Channels {
    first: Affine,
    count: usize,
    /// Channels of each.
    lanes: usize,
}

impl Channels {
    /// `channels` channels in blocks, `first` the number of the first block: whole ones, and the
    /// rest by itself.
    fn of(first: &Affine, channels: usize, block: usize) -> impl Iterator<Item = Self> {
        let blocks =
            move |s: Segment| Self { first: first.clone() + (s.start / block) as i64, count: s.count, lanes: s.extent };
        Segment::tiles(channels, block).map(blocks)
    }
}

/// Tiles of a row that are alike, of one block of channels.
struct Strip<'a, T> {
    /// What each of them is down and across.
    each: [&'a T; 2],
    tiles: usize,
    /// The first output of the first of them.
    output: [Affine; 2],
    /// Its number within the block of tiles.
    number: Affine,
    /// Number of the block of channels.
    channel: Affine,
    /// Channels of that.
    lanes: usize,
}

/// Memory in which rows of tiles of plain images are transposed, where there are such.
#[derive(Clone, Copy)]
struct Strips {
    /// [`Winograd::input_strip`].
    input: Option<BufferId>,
    /// [`Winograd::output_strip`], and `[lane, column]` of one of its rows.
    output: Option<[BufferId; 2]>,
}

impl Strips {
    fn new(winograd: &Winograd, all: &mut Nest) -> Self {
        let mut local = |name, shape: &[usize]| all.buffer(name, Role::Packed, Scope::Local, shape.to_vec());
        let [input, output] = winograd.layouts().map(|layout| layout == Layout::Plain);
        let [_, width, block] = winograd.output_strip();
        Self {
            input: input.then(|| local("input_strip", &winograd.input_strip())),
            output: output
                .then(|| [local("output_strip", &winograd.output_strip()), local("output_row", &[block, width])]),
        }
    }
}

struct Lowering<'a> {
    winograd: &'a Winograd,
    transforms: Arc<Transforms>,
    /// Lowers the products, and has what all stages share.
    product: direct::Lowering<'a>,
    /// Transformed inputs: [`Winograd::input_shape`], before it image and block where it is global.
    inputs: BufferId,
    /// [`Winograd::product_shape`].
    products: BufferId,
    /// What each transform keeps to itself.
    scratch: Vec<(&'static str, [BufferId; 2])>,
    /// Where rows of tiles of plain images are transposed.
    strips: Strips,
    /// How tiles are transformed along one axis, by the inputs that are not padding.
    input_cuts: Vec<(Range<usize>, Rc<Cut>)>,
    /// The same by the number of outputs.
    output_cuts: Vec<(usize, Rc<Cut>)>,
}

impl Builder for Lowering<'_> {
    fn all(&mut self) -> &mut Nest {
        &mut self.product.all
    }
}

impl<'a> Lowering<'a> {
    fn new(workload: &Workload, winograd: &'a Winograd, product: &'a Direct) -> Self {
        let mut product = direct::Lowering::new(workload, product, winograd.block);
        let scope = if winograd.staged { Scope::Global } else { Scope::Local };
        let mut shape = winograd.input_shape().to_vec();
        if winograd.staged {
            let [rows, columns] = [0, 1].map(|d| winograd.grid()[d].div_ceil(winograd.tiles[d]));
            shape.splice(0..0, [winograd.conv.n, rows, columns]);
        }
        let mut packed = |name, scope, shape| product.all.buffer(name, Role::Packed, scope, shape);
        let inputs = packed("input_transformed", scope, shape);
        let products = packed("products", Scope::Local, winograd.product_shape().to_vec());
        let strips = Strips::new(winograd, &mut product.all);
        let (scratch, input_cuts, output_cuts) = (Vec::new(), Vec::new(), Vec::new());
        let transforms = Transforms::of(workload, winograd.conv.filtering(winograd.m));
        Self { winograd, transforms, product, inputs, products, scratch, strips, input_cuts, output_cuts }
    }

    fn stages(&mut self) -> Vec<Stage> {
        let stage = |name: &str, when, body| Stage { name: name.into(), when, body };
        let mut stages = vec![stage("transform_weight", When::AheadOfTime, self.transform_weight())];
        let rows = [0, 1].map(|dim| self.rows(dim));
        if self.winograd.staged {
            // Blocks of channels are tasks, too.
            let channels = self.input_channels();
            let body = self.trees(&rows, |this, blocks| {
                let tasks = |Channels { first, count, lanes }: Channels| {
                    this.repeat("c.0", count, LoopKind::Parallel, |this, c| {
                        this.transform_input(blocks, &Channels { first: c + &first, count: 1, lanes })
                    })
                };
                channels.iter().cloned().map(tasks).collect()
            });
            stages.push(stage("transform_input", When::EveryRun, body));
        }
        let body = self.trees(&rows, Self::compute);
        stages.push(stage("compute", When::EveryRun, body));
        stages
    }

    /// The blocks of axis `dim` (0 for rows), neighbours that are alike together.
    fn rows(&self, dim: usize) -> Vec<Run<Row>> {
        let Winograd { conv, m, tiles, .. } = *self.winograd;
        let (extent, output, pad) = (conv.input[dim], conv.output[dim], conv.pad[dim]);
        let (size, count, a) = (tiles[dim], self.winograd.grid()[dim], self.winograd.a());
        // Of `count` elements, the first of them `first` behind the beginning of the padding, those
        // that are not padding.
        let real = |first: usize, count: usize| {
            let before = pad.saturating_sub(first).min(count);
            before..(extent + pad).saturating_sub(first).clamp(before, count)
        };
        let phases = conv.phases();
        let inside = |tile: usize| {
            let (first, outputs) = (tile * m * conv.stride, m.min(output - tile * m));
            if phases == 1 {
                return Inside { inputs: real(first, a), outputs, phases: Vec::new() };
            }
            let of_each = (0..a).map(|input| real(first + input * phases, phases));
            Inside { inputs: 0..a, outputs, phases: runs(of_each).collect() }
        };
        let row = |number: usize| runs((number * size..count.min((number + 1) * size)).map(inside)).collect();
        runs((0..count.div_ceil(size)).map(row)).collect()
    }

    /// A tree per combination of runs of blocks, its loops over images and blocks parallel. `body`
    /// may have parallel loops of its own.
    fn trees(
        &mut self,
        rows: &[Vec<Run<Row>>; 2],
        mut body: impl FnMut(&mut Self, &Blocks) -> Vec<Vec<Node>>,
    ) -> Vec<Node> {
        let mut trees = Vec::new();
        for (down, across) in rows[0].iter().flat_map(|down| rows[1].iter().map(move |across| (down, across))) {
            let mut loops = Vec::new();
            let all = &mut self.product.all;
            let mut open = |name, extent| all.open_some(name, extent, LoopKind::Parallel, &mut loops);
            let image = open("n", self.winograd.conv.n);
            let number = [("th.0", down), ("tw.0", across)].map(|(name, run)| open(name, run.count) + run.first as i64);
            if loops.is_empty() {
                // A tree of its own, since the nodes within it depend on one another.
                loops.push((self.all().var("task", 1), 1, LoopKind::Parallel));
            }
            let blocks = Blocks { image, rows: [&down.each, &across.each], number };
            trees.extend(body(self, &blocks).into_iter().flat_map(|nodes| nest(loops.clone(), nodes)));
        }
        trees
    }

    fn input_channels(&self) -> Vec<Channels> {
        Channels::of(&Affine::default(), self.winograd.conv.depth(), self.winograd.depth_block()).collect()
    }

    /// Chunks of output channels: their blocks and channels, neighbours that are alike together.
    fn chunks(&self) -> impl Iterator<Item = Run<[usize; 2]>> + use<> {
        let (chunk, block, blocks) = (self.winograd.chunk, self.winograd.block, self.winograd.o_blocks());
        let channels = self.winograd.conv.o;
        let size = move |number: usize| {
            let first = number * chunk;
            [chunk.min(blocks - first), (chunk * block).min(channels - first * block)]
        };
        runs((0..blocks.div_ceil(chunk)).map(size))
    }

    /// One tree per run of chunks of output channels where they are tasks, else one tree.
    fn compute(&mut self, blocks: &Blocks) -> Vec<Vec<Node>> {
        let Winograd { chunk, staged, .. } = *self.winograd;
        let kind = if staged { LoopKind::Parallel } else { LoopKind::Serial };
        let mut nests = Vec::new();
        for run in self.chunks() {
            let [size, channels] = run.each;
            nests.push(self.repeat("o.0", run.count, kind, |this, number| {
                let first = (number + run.first as i64) * chunk as i64;
                let mut body = this.multiply(blocks, &first, size);
                for channels in Channels::of(&first, channels, this.winograd.block) {
                    body.extend(this.transform_output(blocks, &first, &channels));
                }
                allocated([this.products], body)
            }));
        }
        if staged {
            return nests;
        }
        let mut body = Vec::new();
        for channels in self.input_channels() {
            body.extend(self.transform_input(blocks, &channels));
        }
        body.extend(nests.into_iter().flatten());
        vec![allocated([self.inputs], body)]
    }

    /// The products of a block of tiles and the `size` channel blocks from `chunk` on.
    pub(super) fn multiply(&mut self, blocks: &Blocks, chunk: &Affine, size: usize) -> Vec<Node> {
        let Winograd { tiles: [rows, columns], .. } = *self.winograd;
        let ([all_rows, all_columns], [height, width]) = (self.winograd.grid(), blocks.tiles());
        // Tiles of an image are counted block by block: all blocks of a row of blocks before the
        // next.
        let above = blocks.image.clone() * all_rows as i64 + &(blocks.number[0].clone() * rows as i64);
        let first = above * all_columns as i64 + &(blocks.number[1].clone() * (height * columns) as i64);

        let mut region = self.product.whole_region();
        (region[T].base, region[T].extent) = (first, height * width);
        (region[O].base, region[O].extent) = (chunk.clone(), size);

        let axes = |axes: [usize; 4]| axes.map(|axis| Affine::var(VarId(axis as u32))).to_vec();
        let origin: Vec<Affine> = region.iter().map(|span| span.base.clone()).collect();
        let place = |buffer, lead, index| Place { buffer, lead, index, origin: Some(origin.clone()) };
        self.product.data = place(self.inputs, self.input_block(blocks), axes([XI, C, T, C_LANE]));
        self.product.sums = place(self.products, Vec::new(), axes([O, T, XI, O_LANE]));
        self.product.register_nest(&mut region)
    }

    /// Where a block's transformed input is: nowhere particular if it is the task's own.
    fn input_block(&self, blocks: &Blocks) -> Vec<Affine> {
        let block = [&blocks.image, &blocks.number[0], &blocks.number[1]];
        block.into_iter().filter(|_| self.winograd.staged).cloned().collect()
    }
}
