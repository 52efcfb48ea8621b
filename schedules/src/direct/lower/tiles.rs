//! The register tile of tile instructions: sums in tile registers, which are stored to
//! thread-private memory before the epilogue reads them.

use super::leaf::{Local, Tile, TileRange};
use super::{DirectLowering, Level, Region, assign, nest};
use crate::contraction::AxisId;
use crate::direct::Group;
use crate::lower::nest::{StageBuilder, shaped_name};
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Expr, LoopKind, Node, Scope};

impl DirectLowering<'_> {
    /// Returns the nodes of a register tile:
    ///
    /// ```text
    /// alloc sums
    ///   call tile instruction
    ///     sums[..] = 0
    ///     reduction loops: sums[..] += data[..] * weight[..]
    ///   output[..] = act(sums[..] + bias + residual)
    /// ```
    pub(super) fn tile_leaf(&mut self, group: Group, region: &Region) -> Vec<Node> {
        let tile = self.tile_of_sums(region);
        let mut local: Local = vec![Affine::default(); region.len()];

        let vector = self.direct.vector;
        let mut body = self.over_tile(&tile.parts, vector, &mut local, |_, local| {
            let sum = tile.acc_access(local);
            vec![assign(sum.buffer, sum.index, Expr::Const(0.0))]
        });
        // Axes within a row of words are the innermost loops of the instruction's own nest.
        let in_row = |axis: &AxisId| group.row.contains(&Some(*axis));
        let axes: Vec<AxisId> = self.direct.reduce.iter().copied().filter(|axis| !in_row(axis)).collect();
        body.extend(self.tile_product(&axes, group, &tile, &mut local));
        let call = Node::Call { instruction: group.instruction, body };

        let finish = match self.contiguous_row(&tile) {
            Some(row) => self.finish_transposed(&tile, row, &mut local),
            None => {
                self.over_tile(&tile.parts, vector, &mut local, |this, local| vec![this.finish(&tile, local, true)])
            }
        };
        let body = [call].into_iter().chain(finish).collect();
        vec![Node::Alloc { buffer: tile.acc, body }]
    }

    /// Creates the register tile that covers a region, with its sums in memory.
    fn tile_of_sums<'r>(&mut self, region: &'r Region) -> Tile<'r> {
        let parts = self.parts(region);
        let acc = self.sums("sums", &parts);
        Tile { region, parts, acc, padded: Default::default() }
    }

    /// Returns a thread-private buffer for the sums of a register tile. Tiles of the same shape
    /// share one.
    pub(super) fn sums(&mut self, name: &str, parts: &[TileRange]) -> BufferId {
        let shape: Vec<usize> = parts.iter().map(|p| p.len).collect();
        let name = shaped_name(name, &shape);
        self.all.find_named(&name).unwrap_or_else(|| self.all.partial_sums(&name, Scope::Local, shape))
    }

    /// Returns serial loops over the reduction axes `axes`, outermost first, around the products of
    /// one row of words.
    fn tile_product(&mut self, axes: &[AxisId], group: Group, tile: &Tile, local: &mut Local) -> Vec<Node> {
        if let Some((&axis, rest)) = axes.split_first() {
            let extent = tile.region[axis].extent;
            return self.repeat(self.axis_name(axis, Level::Reduce), extent, LoopKind::Serial, |this, value| {
                local[axis] = value;
                this.tile_product(rest, group, tile, local)
            });
        }

        let Some((vector, others)) = tile.parts.split_last() else { return Vec::new() };
        let columns = vector.axis;
        self.over_tile(others, columns, local, |this, local| {
            let (mut local, mut loops) = (local.clone(), Vec::new());
            for axis in group.row_axes().chain([group.axis]) {
                let extent = this.direct.contraction.axes[axis].extent;
                let var = this.axis_var(axis, Level::Unroll, extent);
                local[axis] = Affine::var(var);
                loops.push((var, extent, LoopKind::Unrolled));
            }
            let lanes = this.over_tile(&[*vector], columns, &mut local, |this, local| vec![this.product(tile, local)]);
            nest(loops, lanes)
        })
    }

    /// Returns unrolled loops over the parts, vectorised along one axis. All have a loop, even for
    /// one element.
    pub(super) fn over_tile(
        &mut self,
        parts: &[TileRange],
        vector: AxisId,
        local: &mut Local,
        body: impl FnOnce(&mut Self, &Local) -> Vec<Node>,
    ) -> Vec<Node> {
        let mut loops = Vec::new();
        for part in parts {
            let var = self.axis_var(part.axis, Level::Tile, part.len);
            local[part.axis] = Affine::var(var) + part.start as i64;
            let kind = if part.axis == vector { LoopKind::Vectorized } else { LoopKind::Unrolled };
            loops.push((var, part.len, kind));
        }
        let body = body(self, local);
        nest(loops, body)
    }
}
