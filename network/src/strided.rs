//! Strided elements and copies of them.

use std::ops::Range;
use std::ptr;

use autotune_runtime::{Cpu, Device, HostMemory};

/// A strided copy: element `i, j, ..` within `extents` is read at `from + i * read[0] + j * read[1]
/// ..` and written at the same position with the strides `write`, from the output's first element
/// on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Strided {
    /// Number of elements along each axis, outermost first.
    pub extents: Vec<usize>,
    /// First element that is read.
    pub from: usize,
    /// Read strides, in elements; negative to go backwards.
    pub read: Vec<isize>,
    /// Write strides, in elements.
    pub write: Vec<usize>,
}

/// Number of elements that a single thread copies without dividing the work.
const OF_ONE_THREAD: usize = 1 << 14;

/// A loop of a copy: number of iterations, and the read and write strides in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StridedLoop {
    pub(crate) count: usize,
    pub(crate) read: isize,
    pub(crate) write: usize,
}

impl Strided {
    /// Returns the loops of the copy, outermost first, with adjacent loops merged where possible;
    /// at least one. Returns `None` if nothing is copied.
    pub(crate) fn loops(&self) -> Option<Vec<StridedLoop>> {
        if self.extents.contains(&0) {
            return None;
        }
        let axes = self.extents.iter().zip(self.read.iter().zip(&self.write));
        let mut loops: Vec<StridedLoop> = Vec::new();
        for (&count, (&read, &write)) in axes.filter(|(extent, _)| **extent != 1) {
            match loops.last_mut() {
                // An outer stride equal to the whole inner loop: both are one loop.
                Some(last) if last.read == read * count as isize && last.write == write * count => {
                    *last = StridedLoop { count: last.count * count, read, write };
                }
                _ => loops.push(StridedLoop { count, read, write }),
            }
        }
        if loops.is_empty() {
            loops.push(StridedLoop { count: 1, read: 1, write: 1 });
        }
        Some(loops)
    }

    /// Returns the loops if all elements are within memories of `readable` and `writable` elements;
    /// `None` if one is not, or nothing is copied.
    pub(crate) fn loops_within(&self, readable: usize, writable: usize) -> Option<Vec<StridedLoop>> {
        let loops = self.loops()?;
        // In 128 bits, so that no offset overflows.
        let (mut least, mut most, mut last) = (self.from as i128, self.from as i128, 0u128);
        for &StridedLoop { count, read, write } in &loops {
            let reach = read as i128 * (count as i128 - 1);
            least += reach.min(0);
            most += reach.max(0);
            last += write as u128 * (count as u128 - 1);
        }
        (least >= 0 && most < readable as i128 && last < writable as u128).then_some(loops)
    }

    /// Returns the copy of the first `count` elements.
    pub(crate) fn contiguous(count: usize) -> Self {
        Self { extents: vec![count], from: 0, read: vec![1], write: vec![1] }
    }
}

/// Memory at one end of a copy, and the element in it that positions are counted from.
pub(crate) struct CopyEnd<D: Device = Cpu> {
    pub(crate) memory: D::Memory,
    pub(crate) first: usize,
}

impl<D: Device> CopyEnd<D> {
    /// Returns the number of elements of `bytes` bytes from the first one on.
    pub(crate) fn elements(&self, device: &D, bytes: usize) -> usize {
        (device.extent(&self.memory).bytes / bytes).saturating_sub(self.first)
    }
}

/// A copy between two memories, divided into tasks that may run concurrently.
pub(crate) struct Copying {
    first: StridedLoop,
    rest: Vec<StridedLoop>,
    elements: usize,
    /// First element that is read.
    begin: usize,
    from: HostMemory,
    to: HostMemory,
    /// [`Copying::run_as`] for the element size.
    run: unsafe fn(&Self, Range<usize>),
}

impl Copying {
    /// Creates a copy of elements of `bytes` bytes, no two of which have the same destination.
    /// Returns `None` if an access is out of bounds, or nothing is copied.
    ///
    /// # Safety
    ///
    /// Whenever a [task](Copying::run) runs, no other code uses the destination or writes the
    /// source.
    pub(crate) unsafe fn new(strided: &Strided, bytes: usize, from: HostMemory, to: HostMemory) -> Option<Self> {
        let run: unsafe fn(&Self, Range<usize>) = match bytes {
            1 => Self::run_as::<u8>,
            2 => Self::run_as::<u16>,
            4 => Self::run_as::<u32>,
            8 => Self::run_as::<u64>,
            _ => return None,
        };
        let is_aligned = |memory: &HostMemory| memory.start().addr().is_multiple_of(bytes);
        if ![&from, &to].into_iter().all(is_aligned) {
            return None;
        }
        let elements = |memory: &HostMemory| memory.elements::<u8>().len() / bytes;
        let loops = strided.loops_within(elements(&from), elements(&to))?;

        let (&first, rest) = loops.split_first()?;
        let elements = loops.iter().map(|each| each.count).product();
        Some(Self { first, rest: rest.to_vec(), elements, begin: strided.from, from, to, run })
    }

    /// Returns the number of tasks.
    pub(crate) fn tasks(&self) -> usize {
        if self.elements > OF_ONE_THREAD { self.first.count } else { 1 }
    }

    /// Runs a range of tasks.
    pub(crate) fn run(&self, tasks: Range<usize>) {
        let part = if self.tasks() == 1 { 0..self.first.count } else { tasks };
        // SAFETY: `new` selected the function for the element size.
        unsafe { (self.run)(self, part) };
    }

    /// Copies some iterations of the outermost loop.
    ///
    /// # Safety
    ///
    /// Elements have the size of `T`.
    unsafe fn run_as<T: Copy>(&self, part: Range<usize>) {
        let outer = StridedLoop { count: part.len(), ..self.first };
        // SAFETY: `new` checked that all elements are in bounds. Exclusive use is guaranteed by the
        // caller of `new`, and other tasks write other elements.
        unsafe {
            let from = self.from.start().cast::<T>().add(self.begin).offset(outer.read * part.start as isize);
            let to = self.to.start().cast::<T>().add(outer.write * part.start);
            copy(outer, &self.rest, from, to);
        }
    }
}

/// # Safety
///
/// All elements are in bounds, and no other code uses the written ones.
unsafe fn copy<T: Copy>(
    StridedLoop { count, read, write }: StridedLoop,
    inner: &[StridedLoop],
    from: *const T,
    to: *mut T,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match inner {
            [] if (read, write) == (1, 1) => ptr::copy_nonoverlapping(from, to, count),
            [] => (0..count).for_each(|i| *to.add(i * write) = *from.offset(i as isize * read)),
            &[next, ref rest @ ..] => {
                (0..count).for_each(|i| copy(next, rest, from.offset(i as isize * read), to.add(i * write)));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::testing::cases::for_cases;
    use autotune_graph::strides;

    /// Slices, forwards and backwards, and transpositions of small and large tensors, copied in
    /// parts, compared with elementwise copies.
    #[test]
    fn copies_are_what_they_say_and_stay_inside() {
        for_cases(300, |seed, rng| {
            let most = if seed % 10 == 0 { 40 } else { 5 };
            let shape: Vec<usize> = (0..rng.random_range(0..5)).map(|_| rng.random_range(1..most)).collect();
            let size: usize = shape.iter().product();
            let mut axes: Vec<usize> = (0..shape.len()).collect();
            (0..shape.len()).for_each(|axis| axes.swap(axis, rng.random_range(0..=axis)));
            let (own, mut from) = (strides(&shape), 0);
            let mut read = Vec::new();
            for &axis in &axes {
                let is_backwards = rng.random_bool(0.3);
                from += if is_backwards { own[axis] * (shape[axis] - 1) } else { 0 };
                read.push(if is_backwards { -(own[axis] as isize) } else { own[axis] as isize });
            }
            let extents: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
            let strided = Strided { from, read, write: strides(&extents), extents };

            // Each element's bytes encode its position.
            let bytes = [1, 2, 4, 8][seed as usize % 4];
            let number = |place: usize| place.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[..bytes].to_vec();
            let mut source = HostMemory::new(size * bytes).unwrap();
            let elements = source.elements_mut::<u8>().chunks_exact_mut(bytes).take(size).enumerate();
            elements.for_each(|(place, element)| element.copy_from_slice(&number(place)));
            let target = HostMemory::new(size * bytes).unwrap();
            // SAFETY: the target is only read after the copy.
            let whole = |memory: &HostMemory| unsafe { Cpu::new(1).part(memory, 0..size * bytes) }.unwrap();
            // SAFETY: as above.
            let copying = unsafe { Copying::new(&strided, bytes, whole(&source), whole(&target)) }.unwrap();
            let cut = rng.random_range(0..=copying.tasks());
            [cut..copying.tasks(), 0..cut]
                .into_iter()
                .filter(|part| !part.is_empty())
                .for_each(|part| copying.run(part));

            let mut places = vec![(from as isize, 0)];
            for (&extent, (&read, &write)) in strided.extents.iter().zip(strided.read.iter().zip(&strided.write)) {
                let next = |(from, to)| (0..extent).map(move |i| (from + i as isize * read, to + i * write));
                places = places.into_iter().flat_map(next).collect();
            }
            let found = |place: usize| &target.elements::<u8>()[place * bytes..][..bytes];
            let is_right = |&(from, to): &(isize, usize)| *found(to) == *number(from as usize);
            assert!(places.iter().all(is_right), "{shape:?} {strided:?} of {bytes} bytes");

            // SAFETY: nothing is copied.
            let copying =
                |strided: &Strided, bytes| unsafe { Copying::new(strided, bytes, whole(&source), whole(&target)) };
            let beyond = |strided: Strided| copying(&strided, bytes).is_none();
            assert!([0, 3, 16].into_iter().all(|bytes| copying(&strided, bytes).is_none()));
            assert!(beyond(Strided { from: size, ..strided.clone() }) || from == 0 && size == 0);
            let (one_more, last) = ([vec![size + 1], strided.extents.clone()].concat(), strided.clone());
            let (read, write) = ([vec![0], last.read].concat(), [vec![1], last.write].concat());
            assert!(beyond(Strided { extents: one_more, from, read, write }), "{shape:?}");
        });
    }
}
