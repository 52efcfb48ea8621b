//! Reading of input tiles whose phases are channels, with the padding written as zeros.

use super::*;

impl WinogradLowering<'_> {
    /// Copies the inputs of a tile row's tiles to `to`, with zeros for the padding `p`.
    ///
    /// ```text
    /// to[y, x, (c, fh, fw)] = input[n, c, s*(top + y) + fh - p, s*(left + x) + fw - p]
    /// ```
    pub(super) fn read_phases(&mut self, to: BufferId, image: &Affine, strip: &TileRow<TileInterior>) -> Vec<Node> {
        let (phases, width) = (self.winograd.conv.phases(), self.phased_width(strip));
        let [down, across] = strip.each.map(|inside| &inside.phases);
        let is_padded = [down, across].iter().any(|runs| runs.iter().any(|run| run.each != (0..phases)));

        // Padding is not read, so it is zeroed first.
        let mut nodes = if is_padded { self.clear(to, strip, width) } else { Vec::new() };
        for rows in down.iter().filter(|rows| !rows.each.is_empty()) {
            nodes.extend(self.repeat("y", rows.count, LoopKind::Serial, |this, y| {
                let y = y + rows.first as i64;
                let copied = |columns: &EqualRun<Range<usize>>| {
                    // Equal tiles either all have padding or all have none. Several tiles have
                    // none, so that their columns are one run.
                    debug_assert!(strip.tiles == 1 || across.len() == 1);
                    let count = if strip.tiles > 1 { width } else { columns.count };
                    this.repeat("x", count, LoopKind::Serial, |this, x| {
                        let place = [y.clone(), x + columns.first as i64];
                        this.read_pixel(to, image, strip, place, [&rows.each, &columns.each])
                    })
                };
                across.iter().filter(|columns| !columns.each.is_empty()).flat_map(copied).collect()
            }));
        }
        nodes
    }

    /// Returns the number of input columns that the tiles of a tile row read.
    fn phased_width(&self, strip: &TileRow<TileInterior>) -> usize {
        (strip.tiles - 1) * self.winograd.tile_stride() + self.winograd.a()
    }

    /// Sets all elements of a tile row's buffer to zero.
    fn clear(&mut self, to: BufferId, strip: &TileRow<TileInterior>, width: usize) -> Vec<Node> {
        self.repeat("y", self.winograd.a(), LoopKind::Serial, |this, y| {
            this.repeat("x", width, LoopKind::Serial, |this, x| {
                this.repeat("lane", strip.lanes, LoopKind::Vectorized, |_, lane| {
                    vec![assign(to, [y, x, lane], Expr::Const(0.0))]
                })
            })
        })
    }

    /// Reads the channels of one row and column: of each channel, the phases that are not padding.
    fn read_pixel(
        &mut self,
        to: BufferId,
        image: &Affine,
        tile_row: &TileRow<TileInterior>,
        place: [Affine; 2],
        [down, across]: [&Range<usize>; 2],
    ) -> Vec<Node> {
        let conv = self.winograd.conv;
        let (phases, from) = (conv.phases(), self.product.operands.input);
        // Each phase of a channel has a lane, so a block has fewer channels than lanes.
        let [per_block, count] = [self.winograd.depth_block(), tile_row.lanes].map(|lanes| lanes / (phases * phases));
        let pixel = [0, 1].map(|dim| {
            let output = tile_row.output[dim].clone() + &place[dim];
            output * conv.stride as i64 + -(conv.pad[dim] as i64)
        });
        let ([y, x], [top, left]) = (place, pixel);

        self.repeat("c", count, LoopKind::Unrolled, |this, c| {
            let channel = tile_row.channel.clone() * per_block as i64 + &c;
            this.repeat("fh", down.len(), LoopKind::Unrolled, |this, fh| {
                let fh = fh + down.start as i64;
                this.repeat("fw", across.len(), LoopKind::Vectorized, |_, fw| {
                    let fw = fw + across.start as i64;
                    let lane = (c * phases as i64 + &fh) * phases as i64 + &fw;
                    let value = load(from, [image.clone(), channel, top + &fh, left + &fw]);
                    vec![assign(to, [y, x, lane], value)]
                })
            })
        })
    }
}
