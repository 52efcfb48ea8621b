//! Transposing copies: they read along one contiguous axis and store along another.
//!
//! ```text
//! block b, i.b, j.b { thread y { thread x in 0..e {
//!   for k { tile[rows*k + y, x] = in[b, e*j.b + rows*k + y, e*i.b + x] };  barrier
//!   for k { out[b, e*i.b + rows*k + y, e*j.b + x] = tile[x, rows*k + y] } } } }
//! ```
//!
//! Rows of the tile have one padding element, so that the elements of a row, and those of a column,
//! are in different banks of shared memory.

use autotune_ir::program::Expr;
use autotune_ir::spec::AxisId;

use crate::map_reduce::{Chain, axis_of, contiguous_axis, is_given};

/// Contiguous axes of a transposing copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContiguousAxes {
    /// Axis along which the operand is contiguous.
    pub(crate) read: AxisId,
    /// Axis along which the result is contiguous.
    pub(crate) stored: AxisId,
}

impl ContiguousAxes {
    /// Returns the axes of a chain that is a transposing copy.
    pub(crate) fn of(chain: &Chain) -> Option<Self> {
        let [pass] = chain.passes() else { return None };
        let Expr::Load(access) = &pass.value else { return None };
        let axes: Option<Vec<AxisId>> = access.index.iter().map(axis_of).collect();
        let is_copy = is_given(&chain.spec, access) && chain.rows == pass.axes.len() && !pass.reduces();
        let (read, stored) = (*axes?.last()?, contiguous_axis(&pass.output)?);
        (is_copy && read != stored).then_some(Self { read, stored })
    }

    /// Number of blocks along each axis, for tiles of `edge * edge` elements.
    pub(crate) fn blocks(self, chain: &Chain, edge: usize) -> Vec<usize> {
        let axes = chain.row_axes().iter().enumerate();
        axes.map(|(axis, of)| if self.is_tiled(axis) { of.extent.div_ceil(edge) } else { of.extent }).collect()
    }

    /// True for the two axes of a tile.
    pub(crate) fn is_tiled(self, axis: AxisId) -> bool {
        [self.read, self.stored].contains(&axis)
    }
}

/// Shape of a tile in shared memory, with padding.
pub(crate) fn tile_shape(edge: usize) -> [usize; 2] {
    [edge, edge + 1]
}
