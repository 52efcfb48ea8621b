//! Compiles generated CUDA with NVRTC, which needs no GPU. `AUTOTUNE_NVRTC` names the folder of
//! `libnvrtc.so.*` (in the Python package `nvidia-cuda-nvrtc-cu12`: `nvidia/cuda_nvrtc/lib`).
//! Without it, the loader's search path applies.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::{env, fs, ptr};

use libloading::Library;
use libloading::os::unix::{Library as UnixLibrary, RTLD_GLOBAL, RTLD_NOW};

/// The runtime compiler of CUDA.
pub struct Nvrtc {
    library: Library,
    /// Keeps the library open: the compiler looks up its built-in functions by name.
    _builtins: Option<UnixLibrary>,
    pub version: (i32, i32),
    /// Supported compute capabilities times ten, ascending.
    pub architectures: Vec<u32>,
}

/// The compiler's report on one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub symbol: String,
    pub registers: usize,
    /// Bytes of spill stores and spill loads.
    pub spill_bytes: usize,
}

type Handle = *mut c_void;

impl Nvrtc {
    /// Loads the compiler. Fails with the reason if there is none.
    pub fn find() -> Result<Self, String> {
        let folder = env::var_os("AUTOTUNE_NVRTC").map(PathBuf::from);
        let library = |prefix: &str| folder.as_deref().and_then(|f| file_in(f, prefix));
        let builtins = library("libnvrtc-builtins.so");
        let names = match (&folder, library("libnvrtc.so")) {
            (_, Some(path)) => vec![path],
            (Some(folder), None) => return Err(format!("no libnvrtc.so.* in {}", folder.display())),
            (None, None) => ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"].map(PathBuf::from).to_vec(),
        };
        // SAFETY: any program may load these libraries; their initialisers have no preconditions.
        unsafe {
            let builtins = builtins.and_then(|path| UnixLibrary::open(Some(path), RTLD_NOW | RTLD_GLOBAL).ok());
            let library = names.iter().find_map(|name| Library::new(name).ok());
            let library = library.ok_or("no libnvrtc (AUTOTUNE_NVRTC can name its folder)")?;
            let mut found = Self { library, _builtins: builtins, version: (0, 0), architectures: Vec::new() };
            found.ask()?;
            Ok(found)
        }
    }

    /// # Safety
    ///
    /// The library must be NVRTC.
    unsafe fn ask(&mut self) -> Result<(), String> {
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the signatures are those of nvrtc.h, and every pointer is to memory of the size
        // that is written.
        unsafe {
            let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = self.function(b"nvrtcVersion")?;
            version(&mut major, &mut minor);
            let number: unsafe extern "C" fn(*mut c_int) -> c_int = self.function(b"nvrtcGetNumSupportedArchs")?;
            number(&mut count);
            let list: unsafe extern "C" fn(*mut c_int) -> c_int = self.function(b"nvrtcGetSupportedArchs")?;
            let mut architectures = vec![0; count as usize];
            list(architectures.as_mut_ptr());
            self.architectures = architectures.into_iter().map(|sm| sm as u32).collect();
            self.architectures.sort_unstable();
        }
        self.version = (major, minor);
        Ok(())
    }

    /// # Safety
    ///
    /// `F` must be the type of the function.
    unsafe fn function<F: Copy>(&self, name: &[u8]) -> Result<F, String> {
        // SAFETY: the caller guarantees that `F` is the type of the function.
        unsafe { self.library.get::<F>(name) }.map(|f| *f).map_err(|e| e.to_string())
    }

    /// Compiles CUDA C to machine code of `sm`. Returns the usage of each kernel, or the compiler's
    /// messages.
    pub fn compile(&self, source: &str, sm: u32) -> Result<Vec<Usage>, String> {
        let architecture = autotune_codegen::gpu::architecture(source, sm);
        let source = CString::new(source).map_err(|e| e.to_string())?;
        let options = [format!("--gpu-architecture={architecture}"), "--ptxas-options=-v".into()];
        let options: Vec<CString> = options.into_iter().map(|o| CString::new(o).unwrap()).collect();
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();

        type Create = unsafe extern "C" fn(
            *mut Handle,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int;
        type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
        type Text = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;

        // SAFETY: the signatures are those of nvrtc.h, every pointer is to memory of the size that
        // is written, and strings end in NUL.
        let (status, log) = unsafe {
            let mut program: Handle = ptr::null_mut();
            let create: Create = self.function(b"nvrtcCreateProgram")?;
            let name = c"kernel.cu".as_ptr();
            if create(&mut program, source.as_ptr(), name, 0, ptr::null(), ptr::null()) != 0 {
                return Err("nvrtcCreateProgram fails".into());
            }
            let compile: Compile = self.function(b"nvrtcCompileProgram")?;
            let status = compile(program, options.len() as c_int, options.as_ptr());
            let mut bytes = 0;
            self.function::<Size>(b"nvrtcGetProgramLogSize")?(program, &mut bytes);
            let mut log = vec![0u8; bytes.max(1)];
            self.function::<Text>(b"nvrtcGetProgramLog")?(program, log.as_mut_ptr().cast());
            self.function::<unsafe extern "C" fn(*mut Handle) -> c_int>(b"nvrtcDestroyProgram")?(&mut program);
            (status, CStr::from_ptr(log.as_ptr().cast()).to_string_lossy().into_owned())
        };
        if status == 0 { usage(&log) } else { Err(log) }
    }
}

/// Returns the first file in a folder whose name starts with `prefix`.
fn file_in(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.into_iter().find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
}

/// Codes of warnings that the compiler ignored a request of the kernel: registers that move between
/// roles, and warp-group instructions that overlap.
const NOT_DONE: [&str; 2] = ["(C7508)", "(C7510)"];

/// Parses the output of `ptxas -v`: per function a line `.. Function properties for f`, one with
/// spills, and one with registers.
fn usage(log: &str) -> Result<Vec<Usage>, String> {
    if log.lines().any(|line| NOT_DONE.iter().any(|number| line.contains(number))) {
        return Err(log.to_string());
    }
    let mut found: Vec<Usage> = Vec::new();
    let before = |line: &str, word: &str| -> Option<usize> {
        let words: Vec<&str> = line[..line.find(word)?].split_whitespace().collect();
        words.last()?.parse().ok()
    };
    for line in log.lines() {
        if let Some((_, symbol)) = line.split_once("Function properties for ") {
            found.push(Usage { symbol: symbol.trim().into(), registers: 0, spill_bytes: 0 });
        }
        let Some(last) = found.last_mut() else {
            continue;
        };
        if let (Some(stores), Some(loads)) = (before(line, " bytes spill stores"), before(line, " bytes spill loads")) {
            last.spill_bytes = stores + loads;
        }
        if let Some((_, rest)) = line.split_once("Used ") {
            last.registers = before(rest, " registers").ok_or_else(|| log.to_string())?;
        }
    }
    if found.is_empty() || found.iter().any(|u| u.registers == 0) { Err(log.to_string()) } else { Ok(found) }
}
