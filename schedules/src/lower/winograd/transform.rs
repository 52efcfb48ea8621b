//! The transforms of filters, inputs and products.

use super::product::{C, C_LANE, O, O_LANE, XI};
use super::*;
use crate::winograd::conv::Conv;

/// A column or row of a tile: elements `step` apart along a dimension.
struct Line {
    buffer: BufferId,
    first: Index,
    dim: usize,
    step: usize,
}

impl Line {
    fn at(&self, k: usize) -> Index {
        let mut index = self.first.clone();
        index[self.dim].constant += (k * self.step) as i64;
        index
    }
}

impl Lowering<'_> {
    /// `U[i * a + j, o, c] = (G g Gᵀ)[i, j]` for each register tile of channels. Channels beyond the last are left undefined.
    pub(super) fn transform_weight(&mut self) -> Vec<Node> {
        let Winograd { block, register: [_, channels], .. } = *self.winograd;
        let (a, c_blocks) = (self.winograd.a() as i64, self.winograd.c_blocks());
        let whole = Cut::whole(&self.transforms.weight, self.winograd.conv.taps);
        let (from, to) = (self.product.operands.weight, self.product.open_packed_weight("weight_transformed"));
        let mut trees = Vec::new();
        for run in Segment::tiles(self.winograd.o_blocks(), channels) {
            let mut loops = Vec::new();
            let mut open = |name, extent| self.all().open(name, extent, LoopKind::Parallel, &mut loops);
            let tile = open("o.0", run.count) * channels as i64 + run.start as i64;
            let c = [open("c.0", c_blocks), open("c.1", block)];

            let body = self.repeat("o.1", run.extent, LoopKind::Serial, |this, o| {
                let [o_channel, c_channel] = [(tile.clone() + &o, Affine::default()), (c[0].clone(), c[1].clone())]
                    .map(|(number, lane)| number * block as i64 + &lane);
                let mut region = this.product.whole_region();
                let read = |[kw, lane]: [Affine; 2]| {
                    let first = [o_channel + &lane, c_channel, Affine::default(), kw].into();
                    Line { buffer: from, first, dim: 2, step: 1 }
                };
                let write = |[i, lane]: [Affine; 2]| {
                    let mut local = vec![Affine::default(); region.len()];
                    let places = [(O, o.clone()), (O_LANE, lane), (C, c[0].clone()), (C_LANE, c[1].clone())];
                    places.into_iter().for_each(|(axis, place)| local[axis] = place);
                    (region[XI].base, region[O].base) = (i * a, tile.clone());
                    Line { buffer: to.buffer, first: to.index(&region, &local, &local), dim: 0, step: 1 }
                };
                this.transformed("weight", [&whole; 2], read, write, |value, _| value)
            });
            trees.extend(nest(loops, body));
        }
        trees
    }

    /// `V[i * a + j] = (Bᵀ d B)[i, j]` for each tile of a block, of the `count` blocks of channels from `first` on.
    pub(super) fn transform_input(&mut self, blocks: &Blocks, first: &Affine, count: usize) -> Vec<Node> {
        let (a, Conv { pad, stride, .. }) = (self.winograd.a(), self.winograd.conv);
        let (from, to, block) = (self.product.operands.input, self.inputs, self.input_block(blocks));
        self.over_tiles(blocks, ("c.0", first, count), |this, Tile { inside, output: [top, left], number, channel }| {
            let cuts = inside.map(|inside| this.cuts(inside));
            let read = |[x, lane]: [Affine; 2]| {
                let [top, left] = [top, left].map(|first| first * stride as i64);
                let [top, left] = [top + -(pad[0] as i64), left + x + -(pad[1] as i64)];
                let first = [blocks.image.clone(), channel.clone(), top, left, lane].into();
                Line { buffer: from, first, dim: 2, step: 1 }
            };
            let write = |[i, lane]: [Affine; 2]| {
                let first = [&block[..], &[i * a as i64, channel.clone(), number, lane]].concat().into();
                Line { buffer: to, first, dim: block.len(), step: 1 }
            };
            this.transformed("input", cuts.each_ref().map(|cuts| &cuts.input), read, write, |value, _| value)
        })
    }

    /// `output = act((Aᵀ M A)[valid] + ..)` for the tiles of a block, of the `size` blocks of channels from `chunk` on.
    pub(super) fn transform_output(&mut self, blocks: &Blocks, chunk: &Affine, size: usize) -> Vec<Node> {
        let (a, block) = (self.winograd.a(), self.winograd.block as i64);
        let (from, operands) = (self.products, self.product.operands.clone());
        self.over_tiles(blocks, ("o.1", chunk, size), |this, Tile { inside, output: [top, left], number, channel }| {
            let cuts = inside.map(|inside| this.cuts(inside));
            let read = |[x, lane]: [Affine; 2]| {
                let first = [channel.clone() + &(chunk.clone() * -1), number, x, lane].into();
                Line { buffer: from, first, dim: 2, step: a }
            };
            let write = |[i, lane]: [Affine; 2]| {
                let first = [blocks.image.clone(), channel.clone(), top + i, left, lane].into();
                Line { buffer: operands.output, first, dim: 3, step: 1 }
            };
            let finish = |sum, index: &[Affine]| {
                let channel = index[1].clone() * block + &index[4];
                operands.fused(sum, &channel, index)
            };
            this.transformed("output", cuts.each_ref().map(|cuts| &cuts.output), read, write, finish)
        })
    }

    /// A nest per combination of runs of rows and columns and of the blocks of channels, for one row of tiles at a time, so that
    /// blocks that differ in the number of rows have the same nests.
    fn over_tiles(
        &mut self,
        blocks: &Blocks,
        (name, first, count): (&'static str, &Affine, usize),
        mut body: impl FnMut(&mut Self, Tile) -> Vec<Node>,
    ) -> Vec<Node> {
        let Winograd { m, tiles, .. } = *self.winograd;
        let [down, across] = blocks.rows;
        let width = blocks.tiles()[1] as i64;
        let output = |dim: usize, tile: &Affine| (blocks.number[dim].clone() * tiles[dim] as i64 + tile) * m as i64;
        let mut nodes = Vec::new();
        for row in down {
            nodes.extend(self.repeat("th.1", row.count, LoopKind::Serial, |this, r| {
                let r = r + row.first as i64;
                let nest = |column: &Run<Inside>| {
                    this.repeat(name, count, LoopKind::Serial, |this, channel| {
                        this.repeat("tw.1", column.count, LoopKind::Serial, |this, c| {
                            let c = c + column.first as i64;
                            let tile = Tile {
                                inside: [&row.each, &column.each],
                                output: [output(0, &r), output(1, &c)],
                                number: r.clone() * width + &c,
                                channel: first.clone() + &channel,
                            };
                            body(this, tile)
                        })
                    })
                };
                across.iter().flat_map(nest).collect()
            }));
        }
        nodes
    }

    /// The nests that transform a tile, within what they keep to themselves. `read` gives the column of a number and lane, `write` where
    /// such a row of the result goes, after `finish`.
    fn transformed(
        &mut self,
        name: &'static str,
        cuts: [&Cut; 2],
        read: impl FnOnce([Affine; 2]) -> Line,
        write: impl FnOnce([Affine; 2]) -> Line,
        finish: impl Fn(Expr, &[Affine]) -> Expr,
    ) -> Vec<Node> {
        let lanes = self.winograd.block;
        let [half, terms] = self.scratch(name);
        let read = |_: &mut Self, at| {
            let column = read(at);
            (Vec::new(), move |k| load(column.buffer, column.at(k)))
        };
        let write = |_: &mut Self, at| {
            let row = write(at);
            let finish = &finish;
            let store = move |k: usize, value| {
                let index = row.at(k);
                let value = finish(value, &index);
                assign(row.buffer, index, value)
            };
            (store, Vec::new())
        };
        let body = Passes { cuts, lanes, half, terms }.nests(self, read, write);
        allocated([half, terms], body)
    }

    /// What a transform keeps to itself: the columns that its first pass has made, and terms that sums share.
    fn scratch(&mut self, name: &'static str) -> [BufferId; 2] {
        if let Some(known) = self.scratch.iter().find(|known| known.0 == name) {
            return known.1;
        }
        let (a, lanes) = (self.winograd.a(), self.winograd.block);
        let half = self.all().buffer(format!("{name}_half"), Role::Packed, Scope::Local, vec![a, a, lanes]);
        let terms = self.all().buffer(format!("{name}_terms"), Role::Packed, Scope::Register, vec![a, lanes]);
        self.scratch.push((name, [half, terms]));
        [half, terms]
    }

    /// How tiles of which there is so much are transformed.
    fn cuts(&mut self, inside: &Inside) -> Rc<Cuts> {
        if let Some(known) = self.cuts.iter().find(|known| known.0 == *inside) {
            return Rc::clone(&known.1);
        }
        let (a, transforms) = (self.winograd.a(), &self.transforms);
        let input = Cut::new(&transforms.input, inside.inputs.clone(), a);
        let cuts = Rc::new(Cuts { input, output: Cut::new(&transforms.output, 0..a, inside.outputs) });
        self.cuts.push((inside.clone(), Rc::clone(&cuts)));
        cuts
    }
}
