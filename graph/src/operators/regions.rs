//! Imports of samples of images in regions, and of the positions of such samples.

use autotune_ir::program::UnaryOp;

use super::binary::Binary;
use super::gather::Gather;
use super::matmul::MatMul;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;
use crate::onnx::tensor::extents;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("RoiAlign", align), OnnxOperator::one("AffineGrid", affine_grid)];

/// Maximum number of samples along an axis for one element of the output: each becomes about twenty
/// nodes for each sample along the other axis.
const MOST_SAMPLES: usize = 8;

/// Attributes of a node that samples regions.
struct RegionSampling {
    /// Height and width of the output.
    output: [usize; 2],
    /// Number of samples along each axis for one element.
    samples: usize,
    scale: f32,
    /// True if positions of regions are half an element further than those of images.
    is_shifted: bool,
    is_max: bool,
}

/// Two neighbours of the samples along an axis, `[regions, outputs]`, with their weights.
struct SampleNeighbours {
    index: [ImportValue; 2],
    weight: [ImportValue; 2],
}

impl RegionSampling {
    fn of(call: &Call) -> Result<Self> {
        let extent = |name, default| {
            let number = usize::try_from(call.int_or(name, default)?).ok();
            number.ok_or_else(|| attribute(name, "is negative"))
        };
        let samples = extent("sampling_ratio", 0)?;
        if !(1..=MOST_SAMPLES).contains(&samples) {
            return Err(attribute("sampling_ratio", format!("1 to {MOST_SAMPLES} samples are supported")));
        }
        let is_shifted = match call.word_or("coordinate_transformation_mode", "half_pixel")? {
            // Version 10 had no such attribute.
            "half_pixel" => call.version >= 16,
            "output_half_pixel" => false,
            _ => return Err(attribute("coordinate_transformation_mode", "expected half_pixel or output_half_pixel")),
        };
        let is_max = match call.word_or("mode", "avg")? {
            "avg" => false,
            "max" => true,
            _ => return Err(attribute("mode", "expected avg or max")),
        };
        let output = [extent("output_height", 1)?, extent("output_width", 1)?];
        Ok(Self { output, samples, scale: call.float_or("spatial_scale", 1.0)?, is_shifted, is_max })
    }

    /// Adds the positions along an axis of sample `number` of each element, `[regions, outputs]`;
    /// `ends` are the columns of the regions that have the ends along the axis.
    fn places(&self, call: &mut Call, regions: ImportValue, ends: [usize; 2], number: usize) -> Result<ImportValue> {
        let outputs = self.output[if ends[0] == 0 { 1 } else { 0 }];
        let [start, end] = ends.map(|column| call.part(regions, 1, [column, 1]));
        let (start, end) = (start?, end?);
        let mut extent = call.binary(Binary::Sub, end, start)?;
        if !self.is_shifted {
            extent = call.with(Binary::Max, extent, 1.0)?;
        }
        let step = 1.0 / (outputs * self.samples) as f64;
        let place = |output: usize| (((output * self.samples + number) as f64 + 0.5) * step) as f32;
        let places = call.constant(Tensor::f32(&[1, outputs], (0..outputs).map(place).collect())?);
        let distance = call.binary(Binary::Mul, extent, places)?;
        call.binary(Binary::Add, start, distance)
    }

    /// Adds one sample for each element of the output, `[regions, height, width, channels]`, from
    /// rows of channels.
    fn sample(
        &self,
        call: &mut Call,
        rows: ImportValue,
        starts: ImportValue,
        width: usize,
        [y, x]: [&SampleNeighbours; 2],
    ) -> Result<ImportValue> {
        let mut found: Option<ImportValue> = None;
        for (row, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let [index_y, weight_y] = [y.index[row], y.weight[row]].map(|y| call.insert_axes(y, &[2]));
            let [index_x, weight_x] = [x.index[column], x.weight[column]].map(|x| call.insert_axes(x, &[1]));
            let above = call.with(Binary::Mul, index_y?, width as f32)?;
            let above = call.binary(Binary::Add, above, starts)?;
            let index = call.binary(Binary::Add, above, index_x?)?;
            let index = call.cast(DType::I64, index)?;
            let elements = call.add(Gather { axis: 0 }, &[rows, index])?;

            let weight = call.binary(Binary::Mul, weight_y?, weight_x?)?;
            let weight = call.insert_axes(weight, &[3])?;
            let product = call.binary(Binary::Mul, elements, weight)?;
            found = Some(found.map_or(Ok(product), |others| self.joined(call, others, product))?);
        }
        found.ok_or_else(|| NodeError::Unfit("a sample without neighbours".into()))
    }

    /// Joins parts of an element. The maximum is that of the weighted neighbours, as in the
    /// standard's examples, not that of their sums.
    fn joined(&self, call: &mut Call, a: ImportValue, b: ImportValue) -> Result<ImportValue> {
        call.binary(if self.is_max { Binary::Max } else { Binary::Add }, a, b)
    }
}

impl SampleNeighbours {
    /// Adds the neighbours of positions along an axis. Positions up to one element outside count
    /// as the outermost; others have no weight.
    fn of(call: &mut Call, places: ImportValue, extent: usize) -> Result<Self> {
        let last = extent as f32 - 1.0;
        let around = call.with(Binary::Max, places, -1.0)?;
        let around = call.with(Binary::Min, around, extent as f32)?;
        let is_inside = call.binary(Binary::Equal, around, places)?;
        let is_inside = call.cast(DType::F32, is_inside)?;

        let places = call.with(Binary::Max, places, 0.0)?;
        let places = call.with(Binary::Min, places, last)?;
        let first = call.unary(UnaryOp::Floor, places)?;
        let fraction = call.binary(Binary::Sub, places, first)?;
        let one = call.number(1.0, places)?;
        let rest = call.binary(Binary::Sub, one, fraction)?;
        let next = call.with(Binary::Add, first, 1.0)?;
        let next = call.with(Binary::Min, next, last)?;
        let weights = [rest, fraction].map(|weight| call.binary(Binary::Mul, weight, is_inside));
        let [before, behind] = weights;
        Ok(Self { index: [first, next], weight: [before?, behind?] })
    }
}

/// Imports means or maxima of samples in regions `[regions, 4]` of images; the third input has the
/// number of the image for each.
fn align(call: &mut Call) -> Result<ImportValue> {
    call.check_most(3)?;
    let sampling = RegionSampling::of(call)?;
    let (x, regions, images) = (call.operand(0)?, call.operand(1)?, call.operand(2)?);
    let (shape, of_regions) = (call.shape(x), call.shape(regions));
    let (&[n, c, h, w], &[count, 4]) = (&shape[..], &of_regions[..]) else {
        return unfit(format!("images of shape {shape:?} and regions of shape {of_regions:?}"));
    };
    // The numbers of elements must be exact in f32.
    let rows = product(&[n, h, w]).filter(|&rows| 0 < rows && rows <= 1 << 24);
    let (Some(rows), true) = (rows, call.shape(images) == [count]) else {
        return unfit(format!("images of shape {shape:?} with numbers of shape {:?}", call.shape(images)));
    };

    let lines = call.transpose(&[0, 2, 3, 1], x)?;
    let lines = call.reshape(&[rows, c], lines)?;
    let mut regions = call.with(Binary::Mul, regions, sampling.scale)?;
    if sampling.is_shifted {
        regions = call.with(Binary::Sub, regions, 0.5)?;
    }
    let starts = call.cast(DType::F32, images)?;
    let starts = call.with(Binary::Mul, starts, (h * w) as f32)?;
    let starts = call.reshape(&[count, 1, 1], starts)?;

    let mut along = |ends, extent| {
        let of = |number| {
            let places = sampling.places(call, regions, ends, number)?;
            SampleNeighbours::of(call, places, extent)
        };
        (0..sampling.samples).map(of).collect::<Result<Vec<SampleNeighbours>>>()
    };
    let (columns, lines_of) = (along([0, 2], w)?, along([1, 3], h)?);
    let mut all: Option<ImportValue> = None;
    for (y, x) in lines_of.iter().flat_map(|y| columns.iter().map(move |x| (y, x))) {
        let sample = sampling.sample(call, lines, starts, w, [y, x])?;
        all = Some(all.map_or(Ok(sample), |others| sampling.joined(call, others, sample))?);
    }
    let mut all = all.ok_or_else(|| NodeError::Unfit("no samples".into()))?;
    if !sampling.is_max {
        all = call.with(Binary::Mul, all, 1.0 / (sampling.samples * sampling.samples) as f32)?;
    }
    call.transpose(&[0, 3, 1, 2], all)
}

/// Imports the positions of the elements of images, from -1 to 1, under affine maps of shape
/// `[n, axes, axes + 1]`; the coordinate along the last axis comes first.
fn affine_grid(call: &mut Call) -> Result<ImportValue> {
    call.check_most(2)?;
    let maps = call.operand(0)?;
    let size = call.known_integers(1)?.ok_or_else(|| missing(1))?;
    let size = extents(&size).map_err(NodeError::Unfit)?;
    let (&[n, _, ref spatial @ ..], of_maps) = (&size[..], call.shape(maps)) else {
        return unfit(format!("images of shape {size:?}; expected batch, channels and axes"));
    };
    let axes = spatial.len();
    if axes == 0 || of_maps != [n, axes, axes + 1] {
        return unfit(format!("maps of shape {of_maps:?} do not match images of shape {size:?}"));
    }

    let is_aligned = call.flag("align_corners", false)?;
    let place = |element: usize, extent: usize| match (is_aligned, extent) {
        (true, 0..=1) => 0.0,
        (true, _) => 2.0 * element as f64 / (extent - 1) as f64 - 1.0,
        (false, _) => (2 * element + 1) as f64 / extent as f64 - 1.0,
    };
    let points = elements(spatial)?;
    let steps = strides(spatial);
    let coordinate = |at: usize| {
        let (point, axis) = (at / (axes + 1), at % (axes + 1));
        match axes.checked_sub(axis + 1) {
            Some(axis) => place(point / steps[axis] % spatial[axis], spatial[axis]) as f32,
            None => 1.0,
        }
    };
    let grid = call.computed(&[points, axes + 1], || (0..points * (axes + 1)).map(coordinate).collect())?;
    let columns = call.transpose(&[0, 2, 1], maps)?;
    let mapped = call.add(MatMul, &[grid, columns])?;
    call.reshape(&[&[n], spatial, &[axes]].concat(), mapped)
}
