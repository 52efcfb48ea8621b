//! Lowering of the Winograd sketch on a CPU.
//!
//! Tiles that touch padding or cross the end of the output are peeled off both ends of an axis into
//! separate nests. Their transforms leave out inputs in the padding, and do not store outputs out
//! of bounds. The tiles between are one loop. Blocks of tiles are grouped in the same way: blocks
//! that divide into the same nests are iterations of one parallel loop.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::direct::Direct;
use crate::direct::lower::{self as direct, PackedOperand, TileOperand};
use crate::lower::nest::{EqualRun, NestParts, Segment, StageBuilder, allocated, runs};
use crate::lower::{assign, load, nest};
use crate::winograd::Winograd;
use crate::winograd::matrices::Transforms;
use crate::winograd::passes::{PartialTransform, Passes};
use crate::winograd::rewrite::{Multiples, rewritten};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{BufferId, Expr, Index, Layout, LoopKind, Node, Program, Role, Scope, Stage, When};
use autotune_workloads::Workload;

mod phases;
mod product;
mod tile_row;
mod transform;

use product::{C, C_LANE, O, O_LANE, STEP, T, XI};

/// Lowers a config to loop nests.
pub(crate) fn lower(workload: &Workload, winograd: &Winograd) -> Program {
    let spec = Arc::clone(workload.spec());
    let multiples = Multiples { tiles: 1, channels: winograd.block };
    let algorithm = rewritten(workload, &winograd.conv, winograd.m, multiples);
    let product = product::plan(workload, winograd, &algorithm);
    let mut lowering = WinogradLowering::new(workload, winograd, &product);
    let stages = lowering.stages();
    let NestParts { vars, buffers, .. } = lowering.product.all;
    Program { spec, algorithm, axes: product.contraction.axes.clone(), vars, buffers, stages, cold: false }
}

/// Parts of a tile along one axis that are in bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TileInterior {
    /// Inputs that are not padding.
    inputs: Range<usize>,
    outputs: usize,
    /// Phases of each input that are not padding, as runs of equal inputs. Only used if phases are
    /// channels; then `inputs` are all, and padding is read as zeros.
    phases: Vec<EqualRun<Range<usize>>>,
}

/// Tiles of a block along one axis, as runs of equal tiles.
type Row<T = TileInterior> = Vec<EqualRun<T>>;

/// Returns the number of outputs of each tile, as runs of equal numbers.
fn outputs(row: &Row) -> Row<usize> {
    runs(row.iter().flat_map(|run| std::iter::repeat_n(run.each.outputs, run.count))).collect()
}

/// A block of tiles, one per iteration of the parallel loops of a tree.
struct Blocks<'a> {
    image: Affine,
    rows: [&'a Row; 2],
    /// Block number along each axis.
    number: [Affine; 2],
}

impl Blocks<'_> {
    /// Rows and columns of tiles in the block.
    fn tiles(&self) -> [usize; 2] {
        self.rows.map(|row| row.iter().map(|run| run.count).sum())
    }
}

/// Adjacent blocks of channels.
#[derive(Clone)]
struct ChannelBlocks {
    first: Affine,
    count: usize,
    lanes: usize,
}

impl ChannelBlocks {
    /// Divides `channels` channels into blocks, counted from `first`: whole blocks, and the
    /// remainder as a block of its own.
    fn of(first: &Affine, channels: usize, block: usize) -> impl Iterator<Item = Self> {
        let blocks =
            move |s: Segment| Self { first: first.clone() + (s.start / block) as i64, count: s.count, lanes: s.extent };
        Segment::tiles(channels, block).map(blocks)
    }
}

/// A run of equal tiles in one row of tiles, for one block of channels.
struct TileRow<'a, T> {
    /// Kind of tile along both axes: down, across.
    each: [&'a T; 2],
    tiles: usize,
    /// First output of the first tile: row, column.
    output: [Affine; 2],
    /// Number of the first tile within the block of tiles.
    number: Affine,
    /// Number of the channel block.
    channel: Affine,
    /// Channels of the block.
    lanes: usize,
}

/// Buffers in which rows of tiles are transposed, for tensors in the plain layout.
#[derive(Clone, Copy)]
struct TileRowBuffers {
    /// Buffer of a row of input tiles, see [`Winograd::input_tile_row`].
    input: Option<BufferId>,
    /// Buffer of a row of output tiles, see [`Winograd::output_tile_row`], and of one of its rows
    /// of pixels, `[lane, column]`.
    output: Option<[BufferId; 2]>,
}

impl TileRowBuffers {
    fn new(winograd: &Winograd, all: &mut NestParts) -> Self {
        let mut local = |name, shape: &[usize]| all.buffer(name, Role::Packed, Scope::Local, shape.to_vec());
        let [input, output] = winograd.layouts().map(|layout| layout == Layout::Plain);
        let [_, width, block] = winograd.output_tile_row();
        Self {
            input: input.then(|| local("input_strip", &winograd.input_tile_row())),
            output: output
                .then(|| [local("output_strip", &winograd.output_tile_row()), local("output_row", &[block, width])]),
        }
    }
}

struct WinogradLowering<'a> {
    winograd: &'a Winograd,
    transforms: Arc<Transforms>,
    /// Lowering of the products. It owns the buffers and variables of all stages.
    product: direct::DirectLowering<'a>,
    /// Transformed inputs, see [`Winograd::input_shape`]. A global buffer has leading dimensions
    /// for image and block.
    inputs: BufferId,
    /// Products of a block of tiles, see [`Winograd::product_shape`].
    products: BufferId,
    /// Scratch buffers of each transform, by name.
    scratch: Vec<(&'static str, [BufferId; 2])>,
    /// Buffers for transposed rows of tiles.
    tile_rows: TileRowBuffers,
    /// One-dimensional transforms of input tiles, by the inputs that are not padding.
    input_cuts: Vec<(Range<usize>, Rc<PartialTransform>)>,
    /// One-dimensional transforms of output tiles, by the number of outputs.
    output_cuts: Vec<(usize, Rc<PartialTransform>)>,
}

impl StageBuilder for WinogradLowering<'_> {
    fn all(&mut self) -> &mut NestParts {
        &mut self.product.all
    }
}

impl<'a> WinogradLowering<'a> {
    fn new(workload: &Workload, winograd: &'a Winograd, product: &'a Direct) -> Self {
        let mut product = direct::DirectLowering::new(workload, product, winograd.block);
        let scope = if winograd.staged { Scope::Global } else { Scope::Local };
        let mut shape = winograd.input_shape().to_vec();
        if winograd.staged {
            let [rows, columns] = [0, 1].map(|d| winograd.grid()[d].div_ceil(winograd.tiles[d]));
            shape.splice(0..0, [winograd.conv.n, rows, columns]);
        }
        let inputs = product.all.copy("input_transformed", scope, shape, winograd.conv.transformed);
        let products = product.all.partial_sums("products", Scope::Local, winograd.product_shape().to_vec());
        let tile_rows = TileRowBuffers::new(winograd, &mut product.all);
        let (scratch, input_cuts, output_cuts) = (Vec::new(), Vec::new(), Vec::new());
        let transforms = Transforms::of(workload, winograd.conv.filtering(winograd.m));
        Self { winograd, transforms, product, inputs, products, scratch, tile_rows, input_cuts, output_cuts }
    }

    fn stages(&mut self) -> Vec<Stage> {
        let stage = |name: &str, when, body| Stage { name: name.into(), when, body };
        let mut stages = vec![stage("transform_weight", When::AheadOfTime, self.transform_weight())];
        let rows = [0, 1].map(|dim| self.rows(dim));
        if self.winograd.staged {
            // A staged transform is also parallel over channel blocks.
            let channels = self.input_channels();
            let body = self.trees(&rows, |this, blocks| {
                let tasks = |ChannelBlocks { first, count, lanes }: ChannelBlocks| {
                    this.repeat("c.0", count, LoopKind::Parallel, |this, c| {
                        this.transform_input(blocks, &ChannelBlocks { first: c + &first, count: 1, lanes })
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

    /// Returns the blocks along axis `dim` (0 for rows), as runs of equal blocks.
    fn rows(&self, dim: usize) -> Vec<EqualRun<Row>> {
        let Winograd { conv, m, tiles, .. } = *self.winograd;
        let (extent, output, pad) = (conv.input[dim], conv.output[dim], conv.pad[dim]);
        let (size, count, a) = (tiles[dim], self.winograd.grid()[dim], self.winograd.a());

        // Returns, of `count` elements from `first` in the padded input, those that are not
        // padding.
        let real = |first: usize, count: usize| {
            let before = pad.saturating_sub(first).min(count);
            before..(extent + pad).saturating_sub(first).clamp(before, count)
        };

        let phases = conv.phases();
        let inside = |tile: usize| {
            let (first, outputs) = (tile * m * conv.stride, m.min(output - tile * m));
            if phases == 1 {
                return TileInterior { inputs: real(first, a), outputs, phases: Vec::new() };
            }
            let of_each = (0..a).map(|input| real(first + input * phases, phases));
            TileInterior { inputs: 0..a, outputs, phases: runs(of_each).collect() }
        };

        let row = |number: usize| runs((number * size..count.min((number + 1) * size)).map(inside)).collect();
        runs((0..count.div_ceil(size)).map(row)).collect()
    }

    /// Returns one tree per combination of runs of blocks, with parallel loops over images and
    /// blocks. `body` may add parallel loops.
    fn trees(
        &mut self,
        rows: &[Vec<EqualRun<Row>>; 2],
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
                // Parallel loops separate trees. This one needs such a loop, since nodes within it
                // depend on each other.
                loops.push((self.all().var("task", 1), 1, LoopKind::Parallel));
            }
            let blocks = Blocks { image, rows: [&down.each, &across.each], number };
            trees.extend(body(self, &blocks).into_iter().flat_map(|nodes| nest(loops.clone(), nodes)));
        }
        trees
    }

    fn input_channels(&self) -> Vec<ChannelBlocks> {
        ChannelBlocks::of(&Affine::default(), self.winograd.conv.depth(), self.winograd.depth_block()).collect()
    }

    /// Returns the chunks of output channels as `[blocks, channels]`, in runs of equal chunks.
    fn chunks(&self) -> impl Iterator<Item = EqualRun<[usize; 2]>> + use<> {
        let (chunk, block, blocks) = (self.winograd.chunk, self.winograd.block, self.winograd.o_blocks());
        let channels = self.winograd.conv.o;
        let size = move |number: usize| {
            let first = number * chunk;
            [chunk.min(blocks - first), (chunk * block).min(channels - first * block)]
        };
        runs((0..blocks.div_ceil(chunk)).map(size))
    }

    /// Returns one tree per run of chunks of output channels if chunks are tasks, else one tree.
    fn compute(&mut self, blocks: &Blocks) -> Vec<Vec<Node>> {
        let Winograd { chunk, staged, .. } = *self.winograd;
        // A fused transform belongs to a task, so the chunks that read it are in the same task.
        let kind = if staged { LoopKind::Parallel } else { LoopKind::Serial };
        let mut nests = Vec::new();
        for run in self.chunks() {
            let [size, channels] = run.each;
            nests.push(self.repeat("o.0", run.count, kind, |this, number| {
                let first = (number + run.first as i64) * chunk as i64;
                let mut body = this.multiply(blocks, &first, size);
                for channels in ChannelBlocks::of(&first, channels, this.winograd.block) {
                    body.extend(this.transform_output(blocks, &first, &channels));
                }
                allocated([this.products], body)
            }));
        }
        if staged {
            return nests;
        }

        // A fused transform runs once per block of tiles, before all chunks read its result.
        let mut body = Vec::new();
        for channels in self.input_channels() {
            body.extend(self.transform_input(blocks, &channels));
        }
        body.extend(nests.into_iter().flatten());
        vec![allocated([self.inputs], body)]
    }

    /// Returns the products of a block of tiles and the `size` channel blocks from `chunk` on.
    pub(super) fn multiply(&mut self, blocks: &Blocks, chunk: &Affine, size: usize) -> Vec<Node> {
        let Winograd { tiles: [rows, columns], .. } = *self.winograd;
        let ([all_rows, all_columns], [height, width]) = (self.winograd.grid(), blocks.tiles());
        // The products number an image's tiles block by block, all blocks of a row of blocks first.
        let above = blocks.image.clone() * all_rows as i64 + &(blocks.number[0].clone() * rows as i64);
        let first = above * all_columns as i64 + &(blocks.number[1].clone() * (height * columns) as i64);

        let mut region = self.product.whole_region();
        (region[T].base, region[T].extent) = (first, height * width);
        (region[O].base, region[O].extent) = (chunk.clone(), size);

        let axes = |axes: [usize; 4]| axes.map(|axis| Affine::var(VarId(axis as u32))).to_vec();
        let origin: Vec<Affine> = region.iter().map(|span| span.base.clone()).collect();
        let place = |buffer, leading, index| TileOperand { buffer, leading, index, origin: Some(origin.clone()) };
        let mut data = axes([XI, C, T, C_LANE]);
        let steps = self.winograd.group_steps();
        if steps > 1 {
            data[3] = data[3].clone() * steps as i64 + &Affine::var(VarId(STEP as u32));
        }
        self.product.data = place(self.inputs, self.input_block(blocks), data);
        self.product.sums = place(self.products, Vec::new(), axes([O, T, XI, O_LANE]));
        self.product.register_nest(&mut region)
    }

    /// Returns the leading indices of a block's transformed input; none if it is a buffer of the
    /// task.
    fn input_block(&self, blocks: &Blocks) -> Vec<Affine> {
        let block = [&blocks.image, &blocks.number[0], &blocks.number[1]];
        block.into_iter().filter(|_| self.winograd.staged).cloned().collect()
    }
}
