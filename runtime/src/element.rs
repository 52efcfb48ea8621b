//! Numbers that buffers are made of.

/// A number without padding, every bit pattern of which is one.
///
/// # Safety
///
/// That is the promise of whoever implements it.
pub unsafe trait Element: Copy + Send + Sync + 'static {}

// SAFETY: numbers have no padding, and all bits are a number.
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

/// Elements as they lie in memory.
pub fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: the elements have no padding, and the bytes are these.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The same, to be written.
pub fn bytes_of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are elements.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}
