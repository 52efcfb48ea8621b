//! The matrix products: `M[o, t, xi] = sum over c of V[xi, c, t] * U[xi, o, c]`.

use super::transform::constant;
use super::*;
use crate::contraction::divide;

/// f32 elements of a cache line.
const LINE: usize = 16;

/// `count` tiles of `size` elements, the first at `start`.
#[derive(Clone, Copy)]
struct Tiles {
    start: usize,
    count: usize,
    size: usize,
}

/// Whole tiles in one run, the remainder by itself.
fn tiles(extent: usize, size: usize) -> impl Iterator<Item = Tiles> {
    let whole = Tiles { start: 0, count: extent / size, size };
    let rest = Tiles { start: extent / size * size, count: 1, size: extent % size };
    [whole, rest].into_iter().filter(|t| t.count * t.size > 0)
}

/// A register tile.
struct RegisterTile<'b> {
    blocks: &'b Blocks<'b>,
    xi: Affine,
    /// Its first tile within the block.
    first_tile: Affine,
    tiles: usize,
    /// The chunk's first channel block, and its own within the chunk.
    chunk: &'b Affine,
    first_block: Affine,
    channels: usize,
    /// Its number along the channels.
    panel: Affine,
}

impl Lowering<'_> {
    /// The products of a block of tiles and the `size` channel blocks from `chunk` on.
    pub(super) fn multiply(&mut self, blocks: &Blocks, chunk: &Affine, size: usize) -> Vec<Node> {
        let Winograd { register: [positions, channels], .. } = *self.winograd;
        let xis = self.winograd.a() * self.winograd.a();
        let t_runs: Vec<Tiles> = tiles(blocks.runs[0].tiles * blocks.runs[1].tiles, positions).collect();
        let o_runs: Vec<Tiles> = tiles(size, channels).collect();
        let runs: Vec<(Tiles, Tiles)> = o_runs.iter().flat_map(|&o| t_runs.iter().map(move |&t| (t, o))).collect();
        // A chunk is either a multiple of the register tile or begins at 0.
        let first_panel = divide(chunk, channels);
        self.repeat("xi", xis, LoopKind::Serial, |this, xi| {
            let run = |this: &mut Self, (t_run, o_run): (Tiles, Tiles)| {
                let leaf = |this: &mut Self, t: Affine, o: Affine| {
                    this.register_tile(&RegisterTile {
                        blocks,
                        xi: xi.clone(),
                        first_tile: t * positions as i64 + t_run.start as i64,
                        tiles: t_run.size,
                        chunk,
                        first_block: o.clone() * channels as i64 + o_run.start as i64,
                        channels: o_run.size,
                        panel: first_panel.clone() + o + (o_run.start / channels) as i64,
                    })
                };
                this.repeat("o.1", o_run.count, LoopKind::Serial, |this, o| {
                    this.repeat("t.1", t_run.count, LoopKind::Serial, |this, t| leaf(this, t, o))
                })
            };
            runs.into_iter().flat_map(|pair| run(this, pair)).collect()
        })
    }

    /// ```text
    /// alloc acc
    ///   acc[..] = 0
    ///   c: prefetch U[xi, o, c] + distance               (with prefetch > 0)
    ///      acc[t, o] += V[xi, c, t] * U[xi, o, c]
    ///   M[o, t, xi] = acc[t, o]
    /// ```
    fn register_tile(&mut self, tile: &RegisterTile) -> Vec<Node> {
        let Winograd { block, unroll, .. } = *self.winograd;
        let shape = vec![tile.tiles, tile.channels, block];
        let acc = self.private(&format!("acc_{}x{}", tile.tiles, tile.channels), Scope::Register, shape);
        let mut body = self.over_tile(tile, |_, at| vec![assign(acc, at.to_vec(), Expr::Const(0.0))]);
        body.extend(self.repeat("c.0", self.winograd.c_blocks(), LoopKind::Serial, |this, c_block| {
            this.repeat("c.1", block / unroll, LoopKind::Serial, |this, group| {
                this.repeat("c.u", unroll, LoopKind::Unrolled, |this, step| {
                    let c = [c_block, group * unroll as i64 + step];
                    let mut nodes = this.prefetch(tile, &c);
                    nodes.extend(this.over_tile(tile, |this, at| vec![this.multiply_add(tile, acc, at, &c)]));
                    nodes
                })
            })
        }));
        body.extend(self.over_tile(tile, |this, at| {
            let [t, o, lane] = at.clone();
            let index = vec![tile.first_block.clone() + o, tile.first_tile.clone() + t, tile.xi.clone(), lane];
            vec![assign(this.products, index, load(acc, at.to_vec()))]
        }));
        vec![Node::Alloc { buffer: acc, body }]
    }

    /// Unrolled loops over the register tile; `body` gets tile, channel block and lane.
    fn over_tile(&mut self, tile: &RegisterTile, body: impl FnOnce(&mut Self, &[Affine; 3]) -> Vec<Node>) -> Vec<Node> {
        self.repeat("t.t", tile.tiles, LoopKind::Unrolled, |this, t| {
            this.repeat("o.t", tile.channels, LoopKind::Unrolled, |this, o| {
                this.lanes(|this, lane| body(this, &[t, o, lane]))
            })
        })
    }

    /// Prefetches as many lines of weights as a step of the reduction reads, in the order in which the weights lie in memory:
    /// the panel's next steps, then the next panel. What the last panel's are ahead of is not read, at the end of everything.
    fn prefetch(&self, tile: &RegisterTile, [c_block, c_lane]: &[Affine; 2]) -> Vec<Node> {
        let Winograd { block, register: [_, channels], prefetch, .. } = *self.winograd;
        if prefetch == 0 {
            return Vec::new();
        }
        let c = c_block.clone() * block as i64 + c_lane.clone();
        let line = |first: usize| {
            let index =
                vec![tile.xi.clone(), tile.panel.clone(), c.clone(), constant(first / block), constant(first % block)];
            Node::Prefetch { access: Access { buffer: self.weights, index }, ahead: prefetch }
        };
        (0..channels * block).step_by(LINE).map(line).collect()
    }

    /// `acc[t, o] += V * U` at block and lane `c` of the input channels.
    fn multiply_add(&self, tile: &RegisterTile, acc: BufferId, at: &[Affine; 3], c: &[Affine; 2]) -> Node {
        let block = self.winograd.block as i64;
        let ([t, o, lane], [c_block, c_lane]) = (at.clone(), c.clone());
        let t = tile.first_tile.clone() + t;
        let c = c_block.clone() * block + c_lane.clone();
        let data = self.inputs_index(tile.blocks, [tile.xi.clone(), c_block, t.clone(), c_lane]);
        let weight = vec![tile.xi.clone(), tile.panel.clone(), c.clone(), o.clone(), lane.clone()];
        let channel = (tile.chunk.clone() + tile.first_block.clone() + o) * block + lane;
        let tile_number = self.first_tile(tile.blocks) + t;
        let point = vec![tile.blocks.image.clone(), tile.xi.clone(), tile_number, channel, c];
        let value = Expr::product(load(self.inputs, data), load(self.weights, weight));
        let dst = Access { buffer: acc, index: at.to_vec() };
        Node::Store(Store { dst, mode: StoreMode::Accumulate, value, point })
    }

    /// Number of a block's first tile where tiles are counted block by block: all blocks of a row of blocks before the next.
    fn first_tile(&self, blocks: &Blocks) -> Affine {
        let Winograd { tiles: [rows, columns], .. } = *self.winograd;
        let height = blocks.runs[0].tiles;
        blocks.number[0].clone() * (rows * self.winograd.grid()[1]) as i64
            + blocks.number[1].clone() * (height * columns) as i64
    }
}
