//! Runs the tests in Python of this folder: the provider in a real ONNX Runtime.
//!
//! `AUTOTUNE_PYTHON` is a Python with NumPy, pytest, onnx and onnxruntime, and
//! `AUTOTUNE_PYTHON_OLDEST` one with the oldest onnxruntime that is supported. Without them, tests
//! print a notice and pass; `AUTOTUNE_REQUIRE=python` makes that a failure.

#![allow(clippy::unwrap_used)]

use std::env;
use std::path::Path;
use std::process::Command;
use std::ptr;

use ort_sys::stub::Error;
use ort_sys::{OrtApi, OrtApiBase};

#[test]
fn the_provider_works_in_onnx_runtime() {
    run_with("AUTOTUNE_PYTHON");
}

#[test]
fn the_provider_works_in_the_oldest_onnx_runtime() {
    run_with("AUTOTUNE_PYTHON_OLDEST");
}

fn run_with(variable: &str) {
    let Some(python) = env::var_os(variable) else {
        let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "python"), "{variable} is not set");
        return eprintln!("skipped: {variable} does not name a Python with NumPy, pytest, onnx and onnxruntime");
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = env::current_exe().unwrap().with_file_name("libautotune_ep.so");
    // Models are written by functions beside the tests of the Python package.
    let models = here.join("../../python/tests");
    let folder = tempfile::tempdir().unwrap();

    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no"]).arg(here.join("tests"));
    tests.env("PYTHONPATH", models).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder.path());
    tests.env("AUTOTUNE_EP_LIBRARY", library).env_remove("AUTOTUNE_DB").env("XDG_DATA_HOME", folder.path());
    let ended = tests.output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{text}\n{}", String::from_utf8_lossy(&ended.stderr));
    println!("{text}");
}

/// An ONNX Runtime that has no tables of later versions gets a reason.
#[test]
fn an_onnx_runtime_that_is_too_early_is_told() {
    static API: OrtApi = ort_sys::stub::api();
    unsafe extern "system" fn api(version: u32) -> *const OrtApi {
        if version <= 22 { &API } else { ptr::null() }
    }
    unsafe extern "system" fn version() -> *const std::ffi::c_char {
        c"1.22.0".as_ptr()
    }

    let base = OrtApiBase { GetApi: api, GetVersionString: version };
    let (mut factories, mut count) = ([ptr::null_mut(); 4], 0);
    // SAFETY: the table and the memory for results live during the call.
    let status = unsafe {
        autotune_ep::CreateEpFactories(ptr::null(), &base, ptr::null(), factories.as_mut_ptr(), 4, &mut count)
    };
    // SAFETY: the status was made by the function of the table.
    let error = unsafe { Error::consume_sys(status.0) };
    assert!(error.message().contains("1.23 or newer") && count == 0, "{}", error.message());
}
