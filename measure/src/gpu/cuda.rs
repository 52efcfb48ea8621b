//! CUDA devices, and the compiler for them, which needs no device.

use std::env;
use std::ffi::{CStr, CString};
use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use autotune_schedules::codegen::gpu::architecture;
use autotune_schedules::{GpuApi, GpuTarget, KernelPlan, Launch};
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUevent_flags, CUfunction_attribute_enum};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig, PushKernelArg, result,
};
use cudarc::nvrtc::{Ptx, result as nvrtc, sys};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::tensor_map::{MapPlan, TensorMap};
use super::{Compiler, Device};
use crate::measurement::CandidateError;

/// Machine code of CUDA C, and what the assembler says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The code.
    pub cubin: Vec<u8>,
    /// Registers, spills and static shared memory of each kernel, in the words of `ptxas -v`.
    pub log: String,
}

/// Loads NVRTC from the folder that `AUTOTUNE_NVRTC` names, or lets the loader search for it; why not, if it is not there.
fn find_nvrtc() -> Result<(), String> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let search = || {
        if let Some(folder) = env::var_os("AUTOTUNE_NVRTC").map(PathBuf::from) {
            let files = fs::read_dir(&folder).map_err(|e| format!("AUTOTUNE_NVRTC: {}: {e}", folder.display()))?;
            let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
            files.sort();
            // The compiler looks for its built-in functions by name, and finds what is loaded already.
            for prefix in ["libnvrtc-builtins.so", "libnvrtc.so"] {
                let named = |path: &&PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix));
                for path in files.iter().filter(named) {
                    // SAFETY: NVRTC may be loaded by any program. It stays loaded.
                    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
                    std::mem::forget(library.map_err(|e| format!("{}: {e}", path.display()))?);
                }
            }
        }
        // SAFETY: only looks for the library.
        let present = unsafe { sys::is_culib_present() };
        if present { Ok(()) } else { Err("no libnvrtc; AUTOTUNE_NVRTC can name its folder".into()) }
    };
    FOUND.get_or_init(search).clone()
}

/// Compiles CUDA C to machine code of compute capability `sm` (times ten), for the architecture that it needs. Needs NVRTC, but no device; may be called from many
/// threads at once.
pub fn compile(source: &str, sm: u32) -> Result<Compiled, CandidateError> {
    let refused = |message: String| CandidateError::Build { message };
    find_nvrtc().map_err(refused)?;
    let options = [format!("--gpu-architecture={}", architecture(source, sm)), "--ptxas-options=-v".into()];
    let source = CString::new(source).map_err(|e| refused(e.to_string()))?;
    // A symbol that this version of the library lacks is a panic.
    let compiled = catch_unwind(|| {
        let program = nvrtc::create_program(&source, Some(c"kernel.cu")).map_err(|e| e.to_string())?;
        // SAFETY: the program was created above and is destroyed only here; the code has as many bytes as were asked for.
        unsafe {
            let compiled = nvrtc::compile_program(program, &options);
            let log = nvrtc::get_program_log(program).map_err(|e| e.to_string())?;
            let log = CStr::from_ptr(log.as_ptr()).to_string_lossy().into_owned();
            let code = compiled.map_err(|_| log.clone()).and_then(|()| {
                let mut bytes = 0;
                sys::nvrtcGetCUBINSize(program, &mut bytes).result().map_err(|e| e.to_string())?;
                let mut cubin = vec![0u8; bytes];
                sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()).result().map_err(|e| e.to_string())?;
                Ok(Compiled { cubin, log })
            });
            nvrtc::destroy_program(program).map_err(|e| e.to_string())?;
            code
        }
    });
    compiled.unwrap_or_else(|_| Err("NVRTC lacks a function".into())).map_err(refused)
}

/// A CUDA device of this machine.
pub struct CudaDevice {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    target: GpuTarget,
}

/// Kernels of a plan's stages, with their launches and the tensor maps that they take.
pub(crate) struct Module(Vec<(CudaFunction, Launch, Vec<MapPlan>)>);

impl CudaDevice {
    /// Device `ordinal`, or why there is none.
    pub fn open(ordinal: usize) -> Result<Self, String> {
        // SAFETY: only looks for the library.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err("no CUDA driver".into());
        }
        let open = || -> Result<Self, DriverError> {
            let context = CudaContext::new(ordinal)?;
            Ok(Self { target: limits(&context)?, stream: context.default_stream(), context })
        };
        // A symbol that this version of the driver lacks is a panic.
        let opened =
            catch_unwind(open).unwrap_or(Err(DriverError(cudarc::driver::sys::CUresult::CUDA_ERROR_NOT_FOUND)));
        opened.map_err(|e| format!("CUDA device {ordinal}: {e}"))
    }

    /// The device's limits.
    pub fn target(&self) -> &GpuTarget {
        &self.target
    }
}

fn limits(context: &CudaContext) -> Result<GpuTarget, DriverError> {
    let get = |attribute: Attribute| context.attribute(attribute).map(|value| value.max(0) as usize);
    let (major, minor) = context.compute_capability()?;
    let word = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    Ok(GpuTarget {
        api: GpuApi::Cuda { sm: (10 * major + minor) as u32 },
        model: context.name()?.trim().chars().map(word).collect(),
        multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        warp_threads: get(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        threads_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        threads_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        shared_bytes_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_bytes_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        registers_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        registers_per_thread: 255,
        l2_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
    })
}

fn fault(error: DriverError) -> CandidateError {
    CandidateError::Crash { message: error.to_string() }
}

impl Device for CudaDevice {
    type Module = Module;
    type Memory = CudaSlice<f32>;

    fn compiler(&self) -> Compiler {
        match self.target.api {
            GpuApi::Cuda { sm } => Compiler::Nvrtc { sm },
            GpuApi::OpenCl => Compiler::AtLoad,
        }
    }

    fn load(&self, code: &[u8], plan: &KernelPlan) -> Result<Module, CandidateError> {
        let refused = |message: String| CandidateError::Build { message };
        let module = self.context.load_module(Ptx::from_binary(code.to_vec())).map_err(|e| refused(e.to_string()))?;
        let stages = plan.stages.iter().map(|stage| {
            let launch = stage.launch.ok_or_else(|| refused(format!("stage {} is not for a GPU", stage.symbol)))?;
            let function = module.load_function(&stage.symbol).map_err(|e| refused(e.to_string()))?;
            let most = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is that of the module.
            let set = unsafe {
                result::function::set_function_attribute(function.cu_function(), most, launch.shared_bytes as i32)
            };
            set.map_err(|e| refused(e.to_string()))?;
            let maps: Result<_, String> = stage.boxes.iter().map(|one| MapPlan::new(plan, one)).collect();
            Ok((function, launch, maps.map_err(refused)?))
        });
        Ok(Module(stages.collect::<Result<_, _>>()?))
    }

    fn upload(&self, values: &[f32]) -> Result<CudaSlice<f32>, CandidateError> {
        self.stream.clone_htod(values).map_err(|e| CandidateError::OutOfMemory { message: e.to_string() })
    }

    fn write(&self, memory: &mut CudaSlice<f32>, values: &[f32]) -> Result<(), CandidateError> {
        self.stream.memcpy_htod(values, memory).map_err(fault)?;
        self.stream.synchronize().map_err(fault)
    }

    fn read(&self, memory: &CudaSlice<f32>, values: &mut [f32]) -> Result<(), CandidateError> {
        let view = memory.slice(0..values.len());
        self.stream.memcpy_dtoh(&view, values).map_err(fault)?;
        self.stream.synchronize().map_err(fault)
    }

    fn launch(&self, module: &Module, number: usize, buffers: &mut [CudaSlice<f32>]) -> Result<(), CandidateError> {
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

    fn ping(&self) -> Result<(), String> {
        self.stream.synchronize().map_err(|e| e.to_string())
    }
}
