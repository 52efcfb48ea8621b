//! Allocators and descriptions of memory: that of the CPU.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use ort_sys::{
    ORT_API_VERSION, OrtAllocator, OrtAllocatorType, OrtApi, OrtDeviceMemoryType, OrtMemType, OrtMemoryInfo,
    OrtMemoryInfoDeviceType, OrtSession,
};

use crate::handle::{Handle, give, of, set, text};
use crate::status::{ApiError, api_functions, release_functions};

/// Description of memory; it is always the CPU's.
#[derive(Clone)]
struct MemoryInfo {
    allocator: OrtAllocatorType,
    mem_type: OrtMemType,
}

impl Handle for MemoryInfo {
    type Sys = OrtMemoryInfo;
}

const NAME: &CStr = c"Cpu";

static CPU: MemoryInfo =
    MemoryInfo { allocator: OrtAllocatorType::OrtDeviceAllocator, mem_type: OrtMemType::OrtMemTypeDefault };

/// Returns the description of memory in which tensors are.
pub(crate) fn cpu() -> *const OrtMemoryInfo {
    (&raw const CPU).cast()
}

/// The allocator, by a pointer that threads may share, as it has no state.
struct Shared(OrtAllocator);

// SAFETY: no function changes the allocator, and `malloc` and `free` may be called by any thread.
unsafe impl Sync for Shared {}

static ALLOCATOR: Shared = Shared(OrtAllocator {
    version: ORT_API_VERSION,
    Alloc: Some(allocate),
    Free: Some(free),
    Info: Some(info),
    Reserve: Some(reserve),
    GetStats: None,
    AllocOnStream: None,
    Shrink: None,
});

fn allocator() -> *mut OrtAllocator {
    (&raw const ALLOCATOR.0).cast_mut()
}

unsafe extern "system" fn allocate(_: *mut OrtAllocator, size: usize) -> *mut c_void {
    // SAFETY: any size may be allocated.
    unsafe { libc::malloc(size.max(1)) }
}

unsafe extern "system" fn reserve(_: *const OrtAllocator, size: usize) -> *mut c_void {
    // SAFETY: any size may be allocated.
    unsafe { libc::malloc(size.max(1)) }
}

unsafe extern "system" fn free(_: *mut OrtAllocator, memory: *mut c_void) {
    // SAFETY: the memory comes from `allocate`.
    unsafe { libc::free(memory) }
}

unsafe extern "system" fn info(_: *const OrtAllocator) -> *const OrtMemoryInfo {
    cpu()
}

/// Returns memory of an allocator.
///
/// # Safety
///
/// The allocator is null or that of [`add_to`]'s functions, or of the caller.
pub(crate) unsafe fn allocated(allocator: *mut OrtAllocator, size: usize) -> Result<*mut c_void, ApiError> {
    // SAFETY: as for this function.
    let function = unsafe { allocator.as_ref() }.and_then(|allocator| allocator.Alloc);
    let function = function.ok_or_else(|| ApiError::argument("the allocator is null"))?;
    // SAFETY: the function belongs to the allocator.
    match unsafe { function(allocator, size) } {
        memory if memory.is_null() => Err(ApiError::argument(format!("no memory for {size} bytes"))),
        memory => Ok(memory),
    }
}

/// Returns a copy of a text in memory of an allocator.
///
/// # Safety
///
/// As for [`allocated`].
pub(crate) unsafe fn text_in(allocator: *mut OrtAllocator, text: &str) -> Result<*mut c_char, ApiError> {
    let text = CString::new(text.replace('\0', " ")).map_err(|_| ApiError::argument("a text has a zero"))?;
    let bytes = text.as_bytes_with_nul();
    // SAFETY: as for this function; the memory has room for the bytes.
    unsafe {
        let memory: *mut u8 = allocated(allocator, bytes.len())?.cast();
        memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        Ok(memory.cast())
    }
}

api_functions! {
    fn CreateMemoryInfo(
        name: *const c_char,
        allocator: OrtAllocatorType,
        _id: c_int,
        mem_type: OrtMemType,
        out: *mut *mut OrtMemoryInfo,
    ) {
        match text(name)? {
            "Cpu" => give(out, MemoryInfo { allocator, mem_type }),
            other => Err(ApiError::unsupported(format!("memory '{other}': tensors are in memory of the CPU"))),
        }
    }

    fn CreateCpuMemoryInfo(allocator: OrtAllocatorType, mem_type: OrtMemType, out: *mut *mut OrtMemoryInfo) {
        give(out, MemoryInfo { allocator, mem_type })
    }

    fn CompareMemoryInfo(a: *const OrtMemoryInfo, b: *const OrtMemoryInfo, out: *mut c_int) {
        let (a, b): (&MemoryInfo, &MemoryInfo) = (of(a)?, of(b)?);
        set(out, c_int::from((a.allocator, a.mem_type) != (b.allocator, b.mem_type)))
    }

    fn MemoryInfoGetName(_info: *const OrtMemoryInfo, out: *mut *const c_char) { set(out, NAME.as_ptr()) }

    fn MemoryInfoGetId(_info: *const OrtMemoryInfo, out: *mut c_int) { set(out, 0) }

    fn MemoryInfoGetMemType(info: *const OrtMemoryInfo, out: *mut OrtMemType) {
        set(out, of::<MemoryInfo>(info)?.mem_type)
    }

    fn MemoryInfoGetType(info: *const OrtMemoryInfo, out: *mut OrtAllocatorType) {
        set(out, of::<MemoryInfo>(info)?.allocator)
    }

    fn AllocatorAlloc(allocator: *mut OrtAllocator, size: usize, out: *mut *mut c_void) {
        set(out, allocated(allocator, size)?)
    }

    fn AllocatorFree(allocator: *mut OrtAllocator, memory: *mut c_void) {
        let function = allocator.as_ref().and_then(|allocator| allocator.Free);
        function.ok_or_else(|| ApiError::argument("the allocator is null"))?(allocator, memory);
        Ok(())
    }

    fn AllocatorGetInfo(_allocator: *const OrtAllocator, out: *mut *const OrtMemoryInfo) { set(out, cpu()) }

    fn GetAllocatorWithDefaultOptions(out: *mut *mut OrtAllocator) { set(out, allocator()) }

    fn CreateAllocator(_session: *const OrtSession, _info: *const OrtMemoryInfo, out: *mut *mut OrtAllocator) {
        set(out, allocator())
    }
}

release_functions! { ReleaseMemoryInfo(MemoryInfo) }

unsafe extern "system" fn device_type(_: *const OrtMemoryInfo, out: *mut OrtMemoryInfoDeviceType) {
    if !out.is_null() {
        // SAFETY: the caller passes memory for the result.
        unsafe { out.write(OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU) }
    }
}

unsafe extern "system" fn device_memory_type(_: *const OrtMemoryInfo) -> OrtDeviceMemoryType {
    OrtDeviceMemoryType::OrtDeviceMemoryType_DEFAULT
}

pub(crate) fn add_to(api: &mut OrtApi) {
    add_functions(api);
    add_releases(api);
    api.MemoryInfoGetDeviceType = device_type;
    api.MemoryInfoGetDeviceMemType = device_memory_type;
}
