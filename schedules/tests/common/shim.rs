//! CUDA C built by a C++ compiler with `cuda_shim.h`, to run on the CPU.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use libloading::Library;
use tempfile::TempDir;

/// A source, its kernels, and the largest shared memory of their blocks in bytes.
pub struct Text {
    pub source: String,
    pub symbols: Vec<String>,
    pub shared_bytes: usize,
}

/// Kernels of sources that are built as one library.
pub struct Shim {
    library: Library,
    _folder: TempDir,
}

/// Layout of the shim's `TensorMap`.
#[repr(C)]
pub struct Map {
    base: *mut c_void,
    rows_columns: [c_int; 2],
    box_rows_columns: [c_int; 2],
}

impl Map {
    /// Creates the map of a matrix, for boxes; both sizes are rows and columns.
    pub fn new(base: *mut c_void, matrix: [usize; 2], of: [usize; 2]) -> Self {
        let ints = |sizes: [usize; 2]| sizes.map(|size| size as c_int);
        Self { base, rows_columns: ints(matrix), box_rows_columns: ints(of) }
    }
}

type Run = unsafe extern "C" fn(*mut *mut c_void, c_uint, c_uint, c_int) -> *const c_char;

impl Shim {
    /// Builds the sources. Fails with the reason if there is no compiler.
    pub fn build(texts: &[Text]) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (source, library) = (folder.path().join("kernels.cpp"), folder.path().join("kernels.so"));
        fs::write(&source, whole(texts)).map_err(|e| e.to_string())?;
        let compiler = env::var("CXX").unwrap_or_else(|_| "g++".into());
        let output = Command::new(&compiler)
            .args(["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-I"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common"))
            .arg(&source)
            .arg("-o")
            .arg(&library)
            .output()
            .map_err(|e| format!("{compiler}: {e}"))?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: the library's only initialisers are those of the shim's variables.
        let library = unsafe { Library::new(&library) }.map_err(|e| e.to_string())?;
        Ok(Self { library, _folder: folder })
    }

    /// Runs a kernel of source `number` with the given numbers of blocks and threads. The warps run
    /// in order, or with the last one first. Fails with the shim's message.
    ///
    /// # Safety
    ///
    /// The arguments must be the kernel's.
    pub unsafe fn run(
        &self,
        (number, symbol): (usize, &str),
        arguments: &mut [*mut c_void],
        [blocks, threads]: [usize; 2],
        backwards: bool,
    ) -> Result<(), String> {
        // SAFETY: the function was generated with this type, and the caller guarantees its
        // arguments.
        let wrong = unsafe {
            let run =
                self.library.get::<Run>(format!("run_{number}_{symbol}").as_bytes()).map_err(|e| e.to_string())?;
            let wrong = run(arguments.as_mut_ptr(), blocks as u32, threads as u32, c_int::from(backwards));
            (!wrong.is_null()).then(|| CStr::from_ptr(wrong).to_string_lossy().into_owned())
        };
        wrong.map_or(Ok(()), Err)
    }
}

/// Returns one source with a namespace for each text, and a function for each kernel.
fn whole(texts: &[Text]) -> String {
    let mut whole = "#include \"cuda_shim.h\"\n".to_string();
    for (number, Text { source, symbols, shared_bytes }) in texts.iter().enumerate() {
        let (kernels, bytes) = (source.replace("extern \"C\" ", ""), shared_bytes.max(&16));
        let space = format!("alignas(1024) unsigned char shared[{bytes}];");
        let _ = writeln!(whole, "namespace k{number} {{\n{space}\n{kernels}\n}}");
        for symbol in symbols {
            let kernel = format!("[](void **p) {{ call(k{number}::{symbol}, p); }}");
            let run = format!("run_grid({kernel}, buffers, blocks, threads, k{number}::shared, {bytes}, backwards)");
            let parameters = "void **buffers, unsigned blocks, unsigned threads, int backwards";
            let _ = writeln!(whole, "extern \"C\" const char *run_{number}_{symbol}({parameters}) {{ return {run}; }}");
        }
    }
    whole
}
