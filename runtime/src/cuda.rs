//! CUDA devices, by the driver API.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use autotune_ir::{Artifact, Code, GpuApi, GpuTarget, Launch};
use cudarc::driver::sys::{
    CUdevice, CUdevice_attribute as Attribute, CUdeviceptr, CUevent_flags, CUfunction_attribute,
    CUgraphInstantiate_flags, CUstreamCaptureMode,
};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaModule as DriverModule, CudaSlice, CudaStream, DevicePtr, DriverError,
    LaunchConfig, PushKernelArg, result, sys as driver_sys,
};
use cudarc::nvrtc::Ptx;

use crate::device::{Bound, Device, MemoryExtent, alignment_of, from, within, word_bytes};
use crate::error::{DeviceError, LoadError};
use crate::gpu::{ALIGNMENT, GpuInfo, matches, model, no_matching_device};

pub mod driver;
mod tensor_map;

use driver::{DriverFault, guarded};
use tensor_map::{MapPlan, TensorMap};

/// Error message if there is a driver but no device.
pub const NO_DEVICE: &str = "the CUDA driver finds no device (nvidia-smi must list one)";

/// Compute capability, times ten, from which kernels may use tensor maps.
const TENSOR_MAPS_SM: u32 = 90;

/// Returns the CUDA devices of this machine; the error says why there are none.
pub fn devices() -> Result<Vec<GpuInfo>, DeviceError> {
    list().map_err(DeviceError::Absent)
}

fn list() -> Result<Vec<GpuInfo>, String> {
    let driver = format!("CUDA driver {}", driver::version()?);
    let all = || -> Result<Vec<GpuInfo>, DriverError> {
        result::init()?;
        let count = result::device::get_count()?;
        (0..count).map(|ordinal| info(result::device::get(ordinal)?, &driver)).collect()
    };
    let devices = guarded(all).map_err(|fault| match fault {
        DriverFault::Call(DriverError(driver_sys::CUresult::CUDA_ERROR_NO_DEVICE)) => NO_DEVICE.into(),
        _ => format!("cannot initialise the CUDA driver: {fault}: if nvidia-smi also fails, reinstall the driver"),
    })?;
    if devices.is_empty() {
        return Err(NO_DEVICE.into());
    }
    // Other devices also work with drivers that lack these functions.
    if devices.iter().any(|info| matches!(info.target.api, GpuApi::Cuda { sm: TENSOR_MAPS_SM.. })) {
        driver::require_functions(&driver::TENSOR_MAP_FUNCTIONS)?;
    }
    Ok(devices)
}

fn info(device: CUdevice, driver: &str) -> Result<GpuInfo, DriverError> {
    // SAFETY: the driver listed this device.
    let get =
        |attribute: Attribute| unsafe { result::device::get_attribute(device, attribute) }.map(|v| v.max(0) as usize);
    let major = get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let name = result::device::get_name(device)?;
    let target = GpuTarget {
        api: GpuApi::Cuda { sm: (10 * major + minor) as u32 },
        model: model(&name),
        multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        warp_threads: get(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        threads_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        threads_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        shared_bytes_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_bytes_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        registers_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        registers_per_thread: 255,
        l2_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
    };
    Ok(GpuInfo { target, name, driver: driver.into() })
}

/// A CUDA device of this machine, with its own stream.
pub struct CudaDevice {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

/// A range of bytes in the memory of a CUDA device.
pub struct CudaMemory {
    address: CUdeviceptr,
    bytes: usize,
    context: Arc<CudaContext>,
    /// Allocation that contains it; `None` if the memory is borrowed from the caller.
    owner: Option<Arc<StreamAllocation>>,
}

/// Memory that is allocated and freed in the order of a stream.
struct StreamAllocation {
    slice: CudaSlice<u8>,
    /// True if another stream has used it; its work must finish before the memory is freed.
    is_shared: AtomicBool,
}

impl Drop for StreamAllocation {
    fn drop(&mut self) {
        if *self.is_shared.get_mut() {
            // If the device is lost, there is nothing to wait for.
            let _ = guarded(|| self.slice.context().synchronize());
        }
    }
}

/// Kernels of a plan's stages, with their launch configurations and tensor maps.
pub struct CudaModule(Vec<(CudaFunction, LaunchConfig, Vec<MapPlan>)>);

/// Kernels with their arguments.
pub struct CudaCall {
    launches: Vec<(CudaFunction, LaunchConfig, Vec<TensorMap>)>,
    pointers: Vec<CUdeviceptr>,
    /// Memory that the pointers refer to, kept alive.
    _buffers: Vec<CudaMemory>,
}

impl CudaDevice {
    /// Opens the first device of this machine, with a new stream.
    pub fn first() -> Result<Self, DeviceError> {
        devices()?;
        Self::with_stream(0, |context| context.new_stream())
    }

    /// Opens the device of this machine that matches `target`, with a new stream.
    pub fn open(target: &GpuTarget) -> Result<Self, DeviceError> {
        let all = devices()?;
        let found = all.iter().position(|info| matches(target, &info.target));
        let ordinal = found.ok_or_else(|| no_matching_device(target, all.iter()))?;
        Self::with_stream(ordinal, |context| context.new_stream())
    }

    /// Opens a device with a stream of the caller, in the primary context of device number
    /// `ordinal`. CUDA's runtime and its libraries use the same context.
    ///
    /// # Safety
    ///
    /// The stream must belong to that context and outlive the returned device.
    pub unsafe fn on_stream(ordinal: usize, stream: *mut c_void) -> Result<Self, DeviceError> {
        devices()?;
        // SAFETY: guaranteed by the caller.
        Self::with_stream(ordinal, |context| Ok(unsafe { context.wrap_borrowed_stream(stream.cast()) }))
    }

    /// Returns the same device with another stream, for use in another thread. Memory and modules
    /// are shared. Work started on one stream must be [finished](Device::finish) before another
    /// stream uses its results.
    pub fn new_stream(&self) -> Result<Self, DeviceError> {
        let stream = guarded(|| self.context.new_stream()).map_err(fault)?;
        Ok(Self { context: Arc::clone(&self.context), stream })
    }

    fn with_stream(
        ordinal: usize,
        stream: impl FnOnce(&Arc<CudaContext>) -> Result<Arc<CudaStream>, DriverError>,
    ) -> Result<Self, DeviceError> {
        let open = || -> Result<Self, DriverError> {
            let context = CudaContext::new(ordinal)?;
            // SAFETY: work on one stream runs in order, and users of several streams synchronise
            // them.
            unsafe { context.disable_event_tracking() };
            Ok(Self { stream: stream(&context)?, context })
        };
        guarded(open).map_err(|fault| DeviceError::Absent(format!("CUDA device {ordinal}: {fault}")))
    }

    /// Wraps memory owned by the caller on this device, such as a tensor of a compiler.
    ///
    /// # Safety
    ///
    /// `bytes` bytes from `address` must stay allocated in the device's primary context
    /// (`cudaMalloc`, `cuMemAlloc`) as long as the returned memory or a [part](Device::part) of it
    /// is used. Meanwhile nothing else, on any stream, may write them, or read them while they are
    /// written.
    pub unsafe fn wrap(&self, address: u64, bytes: usize) -> CudaMemory {
        CudaMemory { address, bytes, context: Arc::clone(&self.context), owner: None }
    }

    /// Calls the driver with this context, in any thread.
    fn call<T>(&self, work: impl FnOnce() -> Result<T, DriverError>) -> Result<T, DeviceError> {
        guarded(|| self.context.bind_to_thread().and_then(|()| work())).map_err(fault)
    }

    fn function(&self, module: &Arc<DriverModule>, symbol: &str, launch: &Launch) -> Result<CudaFunction, DriverError> {
        let function = module.load_function(symbol)?;
        let set = |attribute, value| {
            // SAFETY: the function belongs to the module.
            unsafe { result::function::set_function_attribute(function.cu_function(), attribute, value) }
        };
        set(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes as i32)?;
        if launch.shared_bytes > 0 {
            // Otherwise fewer blocks than the lowering assumed may fit on a multiprocessor.
            set(CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, ALL_SHARED)?;
        }
        Ok(function)
    }
}

fn fault(fault: DriverFault) -> DeviceError {
    DeviceError::fault(fault)
}

/// Percentage of a multiprocessor's on-chip memory that is preferred as shared memory, not as
/// cache.
const ALL_SHARED: i32 = 100;

impl CudaMemory {
    /// Returns the address of the first byte, in the device's primary context.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the address of a range; fails if it is out of bounds.
    fn at(&self, range: Range<usize>) -> Result<CUdeviceptr, DeviceError> {
        within(&range, self.bytes)?;
        Ok(self.address + range.start as CUdeviceptr)
    }
}

impl Device for CudaDevice {
    type Module = CudaModule;
    type Memory = CudaMemory;
    type Call = CudaCall;
    type Recording = CudaGraph;

    fn name(&self) -> String {
        "CUDA".into()
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn free_bytes(&self) -> Result<Option<usize>, DeviceError> {
        Ok(Some(self.call(result::mem_get_info)?.0))
    }

    unsafe fn load(&self, artifact: &Artifact) -> Result<CudaModule, DeviceError> {
        let Code::Cubin(cubin) = &artifact.code else {
            return Err(LoadError::Kind { device: self.name() }.into());
        };
        let plan = &artifact.plan;
        let refused = |message: String| DeviceError::Load(LoadError::Refused(message));
        let module = guarded(|| self.context.load_module(Ptx::from_binary(cubin.clone())));
        let module = module.map_err(|e| refused(e.to_string()))?;
        let stages = plan.stages.iter().map(|stage| {
            let launch = stage.launch.ok_or_else(|| refused(format!("stage {} is not for a GPU", stage.symbol)))?;
            let function = guarded(|| self.function(&module, &stage.symbol, &launch));
            let function = function.map_err(|e| refused(format!("{}: {e}", stage.symbol)))?;
            let maps: Result<_, String> = stage.boxes.iter().map(|one| MapPlan::new(plan, one)).collect();
            let launch = LaunchConfig {
                grid_dim: (launch.blocks as u32, 1, 1),
                block_dim: (launch.threads as u32, 1, 1),
                shared_mem_bytes: launch.shared_bytes as u32,
            };
            Ok((function, launch, maps.map_err(refused)?))
        });
        Ok(CudaModule(stages.collect::<Result<_, DeviceError>>()?))
    }

    fn allocate(&self, bytes: usize) -> Result<CudaMemory, DeviceError> {
        let out_of = driver_sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        // SAFETY: the content is uninitialised, which any device memory may be until it is written.
        let slice = guarded(|| unsafe { self.stream.alloc(bytes.max(1)) }).map_err(|e| match e {
            DriverFault::Call(DriverError(code)) if code == out_of => {
                DeviceError::OutOfMemory { message: format!("{e}: {bytes} bytes were asked for") }
            }
            _ => fault(e),
        })?;
        let address = slice.device_ptr(&self.stream).0;
        let owner = Arc::new(StreamAllocation { slice, is_shared: AtomicBool::new(false) });
        Ok(CudaMemory { address, bytes: bytes.max(1), context: Arc::clone(&self.context), owner: Some(owner) })
    }

    unsafe fn part(&self, memory: &CudaMemory, bytes: Range<usize>) -> Result<CudaMemory, DeviceError> {
        Ok(CudaMemory {
            address: memory.at(bytes.clone())?,
            bytes: bytes.len(),
            context: Arc::clone(&memory.context),
            owner: memory.owner.clone(),
        })
    }

    fn extent(&self, memory: &CudaMemory) -> MemoryExtent {
        MemoryExtent { bytes: memory.bytes, alignment: alignment_of(memory.address as usize) }
    }

    fn holds(&self, memory: &CudaMemory) -> bool {
        self.context.cu_ctx() == memory.context.cu_ctx()
    }

    fn fill(&self, memory: &mut CudaMemory, words: Range<usize>, word: u32) -> Result<(), DeviceError> {
        let (address, stream) = (memory.at(word_bytes(&words))?, self.stream.cu_stream());
        // SAFETY: the range is in the memory.
        self.call(|| unsafe { driver_sys::cuMemsetD32Async(address, word, words.len(), stream) }.result())
    }

    fn write(&self, memory: &mut CudaMemory, first_byte: usize, content: &[u8]) -> Result<(), DeviceError> {
        let (address, stream) = (memory.at(from(first_byte, content.len()))?, self.stream.cu_stream());
        // SAFETY: the range is in the memory, and the content lives until the copy is finished.
        self.call(|| unsafe { result::memcpy_htod_async(address, content, stream) })?;
        self.finish()
    }

    fn read(&self, memory: &CudaMemory, first_byte: usize, content: &mut [u8]) -> Result<(), DeviceError> {
        let (address, stream) = (memory.at(from(first_byte, content.len()))?, self.stream.cu_stream());
        // SAFETY: as in `write`.
        self.call(|| unsafe { result::memcpy_dtoh_async(content, address, stream) })?;
        self.finish()
    }

    fn copy(&self, from: &CudaMemory, to: &mut CudaMemory, bytes: usize) -> Result<(), DeviceError> {
        let (source, target, stream) = (from.at(0..bytes)?, to.at(0..bytes)?, self.stream.cu_stream());
        // SAFETY: both memories have that many bytes, and are freed in the order of the stream.
        self.call(|| unsafe { result::memcpy_dtod_async(target, source, bytes, stream) })
    }

    unsafe fn bind(
        &self,
        module: &CudaModule,
        stages: &[usize],
        memory: Bound<CudaMemory>,
    ) -> Result<CudaCall, DeviceError> {
        let buffers = memory.buffers;
        for block in buffers.iter().filter_map(|buffer| buffer.owner.as_ref()) {
            // Memory is freed in the order of its own stream only.
            if !Arc::ptr_eq(block.slice.stream(), &self.stream) {
                block.is_shared.store(true, Ordering::Relaxed);
            }
        }

        let pointers: Vec<CUdeviceptr> = buffers.iter().map(|buffer| buffer.address).collect();
        let encode = |plan: &MapPlan| {
            plan.encode(*pointers.get(plan.buffer).ok_or("the buffer of a tensor map does not exist")?)
        };
        let launch = |&number: &usize| -> Result<_, DeviceError> {
            let stage =
                module.0.get(number).ok_or_else(|| DeviceError::fault(format!("the kernel has no stage {number}")))?;
            let (function, launch, maps) = stage;
            let maps: Result<Vec<TensorMap>, String> = maps.iter().map(encode).collect();
            Ok((function.clone(), *launch, maps.map_err(DeviceError::fault)?))
        };
        let launches = stages.iter().map(launch).collect::<Result<_, _>>()?;
        Ok(CudaCall { launches, pointers, _buffers: buffers })
    }

    fn start(&self, call: &CudaCall) -> Result<(), DeviceError> {
        for (function, grid, maps) in &call.launches {
            let mut launch = self.stream.launch_builder(function);
            call.pointers.iter().for_each(|pointer| {
                launch.arg(pointer);
            });
            maps.iter().for_each(|map| {
                launch.arg(map);
            });
            // SAFETY: a kernel's parameters are the plan's global buffers and tensor maps, in
            // order. The caller of `load` guaranteed that it stays within them.
            guarded(|| unsafe { launch.launch(*grid) }).map_err(fault)?;
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), DeviceError> {
        guarded(|| self.stream.synchronize()).map_err(fault)
    }

    /// Records a CUDA graph by stream capture.
    fn record(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Option<CudaGraph> {
        // The thread-local mode permits other threads to call the driver during the capture.
        guarded(|| self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)).ok()?;
        let recorded = work();
        // The capture must be ended even if the work failed.
        let graph = guarded(|| self.stream.end_capture(CUgraphInstantiate_flags(0))).ok()??;
        recorded.ok()?;
        guarded(|| graph.upload()).ok()?;
        Some(graph)
    }

    fn replay(&self, recording: &CudaGraph) -> Result<(), DeviceError> {
        guarded(|| recording.launch()).map_err(fault)
    }

    /// Measures with the device's clock, between two events around the work.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        let record = || guarded(|| self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))).map_err(fault);
        let start = record()?;
        work()?;
        let end = record()?;
        Ok(f64::from(guarded(|| start.elapsed_ms(&end)).map_err(fault)?) * 1e-3)
    }
}
