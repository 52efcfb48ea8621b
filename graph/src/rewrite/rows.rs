//! Patterns of normalisations and softmax that exporters write as several operations, and
//! reductions of whole images.

use autotune_ir::DType;
use autotune_ir::program::UnaryOp;
use autotune_workloads::{PoolKind, ReduceOp};

use super::new_graph::NewNode;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::graph::NodeId;
use crate::op::Operator;
use crate::operators::{Binary, Expand, GroupNorm, LayerNorm, Pool, Reduce, Reshape, Sliding, Softmax};
use crate::tensor::Tensor;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "normalisation",
        before: "(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)",
        after: "LayerNorm over the last axes; GroupNorm with one channel per group over the axes of images",
        apply: normalisation,
    },
    Rule {
        name: "groups_of_channels",
        before: "Reshape(GroupNorm(Reshape(x), s, b)), with groups as channels",
        after: "GroupNorm(x), with s and b for each channel",
        apply: groups_of_channels,
    },
    Rule {
        name: "softmax",
        before: "exp(x) / sum(exp(x)), or with exp(x - max(x))",
        after: "Softmax(x)",
        apply: softmax,
    },
    Rule { name: "log_softmax", before: "log(Softmax(x))", after: "LogSoftmax(x)", apply: log_softmax },
];

/// Rules for pooling; they follow the patterns that contain reductions.
pub(super) const POOLINGS: &[Rule] = &[
    Rule {
        name: "reduce_of_image",
        before: "mean or max over height and width",
        after: "global Pool",
        apply: reduce_of_image,
    },
    Rule {
        name: "pool_of_row",
        before: "global Pool of images of one or three spatial axes",
        after: "Reduce",
        apply: pool_of_row,
    },
];

/// Matches a reduction that keeps its axes; returns the operand and the axes.
fn reduced<'a>(site: &RewriteSite<'a, '_>, id: NodeId, wanted: ReduceOp) -> Option<(NodeId, &'a [usize])> {
    match site.of(id).op.of()? {
        Reduce { op, axes, keep_axes: true } if *op == wanted => Some((site.of(id).operands[0], axes)),
        _ => None,
    }
}

fn normalisation(site: &mut RewriteSite) -> Rewritten {
    let Some((centred, eps, axes)) = over_deviation(site) else { return Ok(None) };
    let Some([x, mean]) = site.binary(centred, Binary::Sub) else { return Ok(None) };
    let shape = &site.node().shape;
    let is_mean = reduced(site, mean, ReduceOp::Mean) == Some((x, &axes[..]));
    let are_last = axes.first().is_some_and(|first| axes.iter().copied().eq(*first..shape.len()));
    if !is_mean || !are_last || !site.fits(x) || eps < 0.0 {
        return Ok(None);
    }

    // Over the spatial axes of images it is an instance normalisation, else a layer normalisation.
    let (axis, of_images) = (axes[0], axes[0] == 2 && shape.len() > 3);
    let scale = if of_images { vec![shape[1]] } else { shape[axis..].to_vec() };
    let all = |value: f32| Expand(scale.clone()).evaluate(&[&Tensor::scalar(value)]);
    let ones = all(1.0).map_err(|source| site.wrong(source))?;
    let zeros = all(0.0).map_err(|source| site.wrong(source))?;
    let (x, ones) = (site.made(x), site.constant(ones));
    if of_images {
        let zeros = site.constant(zeros);
        return site.add(GroupNorm { groups: shape[1], eps }, &[x, ones, zeros]).map(Some);
    }
    site.add(LayerNorm { axis, eps }, &[x, ones]).map(Some)
}

/// Matches a tensor divided by its standard deviation. Returns the tensor, the constant added to
/// the variance, and the axes of the mean.
fn over_deviation(site: &RewriteSite) -> Option<(NodeId, f32, Vec<usize>)> {
    let divided = site.binary(site.id, Binary::Div).and_then(|[x, root]| Some((x, site.unary(root, UnaryOp::Sqrt)?)));
    let multiplied = || {
        let pair = |[x, root]: [NodeId; 2]| Some((x, site.unary(root, UnaryOp::Rsqrt)?));
        site.both_orders(site.id, Binary::Mul).into_iter().find_map(pair)
    };
    let (centred, sum) = divided.or_else(multiplied)?;
    let (variance, eps) = site.with_scalar(sum, Binary::Add)?;
    let (square, axes) = reduced(site, variance, ReduceOp::Mean)?;
    let (scale, factors) = site.factors(square);
    (scale == 1.0 && factors == [centred, centred]).then(|| (centred, eps, axes.to_vec()))
}

/// Folds the reshapes around a normalisation of channel groups. The groups are channels there and
/// have one scale each.
fn groups_of_channels(site: &mut RewriteSite) -> Rewritten {
    let (Some(Reshape(shape)), norm) = (site.node().op.of(), site.of(site.operand(0))) else { return Ok(None) };
    let Some(&GroupNorm { groups, eps }) = norm.op.of() else { return Ok(None) };
    let (split, scales) = (site.of(norm.operands[0]), [norm.operands[1], norm.operands[2]]);
    let Some(Reshape(grouped)) = split.op.of() else { return Ok(None) };
    let x = split.operands[0];
    let is_split = site.of(x).shape == *shape && shape.len() > 2 && grouped[..2] == [shape[0], groups];
    if !is_split || !shape[1].is_multiple_of(groups) || scales.iter().any(|&id| !site.is_constant(id)) {
        return Ok(None);
    }

    let [x, scale, bias] = [x, scales[0], scales[1]].map(|id| site.made(id));
    let mut each_channel = |scale: NewNode| {
        let column = site.add(Reshape(vec![groups, 1]), &[scale])?;
        let all = site.add(Expand(vec![groups, shape[1] / groups]), &[column])?;
        site.add(Reshape(vec![shape[1]]), &[all])
    };
    let operands = [x, each_channel(scale)?, each_channel(bias)?];
    site.add(GroupNorm { groups, eps }, &operands).map(Some)
}

fn softmax(site: &mut RewriteSite) -> Rewritten {
    let Some([exp, sum]) = site.binary(site.id, Binary::Div) else { return Ok(None) };
    let Some((summed, &[axis])) = reduced(site, sum, ReduceOp::Sum) else { return Ok(None) };
    let Some(x) = site.unary(exp, UnaryOp::Exp).filter(|&x| summed == exp && site.fits(x)) else { return Ok(None) };
    // A maximum subtracted from all elements does not change the result.
    let largest = |&[x, most]: &[NodeId; 2]| reduced(site, most, ReduceOp::Max) == Some((x, &[axis]));
    let x = site.binary(x, Binary::Sub).filter(largest).map_or(x, |[x, _]| x);
    let x = site.made(x);
    site.add(Softmax { axis, log: false }, &[x]).map(Some)
}

fn log_softmax(site: &mut RewriteSite) -> Rewritten {
    let Some(softmax) = site.unary(site.id, UnaryOp::Log) else { return Ok(None) };
    let Some(&Softmax { axis, log: false }) = site.of(softmax).op.of() else { return Ok(None) };
    let operands = site.operands_of(softmax);
    site.add(Softmax { axis, log: true }, &operands).map(Some)
}

fn reduce_of_image(site: &mut RewriteSite) -> Rewritten {
    let Some(Reduce { op, axes, .. }) = site.node().op.of() else { return Ok(None) };
    let from = site.of(site.operand(0));
    let kind = match op {
        ReduceOp::Mean => PoolKind::Average,
        ReduceOp::Max => PoolKind::Max,
        ReduceOp::Sum | ReduceOp::Min | ReduceOp::Prod => return Ok(None),
    };
    if from.shape.len() != 4 || axes[..] != [2, 3] || from.dtype != DType::F32 {
        return Ok(None);
    }
    let window = from.shape[2..].iter().map(|&extent| Sliding::new(extent)).collect();
    let x = site.made(site.operand(0));
    let pooled = site.add(Pool { window, ceil: false, kind }, &[x])?;
    // The reduction may drop its axes.
    match site.shape_of(pooled) == site.node().shape {
        true => Ok(Some(pooled)),
        false => site.add(Reshape(site.node().shape.clone()), &[pooled]).map(Some),
    }
}

fn pool_of_row(site: &mut RewriteSite) -> Rewritten {
    let Some(Pool { window, kind, .. }) = site.node().op.of() else { return Ok(None) };
    let from = &site.of(site.operand(0)).shape;
    let is_whole =
        |(window, &extent): (&Sliding, &usize)| [window.kernel, window.dilation] == [extent, 1] && window.pad == [0, 0];
    let is_one = site.node().shape[2..].iter().all(|&extent| extent == 1);
    // Pooling kernels have two spatial axes.
    if from.len() == 4 || !is_one || !window.iter().zip(&from[2..]).all(is_whole) {
        return Ok(None);
    }
    let op = if *kind == PoolKind::Max { ReduceOp::Max } else { ReduceOp::Mean };
    let x = site.made(site.operand(0));
    site.add(Reduce { op, axes: (2..from.len()).collect(), keep_axes: true }, &[x]).map(Some)
}
