//! Elements that lie apart: their distances, and copies of them.

use crate::cut::Strided;

/// Distance of neighbours along each axis of a row-major tensor.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        // An empty tensor may have extents whose product is no number.
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

/// Those of a tensor that is broadcast to a shape, along the axes of that.
pub(crate) fn broadcast_strides(shape: &[usize], to: &[usize]) -> Vec<usize> {
    let own = shape.iter().zip(strides(shape)).map(|(&extent, stride)| if extent == 1 { 0 } else { stride });
    std::iter::repeat_n(0, to.len() - shape.len()).chain(own).collect()
}

impl Strided {
    /// Copies elements from one slice to another.
    ///
    /// # Panics
    ///
    /// If an element is beyond the slices.
    pub(crate) fn copy(&self, from: &[f32], to: &mut [f32]) {
        self.copy_axis(0, (from, self.from as isize), (to, 0));
    }

    fn copy_axis(&self, axis: usize, (from, read): (&[f32], isize), (to, write): (&mut [f32], usize)) {
        let rest = self.extents.len() - axis;
        let Some(&extent) = self.extents.get(axis) else {
            to[write] = from[read as usize];
            return;
        };
        let (reads, writes) = (self.read[axis], self.write[axis]);
        if rest == 1 && (reads, writes) == (1, 1) {
            let read = read as usize;
            to[write..write + extent].copy_from_slice(&from[read..read + extent]);
            return;
        }
        if rest == 1 {
            for i in 0..extent {
                to[write + i * writes] = from[(read + i as isize * reads) as usize];
            }
            return;
        }
        for i in 0..extent {
            self.copy_axis(axis + 1, (from, read + i as isize * reads), (to, write + i * writes));
        }
    }
}
