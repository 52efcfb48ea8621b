//! Element types of buffers in host memory.

/// A number type without padding, for which every bit pattern is valid.
///
/// # Safety
///
/// The implementing type must have no padding and no invalid bit patterns.
pub unsafe trait Element: Copy + Send + Sync + 'static {}

// SAFETY: the type has no padding, and every bit pattern is valid.
unsafe impl Element for f32 {}
// SAFETY: as above.
unsafe impl Element for u8 {}
// SAFETY: as above.
unsafe impl Element for u16 {}
// SAFETY: as above.
unsafe impl Element for u32 {}
// SAFETY: as above.
unsafe impl Element for i8 {}
// SAFETY: as above.
unsafe impl Element for i32 {}

/// Returns the bytes of `elements`.
pub fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: the elements have no padding, and the range is exactly theirs.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// Returns the bytes of `elements` for writing.
pub fn bytes_of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as above; any bytes are valid elements.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}
