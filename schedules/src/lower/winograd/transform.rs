//! The transforms of filters, inputs and products, each as two passes of one-dimensional transforms.

use super::*;
use crate::winograd::matrices::{Source, Sum};

/// The sum as an expression: terms with factor 1 first, so that what follows are fused multiply-adds.
fn sum(terms: &Sum, value: impl Fn(Source) -> Expr) -> Expr {
    let product = |c: f64, x: Expr| if c == 1.0 { x } else { Expr::product(Expr::Const(c as f32), x) };
    let (plain, scaled) = (terms.iter().filter(|t| t.1 == 1.0), terms.iter().filter(|t| t.1 != 1.0));
    let mut values = plain.chain(scaled).map(|&(source, c)| product(c, value(source)));
    match values.next() {
        Some(first) => values.fold(first, add),
        None => Expr::Const(0.0),
    }
}

impl Lowering<'_> {
    /// ```text
    /// for each register tile of channels, c
    ///   half[i, kw] = sum over kh of G[i, kh] * weight[o, c, kh, kw]
    ///   U[i * a + j, o, c] = sum over kw of G[j, kw] * half[i, kw]
    /// ```
    /// Channels beyond the last are left undefined.
    pub(super) fn transform_weight(&mut self) -> Vec<Node> {
        let Winograd { conv, block, register: [_, channels], .. } = *self.winograd;
        let (a, o_blocks) = (self.winograd.a(), self.winograd.o_blocks());
        let transform = self.transforms.weight.clone();
        let half = self.private("weight_half", Scope::Local, vec![a, TAPS, block]);
        let mut trees = Vec::new();
        for (first, count, size) in [(0, o_blocks / channels, channels), (o_blocks / channels, 1, o_blocks % channels)]
        {
            if count * size == 0 {
                continue;
            }
            let (panel, c) = (self.all.var("o.0", count), self.all.var("c", conv.c));
            let number = Affine::var(panel) + first as i64;
            let body = self.repeat("o.1", size, LoopKind::Serial, |this, o| {
                let channel = (number.clone() * channels as i64 + o.clone()) * block as i64;
                let body = this.lanes(|this, lane| {
                    let weight = |kh: usize, kw: usize| {
                        let tap = [kh, kw].map(|k| Affine::constant(k as i64));
                        let [kh, kw] = tap;
                        load(this.operands.weight, vec![channel.clone() + lane.clone(), Affine::var(c), kh, kw])
                    };
                    let at = |i: usize, k: usize| vec![constant(i), constant(k), lane.clone()];
                    let input = |source, k| match source {
                        Source::Input(kh) | Source::Term(kh) => weight(kh, k),
                    };
                    let mut nodes = Vec::with_capacity(a * (TAPS + a));
                    for (i, output) in transform.outputs.iter().enumerate() {
                        nodes.extend((0..TAPS).map(|k| assign(half, at(i, k), sum(output, |s| input(s, k)))));
                    }
                    for i in 0..a {
                        for (j, output) in transform.outputs.iter().enumerate() {
                            let value = sum(output, |source| match source {
                                Source::Input(k) | Source::Term(k) => load(half, at(i, k)),
                            });
                            let index =
                                vec![constant(i * a + j), number.clone(), Affine::var(c), o.clone(), lane.clone()];
                            nodes.push(assign(this.weights, index, value));
                        }
                    }
                    nodes
                });
                vec![Node::Alloc { buffer: half, body }]
            });
            let loops = vec![(panel, count, LoopKind::Parallel), (c, conv.c, LoopKind::Parallel)];
            trees.extend(nest(loops, body));
        }
        trees
    }

    /// The stage that transforms the whole input: channel blocks are tasks, too.
    pub(super) fn transform_input_stage(&mut self, blocks: &Blocks) -> Vec<Vec<Node>> {
        let c_blocks = self.winograd.c_blocks();
        vec![self.repeat("c.0", c_blocks, LoopKind::Parallel, |this, c| this.transform_input(blocks, Some(c)))]
    }

    /// The transformed input of a block, of one block of channels or of all.
    pub(super) fn transform_input(&mut self, blocks: &Blocks, c_block: Option<Affine>) -> Vec<Node> {
        self.over_segments(blocks, ["input_half", "input_terms"], |this, segments, row, private| {
            let columns = |this: &mut Self, c_block: Affine| {
                this.over_columns(segments[1], |this, column| {
                    this.input_tile(blocks, segments, &[row.clone(), column], &c_block, private)
                })
            };
            match c_block.clone() {
                Some(c_block) => columns(this, c_block),
                None => this.repeat("c.0", this.winograd.c_blocks(), LoopKind::Serial, columns),
            }
        })
    }

    /// A nest per combination of segments of rows and columns, for one row of tiles at a time, so that blocks that differ in
    /// the number of rows have the same nests; `body` gets the row within the block.
    fn over_segments(
        &mut self,
        blocks: &Blocks,
        private: [&str; 2],
        mut body: impl FnMut(&mut Self, [&Segment; 2], Affine, Private) -> Vec<Node>,
    ) -> Vec<Node> {
        let [rows, columns] = blocks.runs;
        let mut nodes = Vec::new();
        for row in &rows.segments {
            nodes.extend(self.repeat("th.1", row.count, LoopKind::Serial, |this, r| {
                let r = r + row.start as i64;
                let nest =
                    |column| this.with_private(private, |this, private| body(this, [row, column], r.clone(), private));
                columns.segments.iter().flat_map(nest).collect()
            }));
        }
        nodes
    }

    /// A serial loop over the columns of tiles of a segment; `body` gets the column within the block.
    fn over_columns(&mut self, segment: &Segment, body: impl FnOnce(&mut Self, Affine) -> Vec<Node>) -> Vec<Node> {
        self.repeat("tw.1", segment.count, LoopKind::Serial, |this, c| body(this, c + segment.start as i64))
    }

    /// Allocates the result of the first pass, `[a, a, lane]`, and registers for shared terms, by their names.
    fn with_private(
        &mut self,
        [half, terms]: [&str; 2],
        body: impl FnOnce(&mut Self, Private) -> Vec<Node>,
    ) -> Vec<Node> {
        let (a, block) = (self.winograd.a(), self.winograd.block);
        let half = self.private(half, Scope::Local, vec![a, a, block]);
        let terms = self.private(terms, Scope::Register, vec![a, block]);
        let body = body(self, Private { half, terms });
        vec![Node::Alloc { buffer: half, body: vec![Node::Alloc { buffer: terms, body }] }]
    }

    /// The row or column of tiles that a block's tile is, by the number of its first output.
    fn first_output(&self, blocks: &Blocks, dim: usize, tile: &Affine) -> Affine {
        let Winograd { m, tiles, .. } = *self.winograd;
        (blocks.number[dim].clone() * tiles[dim] as i64 + tile.clone()) * m as i64
    }

    /// ```text
    /// for each column x of the tile: half[i, x] = sum over y of Bᵀ[i, y] * input[y, x]
    /// for each row i:                V[i * a + j] = sum over x of Bᵀ[j, x] * half[i, x]
    /// ```
    fn input_tile(
        &mut self,
        blocks: &Blocks,
        [row, column]: [&Segment; 2],
        tile: &[Affine; 2],
        c_block: &Affine,
        Private { half, terms }: Private,
    ) -> Vec<Node> {
        let (a, pad) = (self.winograd.a(), self.winograd.conv.pad);
        let origin = [0, 1].map(|dim| self.first_output(blocks, dim, &tile[dim]) + -(pad[dim] as i64));
        let down = self.transforms.input.trimmed(row.inputs.clone(), a);
        let across = self.transforms.input.trimmed(column.inputs.clone(), a);
        let first = column.inputs.start as i64;
        let mut nodes = self.repeat("x", column.inputs.len(), LoopKind::Unrolled, |this, x| {
            let x = x + first;
            this.lanes(|this, lane| {
                let input = |y: usize| {
                    let [top, left] = origin.clone();
                    let index =
                        vec![blocks.image.clone(), c_block.clone(), top + y as i64, left + x.clone(), lane.clone()];
                    load(this.operands.input, index)
                };
                let output = |i: usize, value| assign(half, vec![constant(i), x.clone(), lane.clone()], value);
                apply(&down, terms, &lane, input, output)
            })
        });
        let width = blocks.runs[1].tiles as i64;
        let position = tile[0].clone() * width + tile[1].clone();
        nodes.extend(self.repeat("i", a, LoopKind::Unrolled, |this, i| {
            this.lanes(|this, lane| {
                let input = |x: usize| load(half, vec![i.clone(), constant(x), lane.clone()]);
                let output = |j: usize, value| {
                    let xi = i.clone() * a as i64 + j as i64;
                    let rest = [xi, c_block.clone(), position.clone(), lane.clone()];
                    assign(this.inputs, this.inputs_index(blocks, rest), value)
                };
                apply(&across, terms, &lane, input, output)
            })
        }));
        nodes
    }

    /// The outputs of a block for the `size` channel blocks from `chunk` on.
    pub(super) fn transform_output(&mut self, blocks: &Blocks, chunk: &Affine, size: usize) -> Vec<Node> {
        self.over_segments(blocks, ["output_half", "output_terms"], |this, segments, row, private| {
            this.repeat("o.1", size, LoopKind::Serial, |this, o_block| {
                this.over_columns(segments[1], |this, column| {
                    this.output_tile(blocks, segments, &[row.clone(), column], chunk, &o_block, private)
                })
            })
        })
    }

    /// ```text
    /// for each column j of the products: half[y, j] = sum over i of Aᵀ[y, i] * M[i * a + j]
    /// for each row y of outputs:         output[y, x] = act(sum over j of Aᵀ[x, j] * half[y, j] + bias + residual[y, x])
    /// ```
    fn output_tile(
        &mut self,
        blocks: &Blocks,
        [row, column]: [&Segment; 2],
        tile: &[Affine; 2],
        chunk: &Affine,
        o_block: &Affine,
        Private { half, terms }: Private,
    ) -> Vec<Node> {
        let a = self.winograd.a();
        let transform = &mut self.transforms.output;
        let (down, across) = (transform.trimmed(0..a, row.outputs), transform.trimmed(0..a, column.outputs));
        let position = tile[0].clone() * blocks.runs[1].tiles as i64 + tile[1].clone();
        let mut nodes = self.repeat("j", a, LoopKind::Unrolled, |this, j| {
            this.lanes(|this, lane| {
                let input = |i: usize| {
                    let xi = j.clone() + (i * a) as i64;
                    load(this.products, vec![o_block.clone(), position.clone(), xi, lane.clone()])
                };
                let output = |y: usize, value| assign(half, vec![constant(y), j.clone(), lane.clone()], value);
                apply(&down, terms, &lane, input, output)
            })
        });
        let first = [0, 1].map(|dim| self.first_output(blocks, dim, &tile[dim]));
        let block = chunk.clone() + o_block.clone();
        nodes.extend(self.repeat("y", row.outputs, LoopKind::Unrolled, |this, y| {
            this.lanes(|this, lane| {
                let input = |j: usize| load(half, vec![y.clone(), constant(j), lane.clone()]);
                let output = |x: usize, value| {
                    let [top, left] = first.clone();
                    let index =
                        vec![blocks.image.clone(), block.clone(), top + y.clone(), left + x as i64, lane.clone()];
                    let channel = block.clone() * this.winograd.block as i64 + lane.clone();
                    let value = this.operands.fused(value, &channel, &index);
                    assign(this.operands.output, index, value)
                };
                apply(&across, terms, &lane, input, output)
            })
        }));
        nodes
    }
}

/// What a transform keeps between its passes.
#[derive(Clone, Copy)]
struct Private {
    half: BufferId,
    terms: BufferId,
}

pub(crate) fn constant(value: usize) -> Affine {
    Affine::constant(value as i64)
}

/// The stores of a one-dimensional transform: shared terms into registers, then the outputs.
pub(crate) fn apply(
    transform: &Transform,
    terms: BufferId,
    lane: &Affine,
    input: impl Fn(usize) -> Expr,
    output: impl Fn(usize, Expr) -> Node,
) -> Vec<Node> {
    let term = |k: usize| vec![constant(k), lane.clone()];
    let value = |source| match source {
        Source::Input(k) => input(k),
        Source::Term(k) => load(terms, term(k)),
    };
    let shared = transform.terms.iter().enumerate().filter(|(_, t)| !t.is_empty());
    let mut nodes = Vec::with_capacity(transform.terms.len() + transform.outputs.len());
    nodes.extend(shared.map(|(k, t)| assign(terms, term(k), sum(t, value))));
    nodes.extend(transform.outputs.iter().enumerate().map(|(k, o)| output(k, sum(o, value))));
    nodes
}
