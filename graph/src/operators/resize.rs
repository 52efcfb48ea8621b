//! Resampling of images to another size.

use autotune_workloads::{self as workload, Coordinates, Resample, ResizeMode, Rounding, Sampling, Workload};

use super::prelude::*;
use super::resample::{AxisFilter, CoordinateMapping, ResampledAxis, Resampling};
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
    resized_before_11(call, x, &scales)
}

/// Resizes as before opset 11, which did not define rounding. ONNX Runtime and the standard's
/// examples use asymmetric coordinates, rounding up along axes that shrink and down along axes that
/// grow.
fn resized_before_11(call: &mut Call, x: ImportValue, scales: &[f32]) -> call::Result<ImportValue> {
    let shape = call.shape(x);
    let all: Vec<usize> = (0..shape.len()).collect();
    let axes = by_scales(&shape, &all, scales, None)?;
    let resampling = |filter| Resampling {
        mapping: CoordinateMapping::Asymmetric,
        filter,
        is_antialiased: false,
        excludes_outside: false,
        outside: 0.0,
    };
    match call.word_or("mode", "nearest")? {
        "nearest" => {
            let (shorter, longer): (Vec<_>, Vec<_>) = axes.iter().partition(|axis| axis.to < axis.from);
            let x = resized(call, x, &shorter, &resampling(AxisFilter::Nearest(Rounding::Ceil)))?;
            resized(call, x, &longer, &resampling(AxisFilter::Nearest(Rounding::Floor)))
        }
        "linear" => resized(call, x, &axes, &resampling(AxisFilter::Linear)),
        _ => Err(attribute("mode", "expected nearest or linear")),
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.operand(0)?;
    if call.version < 11 {
        call.check_most(2)?;
        let scales = call.known_floats(1)?.ok_or_else(|| missing(1))?;
        return resized_before_11(call, x, &scales);
    }

    call.check_most(4)?;
    let filter = match call.word_or("mode", "nearest")? {
        "nearest" => AxisFilter::Nearest(rounding(call)?),
        "linear" => AxisFilter::Linear,
        "cubic" => AxisFilter::Cubic(call.float_or("cubic_coeff_a", -0.75)?.into()),
        _ => return Err(attribute("mode", "expected nearest, linear or cubic")),
    };
    // These attributes concern some modes only.
    call.ignore(&["cubic_coeff_a", "nearest_mode"]);
    let resampling = Resampling {
        mapping: CoordinateMapping::named(call.word_or("coordinate_transformation_mode", "half_pixel")?)?,
        filter,
        is_antialiased: call.flag("antialias", false)?,
        excludes_outside: call.flag("exclude_outside", false)?,
        outside: call.float_or("extrapolation_value", 0.0)?,
    };
    let axes = resampled_axes(call, x, resampling.mapping == CoordinateMapping::Crop)?;
    resized(call, x, &axes, &resampling)
}

fn rounding(call: &Call) -> call::Result<Rounding> {
    match call.word_or("nearest_mode", "round_prefer_floor")? {
        "round_prefer_floor" => Ok(Rounding::PreferFloor),
        "round_prefer_ceil" => Ok(Rounding::PreferCeil),
        "floor" => Ok(Rounding::Floor),
        "ceil" => Ok(Rounding::Ceil),
        _ => Err(attribute("nearest_mode", "unknown rounding mode")),
    }
}

/// Returns the axes that a node resizes by scales or sizes; an empty input counts as absent.
fn resampled_axes(call: &Call, x: ImportValue, is_cropped: bool) -> call::Result<Vec<ResampledAxis>> {
    let shape = call.shape(x);
    let axes = match call.ints("axes")? {
        Some(numbers) => {
            // Sizes belong to axes by their order.
            numbers.iter().map(|&number| axis(number, shape.len())).collect::<call::Result<Vec<usize>>>()?
        }
        None => (0..shape.len()).collect(),
    };
    let policy = call.word_or("keep_aspect_ratio_policy", "stretch")?;
    let region = if is_cropped && !call.is_empty(1) { call.known_floats(1)? } else { None };
    let scales = if call.is_empty(2) { None } else { call.known_floats(2)? };
    let sizes = if call.is_empty(3) { None } else { call.known_integers(3)? };

    let mut found = match (scales, sizes) {
        (_, Some(sizes)) => by_sizes(&shape, &axes, &sizes, policy)?,
        (Some(scales), None) => by_scales(&shape, &axes, &scales, region.as_deref())?,
        (None, None) => return unfit("neither scales nor sizes are constants"),
    };
    if let Some(region) = region {
        let parts = parts(&region, axes.len())?;
        found.iter_mut().zip(parts).for_each(|(axis, part)| axis.part = part);
    }
    Ok(found)
}

/// Returns the ends of the region along each axis; the node has all starts before all ends.
fn parts(region: &[f32], axes: usize) -> call::Result<Vec<[f64; 2]>> {
    if Some(region.len()) != axes.checked_mul(2) {
        return unfit(format!("a region of {} numbers does not match {axes} axes", region.len()));
    }
    let (starts, ends) = region.split_at(axes);
    Ok(starts.iter().zip(ends).map(|(&start, &end)| [start.into(), end.into()]).collect())
}

/// Returns axes with extents that are multiplied by scales and rounded down, in f32 as ONNX Runtime
/// does it.
fn by_scales(
    shape: &[usize],
    axes: &[usize],
    scales: &[f32],
    region: Option<&[f32]>,
) -> call::Result<Vec<ResampledAxis>> {
    check_length(scales.len(), axes)?;
    let parts = match region {
        Some(region) => parts(region, axes.len())?,
        None => vec![[0.0, 1.0]; axes.len()],
    };
    let of = |((&axis, &scale), part): ((&usize, &f32), [f64; 2])| {
        let from = shape[axis];
        let to = (from as f32 * (part[1] - part[0]) as f32 * scale).floor();
        let is_valid = scale > 0.0 && scale.is_finite() && (0.0..u32::MAX as f32).contains(&to);
        is_valid.then_some(ResampledAxis { axis, from, to: to as usize, scale: scale.into(), part })
    };
    let found: Option<Vec<ResampledAxis>> = axes.iter().zip(scales).zip(parts).map(of).collect();
    found.ok_or_else(|| NodeError::Unfit(format!("scales {:?} of shape {shape:?} are not possible", listed(scales))))
}

/// Returns axes with the extents that a node states, or that keep their ratio and are as near.
fn by_sizes(shape: &[usize], axes: &[usize], sizes: &[i64], policy: &str) -> call::Result<Vec<ResampledAxis>> {
    check_length(sizes.len(), axes)?;
    let sizes: Option<Vec<usize>> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
    let sizes = sizes.ok_or_else(|| NodeError::Unfit("a size is negative".into()))?;
    let scale = |(&axis, &to): (&usize, &usize)| to as f64 / shape[axis] as f64;
    let scales: Vec<f64> = axes.iter().zip(&sizes).map(scale).collect();
    let common = match policy {
        "stretch" => None,
        "not_larger" => scales.iter().copied().reduce(f64::min),
        "not_smaller" => scales.iter().copied().reduce(f64::max),
        _ => return Err(attribute("keep_aspect_ratio_policy", "expected stretch, not_larger or not_smaller")),
    };

    let of = |(index, &axis): (usize, &usize)| {
        let from = shape[axis];
        let (to, scale) = match common {
            None => (sizes[index], scales[index]),
            Some(scale) => ((scale * from as f64 + 0.5).floor() as usize, scale),
        };
        ResampledAxis { axis, from, to, scale, part: [0.0, 1.0] }
    };
    Ok(axes.iter().enumerate().map(of).collect())
}

fn check_length(count: usize, axes: &[usize]) -> call::Result<()> {
    match count == axes.len() {
        true => Ok(()),
        false => unfit(format!("{count} scales or sizes do not match {} axes", axes.len())),
    }
}

/// Resizes a tensor along axes, by the kernels of images if they can.
fn resized(
    call: &mut Call,
    x: ImportValue,
    axes: &[ResampledAxis],
    resampling: &Resampling,
) -> call::Result<ImportValue> {
    let shape = call.shape(x);
    let mut size = shape.clone();
    axes.iter().for_each(|axis| size[axis.axis] = axis.to);
    let (Some([from, to]), Some((coordinates, sampling))) = (images(&shape, &size), of_images(axes, resampling)) else {
        return resampling.along(call, x, axes);
    };
    if from == to {
        return Ok(x);
    }
    // With one spatial axis, the image has a single row.
    let images = call.reshape(&from, x)?;
    let images = call.add(Resize { size: [to[2], to[3]], coordinates, sampling }, &[images])?;
    call.reshape(&size, images)
}

/// Returns the shapes of images `[n, c, h, w]` before and after, if only height and width, or width
/// alone, may change.
fn images(shape: &[usize], size: &[usize]) -> Option<[[usize; 4]; 2]> {
    let image = |shape: &[usize]| match *shape {
        [n, c, h, w] => Some([n, c, h, w]),
        [n, c, w] => Some([n, c, 1, w]),
        _ => None,
    };
    let (from, to) = (image(shape)?, image(size)?);
    (from[..2] == to[..2]).then_some([from, to])
}

/// Returns mapping and interpolation as kernels have them, if they have. They map positions by the
/// ratio of extents, where ONNX maps them by the scale.
fn of_images(axes: &[ResampledAxis], resampling: &Resampling) -> Option<(Coordinates, Sampling)> {
    let changed: Vec<&ResampledAxis> = axes.iter().filter(|axis| axis.is_scaled()).collect();
    let is_stretched = |axis: &&ResampledAxis| resampling.is_antialiased && axis.scale < 1.0;
    if changed.iter().any(|axis| !axis.is_exact() || is_stretched(axis)) {
        return None;
    }

    let sampling = match resampling.filter {
        AxisFilter::Nearest(rounding) => Sampling::Nearest(rounding),
        AxisFilter::Linear => Sampling::Linear,
        AxisFilter::Cubic(_) => return None,
    };
    let coordinates = match (resampling.mapping, sampling) {
        // The symmetric variant differs only for scales without whole extents.
        (CoordinateMapping::HalfPixel | CoordinateMapping::HalfPixelSymmetric, _) => Coordinates::HalfPixel,
        (CoordinateMapping::AlignCorners, _) => Coordinates::AlignCorners,
        (CoordinateMapping::Asymmetric, _) => Coordinates::Asymmetric,
        (CoordinateMapping::HalfPixelOfPytorch, _) if changed.iter().all(|axis| axis.to > 1) => Coordinates::HalfPixel,
        (CoordinateMapping::HalfPixelOfPytorch, _) if changed.iter().all(|axis| axis.to == 1) => {
            Coordinates::Asymmetric
        }
        // Half-pixel coordinates without the subtracted half, rounded down, equal half-pixel
        // coordinates rounded.
        (CoordinateMapping::HalfPixelForNearest, Sampling::Nearest(Rounding::Floor)) => {
            return Some((Coordinates::HalfPixel, Sampling::Nearest(Rounding::PreferCeil)));
        }
        _ => return None,
    };
    Some((coordinates, sampling))
}
