//! Import of `Col2Im`, which adds the blocks of an image at their places.

use super::prelude::*;
use super::window::{Sliding, pads, windows};
use crate::onnx::call::Result;
use crate::onnx::error::unfit;
use crate::onnx::tensor::extents;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("Col2Im", import)];

/// Imports sums of blocks `[n, c * elements of a block, blocks]`, as a product with a matrix of
/// zeros and ones along each axis of the images.
fn import(call: &mut Call) -> Result<ImportValue> {
    call.check_most(3)?;
    let x = call.operand(0)?;
    let [image, block] = [1, 2].map(|input| {
        let numbers = call.known_integers(input)?;
        let numbers = numbers.ok_or_else(|| missing(input))?;
        extents(&numbers).map_err(NodeError::Unfit)
    });
    let (image, block) = (image?, block?);
    let axes = image.len();
    if axes == 0 || block.len() != axes || block.contains(&0) {
        return unfit(format!("blocks of shape {block:?} do not match images of shape {image:?}"));
    }
    let mut windows = windows(call, &block)?;
    windows.iter_mut().zip(pads(call, axes)?).for_each(|(window, pad)| window.pad = pad);

    let counts = windows.iter().zip(&image).map(|(window, &extent)| window.outputs(extent, false));
    let counts: Vec<usize> = counts.collect::<std::result::Result<_, _>>()?;
    let (of_block, blocks) = (elements(&block)?, elements(&counts)?);
    let &[n, columns, found] = &call.shape(x)[..] else {
        return unfit(format!("blocks of shape {:?}; expected three axes", call.shape(x)));
    };
    if found != blocks || !columns.is_multiple_of(of_block) {
        return unfit(format!(
            "{columns} rows and {found} columns do not match {blocks} blocks of {of_block} elements"
        ));
    }

    // The blocks along an axis and the elements of each become one axis.
    let split = call.reshape(&[&[n, columns / of_block], &block[..], &counts].concat(), x)?;
    let pairs = (0..axes).flat_map(|axis| [2 + axis, 2 + axes + axis]);
    let mut folded = call.transpose(&[0, 1].into_iter().chain(pairs).collect::<Vec<_>>(), split)?;
    let lines: Vec<usize> = block.iter().zip(&counts).map(|(block, count)| block.saturating_mul(*count)).collect();
    folded = call.reshape(&[&[n, columns / of_block], &lines[..]].concat(), folded)?;
    for (axis, window) in windows.iter().enumerate() {
        let matrix = sums_of_blocks(call, window, image[axis], counts[axis])?;
        folded = call.product_along(folded, 2 + axis, matrix)?;
    }
    Ok(folded)
}

/// Adds the matrix that adds elements of `count` blocks, block by block for each element of one, to
/// the elements of an axis.
fn sums_of_blocks(call: &mut Call, window: &Sliding, extent: usize, count: usize) -> Result<ImportValue> {
    let line = window.kernel.saturating_mul(count);
    call.computed(&[extent, line], || {
        let mut matrix = vec![0.0; extent * line];
        for column in 0..line {
            let (element, block) = (column / count, column % count);
            let place = block * window.stride + element * window.dilation;
            // Elements in the padding are lost.
            if let Some(row) = place.checked_sub(window.pad[0]).filter(|&row| row < extent) {
                matrix[row * line + column] = 1.0;
            }
        }
        matrix
    })
}
