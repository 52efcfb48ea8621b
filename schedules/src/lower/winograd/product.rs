//! The matrix products: `M[o, t, xi] = sum over c of V[xi, c, t] * U[xi, o, c]`.

use super::*;

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

/// A register tile: where its tiles and its channel blocks (counted within the chunk and as a whole) begin, and how many they
/// are.
struct RegisterTile {
    xi: Affine,
    first_tile: Affine,
    tiles: usize,
    first_block: Affine,
    /// Number of the register tile along the channels.
    panel: Affine,
    blocks: usize,
}

impl Lowering<'_> {
    /// The products of a block of tiles and the `size` channel blocks from `chunk` on.
    pub(super) fn multiply(&mut self, blocks: &Blocks, chunk: &Affine, size: usize) -> Vec<Node> {
        let Winograd { register: [positions, channels], tiles_outside, .. } = *self.winograd;
        let count = blocks.runs[0].tiles * blocks.runs[1].tiles;
        let xis = self.winograd.a() * self.winograd.a();
        let t_runs: Vec<Tiles> = tiles(count, positions).collect();
        let o_runs: Vec<Tiles> = tiles(size, channels).collect();
        let panels = Affine { constant: chunk.constant / channels as i64, terms: Default::default() };
        let chunk_panel = chunk.terms.iter().fold(panels, |sum, &(v, c)| sum + Affine::var(v) * (c / channels as i64));
        self.repeat("xi", xis, LoopKind::Serial, |this, xi| {
            let mut nodes = Vec::new();
            let mut go = |this: &mut Self, t_run: Tiles, o_run: Tiles| {
                let leaf = |this: &mut Self, t: Affine, o: Affine| {
                    this.register_tile(
                        blocks,
                        chunk,
                        RegisterTile {
                            xi: xi.clone(),
                            first_tile: t * positions as i64 + t_run.start as i64,
                            tiles: t_run.size,
                            first_block: o.clone() * channels as i64 + o_run.start as i64,
                            panel: chunk_panel.clone() + o + (o_run.start / channels) as i64,
                            blocks: o_run.size,
                        },
                    )
                };
                let serial = LoopKind::Serial;
                nodes.extend(if tiles_outside {
                    this.repeat("t.1", t_run.count, serial, |this, t| {
                        this.repeat("o.1", o_run.count, serial, |this, o| leaf(this, t, o))
                    })
                } else {
                    this.repeat("o.1", o_run.count, serial, |this, o| {
                        this.repeat("t.1", t_run.count, serial, |this, t| leaf(this, t, o))
                    })
                });
            };
            if tiles_outside {
                t_runs.iter().for_each(|&t| o_runs.iter().for_each(|&o| go(this, t, o)));
            } else {
                o_runs.iter().for_each(|&o| t_runs.iter().for_each(|&t| go(this, t, o)));
            }
            nodes
        })
    }

    /// ```text
    /// alloc acc
    ///   acc[..] = 0
    ///   c: acc[t, o] += V[xi, c, t] * U[xi, o, c]
    ///   M[o, t, xi] = acc[t, o]
    /// ```
    fn register_tile(&mut self, blocks: &Blocks, chunk: &Affine, tile: RegisterTile) -> Vec<Node> {
        let Winograd { block, unroll, .. } = *self.winograd;
        let shape = vec![tile.tiles, tile.blocks, block];
        let acc = self.private(&format!("acc_{}x{}", tile.tiles, tile.blocks), Scope::Register, shape);
        let mut body = self.over_tile(&tile, |_, at| vec![assign(acc, at.to_vec(), Expr::Const(0.0))]);
        let steps = block / unroll;
        body.extend(self.repeat("c.0", self.winograd.c_blocks(), LoopKind::Serial, |this, c_block| {
            this.repeat("c.1", steps, LoopKind::Serial, |this, group| {
                this.repeat("c.u", unroll, LoopKind::Unrolled, |this, step| {
                    let lane = group * unroll as i64 + step;
                    this.over_tile(&tile, |this, at| {
                        vec![this.multiply_add(blocks, chunk, &tile, acc, at, &c_block, &lane)]
                    })
                })
            })
        }));
        body.extend(self.over_tile(&tile, |this, at| {
            let [t, o, lane] = at.clone();
            let index = vec![tile.first_block.clone() + o, tile.first_tile.clone() + t, tile.xi.clone(), lane];
            vec![assign(this.products, index, load(acc, at.to_vec()))]
        }));
        vec![Node::Alloc { buffer: acc, body }]
    }

    /// Unrolled loops over the register tile; `body` gets tile, channel block and lane.
    fn over_tile(&mut self, tile: &RegisterTile, body: impl FnOnce(&mut Self, &[Affine; 3]) -> Vec<Node>) -> Vec<Node> {
        self.repeat("t.t", tile.tiles, LoopKind::Unrolled, |this, t| {
            this.repeat("o.t", tile.blocks, LoopKind::Unrolled, |this, o| {
                this.lanes(|this, lane| body(this, &[t, o, lane]))
            })
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn multiply_add(
        &self,
        blocks: &Blocks,
        chunk: &Affine,
        tile: &RegisterTile,
        acc: BufferId,
        at: &[Affine; 3],
        c_block: &Affine,
        c_lane: &Affine,
    ) -> Node {
        let block = self.winograd.block as i64;
        let [t, o, lane] = at.clone();
        let c = c_block.clone() * block + c_lane.clone();
        let t_in_block = tile.first_tile.clone() + t;
        let data = self.inputs_index(blocks, [tile.xi.clone(), c_block.clone(), t_in_block.clone(), c_lane.clone()]);
        let weight = vec![tile.xi.clone(), tile.panel.clone(), c.clone(), o.clone(), lane.clone()];
        let channel = (chunk.clone() + tile.first_block.clone() + o) * block + lane;
        let point = vec![blocks.image.clone(), tile.xi.clone(), self.first_tile(blocks) + t_in_block, channel, c];
        let value = Expr::Mul(Box::new(load(self.inputs, data)), Box::new(load(self.weights, weight)));
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
