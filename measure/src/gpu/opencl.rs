//! OpenCL devices.

use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use autotune_schedules::{GpuApi, GpuTarget, KernelPlan, Launch};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_GPU, Device as ClDevice};
use opencl3::error_codes::ClError;
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::platform::{Platform, get_platforms};
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;

use super::{Device, GpuInfo, is_meant, model};
use crate::builder::Code;
use crate::measurement::CandidateError;

/// Why there is no device.
pub(crate) const NO_DEVICE: &str = "no OpenCL device: install an OpenCL loader (libOpenCL.so.1) and the driver of a device (PoCL runs kernels on the CPU)";

/// The errors of a loader that is not there, and of one that knows no platform.
const NO_LOADER: i32 = -2000;
const NO_PLATFORM: i32 = -1001;

/// An OpenCL device of this machine.
pub(crate) struct OpenClDevice {
    context: Context,
    queue: CommandQueue,
}

/// Kernels of a plan's stages, with their launches.
pub(crate) struct Module(Vec<(Kernel, Launch)>);

/// The OpenCL devices of this machine, GPUs first; why there are none.
pub fn devices() -> Result<Vec<GpuInfo>, String> {
    Ok(list()?.into_iter().map(|(_, info)| info).collect())
}

fn list() -> Result<Vec<(ClDevice, GpuInfo)>, String> {
    // Some implementations have no devices for a second thread that asks while the first one's answer is being prepared.
    static ASKING: Mutex<()> = Mutex::new(());
    let _asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    let platforms = match get_platforms() {
        Err(ClError(NO_LOADER | NO_PLATFORM)) => return Err(NO_DEVICE.into()),
        Err(error) => return Err(format!("no OpenCL: {error}")),
        Ok(platforms) => platforms,
    };
    // A platform without devices says so by an error.
    let devices =
        platforms.iter().filter_map(|platform| Some((platform, platform.get_devices(CL_DEVICE_TYPE_ALL).ok()?)));
    let devices = devices.flat_map(|(platform, ids)| ids.into_iter().map(move |id| (platform, ClDevice::new(id))));
    let mut all = Vec::new();
    for (platform, device) in devices {
        let info = info(platform, &device).map_err(|e| format!("an OpenCL device does not describe itself: {e}"))?;
        let is_gpu = device.dev_type().is_ok_and(|kind| kind & CL_DEVICE_TYPE_GPU != 0);
        all.push((!is_gpu, device, info));
    }
    all.sort_by_key(|&(is_other, _, _)| is_other);
    match all.is_empty() {
        true => Err(NO_DEVICE.into()),
        false => Ok(all.into_iter().map(|(_, device, info)| (device, info)).collect()),
    }
}

fn info(platform: &Platform, device: &ClDevice) -> Result<GpuInfo, ClError> {
    let driver = format!("{} {}", platform.name()?.trim(), device.driver_version()?.trim());
    Ok(GpuInfo { target: limits(device)?, name: device.name()?.trim().to_string(), driver })
}

impl OpenClDevice {
    /// The device that the target means, or why there is none.
    pub(crate) fn open(target: &GpuTarget) -> Result<Self, String> {
        let found = list()?.into_iter().find(|(_, info)| is_meant(target, &info.target));
        let (device, info) = found.ok_or_else(|| format!("this machine has no {}", target.key()))?;
        let open = || -> Result<Self, ClError> {
            let context = Context::from_device(&device)?;
            // SAFETY: the device is the context's.
            let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
            Ok(Self { context, queue })
        };
        open().map_err(|e| format!("{}: {e}", info.name))
    }
}

/// The device's limits; what OpenCL does not tell is that of [`GpuTarget::stated`].
fn limits(device: &ClDevice) -> Result<GpuTarget, ClError> {
    let shared = device.local_mem_size()? as usize;
    Ok(GpuTarget {
        api: GpuApi::OpenCl,
        model: model(&device.name()?),
        multiprocessors: device.max_compute_units()? as usize,
        warp_threads: 32,
        threads_per_block: device.max_work_group_size()?.min(1024),
        threads_per_multiprocessor: 1024,
        shared_bytes_per_block: shared.min(64 << 10),
        shared_bytes_per_multiprocessor: shared,
        registers_per_multiprocessor: 32 << 10,
        registers_per_thread: 128,
        l2_bytes: (device.global_mem_cache_size()? as usize).max(1 << 20),
    })
}

fn fault(error: ClError) -> CandidateError {
    CandidateError::Crash { message: error.to_string() }
}

impl Device for OpenClDevice {
    type Module = Module;
    type Memory = Buffer<u8>;

    fn load(&self, code: &Code, plan: &KernelPlan) -> Result<Module, CandidateError> {
        let refused = |message: String| CandidateError::Build { message };
        let Code::OpenCl(source) = code else {
            return Err(refused("it is not OpenCL C".into()));
        };
        let program = Program::create_and_build_from_source(&self.context, source, "").map_err(refused)?;
        let stages = plan.stages.iter().map(|stage| {
            let launch = stage.launch.ok_or_else(|| refused(format!("stage {} is not for a GPU", stage.symbol)))?;
            let kernel = Kernel::create(&program, &stage.symbol);
            let kernel = kernel.map_err(|e| refused(format!("{}: {e}", stage.symbol)))?;
            Ok((kernel, launch))
        });
        Ok(Module(stages.collect::<Result<_, _>>()?))
    }

    fn upload(&self, content: &[u8]) -> Result<Buffer<u8>, CandidateError> {
        // SAFETY: without a host pointer the buffer is the device's own.
        let buffer = unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, content.len().max(1), ptr::null_mut()) };
        let mut buffer = buffer.map_err(|e| CandidateError::OutOfMemory { message: e.to_string() })?;
        self.write(&mut buffer, content)?;
        Ok(buffer)
    }

    fn write(&self, memory: &mut Buffer<u8>, content: &[u8]) -> Result<(), CandidateError> {
        // SAFETY: the call returns when the values have been copied, and refuses more than fit.
        unsafe { self.queue.enqueue_write_buffer(memory, CL_BLOCKING, 0, content, &[]) }.map_err(fault)?;
        Ok(())
    }

    fn read(&self, memory: &Buffer<u8>, content: &mut [u8]) -> Result<(), CandidateError> {
        // SAFETY: as in `write`.
        unsafe { self.queue.enqueue_read_buffer(memory, CL_BLOCKING, 0, content, &[]) }.map_err(fault)?;
        Ok(())
    }

    fn launch(&self, module: &Module, number: usize, buffers: &mut [Buffer<u8>]) -> Result<(), CandidateError> {
        let Some((kernel, launch)) = module.0.get(number) else {
            return Err(CandidateError::Crash { message: format!("no stage {number}") });
        };
        let mut call = ExecuteKernel::new(kernel);
        // SAFETY: the parameters of a kernel are its plan's global buffers, in order. That it stays within them is what
        // whoever measures generated code takes upon himself.
        unsafe {
            buffers.iter().for_each(|buffer| {
                call.set_arg(buffer);
            });
            call.set_global_work_size(launch.blocks * launch.threads).set_local_work_size(launch.threads);
            call.enqueue_nd_range(&self.queue).map_err(fault)?;
        }
        Ok(())
    }

    /// By the host's clock.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), CandidateError>) -> Result<f64, CandidateError> {
        self.queue.finish().map_err(fault)?;
        let start = Instant::now();
        work()?;
        self.queue.finish().map_err(fault)?;
        Ok(start.elapsed().as_secs_f64())
    }
}
