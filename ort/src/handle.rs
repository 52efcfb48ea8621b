//! Objects behind the handles of the API, and memory of the caller.

use std::ffi::{CStr, c_char};
use std::slice;

use crate::status::ApiError;

/// An object that the caller has by a pointer to an opaque type.
pub(crate) trait Handle: Sized {
    /// Opaque type of the C API.
    type Sys;
}

fn null() -> ApiError {
    ApiError::argument("a pointer is null")
}

/// Gives an object to the caller.
///
/// # Safety
///
/// `out` is null or points to memory for a pointer.
pub(crate) unsafe fn give<T: Handle>(out: *mut *mut T::Sys, object: T) -> Result<(), ApiError> {
    // SAFETY: as for this function.
    unsafe { set(out, Box::into_raw(Box::new(object)).cast()) }
}

/// Returns the object of a handle.
///
/// # Safety
///
/// `handle` is null or was made by [`give`] for the same type, and is not released during `'a`.
pub(crate) unsafe fn of<'a, T: Handle + 'a>(handle: *const T::Sys) -> Result<&'a T, ApiError> {
    // SAFETY: as for this function.
    unsafe { optional(handle) }.ok_or_else(null)
}

/// Returns the object of a handle that may be null.
///
/// # Safety
///
/// As for [`of`].
pub(crate) unsafe fn optional<'a, T: Handle + 'a>(handle: *const T::Sys) -> Option<&'a T> {
    // SAFETY: as for this function.
    unsafe { handle.cast::<T>().as_ref() }
}

/// Returns the object of a handle, to change it.
///
/// # Safety
///
/// As for [`of`], and no other thread uses the handle.
pub(crate) unsafe fn of_mut<'a, T: Handle + 'a>(handle: *mut T::Sys) -> Result<&'a mut T, ApiError> {
    // SAFETY: as for this function.
    unsafe { handle.cast::<T>().as_mut() }.ok_or_else(null)
}

/// Drops the object of a handle.
///
/// # Safety
///
/// As for [`of`], and the handle is not used again.
pub(crate) unsafe fn release<T: Handle>(handle: *mut T::Sys) {
    if !handle.is_null() {
        // SAFETY: `give` made the pointer from a box.
        drop(unsafe { Box::from_raw(handle.cast::<T>()) });
    }
}

/// Writes a result to memory of the caller.
///
/// # Safety
///
/// `out` is null or points to memory for the value.
pub(crate) unsafe fn set<T>(out: *mut T, value: T) -> Result<(), ApiError> {
    if out.is_null() {
        return Err(null());
    }
    // SAFETY: as for this function.
    unsafe { out.write(value) };
    Ok(())
}

/// Returns a text of the caller.
///
/// # Safety
///
/// `text` is null or a string in C that stays as it is during `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, ApiError> {
    if text.is_null() {
        return Err(null());
    }
    // SAFETY: as for this function.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| ApiError::argument(format!("the name {bytes:?} is not UTF-8")))
}

/// Returns the elements of an array, which may be null if it is empty.
///
/// # Safety
///
/// `array` is null or points to `count` elements that stay as they are during `'a`.
pub(crate) unsafe fn elements<'a, T>(array: *const T, count: usize) -> Result<&'a [T], ApiError> {
    match (array.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null()),
        // SAFETY: as for this function.
        (false, _) => Ok(unsafe { slice::from_raw_parts(array, count) }),
    }
}

/// Returns the elements of an array that the caller wants filled.
///
/// # Safety
///
/// As for [`elements`], and nothing else uses the array.
pub(crate) unsafe fn elements_mut<'a, T>(array: *mut T, count: usize) -> Result<&'a mut [T], ApiError> {
    match (array.is_null(), count) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(null()),
        // SAFETY: as for this function.
        (false, _) => Ok(unsafe { slice::from_raw_parts_mut(array, count) }),
    }
}
