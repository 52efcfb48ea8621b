//! The three transforms of Winograd's algorithm as loop nests (Lavin and Gray, "Fast Algorithms for
//! Convolutional Neural Networks", 2016): of filters ahead of time, of input tiles, and of products
//! back to output tiles.
//!
//! Each transforms `a` by `a` tiles, first the columns, then the rows ([`Passes`]). A
//! [`PartialTransform`] leaves out inputs that are zero (padding, missing taps) and outputs out of
//! bounds. A convolution with a stride is divided into phases, which are transformed one by one.

use super::product::{C, C_LANE, O, O_LANE, STEP, XI};
use super::*;
use crate::winograd::conv::WinogradConv;

/// A column or row of a tile in a buffer: elements `step` apart along dimension `dim`, from index
/// `first` on.
struct TileLine {
    buffer: BufferId,
    first: Index,
    dim: usize,
    step: usize,
}

impl TileLine {
    fn at(&self, k: usize) -> Index {
        let moved = |(dim, along): (usize, &Affine)| {
            let mut along = along.clone();
            along.constant += if dim == self.dim { (k * self.step) as i64 } else { 0 };
            along
        };
        self.first.iter().enumerate().map(moved).collect()
    }
}

/// Filters of one block of output channels and one input channel.
struct Filters<'a> {
    to: &'a PackedOperand,
    /// Number of the first block of output channels in the register tile; `o` is the number of the
    /// filters' block within the tile.
    tile: Affine,
    o: Affine,
    /// Number of the block of input channels, of the group of channels within it, and of the
    /// channel within the group.
    c: [Affine; 3],
    /// Output channels of the block.
    lanes: usize,
}

impl WinogradLowering<'_> {
    /// Transforms filters to `U[i * a + j, o, c] = (G g Gᵀ)[i, j]`, one register tile of channels
    /// after another. Channels after the last are zeros; blocks after the last are left undefined.
    pub(super) fn transform_weight(&mut self) -> Vec<Node> {
        let Winograd { block, conv, register: [_, channels], .. } = *self.winograd;
        let to = self.product.open_packed_weight("weight_transformed");
        let mut trees = Vec::new();
        for run in Segment::tiles(conv.o / block, channels) {
            trees.extend(self.filters(&to, run, 0, block));
        }

        // An incomplete block has fewer lanes, so it has trees of its own.
        let (last, rest) = (conv.o / block, conv.o % block);
        if rest > 0 {
            let run = Segment { start: last / channels * channels, count: 1, extent: 1 };
            trees.extend(self.filters(&to, run, last % channels, rest));
        }
        trees
    }

    /// Transforms the filters of a run of register tiles: in each, the blocks from number `first`
    /// on, and `lanes` channels of each block.
    fn filters(&mut self, to: &PackedOperand, run: Segment, first: usize, lanes: usize) -> Vec<Node> {
        let Winograd { conv, register: [_, channels], .. } = *self.winograd;
        let (c_lanes, phases, steps) = (self.winograd.c_lanes(), conv.phases(), self.winograd.group_steps());
        // One-dimensional transform of the taps of each phase.
        let cut = |phase: usize| {
            // With a stride, a filter splits into phases, the later of which may have a tap less.
            PartialTransform::new(&self.transforms.weight, 0..(conv.taps - phase).div_ceil(phases), self.winograd.a())
        };
        let cuts: Vec<PartialTransform> = (0..phases).map(cut).collect();

        let mut loops = Vec::new();
        let mut open = |name, extent| self.all().open(name, extent, LoopKind::Parallel, &mut loops);
        let tile = open("o.0", run.count) * channels as i64 + run.start as i64;
        let c = [open("c.0", conv.depth() / c_lanes), open("c.1", c_lanes / (phases * phases) / steps)];

        let body = self.repeat("o.1", run.extent, LoopKind::Serial, |this, o| {
            this.repeat("c.2", steps, LoopKind::Serial, |this, step| {
                let [block, group] = c;
                let filters = Filters { to, tile, o: o + first as i64, c: [block, group, step], lanes };
                let of_each = (0..phases).flat_map(|fh| (0..phases).map(move |fw| [fh, fw]));
                of_each.flat_map(|[fh, fw]| this.filter(&filters, [fh, fw], [&cuts[fh], &cuts[fw]])).collect()
            })
        });
        nest(loops, body)
    }

    /// Transforms the filters of one phase.
    fn filter(&mut self, filters: &Filters, [fh, fw]: [usize; 2], cuts: [&PartialTransform; 2]) -> Vec<Node> {
        let Filters { to, tile, o, c, lanes } = filters;
        let (a, block, phases) = (self.winograd.a(), self.winograd.block, self.winograd.conv.phases());
        let (from, whole) = (self.product.operands.weight, self.product.whole_region());
        let per_block = self.winograd.c_lanes() / (phases * phases);
        let o_channel = (tile.clone() + o) * block as i64;
        let [c_block, c_group, step] = c;
        let steps = self.winograd.group_steps() as i64;
        let c_channel = c_block.clone() * per_block as i64 + &(c_group.clone() * steps) + step;
        // The phases of a channel are adjacent lanes of the product's reduction axis. With groups,
        // there is one phase.
        let c_lane = c_group.clone() * (phases * phases) as i64 + (fh * phases + fw) as i64;

        let read = |[kw, lane]: [Affine; 2]| {
            let column = kw * phases as i64 + fw as i64;
            let first = [o_channel + &lane, c_channel, Affine::constant(fh as i64), column].into();
            TileLine { buffer: from, first, dim: 2, step: phases }
        };
        let element = |xi: Affine, lane: Affine| {
            let (mut region, mut local) = (whole.clone(), vec![Affine::default(); whole.len()]);
            let places = [(O, o.clone()), (O_LANE, lane), (C, c_block.clone()), (C_LANE, c_lane.clone())];
            places.into_iter().for_each(|(axis, place)| local[axis] = place);
            if let Some(place) = local.get_mut(STEP) {
                *place = step.clone();
            }
            (region[XI].base, region[O].base) = (xi, tile.clone());
            to.index(&region, &local, &local)
        };
        let write = |[i, lane]: [Affine; 2]| TileLine {
            buffer: to.buffer,
            first: element(i * a as i64, lane),
            dim: 0,
            step: 1,
        };
        let mut nodes = self.transformed(("weight", *lanes), cuts, read, write, |value, _| value);

        // Products read all lanes of a block: those after the last channel must not affect the
        // sums.
        if *lanes < block {
            nodes.extend(self.repeat("xi", a * a, LoopKind::Serial, |this, xi| {
                this.repeat("lane", block - lanes, LoopKind::Vectorized, |_, lane| {
                    vec![assign(to.buffer, element(xi, lane + *lanes as i64), Expr::Const(0.0))]
                })
            }));
        }
        nodes
    }

    /// Transforms the tiles of a block to `V[i * a + j] = (Bᵀ d B)[i, j]`, for some channels.
    pub(super) fn transform_input(&mut self, blocks: &Blocks, channels: &ChannelBlocks) -> Vec<Node> {
        let WinogradConv { pad, stride, .. } = self.winograd.conv;
        let (a, block, apart) = (self.winograd.a(), self.winograd.depth_block(), self.winograd.tile_stride());
        let (to, place) = (self.inputs, self.input_block(blocks));
        let (image, copied) = (self.product.operands.input, self.tile_rows.input);

        self.over_tile_rows(blocks, blocks.rows, ("c.0", channels), |this, strip| {
            let cuts = strip.each.map(|inside| this.input_cut(&inside.inputs));
            let nodes = this.over_tiles(strip, |this, tile| {
                let [top, left] = [0, 1].map(|dim| strip.output[dim].clone() * stride as i64 + -(pad[dim] as i64));
                let first = tile.clone() * apart as i64;
                let read = |[x, lane]: [Affine; 2]| match copied {
                    Some(buffer) => {
                        TileLine { buffer, first: [Affine::default(), first + x, lane].into(), dim: 0, step: 1 }
                    }
                    None => {
                        let first = [blocks.image.clone(), strip.channel.clone(), top, left + &first + x, lane].into();
                        TileLine { buffer: image, first, dim: 2, step: 1 }
                    }
                };
                let write = |[i, lane]: [Affine; 2]| {
                    let (xi, number) = (i * a as i64, strip.number.clone() + tile);
                    let at = match copied {
                        Some(_) => [xi, Affine::default(), number, strip.channel.clone() * block as i64 + lane],
                        None => [xi, strip.channel.clone(), number, lane],
                    };
                    TileLine { buffer: to, first: [&place[..], &at].concat().into(), dim: place.len(), step: 1 }
                };
                let cuts = cuts.each_ref().map(Rc::as_ref);
                this.transformed(("input", strip.lanes), cuts, read, write, |value, _| value)
            });

            match copied {
                Some(buffer) => {
                    let mut body = this.read_tile_row(buffer, &blocks.image, strip);
                    body.extend(nodes);
                    allocated([buffer], body)
                }
                None => nodes,
            }
        })
    }

    /// Transforms products to `output = act((Aᵀ M A)[valid] + ..)` for the tiles of a block.
    /// `channels` are some of the chunk whose first block is `chunk`.
    pub(super) fn transform_output(&mut self, blocks: &Blocks, chunk: &Affine, channels: &ChannelBlocks) -> Vec<Node> {
        let Winograd { m, block, .. } = *self.winograd;
        let a = self.winograd.a();
        let (from, operands, copied) = (self.products, self.product.operands.clone(), self.tile_rows.output);
        // Tiles differ only by the outputs that they have, so that padding of the input needs no
        // nests of its own.
        let rows = blocks.rows.map(outputs);

        self.over_tile_rows(blocks, rows.each_ref(), ("o.1", channels), |this, strip| {
            let cuts = strip.each.map(|outputs| this.output_cut(*outputs));
            let mut nodes = this.over_tiles(strip, |this, tile| {
                let [top, left] = strip.output.clone();
                let first = tile.clone() * m as i64;
                let read = |[x, lane]: [Affine; 2]| {
                    // Products are indexed by the position in their chunk.
                    let channel = strip.channel.clone() + &(chunk.clone() * -1);
                    TileLine {
                        buffer: from,
                        first: [channel, strip.number.clone() + tile, x, lane].into(),
                        dim: 2,
                        step: a,
                    }
                };
                let write = |[i, lane]: [Affine; 2]| match copied {
                    Some([buffer, _]) => TileLine { buffer, first: [i, first, lane].into(), dim: 1, step: 1 },
                    None => {
                        let first = [blocks.image.clone(), strip.channel.clone(), top + i, left + &first, lane].into();
                        TileLine { buffer: operands.output, first, dim: 3, step: 1 }
                    }
                };
                let finish = |sum, index: &[Affine]| match copied {
                    // The epilogue is applied when the row is copied to the output.
                    Some(_) => sum,
                    None => operands.fused(sum, &(index[1].clone() * block as i64 + &index[4]), index),
                };
                let cuts = cuts.each_ref().map(Rc::as_ref);
                this.transformed(("output", strip.lanes), cuts, read, write, finish)
            });

            match copied {
                Some(buffers) => {
                    nodes.extend(this.write_tile_row(buffers, &blocks.image, strip));
                    allocated([buffers[0]], nodes)
                }
                None => nodes,
            }
        })
    }

    /// Returns the nests over the tile rows of a block of tiles, and over blocks of channels.
    /// `body` returns the nests of a [`TileRow`], a run of equal tiles within one row. There is one
    /// nest for each run of equal rows and run of equal columns, so blocks of different sizes share
    /// them.
    fn over_tile_rows<T>(
        &mut self,
        blocks: &Blocks,
        [down, across]: [&Row<T>; 2],
        (name, channels): (&'static str, &ChannelBlocks),
        mut body: impl FnMut(&mut Self, &TileRow<T>) -> Vec<Node>,
    ) -> Vec<Node> {
        let Winograd { m, tiles, .. } = *self.winograd;
        let width = blocks.tiles()[1] as i64;
        let output = |dim: usize, tile: Affine| (blocks.number[dim].clone() * tiles[dim] as i64 + &tile) * m as i64;

        let mut nodes = Vec::new();
        for row in down {
            nodes.extend(self.repeat("th.1", row.count, LoopKind::Serial, |this, r| {
                let r = r + row.first as i64;
                let nest = |column: &EqualRun<T>| {
                    this.repeat(name, channels.count, LoopKind::Serial, |this, channel| {
                        let first = Affine::constant(column.first as i64);
                        let strip = TileRow {
                            each: [&row.each, &column.each],
                            tiles: column.count,
                            number: r.clone() * width + &first,
                            output: [output(0, r.clone()), output(1, first)],
                            channel: channels.first.clone() + &channel,
                            lanes: channels.lanes,
                        };
                        body(this, &strip)
                    })
                };
                across.iter().flat_map(nest).collect()
            }));
        }
        nodes
    }

    /// Returns the loop over the tiles of a tile row; `body` gets the tile's number in it.
    fn over_tiles<T>(&mut self, strip: &TileRow<T>, body: impl FnOnce(&mut Self, &Affine) -> Vec<Node>) -> Vec<Node> {
        self.repeat("tw.1", strip.tiles, LoopKind::Serial, |this, tile| body(this, &tile))
    }

    /// Returns the nests that transform a tile of `lanes` channels, with their scratch buffers.
    /// `read` returns a column of the tile, `write` a row of the result, both by number and lane.
    /// `finish` is applied to each stored value.
    fn transformed(
        &mut self,
        (name, lanes): (&'static str, usize),
        cuts: [&PartialTransform; 2],
        read: impl FnOnce([Affine; 2]) -> TileLine,
        write: impl FnOnce([Affine; 2]) -> TileLine,
        finish: impl Fn(Expr, &[Affine]) -> Expr,
    ) -> Vec<Node> {
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

    /// Returns the scratch buffers of a transform: the result of its first pass, over columns, and
    /// the terms that several outputs share.
    fn scratch(&mut self, name: &'static str) -> [BufferId; 2] {
        if let Some(known) = self.scratch.iter().find(|known| known.0 == name) {
            return known.1;
        }
        let widest = self.winograd.block.max(self.winograd.depth_block().next_power_of_two());
        let (a, lanes) = (self.winograd.a(), if name == "input" { widest } else { self.winograd.block });
        let half = self.all().buffer(format!("{name}_half"), Role::Packed, Scope::Local, vec![a, a, lanes]);
        let terms = self.all().buffer(format!("{name}_terms"), Role::Packed, Scope::Register, vec![a, lanes]);
        self.scratch.push((name, [half, terms]));
        [half, terms]
    }

    /// Returns the transform of input tiles along one axis; the input is zero outside `inputs`.
    fn input_cut(&mut self, inputs: &Range<usize>) -> Rc<PartialTransform> {
        let (a, transform) = (self.winograd.a(), &self.transforms.input);
        once(&mut self.input_cuts, inputs, || PartialTransform::new(transform, inputs.clone(), a))
    }

    /// Returns the transform along one axis that computes the first `outputs` outputs of tiles.
    fn output_cut(&mut self, outputs: usize) -> Rc<PartialTransform> {
        let (a, transform) = (self.winograd.a(), &self.transforms.output);
        once(&mut self.output_cuts, &outputs, || PartialTransform::new(transform, 0..a, outputs))
    }
}

/// Returns the cached value of `key`, made on the first call.
fn once<K: PartialEq + Clone, V>(known: &mut Vec<(K, Rc<V>)>, key: &K, make: impl FnOnce() -> V) -> Rc<V> {
    if let Some((_, value)) = known.iter().find(|(known, _)| known == key) {
        return Rc::clone(value);
    }
    let value = Rc::new(make());
    known.push((key.clone(), Rc::clone(&value)));
    value
}
