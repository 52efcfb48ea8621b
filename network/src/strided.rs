//! Copies of elements that lie apart.

use crate::cut::Strided;

impl Strided {
    /// Copies elements from one slice to another.
    ///
    /// # Panics
    ///
    /// If an element is beyond the slices.
    pub(crate) fn copy(&self, from: &[f32], to: &mut [f32]) {
        self.copy_axis(0, (from, self.from as isize), (to, 0));
    }

    fn copy_axis(&self, axis: usize, (from, read): (&[f32], isize), (to, write): (&mut [f32], isize)) {
        let rest = self.extents.len() - axis;
        let Some(&extent) = self.extents.get(axis) else {
            to[write as usize] = from[read as usize];
            return;
        };
        let (reads, writes) = (self.read[axis], self.write[axis]);
        if rest == 1 && (reads, writes) == (1, 1) {
            let (read, write) = (read as usize, write as usize);
            to[write..write + extent].copy_from_slice(&from[read..read + extent]);
            return;
        }
        if rest == 1 {
            for i in 0..extent as isize {
                to[(write + i * writes) as usize] = from[(read + i * reads) as usize];
            }
            return;
        }
        for i in 0..extent as isize {
            self.copy_axis(axis + 1, (from, read + i * reads), (to, write + i * writes));
        }
    }
}
