//! The workload of what is computed of every element by itself.

use autotune_ir::program::{BinaryOp, Compare, UnaryOp};
use autotune_workloads::{Activation, Broadcast, Function, Pointwise, PointwiseOp};

use super::anchor::{Anchor, product, workload};
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Binary, Op};
use crate::tensor::Element;

/// The workload of a node that is computed so.
pub(super) fn anchor(graph: &Graph, node: &Node) -> Option<Anchor> {
    let from = graph.node(node.operands[0]).element;
    let of = |op| pointwise(graph, node, op);
    match node.op {
        Op::Map(function) if from == Element::I64 && !stays_whole(function) => {
            // Of whole numbers, without the fraction that the function leaves.
            let shape = shape(&node.shape);
            let whole = Pointwise { shape, pre: function, ..Pointwise::new(1, 1, PointwiseOp::Trunc) };
            Some(Anchor { workload: workload(whole)?, operands: node.operands.clone(), channel: None })
        }
        Op::Map(function) => of(PointwiseOp::Unary(function)),
        Op::Binary(binary) => of(operation(binary, from)?),
        Op::Not => of(PointwiseOp::Not),
        Op::Where => of(PointwiseOp::Where),
        Op::Prelu => of(PointwiseOp::Prelu),
        Op::Cast(Element::Bool) if from != Element::Bool => of(PointwiseOp::Bool),
        Op::Cast(Element::I64) if from == Element::F32 => of(PointwiseOp::Trunc),
        _ => None,
    }
}

/// True if a function makes whole numbers of whole numbers.
fn stays_whole(function: Function) -> bool {
    match function {
        Function::Activation(activation) => matches!(activation, Activation::None | Activation::Relu),
        Function::Op(op) => matches!(op, UnaryOp::Floor | UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign),
    }
}

/// What kernels call an operation on elements of a type.
fn operation(binary: Binary, element: Element) -> Option<PointwiseOp> {
    Some(match binary {
        Binary::Add => PointwiseOp::Binary(BinaryOp::Add),
        Binary::Sub => PointwiseOp::Binary(BinaryOp::Sub),
        // Of truth values, which are 1 and 0.
        Binary::Mul | Binary::And => PointwiseOp::Binary(BinaryOp::Mul),
        Binary::Div if element == Element::I64 => PointwiseOp::Quotient,
        Binary::Div => PointwiseOp::Binary(BinaryOp::Div),
        Binary::Max => PointwiseOp::Binary(BinaryOp::Max),
        Binary::Min => PointwiseOp::Binary(BinaryOp::Min),
        Binary::Equal => PointwiseOp::Compare(Compare::Equal),
        Binary::Less => PointwiseOp::Compare(Compare::Less),
        // Of whole numbers it would not be exact.
        Binary::Pow if element == Element::I64 => return None,
        Binary::Pow => PointwiseOp::Binary(BinaryOp::Pow),
    })
}

/// An operation on tensors that are broadcast to each other. Of one that commutes a whole tensor comes first.
fn pointwise(graph: &Graph, node: &Node, op: PointwiseOp) -> Option<Anchor> {
    let mut operands = node.operands.clone();
    let commutes = match op {
        PointwiseOp::Binary(op) => matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min),
        PointwiseOp::Compare(compare) => compare == Compare::Equal,
        _ => false,
    };
    let is_whole = |id: NodeId| product(&graph.node(id).shape) == product(&node.shape);
    if commutes && !is_whole(operands[0]) && is_whole(operands[1]) {
        operands.swap(0, 1);
    }

    let shapes: Vec<&[usize]> = operands.iter().map(|&id| &*graph.node(id).shape).collect();
    let (shape, broadcasts) = broadcast(&shapes, &node.shape);
    let mut of_each = broadcasts.into_iter().chain(std::iter::repeat(Broadcast::FULL));
    let [lhs, rhs, third] = std::array::from_fn(|_| of_each.next().unwrap_or_default());
    let whole = Pointwise { shape, lhs, rhs, third, ..Pointwise::new(1, 1, op) };
    Some(Anchor { workload: workload(whole)?, operands, channel: None })
}

/// The shape of a result as of the fewest axes, and those that each of the tensors has which are broadcast to it.
///
/// ```text
/// [n] and [m, n]                [m, n]: row and full
/// [c, 1, 1] and [n, c, h, w]    [n, c, h*w]: column and full
/// [m, 1] and [1, n]             [m, n]: column and row
/// ```
fn broadcast(shapes: &[&[usize]], whole: &[usize]) -> (Vec<usize>, Vec<Broadcast>) {
    // Neighbouring axes along all of which a tensor has elements, or along none.
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
        0 | 1 => (shape(whole), broadcasts),
        _ => (runs.iter().map(|(_, extent)| *extent).collect(), broadcasts),
    }
}

/// Rows and columns of a tensor that is whole.
fn shape(whole: &[usize]) -> Vec<usize> {
    match whole {
        [] => vec![1, 1],
        &[n, c, ref spatial @ ..] if spatial.len() > 1 => vec![n * c, product(spatial)],
        [outer @ .., last] => vec![product(outer), *last],
    }
}
