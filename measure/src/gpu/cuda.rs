//! CUDA devices, and the compiler for them, which needs no device.

use std::env;
use std::ffi::{CStr, CString};
use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use autotune_schedules::codegen::gpu::architecture;
use autotune_schedules::{GpuApi, GpuTarget, KernelPlan, Launch};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUevent_flags, CUfunction_attribute_enum};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig, PushKernelArg, result,
    sys as driver_sys,
};
use cudarc::nvrtc::{Ptx, result as nvrtc, sys};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::tensor_map::{MapPlan, TensorMap};
use super::{Device, GpuInfo, is_meant, model};
use crate::builder::Code;
use crate::measurement::{CandidateError, Resources};

/// Why there is no device where there is a driver.
pub(crate) const NO_DEVICE: &str = "the CUDA driver finds no device";

/// Machine code of CUDA C, and what the assembler says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The code.
    pub cubin: Vec<u8>,
    /// Registers, spills and static shared memory of each kernel, in the words of `ptxas -v`.
    pub log: String,
}

impl Compiled {
    /// What the log tells, the most of any kernel. Dynamic shared memory is not in it.
    pub fn resources(&self) -> Resources {
        let mut most = Resources::default();
        for line in self.log.lines() {
            // "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
            let spills = amount(line, "bytes spill stores") + amount(line, "bytes spill loads");
            most.spill_bytes = most.spill_bytes.max(spills);
            most.stack_bytes = most.stack_bytes.max(amount(line, "bytes stack frame"));
            // "ptxas info    : Used 40 registers, used 1 barriers, 8192 bytes smem, 400 bytes cmem[0]"
            most.registers = most.registers.max(amount(line, "registers"));
            most.shared_bytes = most.shared_bytes.max(amount(line, "bytes smem"));
        }
        most
    }
}

/// The number before some words; 0 if they are not there.
fn amount(line: &str, words: &str) -> usize {
    let before = line.find(words).and_then(|at| line.get(..at));
    before.and_then(|text| text.split_whitespace().last()?.parse().ok()).unwrap_or(0)
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
        let how = "install the CUDA toolkit or Python's nvidia-cuda-nvrtc, and name the folder in AUTOTUNE_NVRTC";
        if present { Ok(()) } else { Err(format!("no CUDA compiler (libnvrtc.so): {how}")) }
    };
    FOUND.get_or_init(search).clone()
}

/// The compiler's flags for an architecture.
pub(crate) fn flags(architecture: &str) -> [String; 2] {
    [format!("--gpu-architecture={architecture}"), "--ptxas-options=-v".into()]
}

/// Compiles CUDA C to machine code of compute capability `sm` (times ten), for the architecture that it needs. Needs NVRTC, but no
/// device; may be called from many
/// threads at once.
pub fn compile(source: &str, sm: u32) -> Result<Compiled, CandidateError> {
    let refused = |message: String| CandidateError::Build { message };
    find_nvrtc().map_err(refused)?;
    let options = flags(&architecture(source, sm));
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

/// The compiler and its version; why there is none.
pub fn compiler_version() -> Result<String, String> {
    find_nvrtc()?;
    let (mut major, mut minor) = (0, 0);
    // A symbol that this version of the library lacks is a panic.
    // SAFETY: the numbers live, and are written to.
    let asked =
        catch_unwind(move || unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().map(|()| (major, minor)));
    match asked {
        Ok(Ok((major, minor))) => Ok(format!("NVRTC {major}.{minor}")),
        _ => Err("libnvrtc does not tell its version".into()),
    }
}

/// The CUDA devices of this machine; why there are none.
pub fn devices() -> Result<Vec<GpuInfo>, String> {
    // SAFETY: only looks for the library.
    if !unsafe { driver_sys::is_culib_present() } {
        return Err("no CUDA driver (libcuda.so.1): install NVIDIA's driver".into());
    }
    let list = || -> Result<Vec<GpuInfo>, DriverError> {
        result::init()?;
        let mut version = 0;
        // SAFETY: the number lives, and is written to.
        unsafe { driver_sys::cuDriverGetVersion(&mut version) }.result()?;
        let driver = format!("CUDA driver {}.{}", version / 1000, version % 1000 / 10);
        let count = result::device::get_count()?;
        (0..count).map(|ordinal| info(result::device::get(ordinal)?, &driver)).collect()
    };
    // A symbol that this version of the driver lacks is a panic.
    let listed = catch_unwind(list).unwrap_or(Err(DriverError(driver_sys::CUresult::CUDA_ERROR_NOT_FOUND)));
    match listed {
        Ok(devices) if devices.is_empty() => Err(NO_DEVICE.into()),
        Ok(devices) => Ok(devices),
        Err(error) => Err(format!("{NO_DEVICE}: {}", words(error))),
    }
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
        let opened = catch_unwind(open).unwrap_or(Err(DriverError(driver_sys::CUresult::CUDA_ERROR_NOT_FOUND)));
        opened.map_err(|e| format!("CUDA device {ordinal}: {}", words(e)))
    }
}

/// The driver's name of an error, and its words.
fn words(error: DriverError) -> String {
    let text = |found: Result<&CStr, DriverError>| found.map_or("?".into(), |text| text.to_string_lossy().into_owned());
    format!("{} ({})", text(error.error_string()), text(error.error_name()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_several_kernels_tells_the_most_that_any_takes() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'autotune_main' for 'sm_90'\n\
            ptxas info    : Function properties for autotune_main\n    \
            16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n\
            ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 400 bytes cmem[0]\n\
            ptxas info    : Used 40 registers, used 1 barriers, 8192 bytes smem, 400 bytes cmem[0]\n";
        let compiled = Compiled { cubin: Vec::new(), log: log.into() };
        let expected = Resources { registers: 168, spill_bytes: 20, stack_bytes: 16, shared_bytes: 8192 };
        assert_eq!(compiled.resources(), expected);
        assert_eq!(Compiled { cubin: Vec::new(), log: "".into() }.resources(), Resources::default());
    }
}
