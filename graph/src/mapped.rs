//! Files in memory where the system keeps them.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::Mmap;

/// Pages are given back in multiples of this.
#[cfg(unix)]
const PAGE: usize = 4096;

/// The bytes of a file: pages come when they are read.
#[derive(Debug)]
pub(crate) struct Mapped(Mmap);

impl Mapped {
    /// All of a file, which nobody may change as long as this is there.
    pub(crate) fn of(file: &File) -> io::Result<Arc<Self>> {
        // SAFETY: the map is only read, as bytes of which any value is valid; the documentation of
        // `onnx::read` demands that nobody changes the file meanwhile.
        let map = unsafe { Mmap::map(file) }?;
        // What is not in memory yet is fetched while the rest is looked at; advice that is not
        // taken costs time only.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::WillNeed);
        Ok(Arc::new(Self(map)))
    }

    /// Gives pages back that lie within a range; who reads it again gets them anew.
    pub(crate) fn release(&self, range: &Range<usize>) {
        #[cfg(unix)]
        {
            let (first, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
            if first < end {
                // SAFETY: pages of a file that are mapped to be read only hold the same when they
                // come back.
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
