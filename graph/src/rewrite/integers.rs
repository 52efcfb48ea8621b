//! Products of quantised tensors in integer arithmetic, with rescaling in the same kernel.
//!
//! Kernels multiply u8 data by i8 weights with a zero point of 0, so data of type i8 is shifted by
//! 128 ([`Unsigned`]), and constant weights are shifted while rewriting. The data's zero point adds
//! no work to the sums: it contributes to the bias, through the sum of each channel's weights.

use std::sync::Arc;

use autotune_ir::DType;
use autotune_workloads::{Activation, Function};
use ndarray::ArrayD;

use super::new_graph::{Centred, NewNode};
use super::padding::surrounded;
use super::quantised::{
    dequantised, is_by_channel, is_of_one, moves, number, of_each, product_of_integers as integers_as_numbers,
    quantised, takes_maxima,
};
use super::rule::Rule;
use super::site::{RewriteSite, Rewritten};
use crate::constant::Constant;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::operators::{
    Binary, Cast, Concat, Conv, Dequantize, Map, MatMul, Quantize, Reshape, Saturate, ScaledConv, ScaledMatMul,
    Transpose, Unsigned,
};
use crate::tensor::Tensor;

/// Rules that turn products of dequantised tensors into integer products.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "unsigned_data",
        before: "Dequantize(x) of i8 data",
        after: "Dequantize(Unsigned(x)), with 128 added to the zero point",
        apply: unsigned_data,
    },
    Rule {
        name: "unsigned_before",
        before: "Unsigned(Quantize(x)), Unsigned of moved elements of x",
        after: "Quantize(x) to u8, moved elements of Unsigned(x)",
        apply: unsigned_before,
    },
    Rule {
        name: "transposed_constant",
        before: "Transpose(Dequantize(c))",
        after: "Dequantize(Transpose(c))",
        apply: transposed_constant,
    },
    Rule {
        name: "dequantised_behind_movement",
        before: "Reshape, Transpose, Slice, Expand, Concat or max Pool of Dequantize(x) with one scale",
        after: "Dequantize of the same operator of x",
        apply: dequantised_behind,
    },
    Rule {
        name: "quantised_before",
        before: "Quantize of a Concat or max Pool of x with one scale",
        after: "the same operator of Quantize(x)",
        apply: quantised_before,
    },
    Rule { name: "quantised_again", before: "Quantize(Dequantize(x)) with the same scale", after: "x", apply: again },
    Rule {
        name: "conv_of_integers",
        before: "Conv(Dequantize(x), Dequantize(w), b) with constants w and b",
        after: "integer sums of x * w, padded with the zero point, times a scale plus a bias for each channel",
        apply: conv_of_integers,
    },
    Rule {
        name: "product_of_integers",
        before: "MatMul(Dequantize(x), Dequantize(w)) with a constant matrix w",
        after: "integer sums of x * w, times a scale plus a bias for each column",
        apply: product_of_integers,
    },
    Rule {
        name: "product_by_zero_point",
        before: "MatMulInteger(x, w) converted to f32, with a constant matrix w",
        after: "integer sums of x * w plus a bias for each column",
        apply: product_by_zero_point,
    },
    Rule {
        name: "scale_behind_sums",
        before: "integer sums, times c",
        after: "integer sums, with scale and bias times c",
        apply: scale_behind_sums,
    },
    Rule {
        name: "shift_behind_sums",
        before: "integer sums, plus c for each channel",
        after: "integer sums, with bias plus c",
        apply: shift_behind_sums,
    },
    Rule {
        name: "rounded_sums",
        before: "Quantize of integer sums, or of relu or clip of them",
        after: "integer sums, with scale and bias of the result, rounded",
        apply: rounded_sums,
    },
];

/// Integer weights with a zero point of 0, the scale of each channel, and the sum of each channel's
/// weights.
struct IntegerWeights {
    weights: Constant,
    scales: Vec<f32>,
    sums: Arc<[f64]>,
}

/// Quantised tensor that a kernel reads directly, in place of the dequantised one.
pub(super) struct IntegerData {
    pub(super) x: NodeId,
    pub(super) scale: f32,
    pub(super) zero: f32,
}

fn failed<T>(site: &RewriteSite, tensor: Result<T, crate::error::OpError>) -> Result<T, GraphError> {
    tensor.map_err(|source| site.wrong(source))
}

/// Subtracts zero points from weights along an axis. Returns the differences, if they fit i8, and
/// the sum of each channel.
fn centred(weights: &Constant, zeros: &Constant, axis: usize) -> Option<Centred> {
    let (integers, zeros) = (weights.tensor().ok()?, zeros.tensor().ok()?.to_numbers());
    let shape = integers.shape();
    let (channels, inner) = (*shape.get(axis)?, shape[axis + 1..].iter().product::<usize>());
    let numbers: Vec<i16> = match &**integers {
        Tensor::I8(all) => all.iter().map(|&number| number.into()).collect(),
        Tensor::U8(all) => all.iter().map(|&number| number.into()).collect(),
        _ => return None,
    };
    if ![1, channels].contains(&zeros.len()) {
        return None;
    }

    let (mut centred, mut sums) = (Vec::with_capacity(numbers.len()), vec![0i64; channels]);
    for (row, numbers) in numbers.chunks(inner.max(1)).enumerate() {
        let channel = row % channels;
        // Zero points have the type of the weights.
        let zero = zeros[if zeros.len() == 1 { 0 } else { channel }] as i16;
        for &number in numbers {
            let number = i8::try_from(number - zero).ok()?;
            sums[channel] += i64::from(number);
            centred.push(number);
        }
    }
    let is_same = integers.dtype() == DType::I8 && zeros.iter().all(|&zero| zero == 0.0);
    let centred = match is_same {
        true => weights.clone(),
        false => Tensor::I8(ArrayD::from_shape_vec(shape, centred).ok()?).into(),
    };
    Some((centred, sums.into_iter().map(|sum| sum as f64).collect()))
}

impl IntegerWeights {
    /// Reads constant weights and their zero points along an axis, if the differences fit i8.
    fn of(site: &RewriteSite, weights: NodeId, zero: NodeId, axis: usize) -> Option<Self> {
        let [integers, zeros] = [weights, zero].map(|id| site.from.constant_of(id));
        let (integers, zeros) = (integers?, zeros?);
        let channels = *integers.shape().get(axis)?;
        let (weights, sums) = site.new.centred(integers, zeros, axis, centred)?;
        Some(Self { weights, scales: vec![1.0; channels], sums })
    }

    /// Reads the weights of a [`Dequantize`] node, with one scale or one for each element along an
    /// axis.
    fn dequantised(site: &RewriteSite, id: NodeId, axis: usize) -> Option<Self> {
        let (dequantize, [weights, scale, zero]) = dequantised(site, id)?;
        let scales = site.tensor(scale)?.to_numbers();
        if scales.len() > 1 && dequantize.axis != axis {
            return None;
        }
        let mut found = Self::of(site, weights, zero, axis)?;
        let each = |scale: &mut f32, channel: usize| *scale = scales[if scales.len() == 1 { 0 } else { channel }];
        found.scales.iter_mut().enumerate().for_each(|(channel, scale)| each(scale, channel));
        Some(found)
    }

    /// Returns each channel's scale of the integer sums, and the bias that the data's zero point
    /// contributes.
    fn scale_and_bias(&self, data: &IntegerData) -> [Vec<f32>; 2] {
        let scale: Vec<f64> = self.scales.iter().map(|&own| f64::from(data.scale) * f64::from(own)).collect();
        let bias = scale.iter().zip(&*self.sums).map(|(scale, sum)| (-f64::from(data.zero) * sum * scale) as f32);
        let bias = bias.collect();
        [scale.into_iter().map(|scale| scale as f32).collect(), bias]
    }
}

impl IntegerData {
    /// Reads the operands of a [`Dequantize`] node, if the data is u8 and has a single scale.
    pub(super) fn of(site: &RewriteSite, id: NodeId) -> Option<Self> {
        let (_, [x, scale, zero]) = dequantised(site, id)?;
        let fits = site.of(x).dtype == DType::U8 && !site.is_constant(x);
        fits.then_some(Self { x, scale: number(site, scale)?, zero: number(site, zero)? })
    }
}

/// Adds a constant vector.
pub(super) fn vector(site: &mut RewriteSite, numbers: Vec<f32>) -> Result<NewNode, GraphError> {
    let tensor = failed(site, Tensor::f32(&[numbers.len()], numbers))?;
    Ok(site.constant(tensor))
}

/// Returns the node if there is a kernel for it. Without one, the rule does not apply.
fn with_kernel(site: &RewriteSite, made: NewNode) -> Option<NewNode> {
    site.new.graph.has_kernel(made.0).then_some(made)
}

fn unsigned_data(site: &mut RewriteSite) -> Rewritten {
    let Some((dequantize, [x, scale, zero])) = dequantised(site, site.id) else { return Ok(None) };
    if site.of(x).dtype != DType::I8 || site.is_constant(x) {
        return Ok(None);
    }
    let [x, scale, zero] = [x, scale, zero].map(|id| site.made(id));
    let (x, zero) = (site.add(Unsigned, &[x])?, site.add(Unsigned, &[zero])?);
    site.add(dequantize, &[x, scale, zero]).map(Some)
}

fn unsigned_before(site: &mut RewriteSite) -> Rewritten {
    if !site.node().op.is::<Unsigned>() {
        return Ok(None);
    }
    let inner = site.operand(0);
    if let Some((Quantize { axis, .. }, operands)) = quantised(site, inner) {
        let [x, scale, zero] = operands.map(|id| site.made(id));
        let zero = site.add(Unsigned, &[zero])?;
        return site.add(Quantize { dtype: DType::U8, axis }, &[x, scale, zero]).map(Some);
    }
    if !moves(&site.of(inner).op) {
        return Ok(None);
    }
    of_each(site, inner, |site, operand| site.add(Unsigned, &[operand]))
}

fn transposed_constant(site: &mut RewriteSite) -> Rewritten {
    let Some(Transpose(perm)) = site.node().op.of() else { return Ok(None) };
    let Some((Dequantize { axis }, [x, scale, zero])) = dequantised(site, site.operand(0)) else { return Ok(None) };
    if !site.is_constant(x) {
        return Ok(None);
    }
    // The axis of the scales moves with the transposition; a single scale has none.
    let axis = perm.iter().position(|&from| from == axis).unwrap_or(0);
    let [x, scale, zero] = [x, scale, zero].map(|id| site.made(id));
    let x = site.add(Transpose(perm.clone()), &[x])?;
    site.add(Dequantize { axis }, &[x, scale, zero]).map(Some)
}

/// Moves a dequantisation after an operator that moves or selects elements; quantisation preserves
/// order.
fn dequantised_behind(site: &mut RewriteSite) -> Rewritten {
    let node = site.node();
    if !moves(&node.op) {
        return Ok(None);
    }
    let parts: Option<Vec<_>> = node.operands.iter().map(|&id| dequantised(site, id)).collect();
    let Some((parts, &(dequantize, [first, scale, zero]))) =
        parts.as_ref().and_then(|parts| Some((parts, parts.first()?)))
    else {
        return Ok(None);
    };
    // All parts need the same scale, zero point and type.
    let is_alike = |(_, [x, own_scale, own_zero]): &(Dequantize, [NodeId; 3])| {
        let is_of_type = site.of(*x).dtype == site.of(first).dtype && !site.is_constant(*x);
        [*own_scale, *own_zero] == [scale, zero] && is_of_type
    };
    if !is_of_one(site, scale) || !parts.iter().all(is_alike) {
        return Ok(None);
    }
    let moved: Vec<NewNode> = parts.iter().map(|(_, [x, ..])| site.made(*x)).collect();
    let moved = site.add(node.op.clone(), &moved)?;
    let operands = [moved, site.made(scale), site.made(zero)];
    site.add(dequantize, &operands).map(Some)
}

/// Quantises the operands of a concatenation, or of maxima, where they are computed. Quantisation
/// preserves order, so that the maximum is the same.
fn quantised_before(site: &mut RewriteSite) -> Rewritten {
    let Some((quantize, [parts, scale, zero])) = quantised(site, site.id) else { return Ok(None) };
    let op = &site.of(parts).op;
    if !(takes_maxima(op) || op.is::<Concat>()) || !site.is_single(parts) || !is_of_one(site, scale) {
        return Ok(None);
    }
    let (scale, zero) = (site.made(scale), site.made(zero));
    of_each(site, parts, |site, operand| site.add(quantize, &[operand, scale, zero]))
}

fn again(site: &mut RewriteSite) -> Rewritten {
    let Some((_, [x, scale, zero])) = quantised(site, site.id) else { return Ok(None) };
    let Some((_, [q, own_scale, own_zero])) = dequantised(site, x) else { return Ok(None) };
    if is_of_one(site, scale) && [scale, zero] == [own_scale, own_zero] && site.fits(q) { site.is(q) } else { Ok(None) }
}

fn conv_of_integers(site: &mut RewriteSite) -> Rewritten {
    let Some(Conv { window, groups }) = site.node().op.of() else { return Ok(None) };
    let [x, weights] = [0, 1].map(|operand| site.operand(operand));
    let (Some(data), Some(weights)) = (IntegerData::of(site, x), IntegerWeights::dequantised(site, weights, 0)) else {
        return Ok(None);
    };
    let [scale, mut bias] = weights.scale_and_bias(&data);
    if let Some(&own) = site.node().operands.get(2) {
        let Some(own) = site.tensor(own).and_then(Tensor::as_f32) else { return Ok(None) };
        bias.iter_mut().zip(own).for_each(|(bias, own)| *bias += own);
    }

    let (mut window, groups) = (window.clone(), *groups);
    let mut x = site.made(data.x);
    // Kernels pad with 0, which is not the zero point.
    if data.zero != 0.0 {
        let pads = window.iter_mut().map(|window| std::mem::take(&mut window.pad));
        let pad: Vec<_> = [[0, 0]; 2].into_iter().chain(pads).collect();
        x = surrounded(site, x, &pad, data.zero)?;
    }
    let weights = site.shared_constant(&weights.weights);
    let operands = [x, weights, vector(site, scale)?, vector(site, bias)?];
    let made = site.add(ScaledConv { window, groups }, &operands)?;
    Ok(with_kernel(site, made))
}

fn product_of_integers(site: &mut RewriteSite) -> Rewritten {
    if !site.node().op.is::<MatMul>() {
        return Ok(None);
    }
    let [x, weights] = [0, 1].map(|operand| site.operand(operand));
    let columns = site.of(weights).shape.len().wrapping_sub(1);
    // Kernels need a single matrix of weights, without a batch.
    let (Some(data), true) = (IntegerData::of(site, x), columns == 1) else { return Ok(None) };
    let Some(weights) = IntegerWeights::dequantised(site, weights, columns) else { return Ok(None) };
    if site.of(data.x).shape.len() < 2 {
        return Ok(None);
    }
    let [scale, bias] = weights.scale_and_bias(&data);
    let (scale, bias) = (vector(site, scale)?, vector(site, bias)?);
    scaled_product(site, data.x, &weights.weights, [scale, bias])
}

/// Adds a product with weights of zero point 0 and a scale and bias for each column, if there is a
/// kernel for it.
fn scaled_product(site: &mut RewriteSite, x: NodeId, weights: &Constant, [scale, bias]: [NewNode; 2]) -> Rewritten {
    let (x, weights) = (site.made(x), site.shared_constant(weights));
    let made = site.add(ScaledMatMul, &[x, weights, scale, bias])?;
    Ok(with_kernel(site, made))
}

/// Handles a data zero point that is known only at run time.
fn product_by_zero_point(site: &mut RewriteSite) -> Rewritten {
    let Some([x, weights, x_zero, w_zero]) = integers_as_numbers(site) else { return Ok(None) };
    if site.of(weights).shape.len() != 2
        || !is_of_one(site, x_zero)
        || site.of(x).dtype != DType::U8
        || site.of(x).shape.len() < 2
    {
        return Ok(None);
    }
    let zeros = site.of(w_zero).shape.iter().product::<usize>();
    let by_column = site.of(w_zero).shape.last() == Some(&zeros);
    let Some(weights) = IntegerWeights::of(site, weights, w_zero, 1).filter(|_| zeros == 1 || by_column) else {
        return Ok(None);
    };

    // The bias is minus the zero point times the sum of each column's weights.
    let below = vector(site, weights.sums.iter().map(|sum| -*sum as f32).collect())?;
    let zero = site.made(x_zero);
    let zero = site.add(Cast(DType::F32), &[zero])?;
    let zero = site.add(Reshape(vec![1]), &[zero])?;
    let bias = site.add(Binary::Mul, &[below, zero])?;
    let scale = vector(site, weights.scales)?;
    scaled_product(site, x, &weights.weights, [scale, bias])
}

/// Returns the operands of integer sums with one reader, and their number of channels.
pub(super) fn sums(site: &RewriteSite, id: NodeId) -> Option<([NodeId; 4], usize)> {
    let node = site.of(id);
    let is_sum = node.op.is::<ScaledConv>() || node.op.is::<ScaledMatMul>();
    let operands: [NodeId; 4] = node.operands[..].try_into().ok()?;
    (is_sum && site.is_single(id)).then(|| (operands, site.of(operands[2]).shape[0]))
}

/// Returns a tensor as a vector, if it is a single number or has one for each channel of `sums`.
fn by_channel(site: &mut RewriteSite, values: NodeId, sums: NodeId) -> Result<Option<NewNode>, GraphError> {
    let (own, whole) = (&site.of(values).shape, &site.of(sums).shape);
    let axis = site.of(sums).op.channel_of_sums(whole.len()).unwrap_or(0);
    if !is_by_channel(site, values, whole, axis) {
        return Ok(None);
    }
    let count = own.iter().product();
    let values = site.made(values);
    site.add(Reshape(vec![count]), &[values]).map(Some)
}

fn scale_behind_sums(site: &mut RewriteSite) -> Rewritten {
    for [product, by] in site.both_orders(site.id, Binary::Mul) {
        let Some((operands, _)) = sums(site, product).filter(|_| site.fits(product)) else { continue };
        let Some(by) = by_channel(site, by, product)? else { continue };
        let [x, weights, scale, bias] = operands.map(|id| site.made(id));
        let [scale, bias] = [site.add(Binary::Mul, &[scale, by])?, site.add(Binary::Mul, &[bias, by])?];
        return site.add(site.of(product).op.clone(), &[x, weights, scale, bias]).map(Some);
    }
    Ok(None)
}

fn shift_behind_sums(site: &mut RewriteSite) -> Rewritten {
    for [product, by] in site.both_orders(site.id, Binary::Add) {
        let Some((operands, channels)) = sums(site, product).filter(|_| site.fits(product)) else { continue };
        let Some(by) = by_channel(site, by, product)?.filter(|by| site.shape_of(*by) == [channels]) else { continue };
        let [x, weights, scale, bias] = operands.map(|id| site.made(id));
        let bias = site.add(Binary::Add, &[bias, by])?;
        return site.add(site.of(product).op.clone(), &[x, weights, scale, bias]).map(Some);
    }
    Ok(None)
}

/// Returns the operand and the bounds of a relu or clip; infinite bounds for a tensor that is not
/// computed by an activation; `None` for other activations.
pub(super) fn bounded(site: &RewriteSite, y: NodeId) -> Option<(NodeId, [f32; 2])> {
    match site.activation(y).filter(|_| site.is_single(y)) {
        Some((Activation::Relu, x)) => Some((x, [0.0, f32::INFINITY])),
        Some((Activation::Clip { lo, hi, .. }, x)) => Some((x, [lo, hi])),
        Some(_) => None,
        None => Some((y, [f32::NEG_INFINITY, f32::INFINITY])),
    }
}

/// Folds a requantisation into integer sums. `relu(v) / s + z` is `max(v / s + z, z)`; if `z` is
/// the output type's minimum, saturation does that.
fn rounded_sums(site: &mut RewriteSite) -> Rewritten {
    let Some((quantize, [y, scale, zero])) = quantised(site, site.id) else { return Ok(None) };
    let (Some(step), Some(zero)) = (number(site, scale), number(site, zero)) else { return Ok(None) };
    let Some((found, bounds)) = bounded(site, y) else { return Ok(None) };
    let Some((operands, _)) = sums(site, found) else { return Ok(None) };
    let [Some(scales), Some(biases)] = [operands[2], operands[3]].map(|id| site.tensor(id)) else { return Ok(None) };

    let [scales, biases] = [scales, biases].map(Tensor::to_numbers);
    // In f64, so that each constant is rounded to f32 once only.
    let scales = scales.into_iter().map(|own| (f64::from(own) / f64::from(step)) as f32).collect();
    let biases = biases.into_iter().map(|own| (f64::from(own) / f64::from(step) + f64::from(zero)) as f32).collect();
    let [x, weights] = [operands[0], operands[1]].map(|id| site.made(id));
    let operands = [x, weights, vector(site, scales)?, vector(site, biases)?];
    let mut rounded = site.add(site.of(found).op.clone(), &operands)?;

    // Saturation clamps to the type's range; only tighter bounds need an activation.
    let [least, most] = quantize.dtype.range().map(|end| end as f32);
    let [lo, hi] = bounds.map(|bound| bound / step + zero);
    if (lo > least || hi < most)
        && let Ok(clip) = Activation::new("clip", &[lo.max(least), hi.min(most)])
    {
        rounded = site.add(Map(Function::Activation(clip)), &[rounded])?;
    }
    site.add(Saturate(quantize.dtype), &[rounded]).map(Some)
}
