//! Workloads of elementwise operators.

use autotune_ir::program::{BinaryOp, Compare};
use autotune_workloads::{Broadcast, Pointwise, PointwiseOp, Workload};

use crate::op::{Anchor, NodeView, Read};

/// Returns an elementwise workload on broadcast tensors. For a commutative operation the
/// unbroadcast operand comes first.
pub(super) fn pointwise(node: &NodeView, op: PointwiseOp) -> Option<Anchor> {
    let commutes = match op {
        PointwiseOp::Binary(op) => matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min),
        PointwiseOp::Compare(compare) => compare == Compare::Equal,
        _ => false,
    };
    let mut operands: Vec<usize> = (0..node.count()).collect();
    let whole = node.output().0;
    let is_whole = |operand: usize| product(node.shape(operand)) == product(whole);
    if commutes && !is_whole(0) && is_whole(1) {
        operands.swap(0, 1);
    }

    let shapes: Vec<&[usize]> = operands.iter().map(|&operand| node.shape(operand)).collect();
    let (shape, broadcasts) = broadcast(&shapes, whole);
    let mut of_each = broadcasts.into_iter().chain(std::iter::repeat(Broadcast::FULL));
    let [lhs, rhs, third] = std::array::from_fn(|_| of_each.next().unwrap_or_default());
    let anchor = anchor(Pointwise { shape, lhs, rhs, third, ..Pointwise::new(1, 1, op) }, node)?;
    Some(Anchor { reads: operands.into_iter().map(Read::Operand).collect(), ..anchor })
}

fn product(extents: &[usize]) -> usize {
    extents.iter().product()
}

/// Returns an elementwise workload as the step of a node.
pub(super) fn anchor(whole: Pointwise, node: &NodeView) -> Option<Anchor> {
    Some(Anchor::new(Workload::new(whole).ok()?, node))
}

/// Returns the output's shape with as few axes as possible, and the axes along which each tensor
/// varies.
///
/// ```text
/// [n] and [m, n]                [m, n]: row and full
/// [c, 1, 1] and [n, c, h, w]    [n, c, h*w]: column and full
/// [m, 1] and [1, n]             [m, n]: column and row
/// ```
fn broadcast(shapes: &[&[usize]], whole: &[usize]) -> (Vec<usize>, Vec<Broadcast>) {
    // Runs of adjacent axes along which the same tensors vary; each becomes one axis.
    let mut runs: Vec<(Vec<bool>, usize)> = Vec::new();
    for (axis, &extent) in whole.iter().enumerate().filter(|(_, extent)| **extent != 1) {
        let own = |shape: &&[usize]| (axis + shape.len()).checked_sub(whole.len()).map(|axis| shape[axis]);
        let has: Vec<bool> = shapes.iter().map(|shape| own(shape) == Some(extent)).collect();
        match runs.last_mut() {
            Some((last, product)) if *last == has => *product *= extent,
            _ => runs.push((has, extent)),
        }
    }

    let of = |operand: usize| {
        let has: Vec<bool> = runs.iter().map(|(has, _)| has[operand]).collect();
        if has == [false] { Broadcast::SCALAR } else { Broadcast::of(&has) }
    };
    let broadcasts = (0..shapes.len()).map(of).collect();
    match runs.len() {
        0 | 1 => (rows_and_columns(whole), broadcasts),
        _ => (runs.iter().map(|(_, extent)| *extent).collect(), broadcasts),
    }
}

/// Returns rows and columns of an unbroadcast tensor.
pub fn rows_and_columns(whole: &[usize]) -> Vec<usize> {
    match whole {
        [] => vec![1, 1],
        &[n, c, ref spatial @ ..] if spatial.len() > 1 => vec![n * c, product(spatial)],
        [outer @ .., last] => vec![product(outer), *last],
    }
}
