//! Folding of constant factors and summands into the constants of adjacent operators.
//!
//! A batch normalisation is a product and a sum with a constant for each channel. After a
//! convolution or matrix product it is folded into weights and bias; before one it is folded too,
//! unless padding intervenes. A node with other readers is left alone, and so is a constant whose
//! folding would change more than rounding ([`bounds`]).

use ndarray::ArrayD;

use super::bounds::{self, BiasTarget};
use super::epilogue::axis_after_activation;
use super::new_graph::NewNode;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::operators::{Binary, Conv, ConvTranspose, Expand, Gather, GroupNorm, LayerNorm, MatMul, Reshape};
use crate::tensor::{Tensor, array};

pub(super) const RULES: &[Rule] = &[
    Rule { name: "sum_of_sum", before: "(x + a) + b", after: "x + (a + b)", apply: sum_of_sum },
    Rule { name: "product_of_product", before: "(x * a) * b", after: "x * (a * b)", apply: product_of_product },
    Rule {
        name: "scale_of_shift",
        before: "(x + a) * b, where x is a Conv, a MatMul or a product with a constant",
        after: "x * b + a * b",
        apply: scale_of_shift,
    },
    Rule {
        name: "scale_behind_conv",
        before: "Conv(x, w, b) * c",
        after: "Conv(x, w * c, b * c)",
        apply: scale_behind_conv,
    },
    Rule {
        name: "shift_behind_conv",
        before: "Conv(x, w, b) + c",
        after: "Conv(x, w, b + c)",
        apply: shift_behind_conv,
    },
    Rule {
        name: "scale_before_conv",
        before: "Conv(x * c, w, b)",
        after: "Conv(x, w * c, b)",
        apply: scale_before_conv,
    },
    Rule {
        name: "shift_before_conv",
        before: "Conv(x + c, w, b) without padding",
        after: "Conv(x, w, b + sum(w * c))",
        apply: shift_before_conv,
    },
    Rule {
        name: "scale_behind_matmul",
        before: "MatMul(x, w) * c",
        after: "MatMul(x, w * c)",
        apply: scale_behind_matmul,
    },
    Rule {
        name: "scale_before_matmul",
        before: "MatMul(x * c, w)",
        after: "MatMul(x, c * w)",
        apply: scale_before_matmul,
    },
    Rule {
        name: "shift_before_matmul",
        before: "MatMul(x + c, w)",
        after: "MatMul(x, w) + MatMul(c, w)",
        apply: shift_before_matmul,
    },
    Rule {
        name: "scale_behind_norm",
        before: "LayerNorm(x, s, b) * c, GroupNorm",
        after: "LayerNorm(x, s * c, b * c)",
        apply: scale_behind_norm,
    },
    Rule {
        name: "shift_behind_norm",
        before: "LayerNorm(x, s, b) + c, GroupNorm",
        after: "LayerNorm(x, s, b + c)",
        apply: shift_behind_norm,
    },
];

/// Rules for when those above have no more matches: only then it is known whether an epilogue does
/// an addition.
pub(super) const PADDED: &[Rule] = &[Rule {
    name: "shift_before_padded_conv",
    before: "Conv(x + c, w, b) of one image, with padding, not larger than x, where x + c costs a pass: x is neither a Conv nor an activation of one",
    after: "Conv(x, w, b) + Conv(c, w), where Conv(c, w) is a constant",
    apply: shift_before_padded_conv,
}];

fn sum_of_sum(site: &mut RewriteSite) -> Rewritten {
    let Some((x, [a, b])) = in_a_row(site, Binary::Add) else { return Ok(None) };
    let added = if is_linear(site, x) { BiasTarget::ToSums } else { BiasTarget::ToAny };
    let [a, b] = [a, b].map(|id| site.made(id));
    let Some(constant) = bounds::sum(site, a, b, added)? else { return Ok(None) };
    let x = site.made(x);
    site.add(Binary::Add, &[x, constant]).map(Some)
}

fn product_of_product(site: &mut RewriteSite) -> Rewritten {
    let Some((x, [a, b])) = in_a_row(site, Binary::Mul) else { return Ok(None) };
    let (Some(of_a), Some(of_b)) = (site.tensor(a), site.tensor(b)) else { return Ok(None) };
    let Ok(Some(constant)) = bounds::product(of_a, of_b) else { return Ok(None) };
    let (x, constant) = (site.made(x), site.constant(constant));
    site.add(Binary::Mul, &[x, constant]).map(Some)
}

/// Matches `(x op a) op b` with constants `a` and `b`, unless the merged constant would be larger
/// than both.
fn in_a_row(site: &RewriteSite, op: Binary) -> Option<(NodeId, [NodeId; 2])> {
    let [inner, b] = site.binary(site.id, op)?;
    let [x, a] = site.binary(inner, op)?;
    let [shape_of_a, shape_of_b] = [a, b].map(|id| &*site.of(id).shape);
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    let shape = crate::op::broadcast(shape_of_a, shape_of_b).ok()?;
    let is_small = count(&shape) <= count(shape_of_a).max(count(shape_of_b));
    // Constant subexpressions are folded by the pass itself.
    let are_constant = site.is_constant(a) && site.is_constant(b) && !site.is_constant(x);
    (is_small && are_constant).then_some((x, [a, b]))
}

/// True if each element is a sum of products.
fn is_linear(site: &RewriteSite, id: NodeId) -> bool {
    let node = site.of(id);
    node.op.channel_of_sums(node.shape.len()).is_some()
}

fn scale_of_shift(site: &mut RewriteSite) -> Rewritten {
    let Some([sum, b]) = site.binary(site.id, Binary::Mul) else { return Ok(None) };
    let Some([x, a]) = site.binary(sum, Binary::Add) else { return Ok(None) };
    let scaled = site.binary(x, Binary::Mul).filter(|[_, c]| site.is_constant(*c)).map(|[x, _]| x);
    if !(scaled.is_some() || is_linear(site, x)) || !site.is_single(sum) || !site.is_single(x) {
        return Ok(None);
    }
    // A constant that was added before may be cancelled by this one.
    if is_shifted(site, scaled.unwrap_or(x)) {
        return Ok(None);
    }
    let (Some(shift), Some(factors)) = (site.tensor(a), site.tensor(b).and_then(Tensor::as_f32)) else {
        return Ok(None);
    };
    if !bounds::may_scale_shift(shift, factors) {
        return Ok(None);
    }

    let (x, a, b) = (site.made(x), site.made(a), site.made(b));
    let mul = Binary::Mul;
    let shift = site.add(mul, &[a, b])?;
    let scaled = site.add(mul, &[x, b])?;
    site.add(Binary::Add, &[scaled, shift]).map(Some)
}

/// True if a tensor's last operation adds a constant.
fn is_shifted(site: &RewriteSite, id: NodeId) -> bool {
    let node = site.of(id);
    match node.op == Binary::Add {
        true => site.is_constant(node.operands[1]),
        false => is_linear(site, id) && node.operands.len() > 2,
    }
}

/// Matches an operation of a constant with a tensor that has no other reader.
fn linear(site: &RewriteSite, op: Binary) -> Option<[NodeId; 2]> {
    let [x, c] = site.binary(site.id, op)?;
    (site.is_constant(c) && site.is_single(x) && site.fits(x)).then_some([x, c])
}

/// Returns the axis of a convolution's weights that runs over output channels.
fn output_axis(site: &RewriteSite, conv: NodeId) -> Option<usize> {
    match &site.of(conv).op {
        op if op.is::<Conv>() => Some(0),
        // Weights are `[c, o/groups, ..]`: with several groups the axis is shared by them.
        op => op.of().and_then(|&ConvTranspose { groups, .. }| (groups == 1).then_some(1)),
    }
}

/// Returns the values shaped to extend along one axis, with extent 1 along all others.
fn along(site: &RewriteSite, values: Vec<f32>, rank: usize, axis: usize) -> Result<ArrayD<f32>, GraphError> {
    let mut shape = vec![1; rank];
    shape[axis] = values.len();
    array(&shape, values).map_err(|source| site.wrong(source))
}

fn scale_behind_conv(site: &mut RewriteSite) -> Rewritten {
    let Some([conv, c]) = linear(site, Binary::Mul) else { return Ok(None) };
    let node = site.of(conv);
    let Some((axis, values)) = output_axis(site, conv).zip(site.per_axis(c, &node.shape, 1)) else { return Ok(None) };
    let of_bias = along(site, values.clone(), 1, 0)?;
    let factors = along(site, values, site.of(node.operands[1]).shape.len(), axis)?;
    if !may_scale_operands(site, conv, &factors, &of_bias) {
        return Ok(None);
    }

    // Weights and bias are scaled alike.
    let mut operands = site.operands_of(conv);
    for (operand, factors) in operands[1..].iter_mut().zip([factors, of_bias]) {
        let factors = site.constant(Tensor::F32(factors));
        *operand = site.add_as(conv, Binary::Mul, &[*operand, factors])?;
    }
    site.add_as(conv, node.op.clone(), &operands).map(Some)
}

/// True if a node's weights and its bias may be multiplied by factors.
fn may_scale_operands(site: &RewriteSite, node: NodeId, of_weights: &ArrayD<f32>, of_bias: &ArrayD<f32>) -> bool {
    let operands = &site.of(node).operands;
    let bias = operands.get(2).map(|&bias| site.tensor(bias));
    let fits = bias.is_none_or(|bias| bias.is_some_and(|bias| bounds::may_scale_shift(bias, of_bias)));
    fits && bounds::may_scale(site, operands[1], of_weights)
}

fn shift_behind_conv(site: &mut RewriteSite) -> Rewritten {
    let Some([conv, c]) = linear(site, Binary::Add) else { return Ok(None) };
    let node = site.of(conv);
    if !node.op.is::<Conv>() && !node.op.is::<ConvTranspose>() {
        return Ok(None);
    }
    let Some(values) = site.per_axis(c, &node.shape, 1) else { return Ok(None) };
    let shift = Tensor::F32(along(site, values, 1, 0)?);
    let shift = site.constant(shift);
    let operands = site.operands_of(conv);
    with_shift(site, conv, &operands, shift)
}

/// Adds the node with `shift` added to its bias.
fn with_shift(site: &mut RewriteSite, node: NodeId, operands: &[NewNode], shift: NewNode) -> Rewritten {
    let bias = match operands.get(2) {
        Some(&bias) => bounds::sum(site, bias, shift, BiasTarget::ToSums)?,
        None => Some(shift),
    };
    let Some(bias) = bias else { return Ok(None) };
    let operands = [operands[0], operands[1], bias];
    site.add_as(node, site.of(node).op.clone(), &operands).map(Some)
}

/// Matches a convolution of `x op c` with a constant `c` for each channel. Returns `x`, `c` and the
/// value of each channel.
fn before_conv(site: &RewriteSite, op: Binary) -> Option<([NodeId; 2], Vec<f32>)> {
    let node = site.node();
    let &input = node.operands.first().filter(|_| node.op.is::<Conv>())?;
    let [x, c] = site.binary(input, op)?;
    let same_shape = site.of(x).shape == site.of(input).shape;
    let values = site.per_axis(c, &site.of(input).shape, 1);
    let weights = &site.of(node.operands[1]).shape;
    let values = values.filter(|_| same_shape && site.is_constant(node.operands[1]))?;
    (site.is_single(input) && !weights.contains(&0)).then_some(([x, c], values))
}

fn scale_before_conv(site: &mut RewriteSite) -> Rewritten {
    let Some(Conv { groups, .. }) = site.node().op.of() else { return Ok(None) };
    let Some(([x, _], values)) = before_conv(site, Binary::Mul) else { return Ok(None) };
    // The outputs of a group read only the channels of that group.
    let weights = &site.of(site.operand(1)).shape;
    let (of_group, outputs) = (weights[1], if *groups == 1 { 1 } else { weights[0] / groups });
    let all = values.chunks_exact(of_group).flat_map(|group| group.repeat(outputs)).collect();
    let mut shape = vec![1; weights.len()];
    (shape[0], shape[1]) = (outputs * groups, of_group);
    let factors = array(&shape, all).map_err(|source| site.wrong(source))?;

    if !bounds::may_scale(site, site.operand(1), &factors) {
        return Ok(None);
    }
    let mut operands = site.operands_of(site.id);
    operands[0] = site.made(x);
    let factors = site.constant(Tensor::F32(factors));
    operands[1] = site.add(Binary::Mul, &[operands[1], factors])?;
    site.add(site.node().op.clone(), &operands).map(Some)
}

fn shift_before_conv(site: &mut RewriteSite) -> Rewritten {
    let Some(Conv { window, .. }) = site.node().op.of() else { return Ok(None) };
    if window.iter().any(|window| window.pad != [0, 0]) {
        return Ok(None);
    }
    let Some((shifted, _)) = before_conv(site, Binary::Add) else { return Ok(None) };
    let mut operands = site.operands_of(site.id);
    operands[0] = site.made(shifted[0]);

    // The bias gains the sum over channels and taps of weight times shift.
    let summand = operands.get(2).copied();
    let Some(ConstantConv { sums, .. }) = conv_of_shift(site, shifted, summand)? else { return Ok(None) };
    let channels = site.shape_of(sums)[1];
    let sums = site.add(Reshape(vec![channels]), &[sums])?;
    with_shift(site, site.id, &operands, sums)
}

/// Convolution of an image each of whose channels is constant.
struct ConstantConv {
    /// Result of an image that is as small as the convolution permits.
    sums: NewNode,
    /// For each axis along which the whole result is longer, its elements among those of `sums`.
    equal: Vec<(usize, Vec<i64>)>,
}

/// Returns the convolution, without bias, of the constant `c` for each channel that is added to `x`
/// before the convolution. `None` unless it may be added afterwards, or to a `summand` before.
fn conv_of_shift(
    site: &mut RewriteSite,
    [x, c]: [NodeId; 2],
    summand: Option<NewNode>,
) -> Result<Option<ConstantConv>, GraphError> {
    let node = site.node();
    let Some(Conv { window, .. }) = node.op.of() else { return Ok(None) };
    let mut image = site.of(x).shape.clone();
    image[0] = 1;

    // Windows with the same overlap with the padding have the same sum.
    let mut equal = Vec::new();
    for (axis, (window, extent)) in window.iter().zip(&mut image[2..]).enumerate() {
        if let Some((shorter, windows)) = window.distinct(*extent) {
            *extent = shorter;
            equal.push((2 + axis, windows));
        }
    }

    let (op, weights, shift) = (node.op.clone(), site.made(node.operands[1]), site.made(c));
    let shift = site.add(Expand(image), &[shift])?;
    let sums = bounds::fold_linear(site, op, &[shift, weights], summand)?;
    Ok(sums.map(|sums| ConstantConv { sums, equal }))
}

/// Moves an addition from before a padded convolution to after it. The summand then differs where a
/// window overlaps the padding, so it is a whole tensor; reading it costs less than a pass over the
/// image. The epilogue of a convolution does the addition without a pass, also after an activation.
fn shift_before_padded_conv(site: &mut RewriteSite) -> Rewritten {
    let Some(Conv { window, .. }) = site.node().op.of() else { return Ok(None) };
    let Some((shifted, _)) = before_conv(site, Binary::Add) else { return Ok(None) };
    let x = shifted[0];
    let (from, to) = (&site.of(x).shape, &site.node().shape);
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    let is_padded = window.iter().any(|window| window.pad != [0, 0]);
    let is_fused = axis_after_activation(site, x).is_some() || (is_linear(site, x) && site.is_single(x));
    // Beneficial only for a single image, and if the summand is no larger than the image.
    if !is_padded || is_fused || from[0] != 1 || count(to) > count(from) {
        return Ok(None);
    }
    let mut operands = site.operands_of(site.id);
    operands[0] = site.made(x);
    let Some(ConstantConv { sums: mut shift, equal }) = conv_of_shift(site, shifted, None)? else { return Ok(None) };
    for (axis, windows) in equal {
        let windows = Tensor::i64(&[windows.len()], windows).map_err(|source| site.wrong(source))?;
        let windows = site.constant(windows);
        shift = site.add(Gather { axis }, &[shift, windows])?;
    }
    let op = site.node().op.clone();
    let sums = site.add(op, &operands)?;
    site.add(Binary::Add, &[sums, shift]).map(Some)
}

/// Returns the constant weights of a matrix product, with at least two axes.
fn weights_of(site: &RewriteSite, matmul: NodeId) -> Option<NodeId> {
    let node = site.of(matmul);
    let weights = *node.operands.get(1).filter(|_| node.op == MatMul)?;
    (site.is_constant(weights) && site.of(weights).shape.len() > 1).then_some(weights)
}

fn scale_behind_matmul(site: &mut RewriteSite) -> Rewritten {
    let Some([matmul, c]) = linear(site, Binary::Mul) else { return Ok(None) };
    let shape = &site.of(matmul).shape;
    let values = shape.len().checked_sub(1).and_then(|last| site.per_axis(c, shape, last));
    let (Some(values), Some(weights)) = (values, weights_of(site, matmul)) else { return Ok(None) };
    let factors = along(site, values, 1, 0)?;
    if !bounds::may_scale(site, weights, &factors) {
        return Ok(None);
    }
    let mut operands = site.operands_of(matmul);
    let factors = site.constant(Tensor::F32(factors));
    operands[1] = site.add_as(matmul, Binary::Mul, &[operands[1], factors])?;
    site.add_as(matmul, MatMul, &operands).map(Some)
}

/// Matches a matrix product of `x op c` with a constant `c` for each column; returns `x` and the
/// constant.
fn before_matmul(site: &RewriteSite, op: Binary) -> Option<(NodeId, Vec<f32>)> {
    weights_of(site, site.id)?;
    let input = site.operand(0);
    let [x, c] = site.binary(input, op)?;
    let shape = &site.of(input).shape;
    let values = site.per_axis(c, shape, shape.len().checked_sub(1)?)?;
    (site.is_single(input) && site.of(x).shape == *shape).then_some((x, values))
}

fn scale_before_matmul(site: &mut RewriteSite) -> Rewritten {
    let Some((x, values)) = before_matmul(site, Binary::Mul) else { return Ok(None) };
    let factors = along(site, values, 2, 0)?;
    if !bounds::may_scale(site, site.operand(1), &factors) {
        return Ok(None);
    }
    let (x, mut operands) = (site.made(x), site.operands_of(site.id));
    let factors = site.constant(Tensor::F32(factors));
    operands[1] = site.add(Binary::Mul, &[operands[1], factors])?;
    site.add(MatMul, &[x, operands[1]]).map(Some)
}

fn shift_before_matmul(site: &mut RewriteSite) -> Rewritten {
    let Some((x, values)) = before_matmul(site, Binary::Add) else { return Ok(None) };
    // The shift must be the same for all rows of the product.
    if site.of(site.operand(1)).shape.len() != 2 {
        return Ok(None);
    }
    let (x, weights) = (site.made(x), site.made(site.operand(1)));
    let row = Tensor::F32(along(site, values, 1, 0)?);
    let row = site.constant(row);
    let Some(shift) = bounds::fold_linear(site, MatMul, &[row, weights], None)? else { return Ok(None) };
    let product = site.add(MatMul, &[x, weights])?;
    site.add(Binary::Add, &[product, shift]).map(Some)
}

/// Matches an operation of a normalisation with a constant that varies only along the axes of its
/// scale. Returns the normalisation and the constant in the shape of the scale.
fn after_norm(site: &mut RewriteSite, op: Binary) -> Result<Option<(NodeId, NewNode)>, GraphError> {
    let Some([norm, c]) = linear(site, op) else { return Ok(None) };
    let (node, constant) = (site.of(norm), site.tensor(c));
    let axes = match node.op.of() {
        Some(&LayerNorm { axis, .. }) => axis..node.shape.len(),
        None if node.op.is::<GroupNorm>() => 1..2,
        None => return Ok(None),
    };
    let Some(constant) = constant.and_then(Tensor::as_f32) else { return Ok(None) };
    if node.operands[1..].iter().any(|&id| !site.is_constant(id)) {
        return Ok(None);
    }

    // Along all other axes the constant must have extent 1.
    let first = node.shape.len() - constant.ndim().min(node.shape.len());
    let others = constant.shape().iter().enumerate().filter(|(axis, _)| !axes.contains(&(axis + first)));
    if others.into_iter().any(|(_, &extent)| extent != 1) {
        return Ok(None);
    }
    // Extents of the constant along the scale's axes.
    let own: Vec<usize> =
        axes.clone().map(|axis| axis.checked_sub(first).map_or(1, |own| constant.shape()[own])).collect();
    let whole = node.shape[axes].to_vec();
    let constant = site.made(c);
    let constant = site.add(Reshape(own), &[constant])?;
    Ok(Some((norm, site.add(Expand(whole), &[constant])?)))
}

fn scale_behind_norm(site: &mut RewriteSite) -> Rewritten {
    let Some((norm, factors)) = after_norm(site, Binary::Mul)? else { return Ok(None) };
    let known = site.new.constants([factors]).and_then(|[factors]| factors.as_f32());
    if !known.is_some_and(|factors| may_scale_operands(site, norm, factors, factors)) {
        return Ok(None);
    }
    let mut operands = site.operands_of(norm);
    for operand in &mut operands[1..] {
        *operand = site.add_as(norm, Binary::Mul, &[*operand, factors])?;
    }
    site.add_as(norm, site.of(norm).op.clone(), &operands).map(Some)
}

fn shift_behind_norm(site: &mut RewriteSite) -> Rewritten {
    let Some((norm, shift)) = after_norm(site, Binary::Add)? else { return Ok(None) };
    let operands = site.operands_of(norm);
    with_shift(site, norm, &operands, shift)
}
