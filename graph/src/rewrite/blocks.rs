//! Operators that turn each element of an image into a block of elements.
//!
//! A transposed convolution with non-overlapping windows is a convolution of single elements with
//! one channel for each element of a block. The blocks are then arranged in space, `[n, k..*c,
//! s..]` → `[n, c, (s*k)..]`, as by ONNX's `DepthToSpace`. A pointwise convolution after that moves
//! before it, where fewer elements have to be arranged.

use super::new_graph::NewNode;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::operators::{Conv, ConvTranspose, Expand, Reshape, Sliding, Transpose};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "conv_transpose_by_blocks",
        before: "ConvTranspose(x, w, b) without padding, with the stride equal to the kernel size",
        after: "pointwise Conv, then depth to space (Reshape(Transpose(Reshape)))",
        apply: conv_transpose_by_blocks,
    },
    Rule {
        name: "conv_before_blocks",
        before: "pointwise Conv of a depth to space, not to more channels",
        after: "depth to space of the Conv",
        apply: conv_before_blocks,
    },
];

/// Returns the permutation that makes `[n, k.., c, s..]` into `[n, c, (s, k)..]`.
fn order(axes: usize) -> Vec<usize> {
    [0, axes + 1].into_iter().chain((0..axes).flat_map(|axis| [axes + 2 + axis, 1 + axis])).collect()
}

/// Arranges channels as spatial blocks of these extents.
fn in_blocks(site: &mut RewriteSite, x: NewNode, extents: &[usize]) -> Result<NewNode, GraphError> {
    let shape = site.shape_of(x);
    let channels = shape[1] / extents.iter().product::<usize>();
    let split = [&shape[..1], extents, &[channels], &shape[2..]].concat();
    let image = shape[2..].iter().zip(extents).map(|(pixels, block)| pixels * block);
    let whole = [shape[0], channels].into_iter().chain(image).collect();

    let split = site.add(Reshape(split), &[x])?;
    let ordered = site.add(Transpose(order(extents.len())), &[split])?;
    site.add(Reshape(whole), &[ordered])
}

/// Matches such an arrangement without other readers; returns its operand and the block extents.
fn of_blocks(site: &RewriteSite, id: NodeId) -> Option<(NodeId, Vec<usize>)> {
    let Reshape(whole) = site.of(id).op.of()?;
    let ordered = site.of(id).operands[0];
    let Transpose(perm) = site.of(ordered).op.of()?;
    let split = site.of(ordered).operands[0];
    let Reshape(shape) = site.of(split).op.of()?;
    let x = site.of(split).operands[0];
    let from = &site.of(x).shape;

    let axes = from.len().checked_sub(2).filter(|axes| shape.len() == 2 * axes + 2 && *perm == order(*axes))?;
    let (extents, pixels) = (&shape[1..=axes], &from[2..]);
    let image = pixels.iter().zip(extents).map(|(pixels, block)| pixels * block);
    let is_image = shape[0] == from[0]
        && shape[axes + 2..] == *pixels
        && whole.iter().copied().eq([shape[0], shape[axes + 1]].into_iter().chain(image));
    (is_image && [id, ordered, split].iter().all(|&id| site.is_single(id))).then(|| (x, extents.to_vec()))
}

fn conv_transpose_by_blocks(site: &mut RewriteSite) -> Rewritten {
    let Some(ConvTranspose { window, output_pad, groups: 1 }) = site.node().op.of() else { return Ok(None) };
    // Windows do not overlap if the stride equals the kernel.
    let is_disjoint = |window: &Sliding| *window == Sliding::new(window.kernel).stride(window.kernel);
    let weights = site.operand(1);
    if !window.iter().all(is_disjoint) || output_pad.iter().any(|pad| *pad != 0) || !site.is_constant(weights) {
        return Ok(None);
    }

    // Weights `[c, o, k..]` become `[k..*o, c, 1..]`; the bias is repeated for each element of a
    // block.
    let shape = &site.of(weights).shape;
    let (outputs, extents) = (shape[1], &shape[2..]);
    let axes = extents.len();
    let elements: usize = extents.iter().product();
    let mut operands = site.operands_of(site.id);
    let turned = site.add(Transpose((2..axes + 2).chain([1, 0]).collect()), &[operands[1]])?;
    let flat = [&[elements * outputs, shape[0]], &vec![1; axes][..]].concat();
    operands[1] = site.add(Reshape(flat), &[turned])?;
    if let Some(bias) = operands.get_mut(2) {
        let repeated = site.add(Expand(vec![elements, outputs]), &[*bias])?;
        *bias = site.add(Reshape(vec![elements * outputs]), &[repeated])?;
    }

    let conv = site.add(Conv { window: vec![Sliding::new(1); axes], groups: 1 }, &operands)?;
    in_blocks(site, conv, extents).map(Some)
}

fn conv_before_blocks(site: &mut RewriteSite) -> Rewritten {
    let Some(Conv { window, groups: 1 }) = site.node().op.of() else { return Ok(None) };
    let Some((x, extents)) = of_blocks(site, site.operand(0)) else { return Ok(None) };
    let weights = &site.of(site.operand(1)).shape;
    // With more output channels, more elements would have to be arranged.
    if window.iter().any(|window| *window != Sliding::new(1)) || weights[0] > weights[1] {
        return Ok(None);
    }

    // The elements of a block are treated as separate images.
    let from = &site.of(x).shape;
    let elements: usize = extents.iter().product();
    let apart = [&[from[0] * elements, weights[1]], &from[2..]].concat();
    let together = [&[from[0], elements * weights[0]], &from[2..]].concat();
    let mut operands = site.operands_of(site.id);
    let x = site.made(x);
    operands[0] = site.add(Reshape(apart), &[x])?;
    let conv = site.add(site.node().op.clone(), &operands)?;
    let conv = site.add(Reshape(together), &[conv])?;
    in_blocks(site, conv, &extents).map(Some)
}
