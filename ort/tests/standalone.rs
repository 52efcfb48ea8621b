//! The library with the entry point of ONNX Runtime.

use std::ffi::CStr;

use ort_sys::{ORT_API_VERSION, OrtApiBase};

/// Versions up to that of this library are there, later ones are not.
#[test]
fn a_library_without_the_entry_point_of_a_later_version() {
    let base = onnxruntime::OrtGetApiBase();
    // SAFETY: the library returns a table that is never freed.
    let OrtApiBase { GetApi, GetVersionString } = unsafe { &*base };
    // SAFETY: the functions may be called at any time.
    unsafe {
        assert!(GetApi(ORT_API_VERSION + 1).is_null());
        assert!(!GetApi(17).is_null() && GetApi(17) == GetApi(ORT_API_VERSION));
        let version = CStr::from_ptr(GetVersionString()).to_str().unwrap();
        assert_eq!(version, format!("1.{ORT_API_VERSION}.0"));
    }
}
