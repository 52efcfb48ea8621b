//! Runs generated OpenCL on the machine's first device, which on most machines is PoCL on the CPU.

use std::sync::{Mutex, PoisonError};
use std::{env, ptr};

use autotune_codegen as codegen;
use autotune_ir::layout::from_layout;
use autotune_ir::program::{Role, When};
use autotune_ir::{GpuApi, KernelPlan, Program};
use autotune_workloads::Operands;
use ndarray::ArrayD;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device, get_all_devices};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::types::CL_BLOCKING;

use super::{elements, or_long, words};

/// Held while devices are listed: PoCL crashes or finds none if several threads load it at once.
static LISTING: Mutex<()> = Mutex::new(());

/// A device with its queue.
pub struct OpenCl {
    context: Context,
    queue: CommandQueue,
    pub name: String,
}

impl OpenCl {
    /// Opens the first device. Fails with the reason if there is none.
    pub fn find() -> Result<Self, String> {
        let listing = LISTING.lock().unwrap_or_else(PoisonError::into_inner);
        if env::var_os("POCL_KERNEL_CACHE").is_none() {
            // No test uses kernels that an earlier run compiled.
            // SAFETY: the only variable that this process sets, and only once. PoCL is not loaded
            // yet; everything else reads the environment through the standard library, or finds
            // the old block, which stays in place.
            unsafe { env::set_var("POCL_KERNEL_CACHE", "0") };
        }
        let devices = get_all_devices(CL_DEVICE_TYPE_ALL).map_err(|e| format!("no OpenCL: {e}"))?;
        drop(listing);

        let device = Device::new(*devices.first().ok_or("no OpenCL device")?);
        let context = Context::from_device(&device).map_err(|e| e.to_string())?;
        // SAFETY: the device belongs to the context.
        let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }.map_err(|e| e.to_string())?;
        Ok(Self { context, queue, name: device.name().map_err(|e| e.to_string())? })
    }

    /// Runs the program's kernels and returns the output.
    pub fn run(&self, program: &Program, operands: &Operands) -> Result<ArrayD<f32>, String> {
        let source = codegen::gpu::generate(program, GpuApi::OpenCl);
        // PoCL takes a third less time to compile and run kernels of these sizes unoptimised.
        let options = or_long(["-cl-opt-disable", ""]);
        let built = opencl3::program::Program::create_and_build_from_source(&self.context, &source, options)?;

        let plan = KernelPlan::of(program);
        let (mut buffers, mut output) = (Vec::new(), None);
        for buffer in plan.buffers.iter().filter(|b| b.is_global()) {
            let values = words(buffer, operands);
            if buffer.role == Role::Output {
                output = Some((buffers.len(), buffer));
            }
            buffers.push(self.upload(&values)?);
        }

        for when in [When::AheadOfTime, When::EveryRun] {
            for stage in plan.stages.iter().filter(|s| s.when == when) {
                let launch = stage.launch.ok_or("a stage without a launch")?;
                let kernel = Kernel::create(&built, &stage.symbol).map_err(|e| e.to_string())?;
                let mut call = ExecuteKernel::new(&kernel);
                // SAFETY: the parameters of a kernel are the global buffers in order, and the
                // kernel stays within them.
                let done = unsafe {
                    buffers.iter().for_each(|buffer| {
                        call.set_arg(buffer);
                    });
                    call.set_global_work_size(launch.blocks * launch.threads)
                        .set_local_work_size(launch.threads)
                        .enqueue_nd_range(&self.queue)
                };
                done.map_err(|e| e.to_string())?;
                self.queue.finish().map_err(|e| e.to_string())?;
            }
        }

        let (number, buffer) = output.ok_or("no output")?;
        let mut values = words(buffer, operands);
        // SAFETY: the buffer has as many words as are read.
        unsafe { self.queue.enqueue_read_buffer(&buffers[number], CL_BLOCKING, 0, &mut values, &[]) }
            .map_err(|e| e.to_string())?;
        let values = elements(buffer, &values);
        from_layout(&values, &program.spec.find(Role::Output).unwrap().shape, buffer.layout).map_err(|e| e.to_string())
    }

    fn upload(&self, values: &[f32]) -> Result<Buffer<f32>, String> {
        // SAFETY: the buffer has as many elements as are written to it.
        unsafe {
            let mut buffer = Buffer::create(&self.context, CL_MEM_READ_WRITE, values.len(), ptr::null_mut())
                .map_err(|e| e.to_string())?;
            self.queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, values, &[]).map_err(|e| e.to_string())?;
            Ok(buffer)
        }
    }
}
