//! Memory-mapped files.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::Mmap;

/// Size of a page.
#[cfg(unix)]
const PAGE: usize = 4096;

/// A memory-mapped file; pages are loaded when they are read.
#[derive(Debug)]
pub(crate) struct Mapped(Mmap);

impl Mapped {
    /// Maps a whole file, which must not be modified while the map exists.
    pub(crate) fn of(file: &File) -> io::Result<Arc<Self>> {
        // SAFETY: the map is only read, as bytes of which any value is valid. The documentation of
        // `onnx::read` requires that the file is not modified meanwhile.
        let map = unsafe { Mmap::map(file) }?;
        // Prefetching overlaps with the parsing of the start; if the advice fails, only time is
        // lost.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::WillNeed);
        Ok(Arc::new(Self(map)))
    }

    /// Releases the pages inside a range; they are loaded again when they are read.
    pub(crate) fn release(&self, range: &Range<usize>) {
        #[cfg(unix)]
        {
            let (first, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
            if first < end {
                // SAFETY: pages of a read-only file map have the same contents when they are loaded
                // again.
                let _ =
                    unsafe { self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, end - first) };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
