//! Environments, which have nothing to keep, and facts about this library.

use std::ffi::{CStr, c_char, c_int, c_void};

use ort_sys::{OrtApi, OrtEnv, OrtLoggingFunction, OrtLoggingLevel, OrtThreadingOptions};

use crate::handle::{Handle, give, set};
use crate::status::{api_functions, release_functions};

struct Environment;

impl Handle for Environment {
    type Sys = OrtEnv;
}

/// Options of thread pools that several sessions share; each session has threads of its own here.
struct ThreadingOptions;

impl Handle for ThreadingOptions {
    type Sys = OrtThreadingOptions;
}

/// Name of the only provider.
const PROVIDER: &CStr = c"CPUExecutionProvider";

api_functions! {
    fn CreateEnv(_level: OrtLoggingLevel, _name: *const c_char, out: *mut *mut OrtEnv) { give(out, Environment) }

    fn CreateEnvWithCustomLogger(
        _log: OrtLoggingFunction,
        _parameter: *mut c_void,
        _level: OrtLoggingLevel,
        _name: *const c_char,
        out: *mut *mut OrtEnv,
    ) { give(out, Environment) }

    fn CreateEnvWithGlobalThreadPools(
        _level: OrtLoggingLevel,
        _name: *const c_char,
        _threads: *const OrtThreadingOptions,
        out: *mut *mut OrtEnv,
    ) { give(out, Environment) }

    fn CreateEnvWithCustomLoggerAndGlobalThreadPools(
        _log: OrtLoggingFunction,
        _parameter: *mut c_void,
        _level: OrtLoggingLevel,
        _name: *const c_char,
        _threads: *const OrtThreadingOptions,
        out: *mut *mut OrtEnv,
    ) { give(out, Environment) }

    fn UpdateEnvWithCustomLogLevel(_environment: *mut OrtEnv, _level: OrtLoggingLevel) { Ok(()) }

    fn CreateThreadingOptions(out: *mut *mut OrtThreadingOptions) { give(out, ThreadingOptions) }

    fn SetGlobalIntraOpNumThreads(_options: *mut OrtThreadingOptions, _count: c_int) { Ok(()) }

    fn SetGlobalInterOpNumThreads(_options: *mut OrtThreadingOptions, _count: c_int) { Ok(()) }

    fn SetGlobalSpinControl(_options: *mut OrtThreadingOptions, _allows: c_int) { Ok(()) }

    fn GetAvailableProviders(out: *mut *mut *mut c_char, count: *mut c_int) {
        let names = Box::new([PROVIDER.as_ptr().cast_mut()]);
        set(out, Box::into_raw(names).cast())?;
        set(count, 1)
    }

    fn ReleaseAvailableProviders(names: *mut *mut c_char, _count: c_int) {
        if !names.is_null() {
            drop(Box::from_raw(names.cast::<[*mut c_char; 1]>()));
        }
        Ok(())
    }
}

release_functions! { ReleaseEnv(Environment), ReleaseThreadingOptions(ThreadingOptions) }

unsafe extern "system" fn build_info() -> *const c_char {
    concat!("autotune ", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

pub(crate) fn add_to(api: &mut OrtApi) {
    add_functions(api);
    add_releases(api);
    api.GetBuildInfoString = build_info;
}
