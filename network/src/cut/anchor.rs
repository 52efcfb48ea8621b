//! The workload of a node.

use autotune_ir::program::BinaryOp;
use autotune_schedules::Workload;
use autotune_schedules::workload::{
    Activation, Attention, Broadcast, Channels, Conv1d, Conv2d, Conv3d, ConvTranspose2d, Coordinates, Epilogue,
    Function, Gather, GroupNorm, LayerNorm, LocalResponseNorm, Mask, Matmul, Operator, Pad, Pointwise, PointwiseOp,
    Pool2d, PoolKind, Reduce, ReduceOp, Resample, Sampling, Softmax, Transpose, Window,
};

use crate::graph::{Graph, Node, NodeId};
use crate::op::{Binary, Op, Sliding};
use crate::tensor::Element;

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
    match &node.op {
        Op::Conv { window, groups } => of(&|| conv(window, *groups, &shapes), Some(1)),
        Op::ConvTranspose { window, output_pad, groups } => {
            of(&|| conv_transpose(window, output_pad, *groups, &shapes), Some(1))
        }
        Op::MatMul => matmul(graph, node),
        Op::Attention { scale } => attention(graph, node, *scale),
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

/// Attention whose mask, if it has one, is repeated for queries, heads, or all of the batch.
fn attention(graph: &Graph, node: &Node, scale: f32) -> Option<Anchor> {
    let nodes: Vec<&Node> = node.operands.iter().map(|&operand| graph.node(operand)).collect();
    let ([batch @ .., m, d], [.., n, _], [.., e]) = (&*nodes[0].shape, &*nodes[1].shape, &*nodes[2].shape) else {
        return None;
    };
    let usual = 1.0 / (*d as f32).sqrt();
    if (scale - usual).abs() > 1e-6 * usual {
        return None;
    }

    let whole = Attention::new(product(batch), [*m, *n], [*d, *e]);
    let op = match nodes.get(3) {
        None => whole,
        Some(mask) if mask.element == Element::F32 => masked(whole, batch, &mask.shape)?,
        Some(_) => return None,
    };
    let channel = node.shape.len().checked_sub(1);
    Some(Anchor { workload: workload(op)?, operands: node.operands.clone(), channel })
}

/// The same with a mask of a shape that is broadcast to `[..batch, m, n]`.
fn masked(whole: Attention, batch: &[usize], shape: &[usize]) -> Option<Attention> {
    let mut own = vec![1; (batch.len() + 2).checked_sub(shape.len())?];
    own.extend(shape);
    let (of_batch, of_scores) = own.split_at(batch.len());
    let of_rows = match of_scores {
        &[queries, keys] if keys == whole.n => queries != 1,
        _ => return None,
    };
    if of_batch.iter().all(|&extent| extent == 1) {
        return Some(Attention { mask: if of_rows { Mask::Matrix } else { Mask::Row }, ..whole });
    }

    // The first axes are the mask's, too, the others are heads.
    let shared = of_batch.iter().zip(batch).take_while(|(own, whole)| own == whole).count();
    let (outer, heads) = batch.split_at(shared);
    let is_repeated = of_batch[shared..].iter().all(|&extent| extent == 1);
    let mask = if of_rows { Mask::Matrices } else { Mask::Rows };
    is_repeated.then(|| Attention { b: product(outer), h: product(heads), mask, ..whole })
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
    workload(Pointwise::new(m, n, PointwiseOp::Unary(function)))
}

/// An operation on two tensors, of which one may be repeated.
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
    let shape = |id: NodeId| &*graph.node(id).shape;
    let is_whole = |id: NodeId| product(shape(id)) == product(&node.shape);
    let (operands, repeated) = match (is_whole(a), is_whole(b)) {
        (true, _) => ([a, b], b),
        (false, true) if commutes => ([b, a], a),
        (false, true) => ([a, b], a),
        (false, false) => return None,
    };

    let (broadcast, [b_extent, m, n]) = repetition(shape(repeated), &node.shape)?;
    let whole = Pointwise { b: b_extent, ..Pointwise::new(m, n, PointwiseOp::Binary(op)) };
    let pointwise = match repeated == operands[1] {
        true => Pointwise { rhs: broadcast, ..whole },
        false => Pointwise { lhs: broadcast, ..whole },
    };
    Some(Anchor { workload: workload(pointwise)?, operands: operands.to_vec(), channel: None })
}

/// A copy of `[n, c, ..]` whose epilogue has a scale and a bias for each channel.
pub(super) fn channels(shape: &[usize]) -> Option<Workload> {
    let &[n, c, ref spatial @ ..] = shape else { return None };
    let copy = Pointwise::new(c, product(spatial), PointwiseOp::Unary(Function::Activation(Activation::None)));
    workload(Pointwise { b: n, channels: Channels::Column, ..copy })
}

/// How a tensor is repeated in a whole one, as batch, rows and columns of that.
///
/// ```text
/// [n]        in [m, n]      every row is the same
/// [m, 1]     in [m, n]      every column is
/// [c, 1, 1]  in [n, c, h, w]    every column of a batch of c rows is
/// [b, 1, n]  in [b, m, n]   every row of a batch is
/// ```
fn repetition(own: &[usize], whole: &[usize]) -> Option<(Broadcast, [usize; 3])> {
    let missing = whole.len().checked_sub(own.len())?;
    // Neighbouring axes along all of which it has elements, or along none.
    let mut runs: Vec<(bool, usize)> = Vec::new();
    for (axis, &extent) in whole.iter().enumerate().filter(|(_, extent)| **extent != 1) {
        let is_kept = axis.checked_sub(missing).is_some_and(|axis| own[axis] == extent);
        match runs.last_mut() {
            Some((last, product)) if *last == is_kept => *product *= extent,
            _ => runs.push((is_kept, extent)),
        }
    }
    let (m, n) = rows(whole);
    match runs[..] {
        [] | [(true, _)] => Some((Broadcast::Full, [1, m, n])),
        [(false, _)] => Some((Broadcast::Scalar, [1, m, n])),
        [(false, m), (true, n)] => Some((Broadcast::Row, [1, m, n])),
        [(true, m), (false, n)] => Some((Broadcast::Column, [1, m, n])),
        [(true, b), (false, m), (true, n)] => Some((Broadcast::Rows, [b, m, n])),
        [(false, b), (true, m), (false, n)] => Some((Broadcast::Column, [b, m, n])),
        _ => None,
    }
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

fn transpose(perm: &[usize], shape: &[usize]) -> Option<Workload> {
    workload(Transpose::new(shape, perm).ok()?)
}
