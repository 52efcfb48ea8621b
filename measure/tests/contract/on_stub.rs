//! The tests of CUDA devices on the stub of one: each in a process of its own that finds the stub's driver and NVRTC.

use std::process::Command;

use crate::gpu::missing;
use crate::stub::Stub;

/// The variable that tells a process that it is on the stub.
const ON_STUB: &str = "STUB_FOLDER";

/// True if the CUDA device is the stub, where every kernel costs a run of the C++ compiler.
pub(crate) fn is_here() -> bool {
    std::env::var_os(ON_STUB).is_some()
}

/// Runs a test of this program where the stub is the CUDA device.
pub(crate) fn run(test: &str) {
    run_with(test, &[]);
}

/// The same, with variables for the stub.
pub(crate) fn run_with(test: &str, variables: &[(&str, &str)]) {
    let stub = match Stub::find() {
        Ok(stub) => stub,
        Err(reason) => return missing("g++", &reason),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    // What the stub can do at best is measured anew, and kept for nobody.
    let cache = tempfile::tempdir().unwrap();
    stub.set(&mut command).args(["--exact", test]).env("AUTOTUNE_CACHE", cache.path());
    command.env("AUTOTUNE_REQUIRE", "cuda,nvrtc");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{test} on the stub:\n{text}");
}
