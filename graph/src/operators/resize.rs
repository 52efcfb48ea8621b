//! Resampling of images to another size.

use autotune_workloads::{self as workload, Coordinates, Resample, ResizeMode, Rounding, Sampling, Workload};

use super::prelude::*;
use crate::onnx::error::unfit;
use crate::op;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("Resize", import), OnnxOperator::one("Upsample", upsample)];

/// Resampling of `[n, c, h, w]` to another height and width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// Height and width of the output.
    pub size: [usize; 2],
    /// Mapping from output positions to input positions.
    pub coordinates: Coordinates,
    /// Interpolation between the neighbouring elements.
    pub sampling: Sampling,
}

impl Operator for Resize {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shape = shapes_of(operands, 1..=1, DType::F32)?[0];
        match (shape, self.size) {
            (&[n, c, h, w], [oh, ow]) if ![h, w, oh, ow].contains(&0) => Ok((vec![n, c, oh, ow], DType::F32)),
            _ => op::unfit(format!("cannot resize images of shape {shape:?} to {:?}", self.size)),
        }
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (from, resample) = (operands[0].shape(), self.resample(operands[0].shape()));
        let places = [0, 1].map(|axis| resample.places(axis));
        // Nearest interpolation only selects elements.
        if let Sampling::Nearest(_) = self.sampling {
            let all = |extent: usize| (0..extent).map(Some).collect();
            let nearest = places.map(|places| places.into_iter().map(|place| Some(place as usize)).collect());
            let [rows, columns] = nearest;
            return pick(operands, &[all(shape[0]), all(shape[1]), rows, columns], shape);
        }

        let x = values::<f32>(operands, 0)?;
        let steps = strides(from);
        let mut all = Vec::with_capacity(elements(shape)?);
        for plane in offsets(&shape[..2], &steps[..2]) {
            for (top, bottom, down) in places[0].iter().map(|&place| between(place, from[2])) {
                for (left, right, across) in places[1].iter().map(|&place| between(place, from[3])) {
                    let at = |row: usize, column: usize| f64::from(x[plane + row * steps[2] + column]);
                    let along = |row: usize| at(row, left) * (1.0 - across) + at(row, right) * across;
                    all.push((along(top) * (1.0 - down) + along(bottom) * down) as f32);
                }
            }
        }
        tensor(shape, all)
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let resample = self.resample(node.shape(0));
        let Resample { n, c, input: [h, w], .. } = resample;
        // An integer scale has a workload of its own.
        let workload = match resample.scale() {
            Some(scale) => Workload::new(workload::ResizeWorkload { n, c, h, w, scale, mode: ResizeMode::Nearest }),
            None => Workload::new(resample),
        };
        Some(Anchor::new(workload.ok()?, node).with_sums(Some(1)))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let extents: Vec<i64> = to.shape().iter().map(|&extent| extent as i64).collect();
        let (x, none, extents) = (to.input(0), String::new(), to.integers(extents)?);
        to.node("Resize", &[&x, &none, &none, &extents], exported(self.coordinates, self.sampling))
    }
}

impl Resize {
    /// Returns the workload's resampling for images of a four-dimensional shape.
    fn resample(&self, shape: &[usize]) -> Resample {
        let Self { size, coordinates, sampling } = *self;
        Resample { n: shape[0], c: shape[1], input: [shape[2], shape[3]], output: size, coordinates, sampling }
    }
}

/// Returns the elements before and after a position along an axis, and the position's fraction
/// between them.
fn between(place: f64, extent: usize) -> (usize, usize, f64) {
    let below = place.floor();
    (below as usize, (below as usize + 1).min(extent - 1), place - below)
}

fn exported(coordinates: Coordinates, sampling: Sampling) -> Vec<Attribute> {
    let coordinates = match coordinates {
        Coordinates::HalfPixel => "half_pixel",
        Coordinates::AlignCorners => "align_corners",
        Coordinates::Asymmetric => "asymmetric",
    };
    let rounding = |rounding| match rounding {
        Rounding::PreferFloor => "round_prefer_floor",
        Rounding::PreferCeil => "round_prefer_ceil",
        Rounding::Floor => "floor",
        Rounding::Ceil => "ceil",
    };
    let mut attributes = vec![word("coordinate_transformation_mode", coordinates)];
    match sampling {
        Sampling::Nearest(nearest) => {
            attributes.extend([word("mode", "nearest"), word("nearest_mode", rounding(nearest))]);
        }
        Sampling::Linear => attributes.push(word("mode", "linear")),
    }
    attributes
}

fn upsample(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.operand(0)?;
    let scales = match call.version < 9 {
        true => call.floats("scales")?.map(<[f32]>::to_vec),
        false => call.known_floats(1)?,
    };
    let scales = scales.ok_or_else(|| attribute("scales", "is missing"))?;
    let size = scaled(&call.shape(x), &scales)?;
    let mode = call.word_or("mode", "nearest")?;
    resized_before_11(call, x, &size, mode)
}

/// Resizes as before opset 11, which did not define rounding. ONNX Runtime and the standard's
/// examples use asymmetric coordinates, rounding up along axes that shrink and down along axes that
/// grow.
fn resized_before_11(call: &mut Call, x: ImportValue, size: &[usize], mode: &str) -> call::Result<ImportValue> {
    if mode != "nearest" {
        return resized(call, x, size, mode, ["asymmetric", "floor"]);
    }
    // Shrink with rounding up first, then grow with rounding down.
    let shorter: Vec<usize> = call.shape(x).iter().zip(size).map(|(&from, &to)| from.min(to)).collect();
    let x = resized(call, x, &shorter, mode, ["asymmetric", "ceil"])?;
    resized(call, x, size, mode, ["asymmetric", "floor"])
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.operand(0)?;
    let mode = call.word_or("mode", "nearest")?;
    if call.version < 11 {
        call.check_most(2)?;
        let scales = call.known_floats(1)?.ok_or(NodeError::Input { input: 1, reason: "is missing".into() })?;
        let size = scaled(&call.shape(x), &scales)?;
        return resized_before_11(call, x, &size, mode);
    }

    call.check_most(4)?;
    // These attributes concern cubic interpolation and cropping, which are unsupported.
    call.ignore(&["cubic_coeff_a", "extrapolation_value", "exclude_outside"]);
    if call.flag("antialias", false)? {
        return Err(attribute("antialias", "is not supported"));
    }
    if call.word_or("keep_aspect_ratio_policy", "stretch")? != "stretch" {
        return Err(attribute("keep_aspect_ratio_policy", "only stretch is supported"));
    }
    let coordinates = call.word_or("coordinate_transformation_mode", "half_pixel")?;
    let nearest = call.word_or("nearest_mode", "round_prefer_floor")?;
    let size = output_shape(call, x)?;
    resized(call, x, &size, mode, [coordinates, nearest])
}

/// Returns the shape given by the sizes or scales of a node; an empty input counts as absent.
fn output_shape(call: &Call, x: ImportValue) -> call::Result<Vec<usize>> {
    let shape = call.shape(x);
    let axes = match call.ints("axes")? {
        Some(numbers) => {
            numbers.iter().map(|&number| axis(number, shape.len())).collect::<call::Result<Vec<usize>>>()?
        }
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
        (None, None) => return unfit("neither scales nor sizes are constants"),
    };

    if found.len() != axes.len() {
        return unfit(format!("{} scales or sizes do not match {} axes", found.len(), axes.len()));
    }
    let mut size = shape;
    axes.iter().zip(found).for_each(|(&axis, extent)| size[axis] = extent);
    Ok(size)
}

/// Returns extents multiplied by their scales. ONNX maps positions by the scale and we by the ratio
/// of extents, so a scale that does not give a whole extent is an error.
fn scaled(shape: &[usize], scales: &[f32]) -> call::Result<Vec<usize>> {
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
        _ => unfit(format!("scales {:?} of shape {shape:?} do not give whole extents", listed(scales))),
    }
}

/// Resizes images along height and width, or along width alone.
fn resized(
    call: &mut Call,
    x: ImportValue,
    size: &[usize],
    mode: &str,
    [coordinates, nearest]: [&str; 2],
) -> call::Result<ImportValue> {
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
        return unfit(format!("tensor of shape {shape:?}; images of at most two spatial axes are supported"));
    };
    if from[..2] != to[..2] {
        return unfit(format!("cannot resize {shape:?} to {size:?}: only height and width may change"));
    }

    // Only extents that change constrain the coordinates.
    let lengths: Vec<usize> = (2..4).filter(|&axis| from[axis] != to[axis]).map(|axis| to[axis]).collect();
    let (coordinates, rounding) = places(coordinates, nearest, &lengths)?;
    let sampling = match mode {
        "nearest" => Sampling::Nearest(rounding),
        "linear" => Sampling::Linear,
        _ => return Err(attribute("mode", "expected nearest or linear")),
    };
    // With one spatial axis, the image has a single row.
    let images = call.reshape(&from, x)?;
    let images = call.add(Resize { size: [to[2], to[3]], coordinates, sampling }, &[images])?;
    call.reshape(size, images)
}

/// Returns the coordinate mapping and the rounding; `lengths` are the output extents that differ
/// from the input's.
fn places(coordinates: &str, nearest: &str, lengths: &[usize]) -> call::Result<(Coordinates, Rounding)> {
    let rounding = match nearest {
        "round_prefer_floor" => Rounding::PreferFloor,
        "round_prefer_ceil" => Rounding::PreferCeil,
        "floor" => Rounding::Floor,
        "ceil" => Rounding::Ceil,
        _ => return Err(attribute("nearest_mode", "unknown rounding mode")),
    };
    Ok(match coordinates {
        // The symmetric variant differs only for scales without whole extents.
        "half_pixel" | "half_pixel_symmetric" => (Coordinates::HalfPixel, rounding),
        "align_corners" => (Coordinates::AlignCorners, rounding),
        "asymmetric" => (Coordinates::Asymmetric, rounding),
        // PyTorch maps an output extent of 1 to the first element, and uses half pixels otherwise.
        "pytorch_half_pixel" if lengths.iter().all(|&length| length > 1) => (Coordinates::HalfPixel, rounding),
        "pytorch_half_pixel" if lengths.iter().all(|&length| length == 1) => (Coordinates::Asymmetric, rounding),
        // Half-pixel coordinates without the subtracted half, rounded down, equal half-pixel
        // coordinates rounded.
        "tf_half_pixel_for_nn" if rounding == Rounding::Floor => (Coordinates::HalfPixel, Rounding::PreferCeil),
        _ => return Err(attribute("coordinate_transformation_mode", format!("{coordinates} is not supported here"))),
    })
}
