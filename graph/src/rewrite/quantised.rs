//! Rewriting of quantised tensors: to floating point, or to explicit scales for kernels.

use autotune_ir::DType;
use autotune_workloads::{Activation, Function, PoolKind};

use super::new_graph::NewNode;
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten, uniform};
use crate::constant::Constant;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::Op;
use crate::operators::{
    Binary, Cast, Concat, Conv, ConvInteger, Dequantize, Expand, Map, MatMul, MatMulInteger, Pool, Quantize, Rescale,
    Reshape, Slice, Transpose, Unsigned,
};
use crate::tensor::Tensor;

/// Rules that convert a network from integers to floating point
/// ([`dequantised`](super::dequantised())).
pub(super) const FLOAT: &[Rule] = &[
    Rule {
        name: "not_rounded",
        before: "Dequantize(Quantize(x)) with one scale",
        after: "x, clipped to the range if zero is one of its ends",
        apply: not_rounded,
    },
    Rule {
        name: "dequantised_ahead",
        before: "Dequantize(c)",
        after: "c converted to f32",
        apply: dequantised_constant,
    },
    Rule {
        name: "product_not_rounded",
        before: "MatMulInteger(Quantize(x), w) converted to f32",
        after: "MatMul(x, w) / scale",
        apply: product_not_rounded,
    },
    Rule { name: "scale_and_back", before: "y / s * (s * c)", after: "y * c", apply: scale_and_back },
    Rule {
        name: "dequantised_before_movement",
        before: "Dequantize with one scale of moved elements of x",
        after: "moved elements of Dequantize(x)",
        apply: dequantised_before,
    },
];

/// Rules for quantised tensors that no integer kernel handles.
pub(super) const OPENED: &[Rule] = &[
    Rule {
        name: "dequantised_constant",
        before: "Dequantize(c)",
        after: "c converted to f32",
        apply: dequantised_constant,
    },
    Rule {
        name: "quantised_by_channel",
        before: "Quantize(x)",
        after: "x * (1 / scale) + zero, rounded, with scale and zero for each channel",
        apply: quantised_by_channel,
    },
    Rule {
        name: "dequantised_by_channel",
        before: "Dequantize(x)",
        after: "x * scale + -zero * scale, with scale and zero for each channel",
        apply: dequantised_by_channel,
    },
    Rule {
        name: "unsigned_by_channel",
        before: "Unsigned(x)",
        after: "x + 128, with 128 for each channel",
        apply: unsigned_by_channel,
    },
    Rule {
        name: "sums_of_integers",
        before: "MatMulInteger(x, w), ConvInteger(x, w)",
        after: "MatMul(x - zero, w - zero), Conv(x - zero, w - zero)",
        apply: sums_of_integers,
    },
];

/// Returns a node's operand, scale and zero point.
pub(super) fn scaled(site: &RewriteSite, id: NodeId) -> [NodeId; 3] {
    let operands = &site.of(id).operands;
    [operands[0], operands[1], operands[2]]
}

/// Returns a [`Dequantize`] with its tensor, scale and zero point.
pub(super) fn dequantised(site: &RewriteSite, id: NodeId) -> Option<(Dequantize, [NodeId; 3])> {
    let &dequantize = site.of(id).op.of()?;
    Some((dequantize, scaled(site, id)))
}

/// Returns a [`Quantize`] with its tensor, scale and zero point.
pub(super) fn quantised(site: &RewriteSite, id: NodeId) -> Option<(Quantize, [NodeId; 3])> {
    let &quantize = site.of(id).op.of()?;
    Some((quantize, scaled(site, id)))
}

/// Returns the value of a constant whose elements are all equal.
pub(super) fn number(site: &RewriteSite, id: NodeId) -> Option<f32> {
    uniform(site.tensor(id)?).map(|number| number as f32)
}

/// Removes a quantisation and its inverse. The result is clamped to the integer range if zero is an
/// end of it, since a quantiser may rely on saturation for a ReLU.
fn not_rounded(site: &mut RewriteSite) -> Rewritten {
    let Some((dequantize, [q, scale, zero])) = dequantised(site, site.id) else { return Ok(None) };
    let Some((quantize, [x, own_scale, own_zero])) = quantised(site, q) else { return Ok(None) };
    let is_alike =
        [scale, zero] == [own_scale, own_zero] && (quantize.axis == dequantize.axis || is_of_one(site, scale));
    if !is_alike {
        return Ok(None);
    }

    let ends = number(site, scale).zip(number(site, zero)).and_then(|(scale, zero)| {
        let ends = quantize.dtype.range().map(|end| (end as f32 - zero) * scale);
        ends.contains(&0.0).then_some(ends)
    });
    let x = site.made(x);
    match ends.and_then(|ends| Activation::new("clip", &ends).ok()) {
        Some(clip) => site.add(Map(Function::Activation(clip)), &[x]).map(Some),
        None => Ok(Some(x)),
    }
}

fn dequantised_constant(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    if !node.op.is::<Dequantize>() {
        return Ok(None);
    }
    let constants: Option<Vec<&Constant>> = node.operands.iter().map(|&id| site.from.constant_of(id)).collect();
    let Some(constants) = constants else { return Ok(None) };
    let numbers = Constant::computed(&node.op, &constants).map_err(|source| site.wrong(source))?;
    Ok(Some(site.new.constant(&node.name, &numbers)))
}

/// True for an operator that moves elements, or selects some by order, among operands of one type.
pub(crate) fn moves(op: &Op) -> bool {
    let moves = op.is::<Reshape>() || op.is::<Transpose>() || op.is::<Slice>() || op.is::<Expand>();
    moves || op.is::<Concat>() || takes_maxima(op)
}

/// True for the pooling whose results are elements of its windows.
pub(super) fn takes_maxima(op: &Op) -> bool {
    op.of().is_some_and(|Pool { kind, .. }| *kind == PoolKind::Max)
}

/// Adds a copy of a node's operator, with `each` applied to its operands.
pub(super) fn of_each(
    site: &mut RewriteSite,
    id: NodeId,
    each: impl Fn(&mut RewriteSite, NewNode) -> Result<NewNode, GraphError>,
) -> Rewritten {
    let mut operands = site.operands_of(id);
    for operand in &mut operands {
        *operand = each(site, *operand)?;
    }
    site.add(site.of(id).op.clone(), &operands).map(Some)
}

/// True for a tensor of one element.
pub(super) fn is_of_one(site: &RewriteSite, id: NodeId) -> bool {
    site.of(id).shape.iter().product::<usize>() == 1
}

/// True if a tensor of f32 is a single number, or has one for each channel along an axis of the
/// shape `whole` that it broadcasts to.
pub(super) fn is_by_channel(site: &RewriteSite, values: NodeId, whole: &[usize], axis: usize) -> bool {
    let own = &site.of(values).shape;
    let count = own.iter().product::<usize>();
    let behind = whole.len() - 1 - axis;
    // The only axis with several elements must be the channel axis.
    let along = own.len().checked_sub(1 + behind).is_some_and(|at| own[at] == count) && count == whole[axis];
    (count == 1 || along) && own.len() <= whole.len() && site.of(values).dtype == DType::F32
}

/// Returns the operands of an integer matrix product that is cast to f32.
pub(super) fn product_of_integers(site: &RewriteSite) -> Option<[NodeId; 4]> {
    let is_cast = site.node().op == Cast(DType::F32);
    let &product = site.node().operands.first().filter(|_| is_cast)?;
    let operands = site.of(product).operands[..].try_into().ok();
    operands.filter(|_| site.of(product).op.is::<MatMulInteger>())
}

fn product_not_rounded(site: &mut RewriteSite) -> Rewritten {
    let Some([a, b, a_zero, b_zero]) = product_of_integers(site) else { return Ok(None) };
    let Some((_, [x, scale, zero])) = quantised(site, a) else { return Ok(None) };
    // Only the quantiser's own zero point cancels.
    if zero != a_zero || !site.is_constant(b) || !is_of_one(site, scale) {
        return Ok(None);
    }
    let (x, scale) = (site.made(x), site.made(scale));
    let weights = centred(site, b, b_zero)?;
    let product = site.add(MatMul, &[x, weights])?;
    // Extra axes of the scale must not broadcast into the product.
    let scale = site.add(Reshape(Vec::new()), &[scale])?;
    site.add(Binary::Div, &[product, scale]).map(Some)
}

fn dequantised_before(site: &mut RewriteSite) -> Rewritten {
    let Some((dequantize, [moved, scale, zero])) = dequantised(site, site.id) else { return Ok(None) };
    if !moves(&site.of(moved).op) || !is_of_one(site, scale) {
        return Ok(None);
    }
    let (scale, zero) = (site.made(scale), site.made(zero));
    of_each(site, moved, |site, operand| site.add(dequantize, &[operand, scale, zero]))
}

fn scale_and_back(site: &mut RewriteSite) -> Rewritten {
    for [divided, scales] in site.both_orders(site.id, Binary::Mul) {
        let Some([y, scale]) = site.binary(divided, Binary::Div) else { continue };
        // The scale may be reshaped, as `product_not_rounded` does.
        let scale = match site.of(scale).op.is::<Reshape>() {
            true => site.of(scale).operands[0],
            false => scale,
        };
        if scale == scales {
            return site.is(y);
        }
        for [found, rest] in site.both_orders(scales, Binary::Mul) {
            if found == scale {
                let (y, rest) = (site.made(y), site.made(rest));
                let whole = site.add(Binary::Mul, &[y, rest])?;
                // Without the division the operands may broadcast to another shape.
                let fits = site.shape_of(whole) == site.node().shape;
                return Ok(fits.then_some(whole));
            }
        }
    }
    Ok(None)
}

/// Returns the axis along which kernels take per-element scales: the channels for images.
fn channels(site: &RewriteSite, mut id: NodeId) -> usize {
    let shape = &site.node().shape;
    let by_shape = if shape.len() > 3 { 1 } else { shape.len().saturating_sub(1) };
    // Elementwise operations keep the channel axis of the sums before them.
    while site.of(id).op.is::<Map>() || site.of(id).op == Binary::Add {
        id = site.of(id).operands[0];
    }
    let own = site.of(id).op.channel_of_sums(shape.len());
    own.filter(|_| site.of(id).shape == *shape).unwrap_or(by_shape)
}

/// Returns a vector of `extent` numbers from such a vector or from a single number.
fn each(site: &mut RewriteSite, numbers: NewNode, extent: usize) -> Result<NewNode, GraphError> {
    match site.shape_of(numbers)[..] {
        [count] if count == extent => Ok(numbers),
        _ => {
            let one = site.add(Reshape(vec![1]), &[numbers])?;
            site.add(Expand(vec![extent]), &[one])
        }
    }
}

/// Adds `x * scale + bias` with a number for each element along an axis; a tensor without axes is
/// treated as one with a single element.
fn rescaled(
    site: &mut RewriteSite,
    dtype: DType,
    axis: usize,
    [x, scale, bias]: [NewNode; 3],
) -> Result<NewNode, GraphError> {
    let shape = site.shape_of(x);
    let Some(&extent) = shape.get(axis) else {
        let row = site.add(Reshape(vec![1]), &[x])?;
        let made = rescaled(site, dtype, 0, [row, scale, bias])?;
        return site.add(Reshape(Vec::new()), &[made]);
    };
    let [scale, bias] = [each(site, scale, extent)?, each(site, bias, extent)?];
    site.add(Rescale { dtype, axis }, &[x, scale, bias])
}

/// Returns the axis of several scales, or the channel axis for a single one.
fn axis_of(site: &RewriteSite, own: usize, [x, scale, _]: [NodeId; 3]) -> usize {
    if site.of(scale).shape.iter().product::<usize>() > 1 { own } else { channels(site, x) }
}

fn quantised_by_channel(site: &mut RewriteSite) -> Rewritten {
    let Some((Quantize { dtype, axis }, operands)) = quantised(site, site.id) else { return Ok(None) };
    let axis = axis_of(site, axis, operands);
    let [x, scale, zero] = operands.map(|id| site.made(id));
    // Kernels multiply, so the reciprocal is needed.
    let one = site.constant(Tensor::scalar(1.0));
    let steps = site.add(Binary::Div, &[one, scale])?;
    let zero = site.add(Cast(DType::F32), &[zero])?;
    rescaled(site, dtype, axis, [x, steps, zero]).map(Some)
}

fn dequantised_by_channel(site: &mut RewriteSite) -> Rewritten {
    let Some((Dequantize { axis }, operands)) = dequantised(site, site.id) else { return Ok(None) };
    // `dequantised_constant` handles this case without a kernel.
    if operands.iter().all(|&id| site.is_constant(id)) {
        return Ok(None);
    }
    let axis = axis_of(site, axis, operands);
    let [x, scale, zero] = operands.map(|id| site.made(id));
    // (x - zero) * scale = x * scale + (-zero * scale)
    let zero = site.add(Cast(DType::F32), &[zero])?;
    let below = site.add(Binary::Mul, &[zero, scale])?;
    let minus_one = site.constant(Tensor::scalar(-1.0));
    let bias = site.add(Binary::Mul, &[below, minus_one])?;
    rescaled(site, DType::F32, axis, [x, scale, bias]).map(Some)
}

fn unsigned_by_channel(site: &mut RewriteSite) -> Rewritten {
    if !site.node().op.is::<Unsigned>() {
        return Ok(None);
    }
    let x = site.operand(0);
    let axis = channels(site, x);
    let operands = [site.made(x), site.constant(Tensor::scalar(1.0)), site.constant(Tensor::scalar(128.0))];
    rescaled(site, DType::U8, axis, operands).map(Some)
}

/// Adds integers minus their zero point, as f32.
fn centred(site: &mut RewriteSite, x: NodeId, zero: NodeId) -> Result<NewNode, GraphError> {
    let is_zero = number(site, zero) == Some(0.0);
    let (x, zero) = (site.made(x), site.made(zero));
    let x = site.add(Cast(DType::F32), &[x])?;
    if is_zero {
        return Ok(x);
    }
    let zero = site.add(Cast(DType::F32), &[zero])?;
    let minus_one = site.constant(Tensor::scalar(-1.0));
    let below = site.add(Binary::Mul, &[zero, minus_one])?;
    site.add(Binary::Add, &[x, below])
}

fn sums_of_integers(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    let [x, weights, x_zero, w_zero] = node.operands[..] else { return Ok(None) };
    let conv = node.op.of().map(|ConvInteger { window, groups }| Conv { window: window.clone(), groups: *groups });
    if conv.is_none() && !node.op.is::<MatMulInteger>() {
        return Ok(None);
    }
    let operands = [centred(site, x, x_zero)?, centred(site, weights, w_zero)?];
    let sums = match conv {
        Some(conv) => site.add(conv, &operands)?,
        None => site.add(MatMul, &operands)?,
    };
    // Readers expect integers; f32 sums are exact up to 2^24.
    site.add(Cast(DType::I64), &[sums]).map(Some)
}
