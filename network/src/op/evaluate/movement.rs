//! Elements that are moved, repeated or left out.

use autotune_workloads::{Coordinates, PadMode, Rounding, Sampling};

use super::places::{Rows, offsets, padded, picked, strides};
use super::{Stored, by_type, tensor, values};
use crate::error::OpError;
use crate::op::Range;
use crate::tensor::{Tensor, elements};

pub(super) fn reshape(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    fn of<T: Stored>(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        tensor(shape, values::<T>(operands, 0)?.into_owned())
    }
    by_type!(operands[0].element(), of(operands, shape))
}

pub(super) fn concat(axis: usize, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    fn of<T: Stored>(axis: usize, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let parts: Vec<_> = (0..operands.len()).map(|part| values::<T>(operands, part)).collect::<Result<_, _>>()?;
        let mut all: Vec<T> = Vec::with_capacity(elements(shape)?);
        let rows = shape[..axis].iter().product::<usize>();
        for row in 0..rows {
            for part in &parts {
                let size = part.len() / rows;
                all.extend(&part[row * size..(row + 1) * size]);
            }
        }
        tensor(shape, all)
    }
    by_type!(operands[0].element(), of(axis, operands, shape))
}

pub(super) fn slice(ranges: &[Range], operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let places = |&Range { start, step, count }: &Range| {
        (0..count).map(move |i| start.checked_add_signed(step * i as isize)).collect()
    };
    let places: Vec<Vec<_>> = ranges.iter().map(places).collect();
    pick(operands, &places, shape)
}

/// The elements of the first operand at some places along each axis.
fn pick(operands: &[&Tensor], places: &[Vec<Option<usize>>], shape: &[usize]) -> Result<Tensor, OpError> {
    fn of<T: Stored>(operands: &[&Tensor], places: &[Vec<Option<usize>>], shape: &[usize]) -> Result<Tensor, OpError> {
        let x = values::<T>(operands, 0)?;
        tensor(shape, picked(&x, operands[0].shape(), places, x[0]))
    }
    by_type!(operands[0].element(), of(operands, places, shape))
}

/// The elements of the first operand at distances along each axis of the output.
fn walk<T: Stored>(operands: &[&Tensor], strides: Vec<usize>, shape: &[usize]) -> Result<Tensor, OpError> {
    let x = values::<T>(operands, 0)?;
    tensor(shape, Rows::new(shape, [strides]).map(|[at]| x[at]))
}

pub(super) fn transpose(perm: &[usize], operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let own = strides(operands[0].shape());
    let steps: Vec<usize> = perm.iter().map(|&axis| own[axis]).collect();
    by_type!(operands[0].element(), walk(operands, steps, shape))
}

pub(super) fn expand(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let steps = super::places::broadcast_strides(operands[0].shape(), shape);
    by_type!(operands[0].element(), walk(operands, steps, shape))
}

pub(super) fn pad(
    pad: &[[usize; 2]],
    mode: PadMode,
    value: f32,
    operands: &[&Tensor],
    shape: &[usize],
) -> Result<Tensor, OpError> {
    let (x, from) = (values::<f32>(operands, 0)?, operands[0].shape());
    let mut places = Vec::new();
    for (&extent, &[before, behind]) in from.iter().zip(pad) {
        // As if the padding were as wide in front as the image is far, so that no number is negative.
        let last = extent.saturating_sub(1);
        places.push(match mode {
            PadMode::Constant => padded(extent, [before, behind]),
            PadMode::Edge => (0..before + extent + behind).map(|y| Some(y.saturating_sub(before).min(last))).collect(),
            PadMode::Reflect => {
                let mirrored = |y: usize| {
                    let inside = y.abs_diff(before);
                    inside.min(2 * last - inside.min(2 * last))
                };
                (0..before + extent + behind).map(|y| Some(mirrored(y))).collect()
            }
        });
    }
    tensor(shape, picked(&x, from, &places, value))
}

pub(super) fn resize(
    size: [usize; 2],
    coordinates: Coordinates,
    sampling: Sampling,
    operands: &[&Tensor],
    shape: &[usize],
) -> Result<Tensor, OpError> {
    let from = operands[0].shape();
    let place = |axis: usize, y: usize| Place::new(coordinates, [from[axis + 2], size[axis]], y);
    if let Sampling::Nearest(rounding) = sampling {
        let all = |extent: usize| (0..extent).map(Some).collect();
        let nearest = |axis: usize| (0..size[axis]).map(|y| Some(place(axis, y).rounded(rounding))).collect();
        return pick(operands, &[all(shape[0]), all(shape[1]), nearest(0), nearest(1)], shape);
    }

    let x = values::<f32>(operands, 0)?;
    let steps = strides(from);
    let between = |axis: usize| (0..size[axis]).map(|y| place(axis, y).between()).collect::<Vec<_>>();
    let (rows, columns) = (between(0), between(1));
    let mut all = Vec::with_capacity(elements(shape)?);
    for plane in offsets(&shape[..2], &steps[..2]) {
        for (top, bottom, down) in &rows {
            for (left, right, across) in &columns {
                let at = |row: usize, column: usize| f64::from(x[plane + row * steps[2] + column]);
                let along = |row: usize| at(row, *left) * (1.0 - across) + at(row, *right) * across;
                all.push((along(*top) * (1.0 - down) + along(*bottom) * down) as f32);
            }
        }
    }
    tensor(shape, all)
}

/// A place along an axis, a fraction, which may be outside.
struct Place {
    number: i128,
    of: i128,
    last: i128,
}

impl Place {
    /// That of an element of the output; the extents are those of input and output.
    fn new(coordinates: Coordinates, extents: [usize; 2], y: usize) -> Self {
        let ([from, to], y) = (extents.map(|extent| extent as i128), y as i128);
        let (number, of) = match coordinates {
            Coordinates::HalfPixel => ((2 * y + 1) * from - to, 2 * to),
            Coordinates::AlignCorners if to == 1 => (0, 1),
            Coordinates::AlignCorners => (y * (from - 1), to - 1),
            Coordinates::Asymmetric => (y * from, to),
        };
        Self { number, of, last: from - 1 }
    }

    /// The element that it is nearest to.
    fn rounded(&self, rounding: Rounding) -> usize {
        let below = self.number.div_euclid(self.of);
        let rest = 2 * self.number.rem_euclid(self.of);
        let up = match rounding {
            Rounding::Floor => false,
            Rounding::Ceil => rest > 0,
            Rounding::PreferFloor => rest > self.of,
            Rounding::PreferCeil => rest >= self.of,
        };
        (below + i128::from(up)).clamp(0, self.last) as usize
    }

    /// The elements before and behind it, and how far it is from the first to the second.
    fn between(&self) -> (usize, usize, f64) {
        let at = (self.number as f64 / self.of as f64).clamp(0.0, self.last as f64);
        let below = at.floor();
        (below as usize, (below as i128 + 1).min(self.last) as usize, at - below)
    }
}

pub(super) fn gather(axis: usize, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    fn of<T: Stored>(axis: usize, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (x, from) = (values::<T>(operands, 0)?, operands[0].shape());
        let (outer, extent) = (from[..axis].iter().product::<usize>(), from[axis]);
        let inner = from[axis + 1..].iter().product::<usize>();
        let place = |&number: &i64| {
            let counted = if number < 0 { number as i128 + extent as i128 } else { number.into() };
            let inside = usize::try_from(counted).ok().filter(|&place| place < extent);
            inside.ok_or_else(|| OpError::Unfit(format!("number {number} of {extent} along axis {axis}")))
        };
        let places: Vec<usize> = values::<i64>(operands, 1)?.iter().map(place).collect::<Result<_, _>>()?;

        let mut all: Vec<T> = Vec::with_capacity(elements(shape)?);
        for row in 0..outer {
            for place in &places {
                all.extend(&x[(row * extent + place) * inner..][..inner]);
            }
        }
        tensor(shape, all)
    }
    by_type!(operands[0].element(), of(axis, operands, shape))
}
