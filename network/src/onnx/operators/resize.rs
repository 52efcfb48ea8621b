//! Images of another size.

use autotune_workloads::{Coordinates, Rounding, Sampling};

use super::Convert::{self, One};
use crate::onnx::NodeError;
use crate::onnx::call::{Call, Result, attribute, axis};
use crate::onnx::draft::Value;
use crate::onnx::error::unfit;
use crate::op::Op;
use crate::text::listed;

pub(super) const OPERATORS: &[(&str, Convert)] = &[("Resize", One(resize)), ("Upsample", One(upsample))];

fn upsample(call: &mut Call) -> Result<Value> {
    let x = call.operand(0)?;
    let scales = match call.version < 9 {
        true => call.floats("scales")?.map(<[f32]>::to_vec),
        false => call.known_floats(1)?,
    };
    let scales = scales.ok_or_else(|| attribute("scales", "it is missing"))?;
    let size = scaled(&call.shape(x), &scales)?;
    let mode = call.word_or("mode", "nearest")?;
    resized_before_11(call, x, &size, mode)
}

/// Before version 11 nothing says how places are counted and rounded: from the corners, and to the
/// next element along axes that become shorter, to the one before along those that become longer,
/// as ONNX Runtime and the standard's examples do.
fn resized_before_11(call: &mut Call, x: Value, size: &[usize], mode: &str) -> Result<Value> {
    if mode != "nearest" {
        return resized(call, x, size, mode, ["asymmetric", "floor"]);
    }
    let shorter: Vec<usize> = call.shape(x).iter().zip(size).map(|(&from, &to)| from.min(to)).collect();
    let x = resized(call, x, &shorter, mode, ["asymmetric", "ceil"])?;
    resized(call, x, size, mode, ["asymmetric", "floor"])
}

fn resize(call: &mut Call) -> Result<Value> {
    let x = call.operand(0)?;
    let mode = call.word_or("mode", "nearest")?;
    if call.version < 11 {
        call.check_most(2)?;
        let scales = call.known_floats(1)?.ok_or(NodeError::Input { input: 1, reason: "it is missing".into() })?;
        let size = scaled(&call.shape(x), &scales)?;
        return resized_before_11(call, x, &size, mode);
    }

    call.check_most(4)?;
    // Of cubic functions and of parts of images, which are not supported.
    call.ignore(&["cubic_coeff_a", "extrapolation_value", "exclude_outside"]);
    if call.flag("antialias", false)? {
        return Err(attribute("antialias", "it is not supported"));
    }
    if call.word_or("keep_aspect_ratio_policy", "stretch")? != "stretch" {
        return Err(attribute("keep_aspect_ratio_policy", "only stretch is supported"));
    }
    let coordinates = call.word_or("coordinate_transformation_mode", "half_pixel")?;
    let nearest = call.word_or("nearest_mode", "round_prefer_floor")?;
    let size = wanted(call, x)?;
    resized(call, x, &size, mode, [coordinates, nearest])
}

/// The shape that sizes or scales make of a tensor; an empty tensor says nothing.
fn wanted(call: &Call, x: Value) -> Result<Vec<usize>> {
    let shape = call.shape(x);
    let axes = match call.ints("axes")? {
        Some(numbers) => numbers.iter().map(|&number| axis(number, shape.len())).collect::<Result<Vec<usize>>>()?,
        None => (0..shape.len()).collect(),
    };
    let own: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
    let scales = if call.is_empty(2) { None } else { call.known_floats(2)? };
    let sizes = if call.is_empty(3) { None } else { call.known_integers(3)? };
    let found = match (scales, sizes) {
        (_, Some(sizes)) => {
            let sizes: Option<Vec<usize>> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
            sizes.ok_or_else(|| NodeError::Unfit("a size is negative".into()))?
        }
        (Some(scales), None) => scaled(&own, &scales)?,
        (None, None) => return unfit("neither scales nor sizes are known"),
    };

    if found.len() != axes.len() {
        return unfit(format!("{} scales or sizes for {} axes", found.len(), axes.len()));
    }
    let mut size = shape;
    axes.iter().zip(found).for_each(|(&axis, extent)| size[axis] = extent);
    Ok(size)
}

/// Extents by their scales, rounded down in f32. Places are computed by the scale of a file, but by
/// the ratio of extents here: these have to be the same.
fn scaled(shape: &[usize], scales: &[f32]) -> Result<Vec<usize>> {
    const NEAR: f64 = 1e-4;
    let whole = |(&extent, &scale): (&usize, &f32)| {
        let exact = extent as f64 * f64::from(scale);
        let in_range = (0.0..f64::from(u32::MAX)).contains(&exact.round());
        let rounded_down = f64::from((extent as f32 * scale).floor());
        let is_whole = (exact - exact.round()).abs() <= NEAR && rounded_down == exact.round();
        (is_whole && in_range).then_some(exact.round() as usize)
    };
    let extents: Option<Vec<usize>> = shape.iter().zip(scales).map(whole).collect();
    match extents {
        Some(extents) if scales.len() == shape.len() => Ok(extents),
        _ => unfit(format!("scales {:?} do not make whole extents of {shape:?}", listed(scales))),
    }
}

/// Images whose height and width, or width alone, become others.
fn resized(call: &mut Call, x: Value, size: &[usize], mode: &str, [coordinates, nearest]: [&str; 2]) -> Result<Value> {
    let shape = call.shape(x);
    if size == shape {
        return Ok(x);
    }
    let image = |shape: &[usize]| match *shape {
        [n, c, h, w] => Some([n, c, h, w]),
        [n, c, w] => Some([n, c, 1, w]),
        _ => None,
    };
    let (Some(from), Some(to)) = (image(&shape), image(size)) else {
        return unfit(format!("a tensor of shape {shape:?}, where images of two spatial axes at most are supported"));
    };
    if from[..2] != to[..2] {
        return unfit(format!("shape {shape:?} to {size:?}, where only height and width may change"));
    }

    let lengths: Vec<usize> = (2..4).filter(|&axis| from[axis] != to[axis]).map(|axis| to[axis]).collect();
    let (coordinates, rounding) = places(coordinates, nearest, &lengths)?;
    let sampling = match mode {
        "nearest" => Sampling::Nearest(rounding),
        "linear" => Sampling::Linear,
        _ => return Err(attribute("mode", "it is neither nearest nor linear")),
    };
    let images = call.reshape(&from, x)?;
    let images = call.add(Op::Resize { size: [to[2], to[3]], coordinates, sampling }, &[images])?;
    call.reshape(size, images)
}

/// Where elements lie, and which is the nearest of them; `lengths` are the extents that become others.
fn places(coordinates: &str, nearest: &str, lengths: &[usize]) -> Result<(Coordinates, Rounding)> {
    let rounding = match nearest {
        "round_prefer_floor" => Rounding::PreferFloor,
        "round_prefer_ceil" => Rounding::PreferCeil,
        "floor" => Rounding::Floor,
        "ceil" => Rounding::Ceil,
        _ => return Err(attribute("nearest_mode", "it is no rounding")),
    };
    Ok(match coordinates {
        // Symmetric ones differ only where scales make no whole extents.
        "half_pixel" | "half_pixel_symmetric" => (Coordinates::HalfPixel, rounding),
        "align_corners" => (Coordinates::AlignCorners, rounding),
        "asymmetric" => (Coordinates::Asymmetric, rounding),
        // The first element where there is only one, else half pixels.
        "pytorch_half_pixel" if lengths.iter().all(|&length| length > 1) => (Coordinates::HalfPixel, rounding),
        "pytorch_half_pixel" if lengths.iter().all(|&length| length == 1) => (Coordinates::Asymmetric, rounding),
        // Half an element on, cut off there: the same as rounded.
        "tf_half_pixel_for_nn" if rounding == Rounding::Floor => (Coordinates::HalfPixel, Rounding::PreferCeil),
        _ => return Err(attribute("coordinate_transformation_mode", format!("{coordinates} is not supported here"))),
    })
}
