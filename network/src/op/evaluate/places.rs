//! Where elements lie in memory.

/// Distance of neighbours along each axis of a row-major tensor.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        // An empty tensor may have extents whose product is no number.
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

/// Those of a tensor that is broadcast to a shape, along the axes of that.
pub(super) fn broadcast_strides(shape: &[usize], to: &[usize]) -> Vec<usize> {
    let own = shape.iter().zip(strides(shape)).map(|(&extent, stride)| if extent == 1 { 0 } else { stride });
    std::iter::repeat_n(0, to.len() - shape.len()).chain(own).collect()
}

/// The places of all elements in order; none of the extents is 0.
pub(super) fn offsets(extents: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut offsets = vec![0];
    for (&extent, &stride) in extents.iter().zip(strides) {
        offsets = offsets.iter().flat_map(|offset| (0..extent).map(move |i| offset + i * stride)).collect();
    }
    offsets
}

/// Places in several tensors that are walked together, as rows along the last axis.
pub(super) struct Rows<const N: usize> {
    /// Where each row begins.
    pub(super) starts: Vec<[usize; N]>,
    /// Elements of a row.
    pub(super) extent: usize,
    /// From one of its elements to the next.
    pub(super) steps: [usize; N],
}

impl<const N: usize> Rows<N> {
    /// All elements of a shape in order, in tensors that are broadcast to it; none of its extents is 0.
    pub(super) fn broadcast(shapes: [&[usize]; N], to: &[usize]) -> Self {
        Self::new(to, shapes.map(|shape| broadcast_strides(shape, to)))
    }

    pub(super) fn new(extents: &[usize], strides: [Vec<usize>; N]) -> Self {
        let Some((&extent, outer)) = extents.split_last() else {
            return Self { starts: vec![[0; N]], extent: 1, steps: [0; N] };
        };
        let of_each = strides.each_ref().map(|strides| offsets(outer, &strides[..outer.len()]));
        let starts = (0..of_each[0].len()).map(|row| std::array::from_fn(|n| of_each[n][row])).collect();
        Self { starts, extent, steps: strides.each_ref().map(|strides| strides[outer.len()]) }
    }

    /// Places of every element.
    pub(super) fn each(&self) -> impl Iterator<Item = [usize; N]> {
        let of_row = move |start: &[usize; N]| {
            let start = *start;
            (0..self.extent).map(move |i| std::array::from_fn(|n| start[n] + i * self.steps[n]))
        };
        self.starts.iter().flat_map(of_row)
    }
}

/// The elements of a tensor at some places along each axis, others where there are none.
pub(super) fn picked<T: Copy>(x: &[T], shape: &[usize], places: &[Vec<Option<usize>>], other: T) -> Vec<T> {
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

/// Places along an axis with padding around it.
pub(super) fn padded(extent: usize, [before, behind]: [usize; 2]) -> Vec<Option<usize>> {
    let none = |count| std::iter::repeat_n(None, count);
    none(before).chain((0..extent).map(Some)).chain(none(behind)).collect()
}
