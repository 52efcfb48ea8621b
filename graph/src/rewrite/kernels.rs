//! Rewriting of operators without kernels to operators with kernels.

use autotune_ir::DType;
use autotune_workloads::ReduceOp;
use autotune_workloads::axes::FEW;
use ndarray::{ArrayD, IxDyn};

use super::bounds::is_moderate;
use super::new_graph::NewNode;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::error::GraphError;
use crate::op::Operator;
use crate::operators::{
    Attention, Binary, Expand, Gather, LayerNorm, MatMul, Pad, Pool, Reduce, Reshape, Sliding, Transpose,
};
use crate::tensor::Tensor;

/// Minimum length of vectors whose dot product is split among threads.
const LONG: usize = 1 << 15;
/// Candidate numbers of parts; the first that divides the length is used.
const PARTS: [usize; 4] = [16, 8, 4, 2];

pub(super) const RULES: &[Rule] = &[
    Rule { name: "unshifted_norm", before: "LayerNorm(x, s)", after: "LayerNorm(x, s, 0)", apply: unshifted_norm },
    Rule {
        name: "scaled_queries",
        before: "Attention(q, k, v) of d channels, with a scale other than 1 / sqrt(d)",
        after: "Attention(q * c, k, v)",
        apply: scaled_queries,
    },
    Rule {
        name: "repeated_mask",
        before: "Attention(q, k, v, mask), where the mask is broadcast other than over queries, heads or the whole batch",
        after: "Attention(q, k, v, Expand(mask))",
        apply: repeated_mask,
    },
    Rule { name: "mean_of_integers", before: "mean of integers", after: "sum / count", apply: mean_of_integers },
    Rule {
        name: "product_of_vectors",
        before: "MatMul of a vector",
        after: "Reshape(MatMul) of a one-row or one-column matrix",
        apply: product_of_vectors,
    },
    Rule {
        name: "few_columns_of_transposed",
        before: "MatMul(Transpose(a), b) with few columns",
        after: "Transpose(MatMul(Transpose(b), a))",
        apply: few_columns_of_transposed,
    },
    Rule {
        name: "long_product_of_vectors",
        before: "MatMul of a long row and a column",
        after: "sum of MatMuls of parts of both",
        apply: long_product_of_vectors,
    },
    Rule {
        name: "gather_along_axis",
        before: "Gather along an axis other than the first",
        after: "Transpose(Gather(Transpose(x)))",
        apply: gather_along_axis,
    },
    Rule {
        name: "pad_in_steps",
        before: "Pad along axes other than the last two, or along several",
        after: "Pad(Pad(x))",
        apply: pad_in_steps,
    },
    Rule {
        name: "pool_of_volumes",
        before: "Pool over three axes or more",
        after: "Pool(Pool(x)) over the last two axes and the others",
        apply: pool_of_volumes,
    },
];

fn unshifted_norm(site: &mut RewriteSite) -> Rewritten {
    let (Some(LayerNorm { .. }), &[_, scale]) = (site.node().op.of(), &site.node().operands[..]) else {
        return Ok(None);
    };
    // Kernels always add a bias.
    let zeros = Expand(site.of(scale).shape.clone()).evaluate(&[&Tensor::scalar(0.0)]);
    let zeros = zeros.map_err(|source| site.wrong(source))?;
    let mut operands = site.operands_of(site.id);
    operands.push(site.constant(zeros));
    site.add(site.node().op.clone(), &operands).map(Some)
}

fn scaled_queries(site: &mut RewriteSite) -> Rewritten {
    let Some(&Attention { scale }) = site.node().op.of() else { return Ok(None) };
    let Some(&d) = site.of(site.operand(0)).shape.last() else { return Ok(None) };
    // Kernels scale by 1/sqrt(d) only.
    let usual = 1.0 / (d as f32).sqrt();
    if (scale - usual).abs() <= 1e-6 * usual || !is_moderate(scale / usual) {
        return Ok(None);
    }
    let mut operands = site.operands_of(site.id);
    let factor = site.constant(Tensor::scalar(scale / usual));
    operands[0] = site.add(Binary::Mul, &[operands[0], factor])?;
    site.add(Attention { scale: usual }, &operands).map(Some)
}

fn repeated_mask(site: &mut RewriteSite) -> Rewritten {
    let (Some(Attention { .. }), &[q, k, _, mask]) = (site.node().op.of(), &site.node().operands[..]) else {
        return Ok(None);
    };
    let (Some((batch, [m, _])), Some((_, [n, _]))) =
        (site.of(q).shape.split_last_chunk::<2>(), site.of(k).shape.split_last_chunk::<2>())
    else {
        return Ok(None);
    };
    let scores = [batch, &[*m, *n]].concat();
    let shape = &site.of(mask).shape;
    let own: Vec<usize> = std::iter::repeat_n(1, scores.len() - shape.len()).chain(shape.iter().copied()).collect();

    // Kernels support a mask that spans leading batch axes and is repeated along the rest, or is
    // repeated along all of them.
    let (of_batch, ones) = (&own[..batch.len()], |of: &[usize]| of.iter().all(|extent| *extent == 1));
    let shared = of_batch.iter().zip(batch).take_while(|(own, whole)| own == whole).count();
    let repeated = ones(of_batch) || ones(&of_batch[shared..]);
    if site.of(mask).dtype != DType::F32 || repeated && own.last() == Some(n) {
        return Ok(None);
    }
    let mut operands = site.operands_of(site.id);
    operands[3] = site.add(Expand(scores), &[operands[3]])?;
    site.add(site.node().op.clone(), &operands).map(Some)
}

fn mean_of_integers(site: &mut RewriteSite) -> Rewritten {
    let Some(Reduce { op: ReduceOp::Mean, axes, keep_axes }) = site.node().op.of() else { return Ok(None) };
    let from = site.of(site.operand(0));
    if from.dtype != DType::I64 {
        return Ok(None);
    }

    let count: i64 = axes.iter().map(|&axis| from.shape[axis] as i64).product();
    if count == 0 {
        return Ok(None);
    }
    let sum = Reduce { op: ReduceOp::Sum, axes: axes.clone(), keep_axes: *keep_axes };
    let x = site.made(site.operand(0));
    let sum = site.add(sum, &[x])?;
    let count = site.constant(Tensor::I64(ArrayD::from_elem(IxDyn(&[]), count)));
    site.add(Binary::Div, &[sum, count]).map(Some)
}

fn in_shape(site: &mut RewriteSite, x: NewNode, shape: Vec<usize>) -> Result<NewNode, GraphError> {
    if site.shape_of(x) == shape { Ok(x) } else { site.add(Reshape(shape), &[x]) }
}

fn product_of_vectors(site: &mut RewriteSite) -> Rewritten {
    let Some(MatMul) = site.node().op.of() else { return Ok(None) };
    let [left, right] = [0, 1].map(|number| site.of(site.operand(number)).shape.clone());
    if left.len() > 1 && right.len() > 1 {
        return Ok(None);
    }
    // A vector is a row on the left and a column on the right.
    let [row, column] = [[vec![1], left.clone()].concat(), [right.clone(), vec![1]].concat()];
    let [a, b] = [0, 1].map(|number| site.made(site.operand(number)));
    let a = in_shape(site, a, if left.len() == 1 { row } else { left })?;
    let b = in_shape(site, b, if right.len() == 1 { column } else { right })?;
    let product = site.add(MatMul, &[a, b])?;
    in_shape(site, product, site.node().shape.clone()).map(Some)
}

/// Computes the transposed product, so that the large matrix is read in memory order.
fn few_columns_of_transposed(site: &mut RewriteSite) -> Rewritten {
    let (Some(MatMul), &[left, right]) = (site.node().op.of(), &site.node().operands[..]) else { return Ok(None) };
    let (&[m, _], &[_, n]) = (&site.of(left).shape[..], &site.of(right).shape[..]) else { return Ok(None) };
    let exchanges = Transpose(vec![1, 0]);
    if site.of(left).op != exchanges || n > FEW || m <= FEW {
        return Ok(None);
    }

    let [a, b] = [site.of(left).operands[0], right].map(|operand| site.made(operand));
    let rows = site.add(exchanges.clone(), &[b])?;
    let product = site.add(MatMul, &[rows, a])?;
    site.add(exchanges, &[product]).map(Some)
}

/// Splits `[1, k]` by `[k, 1]` into `[p, 1, k/p]` by `[p, k/p, 1]`, which threads share.
fn long_product_of_vectors(site: &mut RewriteSite) -> Rewritten {
    let (Some(MatMul), &[left, right]) = (site.node().op.of(), &site.node().operands[..]) else { return Ok(None) };
    let (&[1, k], &[_, 1]) = (&site.of(left).shape[..], &site.of(right).shape[..]) else { return Ok(None) };
    let parts = PARTS.into_iter().find(|parts| k.is_multiple_of(*parts)).filter(|_| k >= LONG);
    let Some(parts) = parts else { return Ok(None) };

    let [a, b] = [left, right].map(|operand| site.made(operand));
    let rows = site.add(Reshape(vec![parts, 1, k / parts]), &[a])?;
    let columns = site.add(Reshape(vec![parts, k / parts, 1]), &[b])?;
    let products = site.add(MatMul, &[rows, columns])?;
    site.add(Reduce { op: ReduceOp::Sum, axes: vec![0], keep_axes: false }, &[products]).map(Some)
}

fn gather_along_axis(site: &mut RewriteSite) -> Rewritten {
    let Some(&Gather { axis }) = site.node().op.of() else { return Ok(None) };
    if axis == 0 {
        return Ok(None);
    }
    let rank = site.of(site.operand(0)).shape.len();
    let of_numbers = site.of(site.operand(1)).shape.len();
    let [x, numbers] = [0, 1].map(|number| site.made(site.operand(number)));

    // Gather along a leading axis, then move the index axes to after the axes that preceded it.
    let front: Vec<usize> = std::iter::once(axis).chain((0..rank).filter(|&other| other != axis)).collect();
    let behind = of_numbers..of_numbers + axis;
    let back: Vec<usize> = behind.clone().chain(0..of_numbers).chain(behind.end..of_numbers + rank - 1).collect();
    let x = site.add(Transpose(front), &[x])?;
    let rows = site.add(Gather { axis: 0 }, &[x, numbers])?;
    site.add(Transpose(back), &[rows]).map(Some)
}

/// True if a kernel supports padding along these axes: the last two, or any single one.
pub(super) fn pads_at_once(pad: &[[usize; 2]]) -> bool {
    let is_padded = |pad: &&[usize; 2]| **pad != [0, 0];
    let (before, _) = pad.split_at(pad.len().saturating_sub(2));
    pad.iter().filter(is_padded).count() <= 1 || !before.iter().any(|pad| *pad != [0, 0])
}

fn pad_in_steps(site: &mut RewriteSite) -> Rewritten {
    let Some(&Pad { ref pad, mode, value }) = site.node().op.of() else { return Ok(None) };
    let Some(first) = pad.iter().position(|pad| *pad != [0, 0]).filter(|_| !pads_at_once(pad)) else { return Ok(None) };
    // The first padded axis, then all others.
    let part = |is_first: bool| {
        let of = |(axis, pad): (usize, &[usize; 2])| if (axis == first) == is_first { *pad } else { [0, 0] };
        Pad { pad: pad.iter().enumerate().map(of).collect(), mode, value }
    };
    let x = site.made(site.operand(0));
    let x = site.add(part(true), &[x])?;
    site.add(part(false), &[x]).map(Some)
}

/// Splits a pooling: `[n, c, d, .., h, w]` is pooled as `[n, c*d*.., h, w]`, then as `[n, c, d, ..,
/// h*w]`.
fn pool_of_volumes(site: &mut RewriteSite) -> Rewritten {
    let Some(Pool { window, ceil, kind }) = site.node().op.of() else { return Ok(None) };
    let Some((outer, inner)) = window.split_last_chunk::<2>().filter(|(outer, _)| !outer.is_empty()) else {
        return Ok(None);
    };
    let pool = |window: Vec<Sliding>| Pool { window, ceil: *ceil, kind: *kind };
    let (from, to) = (&site.of(site.operand(0)).shape, &site.node().shape);
    let (n, channels) = (from[0], from[1..from.len() - 2].iter().product::<usize>());
    let slices = [&[n, channels], &from[from.len() - 2..]].concat();
    let columns = [&from[..from.len() - 2], &[to[to.len() - 2..].iter().product()]].concat();

    let x = site.made(site.operand(0));
    let x = in_shape(site, x, slices)?;
    let x = site.add(pool(inner.to_vec()), &[x])?;
    let x = in_shape(site, x, columns)?;
    let x = site.add(pool([outer, &[Sliding::new(1)]].concat()), &[x])?;
    in_shape(site, x, to.clone()).map(Some)
}
