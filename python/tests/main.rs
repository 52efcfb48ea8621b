//! Runs the tests in Python of this folder on the package as a wheel would contain it.
//!
//! `AUTOTUNE_PYTHON` is a Python with NumPy, pytest, onnx and onnxruntime. Without it, this test
//! prints a notice and passes; `AUTOTUNE_REQUIRE=python` makes that a failure.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn the_package_works_in_python() {
    let Some(python) = env::var_os("AUTOTUNE_PYTHON") else {
        let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "python"), "AUTOTUNE_PYTHON is not set");
        return eprintln!("skipped: AUTOTUNE_PYTHON does not name a Python with NumPy, pytest, onnx and onnxruntime");
    };
    let folder = tempfile::tempdir().unwrap();
    assemble(folder.path());

    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no"]).arg(here.join("tests"));
    tests.env("PYTHONPATH", folder.path()).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder.path());
    tests.env_remove("AUTOTUNE_DB").env("XDG_DATA_HOME", folder.path());
    let ended = tests.output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{text}\n{}", String::from_utf8_lossy(&ended.stderr));
    println!("{text}");
}

/// Puts the package together from the source files and what cargo has built.
fn assemble(folder: &Path) {
    let package = folder.join("autotune");
    fs::create_dir_all(package.join("bin")).unwrap();
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("autotune")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "py") {
            fs::copy(&path, package.join(path.file_name().unwrap())).unwrap();
        }
    }

    let program = env::current_exe().unwrap();
    let (built, profile) = (program.parent().unwrap(), program.ancestors().nth(2).unwrap());
    let (command, provider) = (profile.join("autotune"), built.join("libautotune_ep.so"));
    for (file, package) in [(&command, "autotune-cli"), (&provider, "ort-autotune-ep")] {
        assert!(file.is_file(), "build {} first: cargo test --no-run -p {package}", file.display());
    }
    symlink(built.join("lib_autotune.so"), package.join("_autotune.abi3.so")).unwrap();
    symlink(command, package.join("bin/autotune")).unwrap();
    symlink(provider, package.join("bin/libautotune_ep.so")).unwrap();
}
