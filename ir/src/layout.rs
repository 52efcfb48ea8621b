//! Layouts: the order of a logical tensor's elements in memory.
//!
//! ```
//! use autotune_ir::layout::{from_layout, to_layout};
//! use autotune_ir::program::Layout;
//! use ndarray::ArrayD;
//!
//! let logical = ArrayD::from_shape_fn(vec![1, 4, 1, 2], |i| (10 * i[1] + i[3]) as f32);
//! let physical = to_layout(&logical, Layout::ChannelBlocked(2)).unwrap();
//! assert_eq!(physical, [0.0, 10.0, 1.0, 11.0, 20.0, 30.0, 21.0, 31.0]);
//! assert_eq!(from_layout(&physical, &[1, 4, 1, 2], Layout::ChannelBlocked(2)).unwrap(), logical);
//! ```

use ndarray::{ArrayD, ArrayViewD, Axis, IxDyn};
use thiserror::Error;

use crate::program::Layout;

/// Error of a layout that does not fit a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The layout is channel-blocked, but the tensor is not `[n, c, ..]`, such as `[n, c, h, w]`.
    #[error("a channel-blocked layout needs a shape [n, c, ..] of at least 3 dimensions, not {shape:?}")]
    Rank {
        /// Logical shape of the tensor.
        shape: Vec<usize>,
    },
    /// The block size does not divide the number of channels.
    #[error("the block size {block} does not divide {channels} channels")]
    Block {
        /// Channels of the tensor.
        channels: usize,
        /// Number of channels per block.
        block: usize,
    },
    /// The number of physical elements is not that of the shape.
    #[error("{found} elements do not fit a tensor of shape {shape:?}")]
    Len {
        /// Logical shape of the tensor.
        shape: Vec<usize>,
        /// Number of physical elements.
        found: usize,
    },
}

/// Returns the physical shape, outermost first, of a tensor of shape `logical` in `layout`:
/// `[n, c / block, .., block]` if it is channel-blocked.
pub fn physical_shape(logical: &[usize], layout: Layout) -> Result<Vec<usize>, LayoutError> {
    let Layout::ChannelBlocked(block) = layout else {
        return Ok(logical.to_vec());
    };
    let &[n, c, ref pixels @ ..] = logical else {
        return Err(LayoutError::Rank { shape: logical.to_vec() });
    };
    if pixels.is_empty() {
        return Err(LayoutError::Rank { shape: logical.to_vec() });
    }
    if block == 0 || !c.is_multiple_of(block) {
        return Err(LayoutError::Block { channels: c, block });
    }
    Ok([&[n, c / block], pixels, &[block]].concat())
}

/// Returns the elements of a logical tensor in the order of `layout`.
pub fn to_layout(logical: &ArrayD<f32>, layout: Layout) -> Result<Vec<f32>, LayoutError> {
    let mut physical = vec![0.0; logical.len()];
    put_in_layout(logical, layout, &mut physical)?;
    Ok(physical)
}

/// Copies the elements of a logical tensor to `physical` in the order of `layout`.
pub fn put_in_layout(logical: &ArrayD<f32>, layout: Layout, physical: &mut [f32]) -> Result<(), LayoutError> {
    let shape = physical_shape(logical.shape(), layout)?;
    if physical.len() != logical.len() {
        return Err(LayoutError::Len { shape, found: physical.len() });
    }
    let (&[images, blocks, ref pixels @ .., block], Layout::ChannelBlocked(_)) = (shape.as_slice(), layout) else {
        physical.iter_mut().zip(logical).for_each(|(to, &x)| *to = x);
        return Ok(());
    };
    // The maximum avoids blocks of length zero if the tensor is empty.
    let of_blocks = physical.chunks_exact_mut((pixels.iter().product::<usize>() * block).max(1));
    let channels_last: Vec<usize> = (1..=pixels.len()).chain([0]).collect();
    for (index, physical) in of_blocks.enumerate().take(images * blocks) {
        let (image, first) = (index / blocks, index % blocks * block);
        let image = logical.index_axis(Axis(0), image);
        let channels = image.slice_axis(Axis(0), (first..first + block).into());
        let pixels = channels.permuted_axes(IxDyn(&channels_last));
        physical.iter_mut().zip(&pixels).for_each(|(to, &x)| *to = x);
    }
    Ok(())
}

/// Returns the logical tensor of shape `logical` whose elements are `physical` in `layout`.
pub fn from_layout(physical: &[f32], logical: &[usize], layout: Layout) -> Result<ArrayD<f32>, LayoutError> {
    let shape = physical_shape(logical, layout)?;
    let found = physical.len();
    let view = ArrayViewD::from_shape(IxDyn(&shape), physical)
        .map_err(|_| LayoutError::Len { shape: logical.to_vec(), found })?;
    if layout == Layout::Plain {
        return Ok(view.to_owned());
    }
    let lanes = shape.len() - 1;

    // In [n, c / block, block, ..] order, the two channel axes can be merged.
    let order: Vec<usize> = [0, 1, lanes].into_iter().chain(2..lanes).collect();
    let merged = view.permuted_axes(IxDyn(&order));
    let merged = merged.as_standard_layout();
    reshape(merged.view(), logical).map(|tensor| tensor.to_owned())
}

/// Returns a view of a row-major tensor with another shape of the same number of elements.
fn reshape<'a>(tensor: ArrayViewD<'a, f32>, shape: &[usize]) -> Result<ArrayViewD<'a, f32>, LayoutError> {
    let found = tensor.len();
    tensor.into_shape_with_order(IxDyn(shape)).map_err(|_| LayoutError::Len { shape: shape.to_vec(), found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_layout_puts_the_channels_of_a_block_side_by_side() {
        let shape = [2, 6, 3, 5];
        let logical = ArrayD::from_shape_fn(shape.to_vec(), |i| (i[0] * 1000 + i[1] * 100 + i[2] * 10 + i[3]) as f32);
        let layout = Layout::ChannelBlocked(3);
        let physical = to_layout(&logical, layout).unwrap();
        let view = ArrayViewD::from_shape(vec![2, 2, 3, 5, 3], &physical).unwrap();
        assert_eq!(physical_shape(&shape, layout).unwrap(), view.shape());
        for (i, &x) in logical.indexed_iter() {
            assert_eq!(view[[i[0], i[1] / 3, i[2], i[3], i[1] % 3]], x);
        }
        assert_eq!(from_layout(&physical, &shape, layout).unwrap(), logical);
        let plain = to_layout(&logical, Layout::Plain).unwrap();
        assert_eq!(plain, logical.as_slice().unwrap());
        assert_eq!(from_layout(&plain, &shape, Layout::Plain).unwrap(), logical);
    }

    #[test]
    fn a_transposed_view_is_read_in_logical_order() {
        let logical = ArrayD::from_shape_fn(vec![2, 3], |i| (i[0] * 3 + i[1]) as f32);
        let transposed = logical.t().to_owned();
        assert_eq!(to_layout(&transposed, Layout::Plain).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }

    #[test]
    fn misfits_are_errors() {
        let blocked = Layout::ChannelBlocked;
        let channels = 6;
        assert_eq!(physical_shape(&[1, 6, 2, 2], blocked(4)), Err(LayoutError::Block { channels, block: 4 }));
        assert_eq!(physical_shape(&[1, 6, 2, 2], blocked(0)), Err(LayoutError::Block { channels, block: 0 }));
        assert!(matches!(physical_shape(&[6, 2], blocked(2)), Err(LayoutError::Rank { .. })));
        assert!(matches!(from_layout(&[0.0; 5], &[6], Layout::Plain), Err(LayoutError::Len { .. })));
    }
}
