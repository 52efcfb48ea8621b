//! Runs the tests in Python of this folder: the provider in a real ONNX Runtime.
//!
//! `AUTOTUNE_PYTHON` is a Python with NumPy, pytest, onnx and onnxruntime. Without it, this test
//! prints a notice and passes; `AUTOTUNE_REQUIRE=python` makes that a failure.

#![allow(clippy::unwrap_used)]

use std::env;
use std::path::Path;
use std::process::Command;

#[test]
fn the_provider_works_in_onnx_runtime() {
    let Some(python) = env::var_os("AUTOTUNE_PYTHON") else {
        let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "python"), "AUTOTUNE_PYTHON is not set");
        return eprintln!("skipped: AUTOTUNE_PYTHON does not name a Python with NumPy, pytest, onnx and onnxruntime");
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
