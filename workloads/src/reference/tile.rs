//! Tiles of products that are added up together.

use autotune_ir::spec::{AxisId, Equation};

use super::line::{AccessWindow, Point, dot, is_contiguous, points, unravel};
use super::operand::ReferenceOperand;

/// Maximum of a tile's products times the number of sums: the elements that they read stay in a
/// core's own caches.
const HELD: usize = 1 << 12;
/// Like [`HELD`], if each sum reads elements of its own.
const HELD_APART: usize = 1 << 15;

/// A box of the reduction axes, for sums along another axis.
pub(super) struct ReductionTile {
    /// Extents of a box.
    extents: Vec<usize>,
    /// Number of boxes along each axis.
    counts: Vec<usize>,
    /// Box of elements that is read of the operand along which the sums go.
    window: AccessWindow,
    /// Distance in that box between the elements of adjacent sums.
    stride: usize,
    /// Number of sums from the first to the last.
    span: usize,
    /// True if the sums are at scattered points. Then a point's elements are adjacent, else a
    /// product's.
    is_scattered: bool,
    /// Position in the window of each product's first element.
    window_places: Vec<usize>,
    /// Position of each product's first element among the elements to add.
    places: Vec<usize>,
    /// Distance of each product's factor from the first one's.
    factors: Vec<i64>,
    /// True if the factors are adjacent.
    is_contiguous: bool,
}

impl ReductionTile {
    pub(super) fn new(
        main: &Equation,
        [rows, factors]: [&ReferenceOperand; 2],
        axis: AxisId,
        span: usize,
        is_scattered: bool,
    ) -> Self {
        let mut room = if is_scattered { HELD_APART } else { HELD } / span;
        let (mut extents, mut counts) = (vec![1; main.axes.len() + 1], vec![1; main.axes.len() + 1]);
        for (id, axis) in main.axes.iter().enumerate().rev().filter(|(_, axis)| axis.reduce) {
            counts[id] = axis.extent.div_ceil(room.max(1));
            extents[id] = axis.extent.div_ceil(counts[id]);
            room /= extents[id];
        }

        let mut reaches = extents.clone();
        reaches[axis] = span;
        let window = AccessWindow::new(&rows.index, &reaches);
        let stride = window.stride(&rows.index, axis) as usize;
        let product = |product| {
            let by = unravel(product, &extents);
            (window.place(&rows.index, &by), factors.offset(&by))
        };
        let (window_places, factors): (Vec<_>, Vec<_>) = (0..points(&extents)).map(product).unzip();
        let places = match stride {
            1 => window_places.clone(),
            _ => (0..factors.len()).map(|product| product * span).collect(),
        };
        let is_contiguous = is_contiguous(&factors);
        Self { extents, counts, window, stride, span, is_scattered, window_places, places, factors, is_contiguous }
    }

    /// Returns the number of boxes.
    pub(super) fn count(&self) -> usize {
        points(&self.counts)
    }

    /// Returns the offset of a box, and the number of its products.
    pub(super) fn begin(&self, main: &Equation, number: usize) -> (Point, usize) {
        let mut by = unravel(number, &self.counts);
        by.iter_mut().zip(&self.extents).for_each(|(by, &extent)| *by *= extent as i64);
        // Only along its slowest axis may a box be cut off.
        let left = main.axes.iter().zip(&by).map(|(axis, &by)| axis.extent - by as usize);
        let products = left.zip(&self.extents).map(|(left, &extent)| left.min(extent)).product();
        (by, products)
    }

    /// Reads the elements of the box at a point, replacing `elements`.
    pub(super) fn read(&self, rows: &ReferenceOperand, point: &[i64], elements: &mut Vec<f64>) {
        elements.resize(self.window.len(), 0.0);
        self.window.read(&rows.tensor, &rows.index, point, elements);
        if !self.is_scattered && self.stride == 1 {
            return;
        }
        let [of_product, of_point] = if self.is_scattered { [1, self.places.len()] } else { [self.span, 1] };
        let window = std::mem::replace(elements, vec![0.0; self.places.len() * self.span]);
        for (product, place) in self.window_places.iter().enumerate() {
            let to = elements[product * of_product..].iter_mut().step_by(of_point);
            let from = window[*place..].iter().step_by(self.stride);
            to.zip(from).take(self.span).for_each(|(to, &from)| *to = from);
        }
    }

    /// Reads the factors of the box at a position, as many as `scales` has.
    pub(super) fn read_factors(&self, factors: &ReferenceOperand, first: i64, scales: &mut [f64]) {
        factors.tensor.gather(first, &self.factors, self.is_contiguous, scales);
    }

    /// Adds `Σ scales[p] * element` to `sums[x]`, over the elements of the products `p` for the
    /// `x`-th point.
    pub(super) fn add(&self, sums: &mut [f64], scales: &[f64], elements: &[f64], points: &[usize]) {
        let products = self.places.len();
        if self.is_scattered {
            let of_points = points.iter().map(|&point| &elements[point * products..][..scales.len()]);
            return sums.iter_mut().zip(of_points).for_each(|(sum, elements)| *sum += dot(scales, elements));
        }
        // Four products at a time, so that each sum is loaded and stored less often.
        let (fours, rest) = scales.as_chunks::<4>();
        let (four_places, rest_places) = self.places[..scales.len()].as_chunks::<4>();
        for (scales, places) in fours.iter().zip(four_places) {
            let [a, b, c, d] = places.map(|place| &elements[place..][..sums.len()]);
            for (x, sum) in sums.iter_mut().enumerate() {
                *sum += (scales[0] * a[x] + scales[1] * b[x]) + (scales[2] * c[x] + scales[3] * d[x]);
            }
        }
        for (scale, &place) in rest.iter().zip(rest_places) {
            sums.iter_mut().zip(&elements[place..]).for_each(|(sum, element)| *sum += scale * element);
        }
    }
}
