//! Tables of functions that ONNX Runtime calls, and those that it offers to execution providers, as
//! in `onnxruntime_ep_c_api.h` of version 1.23, and of 1.25 for profiles. Later versions only
//! append to them.

use std::ffi::{c_char, c_int, c_void};

use ort_sys::{
    OrtAllocator, OrtEpDevice, OrtGraph, OrtHardwareDevice, OrtKernelContext, OrtKeyValuePairs, OrtLogger,
    OrtMemoryInfo, OrtNode, OrtRunOptions, OrtSessionOptions, OrtStatusPtr,
};

/// Version of the API of the tables in this file, except for those of profiles.
pub(crate) const VERSION: u32 = 23;

/// Version of the API of a provider with profiles.
pub(crate) const PROFILED_VERSION: u32 = 25;

/// Functions that ONNX Runtime offers to execution providers; the first ones of its table.
#[repr(C)]
pub(crate) struct EpApi {
    pub(crate) create_ep_device: unsafe extern "system" fn(
        factory: *mut EpFactory,
        device: *const OrtHardwareDevice,
        metadata: *const OrtKeyValuePairs,
        options: *const OrtKeyValuePairs,
        out: *mut *mut OrtEpDevice,
    ) -> OrtStatusPtr,
    pub(crate) release_ep_device: unsafe extern "system" fn(device: *mut OrtEpDevice),
    pub(crate) add_nodes_to_fuse: unsafe extern "system" fn(
        support: *mut GraphSupport,
        nodes: *const *const OrtNode,
        count: usize,
        options: *const FusionOptions,
    ) -> OrtStatusPtr,
}

/// Functions that ONNX Runtime offers to execution providers, from version 1.25 on.
#[repr(C)]
pub(crate) struct ProfilingTable {
    /// Functions for other purposes.
    _others: [*const c_void; 65],
    pub(crate) profiling: ProfilingApi,
}

/// Functions for profiles.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProfilingApi {
    pub(crate) create_event: unsafe extern "system" fn(
        category: c_int,
        process: i32,
        thread: i32,
        name: *const c_char,
        start_micros: i64,
        micros: i64,
        keys: *const *const c_char,
        values: *const *const c_char,
        count: usize,
        out: *mut *mut ProfilingEvent,
    ) -> OrtStatusPtr,
    pub(crate) release_event: unsafe extern "system" fn(event: *mut ProfilingEvent),
    /// Functions that read an event.
    _reading: [*const c_void; 5],
    /// Copies events to a profile.
    pub(crate) add_events: unsafe extern "system" fn(
        profile: *mut ProfilingEvents,
        events: *const *const ProfilingEvent,
        count: usize,
    ) -> OrtStatusPtr,
}

/// Opaque event of a profile.
#[repr(C)]
pub(crate) struct ProfilingEvent {
    _opaque: [u8; 0],
}

/// Opaque profile to which a provider adds its events.
#[repr(C)]
pub(crate) struct ProfilingEvents {
    _opaque: [u8; 0],
}

/// Profiler of a provider: `OrtEpProfilerImpl`.
#[repr(C)]
pub(crate) struct ProfilerTable {
    pub(crate) version: u32,
    pub(crate) release: unsafe extern "system" fn(this: *mut ProfilerTable),
    pub(crate) start: unsafe extern "system" fn(this: *mut ProfilerTable, offset_nanos: i64) -> OrtStatusPtr,
    pub(crate) start_event: unsafe extern "system" fn(this: *mut ProfilerTable, event: u64) -> OrtStatusPtr,
    pub(crate) stop_event:
        unsafe extern "system" fn(this: *mut ProfilerTable, event: u64, of: *const ProfilingEvent) -> OrtStatusPtr,
    pub(crate) end: unsafe extern "system" fn(this: *mut ProfilerTable, out: *mut ProfilingEvents) -> OrtStatusPtr,
}

/// Opaque list of the nodes that a provider takes.
#[repr(C)]
pub(crate) struct GraphSupport {
    _opaque: [u8; 0],
}

/// Options of the fusion of nodes.
#[repr(C)]
pub(crate) struct FusionOptions {
    pub(crate) version: u32,
    /// True if the provider keeps the constants that the nodes use.
    pub(crate) drops_constants: bool,
}

/// Factory of a provider: `OrtEpFactory`.
#[repr(C)]
pub struct EpFactory {
    pub(crate) version: u32,
    pub(crate) name: unsafe extern "system" fn(this: *const EpFactory) -> *const c_char,
    pub(crate) vendor: unsafe extern "system" fn(this: *const EpFactory) -> *const c_char,
    pub(crate) supported_devices: unsafe extern "system" fn(
        this: *mut EpFactory,
        devices: *const *const OrtHardwareDevice,
        count: usize,
        out: *mut *mut OrtEpDevice,
        most: usize,
        out_count: *mut usize,
    ) -> OrtStatusPtr,
    pub(crate) create_ep: unsafe extern "system" fn(
        this: *mut EpFactory,
        devices: *const *const OrtHardwareDevice,
        metadata: *const *const OrtKeyValuePairs,
        count: usize,
        options: *const OrtSessionOptions,
        logger: *const OrtLogger,
        out: *mut *mut Ep,
    ) -> OrtStatusPtr,
    pub(crate) release_ep: unsafe extern "system" fn(this: *mut EpFactory, ep: *mut Ep),
    pub(crate) vendor_id: unsafe extern "system" fn(this: *const EpFactory) -> u32,
    pub(crate) library_version: unsafe extern "system" fn(this: *const EpFactory) -> *const c_char,
    pub(crate) validate_compiled: unsafe extern "system" fn(
        this: *mut EpFactory,
        devices: *const *const OrtHardwareDevice,
        count: usize,
        info: *const c_char,
        out: *mut c_int,
    ) -> OrtStatusPtr,
    pub(crate) create_allocator: unsafe extern "system" fn(
        this: *mut EpFactory,
        info: *const OrtMemoryInfo,
        options: *const OrtKeyValuePairs,
        out: *mut *mut OrtAllocator,
    ) -> OrtStatusPtr,
    pub(crate) release_allocator: unsafe extern "system" fn(this: *mut EpFactory, allocator: *mut OrtAllocator),
    pub(crate) create_data_transfer:
        unsafe extern "system" fn(this: *mut EpFactory, out: *mut *mut c_void) -> OrtStatusPtr,
    pub(crate) is_stream_aware: unsafe extern "system" fn(this: *const EpFactory) -> bool,
    pub(crate) create_sync_stream: unsafe extern "system" fn(
        this: *mut EpFactory,
        device: *const c_void,
        options: *const OrtKeyValuePairs,
        out: *mut *mut c_void,
    ) -> OrtStatusPtr,
}

/// A provider in a session: `OrtEp`. Functions without a value are optional.
#[repr(C)]
pub(crate) struct Ep {
    pub(crate) version: u32,
    pub(crate) name: unsafe extern "system" fn(this: *const Ep) -> *const c_char,
    pub(crate) capability:
        unsafe extern "system" fn(this: *mut Ep, graph: *const OrtGraph, support: *mut GraphSupport) -> OrtStatusPtr,
    pub(crate) compile: unsafe extern "system" fn(
        this: *mut Ep,
        graphs: *const *const OrtGraph,
        fused: *const *const OrtNode,
        count: usize,
        out: *mut *mut ComputeInfo,
        context_nodes: *mut *mut OrtNode,
    ) -> OrtStatusPtr,
    pub(crate) release_compute_infos:
        unsafe extern "system" fn(this: *mut Ep, infos: *mut *mut ComputeInfo, count: usize),
    pub(crate) preferred_layout: Option<unsafe extern "system" fn(this: *mut Ep, out: *mut c_int) -> OrtStatusPtr>,
    pub(crate) converts_layout: Option<
        unsafe extern "system" fn(
            this: *mut Ep,
            domain: *const c_char,
            operator: *const c_char,
            layout: c_int,
            out: *mut c_int,
        ) -> OrtStatusPtr,
    >,
    pub(crate) set_dynamic_options: Option<
        unsafe extern "system" fn(
            this: *mut Ep,
            keys: *const *const c_char,
            values: *const *const c_char,
            count: usize,
        ) -> OrtStatusPtr,
    >,
    pub(crate) on_run_start:
        Option<unsafe extern "system" fn(this: *mut Ep, options: *const OrtRunOptions) -> OrtStatusPtr>,
    pub(crate) on_run_end:
        Option<unsafe extern "system" fn(this: *mut Ep, options: *const OrtRunOptions, syncs: bool) -> OrtStatusPtr>,
    pub(crate) create_allocator: Option<
        unsafe extern "system" fn(
            this: *mut Ep,
            info: *const OrtMemoryInfo,
            out: *mut *mut OrtAllocator,
        ) -> OrtStatusPtr,
    >,
    pub(crate) create_sync_stream:
        Option<unsafe extern "system" fn(this: *mut Ep, device: *const c_void, out: *mut *mut c_void) -> OrtStatusPtr>,
    pub(crate) compatibility_info:
        Option<unsafe extern "system" fn(this: *mut Ep, graph: *const OrtGraph) -> *const c_char>,
    // Members from version 1.24 on.
    pub(crate) kernel_registry:
        Option<unsafe extern "system" fn(this: *mut Ep, out: *mut *const c_void) -> OrtStatusPtr>,
    pub(crate) may_run_concurrently: Option<unsafe extern "system" fn(this: *mut Ep, out: *mut bool) -> OrtStatusPtr>,
    pub(crate) sync: Option<unsafe extern "system" fn(this: *mut Ep) -> OrtStatusPtr>,
    pub(crate) create_profiler:
        Option<unsafe extern "system" fn(this: *mut Ep, out: *mut *mut ProfilerTable) -> OrtStatusPtr>,
}

/// Functions of a compiled part of a model: `OrtNodeComputeInfo`.
#[repr(C)]
pub(crate) struct ComputeInfo {
    pub(crate) version: u32,
    pub(crate) create_state:
        unsafe extern "system" fn(this: *mut ComputeInfo, context: *mut c_void, out: *mut *mut c_void) -> OrtStatusPtr,
    pub(crate) compute: unsafe extern "system" fn(
        this: *mut ComputeInfo,
        state: *mut c_void,
        context: *mut OrtKernelContext,
    ) -> OrtStatusPtr,
    pub(crate) release_state: unsafe extern "system" fn(this: *mut ComputeInfo, state: *mut c_void),
}
