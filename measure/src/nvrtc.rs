//! Compiles CUDA C with NVRTC, which needs no GPU. The library is loaded at run time: the first one
//! found that compiles for the device and whose code the machine's driver, if there is one,
//! accepts.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use autotune_codegen::gpu::architecture;
use autotune_measurement::{CandidateError, Resources};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache_folder;
use autotune_runtime::cuda::driver::{self, Version};

mod candidates;

use candidates::FOLDER;

/// Machine code of CUDA C, and the assembler's report on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompiledCuda {
    /// Contents of the cubin, an ELF file.
    pub cubin: Vec<u8>,
    /// Report of `ptxas -v`: registers, spills and static shared memory of each kernel.
    pub log: String,
    /// Name and version of the compiler.
    pub compiler: String,
}

impl CompiledCuda {
    /// Parses the log and returns, for each resource, the maximum over the kernels. Dynamic shared
    /// memory is not included.
    pub fn resources(&self) -> Resources {
        let mut most = Resources::default();
        for line in self.log.lines() {
            // "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
            let spills = amount(line, "bytes spill stores") + amount(line, "bytes spill loads");
            most.spill_bytes = most.spill_bytes.max(spills);
            most.stack_bytes = most.stack_bytes.max(amount(line, "bytes stack frame"));
            // "ptxas info    : Used 40 registers, used 1 barriers, 8192 bytes smem, ..."
            most.registers = most.registers.max(amount(line, "registers"));
            most.shared_bytes = most.shared_bytes.max(amount(line, "bytes smem"));
            most.is_serialized |= SERIALIZED.iter().any(|number| line.contains(number));
        }
        most
    }
}

/// Numbers of the ptxas messages that warp-group matrix instructions are serialised, and that
/// registers cannot be reassigned from producer to consumer warps. Either defeats the purpose of
/// such a kernel.
const SERIALIZED: [&str; 2] = ["(C7508)", "(C7510)"];

/// Returns the number before `words` in the line; 0 if they do not occur.
fn amount(line: &str, words: &str) -> usize {
    let before = line.find(words).and_then(|at| line.get(..at));
    before.and_then(|text| text.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

/// Environment variable that bounds every wait of a kernel for another thread or for the copy
/// engine (TMA). A wait of more than 2^28 clock cycles then becomes an error of the kernel, and not
/// a hang that only the time limit ends.
const CHECKED: &str = "AUTOTUNE_CHECKED";

/// Returns the compiler's flags for an architecture.
pub(crate) fn flags(architecture: &str) -> Vec<String> {
    let mut flags = vec![format!("--gpu-architecture={architecture}"), "--ptxas-options=-v".into()];
    if env::var_os(CHECKED).is_some_and(|value| !value.is_empty()) {
        flags.push(format!("--define-macro={CHECKED}"));
    }
    flags
}

/// Compiles CUDA C in this process to machine code for compute capability `sm` (times ten), with
/// the architecture suffix that the source needs. May be called from many threads at once.
pub fn compile(source: &str, sm: u32) -> Result<CompiledCuda, CandidateError> {
    let compile = || Nvrtc::get(sm)?.compile(source, &flags(&architecture(source, sm)));
    compile().map_err(|message| CandidateError::Build { message })
}

/// Returns the machine code of a kernel of this crate from the [cache folder](cache_folder),
/// compiling it the first time: every worker process loads the same few kernels.
pub(crate) fn cubin_of(source: &str, sm: u32) -> Result<Vec<u8>, CandidateError> {
    // The key includes the driver's version: a driver loads only code made by an NVRTC of its own
    // version or an older one.
    let driver = driver::version().map_or_else(|_| "none".into(), |version| version.to_string());
    let name = format!("cubin-sm_{sm}-{driver}-{:016x}", xxh3_64(source.as_bytes()));
    let file = cache_folder::find().map(|folder| folder.join(name));
    if let Some(cubin) = file.as_ref().and_then(|path| fs::read(path).ok()).filter(|cubin| cubin.starts_with(ELF)) {
        return Ok(cubin);
    }

    let cubin = compile(source, sm)?.cubin;
    if let Some(path) = file {
        cache_folder::keep(&path, &cubin);
    }
    Ok(cubin)
}

/// Magic number of an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// Returns the name and version of the compiler for compute capability `sm` (times ten), or, in one
/// line, the reason that there is none.
pub fn compiler_for(sm: u32) -> Result<String, String> {
    Ok(Nvrtc::get(sm)?.title())
}

type Program = *mut c_void;
/// Result code of NVRTC: 0 is success.
type Status = c_int;

/// Loaded NVRTC library with the functions that `nvrtc.h` declares.
struct Nvrtc {
    version: Version,
    /// Supported compute capabilities (times ten), ascending.
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
}

type BytesOf = unsafe extern "C" fn(Program, *mut usize) -> Status;
type ContentOf = unsafe extern "C" fn(Program, *mut c_char) -> Status;

impl Nvrtc {
    /// Returns the compiler for compute capability `sm` (times ten), or the reason that there is
    /// none. The search is done once per capability.
    fn get(sm: u32) -> Result<&'static Self, String> {
        static FOUND: Mutex<BTreeMap<u32, Result<&'static Nvrtc, String>>> = Mutex::new(BTreeMap::new());
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(sm).or_insert_with(|| Self::find(sm)).clone()
    }

    fn find(sm: u32) -> Result<&'static Self, String> {
        let driver = driver::version().ok();
        let mut refused = Vec::new();
        for path in candidates::all()? {
            match Self::load(&path).and_then(|nvrtc| nvrtc.check(sm, driver).map(|()| nvrtc)) {
                Ok(nvrtc) => return Ok(Box::leak(Box::new(nvrtc))),
                Err(reason) if is_not_found(&path, &reason) => {}
                Err(reason) if reason.contains(&*path.to_string_lossy()) => refused.push(reason),
                Err(reason) => refused.push(format!("{reason} ({})", path.display())),
            }
        }
        Err(absence(sm, driver, &refused))
    }

    /// Loads the library of a name or path. It stays loaded for the life of the process.
    /// `RTLD_LOCAL` keeps the symbols of several loaded versions apart.
    fn load(path: &Path) -> Result<Self, String> {
        let open = |path: &Path| {
            // SAFETY: the initialisers of NVRTC and of its built-in functions have no
            // preconditions.
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| words(&e))
        };
        let library: &'static Library = Box::leak(Box::new(open(path)?));
        // SAFETY: the library is NVRTC.
        let nvrtc = unsafe { Self::of(library) }?;
        // NVRTC opens its built-ins library by name, and the loader returns one that is already
        // loaded. Loading it here by path makes it the one of this version.
        let builtins = path.with_file_name(format!("libnvrtc-builtins.so.{}", nvrtc.version));
        if builtins.is_file() {
            std::mem::forget(open(&builtins)?);
        }
        Ok(nvrtc)
    }

    /// # Safety
    ///
    /// The library must be NVRTC.
    unsafe fn of(library: &'static Library) -> Result<Self, String> {
        // SAFETY: the function types are those of `nvrtc.h`, and every pointer refers to enough
        // writable memory.
        unsafe {
            let ask: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status = function(library, c"nvrtcVersion")?;
            let [mut major, mut minor] = [0; 2];
            success("nvrtcVersion", ask(&mut major, &mut minor))?;
            let [major, minor] = [major, minor].map(|number| u32::try_from(number).unwrap_or(0));

            let count: unsafe extern "C" fn(*mut c_int) -> Status = function(library, c"nvrtcGetNumSupportedArchs")?;
            let list: unsafe extern "C" fn(*mut c_int) -> Status = function(library, c"nvrtcGetSupportedArchs")?;
            let mut number = 0;
            success("nvrtcGetNumSupportedArchs", count(&mut number))?;
            let mut architectures = vec![0; usize::try_from(number).unwrap_or(0)];
            success("nvrtcGetSupportedArchs", list(architectures.as_mut_ptr()))?;
            let mut architectures: Vec<u32> = architectures.into_iter().filter_map(|sm| sm.try_into().ok()).collect();
            architectures.sort_unstable();

            Ok(Self {
                version: Version { major, minor },
                architectures,
                create: function(library, c"nvrtcCreateProgram")?,
                compile: function(library, c"nvrtcCompileProgram")?,
                destroy: function(library, c"nvrtcDestroyProgram")?,
                log_bytes: function(library, c"nvrtcGetProgramLogSize")?,
                log: function(library, c"nvrtcGetProgramLog")?,
                cubin_bytes: function(library, c"nvrtcGetCUBINSize")?,
                cubin: function(library, c"nvrtcGetCUBIN")?,
            })
        }
    }

    fn title(&self) -> String {
        format!("NVRTC {}", self.version)
    }

    /// Fails if the library does not support compute capability `sm` or makes code that is too new
    /// for the driver.
    fn check(&self, sm: u32, driver: Option<Version>) -> Result<(), String> {
        let title = self.title();
        if let Some(driver) = driver.filter(|driver| driver.major < self.version.major) {
            return Err(format!("code from {title} is too new for the driver, which supports CUDA {driver}"));
        }
        match (self.architectures.first(), self.architectures.last()) {
            (Some(oldest), Some(newest)) if !self.architectures.contains(&sm) => {
                Err(format!("{title} compiles for sm_{oldest} to sm_{newest}, not for sm_{sm}"))
            }
            _ => Ok(()),
        }
    }

    fn compile(&self, source: &str, flags: &[String]) -> Result<CompiledCuda, String> {
        let text = |text: &str| CString::new(text).map_err(|e| e.to_string());
        let source = text(source)?;
        let flags = flags.iter().map(|flag| text(flag)).collect::<Result<Vec<_>, _>>()?;
        let flags: Vec<*const c_char> = flags.iter().map(|flag| flag.as_ptr()).collect();
        let mut program: Program = ptr::null_mut();
        let (name, none) = (c"kernel.cu".as_ptr(), ptr::null());
        // SAFETY: the strings are NUL-terminated and outlive the call; there are no headers.
        let created = unsafe { (self.create)(&mut program, source.as_ptr(), name, 0, none, none) };
        success("nvrtcCreateProgram", created)?;
        // SAFETY: the program was created above and is destroyed only here; `flags` has the length
        // that is passed.
        unsafe {
            let compiled = (self.compile)(program, flags.len() as c_int, flags.as_ptr());
            let log = content(program, self.log_bytes, self.log);
            let cubin = if compiled == 0 { content(program, self.cubin_bytes, self.cubin) } else { Ok(Vec::new()) };
            (self.destroy)(&mut program);
            let log = log?;
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy().into_owned();
            if compiled == 0 { Ok(CompiledCuda { cubin: cubin?, log, compiler: self.title() }) } else { Err(log) }
        }
    }
}

/// Returns the loader's message, without the wrapper of `libloading`.
fn words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns true if the loader did not find a library of that name.
fn is_not_found(name: &Path, reason: &str) -> bool {
    name.parent().is_some_and(|folder| folder.as_os_str().is_empty())
        && reason.contains(&format!("{}: cannot open shared object file", name.display()))
}

/// Explains why there is no compiler for compute capability `sm` (times ten), and what to install.
fn absence(sm: u32, driver: Option<Version>, refused: &[String]) -> String {
    let install = |which: &str| {
        format!(
            "install {which} (for example Python's nvidia-cuda-nvrtc-cu12) and set {FOLDER} to the folder of its libnvrtc.so"
        )
    };
    if refused.is_empty() {
        return format!("no CUDA compiler (libnvrtc.so): {}", install("NVRTC"));
    }
    let which = driver.map_or("another NVRTC".into(), |driver| format!("NVRTC of CUDA {} or older", driver.major));
    format!("no CUDA compiler for sm_{sm}: {}: {}", refused.join("; "), install(&which))
}

/// # Safety
///
/// `F` must be the type of the function, which lives as long as the library.
unsafe fn function<F: Copy>(library: &'static Library, name: &CStr) -> Result<F, String> {
    // SAFETY: the caller guarantees the type, and `library` is never unloaded.
    unsafe { library.get::<F>(name.to_bytes_with_nul()) }.map(|f| *f).map_err(|e| words(&e))
}

/// # Safety
///
/// The functions must be NVRTC's size and content functions for the same result of `program`.
unsafe fn content(program: Program, bytes_of: BytesOf, content_of: ContentOf) -> Result<Vec<u8>, String> {
    let mut bytes = 0;
    // SAFETY: the caller guarantees the functions, and the memory has the size that NVRTC returned.
    unsafe {
        success("nvrtcGet..Size", bytes_of(program, &mut bytes))?;
        let mut content = vec![0u8; bytes];
        success("nvrtcGet..", content_of(program, content.as_mut_ptr().cast()))?;
        Ok(content)
    }
}

fn success(function: &str, status: Status) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{function} failed with status {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(log: &str) -> CompiledCuda {
        CompiledCuda { cubin: Vec::new(), log: log.into(), compiler: String::new() }
    }

    #[test]
    fn the_log_of_several_kernels_tells_the_most_that_any_takes() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'autotune_main' for 'sm_90'\n\
            ptxas info    : Function properties for autotune_main\n    \
            16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n\
            ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 400 bytes cmem[0]\n\
            ptxas info    : Used 40 registers, used 1 barriers, 8192 bytes smem, 400 bytes cmem[0]\n";
        let expected =
            Resources { registers: 168, spill_bytes: 20, stack_bytes: 16, shared_bytes: 8192, is_serialized: false };
        assert_eq!(compiled(log).resources(), expected);
        let waiting = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to \
            insufficient register resources for the wgmma pipeline in the function 'autotune_main'\n";
        let expected = Resources { is_serialized: true, ..expected };
        assert_eq!(compiled(&format!("{log}{waiting}")).resources(), expected);
        assert_eq!(compiled("").resources(), Resources::default());
    }

    #[test]
    fn one_line_says_what_was_refused_and_what_to_install() {
        let driver = Some(Version { major: 12, minor: 4 });
        let refused = ["it is too new (/a/libnvrtc.so.13)".to_string(), "it is too old (libnvrtc.so)".to_string()];
        let expected = "no CUDA compiler for sm_90: it is too new (/a/libnvrtc.so.13); it is too old (libnvrtc.so): install \
            NVRTC of CUDA 12 or older (for example Python's nvidia-cuda-nvrtc-cu12) and set AUTOTUNE_NVRTC to the folder \
            of its libnvrtc.so";
        assert_eq!(absence(90, driver, &refused), expected);
        assert!(
            absence(90, None, &[]).starts_with("no CUDA compiler (libnvrtc.so): install NVRTC (for example Python's")
        );
        assert!(is_not_found(
            Path::new("libnvrtc.so"),
            "libnvrtc.so: cannot open shared object file: No such file or directory"
        ));
        assert!(!is_not_found(
            Path::new("/a/libnvrtc.so"),
            "/a/libnvrtc.so: cannot open shared object file: No such file"
        ));
        assert!(!is_not_found(Path::new("libnvrtc.so"), "libc++.so: cannot open shared object file: No such file"));
    }
}
