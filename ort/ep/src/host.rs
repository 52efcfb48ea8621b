//! Calls of ONNX Runtime's functions.

use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use ort_sys::{OrtApi, OrtApiBase, OrtErrorCode, OrtLogger, OrtLoggingLevel, OrtStatusPtr};

use crate::abi::{EpApi, ProfilingApi, ProfilingTable, VERSION};

/// Version of the API from which on a tensor without axes differs from one of unknown rank, and
/// nodes in graphs inside of nodes may be fused.
const LATER_VERSION: u32 = 24;

/// Version of the API from which on providers have profilers; the latest that this library uses.
const PROFILING_VERSION: u32 = 25;

/// Functions of the ONNX Runtime that loaded this library. Of the table for programs, only members
/// that [`VERSION`] has may be read, as it may be an earlier and shorter one.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    api: *const OrtApi,
    pub(crate) ep: &'static EpApi,
    /// Version of the table.
    version: u32,
}

// SAFETY: the tables are never changed or freed, and their functions may be called by any thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

/// Calls a function of ONNX Runtime that returns a status.
macro_rules! ask {
    ($host:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $host.check(($host.function(|api| (&raw const (*api).$name).read()))($($argument),*))
    };
}
pub(crate) use ask;

impl Host {
    /// Returns the functions of an ONNX Runtime; `None` if its version is too early.
    ///
    /// # Safety
    ///
    /// `base` is null or ONNX Runtime's table of tables.
    pub(crate) unsafe fn of(base: *const OrtApiBase) -> Option<Self> {
        // SAFETY: as for this function; tables live as long as the process.
        unsafe {
            let base = base.as_ref()?;
            // ONNX Runtime prints a message when it is asked for a version that it does not have.
            let release = text((base.GetVersionString)());
            let minor = release.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
            let version = minor.unwrap_or(VERSION).clamp(VERSION, PROFILING_VERSION);
            let api = (base.GetApi)(version);
            if api.is_null() {
                return None;
            }
            let ep: *const EpApi = ((&raw const (*api).GetEpApi).read())().cast();
            Some(Self { api, ep: ep.as_ref()?, version })
        }
    }

    /// True from [`LATER_VERSION`] on.
    pub(crate) fn is_later(&self) -> bool {
        self.version >= LATER_VERSION
    }

    /// Returns the functions for profiles; `None` before [`PROFILING_VERSION`].
    pub(crate) fn profiling(&self) -> Option<ProfilingApi> {
        let table = ptr::from_ref(self.ep).cast::<ProfilingTable>();
        // SAFETY: tables of this version and later ones have these members, and are never freed.
        (self.version >= PROFILING_VERSION).then(|| unsafe { (&raw const (*table).profiling).read() })
    }

    /// Reads a member of the table.
    ///
    /// # Safety
    ///
    /// `read` reads one member that the table has.
    pub(crate) unsafe fn function<T>(&self, read: impl FnOnce(*const OrtApi) -> T) -> T {
        read(self.api)
    }

    /// Returns the error of a status, and releases it.
    pub(crate) fn check(&self, status: OrtStatusPtr) -> Result<(), String> {
        if status.0.is_null() {
            return Ok(());
        }
        // SAFETY: the status comes from ONNX Runtime, and is released once.
        unsafe {
            let message = CStr::from_ptr(((&raw const (*self.api).GetErrorMessage).read())(status.0));
            let message = message.to_string_lossy().into_owned();
            ((&raw const (*self.api).ReleaseStatus).read())(status.0);
            Err(message)
        }
    }

    /// Writes a warning to the log of a session.
    ///
    /// # Safety
    ///
    /// The logger is null or one of ONNX Runtime that exists.
    pub(crate) unsafe fn warn(&self, logger: *const OrtLogger, message: &str) {
        let message = CString::new(format!("autotune: {message}").replace('\0', " ")).unwrap_or_default();
        if logger.is_null() {
            return;
        }
        let (level, place) = (OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING, c"autotune".as_ptr());
        // SAFETY: as for this function; ONNX Runtime copies the texts. A message that cannot be
        // written is lost.
        let _ = unsafe { ask!(self, Logger_LogMessage(logger, level, message.as_ptr(), place, 0, place)) };
    }

    /// Does the work of a function that ONNX Runtime calls, and returns its status. A panic does
    /// not leave this function.
    pub(crate) fn guarded(&self, work: impl FnOnce() -> Result<(), String>) -> OrtStatusPtr {
        let message = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => return OrtStatusPtr::default(),
            Ok(Err(message)) => message,
            Err(_) => "internal error: see standard error".into(),
        };
        let message = CString::new(format!("autotune: {message}").replace('\0', " ")).unwrap_or_default();
        // SAFETY: ONNX Runtime copies the message.
        unsafe { ((&raw const (*self.api).CreateStatus).read())(OrtErrorCode::ORT_EP_FAIL, message.as_ptr()) }
    }
}

/// Returns the status for an ONNX Runtime that is too early for this library.
///
/// # Safety
///
/// `base` is null or ONNX Runtime's table of tables.
pub(crate) unsafe fn too_early(base: *const OrtApiBase) -> OrtStatusPtr {
    let message = c"autotune's execution provider needs ONNX Runtime 1.23 or newer";
    // SAFETY: as for this function; every table begins with the function that makes statuses.
    unsafe {
        match base.as_ref().map(|base| (base.GetApi)(1)) {
            Some(api) if !api.is_null() => {
                ((&raw const (*api).CreateStatus).read())(OrtErrorCode::ORT_FAIL, message.as_ptr())
            }
            _ => OrtStatusPtr::default(),
        }
    }
}

/// Returns the bytes of a text of ONNX Runtime; none for null.
///
/// # Safety
///
/// `text` is null or a string in C, which exists during `'a`.
pub(crate) unsafe fn bytes_of_text<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: as for this function.
    if text.is_null() { &[] } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

/// Returns a text of ONNX Runtime; empty for null.
///
/// # Safety
///
/// `text` is null or a string in C.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    // SAFETY: as for this function.
    String::from_utf8_lossy(unsafe { bytes_of_text(text) }).into_owned()
}

/// Returns a list that ONNX Runtime copies to the caller's memory, after it has told the length.
pub(crate) fn list<T>(
    count: impl FnOnce(*mut usize) -> Result<(), String>,
    items: impl FnOnce(*mut *const T, usize) -> Result<(), String>,
) -> Result<Vec<*const T>, String> {
    let mut length = 0;
    count(&mut length)?;
    let mut list = vec![ptr::null(); length];
    items(list.as_mut_ptr(), length)?;
    Ok(list)
}
