//! Library of the CUDA driver: checks that it is present, recent enough and complete, and catches
//! panics of calls.
//!
//! The binding layer looks up each function at its first call and panics if it is missing.
//! Therefore all functions are looked up before anything else is done.

use std::any::Any;
use std::cell::Cell;
use std::ffi::CStr;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::{Once, OnceLock};

use cudarc::driver::{DriverError, sys};

/// Version of CUDA, such as 12.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major version: 12 in 12.4.
    pub major: u32,
    /// Minor version: 4 in 12.4.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Oldest CUDA version of the driver with all required functions.
pub const OLDEST: Version = Version { major: 12, minor: 0 };

/// Advice for a driver that is missing or too old.
const INSTALL: &str = "install NVIDIA driver 525 or newer";

/// Every driver function that is called here, directly or by the binding layer, with the CUDA
/// version that introduced it.
pub const FUNCTIONS: [(&str, Version); 42] = [
    ("cuCtxGetCurrent", since(4, 0)),
    ("cuCtxSetCurrent", since(4, 0)),
    ("cuCtxSynchronize", since(2, 0)),
    ("cuDeviceGet", since(2, 0)),
    ("cuDeviceGetAttribute", since(2, 0)),
    ("cuDeviceGetCount", since(2, 0)),
    ("cuDeviceGetName", since(2, 0)),
    ("cuDevicePrimaryCtxRelease_v2", since(11, 0)),
    ("cuDevicePrimaryCtxRetain", since(7, 0)),
    ("cuDriverGetVersion", since(2, 2)),
    ("cuEventCreate", since(2, 0)),
    ("cuEventDestroy_v2", since(4, 0)),
    ("cuEventElapsedTime", since(2, 0)),
    ("cuEventRecord", since(2, 0)),
    ("cuEventSynchronize", since(2, 0)),
    ("cuFuncSetAttribute", since(9, 0)),
    ("cuGetErrorName", since(6, 0)),
    ("cuGetErrorString", since(6, 0)),
    ("cuGraphDestroy", since(10, 0)),
    ("cuGraphExecDestroy", since(10, 0)),
    ("cuGraphInstantiateWithFlags", since(11, 4)),
    ("cuGraphLaunch", since(10, 0)),
    ("cuGraphUpload", since(11, 1)),
    ("cuInit", since(2, 0)),
    ("cuLaunchKernel", since(4, 0)),
    ("cuMemAllocAsync", since(11, 2)),
    ("cuMemAlloc_v2", since(3, 2)),
    ("cuMemFreeAsync", since(11, 2)),
    ("cuMemFree_v2", since(3, 2)),
    ("cuMemGetInfo_v2", since(3, 2)),
    ("cuMemcpyDtoDAsync_v2", since(3, 2)),
    ("cuMemcpyDtoHAsync_v2", since(3, 2)),
    ("cuMemcpyHtoDAsync_v2", since(3, 2)),
    ("cuMemsetD32Async", since(3, 2)),
    ("cuModuleGetFunction", since(2, 0)),
    ("cuModuleLoadData", since(2, 0)),
    ("cuModuleUnload", since(2, 0)),
    ("cuStreamBeginCapture_v2", since(10, 1)),
    ("cuStreamCreate", since(2, 0)),
    ("cuStreamDestroy_v2", since(4, 0)),
    ("cuStreamEndCapture", since(10, 0)),
    ("cuStreamSynchronize", since(2, 0)),
];

/// Driver functions that only kernels for compute capability 9.0 and later need.
pub const TENSOR_MAP_FUNCTIONS: [(&str, Version); 1] = [("cuTensorMapEncodeTiled", since(12, 0))];

const fn since(major: u32, minor: u32) -> Version {
    Version { major, minor }
}

/// Returns the driver's CUDA version; the error says in one line why no driver can be used.
pub fn version() -> Result<Version, String> {
    static FOUND: OnceLock<Result<Version, String>> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

fn find() -> Result<Version, String> {
    // SAFETY: loading the library runs its initialisers, which is allowed in any program.
    if !unsafe { sys::is_culib_present() } {
        return Err(format!("no CUDA driver (libcuda.so.1): {INSTALL}"));
    }

    // An old version explains more than a missing function, so it is checked first.
    let mut number = 0;
    require_functions(&[("cuDriverGetVersion", since(2, 2))])?;
    // SAFETY: the pointer is valid for the one number that is written.
    guarded(|| unsafe { sys::cuDriverGetVersion(&mut number) }.result())
        .map_err(|fault| format!("cannot query the version of the CUDA driver: {fault}"))?;
    let number = u32::try_from(number).unwrap_or(0);
    let version = since(number / 1000, number % 1000 / 10);
    if version < OLDEST {
        return Err(format!("the CUDA driver is too old: it supports CUDA {version}, {OLDEST} is required: {INSTALL}"));
    }

    require_functions(&FUNCTIONS)?;
    Ok(version)
}

/// Checks that all functions exist; the error names the first missing one. The library must be
/// present.
pub(super) fn require_functions(functions: &[(&str, Version)]) -> Result<(), String> {
    for (name, brought) in functions {
        // SAFETY: the library is present; the function is only looked up, not called.
        let found = unsafe { sys::culib().get::<*const ()>(name.as_bytes()).is_ok() };
        if !found {
            return Err(format!("the CUDA driver lacks {name}, which CUDA {brought} introduced: {INSTALL}"));
        }
    }
    Ok(())
}

/// Failure of a driver call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverFault {
    /// The driver returned an error.
    Call(DriverError),
    /// The binding layer panicked.
    Panic(String),
}

impl fmt::Display for DriverFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => f.write_str(&words(*error)),
            Self::Panic(message) => write!(f, "cannot call the CUDA driver: {message}"),
        }
    }
}

/// Returns the driver's description of an error, and its name.
fn words(error: DriverError) -> String {
    let text = |found: Result<&CStr, DriverError>| found.map_or("?".into(), |text| text.to_string_lossy().into_owned());
    format!("{} ({})", text(error.error_string()), text(error.error_name()))
}

/// Calls the driver. A panic of the binding layer becomes an error and prints nothing.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, DriverError>) -> Result<T, DriverFault> {
    thread_local! {
        static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
    }
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        // The hook still reports panics of other threads and outside of driver calls.
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                report(panic);
            }
        }));
    });

    let was_guarded = IS_GUARDED.replace(true);
    let ended = catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(was_guarded);
    match ended {
        Ok(result) => result.map_err(DriverFault::Call),
        Err(payload) => Err(DriverFault::Panic(message(&*payload))),
    }
}

/// Returns the message of a panic in one line.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    text.unwrap_or("the call panicked").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_below_is_an_error_in_one_line() {
        let fault = guarded::<()>(|| panic!("no such\n symbol: {}", "cuInit")).unwrap_err();
        assert_eq!(fault.to_string(), "cannot call the CUDA driver: no such symbol: cuInit");
        assert_eq!(guarded(|| Ok(3)), Ok(3));
        let nested = guarded(|| {
            assert!(guarded::<()>(|| panic!("inside")).is_err());
            Err::<(), _>(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))
        });
        assert_eq!(nested, Err(DriverFault::Call(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))));
    }

    #[test]
    fn every_function_is_listed_once_and_came_with_the_oldest_driver_at_the_latest() {
        let all = || FUNCTIONS.iter().chain(&TENSOR_MAP_FUNCTIONS);
        let names: std::collections::BTreeSet<_> = all().map(|(name, _)| name).collect();
        assert_eq!(names.len(), all().count());
        assert!(all().all(|(name, brought)| name.starts_with("cu") && *brought <= OLDEST));
        assert_eq!(OLDEST.to_string(), "12.0");
    }
}
