//! OpenCL devices, by the OpenCL 1.2 API.

use std::convert::Infallible;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use autotune_ir::machine::gpu::WARP_THREADS;
use autotune_ir::{Artifact, Code, GpuApi, GpuTarget, Launch};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_GPU, Device as ClDevice};
use opencl3::error_codes::ClError;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::platform::{Platform, get_platforms};
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;

use crate::device::{Bound, Device, MemoryExtent, alignment_of, from, within, word_bytes};
use crate::error::{DeviceError, LoadError};
use crate::gpu::{ALIGNMENT, GpuInfo, matches, model, no_matching_device};

/// Error message if there is no device.
pub const NO_DEVICE: &str = "no OpenCL device: install an OpenCL loader (libOpenCL.so.1) and the driver of a device (PoCL runs kernels on the CPU)";

/// Error codes of a missing loader, and of a loader without platforms.
const NO_LOADER: i32 = -2000;
const NO_PLATFORM: i32 = -1001;

/// An OpenCL device of this machine, with its own queue.
pub struct OpenClDevice {
    device: ClDevice,
    context: Arc<Context>,
    queue: CommandQueue,
}

/// A range of bytes of an OpenCL buffer.
pub struct OpenClMemory {
    buffer: Arc<Buffer<u8>>,
    first_byte: usize,
    bytes: usize,
    context: Arc<Context>,
}

/// A compiled program, with symbol and launch of each stage of the plan.
pub struct OpenClModule {
    program: Program,
    stages: Vec<(String, Launch)>,
}

/// Kernels with their arguments.
pub struct OpenClCall {
    kernels: Vec<(Kernel, Launch)>,
    /// Buffers that the arguments refer to, kept alive.
    _buffers: Vec<(OpenClMemory, Option<Buffer<u8>>)>,
}

/// Returns the OpenCL devices of this machine, GPUs first; the error says why there are none.
pub fn devices() -> Result<Vec<GpuInfo>, DeviceError> {
    Ok(list()?.into_iter().map(|(_, info)| info).collect())
}

fn list() -> Result<Vec<(ClDevice, GpuInfo)>, DeviceError> {
    let absent = |message: String| DeviceError::Absent(message);
    // Some implementations report no devices to a thread that asks while another thread's first
    // query is in progress.
    static ASKING: Mutex<()> = Mutex::new(());
    let _asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    let platforms = match get_platforms() {
        Err(ClError(NO_LOADER | NO_PLATFORM)) => return Err(absent(NO_DEVICE.into())),
        Err(error) => return Err(absent(format!("cannot list OpenCL platforms: {error}"))),
        Ok(platforms) => platforms,
    };

    // A platform without devices returns an error, which is ignored.
    let devices =
        platforms.iter().filter_map(|platform| Some((platform, platform.get_devices(CL_DEVICE_TYPE_ALL).ok()?)));
    let devices = devices.flat_map(|(platform, ids)| ids.into_iter().map(move |id| (platform, ClDevice::new(id))));

    let mut all = Vec::new();
    for (platform, device) in devices {
        let info = info(platform, &device).map_err(|e| absent(format!("cannot query an OpenCL device: {e}")))?;
        let is_gpu = device.dev_type().is_ok_and(|kind| kind & CL_DEVICE_TYPE_GPU != 0);
        all.push((!is_gpu, device, info));
    }
    // The sort is stable and keeps the driver's order otherwise.
    all.sort_by_key(|&(is_other, _, _)| is_other);

    match all.is_empty() {
        true => Err(absent(NO_DEVICE.into())),
        false => Ok(all.into_iter().map(|(_, device, info)| (device, info)).collect()),
    }
}

fn info(platform: &Platform, device: &ClDevice) -> Result<GpuInfo, ClError> {
    let driver = format!("{} {}", platform.name()?.trim(), device.driver_version()?.trim());
    Ok(GpuInfo { target: limits(device)?, name: device.name()?.trim().to_string(), driver })
}

impl OpenClDevice {
    /// Opens the first device of this machine, a GPU if there is one.
    pub fn first() -> Result<Self, DeviceError> {
        let (device, info) = list()?.into_iter().next().ok_or_else(|| DeviceError::Absent(NO_DEVICE.into()))?;
        Self::of(device, &info.name)
    }

    /// Opens the device of this machine that matches `target`.
    pub fn open(target: &GpuTarget) -> Result<Self, DeviceError> {
        let all = list()?;
        let found = all.iter().find(|(_, info)| matches(target, &info.target));
        let (device, info) = found.ok_or_else(|| no_matching_device(target, all.iter().map(|(_, info)| info)))?;
        Self::of(*device, &info.name)
    }

    fn of(device: ClDevice, name: &str) -> Result<Self, DeviceError> {
        let context = Context::from_device(&device);
        let context = context.map_err(|e| DeviceError::Absent(format!("{name}: {e}")))?;
        Self::with_queue(device, Arc::new(context))
    }

    /// Returns the same device with another queue, for use in another thread. Memory and modules
    /// are shared. Work started on one queue must be [finished](Device::finish) before another
    /// queue uses its results.
    pub fn new_queue(&self) -> Result<Self, DeviceError> {
        Self::with_queue(self.device, Arc::clone(&self.context))
    }

    fn with_queue(device: ClDevice, context: Arc<Context>) -> Result<Self, DeviceError> {
        // SAFETY: the device belongs to the context.
        let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }.map_err(fault)?;
        Ok(Self { device, context, queue })
    }
}

impl OpenClMemory {
    /// Returns another handle of the whole buffer, for calls that need a mutable one.
    fn handle(&self) -> ManuallyDrop<Buffer<u8>> {
        ManuallyDrop::new(Buffer::new(self.buffer.get()))
    }

    /// Converts a range of this memory to a range of the buffer.
    fn range(&self, range: Range<usize>) -> Result<Range<usize>, DeviceError> {
        within(&range, self.bytes)?;
        Ok(self.first_byte + range.start..self.first_byte + range.end)
    }

    /// Returns this memory as a sub-buffer, which kernels can use as an argument; `None` if it
    /// begins at the start of the buffer.
    fn sub_buffer(&self) -> Result<Option<Buffer<u8>>, DeviceError> {
        if self.first_byte == 0 {
            return Ok(None);
        }
        // SAFETY: the range is in the buffer.
        let sub = unsafe { self.buffer.create_sub_buffer(CL_MEM_READ_WRITE, self.first_byte, self.bytes) };
        let words = |e| DeviceError::fault(format!("cannot create a sub-buffer at byte {}: {e}", self.first_byte));
        sub.map(Some).map_err(words)
    }
}

/// Returns the device's limits; limits that OpenCL does not report are those of
/// [`GpuTarget::stated`].
fn limits(device: &ClDevice) -> Result<GpuTarget, ClError> {
    let shared = device.local_mem_size()? as usize;
    Ok(GpuTarget {
        api: GpuApi::OpenCl,
        model: model(&device.name()?),
        multiprocessors: device.max_compute_units()? as usize,
        warp_threads: WARP_THREADS,
        threads_per_block: device.max_work_group_size()?.min(1024),
        threads_per_multiprocessor: 1024,
        shared_bytes_per_block: shared.min(64 << 10),
        shared_bytes_per_multiprocessor: shared,
        registers_per_multiprocessor: 32 << 10,
        registers_per_thread: 128,
        l2_bytes: (device.global_mem_cache_size()? as usize).max(1 << 20),
    })
}

fn fault(error: ClError) -> DeviceError {
    DeviceError::fault(error)
}

impl Device for OpenClDevice {
    type Module = OpenClModule;
    type Memory = OpenClMemory;
    type Call = OpenClCall;
    type Recording = Infallible;

    fn name(&self) -> String {
        "OpenCL".into()
    }

    fn alignment(&self) -> usize {
        // OpenCL reports the alignment in bits.
        self.device.mem_base_addr_align().map_or(ALIGNMENT, |bits| (bits as usize / 8).max(ALIGNMENT))
    }

    /// Returns the size of the device's memory: OpenCL does not report what is used.
    fn free_bytes(&self) -> Result<Option<usize>, DeviceError> {
        let bytes = self.device.global_mem_size().map_err(fault)?;
        Ok(Some(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    unsafe fn load(&self, artifact: &Artifact) -> Result<OpenClModule, DeviceError> {
        let Code::OpenCl(source) = &artifact.code else {
            return Err(LoadError::Kind { device: self.name() }.into());
        };
        let refused = |message: String| DeviceError::Load(LoadError::Refused(message));
        let program = Program::create_and_build_from_source(&self.context, source, "").map_err(refused)?;
        let stages = artifact.plan.stages.iter().map(|stage| {
            let launch = stage.launch.ok_or_else(|| refused(format!("stage {} is not for a GPU", stage.symbol)))?;
            kernel(&program, &stage.symbol)?;
            Ok((stage.symbol.clone(), launch))
        });
        let stages = stages.collect::<Result<_, DeviceError>>()?;
        Ok(OpenClModule { program, stages })
    }

    fn allocate(&self, bytes: usize) -> Result<OpenClMemory, DeviceError> {
        let bytes = bytes.max(1);
        // SAFETY: without a host pointer, the device allocates the buffer itself.
        let buffer = unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, bytes, ptr::null_mut()) };
        let buffer =
            buffer.map_err(|e| DeviceError::OutOfMemory { message: format!("{e}: {bytes} bytes were asked for") })?;
        Ok(OpenClMemory { buffer: Arc::new(buffer), first_byte: 0, bytes, context: Arc::clone(&self.context) })
    }

    unsafe fn part(&self, memory: &OpenClMemory, bytes: Range<usize>) -> Result<OpenClMemory, DeviceError> {
        let range = memory.range(bytes)?;
        let (buffer, context) = (Arc::clone(&memory.buffer), Arc::clone(&memory.context));
        Ok(OpenClMemory { buffer, first_byte: range.start, bytes: range.len(), context })
    }

    /// Returns the size and the alignment of the offset in the buffer; the buffer itself is aligned
    /// for any type.
    fn extent(&self, memory: &OpenClMemory) -> MemoryExtent {
        MemoryExtent { bytes: memory.bytes, alignment: alignment_of(memory.first_byte) }
    }

    fn holds(&self, memory: &OpenClMemory) -> bool {
        Arc::ptr_eq(&self.context, &memory.context)
    }

    fn fill(&self, memory: &mut OpenClMemory, words: Range<usize>, word: u32) -> Result<(), DeviceError> {
        let (range, pattern) = (memory.range(word_bytes(&words))?, word.to_ne_bytes());
        // OpenCL rejects empty ranges.
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: the call copies the pattern.
        unsafe { self.queue.enqueue_fill_buffer(&mut memory.handle(), &pattern, range.start, range.len(), &[]) }
            .map_err(fault)?;
        Ok(())
    }

    fn write(&self, memory: &mut OpenClMemory, first_byte: usize, content: &[u8]) -> Result<(), DeviceError> {
        let range = memory.range(from(first_byte, content.len()))?;
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: the call is blocking and returns after the content has been copied.
        unsafe { self.queue.enqueue_write_buffer(&mut memory.handle(), CL_BLOCKING, range.start, content, &[]) }
            .map_err(fault)?;
        Ok(())
    }

    fn read(&self, memory: &OpenClMemory, first_byte: usize, content: &mut [u8]) -> Result<(), DeviceError> {
        let range = memory.range(from(first_byte, content.len()))?;
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: as in `write`.
        unsafe { self.queue.enqueue_read_buffer(&memory.buffer, CL_BLOCKING, range.start, content, &[]) }
            .map_err(fault)?;
        Ok(())
    }

    fn copy(&self, from: &OpenClMemory, to: &mut OpenClMemory, bytes: usize) -> Result<(), DeviceError> {
        let (source, target) = (from.range(0..bytes)?, to.range(0..bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        let (first, second) = (source.start, target.start);
        // SAFETY: both memories have that many bytes.
        unsafe { self.queue.enqueue_copy_buffer(&from.buffer, &mut to.handle(), first, second, bytes, &[]) }
            .map_err(fault)?;
        Ok(())
    }

    unsafe fn bind(
        &self,
        module: &OpenClModule,
        stages: &[usize],
        memory: Bound<OpenClMemory>,
    ) -> Result<OpenClCall, DeviceError> {
        let with_sub = |memory: OpenClMemory| Ok((memory.sub_buffer()?, memory)).map(|(sub, memory)| (memory, sub));
        let buffers: Vec<(OpenClMemory, Option<Buffer<u8>>)> =
            memory.buffers.into_iter().map(with_sub).collect::<Result<_, DeviceError>>()?;
        let bound = |&number: &usize| {
            let stage = module
                .stages
                .get(number)
                .ok_or_else(|| DeviceError::fault(format!("the kernel has no stage {number}")))?;
            // Arguments are part of a kernel object, so each call needs its own.
            let kernel = kernel(&module.program, &stage.0)?;
            for (position, (memory, sub)) in buffers.iter().enumerate() {
                let buffer = sub.as_ref().unwrap_or(&memory.buffer).get();
                // SAFETY: a kernel's parameters are the plan's global buffers, in order.
                unsafe { kernel.set_arg(position as u32, &buffer) }.map_err(fault)?;
            }
            Ok((kernel, stage.1))
        };
        let kernels = stages.iter().map(bound).collect::<Result<_, DeviceError>>()?;
        Ok(OpenClCall { kernels, _buffers: buffers })
    }

    fn start(&self, call: &OpenClCall) -> Result<(), DeviceError> {
        for (kernel, launch) in &call.kernels {
            // The global size counts work-items, not groups.
            let (all, block) = ([launch.blocks * launch.threads], [launch.threads]);
            // SAFETY: all arguments of the kernel are set. The caller of `load` guaranteed that it
            // stays within them.
            let started = unsafe {
                self.queue.enqueue_nd_range_kernel(kernel.get(), 1, ptr::null(), all.as_ptr(), block.as_ptr(), &[])
            };
            started.map_err(fault)?;
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), DeviceError> {
        self.queue.finish().map_err(fault)
    }

    fn record(&self, _: &mut dyn FnMut() -> Result<(), DeviceError>) -> Option<Infallible> {
        None
    }

    fn replay(&self, recording: &Infallible) -> Result<(), DeviceError> {
        match *recording {}
    }

    /// Measures with the host's clock.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        self.finish()?;
        let start = Instant::now();
        work()?;
        self.finish()?;
        Ok(start.elapsed().as_secs_f64())
    }
}

fn kernel(program: &Program, symbol: &str) -> Result<Kernel, DeviceError> {
    let refused = |e: ClError| DeviceError::Load(LoadError::Refused(format!("{symbol}: {e}")));
    Kernel::create(program, symbol).map_err(refused)
}
