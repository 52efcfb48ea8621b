//! Iteration over elements in memory.

use crate::error::OpError;
use crate::tensor::Tensor;
use crate::typed::{Typed, by_type, tensor, values};

/// Returns the strides of a row-major tensor, in elements, outermost axis first.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        // The extents of an empty tensor may have an overflowing product.
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

/// Returns the strides of a tensor along the axes of a shape that it broadcasts to; 0 where it is
/// repeated.
pub(crate) fn broadcast_strides(shape: &[usize], to: &[usize]) -> Vec<usize> {
    let own = shape.iter().zip(strides(shape)).map(|(&extent, stride)| if extent == 1 { 0 } else { stride });
    std::iter::repeat_n(0, to.len() - shape.len()).chain(own).collect()
}

/// Returns the offsets of all elements in order; none if an extent is 0.
pub(crate) fn offsets(extents: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut offsets = vec![0];
    for (&extent, &stride) in extents.iter().zip(strides) {
        offsets = offsets.iter().flat_map(|offset| (0..extent).map(move |i| offset + i * stride)).collect();
    }
    offsets
}

/// Offsets in several tensors that are traversed together, in rows along the last axis.
pub(crate) struct TensorRows<const N: usize> {
    /// Offset of each row's start.
    pub(crate) starts: Vec<[usize; N]>,
    /// Number of elements in a row.
    pub(crate) extent: usize,
    /// Distance between neighbours in a row.
    pub(crate) steps: [usize; N],
}

impl<const N: usize> TensorRows<N> {
    /// Traverses a shape in order, in tensors that broadcast to it; no extent may be 0.
    pub(crate) fn broadcast(shapes: [&[usize]; N], to: &[usize]) -> Self {
        Self::new(to, shapes.map(|shape| broadcast_strides(shape, to)))
    }

    pub(crate) fn new(extents: &[usize], strides: [Vec<usize>; N]) -> Self {
        // Adjacent axes are merged if all tensors traverse them like a single one.
        let mut axes: Vec<(usize, [usize; N])> = Vec::new();
        for (axis, &extent) in extents.iter().enumerate().filter(|(_, extent)| **extent != 1) {
            let steps = strides.each_ref().map(|strides| strides[axis]);
            match axes.last_mut() {
                Some((all, last)) if *last == steps.map(|step| step * extent) => (*all, *last) = (*all * extent, steps),
                _ => axes.push((extent, steps)),
            }
        }

        let Some(((extent, steps), outer)) = axes.split_last() else {
            // All extents are 1, or there are no axes.
            return Self { starts: vec![[0; N]], extent: 1, steps: [0; N] };
        };
        let extents: Vec<usize> = outer.iter().map(|(extent, _)| *extent).collect();
        let of = |n: usize| offsets(&extents, &outer.iter().map(|(_, steps)| steps[n]).collect::<Vec<_>>());
        let of_each: [Vec<usize>; N] = std::array::from_fn(of);
        let starts = (0..of_each[0].len()).map(|row| std::array::from_fn(|n| of_each[n][row])).collect();
        Self { starts, extent: *extent, steps: *steps }
    }

    /// Applies a function to the offsets of every element.
    pub(crate) fn map<T>(&self, of: impl Fn([usize; N]) -> T) -> Vec<T> {
        let mut all = Vec::with_capacity(self.starts.len() * self.extent);
        for start in &self.starts {
            all.extend((0..self.extent).map(|i| of(std::array::from_fn(|n| start[n] + i * self.steps[n]))));
        }
        all
    }
}

/// Returns the elements of a tensor at the given positions along each axis; `other` where a
/// position is none.
pub(crate) fn picked<T: Copy>(x: &[T], shape: &[usize], places: &[Vec<Option<usize>>], other: T) -> Vec<T> {
    let strides = strides(shape);
    let Some((last, outer)) = places.split_last() else { return x.to_vec() };
    let mut rows = vec![Some(0)];
    for (places, stride) in outer.iter().zip(&strides) {
        let of_row = |row: &Option<usize>| {
            let row = *row;
            places.iter().map(move |place| Some(row? + (*place)? * stride))
        };
        rows = rows.iter().flat_map(of_row).collect();
    }

    let element = |row: Option<usize>, place: Option<usize>| match (row, place) {
        (Some(row), Some(place)) => x[row + place],
        _ => other,
    };
    rows.iter().flat_map(|&row| last.iter().map(move |&place| element(row, place))).collect()
}

/// Returns the positions along a padded axis; `None` in the padding.
pub(crate) fn padded(extent: usize, [before, behind]: [usize; 2]) -> Vec<Option<usize>> {
    let none = |count| std::iter::repeat_n(None, count);
    none(before).chain((0..extent).map(Some)).chain(none(behind)).collect()
}

/// Returns the elements of the first operand at the given positions along each axis.
pub(crate) fn pick(operands: &[&Tensor], places: &[Vec<Option<usize>>], shape: &[usize]) -> Result<Tensor, OpError> {
    fn of<T: Typed>(operands: &[&Tensor], places: &[Vec<Option<usize>>], shape: &[usize]) -> Result<Tensor, OpError> {
        let x = values::<T>(operands, 0)?;
        tensor(shape, picked(&x, operands[0].shape(), places, x[0]))
    }
    by_type!(operands[0].dtype(), of(operands, places, shape))
}

/// Returns the elements of the first operand with the given strides along each axis of the output.
pub(crate) fn along<T: Typed>(operands: &[&Tensor], strides: Vec<usize>, shape: &[usize]) -> Result<Tensor, OpError> {
    let x = values::<T>(operands, 0)?;
    tensor(shape, TensorRows::new(shape, [strides]).map(|[at]| x[at]))
}
