//! Positions of elements that are selected by index.

use autotune_workloads::ReduceOp;

use super::binary::Binary;
use super::gather::Gather;
use super::prelude::*;
use super::reduce::Reduce;
use super::reshape::Reshape;
use super::sub_nodes::SubNodes;

/// Maximum number of rows that kernels select from: they read indices as f32, which represents all
/// integers up to it.
pub(super) const MOST_ROWS: usize = 1 << 24;

/// Returns the position of an index along an axis; a negative index counts from the end.
pub(super) fn place(index: i64, extent: usize, axis: usize) -> Result<usize, OpError> {
    // The usual case, in few instructions.
    if let Some(place) = usize::try_from(index).ok().filter(|&place| place < extent) {
        return Ok(place);
    }
    // `i128` cannot overflow for any index.
    let counted = if index < 0 { i128::from(index) + extent as i128 } else { index.into() };
    let inside = usize::try_from(counted).ok().filter(|&place| place < extent);
    inside.ok_or_else(|| OpError::Unfit(format!("index {index} is out of range for extent {extent} of axis {axis}")))
}

/// Meaning of a tensor of indices into another tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Each index replaces one coordinate, along this axis, of its own position.
    Along(usize),
    /// Each row of indices along the last axis has the coordinates of a slice, behind this number
    /// of axes that both tensors share.
    Tuples(usize),
}

impl Selection {
    /// Fails unless indices of a shape can select from data of a shape. Returns the shape of what
    /// they select.
    pub(super) fn selected(self, data: &[usize], indices: &[usize]) -> Result<Vec<usize>, OpError> {
        match self {
            Selection::Along(axis) => {
                axis_of(axis, data)?;
                let fits = |at: usize| at == axis || indices[at] <= data[at];
                match data.len() == indices.len() && (0..data.len()).all(fits) {
                    true => Ok(indices.to_vec()),
                    false => unfit(format!("indices of shape {indices:?} do not match data of shape {data:?}")),
                }
            }
            Selection::Tuples(batch) => {
                let found = indices.split_last().filter(|(_, outer)| outer.len() >= batch && data.len() >= batch);
                match found {
                    Some((&count, outer)) if outer[..batch] == data[..batch] && count <= data.len() - batch => {
                        Ok([outer, &data[batch + count..]].concat())
                    }
                    _ => unfit(format!(
                        "indices of shape {indices:?} do not match data of shape {data:?} with {batch} shared axes"
                    )),
                }
            }
        }
    }

    /// Returns the axes of the data that indices replace, and the number of elements behind each
    /// selected position.
    fn axes(self, data: &[usize], indices: &[usize]) -> (std::ops::Range<usize>, usize) {
        let axes = match self {
            Selection::Along(axis) => return (axis..axis + 1, 1),
            Selection::Tuples(batch) => batch..batch + indices.last().copied().unwrap_or(0),
        };
        let row = data[axes.end..].iter().product();
        (axes, row)
    }

    /// Returns the number of elements of a selected slice.
    pub(super) fn row(self, data: &[usize], indices: &[usize]) -> usize {
        self.axes(data, indices).1
    }

    /// Returns the first element of each slice if all indices were 0, in slices.
    fn origins(self, data: &[usize], indices: &[usize]) -> Vec<usize> {
        let row = self.row(data, indices);
        let mut steps: Vec<usize> = strides(data).into_iter().map(|stride| stride / row.max(1)).collect();
        match self {
            Selection::Along(axis) => {
                steps[axis] = 0;
                offsets(indices, &steps)
            }
            Selection::Tuples(batch) => {
                let outer = &indices[..indices.len() - 1];
                steps.truncate(batch);
                steps.resize(outer.len(), 0);
                offsets(outer, &steps)
            }
        }
    }

    /// Returns the numbers of the selected slices in the data; fails for an index that is out of
    /// range.
    pub(super) fn places(self, data: &[usize], indices: &[usize], numbers: &[i64]) -> Result<Vec<usize>, OpError> {
        let (axes, row) = self.axes(data, indices);
        let (steps, count) = (strides(data), axes.len());
        let mut places = self.origins(data, indices);
        for (number, at) in places.iter_mut().enumerate() {
            let own = &numbers[number * count..(number + 1) * count];
            for (&index, axis) in own.iter().zip(axes.clone()) {
                *at += place(index, data[axis], axis)? * (steps[axis] / row.max(1));
            }
        }
        Ok(places)
    }

    /// Appends parts that compute the numbers of the selected slices from the indices, operand
    /// `indices` of the node. Returns `None` if kernels cannot select from so many rows.
    pub(super) fn numbered(self, parts: &mut SubNodes, data: &[usize], indices: (usize, &[usize])) -> Option<usize> {
        let (operand, shape) = indices;
        let (axes, row) = self.axes(data, shape);
        let is_small = product(data).is_some_and(|count| 0 < count && count / row.max(1) <= MOST_ROWS);
        if axes.is_empty() || !is_small {
            return None;
        }
        // A tuple's extents and steps are vectors along the last axis of the indices.
        let list = |numbers: Vec<usize>| {
            let extents: &[usize] = if matches!(self, Selection::Along(_)) { &[] } else { &[numbers.len()] };
            Tensor::i64(extents, numbers.iter().map(|&number| number as i64).collect()).ok()
        };
        let steps = strides(data);
        let (extents, steps) =
            (list(data[axes.clone()].to_vec())?, list(axes.map(|axis| steps[axis] / row).collect())?);
        let origins: Vec<i64> = self.origins(data, shape).into_iter().map(|at| at as i64).collect();
        let outer = if matches!(self, Selection::Along(_)) { shape } else { &shape[..shape.len() - 1] };
        let origins = Tensor::i64(outer, origins).ok()?;

        let (extents, zero) = (parts.constant(extents), parts.constant(Tensor::i64(&[], vec![0]).ok()?));
        let from_end = parts.add(Binary::Less, &[operand, zero]);
        let counted = parts.add(Binary::Add, &[operand, extents]);
        let counted = parts.choose(from_end, counted, operand);
        let steps = parts.constant(steps);
        let mut moved = parts.add(Binary::Mul, &[counted, steps]);
        if matches!(self, Selection::Tuples(_)) {
            let sum = Reduce { op: ReduceOp::Sum, axes: vec![shape.len() - 1], keep_axes: false };
            moved = parts.add(sum, &[moved]);
        }
        let origins = parts.constant(origins);
        Some(parts.add(Binary::Add, &[moved, origins]))
    }
}

/// Appends parts that select rows of `row` elements from `data`, an operand of `count` elements, as
/// a tensor of `shape`.
pub(super) fn select(parts: &mut SubNodes, data: usize, [count, row]: [usize; 2], numbers: usize, shape: &[usize]) {
    let rows = parts.add(Reshape(vec![count / row, row]), &[data]);
    let selected = parts.add(Gather { axis: 0 }, &[rows, numbers]);
    parts.add(Reshape(shape.to_vec()), &[selected]);
}
