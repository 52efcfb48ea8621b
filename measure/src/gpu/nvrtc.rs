//! NVRTC, the compiler of CUDA C, which needs no device. It is loaded at run time: from the folder that `AUTOTUNE_NVRTC` names, else
//! the newest version that the loader finds by name.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use autotune_schedules::codegen::gpu::architecture;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use serde::{Deserialize, Serialize};

use crate::measurement::{CandidateError, Resources};

/// The environment variable that names the library's folder.
const FOLDER: &str = "AUTOTUNE_NVRTC";

/// What the loader knows the library as, newest first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Machine code of CUDA C, and what the assembler says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiled {
    /// The code.
    pub cubin: Vec<u8>,
    /// Registers, spills and static shared memory of each kernel, in the words of `ptxas -v`.
    pub log: String,
    /// The compiler and its version.
    pub compiler: String,
}

impl Compiled {
    /// What the log tells, the most of any kernel. Dynamic shared memory is not in it.
    pub fn resources(&self) -> Resources {
        let mut most = Resources::default();
        for line in self.log.lines() {
            // "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
            let spills = amount(line, "bytes spill stores") + amount(line, "bytes spill loads");
            most.spill_bytes = most.spill_bytes.max(spills);
            most.stack_bytes = most.stack_bytes.max(amount(line, "bytes stack frame"));
            // "ptxas info    : Used 40 registers, used 1 barriers, 8192 bytes smem, 400 bytes cmem[0]"
            most.registers = most.registers.max(amount(line, "registers"));
            most.shared_bytes = most.shared_bytes.max(amount(line, "bytes smem"));
        }
        most
    }
}

/// The number before some words; 0 if they are not there.
fn amount(line: &str, words: &str) -> usize {
    let before = line.find(words).and_then(|at| line.get(..at));
    before.and_then(|text| text.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

/// The compiler's flags for an architecture.
pub(crate) fn flags(architecture: &str) -> [String; 2] {
    [format!("--gpu-architecture={architecture}"), "--ptxas-options=-v".into()]
}

/// Compiles CUDA C to machine code of compute capability `sm` (times ten), for the architecture that it needs, in this process. May be
/// called from many threads at once.
pub fn compile(source: &str, sm: u32) -> Result<Compiled, CandidateError> {
    let compile = || {
        let nvrtc = Nvrtc::get()?;
        nvrtc.check(sm)?;
        nvrtc.compile(source, &flags(&architecture(source, sm)))
    };
    compile().map_err(|message| CandidateError::Build { message })
}

/// The compiler and its version; why there is none that compiles for compute capability `sm` (times ten).
pub fn compiler_for(sm: u32) -> Result<String, String> {
    let nvrtc = Nvrtc::get()?;
    nvrtc.check(sm)?;
    Ok(nvrtc.title())
}

type Program = *mut c_void;
/// NVRTC's result: 0 is success.
type Status = c_int;

/// The library and its functions, as `nvrtc.h` declares them.
struct Nvrtc {
    version: (c_int, c_int),
    /// Compute capabilities (times ten) that it compiles for, ascending.
    architectures: Vec<u32>,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    log_bytes: BytesOf,
    log: ContentOf,
    cubin_bytes: BytesOf,
    cubin: ContentOf,
    /// The functions live as long as it is open.
    _library: Library,
}

type BytesOf = unsafe extern "C" fn(Program, *mut usize) -> Status;
type ContentOf = unsafe extern "C" fn(Program, *mut c_char) -> Status;

impl Nvrtc {
    /// The compiler, loaded when it is first asked for; why there is none.
    fn get() -> Result<&'static Self, String> {
        static FOUND: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        FOUND.get_or_init(Self::find).as_ref().map_err(String::clone)
    }

    fn find() -> Result<Self, String> {
        let open = |path: &Path| {
            // SAFETY: NVRTC and its built-in functions may be loaded by any program.
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(|e| format!("{}: {e}", path.display()))
        };
        let library = match env::var_os(FOLDER).map(PathBuf::from) {
            Some(folder) => {
                // The compiler looks for its built-in functions by name, and finds what is loaded already.
                if let Some(path) = newest_in(&folder, "libnvrtc-builtins.so")? {
                    std::mem::forget(open(&path)?);
                }
                let path = newest_in(&folder, "libnvrtc.so")?;
                open(&path.ok_or_else(|| format!("{FOLDER}: no libnvrtc.so in {}", folder.display()))?)?
            }
            None => NAMES.iter().find_map(|name| open(Path::new(name)).ok()).ok_or_else(|| {
                format!("no CUDA compiler (libnvrtc.so): install the CUDA toolkit or Python's nvidia-cuda-nvrtc-cu12, and name the folder in {FOLDER}")
            })?,
        };
        // SAFETY: the library is NVRTC.
        unsafe { Self::of(library) }
    }

    /// # Safety
    ///
    /// The library must be NVRTC.
    unsafe fn of(library: Library) -> Result<Self, String> {
        // SAFETY: the types are those of `nvrtc.h`; every pointer is to enough memory.
        unsafe {
            let ask: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status = function(&library, c"nvrtcVersion")?;
            let mut version = (0, 0);
            success("nvrtcVersion", ask(&mut version.0, &mut version.1))?;
            let count: unsafe extern "C" fn(*mut c_int) -> Status = function(&library, c"nvrtcGetNumSupportedArchs")?;
            let list: unsafe extern "C" fn(*mut c_int) -> Status = function(&library, c"nvrtcGetSupportedArchs")?;
            let mut number = 0;
            success("nvrtcGetNumSupportedArchs", count(&mut number))?;
            let mut architectures = vec![0; usize::try_from(number).unwrap_or(0)];
            success("nvrtcGetSupportedArchs", list(architectures.as_mut_ptr()))?;
            let mut architectures: Vec<u32> = architectures.into_iter().filter_map(|sm| sm.try_into().ok()).collect();
            architectures.sort_unstable();
            Ok(Self {
                version,
                architectures,
                create: function(&library, c"nvrtcCreateProgram")?,
                compile: function(&library, c"nvrtcCompileProgram")?,
                destroy: function(&library, c"nvrtcDestroyProgram")?,
                log_bytes: function(&library, c"nvrtcGetProgramLogSize")?,
                log: function(&library, c"nvrtcGetProgramLog")?,
                cubin_bytes: function(&library, c"nvrtcGetCUBINSize")?,
                cubin: function(&library, c"nvrtcGetCUBIN")?,
                _library: library,
            })
        }
    }

    fn title(&self) -> String {
        format!("NVRTC {}.{}", self.version.0, self.version.1)
    }

    /// Why it does not compile for compute capability `sm`, if that is so.
    fn check(&self, sm: u32) -> Result<(), String> {
        let (Some(oldest), Some(newest)) = (self.architectures.first(), self.architectures.last()) else {
            return Ok(());
        };
        if self.architectures.contains(&sm) {
            return Ok(());
        }
        let other = if sm < *oldest { "an older" } else { "a newer" };
        let title = self.title();
        Err(format!(
            "{title} compiles for sm_{oldest} to sm_{newest}, not for sm_{sm}: name the folder of {other} one in {FOLDER}"
        ))
    }

    fn compile(&self, source: &str, flags: &[String]) -> Result<Compiled, String> {
        let text = |text: &str| CString::new(text).map_err(|e| e.to_string());
        let source = text(source)?;
        let flags = flags.iter().map(|flag| text(flag)).collect::<Result<Vec<_>, _>>()?;
        let flags: Vec<*const c_char> = flags.iter().map(|flag| flag.as_ptr()).collect();
        let mut program: Program = ptr::null_mut();
        let (name, none) = (c"kernel.cu".as_ptr(), ptr::null());
        // SAFETY: the texts end in NUL and outlive the call; there are no headers.
        let created = unsafe { (self.create)(&mut program, source.as_ptr(), name, 0, none, none) };
        success("nvrtcCreateProgram", created)?;
        // SAFETY: the program was created above and is destroyed only here; there are as many flags as said.
        unsafe {
            let compiled = (self.compile)(program, flags.len() as c_int, flags.as_ptr());
            let log = content(program, self.log_bytes, self.log);
            let cubin = if compiled == 0 { content(program, self.cubin_bytes, self.cubin) } else { Ok(Vec::new()) };
            (self.destroy)(&mut program);
            let log = log?;
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy().into_owned();
            if compiled == 0 { Ok(Compiled { cubin: cubin?, log, compiler: self.title() }) } else { Err(log) }
        }
    }
}

/// # Safety
///
/// `F` must be the type of the function, which lives as long as the library.
unsafe fn function<F: Copy>(library: &Library, name: &CStr) -> Result<F, String> {
    // SAFETY: as the caller has promised.
    unsafe { library.get::<F>(name.to_bytes_with_nul()) }.map(|f| *f).map_err(|e| format!("libnvrtc: {e}"))
}

/// # Safety
///
/// The functions must tell the size of something of the program, and write it.
unsafe fn content(program: Program, bytes_of: BytesOf, content_of: ContentOf) -> Result<Vec<u8>, String> {
    let mut bytes = 0;
    // SAFETY: as the caller has promised; the memory has the size that was told.
    unsafe {
        success("nvrtcGet..Size", bytes_of(program, &mut bytes))?;
        let mut content = vec![0u8; bytes];
        success("nvrtcGet..", content_of(program, content.as_mut_ptr().cast()))?;
        Ok(content)
    }
}

fn success(function: &str, status: Status) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{function} fails with status {status}")) }
}

/// The file of a folder whose name starts with `prefix`; the last by name if there are several. `None` if there is none.
fn newest_in(folder: &Path, prefix: &str) -> Result<Option<PathBuf>, String> {
    let files = fs::read_dir(folder).map_err(|e| format!("{FOLDER}: {}: {e}", folder.display()))?;
    let paths = files.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix))).max())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(log: &str) -> Compiled {
        Compiled { cubin: Vec::new(), log: log.into(), compiler: String::new() }
    }

    #[test]
    fn the_log_of_several_kernels_tells_the_most_that_any_takes() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'autotune_main' for 'sm_90'\n\
            ptxas info    : Function properties for autotune_main\n    \
            16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n\
            ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 400 bytes cmem[0]\n\
            ptxas info    : Used 40 registers, used 1 barriers, 8192 bytes smem, 400 bytes cmem[0]\n";
        let expected = Resources { registers: 168, spill_bytes: 20, stack_bytes: 16, shared_bytes: 8192 };
        assert_eq!(compiled(log).resources(), expected);
        assert_eq!(compiled("").resources(), Resources::default());
    }

    #[test]
    fn the_newest_file_of_a_folder_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libnvrtc.so", "libnvrtc.so.12", "libnvrtc.alt.so.12", "libnvrtc-builtins.so.12.9"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = |prefix| newest_in(folder.path(), prefix).unwrap().map(|p| p.file_name().unwrap().to_owned());
        assert_eq!(found("libnvrtc.so"), Some("libnvrtc.so.12".into()));
        assert_eq!(found("libnvrtc-builtins.so"), Some("libnvrtc-builtins.so.12.9".into()));
        assert_eq!(found("libcuda.so"), None);
        assert!(newest_in(&folder.path().join("none"), "libnvrtc.so").unwrap_err().starts_with("AUTOTUNE_NVRTC: "));
    }
}
