//! Tile rows of images in plain layout, transposed to or from channel blocks in buffers that are
//! private to a task.
//!
//! ```text
//! strip[y, x, lane] = input[n, c, top + y, left + x]              then transformed tile by tile
//!
//! row[lane, x] = strip[i, x, lane]                                 after the tiles' transforms
//! output[n, o, top + i, left + x] = act(row[lane, x] + bias + residual)
//! ```

use super::*;

/// Rows and columns, in elements, of the blocks that are transposed at once.
const ROWS: [usize; 1] = [4];
const COLUMNS: [usize; 2] = [4, 8];
/// Maximum number of blocks that are written out in a row.
const MAX_UNROLLED: usize = 2;

impl WinogradLowering<'_> {
    /// Copies the inputs of a tile row's tiles to `to`.
    pub(super) fn read_tile_row(&mut self, to: BufferId, image: &Affine, strip: &TileRow<TileInterior>) -> Vec<Node> {
        let Winograd { m, conv, block, .. } = *self.winograd;
        if conv.phases() > 1 {
            return self.read_phases(to, image, strip);
        }
        let from = self.product.operands.input;
        let [rows, columns] = strip.each.map(|inside| inside.inputs.clone());
        // Tiles that are padding as a whole read nothing.
        if rows.is_empty() || columns.is_empty() {
            return Vec::new();
        }

        let width = (strip.tiles - 1) * m * conv.stride + columns.len();
        let [top, left] = [0, 1].map(|dim| strip.output[dim].clone() * conv.stride as i64 + -(conv.pad[dim] as i64));
        let channel = strip.channel.clone() * block as i64;
        self.repeat("y", rows.len(), LoopKind::Serial, |this, y| {
            let y = y + rows.start as i64;
            this.transposed([("x", width), ("lane", strip.lanes)], |x, lane| {
                let x = x + columns.start as i64;
                let pixel = [image.clone(), channel.clone() + &lane, top.clone() + &y, left.clone() + &x];
                assign(to, [y.clone(), x, lane], load(from, pixel))
            })
        })
    }

    /// Copies the outputs of a tile row's tiles from `from` to the output tensor, with the
    /// epilogue. Each row of pixels is transposed in the buffer `row`.
    pub(super) fn write_tile_row(
        &mut self,
        [from, row]: [BufferId; 2],
        image: &Affine,
        tile_row: &TileRow<usize>,
    ) -> Vec<Node> {
        let [&rows, &columns] = tile_row.each;
        let width = (tile_row.tiles - 1) * self.winograd.m + columns;
        self.repeat("i", rows, LoopKind::Serial, |this, i| {
            let mut body = this.transposed([("lane", tile_row.lanes), ("x", width)], |lane, x| {
                assign(row, [lane.clone(), x.clone()], load(from, [i.clone(), x, lane]))
            });
            body.extend(this.finish_row(row, image, tile_row, (&i, width)));
            allocated([row], body)
        })
    }

    /// Writes a row of sums to the output, with the epilogue.
    fn finish_row(
        &mut self,
        row: BufferId,
        image: &Affine,
        tile_row: &TileRow<usize>,
        (i, width): (&Affine, usize),
    ) -> Vec<Node> {
        let (operands, block) = (self.product.operands.clone(), self.winograd.block);
        let [top, left] = &tile_row.output;
        self.repeat("lane", tile_row.lanes, LoopKind::Serial, |this, lane| {
            let channel = tile_row.channel.clone() * block as i64 + &lane;
            let mut nodes = Vec::new();
            for vectors in Segment::tiles(width, block) {
                nodes.extend(this.repeat("x", vectors.count, LoopKind::Serial, |this, number| {
                    let first = number * vectors.extent as i64 + vectors.start as i64;
                    this.repeat("x.v", vectors.extent, LoopKind::Vectorized, |_, x| {
                        let x = first + &x;
                        let index = [image.clone(), channel.clone(), top.clone() + i, left.clone() + &x];
                        let value = operands.fused(load(row, [lane.clone(), x]), &channel, &index);
                        vec![assign(operands.output, index, value)]
                    })
                }));
            }
            nodes
        })
    }

    /// Copies by blocks, because columns are far apart in the source; `copy` gets row and column.
    fn transposed(
        &mut self,
        [(row, rows), (column, columns)]: [(&'static str, usize); 2],
        copy: impl Fn(Affine, Affine) -> Node,
    ) -> Vec<Node> {
        let kind = |count| if count <= MAX_UNROLLED { LoopKind::Unrolled } else { LoopKind::Serial };
        let mut nodes = Vec::new();
        for (down, across) in groups(rows, &ROWS).flat_map(|down| groups(columns, &COLUMNS).map(move |a| (down, a))) {
            nodes.extend(self.repeat(row, down.count, kind(down.count), |this, r| {
                let r = r * down.extent as i64 + down.start as i64;
                this.repeat(column, across.count, kind(across.count), |this, c| {
                    let c = c * across.extent as i64 + across.start as i64;
                    this.repeat(row, down.extent, LoopKind::Unrolled, |this, u| {
                        let r = r + &u;
                        this.repeat(column, across.extent, LoopKind::Vectorized, |_, v| vec![copy(r, c + &v)])
                    })
                })
            }));
        }
        nodes
    }
}

/// Splits an extent into segments of the largest of `sizes` that fits, and one more segment for the
/// remainder, which may overlap the others.
fn groups(extent: usize, sizes: &'static [usize]) -> impl Iterator<Item = Segment> {
    let fits = move || sizes.iter().copied().filter(move |&size| size <= extent);
    let whole = fits().max().unwrap_or(extent);
    let rest = extent % whole;
    let last = fits().filter(|&size| size >= rest).min().unwrap_or(rest);
    let groups = [
        Segment { start: 0, count: extent / whole, extent: whole },
        Segment { start: extent - last, count: 1, extent: last },
    ];
    groups.into_iter().take(if rest > 0 { 2 } else { 1 })
}
