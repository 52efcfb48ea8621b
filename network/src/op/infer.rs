//! Shapes of outputs.

use autotune_workloads::{Activation, Function, PadMode};

use super::{Binary, Op, Range};
use crate::error::OpError;
use crate::tensor::{Element, elements};
use crate::text::listed;

mod image;

type Shape = Vec<usize>;
type Operand<'a> = (&'a [usize], Element);

/// Shape and element type of the output of an operation on operands of these.
pub(super) fn output(op: &Op, operands: &[Operand]) -> Result<(Shape, Element), OpError> {
    check_count(op, operands.len())?;
    check_elements(op, operands)?;
    let shapes: Vec<&[usize]> = operands.iter().map(|&(shape, _)| shape).collect();

    let shape = shape_of(op, &shapes)?;
    elements(&shape)?;
    Ok((shape, element_of(op, operands)))
}

fn shape_of(op: &Op, shapes: &[&[usize]]) -> Result<Shape, OpError> {
    match op {
        Op::Input | Op::Constant(_) => unfit("it has its shape from elsewhere"),
        Op::Conv { window, groups } => image::conv(window, *groups, shapes),
        Op::ConvTranspose { window, output_pad, groups } => image::conv_transpose(window, output_pad, *groups, shapes),
        Op::Pool { window, ceil, .. } => image::pool(window, *ceil, shapes[0]),
        Op::Resize { size, .. } => image::resize(*size, shapes[0]),
        Op::GroupNorm { groups, .. } => image::group_norm(*groups, shapes),
        Op::LocalResponseNorm { size, .. } => image::local_response_norm(*size, shapes[0]),
        Op::MatMul => matmul(shapes[0], shapes[1]),
        Op::Attention { .. } => attention(shapes),
        Op::Map(Function::Activation(Activation::Prelu)) => unfit("slopes are an operand of Prelu"),
        Op::Map(_) | Op::Not | Op::Cast(_) => Ok(shapes[0].to_vec()),
        Op::Prelu => fixed(shapes[0], shapes[1]),
        Op::Binary(_) => broadcast(shapes[0], shapes[1]),
        Op::Where => broadcast(&broadcast(shapes[0], shapes[1])?, shapes[2]),
        Op::Reduce { axes, keep_axes, .. } => reduce(axes, *keep_axes, shapes[0]),
        Op::Softmax { axis, .. } => axis_of(*axis, shapes[0]).map(|_| shapes[0].to_vec()),
        Op::LayerNorm { axis, .. } => layer_norm(*axis, shapes),
        Op::Concat { axis } => concat(*axis, shapes),
        Op::Slice(ranges) => slice(ranges, shapes[0]),
        Op::Reshape(shape) => reshape(shape, shapes[0]),
        Op::Transpose(perm) => transpose(perm, shapes[0]),
        Op::Expand(shape) => fixed(shape, shapes[0]),
        Op::Pad { pad, mode, .. } => padded(pad, *mode, shapes[0]),
        Op::Gather { axis } => gather(*axis, shapes),
    }
}

fn check_count(op: &Op, found: usize) -> Result<(), OpError> {
    let (range, wanted) = match op {
        Op::Input | Op::Constant(_) => (0..=0, "none"),
        Op::Conv { .. } | Op::ConvTranspose { .. } | Op::LayerNorm { .. } => (2..=3, "2 or 3"),
        Op::MatMul | Op::Prelu | Op::Binary(_) | Op::Gather { .. } => (2..=2, "2"),
        Op::GroupNorm { .. } | Op::Where => (3..=3, "3"),
        Op::Attention { .. } => (3..=4, "3 or 4"),
        Op::Concat { .. } => (1..=usize::MAX, "at least 1"),
        _ => (1..=1, "1"),
    };
    if range.contains(&found) { Ok(()) } else { Err(OpError::Count { found, wanted }) }
}

fn check_elements(op: &Op, operands: &[Operand]) -> Result<(), OpError> {
    let all_are = |element: Element, wanted| {
        let wrong = operands.iter().position(|&(_, found)| found != element);
        wrong.map_or(Ok(()), |operand| Err(OpError::Element { operand, found: operands[operand].1, wanted }))
    };
    let same_as = |first: usize| {
        let wrong = (first..operands.len()).find(|&operand| operands[operand].1 != operands[first].1);
        let wanted = "the type of the others";
        wrong.map_or(Ok(()), |operand| Err(OpError::Element { operand, found: operands[operand].1, wanted }))
    };
    let is = |operand: usize, element: Element, wanted| match operands[operand].1 {
        found if found == element => Ok(()),
        found => Err(OpError::Element { operand, found, wanted }),
    };
    match op {
        Op::Binary(Binary::And) | Op::Not => all_are(Element::Bool, "bool"),
        Op::Binary(Binary::Equal) | Op::Concat { .. } => same_as(0),
        Op::Binary(_) if operands[0].1 == Element::I64 => all_are(Element::I64, "i64"),
        Op::Where => is(0, Element::Bool, "bool").and(same_as(1)),
        Op::Gather { .. } => is(1, Element::I64, "i64"),
        // Negative numbers and sizes, as shapes are computed with.
        Op::Map(_) | Op::Reduce { .. } if operands[0].1 == Element::I64 => Ok(()),
        Op::Slice(_) | Op::Reshape(_) | Op::Transpose(_) | Op::Expand(_) | Op::Cast(_) => Ok(()),
        Op::Attention { .. } if operands.len() == 4 && operands[3].1 == Element::Bool => Ok(()),
        _ => all_are(Element::F32, "f32"),
    }
}

fn element_of(op: &Op, operands: &[Operand]) -> Element {
    match op {
        Op::Cast(element) => *element,
        Op::Binary(Binary::Equal | Binary::Less) => Element::Bool,
        Op::Where => operands[1].1,
        _ => operands.first().map_or(Element::F32, |&(_, element)| element),
    }
}

fn unfit<T>(reason: impl Into<String>) -> Result<T, OpError> {
    Err(OpError::Unfit(reason.into()))
}

/// An axis that a shape has.
fn axis_of(axis: usize, shape: &[usize]) -> Result<usize, OpError> {
    if axis < shape.len() { Ok(axis) } else { unfit(format!("axis {axis} of a tensor of shape {shape:?}")) }
}

/// The shape that two shapes are broadcast to, as in NumPy: axes are matched from the last on, an extent of 1 fits all.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Result<Shape, OpError> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(own) => shape[own],
        None => 1,
    };
    let merged = (0..rank).map(|axis| match (extent(a, axis), extent(b, axis)) {
        (a, b) if a == b => Some(a),
        (1, other) | (other, 1) => Some(other),
        _ => None,
    });
    let merged: Option<Shape> = merged.collect();
    merged.ok_or_else(|| OpError::Unfit(format!("shapes {a:?} and {b:?} cannot be broadcast to each other")))
}

/// `shape`, if `other` is broadcast to it.
fn fixed(shape: &[usize], other: &[usize]) -> Result<Shape, OpError> {
    match broadcast(shape, other) {
        Ok(merged) if merged == shape => Ok(merged),
        _ => unfit(format!("shape {other:?} cannot be broadcast to {shape:?}")),
    }
}

fn matmul(a: &[usize], b: &[usize]) -> Result<Shape, OpError> {
    let wrong = || OpError::Unfit(format!("a product of tensors of shapes {a:?} and {b:?}"));
    let rows = |shape: &[usize]| if let &[k] = shape { vec![1, k] } else { shape.to_vec() };
    let columns = |shape: &[usize]| if let &[k] = shape { vec![k, 1] } else { shape.to_vec() };
    let (left, right) = (rows(a), columns(b));
    let ([a_batch @ .., m, k], [b_batch @ .., k_of_b, n]) = (&left[..], &right[..]) else { return Err(wrong()) };
    if k != k_of_b {
        return Err(wrong());
    }
    let mut shape = broadcast(a_batch, b_batch).map_err(|_| wrong())?;
    shape.extend((a.len() > 1).then_some(*m));
    shape.extend((b.len() > 1).then_some(*n));
    Ok(shape)
}

fn attention(shapes: &[&[usize]]) -> Result<Shape, OpError> {
    let (q, k, v) = (shapes[0], shapes[1], shapes[2]);
    let ([batch @ .., m, d], [k_batch @ .., n, k_d], [v_batch @ .., v_n, e]) = (q, k, v) else {
        return unfit("queries, keys and values have at least two axes");
    };
    if (batch, d, n) != (k_batch, k_d, v_n) || batch != v_batch {
        return unfit(format!("queries {q:?}, keys {k:?} and values {v:?} do not fit each other"));
    }
    let scores = [batch, &[*m, *n]].concat();
    if let Some(mask) = shapes.get(3) {
        fixed(&scores, mask)?;
    }
    Ok([batch, &[*m, *e]].concat())
}

fn reduce(axes: &[usize], keep_axes: bool, shape: &[usize]) -> Result<Shape, OpError> {
    axes.iter().try_for_each(|&axis| axis_of(axis, shape).map(drop))?;
    if !axes.is_sorted_by(|a, b| a < b) {
        return unfit(format!("axes {axes:?} are not in order"));
    }
    if let Some(axis) = axes.iter().find(|&&axis| shape[axis] == 0) {
        return unfit(format!("axis {axis} has no elements"));
    }
    let extent = |(axis, &extent): (usize, &usize)| match (axes.contains(&axis), keep_axes) {
        (false, _) => Some(extent),
        (true, true) => Some(1),
        (true, false) => None,
    };
    Ok(shape.iter().enumerate().filter_map(extent).collect())
}

fn layer_norm(axis: usize, shapes: &[&[usize]]) -> Result<Shape, OpError> {
    let inner = &shapes[0][axis_of(axis, shapes[0])?..];
    match shapes[1..].iter().find(|shape| **shape != inner) {
        Some(shape) => unfit(format!("scale or bias of shape {shape:?} for rows of shape {inner:?}")),
        None => Ok(shapes[0].to_vec()),
    }
}

fn concat(axis: usize, shapes: &[&[usize]]) -> Result<Shape, OpError> {
    let mut shape = shapes[0].to_vec();
    axis_of(axis, &shape)?;
    shape[axis] = 0;
    for other in shapes {
        let fits = other.len() == shape.len() && (0..shape.len()).all(|a| a == axis || other[a] == shape[a]);
        let sum = if fits { shape[axis].checked_add(other[axis]) } else { None };
        match sum {
            Some(sum) => shape[axis] = sum,
            None => return unfit(format!("shapes {:?} and {other:?} along axis {axis}", shapes[0])),
        }
    }
    Ok(shape)
}

fn slice(ranges: &[Range], shape: &[usize]) -> Result<Shape, OpError> {
    let is_inside = |(range, &extent): (&Range, &usize)| {
        let last = range.count.checked_sub(1).map(|steps| range.start as i128 + range.step as i128 * steps as i128);
        last.is_none_or(|last| range.start < extent && (0..extent as i128).contains(&last))
    };
    match ranges.len() == shape.len() && ranges.iter().zip(shape).all(is_inside) {
        true => Ok(ranges.iter().map(|range| range.count).collect()),
        false => unfit(format!("the slice is not within a tensor of shape {shape:?}")),
    }
}

fn reshape(to: &[usize], shape: &[usize]) -> Result<Shape, OpError> {
    match elements(to)? == elements(shape)? {
        true => Ok(to.to_vec()),
        false => unfit(format!("{shape:?} has not as many elements as {to:?}")),
    }
}

fn transpose(perm: &[usize], shape: &[usize]) -> Result<Shape, OpError> {
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    match sorted.iter().copied().eq(0..shape.len()) {
        true => Ok(perm.iter().map(|&axis| shape[axis]).collect()),
        false => unfit(format!("{:?} is no permutation of the axes of {shape:?}", listed(perm))),
    }
}

fn padded(pad: &[[usize; 2]], mode: PadMode, shape: &[usize]) -> Result<Shape, OpError> {
    if pad.len() != shape.len() {
        return unfit(format!("padding of {} axes for a tensor of shape {shape:?}", pad.len()));
    }
    // What is repeated has to be there.
    let most = |extent: usize| match mode {
        PadMode::Constant => usize::MAX,
        PadMode::Reflect => extent.saturating_sub(1),
        PadMode::Edge => {
            if extent > 0 {
                usize::MAX
            } else {
                0
            }
        }
    };
    if pad.iter().zip(shape).any(|(pad, &extent)| pad.iter().any(|&pad| pad > most(extent))) {
        return unfit(format!("nothing to repeat {:?} times in a tensor of shape {shape:?}", listed(pad)));
    }
    let extent = |(&[before, behind], &extent): (&[usize; 2], &usize)| extent.checked_add(before)?.checked_add(behind);
    let extents: Option<Shape> = pad.iter().zip(shape).map(extent).collect();
    extents.ok_or_else(|| OpError::TooLarge { shape: shape.to_vec() })
}

fn gather(axis: usize, shapes: &[&[usize]]) -> Result<Shape, OpError> {
    let (data, numbers) = (shapes[0], shapes[1]);
    let axis = axis_of(axis, data)?;
    Ok([&data[..axis], numbers, &data[axis + 1..]].concat())
}
