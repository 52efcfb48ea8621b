//! The workload of a node.

use autotune_workloads::{
    Activation, Attention, Batch, Channels, Conv1d, Conv2d, Conv3d, ConvTranspose2d, Coordinates, Epilogue, Function,
    Gather, GroupNorm, LayerNorm, LocalResponseNorm, Mask, Matmul, Operator, Pad, PadMode, Pointwise, PointwiseOp,
    Pool2d, PoolKind, Reduce, ReduceOp, Resample, Resize, ResizeMode, Sampling, Sides, Softmax, Transpose, Window,
    Workload,
};

use super::elementwise;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Op, Sliding};
use crate::tensor::Element;

/// A workload that computes a node's tensor.
pub(super) struct Anchor {
    pub(super) workload: Workload,
    /// Its operands, in the order of its spec.
    pub(super) operands: Vec<NodeId>,
    /// The axis of the node's tensor along which an epilogue has scale and bias, if there is one.
    pub(super) channel: Option<usize>,
}

/// The workload of a node, if there is one; its weights are constant if they are in the graph.
pub(super) fn anchor(graph: &Graph, id: NodeId) -> Option<Anchor> {
    let Anchor { workload, operands, channel } = anchor_of_constants(graph, id)?;
    let weights = workload.weights();
    if weights.is_empty() {
        return Some(Anchor { workload, operands, channel });
    }
    let is_constant = weights.iter().all(|&number| graph.constant_of(operands[number]).is_some());
    Some(Anchor { workload: workload.with_constant_weights(is_constant).ok()?, operands, channel })
}

fn anchor_of_constants(graph: &Graph, id: NodeId) -> Option<Anchor> {
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
        Op::Reduce { op, axes, .. } => of(&|| reduce(*op, axes, node, shapes[0]), None),
        Op::Softmax { axis, log } => of(&|| softmax(*axis, *log, shapes[0]), None),
        Op::LayerNorm { axis, eps } => of(&|| layer_norm(*axis, *eps, &shapes), None),
        Op::GroupNorm { groups, eps } => of(&|| group_norm(*groups, *eps, shapes[0]), None),
        Op::LocalResponseNorm { size, alpha, beta, bias } => {
            of(&|| local_response_norm([*alpha, *beta, *bias], *size, shapes[0]), None)
        }
        Op::Map(_) | Op::Binary(_) | Op::Not | Op::Where | Op::Prelu | Op::Cast(_) => elementwise::anchor(graph, node),
        Op::Pad { pad, mode, value } => of(&|| self::pad(pad, *mode, *value, shapes[0]), None),
        Op::Resize { size, coordinates, sampling } => {
            of(&|| resize(*size, *coordinates, *sampling, shapes[0]), Some(1))
        }
        Op::Gather { axis: 0 } => of(&|| gather(graph, node), None),
        Op::Transpose(perm) => of(&|| transpose(perm, shapes[0]), None),
        _ => None,
    }
}

pub(super) fn workload(op: impl Operator) -> Option<Workload> {
    Workload::new(op).ok()
}

pub(super) fn product(extents: &[usize]) -> usize {
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
    let mut windows = windows.collect::<Option<Vec<Window>>>()?;

    // Images of one column lie in memory as those of one row do, along which tiles go.
    if let [rows, columns] = &mut windows[..]
        && [columns.extent, columns.kernel, columns.pad] == [1, 1, 0]
    {
        std::mem::swap(rows, columns);
    }

    let bare = match windows[..] {
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
    let whole = [Sliding::new(1)];
    let ([n, c, h, w], [a, b], output_pad) = match (shapes[0], window, output_pad) {
        (&[n, c, w], [a], &[pad]) => ([n, c, 1, w], [&whole[0], a], [0, pad]),
        (&[n, c, h, w], [a, b], &[rows, columns]) => ([n, c, h, w], [a, b], [rows, columns]),
        _ => return None,
    };
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
        output_pad,
        groups,
    });
    Some(biased(bare?, shapes.len() == 3))
}

/// A product, with what transposes an operand in it if there is such a kernel.
///
/// `MatMul(a, Transpose(b))` → `matmul:..,tb` of `a` and `b`.
fn matmul(graph: &Graph, node: &Node) -> Option<Anchor> {
    let [a, b] = [0, 1].map(|operand| node.operands[operand]);
    let [without_a, without_b] = [a, b].map(|operand| untransposed(graph, operand));
    product_of(graph, node, [without_a, without_b])
        .or_else(|| product_of(graph, node, [(a, false), without_b]))
        .or_else(|| product_of(graph, node, [(a, false), (b, false)]))
}

/// A product of tensors that are transposed or not.
fn product_of(graph: &Graph, node: &Node, [(a, ta), (b, tb)]: [(NodeId, bool); 2]) -> Option<Anchor> {
    let [left, right] = [a, b].map(|id| &*graph.node(id).shape);
    let ([a_batch @ .., a_rows, a_columns], [b_batch @ .., b_rows, b_columns]) = (left, right) else { return None };
    let (m, k) = if ta { (*a_columns, *a_rows) } else { (*a_rows, *a_columns) };
    let n = if tb { *b_rows } else { *b_columns };

    // The rows of what is multiplied by one matrix are one behind the other, unless they lie transposed.
    let mut batch = batch_of(a_batch, b_batch)?;
    let mut rows = m;
    while let Some((extent, Sides::Left)) = batch.last().filter(|_| !ta) {
        rows = rows.checked_mul(*extent)?;
        batch.pop();
    }
    let op = Matmul { b: Batch::new(batch)?, m: rows, n, k, ta, tb };
    Some(Anchor { workload: workload(op)?, operands: vec![a, b], channel: node.shape.len().checked_sub(1) })
}

/// The axes of more than one element of batches that are broadcast to each other, outermost first.
fn batch_of(a: &[usize], b: &[usize]) -> Option<Vec<(usize, Sides)>> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |own| shape[own]);
    let axis = |axis: usize| match (extent(a, axis), extent(b, axis)) {
        (1, 1) => None,
        (a, b) if a == b => Some(Some((a, Sides::Both))),
        (a, 1) => Some(Some((a, Sides::Left))),
        (1, b) => Some(Some((b, Sides::Right))),
        _ => Some(None),
    };
    (0..rank).filter_map(axis).collect()
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

/// Images, or whatever is padded along one axis only.
fn pad(pad: &[[usize; 2]], mode: PadMode, value: f32, shape: &[usize]) -> Option<Workload> {
    let padded: Vec<usize> = (0..pad.len()).filter(|&axis| pad[axis] != [0, 0]).collect();
    let (image, [rows, columns]) = match (shape, pad, &padded[..]) {
        (&[n, c, h, w], &[[0, 0], [0, 0], rows, columns], _) => ([n, c, h, w], [rows, columns]),
        (_, _, &[axis]) => {
            let [before, behind] = [&shape[..axis], &shape[axis + 1..]].map(product);
            ([1, before, shape[axis], behind], [pad[axis], [0, 0]])
        }
        (_, _, &[row, column]) if column + 1 == shape.len() && row + 1 == column => {
            ([1, product(&shape[..row]), shape[row], shape[column]], [pad[row], pad[column]])
        }
        _ => return None,
    };
    let [n, c, h, w] = image;
    let pad = [rows[0], rows[1], columns[0], columns[1]];
    workload(Pad { n, c, h, w, pad, mode, value: value + 0.0 })
}

/// Integers' means would have fractions.
fn reduce(op: ReduceOp, axes: &[usize], node: &Node, shape: &[usize]) -> Option<Workload> {
    let has_fractions = op == ReduceOp::Mean && node.element == Element::I64;
    Reduce::new(shape, axes, op).ok().filter(|_| !has_fractions).and_then(workload)
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

/// A copy of `[n, c, ..]` whose epilogue has a scale and a bias for each channel.
pub(super) fn channels(shape: &[usize]) -> Option<Workload> {
    let &[n, c, ref spatial @ ..] = shape else { return None };
    let copy = Pointwise::new(1, 1, PointwiseOp::Unary(Function::Activation(Activation::None)));
    workload(Pointwise { shape: vec![n, c, product(spatial)], channels: Channels::Column, ..copy })
}

fn resize(size: [usize; 2], coordinates: Coordinates, sampling: Sampling, shape: &[usize]) -> Option<Workload> {
    let &[n, c, h, w] = shape else { return None };
    let resample = Resample { n, c, input: [h, w], output: size, coordinates, sampling };
    match resample.scale() {
        Some(scale) => workload(Resize { n, c, h, w, scale, mode: ResizeMode::Nearest }),
        None => workload(resample),
    }
}

/// Numbers that come with the data may be negative.
fn gather(graph: &Graph, node: &Node) -> Option<Workload> {
    let [table, numbers] = [0, 1].map(|operand| node.operands[operand]);
    let known = graph.constant_of(numbers).and_then(|numbers| numbers.tensor().ok()?.as_i64());
    let from_end = known.is_none_or(|numbers| numbers.iter().any(|&number| number < 0));
    let (k, row) = graph.node(table).shape.split_first()?;
    workload(Gather { m: product(&graph.node(numbers).shape), n: product(row), k: *k, from_end })
}

fn transpose(perm: &[usize], shape: &[usize]) -> Option<Workload> {
    workload(Transpose::new(shape, perm).ok()?)
}
