//! OpenCL devices.

use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use autotune_schedules::{GpuApi, GpuTarget, KernelPlan, Launch};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device as ClDevice, get_all_devices};
use opencl3::error_codes::ClError;
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;

use super::{Compiler, Device};
use crate::measurement::CandidateError;

/// An OpenCL device of this machine.
pub struct OpenClDevice {
    context: Context,
    queue: CommandQueue,
    target: GpuTarget,
}

/// Kernels of a plan's stages, with their launches.
pub(crate) struct Module(Vec<(Kernel, Launch)>);

impl OpenClDevice {
    /// Device `ordinal`, counted over all platforms, or why there is none.
    pub fn open(ordinal: usize) -> Result<Self, String> {
        // Some implementations have no devices for a second thread that asks while the first one's answer is being prepared.
        static ASKING: Mutex<()> = Mutex::new(());
        let asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = get_all_devices(CL_DEVICE_TYPE_ALL).map_err(|e| format!("no OpenCL: {e}"))?;
        drop(asking);
        let id =
            devices.get(ordinal).ok_or_else(|| format!("{} OpenCL device(s), no number {ordinal}", devices.len()))?;
        let device = ClDevice::new(*id);
        let open = || -> Result<Self, ClError> {
            let context = Context::from_device(&device)?;
            // SAFETY: the device is the context's.
            let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
            Ok(Self { target: limits(&device)?, context, queue })
        };
        open().map_err(|e| format!("OpenCL device {ordinal}: {e}"))
    }

    /// The device's limits; what OpenCL does not tell is that of [`GpuTarget::stated`].
    pub fn target(&self) -> &GpuTarget {
        &self.target
    }
}

fn limits(device: &ClDevice) -> Result<GpuTarget, ClError> {
    let word = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let shared = device.local_mem_size()? as usize;
    Ok(GpuTarget {
        api: GpuApi::OpenCl,
        model: device.name()?.trim().chars().map(word).collect(),
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
    type Memory = Buffer<f32>;

    fn compiler(&self) -> Compiler {
        Compiler::AtLoad
    }

    fn load(&self, code: &[u8], plan: &KernelPlan) -> Result<Module, CandidateError> {
        let refused = |message: String| CandidateError::Build { message };
        let program = Program::create_and_build_from_source(&self.context, &String::from_utf8_lossy(code), "");
        let program = program.map_err(refused)?;
        let stages = plan.stages.iter().map(|stage| {
            let launch = stage.launch.ok_or_else(|| refused(format!("stage {} is not for a GPU", stage.symbol)))?;
            let kernel = Kernel::create(&program, &stage.symbol).map_err(|e| refused(e.to_string()))?;
            Ok((kernel, launch))
        });
        Ok(Module(stages.collect::<Result<_, _>>()?))
    }

    fn upload(&self, values: &[f32]) -> Result<Buffer<f32>, CandidateError> {
        // SAFETY: without a host pointer the buffer is the device's own.
        let buffer = unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, values.len(), ptr::null_mut()) };
        let mut buffer = buffer.map_err(|e| CandidateError::OutOfMemory { message: e.to_string() })?;
        self.write(&mut buffer, values)?;
        Ok(buffer)
    }

    fn write(&self, memory: &mut Buffer<f32>, values: &[f32]) -> Result<(), CandidateError> {
        // SAFETY: the call returns when the values have been copied, and refuses more than fit.
        unsafe { self.queue.enqueue_write_buffer(memory, CL_BLOCKING, 0, values, &[]) }.map_err(fault)?;
        Ok(())
    }

    fn read(&self, memory: &Buffer<f32>, values: &mut [f32]) -> Result<(), CandidateError> {
        // SAFETY: as in `write`.
        unsafe { self.queue.enqueue_read_buffer(memory, CL_BLOCKING, 0, values, &[]) }.map_err(fault)?;
        Ok(())
    }

    fn launch(&self, module: &Module, number: usize, buffers: &mut [Buffer<f32>]) -> Result<(), CandidateError> {
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

    fn ping(&self) -> Result<(), String> {
        self.queue.finish().map_err(|e| e.to_string())
    }
}
