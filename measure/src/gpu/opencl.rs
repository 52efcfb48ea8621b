//! OpenCL devices.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ptr;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use autotune_ir::{GpuApi, GpuTarget, KernelPlan, Launch};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_GPU, Device as ClDevice};
use opencl3::error_codes::ClError;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
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

/// A program, and the symbols of a plan's stages with their launches.
pub(crate) struct Module {
    program: Program,
    stages: Vec<(String, Launch)>,
}

/// A kernel with its arguments.
pub(crate) struct Call {
    kernel: Kernel,
    launch: Launch,
    /// What the arguments are lives as long.
    _buffers: Vec<Rc<RefCell<Buffer<u8>>>>,
}

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
    type Memory = RefCell<Buffer<u8>>;
    type Call = Call;
    type Recording = Infallible;

    fn load(&self, code: &Code, plan: &KernelPlan) -> Result<Module, CandidateError> {
        let refused = |message: String| CandidateError::Build { message };
        let Code::OpenCl(source) = code else {
            return Err(refused("it is not OpenCL C".into()));
        };
        let program = Program::create_and_build_from_source(&self.context, source, "").map_err(refused)?;
        let stages = plan.stages.iter().map(|stage| {
            let launch = stage.launch.ok_or_else(|| refused(format!("stage {} is not for a GPU", stage.symbol)))?;
            kernel(&program, &stage.symbol)?;
            Ok((stage.symbol.clone(), launch))
        });
        let stages = stages.collect::<Result<_, _>>()?;
        Ok(Module { program, stages })
    }

    fn allocate(&self, bytes: usize) -> Result<RefCell<Buffer<u8>>, CandidateError> {
        // SAFETY: without a host pointer the buffer is the device's own.
        let buffer = unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, bytes.max(1), ptr::null_mut()) };
        buffer.map(RefCell::new).map_err(|e| CandidateError::OutOfMemory { message: e.to_string() })
    }

    fn fill(&self, memory: &RefCell<Buffer<u8>>, words: usize, word: u32) -> Result<(), CandidateError> {
        let (mut buffer, pattern) = (memory.borrow_mut(), word.to_ne_bytes());
        // SAFETY: the pattern is copied by the call, which refuses more than fits.
        unsafe { self.queue.enqueue_fill_buffer(&mut buffer, &pattern, 0, 4 * words, &[]) }.map_err(fault)?;
        Ok(())
    }

    fn write(&self, memory: &RefCell<Buffer<u8>>, first_byte: usize, content: &[u8]) -> Result<(), CandidateError> {
        let mut buffer = memory.borrow_mut();
        // SAFETY: the call returns when the values have been copied, and refuses more than fit.
        unsafe { self.queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, first_byte, content, &[]) }
            .map_err(fault)?;
        Ok(())
    }

    fn read(&self, memory: &RefCell<Buffer<u8>>, first_byte: usize, content: &mut [u8]) -> Result<(), CandidateError> {
        // SAFETY: as in `write`.
        unsafe { self.queue.enqueue_read_buffer(&memory.borrow(), CL_BLOCKING, first_byte, content, &[]) }
            .map_err(fault)?;
        Ok(())
    }

    fn copy(&self, from: &RefCell<Buffer<u8>>, to: &RefCell<Buffer<u8>>, bytes: usize) -> Result<(), CandidateError> {
        // SAFETY: the call refuses more than fits.
        unsafe { self.queue.enqueue_copy_buffer(&from.borrow(), &mut to.borrow_mut(), 0, 0, bytes, &[]) }
            .map_err(fault)?;
        Ok(())
    }

    fn bind(
        &self,
        module: &Module,
        number: usize,
        buffers: &[Rc<RefCell<Buffer<u8>>>],
    ) -> Result<Call, CandidateError> {
        let Some((symbol, launch)) = module.stages.get(number) else {
            return Err(CandidateError::Crash { message: format!("no stage {number}") });
        };
        // Of its own: a kernel's arguments are a part of it.
        let kernel = kernel(&module.program, symbol)?;
        for (number, buffer) in buffers.iter().enumerate() {
            // SAFETY: the parameters of a kernel are its plan's global buffers, in order.
            unsafe { kernel.set_arg(number as u32, &buffer.borrow().get()) }.map_err(fault)?;
        }
        Ok(Call { kernel, launch: *launch, _buffers: buffers.to_vec() })
    }

    fn start(&self, call: &Call) -> Result<(), CandidateError> {
        let Call { kernel, launch, .. } = call;
        let (all, block) = ([launch.blocks * launch.threads], [launch.threads]);
        // SAFETY: the kernel has its arguments. That it stays within them is what whoever measures generated code takes upon himself.
        let started = unsafe {
            self.queue.enqueue_nd_range_kernel(kernel.get(), 1, ptr::null(), all.as_ptr(), block.as_ptr(), &[])
        };
        started.map_err(fault)?;
        Ok(())
    }

    fn record(&self, _work: &mut dyn FnMut() -> Result<(), CandidateError>) -> Option<Infallible> {
        None
    }

    fn replay(&self, recording: &Infallible) -> Result<(), CandidateError> {
        match *recording {}
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

fn kernel(program: &Program, symbol: &str) -> Result<Kernel, CandidateError> {
    Kernel::create(program, symbol).map_err(|e| CandidateError::Build { message: format!("{symbol}: {e}") })
}
