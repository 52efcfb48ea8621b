//! CUDA devices.

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

use crate::device::{Bound, Device, Extent, alignment_of, from, within, word_bytes};
use crate::error::{DeviceError, LoadError};
use crate::gpu::{ALIGNMENT, GpuInfo, is_meant, model, none_meant};

pub mod driver;
mod tensor_map;

use driver::{DriverFault, guarded};
use tensor_map::{MapPlan, TensorMap};

/// Why there is no device where there is a driver.
pub const NO_DEVICE: &str = "the CUDA driver finds no device (nvidia-smi must list one)";

/// Compute capability, times ten, from which kernels have tensor maps.
const TENSOR_MAPS_SM: u32 = 90;

/// The CUDA devices of this machine; why there are none.
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
        _ => format!("the CUDA driver does not start: {fault}: if nvidia-smi fails, too, install the driver anew"),
    })?;
    if devices.is_empty() {
        return Err(NO_DEVICE.into());
    }
    if devices.iter().any(|info| matches!(info.target.api, GpuApi::Cuda { sm: TENSOR_MAPS_SM.. })) {
        driver::look_for(&driver::TENSOR_MAP_FUNCTIONS)?;
    }
    Ok(devices)
}

fn info(device: CUdevice, driver: &str) -> Result<GpuInfo, DriverError> {
    // SAFETY: the device is one of those that the driver lists.
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

/// A CUDA device of this machine, with a stream of its own.
pub struct CudaDevice {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

/// A range of bytes on a CUDA device.
pub struct CudaMemory {
    address: CUdeviceptr,
    bytes: usize,
    context: Arc<CudaContext>,
    /// What it is a part of; `None` if that is somebody else's.
    owner: Option<Arc<Block>>,
}

/// Memory that was allocated in the order of a stream, and is freed in it.
struct Block {
    slice: CudaSlice<u8>,
    /// True once another stream used it, whose work must be over before it is freed.
    is_shared: AtomicBool,
}

impl Drop for Block {
    fn drop(&mut self) {
        if *self.is_shared.get_mut() {
            // A device that is lost has nothing left to wait for.
            let _ = guarded(|| self.slice.context().synchronize());
        }
    }
}

/// Kernels of a plan's stages, with their launches and the tensor maps that they take.
pub struct CudaModule(Vec<(CudaFunction, LaunchConfig, Vec<MapPlan>)>);

/// Kernels with their parameters.
pub struct CudaCall {
    launches: Vec<(CudaFunction, LaunchConfig, Vec<TensorMap>)>,
    pointers: Vec<CUdeviceptr>,
    /// What the pointers are to lives as long.
    _buffers: Vec<CudaMemory>,
}

impl CudaDevice {
    /// The first device of this machine.
    pub fn first() -> Result<Self, DeviceError> {
        devices()?;
        Self::with_stream(0, |context| context.new_stream())
    }

    /// The device of this machine that the target means.
    pub fn open(target: &GpuTarget) -> Result<Self, DeviceError> {
        let all = devices()?;
        let found = all.iter().position(|info| is_meant(target, &info.target));
        let ordinal = found.ok_or_else(|| none_meant(target, all.iter()))?;
        Self::with_stream(ordinal, |context| context.new_stream())
    }

    /// A device on a stream of the caller's, in the primary context of the device of that number,
    /// which CUDA's runtime and its libraries use, too.
    ///
    /// # Safety
    ///
    /// The stream is one of that context, and outlives this.
    pub unsafe fn on_stream(ordinal: usize, stream: *mut c_void) -> Result<Self, DeviceError> {
        devices()?;
        // SAFETY: the caller's promise.
        Self::with_stream(ordinal, |context| Ok(unsafe { context.wrap_borrowed_stream(stream.cast()) }))
    }

    /// The same device with another stream: for another thread. Memory and modules are shared; what
    /// one stream starts, others must [wait](Device::finish) for themselves.
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
            // SAFETY: what is done on one stream is done in order, and who has several waits.
            unsafe { context.disable_event_tracking() };
            Ok(Self { stream: stream(&context)?, context })
        };
        guarded(open).map_err(|fault| DeviceError::Absent(format!("CUDA device {ordinal}: {fault}")))
    }

    /// Memory of somebody else on this device, such as a tensor of a compiler.
    ///
    /// # Safety
    ///
    /// So many bytes from `address` on are allocated in the device's primary context (`cudaMalloc`,
    /// `cuMemAlloc`) as long as this or a [part](Device::part) of it is in use, and nobody else
    /// writes them meanwhile, or reads them while they are written, by any stream.
    pub unsafe fn wrap(&self, address: u64, bytes: usize) -> CudaMemory {
        CudaMemory { address, bytes, context: Arc::clone(&self.context), owner: None }
    }

    /// Calls the driver in the context, in whatever thread this is.
    fn call<T>(&self, work: impl FnOnce() -> Result<T, DriverError>) -> Result<T, DeviceError> {
        guarded(|| self.context.bind_to_thread().and_then(|()| work())).map_err(fault)
    }

    fn function(&self, module: &Arc<DriverModule>, symbol: &str, launch: &Launch) -> Result<CudaFunction, DriverError> {
        let function = module.load_function(symbol)?;
        let set = |attribute, value| {
            // SAFETY: the function is that of the module.
            unsafe { result::function::set_function_attribute(function.cu_function(), attribute, value) }
        };
        set(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes as i32)?;
        if launch.shared_bytes > 0 {
            // So that as many blocks as the lowering counted on fit a multiprocessor.
            set(CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, ALL_SHARED)?;
        }
        Ok(function)
    }
}

fn fault(fault: DriverFault) -> DeviceError {
    DeviceError::fault(fault)
}

/// Percent of a multiprocessor's memory that are to be shared memory rather than cache.
const ALL_SHARED: i32 = 100;

impl CudaMemory {
    /// The address of its first byte, in the device's primary context.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The address of a range of it.
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
        // SAFETY: the bytes may be anything, and whoever reads them knows.
        let slice = guarded(|| unsafe { self.stream.alloc(bytes.max(1)) }).map_err(|e| match e {
            DriverFault::Call(DriverError(code)) if code == out_of => {
                DeviceError::OutOfMemory { message: e.to_string() }
            }
            _ => fault(e),
        })?;
        let address = slice.device_ptr(&self.stream).0;
        let owner = Arc::new(Block { slice, is_shared: AtomicBool::new(false) });
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

    fn extent(&self, memory: &CudaMemory) -> Extent {
        Extent { bytes: memory.bytes, alignment: alignment_of(memory.address as usize) }
    }

    fn holds(&self, memory: &CudaMemory) -> bool {
        self.context.cu_ctx() == memory.context.cu_ctx()
    }

    fn fill(&self, memory: &mut CudaMemory, words: Range<usize>, word: u32) -> Result<(), DeviceError> {
        let (address, stream) = (memory.at(word_bytes(&words))?, self.stream.cu_stream());
        // SAFETY: so many words are in the memory.
        self.call(|| unsafe { driver_sys::cuMemsetD32Async(address, word, words.len(), stream) }.result())
    }

    fn write(&self, memory: &mut CudaMemory, first_byte: usize, content: &[u8]) -> Result<(), DeviceError> {
        let (address, stream) = (memory.at(from(first_byte, content.len()))?, self.stream.cu_stream());
        // SAFETY: so many bytes are in the memory, and the content lives until they are copied.
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
        // SAFETY: both have so many bytes, and are freed in the order of the stream.
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
            if !Arc::ptr_eq(block.slice.stream(), &self.stream) {
                block.is_shared.store(true, Ordering::Relaxed);
            }
        }
        let pointers: Vec<CUdeviceptr> = buffers.iter().map(|buffer| buffer.address).collect();
        let encode = |plan: &MapPlan| plan.encode(*pointers.get(plan.buffer).ok_or("a box of no buffer")?);
        let launch = |&number: &usize| -> Result<_, DeviceError> {
            let stage = module.0.get(number).ok_or_else(|| DeviceError::fault(format!("no stage {number}")))?;
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
            // SAFETY: the parameters of a kernel are its plan's global buffers and tensor maps, in
            // order. That it stays within them, whoever loaded it vouched for.
            guarded(|| unsafe { launch.launch(*grid) }).map_err(fault)?;
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), DeviceError> {
        guarded(|| self.stream.synchronize()).map_err(fault)
    }

    /// As a graph.
    fn record(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Option<CudaGraph> {
        guarded(|| self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)).ok()?;
        let recorded = work();
        // The capture has to end, whatever became of it.
        let graph = guarded(|| self.stream.end_capture(CUgraphInstantiate_flags(0))).ok()??;
        recorded.ok()?;
        guarded(|| graph.upload()).ok()?;
        Some(graph)
    }

    fn replay(&self, recording: &CudaGraph) -> Result<(), DeviceError> {
        guarded(|| recording.launch()).map_err(fault)
    }

    /// By the device's clock, between two events around the work.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        let record = || guarded(|| self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))).map_err(fault);
        let start = record()?;
        work()?;
        let end = record()?;
        Ok(f64::from(guarded(|| start.elapsed_ms(&end)).map_err(fault)?) * 1e-3)
    }
}
