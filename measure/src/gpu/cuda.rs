//! CUDA devices.

use std::sync::Arc;

use autotune_schedules::{GpuApi, GpuTarget, KernelPlan, Launch};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUevent_flags, CUfunction_attribute_enum};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig, PushKernelArg, result,
    sys as driver_sys,
};
use cudarc::nvrtc::Ptx;

use super::driver::{self, DriverFault};
use super::tensor_map::{MapPlan, TensorMap};
use super::{Device, GpuInfo, is_meant, model};
use crate::builder::Code;
use crate::measurement::CandidateError;

/// Why there is no device where there is a driver.
pub(crate) const NO_DEVICE: &str =
    "the CUDA driver finds no device that it can use (nvidia-smi lists those of this machine)";

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
    let devices = driver::guarded(list).map_err(|fault| format!("{NO_DEVICE}: {fault}"))?;
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

/// A CUDA device of this machine.
pub(crate) struct CudaDevice {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

/// Kernels of a plan's stages, with their launches and the tensor maps that they take.
pub(crate) struct Module(Vec<(CudaFunction, Launch, Vec<MapPlan>)>);

impl CudaDevice {
    /// The device that the target means, or why there is none.
    pub(crate) fn open(target: &GpuTarget) -> Result<Self, String> {
        let found = devices()?.iter().position(|info| is_meant(target, &info.target));
        let ordinal = found.ok_or_else(|| format!("this machine has no {}", target.key()))?;
        let open = || -> Result<Self, DriverError> {
            let context = CudaContext::new(ordinal)?;
            Ok(Self { stream: context.default_stream(), context })
        };
        driver::guarded(open).map_err(|fault| format!("CUDA device {ordinal}: {fault}"))
    }
}

/// The driver's words for an error.
fn words(error: DriverError) -> String {
    DriverFault::Call(error).to_string()
}

fn fault(error: DriverError) -> CandidateError {
    CandidateError::Crash { message: words(error) }
}

impl Device for CudaDevice {
    type Module = Module;
    type Memory = CudaSlice<u8>;

    fn load(&self, code: &Code, plan: &KernelPlan) -> Result<Module, CandidateError> {
        let refused = |message: String| CandidateError::Build { message };
        let Code::Cubin(cubin) = code else {
            return Err(refused("it was not compiled for CUDA".into()));
        };
        let module = self.context.load_module(Ptx::from_binary(cubin.clone())).map_err(|e| refused(words(e)))?;
        let stages = plan.stages.iter().map(|stage| {
            let launch = stage.launch.ok_or_else(|| refused(format!("stage {} is not for a GPU", stage.symbol)))?;
            let named = |e| refused(format!("{}: {}", stage.symbol, words(e)));
            let function = module.load_function(&stage.symbol).map_err(named)?;
            let most = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is that of the module.
            let set = unsafe {
                result::function::set_function_attribute(function.cu_function(), most, launch.shared_bytes as i32)
            };
            set.map_err(|e| refused(words(e)))?;
            let maps: Result<_, String> = stage.boxes.iter().map(|one| MapPlan::new(plan, one)).collect();
            Ok((function, launch, maps.map_err(refused)?))
        });
        Ok(Module(stages.collect::<Result<_, _>>()?))
    }

    fn upload(&self, content: &[u8]) -> Result<CudaSlice<u8>, CandidateError> {
        let out_of = driver_sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        self.stream.clone_htod(content).map_err(|e| match e {
            DriverError(code) if code == out_of => CandidateError::OutOfMemory { message: words(e) },
            _ => fault(e),
        })
    }

    fn write(&self, memory: &mut CudaSlice<u8>, content: &[u8]) -> Result<(), CandidateError> {
        self.stream.memcpy_htod(content, memory).map_err(fault)?;
        self.stream.synchronize().map_err(fault)
    }

    fn read(&self, memory: &CudaSlice<u8>, content: &mut [u8]) -> Result<(), CandidateError> {
        let view = memory.slice(0..content.len());
        self.stream.memcpy_dtoh(&view, content).map_err(fault)?;
        self.stream.synchronize().map_err(fault)
    }

    fn launch(&self, module: &Module, number: usize, buffers: &mut [CudaSlice<u8>]) -> Result<(), CandidateError> {
        let Some((function, launch, maps)) = module.0.get(number) else {
            return Err(CandidateError::Crash { message: format!("no stage {number}") });
        };
        let config = LaunchConfig {
            grid_dim: (launch.blocks as u32, 1, 1),
            block_dim: (launch.threads as u32, 1, 1),
            shared_mem_bytes: launch.shared_bytes as u32,
        };
        let map = |plan: &MapPlan| {
            let buffer = buffers.get(plan.buffer).ok_or("a box of no buffer")?;
            plan.encode(buffer.device_ptr(&self.stream).0)
        };
        let maps: Result<Vec<TensorMap>, String> = maps.iter().map(map).collect();
        let maps = maps.map_err(|message| CandidateError::Crash { message })?;
        let mut call = self.stream.launch_builder(function);
        buffers.iter_mut().for_each(|buffer| {
            call.arg(buffer);
        });
        maps.iter().for_each(|map| {
            call.arg(map);
        });
        // SAFETY: the parameters of a kernel are its plan's global buffers and tensor maps, in order. That it stays within them is what
        // whoever measures generated code takes upon himself.
        unsafe { call.launch(config) }.map_err(fault)?;
        Ok(())
    }

    /// By the device's clock, between two events around the work.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), CandidateError>) -> Result<f64, CandidateError> {
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let start = self.stream.record_event(timed).map_err(fault)?;
        work()?;
        let end = self.stream.record_event(timed).map_err(fault)?;
        Ok(f64::from(start.elapsed_ms(&end).map_err(fault)?) * 1e-3)
    }
}
