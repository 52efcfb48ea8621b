//! Tensors, and expressions over them, evaluated in f64 along lines of points.

use autotune_ir::program::{Access, Expr, InBounds, gathered_index};
use autotune_ir::spec::{Axis, AxisId, Equation, Spec, TensorSource};
use autotune_ir::{Affine, DType, VarId};
use ndarray::{CowArray, IxDyn};
use smallvec::SmallVec;

/// A point, or the index of an element.
pub(super) type Point = SmallVec<[i64; 12]>;

/// Returns the number of points of a box.
pub(super) fn points(extents: &[usize]) -> usize {
    extents.iter().fold(1, |points, &extent| points.saturating_mul(extent))
}

/// Returns the extents of an equation's axes that are kept, 1 for the others, and another 1 for an
/// axis that stands for none.
pub(super) fn box_of(equation: &Equation, is_kept: impl Fn(AxisId, &Axis) -> bool) -> Vec<usize> {
    let extent = |(id, axis)| if is_kept(id, axis) { axis.extent } else { 1 };
    equation.axes.iter().enumerate().map(extent).chain([1]).collect()
}

/// Returns point `number` of a box in row-major order.
pub(super) fn unravel(mut number: usize, extents: &[usize]) -> Point {
    let mut point = Point::from_elem(0, extents.len());
    for (at, &extent) in point.iter_mut().zip(extents).rev().filter(|(_, extent)| **extent > 1) {
        *at = (number % extent) as i64;
        number /= extent;
    }
    point
}

/// Returns the row-major position of an index in a shape.
pub(super) fn position(shape: &[usize], index: impl IntoIterator<Item = i64>) -> i64 {
    index.into_iter().zip(shape).fold(0, |position, (at, &extent)| position * extent as i64 + at)
}

/// Evaluates an index at a point.
pub(super) fn at(index: &[Affine], point: &[i64]) -> impl Iterator<Item = i64> {
    index.iter().map(|index| index.eval(|axis| point[axis.0 as usize]))
}

/// Returns the increments of an index along an axis.
pub(super) fn step(index: &[Affine], axis: AxisId) -> impl Iterator<Item = i64> {
    index.iter().map(move |index| index.coefficient(VarId(axis as u32)))
}

/// Elements of a tensor in row-major order.
#[derive(Clone)]
pub(super) enum Elements<'a> {
    /// Operands, to be rounded to the type before they are multiplied.
    Given(&'a [f32], DType),
    /// Elements computed by an equation.
    Made(Vec<f64>),
}

#[derive(Clone)]
pub(super) struct ReferenceTensor<'a> {
    pub(super) shape: Vec<usize>,
    pub(super) elements: Elements<'a>,
}

impl<'a> ReferenceTensor<'a> {
    /// Returns the tensors of a spec in order. Computed ones have no elements yet.
    pub(super) fn all(spec: &'a Spec, operands: &'a [CowArray<'_, f32, IxDyn>]) -> Vec<Self> {
        let mut given = operands.iter().map(|operand| operand.as_slice().unwrap_or_default());
        let mut elements = |tensor: &'a autotune_ir::spec::TensorSpec| match (&tensor.source, tensor.dtype) {
            (TensorSource::Known(elements), _) => Elements::Given(elements, DType::F32),
            (TensorSource::Computed, _) => Elements::Made(Vec::new()),
            // Operands that are not multiplied keep their values: only products round to tf32.
            (_, DType::Tf32) if !spec.is_multiplied(tensor) => {
                Elements::Given(given.next().unwrap_or_default(), DType::F32)
            }
            (_, dtype) => Elements::Given(given.next().unwrap_or_default(), dtype),
        };
        spec.tensors.iter().map(|tensor| Self { shape: tensor.shape.clone(), elements: elements(tensor) }).collect()
    }

    /// Returns the element at a position.
    pub(super) fn get(&self, position: i64) -> f64 {
        match &self.elements {
            Elements::Given(elements, dtype) => f64::from(dtype.multiplied(elements[position as usize])),
            Elements::Made(elements) => elements[position as usize],
        }
    }

    /// Copies consecutive elements from a position on.
    pub(super) fn copy(&self, position: i64, to: &mut [f64]) {
        let part = position as usize..position as usize + to.len();
        match &self.elements {
            Elements::Given(elements, DType::F32) => {
                to.iter_mut().zip(&elements[part]).for_each(|(to, &x)| *to = f64::from(x));
            }
            Elements::Given(elements, dtype) => {
                to.iter_mut().zip(&elements[part]).for_each(|(to, &x)| *to = f64::from(dtype.multiplied(x)));
            }
            Elements::Made(elements) => to.copy_from_slice(&elements[part]),
        }
    }

    /// Copies the elements at distances from a position, which are consecutive if `is_contiguous`.
    pub(super) fn gather(&self, position: i64, distances: &[i64], is_contiguous: bool, to: &mut [f64]) {
        match is_contiguous {
            true => self.copy(position, to),
            false => to.iter_mut().zip(distances).for_each(|(to, by)| *to = self.get(position + by)),
        }
    }
}

/// True if elements at these distances are adjacent.
pub(super) fn is_contiguous(distances: &[i64]) -> bool {
    distances.iter().copied().eq(0..distances.len() as i64)
}

/// The box of a tensor that an access reads around a point, zero outside the tensor.
pub(super) struct AccessWindow {
    /// Index of the box's first element, relative to the element read at the point.
    low: Vec<i64>,
    shape: Vec<usize>,
}

impl AccessWindow {
    /// Returns the window that is read at a box of points with extents `reaches`.
    pub(super) fn new(index: &[Affine], reaches: &[usize]) -> Self {
        let ranges = index.iter().map(|index| (index.constant, index.range(|axis| reaches[axis.0 as usize])));
        let (low, shape) = ranges.map(|(first, (low, high))| (low - first, (high - low + 1) as usize)).unzip();
        Self { low, shape }
    }

    pub(super) fn len(&self) -> usize {
        points(&self.shape)
    }

    /// Returns the position in the window of the element read at distance `by` from the point.
    pub(super) fn place(&self, index: &[Affine], by: &[i64]) -> usize {
        let index = at(index, by).zip(index).zip(&self.low).map(|((at, index), low)| at - index.constant - low);
        position(&self.shape, index) as usize
    }

    /// Returns the distance in the window between elements read at adjacent points of an axis.
    pub(super) fn stride(&self, index: &[Affine], axis: AxisId) -> i64 {
        position(&self.shape, step(index, axis))
    }

    /// Reads the window's elements at a point.
    pub(super) fn read(&self, tensor: &ReferenceTensor, index: &[Affine], point: &[i64], elements: &mut [f64]) {
        let first: Point = at(index, point).zip(&self.low).map(|(at, low)| at + low).collect();
        let is_part = |&dim: &usize| first[dim] != 0 || self.shape[dim] != tensor.shape[dim];
        // Trailing dimensions that are read as a whole lengthen the rows to copy.
        let dim = (0..first.len()).rfind(is_part).unwrap_or(0);
        let whole = points(&tensor.shape[dim + 1..]) as i64;
        let (len, extent) = (self.shape[dim] as i64, tensor.shape[dim] as i64);
        let [start, end] = [-first[dim], extent - first[dim]].map(|end| (end.clamp(0, len) * whole) as usize);

        elements.fill(0.0);
        for (number, row) in elements.chunks_exact_mut((len * whole) as usize).enumerate() {
            let mut at = unravel(number, &self.shape[..dim]);
            at.iter_mut().zip(&first).for_each(|(at, first)| *at += first);
            if start < end && at.iter().zip(&tensor.shape).all(|(&at, &extent)| (0..extent as i64).contains(&at)) {
                let from = (position(&tensor.shape, at) * extent + first[dim]) * whole;
                tensor.copy(from + start as i64, &mut row[start..end]);
            }
        }
    }
}

/// Points along an axis.
pub(super) struct Line<'a> {
    pub(super) first: &'a [i64],
    pub(super) axis: AxisId,
    /// Distances from the first point, ascending.
    pub(super) columns: &'a [usize],
}

impl Line<'_> {
    /// Returns the element that an access reads at each point.
    pub(super) fn read(&self, tensor: &ReferenceTensor, index: &[Affine]) -> Vec<f64> {
        let mut reaches = vec![1; self.first.len()];
        reaches[self.axis] = self.columns.last().map_or(1, |last| last + 1);
        let window = AccessWindow::new(index, &reaches);
        let mut elements = vec![0.0; window.len()];
        window.read(tensor, index, self.first, &mut elements);

        let first = window.place(index, &vec![0; self.first.len()]) as i64;
        let stride = window.stride(index, self.axis);
        self.columns.iter().map(|&column| elements[(first + column as i64 * stride) as usize]).collect()
    }

    /// Returns the element that an access reads at each point, with given values as the index along
    /// some dimensions.
    pub(super) fn gather(&self, tensor: &ReferenceTensor, index: &[Affine], values: &[(usize, Vec<f64>)]) -> Vec<f64> {
        let element = |(number, &column): (usize, &usize)| {
            let mut point = Point::from_slice(self.first);
            point[self.axis] += column as i64;
            let mut at: Point = at(index, &point).collect();
            for (dim, values) in values {
                at[*dim] = gathered_index(values[number] as f32, tensor.shape[*dim]) as i64;
            }
            tensor.get(position(&tensor.shape, at))
        };
        self.columns.iter().enumerate().map(element).collect()
    }

    /// Evaluates an expression at each point. `load` returns the elements that an access reads,
    /// with given values as the index along some dimensions.
    pub(super) fn values(&self, expr: &Expr, load: &impl Fn(&Access, &[(usize, Vec<f64>)]) -> Vec<f64>) -> Vec<f64> {
        match expr {
            Expr::Const(x) => vec![f64::from(*x); self.columns.len()],
            Expr::Load(access) => load(access, &[]),
            Expr::Gather(gather) => {
                let values = gather.at.iter().map(|expr| self.values(expr, load));
                load(&gather.access, &gather.dims.iter().copied().zip(values).collect::<Vec<_>>())
            }

            Expr::Unary(op, of) => self.values(of, load).into_iter().map(|x| op.exact(x)).collect(),
            Expr::Binary(op, of) => {
                let [left, right] = of.each_ref().map(|expr| self.values(expr, load));
                left.into_iter().zip(right).map(|(left, right)| op.exact(left, right)).collect()
            }
            Expr::Select(compare, of) => {
                let [a, b, then, otherwise] = of.each_ref().map(|expr| self.values(expr, load));
                let choose = |i: usize| if compare.holds(a[i], b[i]) { then[i] } else { otherwise[i] };
                (0..a.len()).map(choose).collect()
            }

            Expr::Guarded { when, value } => {
                let mut values = self.values(value, load);
                for (value, &column) in values.iter_mut().zip(self.columns) {
                    let mut point = Point::from_slice(self.first);
                    point[self.axis] += column as i64;
                    let holds = |c: &InBounds| {
                        at(std::slice::from_ref(&c.index), &point).all(|at| (0..c.extent as i64).contains(&at))
                    };
                    *value = if when.iter().all(holds) { *value } else { 0.0 };
                }
                values
            }
        }
    }
}

/// Returns the sum of products, computed as four independent sums.
pub(super) fn dot(left: &[f64], right: &[f64]) -> f64 {
    let ((fours, rest), (right_fours, right_rest)) = (left.as_chunks::<4>(), right.as_chunks::<4>());
    let mut lanes = [0.0; 4];
    for (left, right) in fours.iter().zip(right_fours) {
        (0..4).for_each(|lane| lanes[lane] += left[lane] * right[lane]);
    }
    lanes.iter().sum::<f64>() + rest.iter().zip(right_rest).map(|(left, right)| left * right).sum::<f64>()
}
