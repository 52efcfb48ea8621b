//! CUDA stub for tests: a CUDA device that is the CPU. A C++ compiler builds its driver and NVRTC
//! from the sources in this folder. A child process finds `libcuda.so.1` there, which has only the
//! functions that this project calls, and `libnvrtc.so.*`, whose kernels run on the CPU as
//! described in `schedules/tests/common/cuda_shim.h`.
//!
//! `cuda.cpp` and `nvrtc.cpp` describe the environment variables that select the device and its
//! faults.
#![allow(dead_code, clippy::unwrap_used)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs, io};

use autotune_runtime::cuda::driver::{FUNCTIONS, TENSOR_MAP_FUNCTIONS};
use autotune_schedules::config::fnv1a;

/// Source files of the stub.
const SOURCES: [(&str, &str); 7] = [
    ("cuda.cpp", include_str!("cuda.cpp")),
    ("nvrtc.cpp", include_str!("nvrtc.cpp")),
    ("faults.h", include_str!("faults.h")),
    ("image.h", include_str!("image.h")),
    ("results.h", include_str!("results.h")),
    ("device.h", include_str!("device.h")),
    ("cuda_shim.h", include_str!("../../../schedules/tests/common/cuda_shim.h")),
];

const FLAGS: [&str; 5] = ["-std=c++17", "-O1", "-w", "-fPIC", "-fno-gnu-unique"];

/// Versions of NVRTC that the stub has.
const NVRTCS: [[u32; 2]; 2] = [[12, 4], [13, 0]];

/// Built stub. It is cached together with the kernels that it compiled, and shared by the test
/// programs of a workspace.
pub(crate) struct Stub {
    folder: PathBuf,
}

impl Stub {
    /// Returns the stub, which is built when first needed, or the reason that it cannot be built
    /// without a C++ compiler.
    pub(crate) fn find() -> Result<&'static Self, String> {
        static FOUND: OnceLock<Result<Stub, String>> = OnceLock::new();
        FOUND.get_or_init(Self::build).as_ref().map_err(String::clone)
    }

    fn build() -> Result<Self, String> {
        let compiler = env::var("CXX").unwrap_or_else(|_| "g++".into());
        let version = Command::new(&compiler).arg("--version").output().map_err(|e| format!("{compiler}: {e}"))?;
        let exports = exports();
        let text: String = SOURCES.iter().map(|(_, text)| *text).chain([include_str!("mod.rs"), &exports]).collect();
        let key = fnv1a(text.as_bytes()) ^ fnv1a(&version.stdout).rotate_left(1);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-stub-{key:016x}"));
        if folder.is_dir() {
            return Ok(Self { folder });
        }

        // Another process that builds the stub at the same time finds either all of it or nothing.
        let own = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        compile_all(&compiler, own.path(), &exports);
        match fs::rename(own.path(), &folder) {
            Err(e) if !folder.is_dir() => panic!("{}: {e}", folder.display()),
            _ => Ok(Self { folder }),
        }
    }

    /// Returns the folder of the driver.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets the environment in which a child process finds the device and its compiler.
    pub(crate) fn set<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("STUB_FOLDER", &self.folder).env("AUTOTUNE_NVRTC", self.nvrtc(12));
        Self::set_driver(command, &self.folder)
    }

    /// Sets the environment in which a child process finds the driver in one or several folders.
    pub(crate) fn set_driver(command: &mut Command, folders: impl AsRef<OsStr>) -> &mut Command {
        let mut path = folders.as_ref().to_os_string();
        if let Some(others) = env::var_os("LD_LIBRARY_PATH") {
            path.push(":");
            path.push(others);
        }
        command.env("LD_LIBRARY_PATH", path)
    }

    /// Returns the folder of NVRTC with a major version.
    pub(crate) fn nvrtc(&self, major: u32) -> PathBuf {
        self.folder.join(format!("nvrtc{major}"))
    }

    /// Writes a driver that lacks a function to a folder: the function's name is altered there.
    pub(crate) fn driver_without(&self, function: &str, folder: &Path) {
        let mut library = fs::read(self.folder.join("libcuda.so.1")).unwrap();
        let name = format!("\0{function}\0").into_bytes();
        let places: Vec<usize> =
            library.windows(name.len()).enumerate().filter(|(_, at)| *at == name).map(|(place, _)| place).collect();
        assert!(!places.is_empty(), "the stub has no {function}");
        for place in places {
            library[place + 1] = b'x';
        }
        for name in ["libcuda.so.1", "libcuda.so"] {
            fs::write(folder.join(name), &library).unwrap();
        }
    }
}

/// Returns the linker script that exports only the functions that this project calls.
fn exports() -> String {
    let names: String = FUNCTIONS.iter().chain(&TENSOR_MAP_FUNCTIONS).map(|(name, _)| format!("{name}; ")).collect();
    format!("{{ global: {names}local: *; }};")
}

fn compile_all(compiler: &str, folder: &Path, exports: &str) {
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text).unwrap();
    }
    fs::write(folder.join("exports"), exports).unwrap();
    fs::create_dir(folder.join("kernels")).unwrap();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(compiler);
        command.args(FLAGS).args(arguments).current_dir(folder).spawn().unwrap()
    };
    let mut running = vec![
        start(&["-x", "c++-header", "device.h", "-o", "device.h.gch"]),
        start(&["-shared", "cuda.cpp", "-o", "libcuda.so.1", "-Wl,--version-script=exports"]),
    ];
    for [major, minor] in NVRTCS {
        let to = format!("nvrtc{major}/libnvrtc.so.{major}");
        fs::create_dir(folder.join(format!("nvrtc{major}"))).unwrap();
        let version = [format!("-DMAJOR={major}"), format!("-DMINOR={minor}")];
        running.push(start(&["-shared", "nvrtc.cpp", "-o", &to, &version[0], &version[1]]));
    }
    for compiler in &mut running {
        assert!(compiler.wait().unwrap().success(), "the stub does not compile");
    }
    link("libcuda.so.1", &folder.join("libcuda.so")).unwrap();
}

/// Makes a symbolic link to a file.
pub(crate) fn link(to: impl AsRef<Path>, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}
