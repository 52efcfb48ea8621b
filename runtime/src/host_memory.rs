//! Memory of this process, allocated or borrowed from the caller.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::device::{MemoryExtent, alignment_of, from, within};
use crate::element::Element;
use crate::error::DeviceError;

/// Alignment of allocations, a page, so that buffers of equal kernels have equal offsets within
/// pages.
const PAGE: usize = 4096;
/// Alignment of allocations of at least [`HUGE_BYTES`], for which pages of this size are requested.
/// Kernels that stream through megabytes of weights then have fewer TLB misses, and hardware
/// prefetching continues for longer.
const HUGE_PAGE: usize = 2 << 20;
const HUGE_BYTES: usize = 256 << 10;

/// An initialised range of bytes of this process.
#[derive(Debug)]
pub struct HostMemory {
    start: NonNull<u8>,
    bytes: usize,
    /// Allocation that contains it; `None` if the memory is borrowed from the caller.
    owner: Option<Arc<HostAllocation>>,
}

// SAFETY: bytes are written only through `&mut`, or by a caller of `Device::part` that guaranteed
// exclusive use.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates at least `bytes` zeros in whole pages. All pages are resident, so that timed
    /// kernels cause no page faults.
    pub fn new(bytes: usize) -> Result<Self, DeviceError> {
        Self::of_block(HostAllocation::new(bytes), bytes)
    }

    /// Allocates zeros whose pages become resident when a thread first writes them; for memory that
    /// is written once, such as weights.
    pub fn untouched(bytes: usize) -> Result<Self, DeviceError> {
        Self::of_block(HostAllocation::mapped(bytes), bytes)
    }

    /// Allocates at least `bytes` zeros in small pages. Many small blocks of huge pages would leave
    /// most of each page unused.
    pub fn in_small_pages(bytes: usize) -> Result<Self, DeviceError> {
        Self::of_block(HostAllocation::in_pages(bytes, PAGE), bytes)
    }

    /// Makes the pages that begin in a range resident.
    ///
    /// # Safety
    ///
    /// The memory must be [untouched](HostMemory::untouched), and nothing else may use the range.
    pub(crate) unsafe fn touch(&self, range: Range<usize>) {
        for first in (range.start.next_multiple_of(PAGE)..range.end.min(self.bytes)).step_by(PAGE) {
            // SAFETY: the byte is in the memory and has the value zero already; the caller
            // guarantees that nothing else uses it.
            unsafe { self.start.add(first).write_volatile(0) };
        }
    }

    fn of_block(block: Option<HostAllocation>, wanted: usize) -> Result<Self, DeviceError> {
        let message = || format!("cannot allocate {wanted} bytes");
        let block = block.ok_or_else(|| DeviceError::OutOfMemory { message: message() })?;
        Ok(Self { start: block.start, bytes: block.bytes, owner: Some(Arc::new(block)) })
    }

    /// Wraps memory owned by the caller, such as the arena of a compiler.
    ///
    /// # Safety
    ///
    /// `bytes` bytes from `start` must be initialised and stay at their address as long as the
    /// returned memory or a [part](crate::Device::part) of it is used. Meanwhile nothing else may
    /// write them, or read them while they are written.
    pub unsafe fn wrap(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes, owner: None }
    }

    /// Wraps the memory of a slice.
    ///
    /// # Safety
    ///
    /// See [`HostMemory::wrap`].
    pub(crate) unsafe fn of_slice<T: Element>(elements: &[T]) -> Self {
        Self { start: NonNull::from(elements).cast(), bytes: size_of_val(elements), owner: None }
    }

    /// Wraps the memory of a slice that kernels write.
    ///
    /// # Safety
    ///
    /// See [`HostMemory::wrap`].
    pub(crate) unsafe fn of_slice_mut<T: Element>(elements: &mut [T]) -> Self {
        let bytes = size_of_val(elements);
        Self { start: NonNull::from(elements).cast(), bytes, owner: None }
    }

    /// Returns the whole memory as elements.
    ///
    /// # Panics
    ///
    /// Panics if the memory is not aligned for the element type; allocations always are.
    pub fn elements<T: Element>(&self) -> &[T] {
        let start = self.start.cast::<T>();
        assert!(start.is_aligned(), "the memory is not aligned for the element type");
        // SAFETY: as many elements as fit are initialised, and live as long as the borrow of
        // `self`.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.bytes / size_of::<T>()) }
    }

    /// Returns the whole memory as mutable elements.
    ///
    /// # Panics
    ///
    /// Panics if the memory is not aligned for the element type.
    pub fn elements_mut<T: Element>(&mut self) -> &mut [T] {
        let start = self.start.cast::<T>();
        assert!(start.is_aligned(), "the memory is not aligned for the element type");
        // SAFETY: as in `elements`; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.bytes / size_of::<T>()) }
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn extent(&self) -> MemoryExtent {
        MemoryExtent { bytes: self.bytes, alignment: alignment_of(self.start.as_ptr() as usize) }
    }

    /// Implements [`crate::Device::part`].
    ///
    /// # Safety
    ///
    /// See there.
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> Result<Self, DeviceError> {
        within(&range, self.bytes)?;
        // SAFETY: the offset is in the memory or at its end.
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

/// An allocation of memory.
#[derive(Debug)]
struct HostAllocation {
    start: NonNull<u8>,
    bytes: usize,
    /// Layout of the allocation; `None` for mapped pages.
    layout: Option<Layout>,
}

// SAFETY: a block owns its allocation; `HostMemory` controls access to it.
unsafe impl Send for HostAllocation {}
// SAFETY: as above.
unsafe impl Sync for HostAllocation {}

impl HostAllocation {
    /// Allocates at least `bytes` zeros; `None` if there is no memory.
    fn new(bytes: usize) -> Option<Self> {
        Self::in_pages(bytes, if bytes < HUGE_BYTES { PAGE } else { HUGE_PAGE })
    }

    /// Allocates at least `bytes` zeros in whole pages of a size.
    fn in_pages(bytes: usize, page: usize) -> Option<Self> {
        let size = bytes.max(1).checked_next_multiple_of(page)?;
        let layout = Layout::from_size_align(size, page).ok()?;
        // SAFETY: the layout has a nonzero size.
        let start = NonNull::new(unsafe { alloc::alloc(layout) })?;
        if page == HUGE_PAGE {
            prefer_huge_pages(start, size);
        }
        // SAFETY: `size` bytes were allocated.
        unsafe { start.write_bytes(0, size) };
        Some(Self { start, bytes: size, layout: Some(layout) })
    }

    /// Maps at least `bytes` zeros whose pages are not resident yet. Small amounts are allocated as
    /// in `new`.
    fn mapped(bytes: usize) -> Option<Self> {
        if bytes < HUGE_BYTES {
            return Self::new(bytes);
        }
        let size = bytes.checked_next_multiple_of(HUGE_PAGE)?;
        // The mapping is a huge page longer than needed, so that an aligned range fits.
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the system chooses overlaps no other memory.
        let all = unsafe { libc::mmap(ptr::null_mut(), size.checked_add(HUGE_PAGE)?, access, flags, -1, 0) };
        let all = NonNull::new(all.cast::<u8>()).filter(|_| all != libc::MAP_FAILED)?;

        let before = all.align_offset(HUGE_PAGE);
        // SAFETY: the addresses are within the mapping. Its unaligned ends are unmapped; nothing
        // uses them.
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

impl Drop for HostAllocation {
    fn drop(&mut self) {
        match self.layout {
            // SAFETY: allocated in `new` with this layout.
            Some(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), layout) },
            // SAFETY: the mapping was made in `mapped`.
            None => drop(unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) }),
        }
    }
}

/// Requests huge pages for memory that was not touched yet. Systems without them use small ones.
fn prefer_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the advice is for whole pages of a new allocation and does not change their content.
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
        for (bytes, make) in sizes.into_iter().flat_map(|bytes| {
            [HostMemory::new as fn(_) -> _, HostMemory::untouched, HostMemory::in_small_pages].map(|make| (bytes, make))
        }) {
            let mut memory: HostMemory = make(bytes).unwrap();
            assert!(memory.extent().bytes >= bytes && memory.extent().alignment >= PAGE);
            assert!(memory.elements::<u32>().iter().all(|&word| word == 0));
            memory.elements_mut::<u8>()[64..68].copy_from_slice(&7u32.to_ne_bytes());
            // SAFETY: nothing writes to the memory any more.
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
