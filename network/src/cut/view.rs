//! Nodes that have no workload: their tensors are elements of others, or copies.

use super::{Cutter, Strided, Value, ValueId, Work};
use crate::graph::NodeId;
use crate::op::{Op, Range};
use crate::strided::{broadcast_strides, first_of, first_of_piece, strides};
use crate::tensor::Element;

/// Gives a node's tensor a place in memory, and the steps that fill it.
pub(super) fn place(cutter: &mut Cutter, id: NodeId) {
    let graph = cutter.graph;
    let node = graph.node(id);
    let shape_of = |operand: usize| &*graph.node(node.operands[operand]).shape;
    match &node.op {
        Op::Reshape(_) => within(cutter, id, 0),
        // Elements of every type are numbers in memory.
        Op::Cast(to) if is_same(graph.node(node.operands[0]).element, *to) => within(cutter, id, 0),
        Op::Slice(ranges) => slice(cutter, id, ranges, shape_of(0)),
        Op::Transpose(perm) if moves_nothing(perm, shape_of(0)) => within(cutter, id, 0),
        Op::Transpose(perm) => {
            let strides = strides(shape_of(0));
            copy(cutter, id, 0, perm.iter().map(|&axis| strides[axis] as isize));
        }
        Op::Expand(_) => {
            let read = broadcast_strides(shape_of(0), &node.shape);
            copy(cutter, id, 0, read.into_iter().map(|stride| stride as isize));
        }
        Op::Concat { axis } => concat(cutter, id, *axis),
        _ => {
            let operands = node.operands.iter().map(|&operand| cutter.value(operand)).collect();
            let output = cutter.own(id);
            cutter.step(id, Work::Interpret(id), operands, output);
        }
    }
}

/// True if a cast changes no numbers.
fn is_same(from: Element, to: Element) -> bool {
    from == to || from != Element::F32 && to != Element::Bool
}

/// The node's tensor is among the elements of its operand, from the first on.
fn within(cutter: &mut Cutter, id: NodeId, first: usize) {
    let outer = cutter.value(cutter.graph.node(id).operands[0]);
    // Among the elements of what that lies in, if it does: long chains of parts are one step from
    // their memory.
    let within = cutter.cut.value(outer).within.map_or((outer, first), |(root, before)| (root, before + first));
    let shape = cutter.graph.node(id).shape.clone();
    let value = cutter.add(Value { node: id, shape, within: Some(within) });
    cutter.of_nodes.insert(id, value);
}

/// The node's tensor is copied from its operand.
fn copy(cutter: &mut Cutter, id: NodeId, from: usize, read: impl IntoIterator<Item = isize>) {
    let node = cutter.graph.node(id);
    let (read, write) = (read.into_iter().collect(), strides(&node.shape));
    let strided = Strided { extents: node.shape.clone(), from, read, write };
    let operand = cutter.value(node.operands[0]);
    let output = cutter.own(id);
    cutter.step(id, Work::Copy(strided), vec![operand], output);
}

/// True if axes that have more than one element keep their order.
fn moves_nothing(perm: &[usize], shape: &[usize]) -> bool {
    perm.iter().filter(|&&axis| shape[axis] != 1).is_sorted()
}

/// What lies in one piece is no copy.
fn slice(cutter: &mut Cutter, id: NodeId, ranges: &[Range], shape: &[usize]) {
    if let Some(first) = first_of_piece(ranges, shape) {
        return within(cutter, id, first);
    }
    let read = ranges.iter().zip(strides(shape)).map(|(range, stride)| range.step * stride as isize);
    copy(cutter, id, first_of(ranges, shape), read);
}

/// The parts of a tensor are computed in place where they lie in one piece each and nothing else says where they are; else they are copied.
fn concat(cutter: &mut Cutter, id: NodeId, axis: usize) {
    let node = cutter.graph.node(id);
    let output = cutter.own(id);
    let strides = strides(&node.shape);
    let is_dense = node.shape[..axis].iter().all(|&extent| extent == 1);
    let mut first = 0;
    for &operand in &node.operands {
        let shape = cutter.graph.node(operand).shape.clone();
        let part = cutter.value(operand);
        let elements = shape[axis] * strides[axis];
        if is_dense && can_move(cutter, part) {
            cutter.cut.values[part.0 as usize].within = Some((output, first));
        } else {
            let value = cutter.add(Value { node: id, shape: shape.clone(), within: Some((output, first)) });
            let read = self::strides(&shape).into_iter().map(|stride| stride as isize).collect();
            let strided = Strided { extents: shape, from: 0, read, write: strides.clone() };
            cutter.step(id, Work::Copy(strided), vec![part], value);
        }
        first += elements;
    }
}

/// True if a value is computed by steps, and has memory of its own that may be elsewhere.
fn can_move(cutter: &Cutter, value: ValueId) -> bool {
    let Value { node, within, .. } = cutter.cut.value(value);
    let given = matches!(cutter.graph.node(*node).op, Op::Input | Op::Constant(_));
    within.is_none() && !given && !cutter.given_to_caller.contains(node)
}
