//! Import of images that are sampled at given positions.

use autotune_ir::program::UnaryOp;

use super::binary::Binary;
use super::choose::Where;
use super::gather_elements::GatherNd;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("GridSample", import)];

/// Content of an image outside of its border.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// Way to compute a value between elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interpolation {
    Nearest,
    Linear,
    Cubic,
}

/// Parameter of cubic interpolation.
const CUBIC: f32 = -0.75;

/// One spatial axis of the images.
#[derive(Clone, Copy)]
struct SampledAxis {
    extent: usize,
    /// True if the ends of the axis are the middles of its first and last element, and not their
    /// edges.
    is_aligned: bool,
    outside: Outside,
}

/// An element along an axis that contributes to a sample.
struct Tap {
    index: ImportValue,
    weight: Option<ImportValue>,
    /// Truth values: false outside of images that are surrounded by zeros.
    exists: Option<ImportValue>,
}

impl SampledAxis {
    /// Returns the position of both ends.
    fn ends(self) -> [f32; 2] {
        let extent = self.extent as f32;
        if self.is_aligned { [0.0, extent - 1.0] } else { [-0.5, extent - 0.5] }
    }

    /// Converts positions from -1 to 1 to those of elements, from 0 on.
    fn position(self, call: &mut Call, x: ImportValue) -> Result<ImportValue> {
        let [first, last] = self.ends();
        let shifted = call.with(Binary::Add, x, 1.0)?;
        let scaled = call.with(Binary::Mul, shifted, (last - first) / 2.0)?;
        call.with(Binary::Add, scaled, first)
    }

    /// Moves positions beyond the ends to where their content is.
    fn moved(self, call: &mut Call, x: ImportValue) -> Result<ImportValue> {
        let [first, last] = self.ends();
        match self.outside {
            Outside::Zeros => Ok(x),
            Outside::Reflection if last > first => self.reflected(call, x),
            _ => {
                let clamped = self.clamped(call, x)?;
                let (lo, hi) = (call.number(first, x)?, call.number(last, x)?);
                let (is_before, is_behind) = (call.binary(Binary::Less, x, lo)?, call.binary(Binary::Less, hi, x)?);
                let moved = call.add(Where, &[is_before, clamped, x])?;
                call.add(Where, &[is_behind, clamped, moved])
            }
        }
    }

    fn clamped(self, call: &mut Call, x: ImportValue) -> Result<ImportValue> {
        let above = call.with(Binary::Max, x, 0.0)?;
        call.with(Binary::Min, above, self.extent as f32 - 1.0)
    }

    /// Reflects positions at both ends until they lie between them.
    fn reflected(self, call: &mut Call, x: ImportValue) -> Result<ImportValue> {
        let [first, last] = self.ends();
        let span = last - first;
        let from_first = call.with(Binary::Sub, x, first)?;
        let distance = call.unary(UnaryOp::Abs, from_first)?;
        let spans = call.with(Binary::Div, distance, span)?;
        let spans = call.unary(UnaryOp::Floor, spans)?;
        let covered = call.with(Binary::Mul, spans, span)?;
        let rest = call.binary(Binary::Sub, distance, covered)?;

        let half = call.with(Binary::Mul, spans, 0.5)?;
        let half = call.unary(UnaryOp::Floor, half)?;
        let even = call.with(Binary::Mul, half, 2.0)?;
        let is_even = call.binary(Binary::Equal, spans, even)?;
        let forwards = call.with(Binary::Add, rest, first)?;
        let last = call.number(last, x)?;
        let backwards = call.binary(Binary::Sub, last, rest)?;
        call.add(Where, &[is_even, forwards, backwards])
    }

    /// Returns the element at whole positions, which may be outside.
    fn tap(self, call: &mut Call, x: ImportValue, weight: Option<ImportValue>) -> Result<Tap> {
        let inside = match self.outside {
            Outside::Reflection if self.extent > 1 => self.reflected(call, x)?,
            _ => x,
        };
        let index = self.clamped(call, inside)?;
        let exists = match self.outside {
            Outside::Zeros => Some(call.binary(Binary::Equal, index, x)?),
            _ => None,
        };
        Ok(Tap { index, weight, exists })
    }

    /// Returns the elements that contribute to samples at positions.
    fn taps(self, call: &mut Call, x: ImportValue, interpolation: Interpolation) -> Result<Vec<Tap>> {
        if interpolation == Interpolation::Nearest {
            // Positions beyond 2^23 have no neighbours to choose from.
            let whole = call.with_parameters("round", &[-8_388_608.0, 8_388_608.0], x)?;
            let moved = self.moved(call, whole)?;
            return Ok(vec![self.tap(call, moved, None)?]);
        }
        let x = self.moved(call, x)?;
        let whole = call.unary(UnaryOp::Floor, x)?;
        let fraction = call.binary(Binary::Sub, x, whole)?;
        let one = call.number(1.0, x)?;
        let rest = call.binary(Binary::Sub, one, fraction)?;
        let (first, weights) = match interpolation {
            Interpolation::Cubic => (-1, cubic_weights(call, fraction, rest)?),
            _ => (0, vec![rest, fraction]),
        };

        let mut taps = Vec::new();
        for (step, weight) in (first..).zip(weights) {
            let place = call.with(Binary::Add, whole, step as f32)?;
            taps.push(self.tap(call, place, Some(weight))?);
        }
        Ok(taps)
    }
}

/// Returns the weights of the elements at distances `1 + f`, `f`, `1 - f` and `2 - f`.
fn cubic_weights(call: &mut Call, fraction: ImportValue, rest: ImportValue) -> Result<Vec<ImportValue>> {
    let near = [CUBIC + 2.0, -(CUBIC + 3.0), 0.0, 1.0];
    let far = [CUBIC, -5.0 * CUBIC, 8.0 * CUBIC, -4.0 * CUBIC];
    let before = call.with(Binary::Add, fraction, 1.0)?;
    let behind = call.with(Binary::Add, rest, 1.0)?;
    let of = [(before, far), (fraction, near), (rest, near), (behind, far)];
    of.into_iter().map(|(x, coefficients)| call.polynomial(x, &coefficients)).collect()
}

impl Call<'_> {
    /// Adds a polynomial, highest power first.
    fn polynomial(&mut self, x: ImportValue, coefficients: &[f32; 4]) -> Result<ImportValue> {
        let mut sum = self.with(Binary::Mul, x, coefficients[0])?;
        sum = self.with(Binary::Add, sum, coefficients[1])?;
        for &coefficient in &coefficients[2..] {
            let product = self.binary(Binary::Mul, sum, x)?;
            sum = self.with(Binary::Add, product, coefficient)?;
        }
        Ok(sum)
    }
}

/// Joins the taps of one more axis, with elements `[.., extent]` behind those of the axes before.
fn joined(call: &mut Call, before: &[Tap], taps: &[Tap], extent: usize) -> Result<Vec<Tap>> {
    let mut all = Vec::new();
    for (a, b) in before.iter().flat_map(|a| taps.iter().map(move |b| (a, b))) {
        let rows = call.with(Binary::Mul, a.index, extent as f32)?;
        let mut both = |op, a: Option<ImportValue>, b: Option<ImportValue>| match (a, b) {
            (Some(a), Some(b)) => call.binary(op, a, b).map(Some),
            (a, b) => Ok(a.or(b)),
        };
        let (weight, exists) = (both(Binary::Mul, a.weight, b.weight)?, both(Binary::And, a.exists, b.exists)?);
        all.push(Tap { index: call.binary(Binary::Add, rows, b.index)?, weight, exists });
    }
    Ok(all)
}

/// Imports samples of images at the positions that the second input has for each output: the last
/// axis of the images first, from -1 to 1.
fn import(call: &mut Call) -> Result<ImportValue> {
    call.check_most(2)?;
    let (x, grid) = (call.operand(0)?, call.operand(1)?);
    let interpolation = match call.word_or("mode", "linear")? {
        "linear" | "bilinear" => Interpolation::Linear,
        "nearest" => Interpolation::Nearest,
        "cubic" | "bicubic" => Interpolation::Cubic,
        _ => return Err(attribute("mode", "expected linear, nearest or cubic")),
    };
    let outside = match call.word_or("padding_mode", "zeros")? {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        _ => return Err(attribute("padding_mode", "expected zeros, border or reflection")),
    };
    let is_aligned = call.flag("align_corners", false)?;

    let (shape, places) = (call.shape(x), call.shape(grid));
    let (&[n, c, ref extents @ ..], [batch, outputs @ .., coordinates]) = (&shape[..], &places[..]) else {
        return unfit(format!("images of shape {shape:?} and positions of shape {places:?}"));
    };
    // The numbers of elements must be exact in f32; three axes have 64 cubic neighbours.
    let axes = extents.len();
    let is_small = product(extents).is_some_and(|count| 0 < count && count <= 1 << 24);
    let most = if interpolation == Interpolation::Cubic { 2 } else { 3 };
    if [*batch, *coordinates, outputs.len()] != [n, axes, axes] || !is_small || !(1..=most).contains(&axes) {
        return unfit(format!("images of shape {shape:?} at positions of shape {places:?} are not supported"));
    }

    let (count, points) = (elements(extents)?, elements(outputs)?);
    let grid = call.reshape(&[n, points, axes], grid)?;
    let mut all: Option<Vec<Tap>> = None;
    for (axis, &extent) in extents.iter().enumerate() {
        let sampled = SampledAxis { extent, is_aligned, outside };
        let place = call.part(grid, 2, [axes - 1 - axis, 1])?;
        let place = sampled.position(call, place)?;
        let taps = sampled.taps(call, place, interpolation)?;
        all = Some(match all {
            Some(before) => joined(call, &before, &taps, extent)?,
            None => taps,
        });
    }

    let rows = call.reshape(&[n, c, count], x)?;
    let rows = call.transpose(&[0, 2, 1], rows)?;
    let samples = sum(call, rows, &all.unwrap_or_default())?;
    let images = call.transpose(&[0, 2, 1], samples)?;
    call.reshape(&[&[n, c], outputs].concat(), images)
}

/// Adds the weighted sum of elements, rows of the channels at each pixel.
fn sum(call: &mut Call, rows: ImportValue, taps: &[Tap]) -> Result<ImportValue> {
    let mut sum = None;
    for tap in taps {
        let index = call.cast(DType::I64, tap.index)?;
        let mut found = call.add(GatherNd { batch_axes: 1 }, &[rows, index])?;
        if let Some(exists) = tap.exists {
            let zero = call.number(0.0, found)?;
            found = call.add(Where, &[exists, found, zero])?;
        }
        if let Some(weight) = tap.weight {
            found = call.binary(Binary::Mul, found, weight)?;
        }
        sum = Some(sum.map_or(Ok(found), |sum| call.binary(Binary::Add, sum, found))?);
    }
    sum.ok_or_else(|| NodeError::Unfit("images without axes".into()))
}
