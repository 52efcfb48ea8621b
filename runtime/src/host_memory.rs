//! Memory of the host.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::device::{Extent, alignment_of, from, within};
use crate::element::Element;
use crate::error::DeviceError;

/// Alignment of what is allocated, a page, so that equal kernels get equally placed buffers.
const PAGE: usize = 4096;
/// The same for memory of at least [`HUGE_BYTES`], for which the system is asked for pages of this
/// size: kernels that stream through megabytes of weights then miss fewer translations, and
/// hardware prefetching goes on for longer.
const HUGE_PAGE: usize = 2 << 20;
const HUGE_BYTES: usize = 256 << 10;

/// A range of bytes of this process, which are initialised.
#[derive(Debug)]
pub struct HostMemory {
    start: NonNull<u8>,
    bytes: usize,
    /// What it is a part of; `None` if that is somebody else's.
    owner: Option<Arc<Block>>,
}

// SAFETY: bytes are written only through `&mut`, or by whoever promised `Device::part` that nobody
// else uses them.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// At least `bytes` zeros, whole pages, all of which are there: kernels that are timed in it
    /// find no page missing.
    pub fn new(bytes: usize) -> Result<Self, DeviceError> {
        Self::of_block(Block::new(bytes), bytes)
    }

    /// The same for what is written once, such as weights: pages come when they are written, by
    /// whichever thread does.
    pub fn untouched(bytes: usize) -> Result<Self, DeviceError> {
        Self::of_block(Block::mapped(bytes), bytes)
    }

    /// Has those pages of it that begin in a range come into being.
    ///
    /// # Safety
    ///
    /// It is [untouched](HostMemory::untouched), and nobody else uses the range.
    pub(crate) unsafe fn touch(&self, range: Range<usize>) {
        for first in (range.start.next_multiple_of(PAGE)..range.end.min(self.bytes)).step_by(PAGE) {
            // SAFETY: the byte is in the memory; that nobody else uses it, the caller promises. It
            // is a zero already.
            unsafe { self.start.add(first).write_volatile(0) };
        }
    }

    fn of_block(block: Option<Block>, wanted: usize) -> Result<Self, DeviceError> {
        let message = || format!("{wanted} bytes of memory cannot be had");
        let block = block.ok_or_else(|| DeviceError::OutOfMemory { message: message() })?;
        Ok(Self { start: block.start, bytes: block.bytes, owner: Some(Arc::new(block)) })
    }

    /// Memory of somebody else, such as the arena of a compiler.
    ///
    /// # Safety
    ///
    /// `bytes` bytes from `start` on are initialised and stay where they are as long as this or a
    /// [part](crate::Device::part) of it is in use, and nobody else writes them meanwhile, or reads
    /// them while they are written.
    pub unsafe fn wrap(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes, owner: None }
    }

    /// The memory of a slice.
    ///
    /// # Safety
    ///
    /// As [`HostMemory::wrap`].
    pub(crate) unsafe fn of_slice<T: Element>(elements: &[T]) -> Self {
        Self { start: NonNull::from(elements).cast(), bytes: size_of_val(elements), owner: None }
    }

    /// The same for a slice that kernels write.
    ///
    /// # Safety
    ///
    /// As [`HostMemory::wrap`].
    pub(crate) unsafe fn of_slice_mut<T: Element>(elements: &mut [T]) -> Self {
        let bytes = size_of_val(elements);
        Self { start: NonNull::from(elements).cast(), bytes, owner: None }
    }

    /// Everything in it as elements.
    ///
    /// # Panics
    ///
    /// If it does not begin where an element can; what was allocated does.
    pub fn elements<T: Element>(&self) -> &[T] {
        let start = self.start.cast::<T>();
        assert!(start.is_aligned(), "a part of a memory between two elements");
        // SAFETY: as many elements as fit are there and initialised, and live as long as `self`,
        // which is borrowed.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.bytes / size_of::<T>()) }
    }

    /// The same, to be written.
    ///
    /// # Panics
    ///
    /// As [`HostMemory::elements`].
    pub fn elements_mut<T: Element>(&mut self) -> &mut [T] {
        let start = self.start.cast::<T>();
        assert!(start.is_aligned(), "a part of a memory between two elements");
        // SAFETY: as in `elements`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.bytes / size_of::<T>()) }
    }

    /// The address of its first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn extent(&self) -> Extent {
        Extent { bytes: self.bytes, alignment: alignment_of(self.start.as_ptr() as usize) }
    }

    /// [`crate::Device::part`].
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> Result<Self, DeviceError> {
        within(&range, self.bytes)?;
        // SAFETY: the byte is in the memory, or just behind it.
        let start = unsafe { self.start.add(range.start) };
        Ok(Self { start, bytes: range.len(), owner: self.owner.clone() })
    }

    pub(crate) fn bytes(&self, first_byte: usize, bytes: usize) -> Result<&[u8], DeviceError> {
        let range = from(first_byte, bytes);
        within(&range, self.bytes)?;
        Ok(&self.elements()[range])
    }

    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> Result<&mut [u8], DeviceError> {
        within(&range, self.bytes)?;
        Ok(&mut self.elements_mut()[range])
    }
}

/// Memory that was allocated.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    bytes: usize,
    /// How it was allocated; `None` of pages that were mapped.
    layout: Option<Layout>,
}

// SAFETY: a block is an allocation that it alone frees; who uses it, `HostMemory` says.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// At least `bytes` zeros; `None` if they cannot be had.
    fn new(bytes: usize) -> Option<Self> {
        let page = if bytes < HUGE_BYTES { PAGE } else { HUGE_PAGE };
        let size = bytes.max(1).checked_next_multiple_of(page)?;
        let layout = Layout::from_size_align(size, page).ok()?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc::alloc(layout) })?;
        if page == HUGE_PAGE {
            prefer_huge_pages(start, size);
        }
        // SAFETY: `size` bytes were allocated.
        unsafe { start.write_bytes(0, size) };
        Some(Self { start, bytes: size, layout: Some(layout) })
    }

    /// The same as fresh pages, which are not there before they are written. Little memory is
    /// allocated as ever.
    fn mapped(bytes: usize) -> Option<Self> {
        if bytes < HUGE_BYTES {
            return Self::new(bytes);
        }
        let size = bytes.checked_next_multiple_of(HUGE_PAGE)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping at an address that the system chooses touches no memory of
        // others.
        let all = unsafe { libc::mmap(ptr::null_mut(), size.checked_add(HUGE_PAGE)?, access, flags, -1, 0) };
        let all = NonNull::new(all.cast::<u8>()).filter(|_| all != libc::MAP_FAILED)?;

        let before = all.align_offset(HUGE_PAGE);
        // SAFETY: so far the mapping goes, whose first and last pages are given back: nobody has
        // them.
        unsafe {
            let start = all.add(before);
            let unmap =
                |first: NonNull<u8>, bytes: usize| bytes == 0 || libc::munmap(first.as_ptr().cast(), bytes) == 0;
            if !unmap(all, before) || !unmap(start.add(size), HUGE_PAGE - before) {
                return None;
            }
            prefer_huge_pages(start, size);
            Some(Self { start, bytes: size, layout: None })
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.layout {
            // SAFETY: allocated in `new` with this layout.
            Some(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), layout) },
            // SAFETY: the mapping that `mapped` made.
            None => drop(unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) }),
        }
    }
}

/// Asks for huge pages in memory that was not touched yet. A system without them goes on with small
/// ones.
fn prefer_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: advice about whole pages that were just allocated changes nothing of what they hold.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes / HUGE_PAGE * HUGE_PAGE, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zero_and_lives_as_long_as_a_part_of_it() {
        let sizes = [0, 1, 5000, HUGE_BYTES, 3 * HUGE_PAGE + 1];
        for (bytes, make) in
            sizes.into_iter().flat_map(|bytes| [(bytes, HostMemory::new as fn(_) -> _), (bytes, HostMemory::untouched)])
        {
            let mut memory: HostMemory = make(bytes).unwrap();
            assert!(memory.extent().bytes >= bytes && memory.extent().alignment >= PAGE);
            assert!(memory.elements::<u32>().iter().all(|&word| word == 0));
            memory.elements_mut::<u8>()[64..68].copy_from_slice(&7u32.to_ne_bytes());
            // SAFETY: nobody writes any more.
            let part = unsafe { memory.part(64..4096) }.unwrap();
            drop(memory);
            assert_eq!((part.elements::<u32>()[0], part.extent().bytes), (7, 4032));
            assert_eq!(part.extent().alignment, 64);
            // SAFETY: as above.
            assert!(unsafe { part.part(1..4034) }.is_err());
        }
        for bytes in [usize::MAX, isize::MAX as usize - 4096] {
            assert!(HostMemory::new(bytes).is_err() && HostMemory::untouched(bytes).is_err());
        }
    }
}
