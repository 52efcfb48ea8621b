//! Runs the tests in Python of this folder on the package as a wheel would contain it.
//!
//! `AUTOTUNE_PYTHON` is a Python with NumPy, pytest, onnx and onnxruntime. Without it, this test
//! prints a notice and passes; `AUTOTUNE_REQUIRE=python` makes that a failure.

#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[test]
fn the_package_works_in_python() {
    let Some(python) = python() else { return };
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

/// Returns the Python of `AUTOTUNE_PYTHON`; prints a notice if there is none.
fn python() -> Option<OsString> {
    let python = env::var_os("AUTOTUNE_PYTHON");
    if python.is_none() {
        let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "python"), "AUTOTUNE_PYTHON is not set");
        eprintln!("skipped: AUTOTUNE_PYTHON does not name a Python with NumPy, pytest, onnx and onnxruntime");
    }
    python
}

/// Both wheels are made of what cargo has built for the tests, and install without other packages;
/// `AUTOTUNE_WHEELS` names a folder with wheels to test instead, as users build them.
#[test]
fn the_wheels_work_in_a_new_environment() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let [built, wheels, environment] = ["built", "wheels", "environment"].map(|name| folder.path().join(name));
    let call = |words: &mut Command| {
        let ended = words.env("AUTOTUNE_BUILT", &built).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success(), "{words:?}\n{text}\n{}", String::from_utf8_lossy(&ended.stderr));
        text
    };
    let pip = || {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]).current_dir(folder.path());
        pip
    };

    let given = env::var_os("AUTOTUNE_WHEELS").map(PathBuf::from);
    if given.is_none() {
        fs::create_dir(&built).unwrap();
        for (name, file) in built_files() {
            symlink(file, built.join(name)).unwrap();
        }
        for project in [here.to_path_buf(), here.join("../ort/wheel")] {
            call(pip().args(["wheel", "--no-deps", "--no-build-isolation", "-w"]).arg(&wheels).arg(project));
        }
    }
    let files = fs::read_dir(given.as_ref().unwrap_or(&wheels)).unwrap().map(|file| file.unwrap().path());
    let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "whl")).collect();
    assert_eq!(files.len(), 2, "{files:?}");

    call(Command::new(&python).args(["-m", "venv", "--without-pip"]).arg(&environment));
    let own = environment.join("bin/python");
    call(pip().arg("--python").arg(&own).args(["install", "--no-index", "--no-deps"]).args(&files));
    // NumPy, onnx and ONNX Runtime are those of the other environment.
    let path = "import sysconfig; print(sysconfig.get_path('purelib'), end='')";
    let [others, site] = [Path::new(&python), &own].map(|python| call(Command::new(python).args(["-c", path])));
    fs::write(Path::new(&site).join("others.pth"), others).unwrap();
    let mut first = Command::new(&own);
    first.arg(here.join("tests/first_results.py")).args(given.map(|_| "--release"));
    first.env_remove("AUTOTUNE_DB").env("XDG_DATA_HOME", folder.path()).current_dir(folder.path());
    println!("{}", call(&mut first));
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

    for (place, (_, file)) in ["_autotune.abi3.so", "bin/autotune"].iter().zip(built_files()) {
        symlink(file, package.join(place)).unwrap();
    }
}

/// Returns the names of the native library, the command and the provider, with what cargo has
/// built.
fn built_files() -> [(&'static str, PathBuf); 3] {
    let program = env::current_exe().unwrap();
    let (built, profile) = (program.parent().unwrap(), program.ancestors().nth(2).unwrap());
    let (command, provider) = (profile.join("autotune"), built.join("libautotune_ep.so"));
    for (file, package) in [(&command, "autotune-cli"), (&provider, "ort-autotune-ep")] {
        assert!(file.is_file(), "build {} first: cargo test --no-run -p {package}", file.display());
    }
    [("lib_autotune.so", built.join("lib_autotune.so")), ("autotune", command), ("libautotune_ep.so", provider)]
}
