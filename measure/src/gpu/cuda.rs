//! CUDA devices.

use std::rc::Rc;
use std::sync::Arc;

use autotune_ir::{GpuApi, GpuTarget, KernelPlan, Launch};
use cudarc::driver::sys::{
    CUdevice, CUdevice_attribute as Attribute, CUdeviceptr, CUevent_flags, CUfunction_attribute,
    CUgraphInstantiate_flags, CUstreamCaptureMode,
};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaModule, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig,
    PushKernelArg, result, sys as driver_sys,
};
use cudarc::nvrtc::Ptx;

use super::driver::{self, DriverFault, guarded};
use super::tensor_map::{MapPlan, TensorMap};
use super::{Device, GpuInfo, is_meant, model};
use crate::builder::Code;
use crate::measurement::CandidateError;

/// Why there is no device where there is a driver.
pub(crate) const NO_DEVICE: &str = "the CUDA driver finds no device (nvidia-smi must list one)";

/// Compute capability, times ten, from which kernels have tensor maps.
const TENSOR_MAPS_SM: u32 = 90;

/// The CUDA devices of this machine; why there are none.
pub fn devices() -> Result<Vec<GpuInfo>, String> {
    let driver = format!("CUDA driver {}", driver::version()?);
    let list = || -> Result<Vec<GpuInfo>, DriverError> {
        result::init()?;
        let count = result::device::get_count()?;
        (0..count).map(|ordinal| info(result::device::get(ordinal)?, &driver)).collect()
    };
    let devices = guarded(list).map_err(|fault| match fault {
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
pub(crate) struct CudaDevice {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

/// Kernels of a plan's stages, with their launches and the tensor maps that they take.
pub(crate) struct Module(Vec<(CudaFunction, LaunchConfig, Vec<MapPlan>)>);

/// A kernel with its parameters.
pub(crate) struct Call {
    function: CudaFunction,
    launch: LaunchConfig,
    pointers: Vec<CUdeviceptr>,
    maps: Vec<TensorMap>,
    /// What the pointers are to lives as long.
    _buffers: Vec<Rc<CudaSlice<u8>>>,
}

impl CudaDevice {
    /// The device that the target means, or why there is none.
    pub(crate) fn open(target: &GpuTarget) -> Result<Self, String> {
        let found = devices()?.iter().position(|info| is_meant(target, &info.target));
        let ordinal = found.ok_or_else(|| format!("this machine has no {}", target.key()))?;
        let open = || -> Result<Self, DriverError> {
            let context = CudaContext::new(ordinal)?;
            // SAFETY: everything is done on one stream, in order.
            unsafe { context.disable_event_tracking() };
            Ok(Self { stream: context.new_stream()?, context })
        };
        guarded(open).map_err(|fault| format!("CUDA device {ordinal}: {fault}"))
    }

    fn address(&self, memory: &CudaSlice<u8>, first_byte: usize) -> CUdeviceptr {
        memory.device_ptr(&self.stream).0 + first_byte as CUdeviceptr
    }

    fn function(&self, module: &Arc<CudaModule>, symbol: &str, launch: &Launch) -> Result<CudaFunction, DriverError> {
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

fn fault(fault: DriverFault) -> CandidateError {
    CandidateError::Crash { message: fault.to_string() }
}

/// Percent of a multiprocessor's memory that are to be shared memory rather than cache.
const ALL_SHARED: i32 = 100;

impl Device for CudaDevice {
    type Module = Module;
    type Memory = CudaSlice<u8>;
    type Call = Call;
    type Recording = CudaGraph;

    fn load(&self, code: &Code, plan: &KernelPlan) -> Result<Module, CandidateError> {
        let refused = |message: String| CandidateError::Build { message };
        let Code::Cubin(cubin) = code else {
            return Err(refused("it was not compiled for CUDA".into()));
        };
        let module = guarded(|| self.context.load_module(Ptx::from_binary(cubin.clone())))
            .map_err(|e| refused(e.to_string()))?;
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
        Ok(Module(stages.collect::<Result<_, _>>()?))
    }

    fn allocate(&self, bytes: usize) -> Result<CudaSlice<u8>, CandidateError> {
        let out_of = driver_sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        // SAFETY: the bytes may be anything, and whoever reads them knows.
        guarded(|| unsafe { self.stream.alloc(bytes.max(1)) }).map_err(|e| match e {
            DriverFault::Call(DriverError(code)) if code == out_of => {
                CandidateError::OutOfMemory { message: e.to_string() }
            }
            _ => fault(e),
        })
    }

    fn fill(&self, memory: &CudaSlice<u8>, fill_words: usize, word: u32) -> Result<(), CandidateError> {
        within(memory, 0, 4 * fill_words)?;
        let (address, stream) = (self.address(memory, 0), self.stream.cu_stream());
        // SAFETY: so many words are in the memory.
        guarded(|| unsafe { driver_sys::cuMemsetD32Async(address, word, fill_words, stream) }.result()).map_err(fault)
    }

    fn write(&self, memory: &CudaSlice<u8>, first_byte: usize, content: &[u8]) -> Result<(), CandidateError> {
        within(memory, first_byte, content.len())?;
        let (address, stream) = (self.address(memory, first_byte), self.stream.cu_stream());
        // SAFETY: so many bytes are in the memory, and the content lives until they are copied.
        guarded(|| unsafe { result::memcpy_htod_async(address, content, stream) }).map_err(fault)?;
        guarded(|| self.stream.synchronize()).map_err(fault)
    }

    fn read(&self, memory: &CudaSlice<u8>, first_byte: usize, content: &mut [u8]) -> Result<(), CandidateError> {
        within(memory, first_byte, content.len())?;
        let (address, stream) = (self.address(memory, first_byte), self.stream.cu_stream());
        // SAFETY: as in `write`.
        guarded(|| unsafe { result::memcpy_dtoh_async(content, address, stream) }).map_err(fault)?;
        guarded(|| self.stream.synchronize()).map_err(fault)
    }

    fn copy(&self, from: &CudaSlice<u8>, to: &CudaSlice<u8>, bytes: usize) -> Result<(), CandidateError> {
        within(from, 0, bytes)?;
        within(to, 0, bytes)?;
        let (source, target, stream) = (self.address(from, 0), self.address(to, 0), self.stream.cu_stream());
        // SAFETY: both have so many bytes, and are freed in the order of the stream.
        guarded(|| unsafe { result::memcpy_dtod_async(target, source, bytes, stream) }).map_err(fault)
    }

    fn bind(&self, module: &Module, number: usize, buffers: &[Rc<CudaSlice<u8>>]) -> Result<Call, CandidateError> {
        let crash = |message: String| CandidateError::Crash { message };
        let (function, launch, maps) = module.0.get(number).ok_or_else(|| crash(format!("no stage {number}")))?;
        let pointers: Vec<CUdeviceptr> = buffers.iter().map(|buffer| self.address(buffer, 0)).collect();
        let encode = |plan: &MapPlan| plan.encode(*pointers.get(plan.buffer).ok_or("a box of no buffer")?);
        let maps: Result<Vec<TensorMap>, String> = maps.iter().map(encode).collect();
        Ok(Call {
            function: function.clone(),
            launch: *launch,
            maps: maps.map_err(crash)?,
            pointers,
            _buffers: buffers.to_vec(),
        })
    }

    fn start(&self, bound: &Call) -> Result<(), CandidateError> {
        let mut launch = self.stream.launch_builder(&bound.function);
        bound.pointers.iter().for_each(|pointer| {
            launch.arg(pointer);
        });
        bound.maps.iter().for_each(|map| {
            launch.arg(map);
        });
        // SAFETY: the parameters of a kernel are its plan's global buffers and tensor maps, in order. That it stays within them is what
        // whoever measures generated code takes upon himself.
        guarded(|| unsafe { launch.launch(bound.launch) }).map_err(fault)?;
        Ok(())
    }

    /// As a graph.
    fn record(&self, work: &mut dyn FnMut() -> Result<(), CandidateError>) -> Option<CudaGraph> {
        guarded(|| self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)).ok()?;
        let recorded = work();
        // The capture has to end, whatever became of it.
        let graph = guarded(|| self.stream.end_capture(CUgraphInstantiate_flags(0))).ok()??;
        recorded.ok()?;
        guarded(|| graph.upload()).ok()?;
        Some(graph)
    }

    fn replay(&self, recording: &CudaGraph) -> Result<(), CandidateError> {
        guarded(|| recording.launch()).map_err(fault)
    }

    /// By the device's clock, between two events around the work.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), CandidateError>) -> Result<f64, CandidateError> {
        let record = || guarded(|| self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))).map_err(fault);
        let start = record()?;
        work()?;
        let end = record()?;
        Ok(f64::from(guarded(|| start.elapsed_ms(&end)).map_err(fault)?) * 1e-3)
    }
}

/// Refuses what is not within a memory.
fn within(memory: &CudaSlice<u8>, first_byte: usize, bytes: usize) -> Result<(), CandidateError> {
    match first_byte.checked_add(bytes) {
        Some(end) if end <= memory.len() => Ok(()),
        _ => Err(CandidateError::Crash { message: "more than a buffer holds".into() }),
    }
}
