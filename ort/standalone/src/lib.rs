//! `libonnxruntime.so` for programs that load ONNX Runtime by path, such as by `ORT_DYLIB_PATH`.

use std::ffi::c_char;
use std::ptr;
use std::sync::OnceLock;

use ort_sys::{ORT_API_VERSION, OrtApi, OrtApiBase};

/// Version of ONNX Runtime with this version of the API.
static VERSION: OnceLock<std::ffi::CString> = OnceLock::new();

/// Returns the API if the program needs this version or an earlier one, which has fewer functions;
/// otherwise null.
unsafe extern "system" fn get_api(version: u32) -> *const OrtApi {
    static API: OnceLock<OrtApi> = OnceLock::new();
    if version > ORT_API_VERSION { ptr::null() } else { API.get_or_init(ort_autotune::api) }
}

unsafe extern "system" fn version_string() -> *const c_char {
    VERSION.get_or_init(|| std::ffi::CString::new(format!("1.{ORT_API_VERSION}.0")).unwrap_or_default()).as_ptr()
}

/// Entry point of ONNX Runtime's C API.
#[unsafe(no_mangle)]
pub extern "C" fn OrtGetApiBase() -> *const OrtApiBase {
    static BASE: OrtApiBase = OrtApiBase { GetApi: get_api, GetVersionString: version_string };
    &BASE
}
