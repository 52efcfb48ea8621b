//! Final stores along rows of the output, where register tiles have vectors along its columns.

use super::leaf::{Local, Tile, TileRange};
use super::{DirectLowering, assign};
use crate::direct::Direct;
use autotune_ir::program::{Expr, Node};

impl DirectLowering<'_> {
    /// Returns the rows along which the output is contiguous, if it is not along the columns.
    pub(super) fn contiguous_row(&self, tile: &Tile) -> Option<TileRange> {
        let Direct { output, vector, .. } = self.direct;
        let is_along = |part: &&TileRange| part.axis != *vector && output.stride(part.axis) == 1;
        tile.parts.iter().find(is_along).copied().filter(|_| output.stride(*vector) != 1)
    }

    /// Returns the final stores along rows of the output, from a transposed copy of the sums:
    ///
    /// ```text
    /// alloc turned
    ///   turned[.., column, row] = sums[.., row, column]
    ///   output[column, row] = act(turned[.., column, row] + bias + residual)
    /// ```
    pub(super) fn finish_transposed(&mut self, tile: &Tile, row: TileRange, local: &mut Local) -> Vec<Node> {
        let others = tile.parts.iter().filter(|part| part.axis != row.axis);
        let parts: Vec<TileRange> = others.copied().chain([row]).collect();
        let acc = self.sums("turned", &parts);
        let turned = Tile { region: tile.region, parts, acc, padded: Default::default() };

        let (mut body, lanes) = (Vec::new(), self.lanes);
        // A block of columns is transposed if each has one vector.
        for start in (0..row.len).step_by(lanes) {
            let part = TileRange { start, len: lanes.min(row.len - start), ..row };
            // The last part is the whole row, in place of which one vector of it is copied.
            let mut parts = turned.parts.clone();
            parts.pop();
            parts.push(part);
            body.extend(self.over_tile(&parts, row.axis, local, |_, local| {
                let to = turned.acc_access(local);
                vec![assign(to.buffer, to.index, Expr::Load(tile.acc_access(local)))]
            }));
        }
        body.extend(
            self.over_tile(&turned.parts, row.axis, local, |this, local| vec![this.finish(&turned, local, true)]),
        );
        vec![Node::Alloc { buffer: acc, body }]
    }

    /// Returns the final stores of a register tile with accumulators in registers, from copies in
    /// thread-private memory:
    ///
    /// ```text
    /// alloc sums
    ///   sums[.., row, column] = acc[.., row, column]
    ///   alloc turned: as above
    /// ```
    pub(super) fn finish_by_rows(&mut self, tile: &Tile, row: TileRange, local: &mut Local) -> Vec<Node> {
        let acc = self.sums("sums", &tile.parts);
        let stored = Tile { region: tile.region, parts: tile.parts.clone(), acc, padded: Default::default() };
        let mut body = self.over_parts(&tile.parts, local, |_, local| {
            let to = stored.acc_access(local);
            vec![assign(to.buffer, to.index, Expr::Load(tile.acc_access(local)))]
        });
        body.extend(self.finish_transposed(&stored, row, local));
        vec![Node::Alloc { buffer: acc, body }]
    }
}
