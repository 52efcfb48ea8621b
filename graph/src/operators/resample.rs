//! Imports of `Resize` in the forms that the kernels of images lack, axis by axis.

use autotune_workloads::Rounding;

use super::binary::Binary;
use super::choose::Where;
use super::gather::Gather;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

/// Values between the elements of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AxisFilter {
    Nearest(Rounding),
    Linear,
    /// Cubic convolution with this parameter.
    Cubic(f64),
}

/// Mapping of output positions to input positions, as ONNX names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoordinateMapping {
    HalfPixel,
    HalfPixelSymmetric,
    HalfPixelOfPytorch,
    HalfPixelForNearest,
    AlignCorners,
    Asymmetric,
    Crop,
}

/// Attributes of a node that resamples a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resampling {
    pub(super) mapping: CoordinateMapping,
    pub(super) filter: AxisFilter,
    /// True if the filter is stretched along axes that become shorter.
    pub(super) is_antialiased: bool,
    /// True if elements outside of the tensor have no weight; otherwise the outermost repeat.
    pub(super) excludes_outside: bool,
    /// Value at positions outside of the tensor when cropping.
    pub(super) outside: f32,
}

/// An axis with the extent that it gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResampledAxis {
    pub(super) axis: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    /// Ratio of the extents before the output's is rounded down to a whole number.
    pub(super) scale: f64,
    /// Ends of the part that is cropped, from 0 to 1.
    pub(super) part: [f64; 2],
}

impl ResampledAxis {
    /// Greatest difference between an extent and a product with a scale that counts as rounding.
    const NEAR: f64 = 1e-4;

    /// True if the scale is the ratio of the extents, none of which was rounded.
    pub(super) fn is_exact(&self) -> bool {
        (self.from as f64 * self.scale - self.to as f64).abs() <= Self::NEAR
    }

    /// True if the axis gets another extent, or its elements another distance.
    pub(super) fn is_scaled(&self) -> bool {
        self.from != self.to || self.from > 0 && !self.is_exact()
    }
}

impl CoordinateMapping {
    /// Reads the name of a mapping.
    pub(super) fn named(word: &str) -> Result<Self> {
        Ok(match word {
            "half_pixel" => CoordinateMapping::HalfPixel,
            "half_pixel_symmetric" => CoordinateMapping::HalfPixelSymmetric,
            "pytorch_half_pixel" => CoordinateMapping::HalfPixelOfPytorch,
            "tf_half_pixel_for_nn" => CoordinateMapping::HalfPixelForNearest,
            "align_corners" => CoordinateMapping::AlignCorners,
            "asymmetric" => CoordinateMapping::Asymmetric,
            "tf_crop_and_resize" => CoordinateMapping::Crop,
            _ => return Err(attribute("coordinate_transformation_mode", "unknown mapping")),
        })
    }

    /// Returns the input position of an output element.
    fn place(self, axis: &ResampledAxis, element: usize) -> f64 {
        let (y, from, to) = (element as f64, axis.from as f64, axis.to as f64);
        // Extent of the output before rounding.
        let exact = axis.scale * from;
        let half_pixel = (y + 0.5) / axis.scale - 0.5;
        match self {
            CoordinateMapping::HalfPixel => half_pixel,
            CoordinateMapping::HalfPixelSymmetric => from / 2.0 * (1.0 - to / exact) + half_pixel,
            CoordinateMapping::HalfPixelOfPytorch => {
                if axis.to > 1 {
                    half_pixel
                } else {
                    0.0
                }
            }
            CoordinateMapping::HalfPixelForNearest => (y + 0.5) / axis.scale,
            CoordinateMapping::AlignCorners if axis.to > 1 => y * (from - 1.0) / (exact - 1.0),
            CoordinateMapping::AlignCorners => 0.0,
            CoordinateMapping::Asymmetric => y / axis.scale,
            CoordinateMapping::Crop => {
                let [start, end] = axis.part.map(|end| end * (from - 1.0));
                if axis.to > 1 { start + y * (end - start) / (to - 1.0) } else { 0.5 * (start + end) }
            }
        }
    }
}

impl Resampling {
    /// Resamples a tensor along axes, one after the other.
    pub(super) fn along(&self, call: &mut Call, x: ImportValue, axes: &[ResampledAxis]) -> Result<ImportValue> {
        let (mut resampled, rank) = (x, call.rank(x));
        let mut is_inside: Option<ImportValue> = None;
        for axis in axes.iter().filter(|axis| self.changes(axis)) {
            resampled = self.along_axis(call, resampled, axis)?;
            if let Some(own) = self.inside(call, axis, rank)? {
                is_inside = Some(is_inside.map_or(Ok(own), |others| call.binary(Binary::And, others, own))?);
            }
        }
        let Some(is_inside) = is_inside else { return Ok(resampled) };
        let outside = call.number(self.outside, resampled)?;
        call.add(Where, &[is_inside, resampled, outside])
    }

    /// True if the elements along an axis move.
    fn changes(&self, axis: &ResampledAxis) -> bool {
        let is_cropped = self.mapping == CoordinateMapping::Crop && axis.part != [0.0, 1.0];
        axis.is_scaled() || is_cropped && axis.from > 0
    }

    fn along_axis(&self, call: &mut Call, x: ImportValue, axis: &ResampledAxis) -> Result<ImportValue> {
        let ResampledAxis { from, to, .. } = *axis;
        if from == 0 && to > 0 {
            return unfit(format!("cannot resize an empty axis to {to} elements"));
        }
        if let AxisFilter::Nearest(rounding) = self.filter {
            // In f32 a position halfway between elements remains so, although the scale is rounded.
            let place = |y| f64::from(self.mapping.place(axis, y) as f32);
            let nearest = |y| clamped(rounded(place(y), rounding), from) as i64;
            let numbers = call.computed_integers(to, nearest)?;
            return call.add(Gather { axis: axis.axis }, &[x, numbers]);
        }

        let weights = || {
            let mut rows = vec![0.0; from * to];
            for (y, row) in rows.chunks_exact_mut(from.max(1)).enumerate() {
                self.weigh(axis, y, row);
            }
            rows.into_iter().map(|weight| weight as f32).collect()
        };
        let matrix = call.computed(&[to, from], weights)?;
        call.product_along(x, axis.axis, matrix)
    }

    /// Adds to each element of a row its weight in an element of the output.
    fn weigh(&self, axis: &ResampledAxis, element: usize, row: &mut [f64]) {
        let place = self.mapping.place(axis, element);
        // Rounded extents may be four times as small as the scale says.
        let least = 0.25 / axis.from.max(1) as f64;
        let stretch = if self.is_antialiased { axis.scale.clamp(least, 1.0) } else { 1.0 };
        let reach = self.filter.reach() / stretch;
        // Beyond that distance all neighbours are the last element, and positions may be infinite.
        let place = place.clamp(-1.0 - reach, axis.from as f64 + reach);
        let [first, last] = [(place - reach).ceil(), (place + reach).floor()];

        let mut sum = 0.0;
        let mut neighbour = first;
        while neighbour <= last {
            let weight = self.filter.weight((neighbour - place) * stretch);
            let is_inside = (0.0..axis.from as f64).contains(&neighbour);
            if is_inside || !self.excludes_outside {
                row[clamped(neighbour, axis.from)] += weight;
                sum += weight;
            }
            neighbour += 1.0;
        }
        // Weights that cancel each other out have no mean to be scaled to.
        if sum != 0.0 {
            row.iter_mut().for_each(|weight| *weight /= sum);
        }
    }

    /// Returns truth values of the positions along an axis that are inside of the tensor, of `rank`
    /// axes, unless all are.
    fn inside(&self, call: &mut Call, axis: &ResampledAxis, rank: usize) -> Result<Option<ImportValue>> {
        let last = axis.from as f64 - 1.0;
        let is_inside = |y| (0.0..=last).contains(&self.mapping.place(axis, y));
        if self.mapping != CoordinateMapping::Crop || (0..axis.to).all(is_inside) {
            return Ok(None);
        }
        let truths: Vec<f32> = (0..axis.to).map(|y| f32::from(u8::from(is_inside(y)))).collect();
        let mut shape = vec![1; rank];
        shape[axis.axis] = axis.to;
        Ok(Some(call.constant(Tensor::of_numbers(&shape, DType::Bool, &truths)?)))
    }
}

impl AxisFilter {
    /// Returns the distance from which on elements have no weight.
    fn reach(self) -> f64 {
        match self {
            AxisFilter::Nearest(_) => 0.5,
            AxisFilter::Linear => 1.0,
            AxisFilter::Cubic(_) => 2.0,
        }
    }

    /// Returns the weight of an element at a distance.
    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            AxisFilter::Nearest(_) => 1.0,
            AxisFilter::Linear => (1.0 - x).max(0.0),
            AxisFilter::Cubic(a) if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            AxisFilter::Cubic(a) if x < 2.0 => ((x - 5.0) * x + 8.0) * x * a - 4.0 * a,
            AxisFilter::Cubic(_) => 0.0,
        }
    }
}

fn rounded(place: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::PreferFloor => (place - 0.5).ceil(),
        Rounding::PreferCeil => (place + 0.5).floor(),
        Rounding::Floor => place.floor(),
        Rounding::Ceil => place.ceil(),
    }
}

/// Returns the element at a whole position, or that at the end of the axis next to it.
fn clamped(place: f64, extent: usize) -> usize {
    // The cast of a float saturates, at 0 too.
    (place as usize).min(extent.saturating_sub(1))
}

impl Call<'_> {
    /// Adds constant integers, which count towards the budget of the import.
    fn computed_integers(&mut self, count: usize, number: impl Fn(usize) -> i64) -> Result<ImportValue> {
        self.draft.spend(count, &[count])?;
        Ok(self.constant(Tensor::i64(&[count], (0..count).map(number).collect())?))
    }
}
