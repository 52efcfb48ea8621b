//! Devices that networks run on.

#![expect(private_interfaces, reason = "no other crate can name or implement what runs networks")]

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use autotune_ir::{GpuTarget, Target};
use autotune_runtime::{Cpu, CpuCall, CudaDevice, Device, DeviceError, HostMemory, Kernel, OpenClDevice, Packed, View};

use crate::compiled::{Bound, Compiled, Failure, InputReads, Piece, interpreting};
use crate::constants::{Given, Laid};
use crate::error::CompileError;
use crate::strided::{Copying, Strided};
use autotune_graph::NodeId;

/// A device that networks run on: a team of threads of this machine, a stream of a CUDA device, a
/// queue of an OpenCL device.
pub trait NetworkDevice: Runs {}

impl<D: Runs> NetworkDevice for D {}

/// Operations of a device that networks need beside running kernels.
pub trait Runs: Device {
    /// Source of devices that use the same memory and kernels, one for each caller.
    type Origin: Clone + Send + Sync;

    /// True if kernels read inputs in the caller's memory.
    const READS_CALLERS_MEMORY: bool;

    /// Finds this machine's device for a target.
    fn origin(target: &Target) -> Result<Self::Origin, DeviceError>;

    /// Returns a device for one caller at a time.
    fn of(origin: &Self::Origin) -> Result<Self, DeviceError>;

    /// Returns a device that loads kernels and runs none.
    fn to_load(origin: &Self::Origin) -> Result<Self, DeviceError> {
        Self::of(origin)
    }

    /// Allocates memory that is written once, from the first byte on.
    fn untouched(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        self.allocate(bytes)
    }

    /// Allocates memory that holds zeros.
    fn zeros(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        let mut memory = self.allocate(bytes)?;
        let words = self.extent(&memory).bytes / size_of::<u32>();
        self.fill(&mut memory, 0..words, 0)?;
        Ok(memory)
    }

    /// Copies a constant to memory of the device.
    fn keep(&self, laid: &Laid) -> Result<Self::Memory, DeviceError> {
        self.upload(laid.bytes())
    }

    /// Packs constants of a kernel into some memory.
    fn pack(
        &self,
        kernel: &Kernel<Self>,
        constants: &[Given],
        memory: Self::Memory,
    ) -> Result<Arc<Packed<Self>>, CompileError> {
        let given = || constants.iter().flatten();
        let kept = given().map(|(_, laid)| self.keep(laid)).collect::<Result<Vec<_>, _>>()?;
        let views = given()
            .zip(&kept)
            .map(|((buffer, _), memory)| View::of(memory, buffer.dtype, &buffer.shape).in_layout(buffer.layout));
        Ok(kernel.pack_in(self, &views.collect::<Vec<_>>(), memory)?)
    }

    /// Returns a call that copies elements of some bytes; `None` if the device has none.
    ///
    /// # Safety
    ///
    /// Whenever it is started, nobody else uses what is written, or writes what is read.
    unsafe fn copying(
        &self,
        copy: &Strided,
        bytes: usize,
        from: Self::Memory,
        to: Self::Memory,
    ) -> Result<Option<Self::Call>, CompileError> {
        let _ = (copy, bytes, from, to);
        Ok(None)
    }

    /// Returns a call that computes a node by the interpreter; `None` if the device has none.
    fn interpreting(
        &self,
        network: &Arc<Compiled<Self>>,
        node: NodeId,
        operands: Vec<Piece<Self>>,
        output: Piece<Self>,
        failure: &Arc<Failure>,
    ) -> Option<Self::Call> {
        let _ = (network, node, operands, output, failure);
        None
    }

    /// Records all calls of a run, if that makes runs faster. The calls may be started meanwhile,
    /// on memory that holds zeros.
    fn recorded(&self, calls: &[Self::Call]) -> Result<Option<Self::Recording>, DeviceError> {
        // Drivers load kernels when they are first launched, which cannot be recorded.
        self.start_all(calls)?;
        self.finish()?;
        Ok(self.record(&mut || self.start_all(calls)))
    }

    /// Starts calls, one after the other.
    fn start_all(&self, calls: &[Self::Call]) -> Result<(), DeviceError> {
        calls.iter().try_for_each(|call| self.start(call))
    }

    /// Starts the calls of a run on its inputs, of which those that are not read in place were
    /// copied.
    ///
    /// # Safety
    ///
    /// The inputs have the sizes of the network's, and outlive what is started.
    unsafe fn run(
        &self,
        calls: &mut [Self::Call],
        reads: &mut InputReads,
        inputs: &[&[f32]],
    ) -> Result<(), DeviceError> {
        let _ = (reads, inputs);
        self.start_all(calls)
    }
}

impl Runs for Cpu {
    /// Number of threads.
    type Origin = usize;

    const READS_CALLERS_MEMORY: bool = true;

    fn origin(target: &Target) -> Result<usize, DeviceError> {
        Ok(target.threads())
    }

    fn of(&threads: &usize) -> Result<Self, DeviceError> {
        Ok(Self::new(threads))
    }

    fn to_load(_: &usize) -> Result<Self, DeviceError> {
        Ok(Self::new(1))
    }

    fn untouched(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        HostMemory::untouched(bytes)
    }

    /// As it is: nothing runs on it before its inputs are written.
    fn zeros(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        self.allocate(bytes)
    }

    fn keep(&self, laid: &Laid) -> Result<HostMemory, DeviceError> {
        laid.copy()
    }

    fn pack(&self, kernel: &Kernel, constants: &[Given], memory: HostMemory) -> Result<Arc<Packed>, CompileError> {
        let views: Vec<View> = constants.iter().flatten().map(|(buffer, laid)| laid.view(buffer)).collect();
        Ok(kernel.pack_in(self, &views, memory)?)
    }

    unsafe fn copying(
        &self,
        copy: &Strided,
        bytes: usize,
        from: HostMemory,
        to: HostMemory,
    ) -> Result<Option<CpuCall>, CompileError> {
        // SAFETY: the caller's promise.
        let copying = unsafe { Copying::new(copy, bytes, from, to) };
        let copying = copying.ok_or_else(|| DeviceError::fault("a copy beyond its tensors"))?;
        Ok(Some(CpuCall::of_work(self, copying.tasks(), move |tasks: Range<usize>| copying.run(tasks))))
    }

    fn interpreting(
        &self,
        network: &Arc<Compiled>,
        node: NodeId,
        operands: Vec<Piece>,
        output: Piece,
        failure: &Arc<Failure>,
    ) -> Option<CpuCall> {
        let work = interpreting(network, node, operands, output, failure);
        Some(CpuCall::of_work(self, 1, move |_| work()))
    }

    /// Returns none: a team starts all calls at once.
    fn recorded(&self, _: &[CpuCall]) -> Result<Option<Self::Recording>, DeviceError> {
        Ok(None)
    }

    fn start_all(&self, calls: &[CpuCall]) -> Result<(), DeviceError> {
        Cpu::start_all(self, calls)
    }

    unsafe fn run(&self, calls: &mut [CpuCall], reads: &mut InputReads, inputs: &[&[f32]]) -> Result<(), DeviceError> {
        let mut bound = Bound::new(calls, reads);
        // SAFETY: the caller's promise.
        unsafe { bound.bind(inputs) };
        Cpu::start_all(self, bound.calls())
    }
}

impl Runs for CudaDevice {
    type Origin = Arc<Mutex<Self>>;

    const READS_CALLERS_MEMORY: bool = false;

    fn origin(target: &Target) -> Result<Self::Origin, DeviceError> {
        Ok(Arc::new(Mutex::new(Self::open(gpu(target)?)?)))
    }

    fn of(origin: &Self::Origin) -> Result<Self, DeviceError> {
        origin.lock().unwrap_or_else(PoisonError::into_inner).new_stream()
    }
}

impl Runs for OpenClDevice {
    type Origin = Arc<Mutex<Self>>;

    const READS_CALLERS_MEMORY: bool = false;

    fn origin(target: &Target) -> Result<Self::Origin, DeviceError> {
        Ok(Arc::new(Mutex::new(Self::open(gpu(target)?)?)))
    }

    fn of(origin: &Self::Origin) -> Result<Self, DeviceError> {
        origin.lock().unwrap_or_else(PoisonError::into_inner).new_queue()
    }
}

/// Returns the GPU that a target is.
fn gpu(target: &Target) -> Result<&GpuTarget, DeviceError> {
    target.gpu().ok_or_else(|| DeviceError::Absent(format!("{target} is no GPU")))
}
