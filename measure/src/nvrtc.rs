//! NVRTC, the compiler of CUDA C, which needs no device. It is loaded at run time: the first that
//! is found whose code the machine's driver takes, if there is one, and that compiles for the
//! device.

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
            most.is_serialized |= SERIALIZED.iter().any(|number| line.contains(number));
        }
        most
    }
}

/// Numbers of the assembler's messages that matrix instructions of warp groups wait for one
/// another, or that their registers do not go from the threads that copy to those that multiply:
/// either undoes what such a kernel is made for.
const SERIALIZED: [&str; 2] = ["(C7508)", "(C7510)"];

/// The number before some words; 0 if they are not there.
fn amount(line: &str, words: &str) -> usize {
    let before = line.find(words).and_then(|at| line.get(..at));
    before.and_then(|text| text.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

/// Environment variable that bounds every wait of a kernel for another thread or for the copy
/// engine: a wait of more than 2^28 clocks is then an error of the kernel, and not a hang that only
/// a time limit ends.
const CHECKED: &str = "AUTOTUNE_CHECKED";

/// The compiler's flags for an architecture.
pub(crate) fn flags(architecture: &str) -> Vec<String> {
    let mut flags = vec![format!("--gpu-architecture={architecture}"), "--ptxas-options=-v".into()];
    if env::var_os(CHECKED).is_some_and(|value| !value.is_empty()) {
        flags.push(format!("--define-macro={CHECKED}"));
    }
    flags
}

/// Compiles CUDA C to machine code of compute capability `sm` (times ten), for the architecture
/// that it needs, in this process. May be called from many threads at once.
pub fn compile(source: &str, sm: u32) -> Result<Compiled, CandidateError> {
    let compile = || Nvrtc::get(sm)?.compile(source, &flags(&architecture(source, sm)));
    compile().map_err(|message| CandidateError::Build { message })
}

/// Machine code of a kernel of this crate, compiled once on a machine and kept in the [cache
/// folder](cache_folder): every worker process loads the same few.
pub(crate) fn cubin_of(source: &str, sm: u32) -> Result<Vec<u8>, CandidateError> {
    // A driver takes what an NVRTC of its own version or an older one made.
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

/// First bytes of a cubin, which is an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// The compiler and its version; in one line why there is none that compiles for compute capability
/// `sm` (times ten).
pub fn compiler_for(sm: u32) -> Result<String, String> {
    Ok(Nvrtc::get(sm)?.title())
}

type Program = *mut c_void;
/// NVRTC's result: 0 is success.
type Status = c_int;

/// The library and its functions, as `nvrtc.h` declares them.
struct Nvrtc {
    version: Version,
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
}

type BytesOf = unsafe extern "C" fn(Program, *mut usize) -> Status;
type ContentOf = unsafe extern "C" fn(Program, *mut c_char) -> Status;

impl Nvrtc {
    /// The compiler for compute capability `sm` (times ten), looked for when it is first asked for;
    /// why there is none.
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

    /// The library of a name or path. It stays loaded, as several may be, so that their functions
    /// are nobody else's.
    fn load(path: &Path) -> Result<Self, String> {
        let open = |path: &Path| {
            // SAFETY: NVRTC and its built-in functions may be loaded by any program.
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| words(&e))
        };
        let library: &'static Library = Box::leak(Box::new(open(path)?));
        // SAFETY: the library is NVRTC.
        let nvrtc = unsafe { Self::of(library) }?;
        // The compiler looks for its built-in functions by name, and finds what is loaded already.
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
        // SAFETY: the types are those of `nvrtc.h`; every pointer is to enough memory.
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

    /// Why it does not do for compute capability `sm` and the driver, if that is so.
    fn check(&self, sm: u32, driver: Option<Version>) -> Result<(), String> {
        let title = self.title();
        if let Some(driver) = driver.filter(|driver| driver.major < self.version.major) {
            return Err(format!("{title} makes code that a driver for CUDA {driver} does not load"));
        }
        match (self.architectures.first(), self.architectures.last()) {
            (Some(oldest), Some(newest)) if !self.architectures.contains(&sm) => {
                Err(format!("{title} compiles for sm_{oldest} to sm_{newest}, not for sm_{sm}"))
            }
            _ => Ok(()),
        }
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
        // SAFETY: the program was created above and is destroyed only here; there are as many flags
        // as said.
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

/// What the loader says of a library.
fn words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// True if the loader knows no library of that name.
fn is_not_found(name: &Path, reason: &str) -> bool {
    name.parent().is_some_and(|folder| folder.as_os_str().is_empty())
        && reason.contains(&format!("{}: cannot open shared object file", name.display()))
}

/// Why there is no compiler for compute capability `sm` (times ten), and what to install.
fn absence(sm: u32, driver: Option<Version>, refused: &[String]) -> String {
    let install = |which: &str| {
        format!(
            "install {which} (Python's nvidia-cuda-nvrtc-cu12 has one), and name the folder of its libnvrtc.so in {FOLDER}"
        )
    };
    if refused.is_empty() {
        return format!("no CUDA compiler (libnvrtc.so): {}", install("NVRTC"));
    }
    let which =
        driver.map_or("another NVRTC".into(), |driver| format!("another NVRTC, of CUDA {} or older", driver.major));
    format!("no CUDA compiler for sm_{sm}: {}: {}", refused.join("; "), install(&which))
}

/// # Safety
///
/// `F` must be the type of the function, which lives as long as the library.
unsafe fn function<F: Copy>(library: &'static Library, name: &CStr) -> Result<F, String> {
    // SAFETY: as the caller has promised.
    unsafe { library.get::<F>(name.to_bytes_with_nul()) }.map(|f| *f).map_err(|e| words(&e))
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
        let expected = "no CUDA compiler for sm_90: it is too new (/a/libnvrtc.so.13); it is too old (libnvrtc.so): install another \
            NVRTC, of CUDA 12 or older (Python's nvidia-cuda-nvrtc-cu12 has one), and name the folder of its libnvrtc.so in \
            AUTOTUNE_NVRTC";
        assert_eq!(absence(90, driver, &refused), expected);
        assert!(absence(90, None, &[]).starts_with("no CUDA compiler (libnvrtc.so): install NVRTC (Python's"));
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
