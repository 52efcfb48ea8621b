//! The same elements in another shape or order.

use super::Convert::{self, One};
use crate::error::OpError;
use crate::onnx::call::{Call, Result, attribute, axes, axis};
use crate::onnx::draft::Value;
use crate::onnx::error::unfit;
use crate::onnx::{NodeError, tensor};
use crate::tensor::elements;
use crate::text::listed;

pub(super) const OPERATORS: &[(&str, Convert)] = &[
    ("Reshape", One(reshape)),
    ("Flatten", One(flatten)),
    ("Squeeze", One(squeeze)),
    ("Unsqueeze", One(unsqueeze)),
    ("Transpose", One(transpose)),
    ("Expand", One(expand)),
    ("Tile", One(tile)),
    ("DepthToSpace", One(depth_to_space)),
    ("SpaceToDepth", One(space_to_depth)),
];

/// Elements of a part of a shape.
fn product(extents: &[usize]) -> Result<usize> {
    Ok(elements(extents)?)
}

/// 0 is the extent that is there, unless it is meant; -1 what is left.
fn reshape(call: &mut Call) -> Result<Value> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let means_zero = call.flag("allowzero", false)?;
    let from = call.shape(x);
    let wanted = call.known_integers(1)?.ok_or(NodeError::Input { input: 1, reason: "it is missing".into() })?;

    let same = |axis: usize| from.get(axis).map(|&extent| extent as i64);
    let filled = wanted.iter().enumerate().map(|(axis, &extent)| match extent {
        0 if !means_zero => same(axis),
        extent => Some(extent),
    });
    let filled: Option<Vec<i64>> = filled.collect();
    let Some(mut filled) = filled else {
        return unfit(format!("shape {:?} has a 0 where {from:?} has no axis", listed(&wanted)));
    };

    let open: Vec<usize> = (0..filled.len()).filter(|&axis| filled[axis] == -1).collect();
    if let &[axis] = &open[..] {
        filled[axis] = 1;
        let rest = product(&tensor::extents(&filled).map_err(NodeError::Unfit)?)?;
        let whole = product(&from)?;
        match whole.checked_div(rest) {
            Some(extent) if extent * rest == whole => filled[axis] = extent as i64,
            _ => return unfit(format!("{whole} elements in shape {:?}", listed(&wanted))),
        }
    }
    let to = tensor::extents(&filled).map_err(NodeError::Unfit)?;
    call.reshape(&to, x)
}

/// A matrix: the axes before one, and those from it on.
fn flatten(call: &mut Call) -> Result<Value> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let at = match call.int_or("axis", 1)? {
        at if at == shape.len() as i64 => shape.len(),
        at => axis(at, shape.len())?,
    };
    let matrix = [product(&shape[..at])?, product(&shape[at..])?];
    call.reshape(&matrix, x)
}

fn squeeze(call: &mut Call) -> Result<Value> {
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let axes = match call.integers("axes", 1, 13)? {
        Some(numbers) => axes(&numbers, shape.len())?,
        None => (0..shape.len()).filter(|&axis| shape[axis] == 1).collect(),
    };
    if let Some(axis) = axes.iter().find(|&&axis| shape[axis] != 1) {
        return unfit(format!("axis {axis} of shape {shape:?} has not one element"));
    }
    let kept: Vec<usize> = (0..shape.len()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect();
    call.reshape(&kept, x)
}

/// New axes are counted in the output.
fn unsqueeze(call: &mut Call) -> Result<Value> {
    let x = call.operand(0)?;
    let mut shape = call.shape(x);
    let missing = || NodeError::Unfit("it does not say which axes".into());
    let numbers = call.integers("axes", 1, 13)?.ok_or_else(missing)?;
    for axis in axes(&numbers, shape.len() + numbers.len())? {
        shape.insert(axis, 1);
    }
    call.reshape(&shape, x)
}

fn transpose(call: &mut Call) -> Result<Value> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let perm = call.extents("perm")?.unwrap_or_else(|| (0..call.rank(x)).rev().collect());
    call.transpose(&perm, x)
}

/// The shape is broadcast to that of the input, too.
fn expand(call: &mut Call) -> Result<Value> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let shape = call.known_integers(1)?.ok_or(NodeError::Input { input: 1, reason: "it is missing".into() })?;
    let shape = tensor::extents(&shape).map_err(NodeError::Unfit)?;
    let shape = crate::op::broadcast(&call.shape(x), &shape)?;
    call.expand(&shape, x)
}

/// Every axis is repeated: as one more axis before it, of which each element is the same.
fn tile(call: &mut Call) -> Result<Value> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let repeats = call.known_integers(1)?.ok_or(NodeError::Input { input: 1, reason: "it is missing".into() })?;
    let repeats: Option<Vec<usize>> = repeats.iter().map(|&times| usize::try_from(times).ok()).collect();
    let Some(repeats) = repeats.filter(|repeats| repeats.len() == shape.len()) else {
        return unfit(format!("the numbers of repeats do not fit a tensor of shape {shape:?}"));
    };

    let mut tiled = x;
    for axis in (0..shape.len()).filter(|&axis| repeats[axis] != 1) {
        let mut split = call.shape(tiled);
        split.insert(axis, 1);
        tiled = call.reshape(&split, tiled)?;
        split[axis] = repeats[axis];
        tiled = call.expand(&split, tiled)?;
        let whole = repeats[axis].checked_mul(shape[axis]).ok_or_else(|| OpError::TooLarge { shape: split.clone() })?;
        split.splice(axis..axis + 2, [whole]);
        tiled = call.reshape(&split, tiled)?;
    }
    Ok(tiled)
}

/// Images and the size of the blocks that channels become, or that become channels.
fn blocks(call: &Call) -> Result<(Value, [usize; 4], usize)> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let size = call.int("blocksize")?.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    let size = size.ok_or_else(|| attribute("blocksize", "it is missing or not positive"))?;
    match call.shape(x)[..] {
        [n, c, h, w] if size < 1 << 16 => Ok((x, [n, c, h, w], size)),
        ref shape => unfit(format!("blocks of {size} in images of shape {shape:?}")),
    }
}

fn depth_to_space(call: &mut Call) -> Result<Value> {
    let (x, [n, c, h, w], size) = blocks(call)?;
    let inner = c / (size * size);
    let (split, perm) = match call.word_or("mode", "DCR")? {
        "DCR" => ([n, size, size, inner, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n, inner, size, size, h, w], [0, 1, 4, 2, 5, 3]),
        _ => return Err(attribute("mode", "it is neither DCR nor CRD")),
    };
    let parts = call.reshape(&split, x)?;
    let ordered = call.transpose(&perm, parts)?;
    let extents = [h.checked_mul(size), w.checked_mul(size)];
    let [Some(h), Some(w)] = extents else { return unfit("the images are too large") };
    call.reshape(&[n, inner, h, w], ordered)
}

fn space_to_depth(call: &mut Call) -> Result<Value> {
    let (x, [n, c, h, w], size) = blocks(call)?;
    let (h, w) = (h / size, w / size);
    let parts = call.reshape(&[n, c, h, size, w, size], x)?;
    let ordered = call.transpose(&[0, 3, 5, 1, 2, 4], parts)?;
    let Some(channels) = c.checked_mul(size * size) else { return unfit("the blocks are too large") };
    call.reshape(&[n, channels, h, w], ordered)
}
