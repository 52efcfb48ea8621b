//! Copies that are contiguous along one axis where they are read and along another where they are
//! stored.
//!
//! ```text
//! block b, i.b, j.b { thread y { thread x in 0..e {
//!   for k { tile[rows*k + y, x] = in[b, e*j.b + rows*k + y, e*i.b + x] };  barrier
//!   for k { out[b, e*i.b + rows*k + y, e*j.b + x] = tile[x, rows*k + y] } } } }
//! ```
//!
//! Rows of the tile have an element more, so that neither a row nor a column of it is in one bank
//! of shared memory.

use autotune_ir::program::Expr;
use autotune_ir::spec::AxisId;

use crate::map_reduce::{Chain, axis_of, is_given};

/// The axes that an operand and the result are contiguous along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turned {
    /// Of the operand.
    pub(crate) read: AxisId,
    /// Of the result.
    pub(crate) stored: AxisId,
}

impl Turned {
    /// The axes of a chain that is such a copy.
    pub(crate) fn of(chain: &Chain) -> Option<Self> {
        let [pass] = chain.passes() else { return None };
        let Expr::Load(access) = &pass.value else { return None };
        let axes: Option<Vec<AxisId>> = access.index.iter().map(axis_of).collect();
        let is_copy = is_given(&chain.spec, access) && chain.rows == pass.axes.len() && !pass.reduces();
        let (read, stored) = (*axes?.last()?, pass.output.index.last().and_then(axis_of)?);
        (is_copy && read != stored).then_some(Self { read, stored })
    }

    /// Blocks along each axis.
    pub(crate) fn blocks(self, chain: &Chain, edge: usize) -> Vec<usize> {
        let axes = chain.row_axes().iter().enumerate();
        axes.map(|(axis, of)| if self.is_tiled(axis) { of.extent.div_ceil(edge) } else { of.extent }).collect()
    }

    /// True for the axes of a tile.
    pub(crate) fn is_tiled(self, axis: AxisId) -> bool {
        [self.read, self.stored].contains(&axis)
    }
}

/// Shape of a tile in shared memory.
pub(crate) fn tile_shape(edge: usize) -> [usize; 2] {
    [edge, edge + 1]
}
