//! The workload of a node.

use autotune_ir::program::BinaryOp;
use autotune_schedules::Workload;
use autotune_schedules::workload::{
    Attention, Broadcast, Conv1d, Conv2d, Conv3d, ConvTranspose2d, Coordinates, Epilogue, Function, Gather, GroupNorm,
    LayerNorm, LocalResponseNorm, Matmul, Operator, Pad, Pointwise, PointwiseOp, Pool2d, PoolKind, Reduce, ReduceOp,
    Resample, Sampling, Softmax, Transpose, Window,
};

use crate::graph::{Graph, Node, NodeId};
use crate::op::{Binary, Op, Sliding};

/// A workload that computes a node's tensor.
pub(super) struct Anchor {
    pub(super) workload: Workload,
    /// Its operands, in the order of its spec.
    pub(super) operands: Vec<NodeId>,
    /// The axis of the node's tensor along which an epilogue has scale and bias, if there is one.
    pub(super) channel: Option<usize>,
}

/// The workload of a node, if there is one.
pub(super) fn anchor(graph: &Graph, id: NodeId) -> Option<Anchor> {
    let node = graph.node(id);
    let shapes: Vec<&[usize]> = node.operands.iter().map(|&operand| &*graph.node(operand).shape).collect();
    let of = |op: &dyn Fn() -> Option<Workload>, channel| {
        Some(Anchor { workload: op()?, operands: node.operands.clone(), channel })
    };
    let last = node.shape.len().checked_sub(1);
    match &node.op {
        Op::Conv { window, groups } => of(&|| conv(window, *groups, &shapes), Some(1)),
        Op::ConvTranspose { window, output_pad, groups } => {
            of(&|| conv_transpose(window, output_pad, *groups, &shapes), Some(1))
        }
        Op::MatMul => matmul(graph, node),
        Op::Attention { scale } => of(&|| attention(*scale, &shapes), last),
        Op::Pool { window, ceil, kind } => of(&|| pool(window, *ceil, *kind, shapes[0]), Some(1)),
        Op::Reduce { op, axes, .. } => of(&|| reduce(*op, axes, shapes[0]), None),
        Op::Softmax { axis, log } => of(&|| softmax(*axis, *log, shapes[0]), None),
        Op::LayerNorm { axis, eps } => of(&|| layer_norm(*axis, *eps, &shapes), None),
        Op::GroupNorm { groups, eps } => of(&|| group_norm(*groups, *eps, shapes[0]), None),
        Op::LocalResponseNorm { size, alpha, beta, bias } => {
            of(&|| local_response_norm([*alpha, *beta, *bias], *size, shapes[0]), None)
        }
        Op::Map(function) => of(&|| map(*function, shapes[0]), None),
        Op::Binary(binary) => self::binary(graph, node, *binary),
        Op::Pad { pad, mode, value } => of(
            &|| {
                let (&[n, c, h, w], &[[0, 0], [0, 0], [above, below], [left, right]]) = (shapes[0], &pad[..]) else {
                    return None;
                };
                workload(Pad { n, c, h, w, pad: [above, below, left, right], mode: *mode, value: *value + 0.0 })
            },
            None,
        ),
        Op::Resize { size, coordinates, sampling } => of(&|| resize(*size, *coordinates, *sampling, shapes[0]), None),
        Op::Gather { axis: 0 } => of(&|| gather(shapes[0], shapes[1]), None),
        Op::Transpose(perm) => of(&|| transpose(perm, shapes[0]), None),
        _ => None,
    }
}

fn workload(op: impl Operator) -> Option<Workload> {
    Workload::new(op).ok()
}

fn product(extents: &[usize]) -> usize {
    extents.iter().product()
}

/// Padding of an axis, if it is the same at both ends.
fn even(window: &Sliding) -> Option<usize> {
    (window.pad[0] == window.pad[1]).then_some(window.pad[0])
}

fn conv(window: &[Sliding], groups: usize, shapes: &[&[usize]]) -> Option<Workload> {
    let (&[n, c, ref extents @ ..], o) = (shapes[0], shapes[1][0]) else { return None };
    let windows = window.iter().zip(extents).map(|(window, &extent)| {
        let Sliding { kernel, stride, dilation, .. } = *window;
        Some(Window { extent, kernel, stride, pad: even(window)?, dilation })
    });
    let bare = match windows.collect::<Option<Vec<Window>>>()?[..] {
        [window] => workload(Conv1d { n, c, o, window, groups }),
        [rows, columns] => workload(Conv2d {
            n,
            c,
            h: rows.extent,
            w: columns.extent,
            o,
            kh: rows.kernel,
            kw: columns.kernel,
            stride: [rows.stride, columns.stride],
            pad: [rows.pad, columns.pad],
            dilation: [rows.dilation, columns.dilation],
            groups,
        }),
        [a, b, d] => workload(Conv3d { n, c, o, windows: [a, b, d], groups }),
        _ => None,
    };
    Some(biased(bare?, shapes.len() == 3))
}

fn biased(bare: Workload, bias: bool) -> Workload {
    bare.with_epilogue(Epilogue { bias, ..bare.epilogue() })
}

fn conv_transpose(window: &[Sliding], output_pad: &[usize], groups: usize, shapes: &[&[usize]]) -> Option<Workload> {
    let (&[n, c, h, w], [a, b]) = (shapes[0], window) else { return None };
    if a.dilation != 1 || b.dilation != 1 {
        return None;
    }
    let bare = workload(ConvTranspose2d {
        n,
        c,
        h,
        w,
        o: shapes[1][1].checked_mul(groups)?,
        kernel: [a.kernel, b.kernel],
        stride: [a.stride, b.stride],
        pad: [even(a)?, even(b)?],
        output_pad: [output_pad[0], output_pad[1]],
        groups,
    });
    Some(biased(bare?, shapes.len() == 3))
}

/// A product, with what transposes an operand in it.
///
/// `MatMul(a, Transpose(b))` → `matmul:..,tb` of `a` and `b`.
fn matmul(graph: &Graph, node: &Node) -> Option<Anchor> {
    let [(a, ta), (b, tb)] = [0, 1].map(|operand| untransposed(graph, node.operands[operand]));
    let [left, right] = [a, b].map(|id| &*graph.node(id).shape);
    let ([a_batch @ .., a_rows, a_columns], [b_batch @ .., b_rows, b_columns]) = (left, right) else { return None };
    let (m, k) = if ta { (*a_columns, *a_rows) } else { (*a_rows, *a_columns) };
    let n = if tb { *b_rows } else { *b_columns };
    let is_constant = graph.constant_of(b).is_some();

    // One matrix for all rows of a batch, unless those lie apart.
    let (b_extent, m) = match product(b_batch) {
        1 if !ta || product(a_batch) == 1 => (1, product(a_batch).checked_mul(m)?),
        _ if a_batch == b_batch => (product(a_batch), m),
        _ => return None,
    };
    let op = Matmul { b: b_extent, m, n, k, ta, tb, weight_is_constant: is_constant };
    Some(Anchor { workload: workload(op)?, operands: vec![a, b], channel: node.shape.len().checked_sub(1) })
}

/// What a node is the transposed of, its last two axes exchanged, and true; else the node.
fn untransposed(graph: &Graph, id: NodeId) -> (NodeId, bool) {
    let node = graph.node(id);
    let Op::Transpose(perm) = &node.op else { return (id, false) };
    let rank = perm.len();
    let is_exchange =
        rank >= 2 && perm[rank - 2..] == [rank - 1, rank - 2] && perm[..rank - 2].iter().copied().eq(0..rank - 2);
    if is_exchange { (node.operands[0], true) } else { (id, false) }
}

fn attention(scale: f32, shapes: &[&[usize]]) -> Option<Workload> {
    let &[q, k, v] = shapes else { return None };
    let (&[ref batch @ .., m, d], &[.., n, _], &[.., e]) = (q, k, v) else { return None };
    let usual = 1.0 / (d as f32).sqrt();
    ((scale - usual).abs() <= 1e-6 * usual).then(|| workload(Attention { b: product(batch), m, n, k: d, d: e }))?
}

fn pool(window: &[Sliding], ceil: bool, kind: PoolKind, shape: &[usize]) -> Option<Workload> {
    let whole = [Sliding::new(1)];
    let (image, windows) = match (shape, window) {
        (&[n, c, w], [a]) => ([n, c, 1, w], [&whole[0], a]),
        (&[n, c, h, w], [a, b]) => ([n, c, h, w], [a, b]),
        _ => return None,
    };
    let [n, c, h, w] = image;
    let pad = [even(windows[0])?, even(windows[1])?];
    let of = |get: fn(&Sliding) -> usize| windows.map(get);
    let (kernel, stride, dilation) = (of(|a| a.kernel), of(|a| a.stride), of(|a| a.dilation));
    workload(Pool2d { n, c, h, w, kernel, stride, pad, dilation, ceil, kind })
}

fn reduce(op: ReduceOp, axes: &[usize], shape: &[usize]) -> Option<Workload> {
    let first = shape.len() - axes.len();
    if !axes.iter().copied().eq(first..shape.len()) {
        return None;
    }
    workload(Reduce { m: product(&shape[..first]), n: product(&shape[first..]), op })
}

fn softmax(axis: usize, log: bool, shape: &[usize]) -> Option<Workload> {
    let (m, n, k) = (product(&shape[..axis]), shape[axis], product(&shape[axis + 1..]));
    workload(Softmax { m, n, k, log })
}

fn layer_norm(axis: usize, eps: f32, shapes: &[&[usize]]) -> Option<Workload> {
    let (outer, inner) = shapes[0].split_at(axis);
    if shapes.len() < 3 {
        return None;
    }
    workload(LayerNorm { m: product(outer), n: product(inner), eps })
}

fn group_norm(groups: usize, eps: f32, shape: &[usize]) -> Option<Workload> {
    workload(GroupNorm { n: shape[0], c: shape[1], groups, s: product(&shape[2..]), eps })
}

fn local_response_norm([alpha, beta, shift]: [f32; 3], size: usize, shape: &[usize]) -> Option<Workload> {
    workload(LocalResponseNorm { n: shape[0], c: shape[1], s: product(&shape[2..]), size, alpha, beta, shift })
}

/// Rows and columns of a tensor for functions of its elements.
fn rows(shape: &[usize]) -> (usize, usize) {
    match shape {
        [] => (1, 1),
        &[n, c, ref spatial @ ..] if !spatial.is_empty() && shape.len() > 3 => (n * c, product(spatial)),
        [outer @ .., last] => (product(outer), *last),
    }
}

fn map(function: Function, shape: &[usize]) -> Option<Workload> {
    let (m, n) = rows(shape);
    workload(Pointwise { m, n, op: PointwiseOp::Unary(function), rhs: Broadcast::Full })
}

/// An operation on two tensors, of which one may be repeated along the outer axes, the inner ones, or all.
fn binary(graph: &Graph, node: &Node, binary: Binary) -> Option<Anchor> {
    let op = match binary {
        Binary::Add => BinaryOp::Add,
        Binary::Sub => BinaryOp::Sub,
        Binary::Mul => BinaryOp::Mul,
        Binary::Div => BinaryOp::Div,
        Binary::Max => BinaryOp::Max,
        Binary::Min => BinaryOp::Min,
        Binary::Pow | Binary::Equal | Binary::Less | Binary::And => return None,
    };
    let commutes = matches!(binary, Binary::Add | Binary::Mul | Binary::Max | Binary::Min);
    let [a, b] = [0, 1].map(|operand| node.operands[operand]);
    let is_whole = |id: NodeId| product(&graph.node(id).shape) == product(&node.shape);
    let (x, y) = match is_whole(a) {
        true => (a, b),
        false if commutes && is_whole(b) => (b, a),
        false => return None,
    };

    let (rhs, m, n) = repeated(&graph.node(y).shape, &node.shape)?;
    let pointwise = Pointwise { m, n, op: PointwiseOp::Binary(op), rhs };
    Some(Anchor { workload: workload(pointwise)?, operands: vec![x, y], channel: None })
}

/// How a tensor of one shape is repeated in another, as rows and columns of that.
fn repeated(own: &[usize], whole: &[usize]) -> Option<(Broadcast, usize, usize)> {
    if product(own) == product(whole) {
        let (m, n) = rows(whole);
        return Some((Broadcast::Full, m, n));
    }
    if product(own) == 1 {
        let (m, n) = rows(whole);
        return Some((Broadcast::Scalar, m, n));
    }
    let missing = whole.len() - own.len();
    let extent = |axis: usize| axis.checked_sub(missing).map_or(1, |own_axis| own[own_axis]);
    // The first axes are repeated, or the last.
    let inner = (0..whole.len()).rev().take_while(|&axis| extent(axis) == whole[axis]).count();
    let outer = (0..whole.len()).take_while(|&axis| extent(axis) == whole[axis]).count();
    let split = |at: usize| (product(&whole[..at]), product(&whole[at..]));
    if product(&whole[whole.len() - inner..]) == product(own) {
        let (m, n) = split(whole.len() - inner);
        return Some((Broadcast::Row, m, n));
    }
    let (m, n) = split(outer);
    (m == product(own)).then_some((Broadcast::Column, m, n))
}

fn resize(size: [usize; 2], coordinates: Coordinates, sampling: Sampling, shape: &[usize]) -> Option<Workload> {
    let &[n, c, h, w] = shape else { return None };
    let resample = workload(Resample { n, c, input: [h, w], output: size, coordinates, sampling })?;
    // Its text is that of a repetition where it is one.
    resample.as_str().parse().ok()
}

fn gather(table: &[usize], numbers: &[usize]) -> Option<Workload> {
    let (k, row) = table.split_first()?;
    workload(Gather { m: product(numbers), n: product(row), k: *k })
}

/// An exchange of two groups of neighbouring axes behind a batch.
fn transpose(perm: &[usize], shape: &[usize]) -> Option<Workload> {
    // Axes of one element may stand anywhere.
    let moved: Vec<usize> = perm.iter().copied().filter(|&axis| shape[axis] != 1).collect();
    let batch =
        moved.iter().zip((0..shape.len()).filter(|&axis| shape[axis] != 1)).take_while(|(a, b)| **a == *b).count();
    let rest = &moved[batch..];
    let cut = (1..rest.len()).find(|&at| rest[at] < rest[at - 1])?;
    let (second, first) = rest.split_at(cut);
    let in_order = [first, second].concat().is_sorted();
    let extent = |axes: &[usize]| axes.iter().map(|&axis| shape[axis]).product::<usize>();
    in_order.then(|| workload(Transpose { b: extent(&moved[..batch]), m: extent(first), n: extent(second) }))?
}
