//! Loops over independent parts. With the feature `rayon`, they run on all threads of its pool,
//! else in order.

#[cfg(feature = "rayon")]
use rayon::prelude::*;

/// Calls `work` with the number of each part.
pub(crate) fn for_each(parts: usize, work: impl Fn(usize) + Send + Sync) {
    #[cfg(feature = "rayon")]
    (0..parts).into_par_iter().for_each(work);
    #[cfg(not(feature = "rayon"))]
    (0..parts).for_each(work);
}

/// Calls `work` with the number and the values of each chunk of `len` values; the last one may be
/// shorter.
pub(crate) fn for_each_chunk<T: Send>(values: &mut [T], len: usize, work: impl Fn(usize, &mut [T]) + Send + Sync) {
    #[cfg(feature = "rayon")]
    let chunks = values.par_chunks_mut(len);
    #[cfg(not(feature = "rayon"))]
    let chunks = values.chunks_mut(len);
    chunks.enumerate().for_each(|(number, chunk)| work(number, chunk));
}
